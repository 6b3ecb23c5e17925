"""Lies that are told to the judges at the end of each soak, in the records that it made. Each must be
found."""

from __future__ import annotations

import copy
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from soak.following import LIVING
from soak.judge import judge
from soak.silence import check_silences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from soak.following import Change
    from soak.growth import Samples
    from soak.judge import Kept, Role
    from soak.records import Line
    from soak.silence import Silence
    from soak.words import Said

__all__ = ["LIES", "WORDS", "caught", "false_changes", "false_words", "leak_is_found", "silence_is_found"]

LEAK = 10


def _dropped(lines: list[Line], place: int) -> None:
    """A receiver did not get a message."""
    del lines[place]


def _changed(lines: list[Line], place: int) -> None:
    """A byte of it is another one."""
    first, last, length, crc, again = lines[place].numbers
    lines[place] = replace(lines[place], numbers=(first, last, length, crc ^ 1, again))


def _swapped(lines: list[Line], place: int) -> None:
    """It came before the one in front of it."""
    lines[place - 1], lines[place] = lines[place], lines[place - 1]


LIES: tuple[Callable[[list[Line], int], None], ...] = (_dropped, _changed, _swapped)


def caught(
    sources: Mapping[str, Sequence[Line]], receivers: Mapping[str, tuple[Role, Sequence[Line]]], kept: Kept, whose: str
) -> int:
    """How many of LIES the judge finds, each told of the receiver ``whose``, in the middle of what it got. It
    receives one topic, in order."""
    before = set(judge(sources, receivers, kept).findings)
    role, lines = receivers[whose]
    found = 0
    for lie in LIES:
        altered = [*lines]
        gots = [k for k in range(1, len(lines)) if lines[k - 1].kind == lines[k].kind == "got"]
        times = Counter(line.numbers[0] for line in lines if line.kind == "got")
        once = [k for k in gots if times[lines[k].numbers[0]] == 1 == times[lines[k - 1].numbers[0]]]
        if not once:
            continue
        lie(altered, once[len(once) // 2])
        found += bool(set(judge(sources, {**receivers, whose: (role, altered)}, kept).findings) - before)
    return found


def leak_is_found(samples: Samples) -> bool:
    """A process that opens ten descriptors and closes none."""
    leaky = copy.deepcopy(samples)
    for k in range(40):
        leaky.add("a liar", k / 40, {"descriptors": 10.0 + LEAK * k / 40})
    return any("a liar descriptors" in found for found in leaky.findings())


WORDS: Mapping[str, tuple[str, str]] = {
    "exclude": (r"up to number \d+", "up to number 9999999999"),
    "adopt": (r".*", "store z votes"),
    "gc": (r"^", "removed socket /tmp/other/stores/a.sock (0 bytes): store a is dead\n"),
    "stat --all-domains": (r'"domain": "[^"]*"', '"domain": "/another"'),
    "doctor --all-domains": (r'"domain": "[^"]*"', '"domain": "/another"'),
    "doctor, a store is killed": (r"was killed \(pid \d+\)", "was killed (pid 1)"),
    "gc --all-domains": (r"(?m)^== .*$", "== /another"),
    "mark": (r"numbers? \d+", "number 9999999999"),
    "recv": (r"spoiled \d+ \d+", "spoiled"),
    "deregister": (r"up to number \d+", "up to number 9999999999"),
    "deregister a receiver": (r"up to number \d+", "up to number 9999999999"),
    "deregister --finished": (r"topic '", "topic 'another"),
    "exclude, refused": (r"^", ""),
    "adopt-empty, refused": (r"^", ""),
    "deregister, refused": (r"process \d+", "process 1"),
}
"""What a command has said, and what it says falsely, by kind. A command that was refused also says that it
had its way."""


def false_words(judged: Mapping[str, tuple[Callable[[Said], list[str]], Said]]) -> Iterator[bool]:
    """Whether each is found; of every kind that was heard."""
    for kind, (check, said) in judged.items():
        old, new = WORDS[kind]
        out, err = (re.sub(old, new, text) for text in (said.out, said.err))
        yield bool(check(replace(said, out=out, err=err, status=0 if "refused" in kind else said.status)))


def false_changes(changes: Sequence[Change], check: Callable[[Sequence[Change]], list[str]]) -> Iterator[bool]:
    """`events -f` names another process, does not say that a store has come, and says a thing twice."""
    before = set(check(changes))
    lives = [k for k, each in enumerate(changes) if each.event == "store" and each.state in LIVING]
    if lives:
        place = lives[0]
        another = replace(changes[place], pid=1)
        for lie in ([another], [], [changes[place]] * 2):
            yield bool(set(check([*changes[:place], *lie, *changes[place + 1 :]])) - before)


def silence_is_found(silences: Sequence[Silence], sources: Mapping[str, Sequence[Line]]) -> Iterator[bool]:
    """Nobody was told of a silent store, or nothing was stable meanwhile."""
    if any(silence.topics for silence in silences):
        for kind in ("silent", "stable"):
            kept = {topic: [line for line in lines if line.kind != kind] for topic, lines in sources.items()}
            yield bool(check_silences(silences, kept))
