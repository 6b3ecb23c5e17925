"""Who is registered at a store: decisions over its state, without I/O (um_semantics A.2, A.3).

RegIDs are 32-bit numbers of one space per store; 0 asks for one. A session ID stands for "the RegID that I had": (topic,
session) for sources, (source, session) for receivers, two separate maps. With a session ID a RegID that was given is ignored.
"""

from __future__ import annotations

from .registration import Refusal
from .store_state import ReceiverState, SourceState, State

__all__ = ["Registry"]

REG_ID_MAX = 2**32 - 1


class Registry:
    """Looks up and assigns. Changes ``state`` in place; the caller saves it before it answers."""

    def __init__(self, state: State) -> None:
        self.state = state

    def source(self, uuid: bytes) -> SourceState | None:
        """The source with this identity."""
        return next((source for source in self.state.sources if source.uuid == uuid), None)

    def sources(self, topic: str) -> list[SourceState]:
        """All on this topic; on every topic if it is empty."""
        return [source for source in self.state.sources if topic in {"", source.topic}]

    def claim_source(
        self, topic: str, registration_id: int, session_id: int, uuid: bytes
    ) -> tuple[SourceState, bool] | Refusal:
        """The state of this source and whether it is old; a new one gets ``uuid`` and, for RegID 0, a free RegID."""
        known = self._known_source(topic, registration_id, session_id)
        if known is not None:
            if known.topic != topic:
                return Refusal(
                    "topic_mismatch",
                    f"RegID {known.registration_id} belongs to topic {known.topic!r}, not to {topic!r}: src topic does "
                    "not match the info topic",
                    registration_id=known.registration_id,
                )
            return known, True
        if not session_id and registration_id and registration_id in self._used():
            return Refusal(
                "reg_id_in_use",
                f"RegID {registration_id} is in use by a receiver at this store",
                registration_id=registration_id,
            )
        chosen = registration_id if registration_id and not session_id else self._next()
        fresh = SourceState(uuid, topic, chosen, session_id)
        self.state.sources.append(fresh)
        return fresh, False

    def _known_source(self, topic: str, registration_id: int, session_id: int) -> SourceState | None:
        if session_id:
            matches = [s for s in self.state.sources if s.session_id == session_id and s.topic == topic]
        elif registration_id:
            matches = [s for s in self.state.sources if s.registration_id == registration_id]
        else:
            matches = []
        return matches[0] if matches else None

    def claim_receiver(
        self, source: SourceState, registration_id: int, session_id: int, uuid: bytes
    ) -> tuple[ReceiverState, bool] | Refusal:
        """The state of this receiver of ``source`` and whether it is old; a new one has acknowledged nothing."""
        known = self._known_receiver(source, registration_id, session_id)
        if known is not None:
            return known, True
        if not session_id and registration_id in {s.registration_id for s in self.state.sources}:
            return Refusal(
                "reg_id_in_use",
                f"RegID {registration_id} is in use by a source at this store",
                registration_id=registration_id,
            )
        chosen = registration_id if registration_id and not session_id else self._next()
        fresh = ReceiverState(uuid, chosen, session_id, 0)
        source.receivers.append(fresh)
        return fresh, False

    @staticmethod
    def _known_receiver(source: SourceState, registration_id: int, session_id: int) -> ReceiverState | None:
        if session_id:
            matches = [r for r in source.receivers if r.session_id == session_id]
        elif registration_id:
            matches = [r for r in source.receivers if r.registration_id == registration_id]
        else:
            matches = []
        return matches[0] if matches else None

    def _used(self) -> set[int]:
        used = {source.registration_id for source in self.state.sources}
        for source in self.state.sources:
            used.update(receiver.registration_id for receiver in source.receivers)
        return used

    def _next(self) -> int:
        """The next free RegID of the store's own series; a number is never granted twice."""
        used = self._used()
        candidate = self.state.next_registration_id
        while candidate in used or candidate == 0:
            candidate = candidate + 1 if candidate < REG_ID_MAX else 1
        self.state.next_registration_id = candidate + 1 if candidate < REG_ID_MAX else 1
        return candidate
