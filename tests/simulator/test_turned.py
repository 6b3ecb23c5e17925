"""A killing seed that has turned is said, not passed over."""

from __future__ import annotations

import warnings

import pytest

from simulator import turned
from simulator.planted import PLANTED

FIRST, SECOND, THIRD = list(PLANTED)[:3]


@pytest.fixture
def one_has_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 2 finds SECOND no more, 7 does; the first one's goes on; nothing finds the third."""
    breaks = {FIRST: 1, SECOND: 7}

    def broken(bug: str, first: int, count: int) -> tuple[int, str] | None:
        seed = breaks.get(bug, -1)
        return (seed, "lost") if seed in range(first, first + count) else None

    monkeypatch.setattr(turned, "broken", broken)
    monkeypatch.setattr(turned, "hunt", lambda bug: broken(bug, 0, 100))


@pytest.mark.usefixtures("one_has_turned")
def test_those_that_have_turned_are_listed_and_those_without_a_seed() -> None:
    assert turned.turned([FIRST, SECOND, THIRD], {FIRST: 1, SECOND: 2}) == [SECOND, THIRD]


@pytest.mark.usefixtures("one_has_turned")
def test_another_seed_will_do_but_not_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert turned.found(FIRST, 1)
    with pytest.warns(UserWarning, match=f"{turned.HAS_TURNED}: 2 finds {SECOND} no more, 7 does") as said:
        assert turned.found(SECOND, 2)
    assert len(said) == 1
    assert not turned.found(THIRD, 3)


@pytest.mark.usefixtures("one_has_turned")
def test_the_command_says_which_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turned, "known_seeds", lambda: {FIRST: 1, SECOND: 2})
    assert turned.main([FIRST]) == 0
    assert capsys.readouterr().out == "1 planted bugs, 0 turned\n"
    assert turned.main([FIRST, SECOND, THIRD]) == 1
    said = capsys.readouterr().out
    assert f"{SECOND:45} 2\n{THIRD:45} has no seed\n3 planted bugs, 2 turned\n" in said
    assert f"simulator.hunt {SECOND} {THIRD}\n" in said
    assert turned.main(["typo"]) == 2
