"""Which store of a source may be found silent: on a busy machine each may stand still for seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.rules.heartbeat import Heartbeat

if TYPE_CHECKING:
    import holdfast as hf

__all__ = ["NEVER", "may_fall_silent"]

NEVER = {"ume_store_activity_timeout": 3_600_000, "ume_store_check_interval": 50}
"""Options of a source: no store of it is found silent."""


def may_fall_silent(src: hf.Source, store: int, after_ms: int) -> None:
    """From now on this one of its stores, by its place in the list, is found silent after this many
    milliseconds."""
    step_ns = NEVER["ume_store_check_interval"] * 1_000_000
    src._session.machine._heartbeats[store] = Heartbeat(after_ms * 1_000_000, step_ns)
