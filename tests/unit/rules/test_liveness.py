"""When a receiving context comes and goes (docs/semantics.md H), rule by rule."""

from __future__ import annotations

from holdfast.engine.events.info import ReceivingContextFlags
from holdfast.engine.rules.liveness import Came, Line, Liveness, Went

TIMEOUT = 1000
TMO, EOF = ReceivingContextFlags.TMO, ReceivingContextFlags.EOF
ALIVE, DEAD = False, True


def line(name: bytes = b"r", *, beat: int = 0, closed: bool = False, dead: bool = ALIVE) -> Line:
    return Line(name, 7, 42, beat, closed, lambda: dead)


def never_asked(beat: int) -> Line:
    def asked() -> bool:
        raise AssertionError("a proof of death was asked for")

    return line(beat=beat)._replace(dead=asked)


def known(*lines: Line) -> Liveness:
    """A machine that knows them all, at 0."""
    machine = Liveness(TIMEOUT)
    machine.look(lines, 0)
    return machine


def flags(found: list[Came | Went]) -> list[ReceivingContextFlags]:
    assert all(isinstance(item, Went) for item in found)
    return [item.flag for item in found if isinstance(item, Went)]


def test_the_first_contact_is_told_once_with_regid_and_session() -> None:
    machine = Liveness(TIMEOUT)
    (came,) = machine.look([line()], 0)
    assert isinstance(came, Came)
    assert (came.line.registration_id, came.line.session_id) == (7, 42)
    assert machine.look([line()], 1) == []


def test_a_context_on_several_sources_comes_once_and_goes_once() -> None:
    machine = Liveness(TIMEOUT)
    assert len(machine.look([line(), line(b"other"), line()], 0)) == 2
    assert flags(machine.look([line(), line(b"other"), line(closed=True)], 1)) == [EOF]
    assert machine.look([line(), line(b"other"), line(closed=True)], 2) == []
    assert machine.look([line(closed=True), line(b"other"), line(closed=True)], 3) == []


def test_the_death_of_one_source_of_several_is_not_the_contexts() -> None:
    machine = known(line(), line())
    assert machine.look([line()], 1) == []


def test_a_clean_close_is_eof_and_needs_no_silence() -> None:
    assert flags(known(line()).look([line(closed=True)], 1)) == [EOF]


def test_a_dead_context_is_tmo_and_eof_when_the_timeout_is_over_and_not_before() -> None:
    machine = known(line())
    assert machine.look([line(dead=DEAD)], TIMEOUT - 1) == []
    assert flags(machine.look([line(dead=DEAD)], TIMEOUT)) == [TMO | EOF]
    assert machine.look([line(dead=DEAD)], TIMEOUT + 1) == []


def test_a_silent_context_that_lives_is_never_reported() -> None:
    machine = known(line())
    for now in (TIMEOUT, 10 * TIMEOUT, 10**6 * TIMEOUT):
        assert machine.look([line()], now) == []
    assert machine.look([line(beat=10**6 * TIMEOUT)], 10**6 * TIMEOUT + 1) == []


def test_the_freshest_heartbeat_counts_and_spares_the_proof() -> None:
    machine = known(line(), line())
    assert machine.look([never_asked(0), never_asked(TIMEOUT)], TIMEOUT + 1) == []


# Silence alone ----------------------------------------------------------------------------------------------


def test_where_silence_counts_a_context_that_hangs_is_tmo_alone_and_once() -> None:
    machine = Liveness(TIMEOUT, silence=True)
    machine.look([line()], 0)
    assert machine.look([line()], TIMEOUT - 1) == []
    assert flags(machine.look([line()], TIMEOUT)) == [TMO]
    assert machine.look([line()], 10 * TIMEOUT) == []


def test_where_silence_counts_a_dead_or_closed_context_is_told_as_ever() -> None:
    machine = Liveness(TIMEOUT, silence=True)
    machine.look([line(), line(b"other")], 0)
    assert flags(machine.look([line(dead=DEAD), line(b"other", closed=True)], TIMEOUT)) == [TMO | EOF, EOF]


def test_a_context_that_was_silent_and_beats_again_has_come_again() -> None:
    machine = Liveness(TIMEOUT, silence=True)
    machine.look([line()], 0)
    assert flags(machine.look([line()], TIMEOUT)) == [TMO]
    (came,) = machine.look([line(beat=TIMEOUT + 5)], TIMEOUT + 6)
    assert isinstance(came, Came)
    assert machine.look([line(beat=TIMEOUT + 5)], 2 * TIMEOUT) == []
    assert flags(machine.look([line(beat=TIMEOUT + 5)], 3 * TIMEOUT)) == [TMO], "and may fall silent again"


def test_a_context_that_is_seen_before_its_first_beat_has_the_whole_timeout_for_it() -> None:
    machine = Liveness(TIMEOUT, silence=True)
    assert len(machine.look([line()], 50 * TIMEOUT)) == 1
    assert machine.look([line()], 51 * TIMEOUT - 1) == []
    assert machine.look([line(beat=51 * TIMEOUT - 1)], 51 * TIMEOUT) == []


def test_a_context_that_hung_and_then_ended_is_told_once() -> None:
    for end in (line(dead=DEAD), line(closed=True)):
        machine = Liveness(TIMEOUT, silence=True)
        machine.look([line()], 0)
        assert flags(machine.look([line()], TIMEOUT)) == [TMO]
        assert machine.look([end], 2 * TIMEOUT) == []
        assert machine.look([], 3 * TIMEOUT) == []
        assert len(machine.look([line()], 4 * TIMEOUT)) == 1, "nothing is remembered of who has no line any more"


def test_what_was_closed_or_dead_before_the_first_look_is_not_told() -> None:
    machine = Liveness(TIMEOUT)
    left = [line(b"closed", closed=True), line(b"dead", dead=DEAD)]
    assert machine.look(left, 0) == []
    assert machine.look(left, 2 * TIMEOUT) == []


def test_what_is_over_is_not_looked_into_again() -> None:
    machine = known(line())
    machine.look([line(dead=DEAD)], TIMEOUT)
    assert machine.look([never_asked(0)], 2 * TIMEOUT) == []


def test_a_context_that_comes_back_is_a_new_one() -> None:
    machine = known(line(b"first life"))
    over = line(b"first life", closed=True)
    found = machine.look([over, line(b"second life")], 1)
    assert [type(item) for item in found] == [Went, Came]


def test_a_context_whose_lines_are_gone_has_no_connection_any_more() -> None:
    machine = known(line(), line(b"stays"))
    assert flags(machine.look([line(b"stays")], 1)) == [EOF]
    assert len(machine.look([line(), line(b"stays")], 2)) == 1, "a new common source connects them again"
