"""Every planted bug still fits the product's text: each quoted piece is there once."""

from __future__ import annotations

import pytest

from simulator.planted import PLANTED
from simulator.planting import planted_text


@pytest.mark.parametrize("bug", PLANTED)
def test_its_patches_fit(bug: str) -> None:
    for path in {patch.path for patch in PLANTED[bug]}:
        assert planted_text(PLANTED[bug], path)
