"""What of a source's messages is in flight, what may be let go, and when: pure policy over numbers.

A number leaves the flight as soon as it is stable and confirmed, in whatever order; only release is the
oldest first (docs/semantics.md D.1, D.6):

* *stable*: as the stores' acknowledgements (`quorum.StoreSpans`) or the program (`mark`) say, or given up;
* *left*: stable, and confirmed by as many receivers as are required. It is in flight no more, whatever
  becomes of its store or receivers. What has not lies in a hole, or at or above the frontier (`left`);
* *settled*: below it every number has left: the first hole, or the frontier. The core counts what left in
  holes, too (`hf_source_settle`): its frontier is `left`, not this;
* *released*: settled, old enough, and more is retained than the threshold: its memory may be used again.

Force (D.2) skips the conditions: what is released by force without having been stable is `unproven`, unless
the stores turn out to have it. The driver (settlement.py) tells what the board says and what it released;
events gather in `notices.queue`. Numbers are 64-bit, one per fragment; `stable`, `settled` and `released` are
exclusive.

`sent` runs on the sending thread, everything else under the driver's lock. A sender that records holds the
driver's `recording` lock from the send to `sent`, and the driver raises `next` under it: so whatever is below
`next` is recorded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..events.source import NotStableFlags
from .intervals import Interval, Spans, first_missing, lacking
from .notification import Notices, Receiver, Sent
from .quorum import Groups, StoreSpans

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Ages", "Retention", "RetentionConfig"]

LATE_MAX = 65_536
"""This many numbers behind the released ones are remembered for stores and receivers that have not
acknowledged them yet."""
RECEIVERS_MAX = 256
"""Receivers that are gone are forgotten beyond this many: first those that have confirmed nothing that is in
flight, then the oldest. More than these can be there only if this many are."""
SPANS_MAX = 1024
"""Intervals that are remembered of what a store has, of what a receiver has confirmed, of what the program
has marked, and of what has left the flight behind a hole. Beyond this many the lowest are forgotten, and
their numbers count as in flight: this may let a send wait or a number be released by force, and never makes
one stable or confirmed that is not."""
SAMPLES = 256
"""An age is measured to one part in this many."""


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """Conditions of release, in nanoseconds and receivers; 0 = none. `groups` None: nothing is kept anywhere,
    all is stable."""

    groups: Groups | None
    unique_confirmations: int = 0
    age_threshold_ns: int = 0
    lifetime_ns: int = 0


class Ages:
    """Which numbers are at least so old: a few samples of (time, next number). 0 = no age: nothing is ever
    older."""

    def __init__(self, age_ns: int) -> None:
        self._age_ns = age_ns
        self._samples: deque[tuple[int, int]] = deque()

    def below(self, now_ns: int, sent: int) -> int:
        """Return the number below which all are at least as old. `sent`: the next number, now; taken as a
        sample."""
        if not self._age_ns:
            return 0
        samples = self._samples
        newest_ns, newest = samples[-1] if samples else (-self._age_ns, -1)
        if sent > newest and now_ns - newest_ns >= self._age_ns // SAMPLES:
            samples.append((now_ns, sent))
        old = now_ns - self._age_ns
        while len(samples) > 1 and samples[1][0] <= old:
            samples.popleft()
        return samples[0][1] if samples and samples[0][0] <= old else 0


class Retention:
    """The numbers of one source object, from `start` on."""

    def __init__(self, config: RetentionConfig, notices: Notices, start: int) -> None:
        self.config = config
        self.notices = notices
        self.holdings = StoreSpans(config.groups) if config.groups is not None else None
        self.next = self.stable = self.settled = self.released = self.start = start
        self.unproven = Spans()
        """Released by force, and never stable."""
        self.forced = 0
        """Numbers that were released by force."""
        self._left = Spans()
        """At or above `settled`, behind a number that has not left."""
        self._marked = Spans()
        self._confirmed = start
        self._receivers: dict[bytes, Spans] = {}
        self._present: set[bytes] = set()
        self._had = [start] * (config.groups.stores if config.groups is not None else 0)
        """Per store: number behind what it has or has lost."""
        self._told = start
        self._reported = Spans()
        """Numbers at or above `_told` whose event said already that they are stable."""
        self._ages = Ages(config.age_threshold_ns)
        self._lives = Ages(config.lifetime_ns if config.groups is not None else 0)

    # What happened ------------------------------------------------------------------------------------------

    def sent(self, first: int, last: int, client_data: object = None, fragments: int = 0) -> None:
        """Record numbers first..last: one message, or several of `fragments` numbers each (a batch)."""
        if self.notices.records_any:
            self.notices.records.append(Sent(first, last, fragments or last - first + 1, client_data))

    def stored(self, store: int, since: int, ack: int) -> None:
        """Take in that a store has [since, ack). A hole between what it had and `since` is lost there."""
        assert self.holdings is not None
        since, ack = min(max(since, self.start), self.next), min(ack, self.next)
        if since > self._had[store]:
            self._lost(store, self._had[store], since)
        self._had[store] = max(self._had[store], since, ack)
        fresh = self.holdings.stores[store].add(since, ack)
        if fresh:
            self.holdings.stores[store].forget(SPANS_MAX)
            self._move_stable()
            proven = self._prove()
            if self.notices.per_store:
                stable = self._stable_now()
                in_group = self.holdings.in_group(store, fresh[0][0], fresh[-1][1], self.stable)
                self.notices.stored(store, fresh, in_group, stable, self._news(proven))
                for low, high in fresh:
                    for begin, end in stable.parts(max(low, self._told), high):
                        self._reported.add(begin, end)
                proven = _without(proven, fresh)  # of those the store's event has told
            self._tell_proven(proven)

    def replaced(self, store: int) -> None:
        """Take in that another copy stands where the store's was, or none: what it has counts anew. What is
        stable stays so."""
        assert self.holdings is not None
        had = self._had[store]
        for low, high in [*self.unproven.parts(self.start, had), *self._unstable(self.stable, had)]:
            self.holdings.stores[store].remove(low, high)
        self._had[store] = min(had, self.stable)

    def _lost(self, store: int, low: int, high: int) -> None:
        """Told of what is not stable without this store: the others' copies are as good."""
        open_ = [*self.unproven.parts(low, high), *self._unstable(max(low, self.stable), high)]
        self.notices.not_stable(NotStableFlags.LOSS | NotStableFlags.STORE, open_, store)

    def confirmed(self, receiver: Receiver, since: int, ack: int) -> None:
        """Take in that a receiver has consumed [since, ack)."""
        self._present.add(receiver.uuid)
        spans = self._receivers.setdefault(receiver.uuid, Spans())
        fresh = spans.add(max(since, self.start), min(ack, self.next))
        spans.forget(SPANS_MAX)
        if fresh and self.notices.confirms:
            needed, members = self.config.unique_confirmations, self._receivers.values()
            unique: list[Interval] = []
            for low, high in fresh if needed else ():
                short = Spans()
                for begin, end in lacking(low, high, needed, members):
                    short.add(begin, end)
                unique += short.gaps(low, high)
            self.notices.confirmed(receiver, fresh, unique)

    def present(self, receivers: Collection[bytes]) -> None:
        """These have a line on the board now."""
        self._present = set(receivers)
        if len(self._receivers) > RECEIVERS_MAX:
            gone = [uuid for uuid in self._receivers if uuid not in self._present]
            gone.sort(key=lambda uuid: self._awaits(self._receivers[uuid]))
            for uuid in gone[: len(self._receivers) - RECEIVERS_MAX]:
                del self._receivers[uuid]

    def mark(self, number: int) -> bool:
        """The program calls a number stable. False: it is already, and nothing happens."""
        if self.is_stable(number):
            return False
        self._marked.add(number, number + 1)
        self._marked.forget(SPANS_MAX)
        self.unproven.remove(number, number + 1)
        self._move_stable()
        self.notices.marked(number, stable=number < self.stable)
        if self.notices.per_store and self._told <= number < self.stable:
            self._reported.add(number, number + 1)
        return True

    def registered(self, seated: Collection[int], active: Collection[int]) -> None:
        """Take in which stores have a seat now, and which of them the source is registered with."""
        if self.holdings is not None:
            self.holdings.seat(seated, active)
            self._move_stable()
            self._tell_proven(self._prove())

    # What follows -------------------------------------------------------------------------------------------

    def advance(self, now_ns: int) -> int:
        """Let what is stable and confirmed leave the flight, tell of it, and return the number below which
        age allows release."""
        if self.holdings is None:
            self.stable = self.next
        self._tell_stable()
        needed = self.config.unique_confirmations
        self._confirmed = self._unconfirmed(needed) if needed else self.next
        self.settled = max(self.settled, min(self.stable, self._confirmed))
        if self._may_have_left(self.settled):
            self._leave(self.settled, needed)
        if self.settled in self._left:  # a hole before it was given up by force
            self.settled = self._left.end_of(self.settled)
        old = self._ages.below(now_ns, self.next)
        return min(self.settled, old) if self.config.age_threshold_ns else self.settled

    def left(self) -> tuple[int, list[Interval]]:
        """Return the frontier, behind the last number that has left the flight, and the holes below it that
        have not."""
        if not self._left:
            return self.settled, []
        frontier = max(self.settled, self._left.high)
        return frontier, self._left.gaps(self.settled, frontier)

    @property
    def in_flight(self) -> int:
        """Numbers that were sent and have not left."""
        frontier, holes = self.left()
        return self.next - frontier + sum(high - low for low, high in holes)

    def outlived(self, now_ns: int) -> int:
        """Return the number below which everything is older than its lifetime; `stable` or less: nothing is
        to be done."""
        return self._lives.below(now_ns, self.next)

    def give_up(self, below: int) -> None:
        """The lifetime of what is not stable below is over; it is released by force next."""
        self.notices.not_stable(NotStableFlags.TIMEOUT, self._unstable(self.stable, below))

    def release(self, below: int, *, forced: bool = False) -> None:
        """The driver released every number below."""
        low, self.released = self.released, max(self.released, below)
        if low == self.released:
            return
        going = [(low, below, forced)]
        if forced:
            going = self._pieces(low, below)
            self.forced += sum(end - begin for begin, end, by_force in going if by_force)
            for begin, end in self._unstable(self.stable, below):
                self.unproven.add(begin, end)
            self.stable = max(self.stable, below)
            if self.holdings is not None:  # what the stores have behind a hole that goes now
                self._move_stable()
            self._confirmed = max(self._confirmed, below)
            self.settled = max(self.settled, below)
            self._left.remove(0, self.settled)
            self._tell_stable()
        for begin, end, by_force in going:
            self.notices.reclaimed(begin, end, forced=by_force)
        self._forget()

    def is_stable(self, number: int) -> bool:
        """Tell whether this number is: of an earlier incarnation, passed by the stores, or marked."""
        if number < self.stable:
            return number not in self.unproven
        if self.holdings is None:
            return False
        return number in self._marked or number in self._left or self.holdings.first_unstable(number) > number

    def first_open(self, first: int, last: int) -> int | None:
        """Return the first number of these that is not stable (`is_stable`), None if all are."""
        open_ = [
            *self.unproven.parts(first, min(last + 1, self.stable)),
            *self._unstable(max(first, self.stable), last + 1),
        ]
        return open_[0][0] if open_ else None

    @property
    def stable_below(self) -> int:
        """The number behind the highest one below `stable` that really is."""
        if not self.unproven:
            return self.stable
        low, high = list(self.unproven)[-1]
        return low if high == self.stable else self.stable

    # --------------------------------------------------------------------------------------------------------

    def _move_stable(self) -> None:
        assert self.holdings is not None
        number = self.holdings.first_unstable(self.stable)
        while self._marked or self._left:  # else, what nearly every source has, for each acknowledgement
            end = max(self._marked.end_of(number), self._left.end_of(number))
            if end == number:
                break
            number = self.holdings.first_unstable(end)
        self.stable = number
        self._marked.remove(0, number)

    def _unconfirmed(self, needed: int) -> int:
        """Return the first number that too few receivers have confirmed."""
        number = first_missing(self._confirmed, needed, self._receivers.values())
        while (end := self._left.end_of(number)) > number:
            number = first_missing(end, needed, self._receivers.values())
        return number

    def _leave(self, floor: int, needed: int) -> None:
        open_ = Spans()
        for low, high in self._unstable(max(floor, self.stable), self.next):
            open_.add(low, high)
        if needed:
            for low, high in lacking(max(floor, self._confirmed), self.next, needed, self._receivers.values()):
                open_.add(low, high)
        for low, high in open_.gaps(floor, self.next):
            self._left.add(low, high)
        self._left.forget(SPANS_MAX)
        self._left.remove(0, floor)

    def _may_have_left(self, floor: int) -> bool:
        """False: nothing behind `floor`, which has not left, can have: nobody has a number behind it without
        having it, too."""
        if self._left or self._marked:
            return True
        for spans in self.holdings.stores if self.holdings is not None else ():
            if spans.last_begin > floor:
                return True
        if not self.config.unique_confirmations:
            return False
        return any(spans.last_begin > floor for spans in self._receivers.values())

    def _awaits(self, spans: Spans) -> bool:
        """Something in flight has been confirmed by the receiver with these, and not yet by enough."""
        return any(self._left.gaps(low, high) for low, high in spans.parts(self.settled, spans.high))

    def _pieces(self, low: int, below: int) -> list[tuple[int, int, bool]]:
        """Cut what is released by force into what meets every condition but its turn, and what does not
        (True)."""
        left = self._left if not self.config.age_threshold_ns else Spans()
        pieces = [(begin, end, True) for begin, end in left.gaps(low, below)]
        return sorted(pieces + [(begin, end, False) for begin, end in left.parts(low, below)])

    def _prove(self) -> list[Interval]:
        """Take out of `unproven` what the stores have by now, and return it."""
        if not self.unproven:
            return []
        open_ = Spans()
        for low, high in self.unproven:
            for begin, end in self._unstable(low, high):
                open_.add(begin, end)
        proven = [part for low, high in self.unproven for part in open_.gaps(low, high)]
        for low, high in proven:
            self.unproven.remove(low, high)
        return proven

    def _tell_proven(self, proven: list[Interval]) -> None:
        for low, high in proven:
            self.notices.stable(low, high)

    def _stable_now(self) -> Spans:
        stable = Spans()
        stable.add(self.start, self.stable)
        for low, high in self.unproven:
            stable.remove(low, high)
        return stable

    def _news(self, proven: list[Interval]) -> Spans:
        """What no event has called stable yet, if it is."""
        news = Spans()
        news.add(self._told, self.next)
        for low, high in self._reported:
            news.remove(low, high)
        for low, high in proven:
            news.add(low, high)
        return news

    def _tell_stable(self) -> None:
        """What became stable without an event that said so; what was given up never did."""
        if self._told == self.stable:
            return
        for low, high in self._reported.gaps(self._told, self.stable):
            for begin, end in self.unproven.gaps(low, high):
                self.notices.stable(begin, end)
        self._told = self.stable
        self._reported.remove(0, self._told)

    def _unstable(self, low: int, high: int) -> list[Interval]:
        """Of [low, high), what is neither stable by the stores nor marked."""
        if self.holdings is None or low >= high:
            return []
        open_ = self.holdings.unstable(low, high)
        for stable in (self._marked, self._left):
            open_ = [part for begin, end in open_ for part in stable.gaps(begin, end)]
        return open_

    def _forget(self) -> None:
        """Records that nobody will ask for: told of, released, and acknowledged by all who are there and
        report."""
        done = min(self.released, self._told)
        late = done
        if self.notices.per_store and self.holdings is not None:
            late = min([late, *(self._had[store] for store in self.holdings.active)])
        if self.notices.confirms:
            late = min([late, *(spans.high for uuid, spans in self._receivers.items() if uuid in self._present)])
        self.notices.records.drop(max(late, done - LATE_MAX))


def _without(intervals: list[Interval], taken: list[Interval]) -> list[Interval]:
    """Return what of `intervals` is not in `taken`."""
    spans = Spans()
    for low, high in taken:
        spans.add(low, high)
    return [gap for low, high in intervals for gap in spans.gaps(low, high)]
