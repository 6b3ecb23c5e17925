"""Directories of stores that a test writes by hand: their state, and the log of one source."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from support.handmade_feed import Log

from holdfast.engine.log.state_file import SourceState, State, StateFile

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Shelves"]


class Shelves:
    """Stores of one source of the topic ``quotes``. ``close`` ends the logs; they stay readable."""

    def __init__(self, path: Path, **source: Any) -> None:
        self.path = path
        self.uuid = secrets.token_bytes(16)
        self.logs: dict[str, Log] = {}
        self._source = {"topic": "quotes", "registration_id": 7, "session_id": 0, "incarnation": 1, **source}

    @property
    def directories(self) -> list[Path]:
        """Of the stores, by name."""
        return sorted(self.path.glob("store-*"))

    def store(
        self, name: str, *, log: bool = True, log_config: dict[str, int] | None = None, **source: Any
    ) -> Log | None:
        """A store with this state of the source, and an open log of it. Called again, its state is
        replaced."""
        directory = self.path / f"store-{name}"
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        kept = SourceState(self.uuid, **{**self._source, **source})
        StateFile(directory).save(State(name, secrets.token_bytes(16), 1, 8, [kept]))
        if log and name not in self.logs:
            self.logs[name] = Log(directory / "logs" / self.uuid.hex(), self.uuid, **log_config or {})
        return self.logs.get(name)

    def close(self) -> None:
        """Idempotent."""
        for log in self.logs.values():
            log.close()
