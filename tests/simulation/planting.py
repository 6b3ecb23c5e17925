"""How a bug is planted: by replacing functions, of the real machines where they decide, else of the drivers,
for the time of a ``with``."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Patch(NamedTuple):
    """``where.name`` becomes ``what``."""

    where: object
    name: str
    what: object


class Bug(NamedTuple):
    """A planted bug. ``decision``: of docs/design.md, whose hole it opens again; 0: a rule of
    docs/semantics.md."""

    decision: int
    patches: tuple[Patch, ...]


PLANTED: dict[str, Bug] = {}


def bug(decision: int) -> Callable[[Callable[[], Any]], None]:
    """Enters a function that returns one patch, or several, under its name."""

    def enter(make: Callable[[], Any]) -> None:
        made = make()
        PLANTED[make.__name__] = Bug(decision, (made,) if isinstance(made, Patch) else tuple(made))

    return enter


@contextlib.contextmanager
def plant(name: str) -> Iterator[None]:
    """The bug is there inside the ``with``."""
    with contextlib.ExitStack() as stack:
        for where, attribute, what in PLANTED[name].patches:
            stack.enter_context(mock.patch.object(where, attribute, what))
        yield
