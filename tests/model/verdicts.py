"""What a decision does to numbers, as the judge of histories.py asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.rules.reconcile import Table, void_from

if TYPE_CHECKING:
    from model.disk import Kept

    from holdfast.engine.rules import election

__all__ = ["gist", "makes_void", "renumbers", "table_of"]


def makes_void(number: int, kept: Kept, decision: election.Decision) -> bool:
    return number >= void_from(table_of(decision), kept.incarnation)


def renumbers(number: int, decision: election.Decision, *, silently: bool = False) -> bool:
    return number >= decision.start_sqn and not (silently and decision.forgot)


def gist(decision: election.Decision | None) -> tuple[object, ...]:
    return () if decision is None else (decision.uuid, decision.start_sqn, decision.begins, bool(decision.forgot))


def table_of(decision: election.Decision) -> Table:
    """The BEGINs, with the one that is decided."""
    return (*decision.begins, (decision.incarnation, decision.start_sqn))
