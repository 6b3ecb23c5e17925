"""A store's desk for receivers: registration, acks, deregistration (docs/semantics.md A.2 to A.4, B.3, F.1,
F.7)."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from ..control import wire
from ..errors import Error, ReadOnlyError
from ..events.receiver import RegistrationSuccessFlags
from ..native.core import CData, lib
from ..options.receiver_paced import NON_BLOCKING, mode_refusal
from ..rules.expiry import Timers
from ..rules.registration import Refusal
from .clients import Client, Hold, Key
from .registry import called
from .sources import refused

if TYPE_CHECKING:
    from ..log.state_file import ReceiverState, SourceState
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
        wrong = mode_refusal(source.paced is not None, request.paced, None)
        if wrong is not None:
            return refused(request.id, wrong)
        timers = Timers(request.activity_timeout, request.state_lifetime)
        claimed = holdings.registry.claim_receiver(
            source, request.topic, request.registration_id, request.session_id, request.identity or request.uuid, timers
        )  # fmt: skip
        if isinstance(claimed, Refusal):
            return refused(request.id, claimed)
        receiver, old = claimed
        wrong = mode_refusal(source.paced is not None, request.paced, receiver.paced if old else None)
        if wrong is not None:
            return refused(request.id, wrong)

        limit = int(holdings.rules(source).options.receiver_new_registration_rollback)

        def join() -> tuple[dict[bytes, CData], int, int]:
            """From here on a receiver-paced repository lets nothing go that a new receiver starts with."""
            high, oldest = repository.next_sqn, int(repository.info.oldest_sqn)
            if not old:
                receiver.ack = max(oldest, high - limit) if source.paced is None else max(high, repository.live_sqn())
                receiver.paced = request.paced
            return repository.line.receivers(), high, oldest

        lines, high, oldest = holdings.drain_thread(join)
        line = lines.get(receiver.uuid)
        holder = self.holder(source, receiver, line, client, request)
        adopts = request.identity not in {b"", receiver.uuid}
        if holder is None and adopts:
            self._adopt(client, source, receiver, line, request.identity)
            line = lines.get(receiver.uuid)
            holder = self.holder(source, receiver, line, client, request)
        if holder is not None:
            if not old:  # nothing was granted, and nothing saved: it must not look old when it asks again
                source.receivers.remove(receiver)
            return self._in_use(request.id, receiver, *holder)
        client.holds[_key(source, receiver)] = Hold(time.time_ns(), request.uuid)
        under = source.incarnation
        if line is not None:
            on_board = source.acked(line.line)
            # A receiver that had joined says there what it has. What this store knows may be more: the oldest
            # that it kept when it heard of a receiver that began elsewhere, with older messages of another
            # store.
            if on_board.number >= receiver.ack or on_board.joined:
                receiver.ack, under = on_board.number, max(under, int(line.line.ack_stream))
            receiver.joined |= on_board.joined
        unrecorded = ""
        if not old or adopts or receiver.gone_ns or holdings.read_only is not None:
            receiver.gone_ns = 0
            try:
                unrecorded = self._record(source)
            except (Error, OSError):
                if not old:
                    source.receivers.remove(receiver)
                    del client.holds[_key(source, receiver)]
                raise
        return wire.ReceiverGranted(
            request.id, source.registration_id, source.session_id, receiver.registration_id, receiver.uuid,
            max(receiver.ack, high - limit), oldest, high, old and receiver.joined, str(repository.path),
            source.incarnation, source.start_sqn, _flags(source, receiver), source.begins, under,
            receiver.ack, repository.earlier(), unrecorded, list(source.excluded(holdings.state.excluded)),
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

    def _adopt(
        self, client: Client, source: SourceState, receiver: ReceiverState, line: CData | None, identity: bytes
    ) -> None:
        """Another store knew this receiver already, by another identity: what it has acknowledged by the one
        given here stays."""
        if line is not None:
            receiver.ack = max(receiver.ack, source.acked(line.line).number)
        client.holds.pop(_key(source, receiver), None)
        receiver.uuid, receiver.joined = identity, True

    def _in_use(self, request_id: int, receiver: ReceiverState, pid: int, since_ns: int) -> wire.Refused:
        name = called(receiver.registration_id, receiver.session_id)
        text = f"{name} is in use by a different receiver at store {self._holdings.name} (pid {pid})"
        return wire.Refused(
            request_id, "reg_id_in_use", text, pid, since_ns, receiver.registration_id, receiver.session_id
        )

    def holder(
        self, source: SourceState, receiver: ReceiverState, line: CData | None, client: Client | None = None,
        request: wire.RegisterReceiver | None = None,
    ) -> tuple[int, int] | None:  # fmt: skip
        """pid, and CLOCK_REALTIME of registration, of who holds a receiver's RegID: a connection, or a living
        line.

        ``client`` and ``request``: of the object that asks, which is not in its own way.
        """
        key = _key(source, receiver)
        owner = self._clients.owner(key)
        if owner is not None:
            hold = owner.holds[key]
            if owner is client and request is not None and hold.proposal == request.uuid:
                return None
            return owner.pid, hold.since_ns
        if line is None or line.line.state != lib.HF_LINE_ACTIVE:
            return None
        word = int(line.line.owner)
        if client is not None and request is not None and request.holds_line and word >> 16 == client.token >> 16:
            return None
        alive = lib.hf_process_alive(self._holdings.domain.fd, word, line.line.owner_pid, line.line.owner_start)
        return (int(line.line.owner_pid), int(line.line.since_ns)) if alive else None

    def holder_of(self, source: SourceState, receiver: ReceiverState) -> tuple[int, int] | None:
        """As :meth:`holder`, with the line looked up."""
        repository = self._holdings.repository(source.uuid)
        lines = self._holdings.drain_thread(repository.line.receivers) if repository is not None else {}
        return self.holder(source, receiver, lines.get(receiver.uuid))

    def leave(self, client: Client, request: wire.Leave) -> wire.Answer:
        """A clean close. The ack is taken in: the line is free for anybody from now on, and keeps it until
        then."""
        client.leave("receiver", request.source, request.uuid)
        with contextlib.suppress(ReadOnlyError):
            self.save_acks()
        return wire.Left(request.id)

    def deregister(self, client: Client, request: wire.Deregister) -> wire.Answer:
        """Deletes the receiver's ack (docs/semantics.md F.7)."""
        holdings = self._holdings
        source = holdings.registry.source(request.source)
        receiver = next((each for each in source.receivers if each.uuid == request.uuid), None) if source else None
        if source is None or receiver is None:
            return wire.Deregistered(request.id, 0)
        owner = self._clients.owner(_key(source, receiver))
        if owner is not None and owner is not client:
            return self._in_use(request.id, receiver, owner.pid, owner.holds[_key(source, receiver)].since_ns)
        self.save_acks()
        self.forget(source, receiver)
        return wire.Deregistered(request.id, receiver.ack)

    def forget(self, source: SourceState, receiver: ReceiverState) -> None:
        """Deletes everything of a receiver of this source.

        Raises ReadOnlyError, OSError when that cannot be written; then it is kept.
        """
        place = source.receivers.index(receiver)
        del source.receivers[place]
        try:
            self._holdings.save()
        except (Error, OSError):
            source.receivers.insert(place, receiver)
            raise
        self._clients.release(source.uuid, receiver.uuid)

    def save_acks(self) -> None:
        """Takes the acks from the boards into the state, which alone outlives a reboot: lazily, never beyond
        what is held, and backwards only to where a receiver has joined (see :meth:`register`)."""
        holdings = self._holdings
        changed, lost = False, []
        for source in holdings.state.sources:
            repository = holdings.repository(source.uuid)
            if repository is None:
                continue
            again = repository.caught_up and not repository.unsure and repository.next_sqn >= repository.caught_up_at
            changed |= source.learner and again
            source.lost_below = repository.lost_below
            if source.lost_below != repository.lost_on_disk:
                lost.append((repository, source.lost_below))
            source.learner = source.learner and not again
            if not source.receivers:
                continue
            acks, end = holdings.drain_thread(repository.acks)
            for receiver in source.receivers:
                on_board = acks.get(receiver.uuid)
                if on_board is None:
                    continue
                ack = min(on_board.number, max(receiver.ack, end))
                if ack > receiver.ack or (on_board.joined and (ack < receiver.ack or not receiver.joined)):
                    receiver.ack, changed = ack, True
                    receiver.joined |= on_board.joined
        if changed or lost:
            holdings.save(sync=bool(lost))  # nothing is let go before (Repository.release)
        for repository, below in lost:
            repository.lost_on_disk = below


def _flags(source: SourceState, receiver: ReceiverState) -> int:
    """Of RegistrationSuccess (docs/semantics.md B.5)."""
    flags = RegistrationSuccessFlags
    said = flags.RPP * (receiver.paced > 0) | flags.RPP_IS_NON_BLOCKING * (receiver.paced == NON_BLOCKING)
    return int(said | flags.NOCACHE * (source.repository == "no-cache"))


def _key(source: SourceState, receiver: ReceiverState) -> Key:
    return Key("receiver", source.uuid, receiver.uuid)
