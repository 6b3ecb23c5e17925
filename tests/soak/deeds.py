"""What the commands say that change something, held against what is so (as words.py, for those that look).

Each check is of one command that had its way in a calm domain, or was to be refused there.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from soak.words import check_doctor, check_failure, check_stat

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from soak.words import Facts, Said

__all__ = [
    "check_adopted", "check_all_domains", "check_excluded", "check_forgotten", "check_marked", "check_refused",
    "check_spoiled", "check_swept",
]  # fmt: skip

HELD = re.compile(
    r"  topic '(.*)', RegID \d+: store (\w+) has (?:no message|messages up to number (\d+)); what only store"
)


def check_excluded(said: Said, name: str, others: Sequence[str], facts: Facts) -> list[str]:
    """`store exclude` of a store that was killed: all others have recorded it, and what it says that they
    have is what they have. Two of three are a quorum, so one of them has all that is stable."""
    found = check_failure(said, [0])
    found += [
        f"store exclude {name}: not recorded at {other}"
        for other in others
        if f"store {other}: recorded" not in said.out.splitlines()
    ]
    held = [match.groups() for match in map(HELD.match, said.out.splitlines()) if match]
    for topic, source in facts.sources.items():
        numbers = [int(number or -1) for of, _, number in held if of == topic]
        if not numbers or not source.stable <= max(numbers) < max(source.sent, 1):
            found.append(
                f"store exclude {name}: of {topic} {source.stable} is stable, {source.sent} not sent: {numbers}"
            )
    return found


def check_adopted(said: Said, name: str) -> list[str]:
    """`store adopt-empty` of a store that was wiped."""
    good = said.out.startswith(f"store {name} (") and "votes as one that never had a message" in said.out
    return check_failure(said, [0]) or ([] if good else [f"store adopt-empty {name}: {said.out}"])


def check_refused(said: Said, status: int, *reasons: str) -> list[str]:
    """A command that would harm what runs."""
    silent = [reason for reason in reasons if reason not in said.err]
    return check_failure(said, [status]) or [f"holdfast {' '.join(said.words)}: not {silent}: {said.err}"] * bool(
        silent
    )


def check_marked(said: Said, store: str, source: int, first: int, last: int) -> list[str]:
    """`store mark` of one number of a message: all of the message is marked, and nothing else."""
    numbers = f"number {first}" if first == last else f"numbers {first}..{last}"
    right = f"store {store}: {numbers} of source {source} marked undeliverable"
    return check_failure(said, [0]) or ([] if said.out.splitlines() == [right] else [f"not {right!r}: {said.out}"])


def check_spoiled(said: Said, lines: Collection[str], marked: str) -> list[str]:
    """`recv` of a source that is over, where all stores have marked one message."""
    due = [line for line in lines if line != marked]
    got = said.out.splitlines()
    return check_failure(said, [0]) or (
        [] if got == due else [f"{marked!r} is marked, {due} are due, and recv has {got}"]
    )


def check_forgotten(said: Said, *texts: str) -> list[str]:
    """`store deregister` for real."""
    silent = [text for text in texts if text not in said.out]
    return check_failure(said, [0]) or [f"holdfast {' '.join(said.words)}: not {silent}: {said.out}"] * bool(silent)


def check_swept(said: Said, facts: Facts, uuids: Mapping[str, str], places: Sequence[str]) -> list[str]:
    """`gc` of any kind: what lives stays, and nothing of others goes. ``uuids``: of sources, by topic.
    ``places``: what paths of this domain begin with."""
    removed = [line for line in said.out.splitlines() if line.startswith("removed ")]
    living = [uuids[topic] for topic, who in facts.sources.items() if who.calm and topic in uuids]
    living += [f"/stores/{name}." for name, who in facts.stores.items() if who.calm]
    found = check_failure(said, [0])
    found += [f"gc has removed what lives: {line}" for line in removed if any(each in line for each in living)]
    found += [f"gc has removed what is not ours: {line}" for line in removed if line.split()[2].startswith("/")
              and not line.split()[2].startswith(tuple(places))]  # fmt: skip
    if "--dry-run" in said.words and removed:
        found.append(f"gc --dry-run has removed: {removed}")
    return found


def check_all_domains(said: Said, domain: str, facts: Facts) -> list[str]:
    """`--all-domains` of a verb that looks: it has this domain (its path), says the truth of it, and its
    status is the highest."""
    verb = said.words[0]
    if verb == "gc":
        there = f"== {domain}" in said.out.splitlines()
        bad = "cannot be looked at" in said.err
        found = [line for line in said.out.splitlines() if line.startswith("removed ")]
    else:
        rows = json.loads(said.out)
        mine = [row for row in rows if row["domain"] == domain and "error" not in row]
        there = len(mine) == 1
        bad = any("error" in row or any(not each["ok"] for each in row.get("findings", [])) for row in rows)
        found = [finding for row in mine for finding in _of_one(said, row, facts)]
    if not there:
        found.append(f"{verb} --all-domains: not {domain}: {said.out[:600]}{said.err[:600]}")
    if bool(said.status) != bad:
        found.append(
            f"{verb} --all-domains: status {said.status}, and something is {'' if bad else 'not '}bad: {said.err}"
        )
    return found


def _of_one(said: Said, row: dict[str, object], facts: Facts) -> list[str]:
    if said.words[0] == "stat":
        return check_stat(replace(said, out=json.dumps(row["stat"])), facts)
    findings = row["findings"]
    assert isinstance(findings, list)
    status = int(any(not each["ok"] for each in findings))
    return check_doctor(replace(said, out=json.dumps(findings), status=status), facts)
