"""Forget these sources, which are finished: an operator's request to a store, and its answer, of the control
protocol (wire.py)."""

from __future__ import annotations

import msgspec

from .fields import Number, Uuid  # noqa: TC001  (msgspec decodes by it)

__all__ = ["FINISHED_MAX", "Finished", "ForgetFinished", "ForgotFinished"]

FINISHED_MAX = 32
"""Sources in one request. The store saves its state once for all of them, and does nothing else meanwhile."""


class Finished(msgspec.Struct, frozen=True):
    """A source as it was when somebody looked at it. A store keeps one that has changed since."""

    uuid: Uuid
    incarnation: Number
    """Nothing later had begun."""
    next: Number
    """It had no message with this number or a later one."""
    gone_ns: int = 0
    """CLOCK_REALTIME since which nobody held it, where it had no message that tells its age; else 0."""


class ForgetFinished(msgspec.Struct, tag="forget_finished", frozen=True):
    """Operator: forget these, with their messages and receivers, unless somebody may still want them."""

    id: int
    sources: list[Finished]
    owed: bool = False
    """Also what a receiver has not acknowledged, and what a receiver that lives has registered with."""
    only_look: bool = False
    """Only say what would stay."""


class ForgotFinished(msgspec.Struct, tag="forgot_finished", frozen=True):
    """Answer to ForgetFinished, when the states of all others are gone for good."""

    id: int
    kept: list[tuple[Uuid, str]]
    """Those that stay, and why."""
    alive: list[Uuid] = []
    """Of these, the ones that somebody goes on with, or has gone on with since they were looked at."""
