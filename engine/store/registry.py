"""Who is registered at a store: decisions over its state, without I/O (docs/semantics.md A.2, A.3).

RegIDs are 32-bit numbers of one space per store; 0 asks for one. A session ID stands for "the RegID that I
had": (topic, session) for sources, (source, session) for receivers, two separate maps. With a session ID a
RegID that was given is ignored. An object that registers again, because the store was away, is known by its
uuid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log.receiver_state import ReceiverState
from ..log.state_file import SourceState, State
from ..log.state_parts import StateParts
from ..rules.expiry import UNSET, Timers
from ..rules.registration import REG_ID_MAX, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

__all__ = ["Registry", "called", "source_called"]

SESSION_ID_MAX = 2**64 - 2


def called(registration_id: int, session_id: int) -> str:
    """A registration as a text names it."""
    return f"RegID {registration_id}" + (f" (session ID {session_id:#x})" if session_id else "")


def source_called(source: SourceState) -> str:
    """A source as a text names it: people know the topic."""
    return f"{called(source.registration_id, source.session_id)} on topic {source.topic!r}"


class Registry:
    """Looks up and assigns. Changes ``state`` in place; the caller saves it before it answers. Sources come,
    go and change their uuid here alone: a store may have thousands, and finds each at once.

    A source *rests* when nothing of it changes until somebody looks it up here (engine/store/expiry.py says
    when). What the state's file has of it holds until then, and no look at all sources looks at it.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._by_uuid = {source.uuid: source for source in state.sources}
        self._by_session = {(each.topic, each.session_id): each for each in state.sources if each.session_id}
        self.parts = StateParts(state.sources)
        for source in state.sources:  # an older version did not write it down
            source.met |= bool(source.receivers)

    @property
    def uuids(self) -> Set[bytes]:
        """Of all sources."""
        return self._by_uuid.keys()

    def wake(self, source: SourceState) -> SourceState:
        """Something of it may change from now on."""
        self.parts.wake(source)
        return source

    def source(self, uuid: bytes) -> SourceState | None:
        """The source with this identity."""
        found = self._by_uuid.get(uuid)
        return self.wake(found) if found is not None else None

    def sources(self, topic: str) -> list[SourceState]:
        """All on this topic; on every topic if it is empty."""
        return [self.wake(source) for source in self.state.sources if topic in {"", source.topic}]

    def registered(self, registration_id: int) -> SourceState | None:
        """The source with this RegID."""
        found = next((each for each in self.state.sources if each.registration_id == registration_id), None)
        return self.wake(found) if found is not None else None

    def holders(self, registration_id: int) -> list[tuple[SourceState, ReceiverState | None]]:
        """Every registration with this RegID: a source, or receivers of different sources."""
        found: list[tuple[SourceState, ReceiverState | None]] = []
        for source in self.state.sources:
            if source.registration_id == registration_id:
                found.append((source, None))
            found += [(source, each) for each in source.receivers if each.registration_id == registration_id]
        return [(self.wake(source), receiver) for source, receiver in found]

    def claim_source(
        self, topic: str, registration_id: int, session_id: int, uuid: bytes, timers: Timers = UNSET
    ) -> tuple[SourceState, bool] | Refusal:
        """The state of this source and whether it is old; a new one gets ``uuid`` and, for RegID 0, a free
        RegID.

        ``timers`` are kept by a new one; an old one has those of its first registration.
        """
        wrong = _impossible(registration_id, session_id)
        if wrong is not None:
            return wrong
        known = self._by_uuid.get(uuid)
        if known is None and session_id:
            known = self._by_session.get((topic, session_id))
        elif known is None and registration_id:
            known = self.registered(registration_id)
        if known is not None:
            if known.topic != topic:
                return _topic_mismatch(known.registration_id, known.topic, topic)
            return _contradiction(known, session_id) or (self.wake(known), True)
        if not session_id and registration_id and self._is_used(registration_id):
            return _in_use(registration_id, "receiver")
        chosen = registration_id if registration_id and not session_id else self._next()
        fresh = SourceState(
            uuid, topic, chosen, session_id, activity_timeout=timers.activity_ms, state_lifetime=timers.lifetime_ms
        )
        self.add(fresh)
        return fresh, False

    def add(self, source: SourceState) -> None:
        """One that is new, or is kept after all."""
        self.state.sources.append(source)
        self.parts.add(source)
        self._by_uuid[source.uuid] = source
        if source.session_id:
            self._by_session[source.topic, source.session_id] = source

    def remove(self, *sources: SourceState) -> None:
        """They are not kept any more. All are looked at once, not once for each."""
        going = {source.uuid for source in sources}
        self.state.sources[:] = [source for source in self.state.sources if source.uuid not in going]
        for source in sources:
            del self._by_uuid[source.uuid]
            self.parts.remove(source)
            if self._by_session.get((source.topic, source.session_id)) is source:
                del self._by_session[source.topic, source.session_id]

    def rename(self, source: SourceState, uuid: bytes) -> None:
        """Another identity."""
        self.remove(source)
        source.uuid = uuid
        self.add(source)

    def claim_receiver(
        self, source: SourceState, topic: str, registration_id: int, session_id: int, uuid: bytes,
        timers: Timers = UNSET, *, ephemeral: bool = False,
    ) -> tuple[ReceiverState, bool] | Refusal:  # fmt: skip
        """The state of this receiver of ``source`` and whether it is old; a new one has acknowledged nothing.

        ``timers`` as in :meth:`claim_source`. ``ephemeral``: nobody asks to keep it, if it is new.
        """
        wrong = _impossible(registration_id, session_id)
        if wrong is not None:
            return wrong
        if source.topic != topic:
            return _topic_mismatch(source.registration_id, source.topic, topic)
        known = _known(source.receivers, registration_id, session_id, uuid)
        if known is not None:
            return _contradiction(known, session_id) or (known, True)
        if not session_id and registration_id in {each.registration_id for each in self.state.sources}:
            return _in_use(registration_id, "source")
        chosen = registration_id if registration_id and not session_id else self._next()
        fresh = ReceiverState(
            uuid, chosen, session_id, 0, timers.activity_ms, timers.lifetime_ms, joined=False, ephemeral=ephemeral
        )
        source.receivers.append(fresh)
        return fresh, False

    def _is_used(self, registration_id: int) -> bool:
        return any(
            source.registration_id == registration_id
            or any(receiver.registration_id == registration_id for receiver in source.receivers)
            for source in self.state.sources
        )

    def _next(self) -> int:
        """The next free RegID of the store's own series."""
        candidate = self.state.next_registration_id
        while candidate == 0 or self._is_used(candidate):
            candidate = candidate + 1 if candidate < REG_ID_MAX else 1
        self.state.next_registration_id = candidate + 1 if candidate < REG_ID_MAX else 1
        return candidate


def _known(every: Iterable[ReceiverState], registration_id: int, session_id: int, uuid: bytes) -> ReceiverState | None:
    """By the uuid of a live object, else by the session ID, else by the RegID."""
    matches = [each for each in every if each.uuid == uuid]
    if not matches and session_id:
        matches = [each for each in every if each.session_id == session_id]
    elif not matches and registration_id:
        matches = [each for each in every if each.registration_id == registration_id]
    return matches[0] if matches else None


def _impossible(registration_id: int, session_id: int) -> Refusal | None:
    if not 0 <= registration_id <= REG_ID_MAX:
        return Refusal("usage", f"RegID {registration_id}: a RegID is a number from 1 to {REG_ID_MAX}, or 0 for any")
    if not 0 <= session_id <= SESSION_ID_MAX:
        return Refusal(
            "usage", f"session ID {session_id:#x}: a session ID is from 1 to {SESSION_ID_MAX:#x}, or 0 for none"
        )
    return None


def _topic_mismatch(registration_id: int, kept: str, asked: str) -> Refusal:
    return Refusal(
        "topic_mismatch",
        f"RegID {registration_id} belongs to topic {kept!r}, not to {asked!r}: src topic does not match the info topic",
        registration_id=registration_id,
    )


def _contradiction(known: SourceState | ReceiverState, session_id: int) -> Refusal | None:
    """What the store keeps belongs to another session ID (docs/semantics.md A.3)."""
    if known.session_id == session_id:
        return None
    asked = f"session ID {session_id:#x}" if session_id else "no session ID"
    kept = f"session ID {known.session_id:#x}" if known.session_id else "no session ID"
    return Refusal(
        "session_mismatch",
        f"could not register client with {asked}: RegID {known.registration_id} was registered with {kept}: RegID mismatch",
        registration_id=known.registration_id,
        session_id=known.session_id,
    )


def _in_use(registration_id: int, role: str) -> Refusal:
    """The other role has it; the caller names the process."""
    text = f"RegID {registration_id} is in use by a {role}"
    return Refusal("reg_id_in_use", text, registration_id=registration_id)
