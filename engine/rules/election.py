"""What the answers of a source's stores decide: its identity, the next incarnation, where that begins. Pure
(docs/design.md 13 to 15).

Not every store that answers has a say. Who has forgotten something *learns*: it takes part, and its number
counts for nothing.

* A store without state would begin anew over what the others have. Two wiped stores of three would be a
  majority for that.
* A store that knows another source by this RegID or session ID than the one under which most has begun.
* A store that says itself that it has lost what it acknowledged, or whose directory has not had a life that
  another store remembers: it was restored from a backup.
* A store that the operator has excluded, until it has learned.

While the stores that do have a say are not enough, one that has not answered may know more, so there is no
decision; unless all that have a seat have answered. Where nobody knows anything, that is not enough: a backup
may have had a seat before, and have it again for somebody else who lives. So backups are asked, too, and must
have answered. A store that is dead and whose state can be read has answered as well, and so has one whose
census of this boot lacks this source (engine/log/census.py). No store can know a source that comes without
RegID and session ID.

The start is the greater of two numbers: what the consensus behaviour makes of the reports, and the least
number that no sufficient set of stores can have passed (reports.py). Where there is no such number, there is
no decision. A store that has forgotten may have had anything, until every store on record has answered or its
log was read. Then nobody knows more, and it counts as one that had all that any log still has: nothing that
is left is numbered again. What may be gone is said (``Decision.forgot``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from .exclusions import OVER_MAX, Said, in_force
from .reconcile import FOR_EVER, LogView, Table
from .reports import (
    Configuration,
    Seen,
    contested,
    ends_the_wait,
    known_views,
    least_impossible,
    names_of,
    reached,
    right_table,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .quorum import Consensus, Groups
    from .registration import Grant

__all__ = [
    "NOTHING",
    "Decision",
    "Found",
    "Register",
    "Written",
    "decide",
    "learners",
    "lives",
    "obstacle",
    "to_learn",
    "unheard",
]


class Written(NamedTuple):
    """What this host's register has of an identity (engine/log/register.py)."""

    configurations: tuple[Configuration, ...] = ()
    """Whom it has ever declared."""
    lives: Mapping[str, int] = MappingProxyType({})
    """A store's own name -> the life that it was in when it last took part."""
    over: Collection[int] = ()
    """Exclusions by the operator that are over."""
    incarnation: int = 0
    """The newest that anybody was about to begin."""


class Found(NamedTuple):
    """What the census of a store that did not answer says."""

    name: str
    """The store's own, as far as it is known."""
    why: str = ""
    """Why it does not prove that the store has never had the source; empty: it does."""


Register = Mapping[bytes, Written]
"""By identity."""
NOTHING: Register = MappingProxyType({})
NOT_LOOKED: Mapping[int, Found] = MappingProxyType({})
LEAST_MAX = 2**32
"""How far the incarnation that a claimant asks for is at most from all that a store has seen: it stays far
below 63 bits."""


class Decision(NamedTuple):
    """What is opened next. `begins`: all that the stores know to have begun before, (incarnation, start),
    oldest first.

    `forgot`: stores that may have had messages from `start_sqn` on, and do not know it any more.
    `contested`: stores with messages that may be stable, and that `begins` makes void (reports.contested).
    """

    uuid: bytes
    incarnation: int
    start_sqn: int
    begins: tuple[tuple[int, int], ...]
    forgot: tuple[str, ...] = ()
    contested: frozenset[int] = frozenset()


def learners(grants: Mapping[int, Grant], names: Sequence[str] = (), register: Register = NOTHING) -> set[int]:
    """Return the stores that have no say. `names`: of the stores, as they are declared."""
    found = set()
    newest = _newest(grants, names)
    told = _told(grants, register, newest.uuid if newest is not None else b"")
    for store, grant in grants.items():
        stateless = not grant.incarnation and not grant.empty_votes
        another = newest is not None and grant.incarnation and grant.uuid != newest.uuid
        restored = _missed(grant, told) is not None
        if stateless or another or not grant.votes or restored or to_learn(store, grants, names):
            found.add(store)
    return found


def _missed(grant: Grant, told: Iterable[Mapping[str, int]]) -> int | None:
    """A life of this store that somebody remembers and its directory has not had: it was restored from a
    copy. One older than all that it knows does not count."""
    lives = grant.lives or range(grant.opened + 1)
    remembered = [each[grant.name] for each in told if grant.name in each]
    return max((life for life in remembered if life > lives[0] and life not in lives), default=None)


def _told(grants: Mapping[int, Grant], register: Register, uuid: bytes) -> list[Mapping[str, int]]:
    """What is remembered of the lives of stores."""
    told = [grant.peers for grant in grants.values()]
    return [*told, register[uuid].lives] if uuid in register else told


def lives(grants: Mapping[int, Grant], register: Register, uuid: bytes) -> dict[str, int]:
    """The life of each store that a BEGIN under ``uuid`` is to tell of.

    Of a store that was restored it is the one that it has missed: it takes that over with BEGIN. Were its new
    one told, and the BEGIN never reached it, nobody would know any more that it has forgotten.
    """
    told = _told(grants, register, uuid)
    missed = {grant.name: _missed(grant, told) for grant in grants.values()}
    return {grant.name: missed[grant.name] or grant.opened for grant in grants.values()}


def to_learn(store: int, grants: Mapping[int, Grant], names: Sequence[str] = ()) -> list[int]:
    """Exclusions of this store, by its own name or as it is declared, that it has not learned after."""
    grant = grants[store]
    called = {grant.name, *names[store : store + 1]}
    told = {number for other in grants.values() for name, number in other.exclusions.items() if name in called}
    return sorted(told - set(grant.served))


def _newest(grants: Mapping[int, Grant], names: Sequence[str] = ()) -> Grant | None:
    """The one under whose identity most has begun, at most stores; None: nothing has, anywhere. One that is
    to learn does not count, unless nothing has begun at the others."""
    known = Counter(grant.uuid for grant in grants.values())
    begun = [store for store, grant in grants.items() if grant.incarnation]
    counted = [grants[store] for store in begun if not to_learn(store, grants, names)] or [grants[s] for s in begun]
    newest = max(counted, key=lambda grant: (grant.incarnation, known[grant.uuid]), default=None)
    return newest if newest is not None and newest.incarnation else None


def over(register: Register, uuid: bytes) -> Collection[int]:
    """Exclusions that are over, as this host's register has it. Of an identity that it does not know, those
    of all others: the word was for them."""
    if uuid in register:
        return register[uuid].over
    return [number for each in register.values() for number in each.over]


def all_over(grants: Sequence[Grant], register: Register, uuid: bytes) -> list[int]:
    """Exclusions by the operator that are over with a BEGIN under ``uuid``: all that somebody knows. Of more
    than OVER_MAX, those first that a store remembers."""
    remembered = [number for each in grants for number in each.exclusions.values()]
    ended = [*over(register, uuid), *(number for each in grants for number in each.over)]
    return list(dict.fromkeys([*remembered, *reversed(ended)]))[:OVER_MAX]


def _excluded(grants: Iterable[Grant], register: Register, uuid: bytes) -> set[str]:
    return in_force((Said(each.excluded, each.over, each.begun > 0) for each in grants), over(register, uuid))


def _given_up(
    grants: Mapping[int, Grant], names: Sequence[str], register: Register, newest: Grant | None
) -> set[int]:  # fmt: skip
    """Stores that have not answered, and that the operator has told an answering one not to wait for."""
    excluded = _excluded(grants.values(), register, newest.uuid if newest is not None else b"")
    called = names_of(each for grant in grants.values() for each in grant.seen)
    return {s for s, name in enumerate(names) if s not in grants and {name, called.get(name, name)} & excluded}


def _wanted(
    groups: Groups, seated: Collection[int], grants: Mapping[int, Grant], empty: Collection[int], names: Sequence[str],
    register: Register,
) -> set[int]:  # fmt: skip
    """Whose answer is missing for a decision."""
    if groups.complete(set(grants) & set(seated) - learners(grants, names, register)):
        return set()
    return (set(seated) if _newest(grants) else set(range(groups.stores))) - set(grants) - set(empty)


@dataclass(frozen=True, slots=True)
class _Logs:
    """What the answers say of the source's logs. Stores are known by their own names, where somebody knows
    these."""

    called: Mapping[int, str]
    configurations: Sequence[Configuration]
    table: Table | None
    """The BEGINs that hold; None: what is unknown decides."""
    numbers: Mapping[str, int]
    """How far each store may have come; FOR_EVER where that is not known."""
    reports: Mapping[int, int]
    """How far the logs go that an answering store has read."""
    forgot: Collection[str]
    """Stores that have answered, and may have had more than they know."""
    whys: Mapping[str, str]
    contested: Collection[str]


def _logs(
    groups: Groups, grants: Mapping[int, Grant], uuid: bytes, names: Sequence[str], empty: Collection[int],
    register: Register,
) -> _Logs:  # fmt: skip
    names = tuple(names)[: groups.stores] or tuple(map(str, range(groups.stores)))
    learn = learners(grants, names, register)
    ours = {store: grant for store, grant in grants.items() if grant.uuid == uuid}
    said: dict[int, Sequence[Seen]] = {store: grant.seen for store, grant in ours.items() if grant.seen}
    read = {each.name or each.store for every in said.values() for each in every if each.view is not None}
    for store, grant in ours.items():  # a store of an older version tells the farthest that it has read as its own
        if not grant.seen and (grant.name or names[store]) not in read:
            own = LogView(tuple(grant.begins), grant.next_sqn)
            said[store] = (Seen(names[store], grant.name or names[store], own),)
    alias = names_of(each for every in said.values() for each in every)
    alias |= {names[store]: grant.name for store, grant in grants.items() if grant.name}
    called = {store: alias.get(name, name) for store, name in enumerate(names)}
    recorded = [grant.configuration for grant in grants.values() if grant.uuid == uuid and grant.configuration]
    recorded += register[uuid].configurations if uuid in register else ()
    declared = Configuration(tuple(called.values()), groups)
    configurations = list(dict.fromkeys([declared, *(each.renamed(alias) for each in recorded)]))
    answered = {called[store]: said.get(store, ()) for store in grants}
    took_part = {name for told in _told(grants, register, uuid) for name in told}
    views = known_views((each for every in said.values() for each in every), own=answered)
    views |= {called[store]: LogView((), 0) for store in grants if grants[store].uuid != uuid}  # of another identity
    told = {name for grant in grants.values() for name in grant.peers} - answered.keys()
    views |= {name: None for name in told if (view := views.get(name)) is not None and not view.begins}  # it was wiped
    settled = {called[store] for store in empty if called[store] not in took_part}
    settled |= {alias.get(name, name) for name in _excluded(grants.values(), register, uuid)}
    views |= {name: LogView((), 0) for name in settled if name not in answered and views.get(name) is None}
    table = right_table(views, configurations, {called[store] for store in learn})
    numbers = {name: reached(view, table or ()) for name, view in views.items()}
    whys = {each.name or each.store: each.why for every in said.values() for each in every if each.view is None}
    begun = table[-1][1] if table else 0
    seen = {store: [each.view for each in said.get(store, ())] or [views.get(called[store])] for store in ours}
    reports = {
        store: max([begun, *(reached(view, table or ()) for view in every if view is not None)])
        for store, every in seen.items()
    }
    forgot = {called[store] for store in learn}
    against = contested(views, table or (), configurations, forgot)
    return _Logs(called, configurations, table, numbers, reports, forgot, whys, against)


def _unknown(logs: _Logs) -> list[str]:
    """Stores of which nobody has read how far they go, of the lists that may be in force."""
    listed = [name for each in logs.configurations if each.below == FOR_EVER for name in each.stores]
    return [name for name in dict.fromkeys(listed) if logs.numbers.get(name, FOR_EVER) == FOR_EVER]


def _most(logs: _Logs) -> int:
    """The number that no store on record has passed; FOR_EVER where that is not known."""
    return max(
        (min(logs.numbers.get(name, FOR_EVER), each.below) for each in logs.configurations for name in each.stores),
        default=0,
    )


def _least(logs: _Logs) -> tuple[int, dict[str, int]]:
    """The least number that nothing stable can have passed, and what it was counted from.

    Who has forgotten may have had as much as the farthest log that is left, once nobody is left who may know
    more.
    """
    numbers = {**logs.numbers, **dict.fromkeys(logs.forgot, _most(logs))}
    return least_impossible(logs.configurations, numbers), numbers


def unheard(groups: Groups, grants: Mapping[int, Grant], empty: Collection[int]) -> list[int]:
    """Stores that have not answered, where nobody who has knows it."""
    if any(grant.incarnation for grant in grants.values()):
        return []
    return [store for store in range(groups.stores) if store not in grants and store not in empty]


def _doubts(found: Mapping[int, Found], grants: Mapping[int, Grant], register: Register) -> dict[int, str]:
    """Of stores that have not answered, and whose censuses were looked at: why these do not prove that the
    store has never had the source; empty where they do. Nothing is proved where somebody knows it."""
    if any(grant.incarnation for grant in grants.values()):
        return {}
    took_part = {name for each in register.values() for name in each.lives}
    took_part |= {name for each in register.values() for declared in each.configurations for name in declared.stores}
    said = "it has taken part, or was to, as the register of sources says"
    return {store: said if each.name in took_part else each.why for store, each in found.items() if store not in grants}


def _next(register: Register, uuid: bytes, grants: Mapping[int, Grant]) -> int:
    """The incarnation behind all that this host's register has of ``uuid``. One that no store would promise
    stands there by mistake, and counts for nothing."""
    following = register[uuid].incarnation + 1 if uuid in register else 1
    return following if following <= min(grant.promised for grant in grants.values()) + LEAST_MAX else 1


def decide(
    groups: Groups, seated: Collection[int], grants: Mapping[int, Grant], behavior: Consensus, proposal: bytes,
    empty: Collection[int] = (), names: Sequence[str] = (), register: Register = NOTHING,
    found: Mapping[int, Found] = NOT_LOOKED,
) -> Decision | None:  # fmt: skip
    """Return what to open, None while a store that has not answered may know more. `grants`: not empty; of
    backups, too. `empty`: stores that know nothing of it, also without having answered. `names`: of the
    stores, as they are declared. `register`: what this host's register has of each identity; it adds to what
    the stores remember, and takes nothing from it. ``found``: censuses of stores that have not answered.

    The identity is the one under which most incarnations have begun; where nothing has, the one that all
    stores have given it already (who died before its first BEGIN left a ring by that name), else `proposal`.
    The incarnation is the greatest that a store has promised to this claimant.
    """
    newest = _newest(grants, names)
    proved = {store for store, why in _doubts(found, grants, register).items() if not why}
    empty = {*empty, *proved, *_given_up(grants, names, register, newest)}
    if _wanted(groups, seated, grants, empty, names, register):
        return None
    promised = max(grant.promised for grant in grants.values())
    if newest is None:
        given = {grant.uuid for grant in grants.values()}
        uuid = given.pop() if len(given) == 1 else proposal
        return Decision(uuid, max(promised, _next(register, uuid, grants)), 0, ())
    logs = _logs(groups, grants, newest.uuid, names, empty, register)
    least, _ = _least(logs)
    if logs.table is None or least == FOR_EVER:
        return None
    voters = set(grants) & set(seated) - learners(grants, names, register)
    knowing = {store: logs.reports[store] for store in voters if grants[store].incarnation and store in logs.reports}
    known_by_any = max(logs.reports.values())
    start = groups.consensus(knowing, behavior) if knowing else known_by_any  # else everybody has forgotten something
    start = max(start, least)
    unlimited = {**logs.numbers, **dict.fromkeys(logs.forgot, FOR_EVER)}
    gone = sorted(logs.forgot) if least_impossible(logs.configurations, unlimited) > start else ()
    promised = max(promised, _next(register, newest.uuid, grants))
    incarnation = max(promised, *(grant.incarnation + 1 for grant in grants.values()))
    against = frozenset(store for store in grants if logs.called[store] in logs.contested)
    return Decision(newest.uuid, incarnation, start, logs.table, tuple(gone), against)


def obstacle(
    groups: Groups, seated: Collection[int], grants: Mapping[int, Grant], names: Sequence[str],
    empty: Collection[int] = (), register: Register = NOTHING, found: Mapping[int, Found] = NOT_LOOKED,
) -> str | None:  # fmt: skip
    """Return why stores that have answered are not enough, and what to do about it; None: that is not the
    reason. ``found`` as for :func:`decide`."""
    if not groups.complete(set(grants) & set(seated)):
        return None
    newest, doubted = _newest(grants, names), _doubts(found, grants, register)
    proved = {store for store, why in doubted.items() if not why}
    empty = {*empty, *proved, *_given_up(grants, names, register, newest)}
    lost = [names[store] for store in sorted(learners(grants, names, register) & set(seated))]
    wanted = sorted(_wanted(groups, seated, grants, empty, names, register))
    missing = [names[store] for store in wanted]
    unproved = "".join(f"; {names[s]} may have had it: {doubted[s]}" for s in wanted if doubted.get(s))
    if lost and missing:
        who, has = ", ".join(lost), "has" if len(lost) == 1 else "have"
        other, is_ = ", ".join(missing), "is" if len(missing) == 1 else "are"
        return (
            f"{who} {has} no state of it, or not all; {other}, which may have, {is_} not there: start "
            f"{'it' if len(missing) == 1 else 'one of them'}, run `holdfast store adopt-empty {lost[0]}`, or give up what only "
            f"{'it has' if len(missing) == 1 else 'they have'}: `holdfast store exclude {missing[0]}`{unproved}"
        )
    if newest is None or missing:
        return None
    return _unreadable(_logs(groups, grants, newest.uuid, names, empty, register), names[: groups.stores])


def _unreadable(logs: _Logs, declared: Sequence[str]) -> str | None:
    """Stores whose logs nobody can read may hold what is stable."""
    least, numbers = _least(logs)
    if logs.table is not None and least < FOR_EVER:
        return None
    unknown = _unknown(logs)
    stores = [name for name in ends_the_wait(logs.configurations, numbers) if name in unknown] or unknown
    said = ", ".join(f"{name} ({logs.whys[name]})" if logs.whys.get(name) else name for name in stores)
    it, has = ("it", "its log") if len(stores) == 1 else ("them", "their logs")
    known = {*declared, *(logs.called.get(index, "") for index in range(len(declared)))}
    undeclared = [name for name in stores if name not in known]
    start = f"declare {', '.join(undeclared)} again" if undeclared else f"start {it}"
    return (
        f"{said} may hold stable messages that no other store has: {start}, make {has} readable, or give up what only "
        f"{'it has' if len(stores) == 1 else 'they have'}: `holdfast store exclude {stores[0] if stores else 'NAME'}`"
    )
