"""What a decision does to numbers, as the judge of histories.py asks it. By a rule of its own, as for who is
stable: nothing here is the product's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.disk import Kept

    from holdfast.engine.rules import election
    from holdfast.engine.rules.reconcile import Table

__all__ = ["LostError", "OnlyWrittenError", "gist", "makes_void", "renumbers", "table_of"]


class LostError(AssertionError):
    """What the judge says."""


class OnlyWrittenError(Exception):
    """The register as it was written would have led to another decision: another history from here on."""


def makes_void(number: int, kept: Kept, decision: election.Decision) -> bool:
    """BEGIN(k, s) makes the records from s on of all older incarnations void (docs/design.md 13)."""
    return any(kept.incarnation < begun and number >= start for begun, start in table_of(decision))


def renumbers(number: int, decision: election.Decision, *, silently: bool = False) -> bool:
    return number >= decision.start_sqn and not (silently and decision.forgot)


def gist(decision: election.Decision | None) -> tuple[object, ...]:
    return () if decision is None else (decision.uuid, decision.start_sqn, decision.begins, bool(decision.forgot))


def table_of(decision: election.Decision) -> Table:
    """The BEGINs, with the one that is decided."""
    return (*decision.begins, (decision.incarnation, decision.start_sqn))
