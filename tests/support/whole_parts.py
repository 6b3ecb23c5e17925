"""Of each state that a store of this process saves: no source that rests has changed since it was encoded."""

from __future__ import annotations

import msgspec

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.log.state_parts import StateParts

__all__ = ["check_parts"]

_encoded = StateParts.encoded


def _checked(parts: StateParts) -> msgspec.Raw:
    written = _encoded(parts)
    sources = [source for part in parts._parts for source in part.sources.values()]
    saved = msgspec.msgpack.decode(written, type=list[SourceState])
    assert [source.uuid for source in saved] == [source.uuid for source in sources]
    changed = [now for was, now in zip(saved, sources, strict=True) if now != was and parts.rests(now.uuid)]
    assert changed == [], "sources that rest have changed"
    return written


def check_parts() -> None:
    """From now on, at each save."""
    StateParts.encoded = _checked  # type: ignore[assignment, method-assign]
