"""Persistence semantics against a reference model: a source (and a rival), two receivers and a store that
crash and return.

CI plays 2,000 examples; ``HYPOTHESIS_PROFILE=long`` plays 50,000. Five bugs are planted, one at a time: CI
replays an example that caught each; ``python tests/model/test_persistence.py BUG`` looks for a new one and
writes it to tests/model/caught/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from model.conftest import COMMON, LONG, chosen_seed
from model.persistence import SESSIONS, Scenario
from model.planted import PLANTED, plant

if TYPE_CHECKING:
    from collections.abc import Callable

CAUGHT = Path(__file__).parent / "caught"
PROFILE = settings(COMMON, max_examples=50_000 if LONG else 2_000, stateful_step_count=40)

modes = st.sampled_from([None, 0, 1, 2, 3])
sessions = st.sampled_from(SESSIONS)


class Persistence(RuleBasedStateMachine):
    """Draws a scenario. Every step is written down in ``played``."""

    played: ClassVar[list[Any]]
    examples: ClassVar[int] = 0
    """That were played, the few that Hypothesis gave up included."""

    @initialize(
        stability=modes, confirmation=st.integers(0, 3), unique=st.integers(0, 2), flight=st.sampled_from([1, 4, 1000]),
        retained=st.sampled_from([6, 1000]), deaf=st.booleans(),
    )  # fmt: skip
    def begin(self, **options: Any) -> None:
        self.scenario = Scenario(**options)
        Persistence.played = [options]
        self.step("start_source")

    def step(self, name: str, **arguments: Any) -> None:
        Persistence.played.append((name, arguments))
        getattr(self.scenario, name)(**arguments)

    @rule(fragments=st.integers(1, 3), data=st.booleans())
    def send(self, fragments: int, data: bool) -> None:
        self.step("send", fragments=fragments, data=data)

    @rule(most=st.sampled_from([1, 3, 100]))
    def drain(self, most: int) -> None:
        self.step("drain", most=most)

    @rule()
    def refresh(self) -> None:
        self.step("refresh")

    @rule(session=sessions, most=st.sampled_from([1, 4, 100]))
    def receive(self, session: int, most: int) -> None:
        self.step("receive", session=session, most=most)

    @rule(session=sessions, index=st.integers(0, 5))
    def release(self, session: int, index: int) -> None:
        self.step("release", session=session, index=index)

    @rule(session=sessions)
    def tick(self, session: int) -> None:
        self.step("tick", session=session)

    @rule(session=sessions)
    def start_receiver(self, session: int) -> None:
        self.step("start_receiver", session=session)

    @rule(session=sessions)
    def crash_receiver(self, session: int) -> None:
        self.step("crash_receiver", session=session)

    @rule(numbers=st.integers(1, 8))
    def overwrite(self, numbers: int) -> None:
        self.step("overwrite", numbers=numbers)

    @rule(
        which=st.sampled_from(
            ["start_source", "crash_source", "crash_store", "start_store", "start_store", "save_acks"]
        )
    )
    def happen(self, which: str) -> None:
        self.step(which)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "scenario"):
            self.scenario.check()

    def teardown(self) -> None:
        Persistence.examples += 1


@pytest.mark.timeout(3600 if LONG else 900)  # 2,000 examples take about a minute: the number is the requirement
def test_everybody_is_told_the_truth_and_nothing_is_lost(record_property: Callable[[str, object], None]) -> None:
    run_state_machine_as_test(seed(chosen_seed())(Persistence), settings=PROFILE)
    record_property("examples", Persistence.examples)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str) -> None:
    options, *steps = json.loads((CAUGHT / f"{bug}.json").read_text())
    Scenario(**options).play(steps)
    with plant(bug), pytest.raises(AssertionError):
        Scenario(**options).play(steps)


def find(bug: str) -> None:
    """Looks for an example that catches the bug, shrinks it and writes it down."""
    with plant(bug):
        try:
            examples = settings(
                PROFILE, max_examples=50_000, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False
            )
            run_state_machine_as_test(seed(1)(Persistence), settings=examples)
        except AssertionError as error:
            CAUGHT.mkdir(exist_ok=True)
            (CAUGHT / f"{bug}.json").write_text(json.dumps(Persistence.played, indent=1) + "\n")
            print(f"{bug}: {error} after {len(Persistence.played) - 1} steps")
            return
    sys.exit(f"{bug}: not found")


if __name__ == "__main__":
    main: Callable[[str], None] = find
    for name in sys.argv[1:] or PLANTED:
        main(name)
