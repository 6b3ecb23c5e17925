"""How a process that starts a store says that it is ready, or why not, to the one that waits for it: one line
over a pipe."""

from __future__ import annotations

import msgspec

from ..engine import errors
from ..engine.errors import Error, rebuild

__all__ = ["decode", "encode"]

READY = b"ready\n"


def encode(error: BaseException | None) -> bytes:
    """None is "ready"."""
    if error is None:
        return READY
    if not isinstance(error, Error):
        error = Error(f"{type(error).__name__}: {error}")
    state = {name: value for name, value in vars(error).items() if isinstance(value, str | int | None)}
    return msgspec.json.encode([type(error).__name__, str(error.args[0]), state]) + b"\n"


def decode(line: bytes) -> Error | None:
    """The error that the other process met, as its own type. Without a whole line it has ended before it
    could say anything."""
    if line == READY:
        return None
    try:
        name, text, state = msgspec.json.decode(line, type=tuple[str, str, dict[str, str | int | None]])
        return rebuild(getattr(errors, name), (text,), dict(state))
    except (msgspec.DecodeError, AttributeError):
        return Error("the store's process ended before it was ready", hint="its output says why")
