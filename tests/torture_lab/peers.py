"""Peers that are broken or hostile, names that somebody removes, a wall clock that jumps: whoever is not hit
goes on as before.

A store and those who will be hit are processes of their own. A source and a receiver beside them, here, must
not notice. What who was hit makes of it is its own affair, but nobody dies of a signal. Each trouble has a
control of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torture_lab import clocks, door, garbage, names
from torture_lab.lab import Lab, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable


def run(lab: Lab) -> Outcome:
    """Each trouble a few times, or for longer."""
    outcome = Outcome()
    for what, trouble in (("clocks", clocks), ("garbage", garbage), ("door", door), ("names", names)):
        _guarded(outcome, f"the control of the {what}", trouble.plant, lab)
    for turn in range(lab.figure(1, 5, 100)):
        _guarded(outcome, "clocks", clocks.steps, lab, f"clock-{turn}")
        for kind in garbage.KINDS:
            _guarded(outcome, f"garbage in the {kind}", garbage.spoilt, lab, f"{kind}-{turn}", kind)
            _guarded(
                outcome, f"garbage in the preamble of the {kind}", garbage.preambles, lab, f"pre-{kind}-{turn}", kind
            )
        _guarded(outcome, "garbage at the door", door.knocked, lab, f"door-{turn}")
        _guarded(outcome, "names removed", names.unnamed, lab, f"names-{turn}")
    return outcome


def _guarded(outcome: Outcome, what: str, scene: Callable[..., None], lab: Lab, *arguments: object) -> None:
    """Whatever it raises is a finding, and the others have their turn."""
    try:
        scene(lab, outcome, *arguments)
    except Exception as found:
        outcome.found(f"{what}: {type(found).__name__}: {found}")
