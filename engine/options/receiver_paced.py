"""Receiver-paced persistence: a message stays until all receivers that were there have acknowledged it, and
then goes. Rules without I/O (docs/semantics.md J.1, K.4; "full" is told by withheld stability, so that the
flight size stops the source).

What a receiver must acknowledge is everything from the number on that it was registered at: so the messages
that nobody waits for any more are those below the lowest of these numbers and acknowledgements. Sizes are
bytes of payload.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..rules.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .resolve import Options
    from .topic_rules import TopicRules

__all__ = [
    "BLOCKING",
    "NON_BLOCKING",
    "Pacing",
    "Terms",
    "Turn",
    "Wanted",
    "agree",
    "changed",
    "mode_refusal",
    "wanted_by",
]

BLOCKING, NON_BLOCKING = 1, 2
"""A receiver's ume_receiver_paced_persistence; 0: the source is not receiver-paced."""
GRAINS = 1024
"""Sizes are known at this many numbers, about, over what may be kept."""


class Wanted(msgspec.Struct, frozen=True):
    """What a receiver-paced source asks for. 0 (of the delay -1): as the store has it."""

    flight_bytes: int
    size_threshold: int = 0
    size_limit: int = 0
    disk_limit: int = 0
    write_delay: int = -1
    ack_on_reception: bool = False


class Terms(NamedTuple):
    """What holds for one receiver-paced source at one store."""

    capacity: int
    """What is kept of messages that receivers have not acknowledged."""
    flight_bytes: int
    """Room that is left when stability is withheld: what is in flight then still finds its place."""
    ack_on_reception: bool
    """Stable means: in the store's pages, also on disk."""


def wanted_by(options: Options) -> Wanted | None:
    """What a source's options ask for; None: source-paced."""
    if not options.ume_receiver_paced_persistence:
        return None
    delay = options.ume_write_delay
    return Wanted(
        options.ume_flight_size_bytes,
        options.ume_repository_size_threshold,
        options.ume_repository_size_limit,
        options.ume_repository_disk_file_size_limit,
        -1 if delay is None else delay,
        options.ume_repository_ack_on_reception,
    )


def agree(wanted: Wanted, topic: str, kind: str, rules: TopicRules) -> Terms | Refusal:
    """The terms for a source of this topic, or what the store does not grant. ``kind``: type of the
    repository."""
    options = rules.options
    if not options.repository_allow_receiver_paced_persistence:
        return _problem(
            f"topic {topic!r} is not receiver-paced at this store: set repository-allow-receiver-paced-persistence 1 there, or "
            f"leave the source's ume_receiver_paced_persistence out"
        )
    if kind == "no-cache":
        return _problem(f"topic {topic!r} has a no-cache repository here: it keeps no messages")
    if not 0 < wanted.flight_bytes <= options.source_flight_size_bytes_maximum:
        return _problem(
            f"ume_flight_size_bytes = {wanted.flight_bytes}: expected 1 to source-flight-size-bytes-maximum = "
            f"{options.source_flight_size_bytes_maximum}"
        )
    for name, asked, most in (
        ("repository_size_threshold", wanted.size_threshold, options.repository_size_threshold),
        ("repository_size_limit", wanted.size_limit, options.repository_size_limit),
        ("repository_disk_file_size_limit", wanted.disk_limit, options.repository_disk_file_size_limit),
        ("write_delay", wanted.write_delay, options.repository_disk_write_delay),
    ):
        if asked > most:
            return _problem(
                f"ume_{name} = {asked}: a source may lower the store's value, which is {most}, never raise it"
            )
    if wanted.ack_on_reception and not options.repository_allow_ack_on_reception:
        return _problem("ume_repository_ack_on_reception = 1, but repository-allow-ack-on-reception is 0 at this store")
    return _sizes(wanted, kind, rules)


def _sizes(wanted: Wanted, kind: str, rules: TopicRules) -> Terms | Refusal:
    options = rules.options
    if kind == "disk":
        name, capacity = "repository-disk-file-size-limit", wanted.disk_limit or options.repository_disk_file_size_limit
    else:
        name, capacity = "repository-size-limit", wanted.size_limit or options.repository_size_limit
        threshold = min(wanted.size_threshold or options.repository_size_threshold, capacity)
        if threshold <= wanted.flight_bytes:
            return _problem(
                f"repository-size-threshold = {threshold} must be more than ume_flight_size_bytes = {wanted.flight_bytes}"
            )
    if capacity <= wanted.flight_bytes:
        return _problem(f"{name} = {capacity} must be more than ume_flight_size_bytes = {wanted.flight_bytes}")
    return Terms(capacity, wanted.flight_bytes, wanted.ack_on_reception)


def changed(kept: Wanted | None, asked: Wanted | None) -> Refusal | None:
    """A source that registers again must ask for the same, mode and values."""
    if kept == asked:
        return None
    if kept is None or asked is None:
        modes = ("source-paced", "receiver-paced")
        return _problem(
            f"the source was registered {modes[kept is not None]} first, and asks for {modes[asked is not None]} now"
        )
    names = [name for name in Wanted.__struct_fields__ if getattr(kept, name) != getattr(asked, name)]
    shown = ", ".join(f"{name} {getattr(kept, name)} first, {getattr(asked, name)} now" for name in names)
    return _problem(f"the source was registered with other values: {shown}")


def mode_refusal(source_paced: bool, asked: int, kept: int | None) -> Refusal | None:
    """A receiver's mode must be the source's, and stay what it was. ``kept``: of its first registration, None
    if this is it."""
    if not source_paced and asked:
        return _problem(
            f"ume_receiver_paced_persistence = {asked}, but the source is source-paced: leave it out, or set the source's too"
        )
    if source_paced and not asked:
        return _problem(
            "the source is receiver-paced: set the receiver's ume_receiver_paced_persistence to 1 (blocking) or 2 (non-blocking)"
        )
    if kept is not None and kept != asked:
        return _problem(f"ume_receiver_paced_persistence = {asked}: this receiver was registered with {kept} first")
    return None


def _problem(text: str) -> Refusal:
    return Refusal("receiver_paced", f"Problem with RPP configs: {text}")


class Turn(NamedTuple):
    """What follows from the acknowledgements."""

    release: int
    """Messages below go."""
    ack_payload: int
    """A message is acknowledged to the source only if, with it, no more bytes than this were ever stored."""
    ack: int
    """Everything below may be acknowledged now."""


class Pacing:
    """One receiver-paced repository, from its opening on: then it holds [low, next_sqn), ``payload`` bytes at
    most."""

    def __init__(self, terms: Terms, low: int, next_sqn: int, payload: int) -> None:
        self._room = terms.capacity - terms.flight_bytes
        self.grain = self._room // GRAINS
        """Sizes nearer to each other than this make no difference."""
        self._numbers = [low]
        self._sizes = [0]
        """How many bytes were stored below each of the numbers, since the opening; ascending both."""
        self._release = low
        self.withheld = False
        """Something that is stored may not be acknowledged."""
        self.stored(next_sqn, payload)

    @property
    def payload(self) -> int:
        """Bytes stored so far."""
        return self._sizes[-1]

    def stored(self, next_sqn: int, payload: int) -> None:
        """Takes in: everything below ``next_sqn`` is stored, which was ``payload`` bytes so far."""
        numbers, sizes = self._numbers, self._sizes
        if len(numbers) > 1 and (sizes[-1] - sizes[-2] < self.grain or numbers[-1] == next_sqn):
            numbers[-1], sizes[-1] = next_sqn, payload
        elif next_sqn > numbers[-1]:
            numbers.append(next_sqn)
            sizes.append(payload)

    def begun(self, next_sqn: int, payload: int) -> int:
        """A new incarnation has begun: of the ``payload`` bytes so far, what was stored from ``next_sqn`` on
        is void. Returns how many count as stored now, a little too many at most."""
        numbers, sizes = self._numbers, self._sizes
        while len(numbers) > 1 and numbers[-1] > next_sqn:
            numbers.pop()
            payload = sizes.pop()
        if numbers[0] > next_sqn:
            self._release = numbers[0] = next_sqn
        if numbers[-1] == next_sqn:
            payload = sizes[-1]
        self.stored(next_sqn, payload)
        return payload

    def turn(self, receivers: Iterable[tuple[int, int]]) -> Turn:
        """``receivers``: acknowledgement and mode of each that is registered; what it need not acknowledge
        counts as it."""
        numbers, sizes = self._numbers, self._sizes
        free = blocked = numbers[-1]
        for ack, mode in receivers:
            free = min(free, ack)
            if mode != NON_BLOCKING:
                blocked = min(blocked, ack)
        needed = self._below(blocked)
        ack_payload = needed + self._room
        fits = numbers[bisect_left(sizes, sizes[-1] - self._room)]  # from there on, what is stored leaves room
        free = max(free, min(fits, blocked))  # what only non-blocking receivers wait for goes unread
        self._release = max(self._release, free)
        ack = numbers[bisect_right(sizes, ack_payload) - 1]
        self.withheld = sizes[-1] > ack_payload
        self._forget()
        return Turn(self._release, ack_payload, ack)

    def _below(self, number: int) -> int:
        """Bytes that were stored below it, or a little less."""
        return self._sizes[max(bisect_right(self._numbers, number) - 1, 0)]

    def _forget(self) -> None:
        """Sizes of what is released."""
        done = bisect_right(self._numbers, self._release) - 1
        if done > 0:
            del self._numbers[:done]
            del self._sizes[:done]
