"""What the answers of a source's stores decide: its identity, the next incarnation, where that begins. Pure (DESIGN 13 to 15).

Not every store that answers has a say. Who has forgotten something *learns*: it takes part, and its number counts for nothing.

* A store without state would begin anew over what the others have. Two wiped stores of three would be a majority for that.
* A store that knows another source by this RegID or session ID than the one under which most has begun.
* A store that says itself that it has lost what it acknowledged, or whose directory has not had a life that another store
  remembers: it was restored from a backup.

While the stores that do have a say are not enough, one that has not answered may know more, so there is no decision; unless all
that have a seat have answered. Where nobody knows anything, that is not enough: a backup may have had a seat before, and have it
again for somebody else who lives. So backups are asked, too, and must have answered. A store that is dead and whose state can be
read has answered as well; and no store can know a source that comes without RegID and session ID.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from .reconcile import newest_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .quorum import Consensus, Groups
    from .registration import Grant

__all__ = ["Decision", "decide", "learners", "obstacle"]


class Decision(NamedTuple):
    """What is opened next. `begins`: all that the stores know to have begun before, (incarnation, start), oldest first."""

    uuid: bytes
    incarnation: int
    start_sqn: int
    begins: tuple[tuple[int, int], ...]


def learners(grants: Mapping[int, Grant]) -> set[int]:
    """Return the stores that have no say."""
    found = set()
    newest = _newest(grants)
    for store, grant in grants.items():
        stateless = not grant.incarnation and not grant.empty_votes
        another = newest is not None and grant.incarnation and grant.uuid != newest.uuid
        if stateless or another or not grant.votes or _restored(grant, grants.values()):
            found.add(store)
    return found


def _restored(grant: Grant, grants: Iterable[Grant]) -> bool:
    """Somebody remembers a life of this store that its directory has not had. One older than all that it knows does not count."""
    lives = grant.lives or range(grant.opened + 1)
    told = [other.peers[grant.name] for other in grants if grant.name in other.peers]
    return any(life > lives[0] and life not in lives for life in told)


def _newest(grants: Mapping[int, Grant]) -> Grant | None:
    """The one under whose identity most has begun, at most stores; None: nothing has, anywhere."""
    known = Counter(grant.uuid for grant in grants.values())
    newest = max(grants.values(), key=lambda grant: (grant.incarnation, known[grant.uuid]), default=None)
    return newest if newest is not None and newest.incarnation else None


def _wanted(groups: Groups, seated: Collection[int], grants: Mapping[int, Grant], empty: Collection[int]) -> set[int]:
    """Whose answer is missing for a decision."""
    if groups.complete(set(grants) & set(seated) - learners(grants)):
        return set()
    return (set(seated) if _newest(grants) else set(range(groups.stores))) - set(grants) - set(empty)


def decide(
    groups: Groups, seated: Collection[int], grants: Mapping[int, Grant], behavior: Consensus, proposal: bytes,
    empty: Collection[int] = (),
) -> Decision | None:  # fmt: skip
    """Return what to open, None while a store that has not answered may know more. `grants`: not empty; of backups, too.
    `empty`: stores that know nothing of it, also without having answered.

    The identity is the one under which most incarnations have begun; where nothing has, the one that all stores have given it
    already (who died before its first BEGIN left a ring by that name), else `proposal`.
    """
    if _wanted(groups, seated, grants, empty):
        return None
    voters = {store: grants[store] for store in set(grants) & set(seated) - learners(grants)}
    newest = _newest(grants)
    if newest is None:
        given = {grant.uuid for grant in grants.values()}
        return Decision(given.pop() if len(given) == 1 else proposal, 1, 0, ())
    knowing = {store: grant.next_sqn for store, grant in voters.items() if grant.incarnation}
    known_by_any = max(grant.next_sqn for grant in grants.values())
    start = groups.consensus(knowing, behavior) if knowing else known_by_any  # else everybody has forgotten something
    begins = newest_table(grant.begins for grant in grants.values() if grant.uuid == newest.uuid)
    return Decision(newest.uuid, newest.incarnation + 1, start, begins)


def obstacle(
    groups: Groups, seated: Collection[int], grants: Mapping[int, Grant], names: Sequence[str],
    empty: Collection[int] = (),
) -> str | None:  # fmt: skip
    """Return why stores that have answered are not enough, and what to do about it; None: that is not the reason."""
    lost = [names[store] for store in sorted(learners(grants) & set(seated))]
    missing = [names[store] for store in sorted(_wanted(groups, seated, grants, empty))]
    if not lost or not missing or not groups.complete(set(grants) & set(seated)):
        return None
    who, has = ", ".join(lost), "has" if len(lost) == 1 else "have"
    other, is_ = ", ".join(missing), "is" if len(missing) == 1 else "are"
    return (
        f"{who} {has} no state of it, or not all; {other}, which may have, {is_} not there: start "
        f"{'it' if len(missing) == 1 else 'one of them'}, or run `holdfast store adopt-empty {lost[0]}`"
    )
