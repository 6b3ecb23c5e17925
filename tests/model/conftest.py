"""Hypothesis profiles of the model tests: seconds by default, ``HYPOTHESIS_PROFILE=long`` for more.

By default the same examples are played every time, so that the verdict on the same sources is the same;
``long`` draws new ones.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.configuration import set_hypothesis_home_dir

# Examples live with the session's temporary files, not in the tree; a failure is repeated by its seed.
set_hypothesis_home_dir(Path(os.environ["XDG_CACHE_HOME"]).parent / "hypothesis")

# A failure is told as it was found: to shrink it takes longer than a test may, and would end as a time-out
# that hides it.
COMMON = settings(
    database=None,
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink] if os.environ.get("HYPOTHESIS_SHRINK") else [Phase.generate],
)
settings.register_profile("model", COMMON, max_examples=80, stateful_step_count=50)
settings.register_profile("long", COMMON, max_examples=2000, stateful_step_count=200)
PROFILE = settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "model"))
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def chosen_seed() -> int:
    """Of the examples to play: ``HYPOTHESIS_SEED``, or as the module says. It is printed, to play them
    again."""
    number = int(os.environ.get("HYPOTHESIS_SEED") or (random.getrandbits(32) if LONG else 1))
    print(f"HYPOTHESIS_SEED={number}")
    return number
