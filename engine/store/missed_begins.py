"""BEGINs that a store has missed, and takes in from its peers' logs: no source tells it of them.

Two rules must agree on them (engine/rules/reports.py). By the one of who begins they make nothing void that
may be stable. By the one of who reads they are complete without this store. Without the second an orphan
would hold as soon as a store has copied it: nothing may be stable under an older BEGIN yet, and what is sent
under that one afterwards would be void.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..control.configuration import configuration_of
from ..log.believed import tables_by_logs
from ..log.end import is_stuck
from ..log.info_file import log_view
from ..rules.reconcile import LogView, Table, tells_void
from ..rules.reports import known_views, names_of, right_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..log.state_file import SourceState
    from ..rules.reports import Seen

__all__ = ["to_take_in"]


def to_take_in(
    source: SourceState, seen: Sequence[Seen], own: Path, view: LogView, peers: Sequence[Path]
) -> Table | None:  # fmt: skip
    """The table that holds by what can be read; None where that is not known: then the next BEGIN says what
    helps.

    ``seen``: how far each log goes. ``view``: what the store's log says, which is ``own``. Raises as
    :func:`log_view`.
    """
    configuration = configuration_of(source)
    table = right_table(known_views(seen), [configuration.renamed(names_of(seen))] if configuration else [])
    if not table:
        return None
    views = {str(path): None if is_stuck(path) else log_view(path) for path in peers}
    newest = tables_by_logs({**views, str(own): view}, tuple(source.begins))[-1][-1]
    complete = table[: table.index(newest) + 1] if newest in table else ()  # an orphan behind it is left out
    return complete if complete and tells_void(complete, view) else None
