"""A store's desk for receivers: registration, acks, deregistration (docs/semantics.md A.2 to A.4, B.3, F.1,
F.7). It gathers facts and carries out what engine/store/answers.py decides."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..control import wire
from ..errors import Error, ReadOnlyError
from ..events.receiver import RegistrationSuccessFlags
from ..native.core import CData, lib
from ..native.runtime import time
from ..options.receiver_paced import NON_BLOCKING
from ..rules.expiry import End, Timers, ephemeral_after_ns, forget_after_ns
from . import acks, answers
from .answers import Held
from .clients import Client, Hold, Key

if TYPE_CHECKING:
    from ..log.receiver_state import Acked, ReceiverState
    from ..log.state_file import SourceState
    from .clients import Clients
    from .holdings import Holdings

__all__ = ["ReceiverDesk"]


class ReceiverDesk:
    """See the module; the store's control thread."""

    def __init__(self, holdings: Holdings, clients: Clients) -> None:
        self._holdings = holdings
        self._clients = clients

    def register(self, client: Client, request: wire.RegisterReceiver) -> wire.Answer:
        """Grants unless somebody alive holds the RegID.

        Nobody starts farther back than receiver-new-registration-rollback. A new receiver's position is where
        it is granted: the oldest message within that limit, or, receiver-paced, the live end. It is durable
        before the answer leaves, so that the receiver never acknowledges what was before it. Of one that is
        known only acknowledgements move it.

        A disk that is read-only keeps nobody from reading what is there: the grant says that it is not
        recorded.
        """
        holdings = self._holdings
        source = holdings.registry.source(request.source)
        if source is None or source.incarnation == 0:
            return wire.Refused(request.id, "unknown_source", "the source has not registered with this store yet")
        repository = holdings.ensure_repository(source)
        claimed = answers.claim_receiver(request, source, holdings.registry)
        if isinstance(claimed, wire.Refused):
            return claimed
        receiver, old = claimed
        rollback = int(holdings.rules(source).options.receiver_new_registration_rollback)

        def join() -> tuple[dict[bytes, CData], int, int]:
            """From here on a receiver-paced repository lets nothing go that a new receiver starts with."""
            high, oldest = repository.next_sqn, int(repository.info.oldest_sqn)
            if not old:
                receiver.ack = answers.first_position(source, high, oldest, repository.live_sqn(), rollback)
                receiver.paced = request.paced
            return repository.line.receivers(), high, oldest

        lines, high, oldest = holdings.drain_thread(join)
        facts = self._facts(client, request, source, receiver, lines)
        decision = answers.decide_receiver(request, source, receiver, facts)
        if isinstance(decision, wire.Refused):
            if not old:  # nothing was granted, and nothing saved: it must not look old when it asks again
                source.receivers.remove(receiver)
            return decision
        for uuid in dict.fromkeys([receiver.uuid, request.identity or receiver.uuid]):
            owner = self._clients.owner(_key(source, uuid))  # this client, or that of this store's other name
            if owner is not None:
                del owner.holds[_key(source, uuid)]
        if decision.adopts:
            receiver.uuid = request.identity
        receiver.ack, receiver.joined = decision.ack, decision.joined
        client.holds[_key(source, receiver.uuid)] = Hold(time.time_ns(), request.uuid)
        unrecorded, kept = "", receiver.ephemeral and not request.ephemeral
        receiver.ephemeral &= request.ephemeral
        met, source.met = source.met, True
        if not old or decision.adopts or receiver.gone_ns or kept or holdings.read_only is not None:
            receiver.gone_ns = 0
            receiver.holder = client.process if receiver.ephemeral else (0, 0, 0)
            try:
                unrecorded = self._record(source)
            except (Error, OSError):
                source.met = met
                if not old:
                    source.receivers.remove(receiver)
                    del client.holds[_key(source, receiver.uuid)]
                raise
        excluded = source.excluded(holdings.state.excluded)
        return wire.ReceiverGranted(
            request.id, source.registration_id, source.session_id, receiver.registration_id, receiver.uuid,
            max(receiver.ack, high - rollback), oldest, high, old and receiver.joined, str(repository.path),
            source.incarnation, source.start_sqn, _flags(source, receiver), source.begins, decision.under,
            receiver.ack, repository.earlier(), unrecorded, list(excluded),
            old and not receiver.joined and source.paced is not None,
            [name for name in holdings.state.excluded if name not in excluded],
            receiver.ephemeral or receiver.session_id > 0 or self.lifetime_ns(source, receiver) is None,
        )  # fmt: skip

    def _facts(
        self, client: Client, request: wire.RegisterReceiver, source: SourceState, receiver: ReceiverState,
        lines: dict[bytes, CData],
    ) -> answers.ReceiverFacts:  # fmt: skip
        """What :func:`answers.decide_receiver` is to know. Of two identities, the one that another store gave
        it is the one that it will have."""
        before, after = receiver.uuid, request.identity or receiver.uuid

        def holder(uuid: bytes) -> Held | None:
            return self._holder(_key(source, uuid), lines.get(uuid), client, request)

        def said(uuid: bytes) -> Acked | None:
            return source.acked(lines[uuid].line) if uuid in lines else None

        return answers.ReceiverFacts(
            self._holdings.name, holder(before), holder(after) if after != before else None, said(after),
            int(lines[after].line.ack_stream) if after in lines else 0, said(before) if after != before else None,
        )  # fmt: skip

    def _record(self, source: SourceState) -> str:
        """Saves a grant; why it could not, where it holds all the same.

        What is acknowledged stands on the board, and a store that has forgotten a receiver grants it the
        oldest message. Of a receiver-paced source it would grant the live end, behind what was never
        acknowledged: so there the grant does not hold.
        """
        try:
            self._holdings.save()
        except ReadOnlyError as error:
            if source.paced is not None:
                raise
            return str(error)
        return ""

    def holder(self, source: SourceState, receiver: ReceiverState, line: CData | None) -> Held | None:
        """Who holds a receiver's RegID: a connection, or a living ``line``."""
        return self._holder(_key(source, receiver.uuid), line)

    def _holder(
        self, key: Key, line: CData | None, client: Client | None = None, request: wire.RegisterReceiver | None = None
    ) -> Held | None:
        """``client`` and ``request``: of the object that asks, which is not in its own way."""
        owner = self._clients.owner(key)
        if owner is not None:
            hold = owner.holds[key]
            mine = client is not None and request is not None and hold.proposal == request.uuid
            if mine and client is not None and owner.process == client.process:
                return None
            return Held(owner.pid, hold.since_ns)
        if line is None or line.line.state != lib.HF_LINE_ACTIVE:
            return None
        word = int(line.line.owner)
        if client is not None and request is not None and request.holds_line and word >> 16 == client.token >> 16:
            return None
        alive = lib.hf_process_alive(self._holdings.domain.fd, word, line.line.owner_pid, line.line.owner_start)
        return Held(int(line.line.owner_pid), int(line.line.since_ns)) if alive else None

    def holder_of(self, source: SourceState, receiver: ReceiverState) -> Held | None:
        """As :meth:`holder`, with the line looked up."""
        repository = self._holdings.repository(source.uuid)
        lines = self._holdings.drain_thread(repository.line.receivers) if repository is not None else {}
        return self.holder(source, receiver, lines.get(receiver.uuid))

    def leave(self, client: Client, request: wire.Leave) -> wire.Answer:
        """A clean close. The ack is taken in: the line is free for anybody from now on, and keeps it until
        then. It is said under each name that the receiver may have: nothing is to be done for one that nobody
        has here."""
        source = self._holdings.registry.source(request.source)
        known = any(each.uuid == request.uuid for each in source.receivers) if source is not None else False
        held = client.leave("receiver", request.source, request.uuid)
        ended = self._drop_left(client, request)
        if known or held:
            with contextlib.suppress(ReadOnlyError):
                acks.save(self._holdings, changed=ended)
        return wire.Left(request.id)

    def _drop_left(self, client: Client, request: wire.Leave) -> bool:
        """Forgets an ephemeral receiver that says that it leaves; False: nothing has changed."""
        source = self._holdings.registry.source(request.source)
        for receiver in list(source.receivers) if source is not None else ():
            mine = receiver.uuid == request.uuid and receiver.holder == client.process
            if source is not None and mine and self.lifetime_ns(source, receiver) is None and receiver.ephemeral:
                self.drop(source, receiver)
                return True
        return False

    def lifetime_ns(self, source: SourceState, receiver: ReceiverState) -> int | None:
        """How long it is remembered where a lifetime is set, of its own or in the configuration; None: none
        is."""
        options = self._holdings.rules(source).options
        own = Timers(options.receiver_activity_timeout, options.receiver_state_lifetime)
        return forget_after_ns(Timers(receiver.activity_timeout, receiver.state_lifetime), own)

    def forget_after_ns(self, source: SourceState, receiver: ReceiverState, line: CData | None) -> int | None:
        """How long after its end this receiver, which nobody holds, is remembered; None: for ever. ``line``:
        as of :meth:`holder`."""
        after = self.lifetime_ns(source, receiver)
        if after is not None or not receiver.ephemeral:
            return after
        left = line is not None and line.line.state == lib.HF_LINE_CLOSED and line.line.owner == 0
        token, pid, start = receiver.holder
        dead = token > 0 and lib.hf_process_alive(self._holdings.domain.fd, token, pid, start) == 0
        connected = any(client.process == receiver.holder for client in self._clients)
        timeout = receiver.activity_timeout or self._holdings.rules(source).options.receiver_activity_timeout
        return ephemeral_after_ns(End(left, dead, connected), int(timeout) * 1_000_000)

    def deregister(self, client: Client, request: wire.Deregister) -> wire.Answer:
        """Deletes the receiver's ack (docs/semantics.md F.7)."""
        holdings = self._holdings
        source = holdings.registry.source(request.source)
        receiver = next((each for each in source.receivers if each.uuid == request.uuid), None) if source else None
        if source is None or receiver is None:
            return wire.Deregistered(request.id, 0)
        owner = self._clients.owner(_key(source, receiver.uuid))
        hold = owner.holds[_key(source, receiver.uuid)] if owner is not None else None
        # Of the same process, too: it may have made another receiver while a full disk let this one wait.
        if (
            owner is not None
            and hold is not None
            and (owner is not client or request.proposal not in {b"", hold.proposal})
        ):
            return answers.in_use(request.id, holdings.name, receiver, "receiver", Held(owner.pid, hold.since_ns))
        acks.save(self._holdings)
        self.forget(source, receiver)
        if not receiver.ephemeral:  # it could not mark its line itself, perhaps: somebody had the board's turn
            holdings.unmarked.setdefault(source.uuid, set()).add((receiver.uuid, receiver.session_id))
        return wire.Deregistered(request.id, receiver.ack)

    def drop(self, source: SourceState, receiver: ReceiverState) -> None:
        """Deletes an ephemeral receiver that has ended. The caller saves, at its leisure: what a crash brings
        back has ended, too."""
        source.receivers.remove(receiver)
        source.met = True
        self._clients.release(source.uuid, receiver.uuid)

    def forget(self, source: SourceState, receiver: ReceiverState) -> None:
        """Deletes everything of a receiver of this source.

        Raises ReadOnlyError, OSError when that cannot be written; then it is kept.
        """
        place = source.receivers.index(receiver)
        del source.receivers[place]
        source.met = True
        try:
            self._holdings.save()
        except (Error, OSError):
            source.receivers.insert(place, receiver)
            raise
        self._clients.release(source.uuid, receiver.uuid)


def _flags(source: SourceState, receiver: ReceiverState) -> int:
    """Of RegistrationSuccess (docs/semantics.md B.5)."""
    flags = RegistrationSuccessFlags
    said = flags.RPP * (receiver.paced > 0) | flags.RPP_IS_NON_BLOCKING * (receiver.paced == NON_BLOCKING)
    return int(said | flags.NOCACHE * (source.repository == "no-cache"))


def _key(source: SourceState, receiver: bytes) -> Key:
    return Key("receiver", source.uuid, receiver)
