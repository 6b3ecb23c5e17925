"""How far the stores of one source may have come, from what is known of each log: an answer, a walk of its
files, or nothing.

Pure (docs/design.md 14). A source starts behind everything that can have become stable. A number can have, if
in some configuration on record (what the source declares now, what an answering store remembers) the stores
that may hold it satisfy stability. A store whose log nobody could read may hold every number: unknown is
never taken for empty. All listed stores count, backups too, since a backup may have had a seat: quorums of
``0:3`` with a backup need not meet.

Views are compared by one BEGIN table, the right one. The table with the greatest incarnation is right unless
it is an orphan: its BEGIN reached too few stores to have completed, and it would make void what may be stable
under another one.

Who begins decides by what may be stable (:func:`right_table`). Who only reads decides by what is complete
(:func:`readers_tables`): else a log that grows would change what a reader has taken for right. Its
invariants:

 - Of all complete BEGINs the newest holds. Nothing is sent before a BEGIN is complete. So a message of it in
   any log proves it, and without one it costs a reader nothing to read on by an older table.
 - Stores that cannot be read may have begun anything. Where they decide, several tables may hold. Below the
   first BEGIN that these do not share all of them say the same. From there on nothing is delivered, and
   nothing skipped.
 - An acknowledgement is cut only by a table that holds. A receiver whose start depends on the missing answer
   waits.
 - What was once taken for right stays: a reader goes on to a newer BEGIN, never back to an older one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from .reconcile import BEGINS_MAX, FOR_EVER, LogView, Table, newest, newest_table, void_from

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .quorum import Groups
    from .reconcile import BeginOf

__all__ = [
    "Configuration",
    "Declared",
    "Seen",
    "agreed_below",
    "contested",
    "ends_the_wait",
    "farthest",
    "known_views",
    "least_impossible",
    "names_of",
    "reached",
    "readers_tables",
    "right_table",
]


class Seen(NamedTuple):
    """What one store knows of the log of another one, or of its own."""

    store: str
    """As the source declared it."""
    name: str
    """The store's own name; empty where nobody knows it."""
    view: LogView | None
    """None: unknown, it may hold anything."""
    why: str = ""
    """Of what is unknown."""


class Configuration(NamedTuple):
    """Whom a source declares, by the stores' own names where these are known, and what they must agree on."""

    stores: tuple[str, ...]
    groups: Groups
    below: int = FOR_EVER
    """From this number on nothing can be stable under it: a later one has been in force since."""

    def renamed(self, names: Mapping[str, str]) -> Configuration:
        """The same by the stores' own names, as far as ``names`` has them."""
        return self._replace(stores=tuple(names.get(store, store) for store in self.stores))


Declared = tuple[int, Configuration]
"""What a BEGIN has declared: its incarnation, 0 where that is not known."""
Views = dict[str, LogView | None]
"""By a store's name; None: unknown."""


def names_of(seen: Iterable[Seen]) -> dict[str, str]:
    """What stores call themselves, by what a source declared them as."""
    return {each.store: each.name for each in seen if each.name}


def known_views(seen: Iterable[Seen], *, own: Mapping[str, Sequence[Seen]] = {}) -> Views:
    """What is known of each store. ``own``: by name, what a store that answered says; of itself it knows
    best.

    Where several have walked one log, the farthest counts: it belongs to a store that did not answer, and may
    have grown.
    """
    views: Views = {}
    for each in seen:
        name = each.name or each.store
        views[name] = max(filter(None, (views.get(name), each.view)), key=_extent, default=None)
    for name, said in own.items():
        views.update((name, each.view) for each in said if each.name == name)
    return views


def farthest(seen: Sequence[Seen]) -> LogView:
    """Return the farthest end of the logs that know the newest BEGIN; the first of them is the store's
    own."""
    own, *peers = [each.view for each in seen if each.view is not None]
    return newest(own, [view for view in peers if view.begins])


def _extent(view: LogView) -> tuple[int, int]:
    return view.incarnation, view.next_sqn


def reached(view: LogView | None, table: Table) -> int:
    """Number behind the last message of a log that holds by ``table``; FOR_EVER for an unknown one."""
    return FOR_EVER if view is None else min(view.next_sqn, void_from(table, view.incarnation))


def _positions(configuration: Configuration, numbers: Mapping[str, int]) -> dict[int, int]:
    return {index: numbers.get(name, FOR_EVER) for index, name in enumerate(configuration.stores)}


def least_impossible(configurations: Iterable[Configuration], numbers: Mapping[str, int]) -> int:
    """Return the least number that no sufficient set of stores can have passed; FOR_EVER: there is none.

    ``numbers``: how far each store may have come. One that is not named may have come anywhere.
    """
    return max((_passed(each, _positions(each, numbers)) for each in configurations if each.stores), default=0)


def _passed(configuration: Configuration, at: Mapping[int, int]) -> int:
    return min(configuration.groups.stable_number(at), configuration.below)


def ends_the_wait(configurations: Iterable[Configuration], numbers: Mapping[str, int]) -> list[str]:
    """Return a smallest set of stores whose answers make :func:`least_impossible` finite, for each
    configuration."""
    named: list[str] = []
    for configuration in configurations:
        at = _positions(configuration, numbers)
        if _passed(configuration, at) < FOR_EVER:
            continue
        wanted = []
        for number in configuration.groups.numbers:
            unknown = [i for i in configuration.groups.members(number) if at[i] == FOR_EVER]
            excess = len(unknown) - configuration.groups.needed(number) + 1
            if excess > 0:  # those first that are waited for anyway
                unknown.sort(key=lambda index: (configuration.stores[index] not in named, index))
                wanted.append([configuration.stores[index] for index in unknown[:excess]])
        endless = len(wanted) - configuration.groups.stable_groups + 1
        for stores in sorted(wanted, key=len)[:endless]:
            named += [store for store in stores if store not in named]
    return named


def right_table(
    views: Mapping[str, LogView | None], configurations: Collection[Configuration], forgot: Collection[str] = ()
) -> Table | None:
    """Return the BEGIN table that holds; None: what is unknown decides between two.

    The greatest incarnation wins, unless its BEGIN is an orphan: it completed nowhere, and it makes void what
    may be stable. ``forgot``: stores that may have had more than they know. Any of them may have held what a
    BEGIN makes void. One of them may also have completed that BEGIN, and nobody will ever say so: then it
    holds where anything of it can be stable. By a configuration that was over before it started no BEGIN is
    complete.
    """
    known = {name: view for name, view in views.items() if view is not None and view.begins}
    top = newest_table(view.begins for view in known.values())
    if not top:
        return ()
    may = [each for each in configurations if each.below > top[-1][1]]
    with_it = {name for name, view in known.items() if view.begins[-1] == top[-1]}
    sure = {name: view for name, view in views.items() if name not in forgot}
    rivals = [
        table for table in {view.begins for view in known.values()} if _may_lose(table, top, sure, configurations)
    ]
    if not rivals or _completes(with_it, may):
        return top
    unknown = {name for each in configurations for name in each.stores if views.get(name) is None} - set(forgot)
    if _completes({*with_it, *unknown, *forgot}, may):
        if unknown:
            return None
        if _may_hold(top, sure, configurations) > top[-1][1]:
            return top
    return right_table({**views, **dict.fromkeys(with_it, LogView((), 0))}, configurations, set(forgot) - with_it)


def contested(
    views: Mapping[str, LogView | None], table: Table, configurations: Collection[Configuration],
    forgot: Collection[str] = (),
) -> set[str]:  # fmt: skip
    """Return the stores that have forgotten nothing, whose messages may be stable, and ``table`` makes them
    void: two BEGINs are complete that were built on one table, and only one of them can hold.

    Not a store that shares no BEGIN with ``table``: its source was deregistered since, and began anew. A full
    table may have forgotten what they share.
    """
    sure = {name: view for name, view in views.items() if name not in forgot}
    return {
        name
        for name, view in sure.items()
        if view is not None
        and (len(table) == BEGINS_MAX or not set(table).isdisjoint(view.begins))
        and _may_lose(view.begins, table, sure, configurations)
    }


def _completes(stores: Collection[str], configurations: Iterable[Configuration]) -> bool:
    return any(
        each.groups.complete({index for index, name in enumerate(each.stores) if name in stores})
        for each in configurations
        if each.stores
    )


def _may_lose(
    table: Table, top: Table, views: Mapping[str, LogView | None], configurations: Iterable[Configuration]
) -> bool:
    """Messages of the newest incarnation of ``table`` may be stable, and ``top`` makes them void."""
    void = void_from(top, table[-1][0])
    return void < FOR_EVER and _may_hold(table, views, configurations) > void


def _may_hold(table: Table, views: Mapping[str, LogView | None], configurations: Iterable[Configuration]) -> int:
    """Number behind the last message of the newest incarnation of ``table`` that may be stable."""
    numbers = {
        name: view.next_sqn if view.begins[-1:] == table[-1:] else 0 for name, view in views.items() if view is not None
    }
    return least_impossible(configurations, numbers)


# What readers take ------------------------------------------------------------------------------------------


def readers_tables(
    views: Mapping[str, LogView | None], declared: Sequence[Declared], forgot: Collection[str] = (), sure: Table = ()
) -> list[Table]:
    """Return the BEGIN tables that may hold for who only reads, the newest first; the last one is read by.

    Args:
        declared: what the BEGINs have declared. Where nothing is known of that, the newest table is taken.
        forgot: stores that nobody waits for: they have lost what they knew, or the operator has given them
            up.
        sure: a table that the reader knows to hold, unless a newer one does.
    """
    known = {name: view for name, view in views.items() if view is not None and view.begins}
    newer = [view.begins for view in known.values() if not sure or view.incarnation > sure[-1][0]]
    if not declared or not newer:
        return [newest_table(newer) or sure]
    found: list[Table] = []
    for top in _candidates(newer):
        if sure and top[-1][0] <= sure[-1][0]:
            break
        own = [each for incarnation, each in declared if incarnation == top[-1][0]]
        lists = own or [each for _, each in declared]
        having = {name for name, view in known.items() if top[-1] in view.begins}
        if _is_sent(top[-1], known) or _completes(having, lists):
            return [*found, top]
        unknown = {name for each in lists for name in each.stores if views.get(name) is None} - set(forgot)
        if _completes(having | unknown, lists):
            found.append(top)
    return [*found, sure] if sure else found or [newest_table(newer)]


def _candidates(tables: Iterable[Table]) -> Iterable[Table]:
    """Each BEGIN that a store has, as the end of a table, the newest first. Also one that another BEGIN has
    followed there: that one may be an orphan, and what it followed complete."""
    ending: dict[BeginOf, Table] = {}
    count: Counter[BeginOf] = Counter()
    for table in tables:
        for length, begin in enumerate(table, 1):
            count[begin] += 1
            ending[begin] = max(ending.get(begin, ()), table[:length], key=len)
    return [ending[begin] for begin in sorted(ending, key=lambda each: (each[0], count[each], each[1]), reverse=True)]


def _is_sent(begin: BeginOf, views: Mapping[str, LogView]) -> bool:
    """A log has messages of this BEGIN, or knows that there were: the next one began behind its first
    number."""
    for view in views.values():
        if begin in view.begins:
            at = view.begins.index(begin) + 1
            end = view.begins[at][1] if at < len(view.begins) else view.next_sqn
            if end > begin[1]:
                return True
    return False


def agreed_below(tables: Sequence[Table]) -> int:
    """Number below which all of these tables make the same records void; FOR_EVER for one table."""
    # What is older a table may have forgotten.
    first = max((table[0][0] for table in tables if table), default=FOR_EVER)
    begins = [{begin for begin in table if begin[0] >= first} for table in tables]
    every: set[tuple[int, int]] = set().union(*begins)
    return min(
        (start for begin, start in every if any((begin, start) not in each for each in begins)), default=FOR_EVER
    )
