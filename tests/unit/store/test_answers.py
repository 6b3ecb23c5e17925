"""What a store answers to a registration or a BEGIN: each row a fact that decides (docs/semantics.md A.3,
A.4, B.1; docs/design.md 12 to 14)."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from holdfast.engine.control import wire
from holdfast.engine.log.state_file import Acked, ReceiverState, SourceState, State
from holdfast.engine.rules.reconcile import BEGINS_MAX, LogView
from holdfast.engine.rules.reports import Seen
from holdfast.engine.store import answers
from holdfast.engine.store.answers import (
    BeginFacts,
    Forget,
    GrantReceiver,
    GrantSource,
    Held,
    ReceiverFacts,
    SourceFacts,
    TakePart,
    Wait,
)  # fmt: skip

UUID, OTHER, CLAIMANT, RIVAL = b"u" * 16, b"o" * 16, b"c" * 16, b"r" * 16
BEGUN = LogView(((1, 0), (2, 70)), 100)
"""What a log says: two incarnations, and messages below 100."""


def state(**said: Any) -> State:
    return State("a", b"s" * 16, 3, 100, lives=[3], **said)


def source(uuid: bytes = UUID, **said: Any) -> SourceState:
    begun = {"incarnation": 2, "start_sqn": 70, "begins": [(1, 0), (2, 70)]}
    return SourceState(uuid, "quotes", 7, 0, **{**begun, **said})


def unchanged(before: object, after: object) -> None:
    assert msgspec.msgpack.encode(before) == msgspec.msgpack.encode(after), "a decision changes nothing"


# A source registers -----------------------------------------------------------------------------------------


def asks(**said: Any) -> wire.RegisterSource:
    return wire.RegisterSource(1, "quotes", 7, 0, UUID, claimant=CLAIMANT, **said)


DRAINED = SourceFacts("a", drained=True, lost=False, seen=[Seen("a", "a", BEGUN)])


def answer(request: wire.RegisterSource, known: SourceState, facts: SourceFacts, here: State | None = None) -> Any:
    before = copy.deepcopy(known)
    found = answers.decide_source(request, here or state(), known, facts)
    unchanged(before, known)
    return found


def test_who_lives_keeps_its_reg_id() -> None:
    found = answer(asks(), source(), replace(DRAINED, holder=Held(42, 9)))
    assert (found.code, found.pid, found.since_ns) == ("reg_id_in_use", 42, 9)


def test_nothing_is_granted_before_the_ring_is_drained() -> None:
    assert answer(asks(), source(), SourceFacts("a", drained=False)) == Wait()
    assert answer(asks(), source(), SourceFacts("a")) == Wait(), "what nobody has looked for is not known"


def test_numbering_goes_on_behind_the_log() -> None:
    found = answer(asks(), source(), DRAINED)
    assert found == GrantSource(BEGUN, learns=False, promises=True)
    assert found.known.end == 100


def test_a_stream_that_is_open_numbers_by_itself() -> None:
    facts = SourceFacts("a", drained=True, lost=False, view=BEGUN)
    assert answer(asks(incarnation=2), source(), facts) == GrantSource(BEGUN, learns=False, promises=False)


@pytest.mark.parametrize(("unused", "decision"), [(True, Forget), (False, wire.Refused)])
def test_another_identity_gives_way_only_if_it_was_never_used(unused: bool, decision: type) -> None:
    found = answer(asks(incarnation=2), source(uuid=OTHER), SourceFacts("a", unused=unused))
    assert isinstance(found, decision)
    assert getattr(found, "code", "other_source") == "other_source"


def test_who_has_lost_what_it_acknowledged_has_no_say() -> None:
    assert answer(asks(), source(), replace(DRAINED, lost=True)).learns
    assert not answer(asks(), source(learner=True), replace(DRAINED, lost=True)).learns, "it has none already"


@pytest.mark.parametrize(("life", "learns"), [(2, True), (3, False), (-1, False)])
def test_a_wiped_store_has_no_say_in_a_stream_that_is_open(life: int, learns: bool) -> None:
    """``life``: in which the source's register has this store; -1: in none."""
    empty = source(incarnation=0, start_sqn=0, begins=[])
    facts = SourceFacts("a", drained=True, lost=False, view=LogView((), 0))
    asked = asks(incarnation=2, elsewhere={UUID: {"a": (life, 0)}})
    assert answer(asked, empty, facts).learns is learns


def test_no_claimant_drives_the_incarnation_out_of_its_range() -> None:
    most = 2 + answers.LEAST_MAX
    assert isinstance(answer(asks(least=most), source(), DRAINED), GrantSource)
    assert answer(asks(least=most + 1), source(), DRAINED).code == "usage"


# A source begins --------------------------------------------------------------------------------------------


def begins(**said: Any) -> wire.Begin:
    plain: dict[str, Any] = {"begins": [(1, 0), (2, 70)], "claimant": CLAIMANT, "stores": ["a"]}
    return wire.Begin(1, UUID, 3, 100, "a stream", **{**plain, **said})


FREE = BeginFacts("a", None, 0, 100, 0, "/logs/u", "same")


def begin(request: wire.Begin, known: SourceState, facts: BeginFacts = FREE) -> Any:
    before = copy.deepcopy(known)
    found = answers.decide_begin(request, known, facts)
    unchanged(before, known)
    return found


def promised(number: int = 3, to: bytes = CLAIMANT, **said: Any) -> SourceState:
    return source(promised=number, promised_to=to, **said)


def test_what_was_promised_begins() -> None:
    assert begin(begins(), promised()) == TakePart(((1, 0), (2, 70), (3, 100)), {})


@pytest.mark.parametrize(
    ("known", "facts", "taken"),
    [
        (promised(to=RIVAL), FREE, False),
        (promised(4), FREE, False),
        (promised(2), FREE, True),
        (promised(4), replace(FREE, holds=3), True),
    ],
    ids=["to another claimant", "more, since", "less: other stores promised more", "its stream is open already"],
)
def test_a_begin_keeps_to_what_was_promised(known: SourceState, facts: BeginFacts, taken: bool) -> None:
    found = begin(begins(), known, facts)
    assert isinstance(found, TakePart) is taken
    assert taken or found.code == "busy"


def test_an_older_version_asks_for_no_promise() -> None:
    assert isinstance(begin(begins(claimant=b""), promised(9, RIVAL)), TakePart)


def test_an_incarnation_that_is_over_does_not_begin() -> None:
    assert begin(begins(), promised(5, incarnation=4)).code == "busy"


def test_of_two_that_have_opened_none_begins_beside_the_other() -> None:
    assert begin(begins(), promised(), replace(FREE, holder=Held(42, 9))).pid == 0
    assert "pid 42" in begin(begins(), promised(), replace(FREE, holder=Held(42, 9))).text


@pytest.mark.parametrize(("following", "taken"), [(71, False), (70, True)])
def test_a_begin_does_not_void_messages_that_it_does_not_know_of(following: int, taken: bool) -> None:
    """It was built without incarnation 2, which starts at 70."""
    found = begin(begins(begins=[(1, 0)]), promised(), replace(FREE, next_sqn=following))
    assert isinstance(found, TakePart) is taken


def test_a_store_that_was_away_for_too_long_says_what_helps() -> None:
    later = [(number, 100) for number in range(3, 3 + BEGINS_MAX)]
    found = begin(msgspec.structs.replace(begins(begins=later), incarnation=3 + BEGINS_MAX), promised(2))
    assert found.code == "unusable_log"
    assert "/logs/u" in found.text


@pytest.mark.parametrize(("stream", "code"), [("gone", "busy"), ("other", "usage")])
def test_a_begin_is_what_its_stream_says(stream: Any, code: str) -> None:
    assert begin(begins(), promised(), replace(FREE, stream=stream)).code == code


@pytest.mark.parametrize(
    "table", [[(2, 70), (1, 0)], [(2, 70), (2, 70)], [(2, 0)] + [(i, 0) for i in range(3, 3 + BEGINS_MAX)]]
)
def test_a_table_is_in_order_and_not_longer_than_anybody_remembers(table: list[tuple[int, int]]) -> None:
    assert begin(msgspec.structs.replace(begins(begins=table), incarnation=99), promised(2)).code == "usage"


def test_a_store_that_is_declared_no_more_is_remembered_below_the_start() -> None:
    known = promised(stores=["a", "b"], others={"c": 50, "d": 20})
    found = begin(begins(others={"c": 80}), known, replace(FREE, oldest_sqn=20))
    assert found.others == {"c": 80, "b": 100}, "what d has nobody keeps any more"


# A receiver registers ---------------------------------------------------------------------------------------


def registers(**said: Any) -> wire.RegisterReceiver:
    return wire.RegisterReceiver(1, UUID, "quotes", 8, 0, OTHER, **said)


def receiver(**said: Any) -> ReceiverState:
    return ReceiverState(OTHER, 8, 0, **{"ack": 40, "joined": False, **said})


def grants(request: wire.RegisterReceiver, known: ReceiverState, facts: ReceiverFacts) -> Any:
    before = copy.deepcopy(known)
    found = answers.decide_receiver(request, source(), known, facts)
    unchanged(before, known)
    return found


def test_a_receiver_goes_on_behind_what_is_saved() -> None:
    assert grants(registers(), receiver(), ReceiverFacts("a", None)) == GrantReceiver(False, 40, False, 2)


@pytest.mark.parametrize(
    ("line", "ack", "joined"),
    [(Acked(50, joined=False), 50, False), (Acked(30, joined=False), 40, False), (Acked(30, joined=True), 30, True)],
    ids=["the board has more", "the state has more", "it says itself where it went on"],
)
def test_what_stands_on_the_board_counts(line: Acked, ack: int, joined: bool) -> None:
    found = grants(registers(), receiver(), ReceiverFacts("a", None, line=line, line_stream=1))
    assert found == GrantReceiver(False, ack, joined, 2)


def test_a_living_receiver_keeps_its_reg_id() -> None:
    assert grants(registers(), receiver(), ReceiverFacts("a", Held(42, 9))).pid == 42


def test_an_identity_from_another_store_takes_the_acknowledgements_along() -> None:
    asked = registers(identity=RIVAL)
    found = grants(asked, receiver(), ReceiverFacts("a", None, line_before=Acked(60, joined=False)))
    assert found == GrantReceiver(True, 60, True, 2)
    assert grants(asked, receiver(), ReceiverFacts("a", None, Held(42, 9))).pid == 42, "it is somebody's there"


@pytest.mark.parametrize(("paced", "position"), [(None, 30), (object(), 105)])
def test_where_a_new_receiver_begins(paced: Any, position: int) -> None:
    assert answers.first_position(source(paced=paced), 100, 30, 105, 1000) == position


def test_nobody_begins_farther_back_than_the_rollback() -> None:
    assert answers.first_position(source(), 100, 30, 105, 20) == 80
