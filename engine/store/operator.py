"""A store's desk for its operator: deregistration of what others hold, and marks on messages
(docs/semantics.md F.7, I.4, I.8).

Only the user who runs the store gets here (SO_PEERCRED, checked before a byte is decoded). What the operator
takes from a living process it is told: its object asks again, and is refused with the reason, until it is
made anew (docs/semantics.md N 29).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..control import wire
from ..errors import ReadOnlyError
from ..log.reader import Block, Logs
from ..log.undeliverable import RANGES_MAX, MarkFile
from . import acks, news
from .clients import Key
from .forgotten_lines import mark_forgotten
from .meant_receiver import meant_receiver
from .registry import called

if TYPE_CHECKING:
    from collections.abc import Set

    from ..log.receiver_state import ReceiverState
    from ..log.state_file import SourceState
    from ..memory.deregistered_lines import ReceiverLine
    from .clients import Client, Clients
    from .holdings import Holdings
    from .receivers import ReceiverDesk
    from .repository import Repository
    from .sources import SourceDesk

__all__ = ["OperatorDesk"]

_log = logging.getLogger("holdfast.store")


class OperatorDesk:
    """See the module; the store's control thread."""

    def __init__(self, holdings: Holdings, clients: Clients, sources: SourceDesk, receivers: ReceiverDesk) -> None:
        self._holdings = holdings
        self._clients = clients
        self._sources = sources
        self._receivers = receivers

    # Deregistration -----------------------------------------------------------------------------------------

    def deregister(self, request: wire.OperatorDeregister) -> wire.Answer:
        """Forgets a source with its messages, or one receiver of it. Refused while a living process holds it,
        unless forced."""
        source = self._holdings.registry.registered(request.registration_id)
        if source is None:
            return self._unknown(request.id, request.registration_id)
        if not request.receiver_registration_id:
            return self._deregister_source(request, source)
        number, uuid = request.receiver_registration_id, request.receiver_uuid
        meant = meant_receiver(self._holdings.domain, source, number, uuid)
        if meant.receiver is not None:
            return self._deregister_receiver(request, source, meant.receiver)
        if meant.line is not None and (again := self._deregister_again(request, source, meant.line)) is not None:
            return again
        called_so = f"uuid {uuid.hex()}" if uuid else f"RegID {number}"
        of = f"of RegID {request.registration_id} at store {self._holdings.name}"
        if meant.why_not:
            return wire.Refused(request.id, "usage", f"{called_so} names no receiver {of} for sure: {meant.why_not}")
        known = ", ".join(str(each.registration_id) for each in source.receivers) or "none"
        text = f"{called_so} is no receiver {of}; its receivers: {known}"
        if meant.line is not None:
            text += f". {self._unmarked(source, meant.line)}"
        return wire.Refused(request.id, "usage", text)

    def _deregister_source(self, request: wire.OperatorDeregister, source: SourceState) -> wire.Answer:
        holdings = self._holdings
        holder = self._sources.holder(source)
        if holder is not None and not request.force:
            return self._held(request.id, source, *holder)
        stored = holdings.held(source)
        concerned = self._concerned(source, holder[0] if holder is not None else 0)
        self._sources.forget(source, names=self._is_only_here(source))
        self._tell(source, concerned)
        return wire.Deregistered(request.id, stored)

    def _is_only_here(self, source: SourceState) -> bool:
        """Else another store may still drain its ring."""
        return set(source.stores) <= {self._holdings.name}

    def _tell(self, source: SourceState, concerned: list[Client]) -> None:
        """It is forgotten."""
        _log.info("%s: deregistered with its messages, by the operator", news.called(self._holdings.name, source))
        self._clients.expel((source.uuid, source.incarnation), called(source.registration_id, source.session_id))
        for client in concerned:
            self._clients.send(client, wire.Expelled(source.uuid))

    def forget_finished(self, request: wire.ForgetFinished) -> wire.Answer:
        """Forgets those sources that are as who asks has seen them, all or none of which are saved. What has
        come since stays, and is told."""
        if len(request.sources) > wire.FINISHED_MAX:
            text = f"{len(request.sources)} sources: one request takes {wire.FINISHED_MAX}"
            return wire.Refused(request.id, "usage", text)
        if not request.owed:
            acks.save(self._holdings)
        ringed = {item.uuid for item in self._holdings.domain.objects() if item.kind == "stream"}
        going: list[SourceState] = []
        kept: list[tuple[bytes, str]] = []
        alive: list[bytes] = []
        for seen in {each.uuid: each for each in request.sources}.values():
            source = self._holdings.registry.source(seen.uuid)
            if source is None:
                kept.append((seen.uuid, f"store {self._holdings.name} does not keep it any more"))
                continue
            name = called(source.registration_id, source.session_id)
            if why := self._goes_on(seen, source, ringed):
                alive.append(seen.uuid)
            elif not source.is_shelved and self._holdings.repository(source.uuid) is None:
                why = "has a log that cannot be opened"
            elif not request.owed:
                why = self._wanted(source)
            if why:
                kept.append((seen.uuid, f"{name} {why} at store {self._holdings.name}"))
            else:
                going.append(source)
        if going and not request.only_look:
            concerned = [self._concerned(source) for source in going]
            self._sources.forget_all(going, names=self._is_only_here)
            for source, clients in zip(going, concerned, strict=True):
                self._tell(source, clients)
        return wire.ForgotFinished(request.id, kept, alive)

    def _goes_on(self, seen: wire.Finished, source: SourceState, ringed: Set[bytes]) -> str:
        """What is not as the operator has seen it, because somebody goes on with the source, or has done so
        since; empty: nobody has."""
        holder = self._sources.holder(source)
        if holder is not None:
            return f"is held by process {holder.pid}"
        if source.incarnation > seen.incarnation:
            return "has begun anew, which nobody has looked at,"
        if source.uuid in ringed:
            return "has a ring again, which nobody has looked at,"
        stored = self._holdings.held(source)
        if stored > seen.next:
            return f"has messages up to number {stored - 1}, which nobody has looked at,"
        if seen.gone_ns and not 0 < source.gone_ns <= seen.gone_ns:
            return "was held since it was looked at"
        return ""

    def _wanted(self, source: SourceState) -> str:
        """By which of its receivers; empty: nobody lacks anything of it, or lives."""
        stored = self._holdings.held(source)
        for each in source.receivers:
            name = called(each.registration_id, each.session_id)
            if not each.ephemeral and each.ack < stored:
                return f"is owed to receiver {name}, which has not acknowledged all of it,"
            holder = self._receivers.holder_of(source, each)
            if holder is not None:
                return f"has a receiver that lives, {name} of process {holder.pid},"
        return ""

    def _deregister_receiver(
        self, request: wire.OperatorDeregister, source: SourceState, receiver: ReceiverState
    ) -> wire.Answer:
        holder = self._receivers.holder_of(source, receiver)
        if holder is not None and not request.force:
            return self._held(request.id, receiver, *holder)
        acks.save(self._holdings)
        key = Key("receiver", source.uuid, receiver.uuid)
        concerned = [client for client in self._concerned(source) if key in client.holds]
        proposals = [client.holds[key].proposal for client in concerned]  # a receiver object is known by them
        self._receivers.forget(source, receiver)
        for proposal in proposals:
            self._clients.expel((proposal, 0), called(receiver.registration_id, receiver.session_id))
        for client in concerned:
            self._clients.send(client, wire.Expelled(source.uuid))
        mark_forgotten(self._holdings, {source.uuid: [(receiver.uuid, receiver.session_id)]})
        return wire.Deregistered(request.id, receiver.ack)

    def _deregister_again(
        self, request: wire.OperatorDeregister, source: SourceState, line: ReceiverLine
    ) -> wire.Answer | None:
        """A receiver that this store does not know any more, and of which a line is left that says so to
        nobody. None: another store knows it, or may know it."""
        gone = line.uuid, line.session_id
        if mark_forgotten(self._holdings, {source.uuid: [gone]}):
            return wire.Deregistered(request.id, source.clamp(line.ack, line.ack_stream))
        return None

    def _unmarked(self, source: SourceState, line: ReceiverLine) -> str:
        """Why a line that is left was not marked."""
        if (line.uuid, line.session_id) in self._holdings.unmarked.get(source.uuid, ()):
            why = "a store that may know it cannot be read, or the board cannot be written now"
            return f"It is left on the board and not marked yet, for {why}: this store tries again"
        return "Another store knows it: deregister it there"

    def _concerned(self, source: SourceState, pid: int = 0) -> list[Client]:
        """Connections that hold the source, or receivers of it; and those of process ``pid``, which holds it
        without one: this store has no seat there."""
        held = [client for client in self._clients if any(key.source == source.uuid for key in client.holds)]
        return held + [client for client in self._clients if client.pid == pid and client not in held]

    # Exclusion ----------------------------------------------------------------------------------------------

    def exclude(self, request: wire.Exclude) -> wire.Answer:
        """Nobody waits for that store any more: what only it has is given up. Durable when it is answered."""
        holdings = self._holdings
        if request.store == holdings.name:
            return wire.Refused(request.id, "usage", f"store {request.store} is this one, and it runs")
        if len(holdings.state.excluded) >= wire.EXCLUDED_MAX and request.store not in holdings.state.excluded:
            text = f"store {holdings.name} remembers {wire.EXCLUDED_MAX} exclusions, and takes no more"
            return wire.Refused(request.id, "usage", text)
        before = dict(holdings.state.excluded)
        holdings.state.excluded[request.store] = request.number
        try:
            holdings.save()
        except (ReadOnlyError, OSError):  # nobody is told of it, so nobody may act on it
            holdings.state.excluded = before
            raise
        _log.warning("store %s: %s is excluded by the operator", holdings.name, request.store)
        concerned = [source for source in holdings.state.sources if request.store in source.stores]
        said = [(source.topic, source.registration_id, holdings.held(source)) for source in concerned]
        return wire.Excluded(request.id, said[: wire.EXCLUDED_MAX])

    # Marks --------------------------------------------------------------------------------------------------

    def mark(self, request: wire.Mark) -> wire.Answer:
        """Durable when it is answered. Whole messages are marked: of one with several numbers, any of them
        names it."""
        source = self._holdings.registry.registered(request.registration_id)
        if source is None:
            return self._unknown(request.id, request.registration_id)
        repository = self._holdings.ensure_repository(source)
        end = self._holdings.drain_thread(lambda: repository.next_sqn)
        beyond = [(first, last) for first, last in request.ranges if not first <= last < end]
        if len(request.ranges) > wire.RANGES_MAX:
            text = f"{len(request.ranges)} ranges: one request takes {wire.RANGES_MAX}"
            return wire.Refused(request.id, "usage", text)
        if beyond or not request.ranges:
            first, last = beyond[0] if beyond else (0, 0)
            text = f"numbers {first}..{last}: store {self._holdings.name} has messages of RegID {request.registration_id} below"
            return wire.Refused(request.id, "usage", f"{text} {end}; mark what it has")
        whole = [self._whole(repository, first, last) for first, last in request.ranges]
        file = MarkFile(repository.path)
        if not file.add(source.incarnation, whole):
            text = f"{len(request.ranges)} ranges more: a log takes {RANGES_MAX} at most; mark longer ranges"
            return wire.Refused(request.id, "usage", text)
        for first, last in whole:
            _log.warning("%s: numbers %d..%d marked undeliverable by the operator", repository.called, first, last)
        return wire.Marked(request.id, whole)

    @staticmethod
    def _whole(repository: Repository, first: int, last: int) -> tuple[int, int]:
        """The range with all of the messages that it begins and ends in; what cannot be read stays as it was
        given."""
        logs, block = Logs([str(repository.path)]), Block()
        try:
            for number in (first, last):
                if logs.read(number, block):
                    entry = block.entries[block.index]
                    if entry.first_sequence_number <= number:
                        first = min(first, int(entry.first_sequence_number))
                        last = max(last, int(entry.sequence_number))
        finally:
            logs.close()
        return first, last

    # --------------------------------------------------------------------------------------------------------

    def _unknown(self, request_id: int, registration_id: int) -> wire.Refused:
        kept = ", ".join(str(source.registration_id) for source in self._holdings.state.sources[: wire.PAGE_MAX])
        text = f"RegID {registration_id} is no source at store {self._holdings.name}; its sources: {kept or 'none'}"
        return wire.Refused(request_id, "unknown_source", text)

    def _held(self, request_id: int, kept: SourceState | ReceiverState, pid: int, since_ns: int) -> wire.Refused:
        name = called(kept.registration_id, kept.session_id)
        text = f"{name} is held at store {self._holdings.name} (pid {pid})"
        return wire.Refused(
            request_id, "reg_id_in_use", text, pid, since_ns, kept.registration_id, kept.session_id
        )  # fmt: skip
