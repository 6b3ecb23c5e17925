"""When a store forgets: every combination of the settings, and the clocks (docs/semantics.md A.4)."""

from __future__ import annotations

import math

import pytest

from holdfast.engine.rules.expiry import Absences, End, Look, Now, Timers, ephemeral_after_ns, forget_after_ns

MS = 1_000_000
KEY = (b"source",)
DAY = 86_400_000 * MS


@pytest.mark.parametrize(
    ("row", "client", "store", "after_ms"),
    [
        ("nothing set: for ever", (0, 0), (0, 0), None),
        ("only activity timeouts: the RegID is free, the state stays", (500, 0), (30_000, 0), None),
        ("state lifetime of the store alone", (0, 0), (0, 700), 700),
        ("state lifetime of the client alone", (0, 700), (0, 0), 700),
        ("the shorter of two state lifetimes: the client's", (0, 700), (0, 900), 700),
        ("the shorter of two state lifetimes: the store's", (0, 900), (0, 700), 700),
        ("the store's activity timeout is later", (0, 700), (30_000, 0), 30_000),
        ("the client's activity timeout goes before the store's, shorter", (500, 700), (30_000, 0), 700),
        ("the client's activity timeout goes before the store's, longer", (40_000, 0), (30_000, 700), 40_000),
        ("activity timeout 0 at the client: the store's", (0, 0), (1_000, 700), 1_000),
        ("state lifetime later than the activity timeout", (500, 0), (30_000, 900), 900),
        ("both equal", (700, 700), (700, 700), 700),
    ],
)
def test_a4_when_state_is_forgotten(
    row: str, client: tuple[int, int], store: tuple[int, int], after_ms: int | None
) -> None:
    after = forget_after_ns(Timers(*client), Timers(*store))
    assert after == (None if after_ms is None else after_ms * MS), row


@pytest.mark.parametrize(
    ("row", "end", "after"),
    [
        ("it has left", End(left=True, dead=False, connected=True), 0),
        ("its process is dead", End(left=False, dead=True, connected=False), 0),
        ("its process is here, and does not ask for it", End(left=False, dead=False, connected=True), 500),
        ("nobody knows: for ever", End(left=False, dead=False, connected=False), None),
    ],
)
def test_a4_an_ephemeral_receiver_is_forgotten_at_its_end(row: str, end: End, after: int | None) -> None:
    assert ephemeral_after_ns(end, 500) == after, row


def test_a4_without_an_activity_timeout_it_has_a_moment_to_ask() -> None:
    """A store that starts looks before who lives has come back."""
    assert ephemeral_after_ns(End(left=False, dead=False, connected=True), 0) == 1000 * MS


def test_the_clock_starts_when_nobody_holds_it_and_stops_when_somebody_does() -> None:
    it = Absences()
    assert it.look(KEY, True, 0, 5, Now(0, 100)) == Look(0, False)
    assert it.look(KEY, False, 0, 5, Now(1000, 200)) == Look(200, False)
    assert it.look(KEY, False, 200, 5, Now(1004, 204)) == Look(200, False)
    assert it.look(KEY, True, 200, 5, Now(1005, 205)) == Look(0, False), "it came back in time"
    assert it.look(KEY, False, 0, 5, Now(1006, 206)) == Look(206, False)
    assert it.look(KEY, False, 206, 5, Now(1010, 210)) == Look(206, False)
    assert it.look(KEY, False, 206, 5, Now(1011, 211)) == Look(206, True)


def test_who_comes_and_goes_between_two_looks_starts_the_clock_anew() -> None:
    it = Absences()
    assert it.look(KEY, False, 0, 500, Now(0, 1000)) == Look(1000, False)
    granted = 0
    assert it.look(KEY, False, granted, 500, Now(499, 1499)) == Look(1499, False)
    assert it.look(KEY, False, 1499, 500, Now(998, 1998)) == Look(1499, False)
    assert it.look(KEY, False, 1499, 500, Now(999, 1999)) == Look(1499, True)


def test_without_a_limit_it_is_never_over() -> None:
    it = Absences()
    it.look(KEY, False, 0, None, Now(0, 100))
    assert it.look(KEY, False, 100, None, Now(1000 * DAY, 100 + 1000 * DAY)) == Look(100, False)


def test_another_store_process_goes_on_where_the_last_one_was() -> None:
    began = DAY
    assert Absences().look(KEY, False, began, 500, Now(7, began + 499)) == Look(began, False)
    assert Absences().look(KEY, False, began, 500, Now(7, began + 500)) == Look(began, True), "also while it was down"
    it = Absences()
    it.look(KEY, False, began, 500, Now(7, began + 400))
    assert it.look(KEY, False, began, 500, Now(106, 0)) == Look(began, False)
    assert it.look(KEY, False, began, 500, Now(107, 0)) == Look(began, True)


@pytest.mark.parametrize("step", [-1000 * DAY, 1000 * DAY])
def test_a_clock_that_is_set_while_the_store_runs_changes_nothing(step: int) -> None:
    it = Absences()
    it.look(KEY, False, 0, 500, Now(0, 2000 * DAY))
    assert it.look(KEY, False, 2000 * DAY, 500, Now(499, 2000 * DAY + step)) == Look(2000 * DAY, False)
    assert it.look(KEY, False, 2000 * DAY, 500, Now(500, 2000 * DAY + step)) == Look(2000 * DAY, True)


def test_a_clock_that_was_set_back_before_a_restart_begins_again_and_ends() -> None:
    it = Absences()
    assert it.look(KEY, False, 2000 * DAY, 500, Now(0, 1000 * DAY)) == Look(1000 * DAY, False), "not early"
    assert it.look(KEY, False, 1000 * DAY, 500, Now(500, 1000 * DAY + 500)) == Look(1000 * DAY, True), "not never"


def test_each_key_has_its_own_clock_and_a_forgotten_one_begins_anew() -> None:
    it = Absences()
    it.look(KEY, False, 0, 500, Now(0, 100))
    assert it.look((b"source", b"receiver"), False, 0, 500, Now(400, 500)) == Look(500, False)
    it.forget(KEY)
    assert it.look(KEY, False, 0, 500, Now(600, 700)) == Look(700, False)


def test_when_it_is_over_is_known_before() -> None:
    it = Absences()
    assert it.due_ns(KEY, 10) == -math.inf, "nobody has looked"
    it.look(KEY, False, 0, 10, Now(100, 1000))
    assert (it.due_ns(KEY, 10), it.due_ns(KEY, None)) == (110, math.inf)
    assert not it.look(KEY, False, 1000, 10, Now(109, 1009)).over
    assert it.look(KEY, False, 1000, 10, Now(110, 1010)).over
    it.look(KEY, True, 1000, 10, Now(111, 1011))
    assert it.due_ns(KEY, 10) == -math.inf, "somebody holds it"
