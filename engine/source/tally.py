"""Which lines count, and how many are needed, as C asks it of the board: the short way of a source that waits
for each message (csrc/board/tally.h).

A tally is made of what `Settlement` knows, and ends before that changes. What it finds stable, `Retention`
would have found stable, too; it says nothing of the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..native.core import CData, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.quorum import Agreement

__all__ = ["tally_of"]


def tally_of(incarnation: int, agreement: Agreement, lines: Mapping[int, tuple[int, int]]) -> CData | None:
    """``struct hf_tally *`` of a source's incarnation. ``lines``: store -> index and owner of its line; a
    store without one has nothing. None: there are more stores or groups than fit."""
    stores = sorted(lines)
    bits = {store: 1 << i for i, store in enumerate(stores)}
    rules = [
        (sum(bits.get(store, 0) for store in members), needed, number)
        for number, group in enumerate(agreement.groups)
        for needed, members in group
    ]
    most = int(lib.HF_TALLY_LINES), int(lib.HF_TALLY_RULES), int(lib.HF_TALLY_GROUPS)
    if any(count > limit for count, limit in zip((len(stores), len(rules), len(agreement.groups)), most, strict=True)):
        return None
    tally = ffi.new("struct hf_tally *")
    tally.incarnation, tally.at_once = incarnation, 1
    tally.lines, tally.rules = len(stores), len(rules)
    tally.groups, tally.needed = len(agreement.groups), agreement.needed
    for i, store in enumerate(stores):
        tally.index[i], tally.owner[i] = lines[store]
    for i, rule in enumerate(rules):
        tally.rule[i] = rule
    return tally
