"""What a store answers to a registration or a BEGIN: each row a fact that decides (docs/semantics.md A.3,
A.4, B.1; docs/design.md 12 to 14)."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from holdfast.engine.control import wire
from holdfast.engine.log.receiver_state import Acked, ReceiverState
from holdfast.engine.log.state_file import SourceState, State
from holdfast.engine.options.receiver_paced import Wanted
from holdfast.engine.options.topic_rules import TopicOptions, Topics
from holdfast.engine.rules.election import LEAST_MAX
from holdfast.engine.rules.reconcile import BEGINS_MAX, LogView
from holdfast.engine.rules.reports import Seen
from holdfast.engine.store import answers
from holdfast.engine.store.answers import (
    Accept,
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
from holdfast.engine.store.registry import Registry

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


DRAINED = SourceFacts("a", drained=True, lost=False)
SEEN = [Seen("a", "a", BEGUN)]


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


def number(request: wire.RegisterSource, known: SourceState, own: LogView = BEGUN) -> Any:
    before = copy.deepcopy(known)
    found = answers.decide_number(request, known, own, SEEN)
    unchanged(before, known)
    return found


def test_numbering_goes_on_behind_the_log() -> None:
    assert answer(asks(), source(), DRAINED) == Accept(learns=False)
    found = number(asks(), source(), LogView((), 0))
    assert found == GrantSource(BEGUN, promises=True)
    assert found.known.end == 100


def test_a_stream_that_is_open_numbers_by_itself() -> None:
    assert answer(asks(incarnation=2), source(), DRAINED) == Accept(learns=False)
    own = LogView(((1, 0), (2, 70)), 80)
    assert number(asks(incarnation=2), source(), own) == GrantSource(own, promises=False)


@pytest.mark.parametrize(("unused", "decision"), [(True, Forget), (False, wire.Refused)])
def test_another_identity_gives_way_only_if_it_was_never_used(unused: bool, decision: type) -> None:
    found = answer(asks(incarnation=2), source(uuid=OTHER), SourceFacts("a", unused=unused))
    assert isinstance(found, decision)
    assert getattr(found, "code", "other_source") == "other_source"


def test_who_lives_is_asked_for_before_anything_is_forgotten() -> None:
    found = answer(asks(incarnation=2), source(uuid=OTHER), SourceFacts("a", Held(42, 9), unused=True))
    assert found.code == "reg_id_in_use"


def test_who_has_lost_what_it_acknowledged_has_no_say() -> None:
    assert answer(asks(), source(), replace(DRAINED, lost=True)).learns
    assert not answer(asks(), source(learner=True), replace(DRAINED, lost=True)).learns, "it has none already"


@pytest.mark.parametrize(("life", "learns"), [(2, True), (3, False), (-1, False)])
def test_a_wiped_store_has_no_say_in_a_stream_that_is_open(life: int, learns: bool) -> None:
    """``life``: in which the source's register has this store; -1: in none."""
    empty = source(incarnation=0, start_sqn=0, begins=[])
    asked = asks(incarnation=2, elsewhere={UUID: {"a": (life, 0)}})
    assert answer(asked, empty, DRAINED).learns is learns


def test_who_has_begun_here_or_asks_for_a_number_is_not_taken_for_wiped_by_the_register() -> None:
    """What such a store has lost its log says, and the claimant compares the lives by itself."""
    elsewhere = {UUID: {"a": (2, 0)}}
    assert not answer(asks(incarnation=2, elsewhere=elsewhere), source(), DRAINED).learns
    assert not answer(asks(elsewhere=elsewhere), source(incarnation=0, start_sqn=0, begins=[]), DRAINED).learns


@pytest.mark.parametrize("seen", [2, 50])
def test_no_claimant_drives_the_incarnation_out_of_its_range(seen: int) -> None:
    """``seen``: the greatest, begun or promised."""
    most = seen + LEAST_MAX
    assert isinstance(number(asks(least=most), source(promised=seen)), GrantSource)
    assert number(asks(least=most + 1), source(promised=seen)).code == "usage"


# A source begins --------------------------------------------------------------------------------------------


def begins(**said: Any) -> wire.Begin:
    plain: dict[str, Any] = {"begins": [(1, 0), (2, 70)], "claimant": CLAIMANT, "stores": ["a"]}
    return wire.Begin(1, UUID, 3, 100, "a stream", **{**plain, **said})


FREE = BeginFacts("a", None, ((1, 0), (2, 70)), 100, 0, "/logs/u", "same")


def begin(request: wire.Begin, known: SourceState, facts: BeginFacts = FREE, holds: int = 0) -> Any:
    before = copy.deepcopy(known)
    found = answers.too_late(request, known, holds) or answers.decide_begin(request, known, facts)
    unchanged(before, known)
    return found


def promised(number: int = 3, to: bytes = CLAIMANT, **said: Any) -> SourceState:
    return source(promised=number, promised_to=to, **said)


def test_what_was_promised_begins() -> None:
    assert begin(begins(), promised()) == TakePart(((1, 0), (2, 70), (3, 100)), {})


@pytest.mark.parametrize(
    ("known", "holds", "taken"),
    [
        (promised(to=RIVAL), 0, False),
        (promised(4), 0, False),
        (promised(2), 0, True),
        (promised(4), 3, True),
    ],
    ids=["to another claimant", "more, since", "less: other stores promised more", "its stream is open already"],
)
def test_a_begin_keeps_to_what_was_promised(known: SourceState, holds: int, taken: bool) -> None:
    found = begin(begins(), known, holds=holds)
    assert isinstance(found, TakePart) is taken
    assert taken or found.code == "busy"


def test_an_older_version_asks_for_no_promise() -> None:
    assert isinstance(begin(begins(claimant=b""), promised(9, RIVAL)), TakePart)
    assert isinstance(begin(begins(claimant=b""), promised(3, RIVAL)), TakePart)


def test_an_incarnation_that_is_over_does_not_begin() -> None:
    assert begin(begins(), promised(5, incarnation=4)).code == "busy"
    learnt = replace(FREE, begins=((1, 0), (4, 80)))
    assert begin(begins(), promised(), learnt).code == "busy", "it came from a peer while the facts were gathered"


def test_a_begin_that_is_said_again_changes_nothing() -> None:
    """The store was restarted, or the answer was lost: its stream is open."""
    again = msgspec.structs.replace(begins(begins=[(1, 0)]), incarnation=2, start_sqn=70)
    found = begin(again, promised(9, RIVAL), replace(FREE, next_sqn=90), holds=2)
    assert found == TakePart(((1, 0), (2, 70)), {})


def test_of_two_that_have_opened_none_begins_beside_the_other() -> None:
    assert begin(begins(), promised(), replace(FREE, holder=Held(42, 9))).pid == 0
    assert "pid 42" in begin(begins(), promised(), replace(FREE, holder=Held(42, 9))).text


@pytest.mark.parametrize(("following", "taken"), [(71, False), (70, True)])
def test_a_begin_does_not_void_messages_that_it_does_not_know_of(following: int, taken: bool) -> None:
    """It was built without incarnation 2, which starts at 70."""
    found = begin(begins(begins=[(1, 0)]), promised(), replace(FREE, next_sqn=following))
    assert isinstance(found, TakePart) is taken


@pytest.mark.parametrize(("counted", "taken"), [(0, False), (1, False), (2, True)])
def test_a_begin_that_its_log_was_counted_for_is_taken_though_no_table_has_its_newest_one(
    counted: int, taken: bool
) -> None:
    """A restored directory: its incarnation 2 is in nobody's table, and asking again would change nothing."""
    found = begin(begins(begins=[(1, 0)], counted=counted), promised())
    assert isinstance(found, TakePart) is taken
    assert taken or (found.code == "busy" and "built without 2" in found.text)


def test_a_log_that_knows_no_begin_is_counted_by_nobody() -> None:
    assert begin(begins(begins=[(1, 0)]), promised(), replace(FREE, begins=())).code == "busy"


@pytest.mark.parametrize(
    ("first", "entries", "counted", "code"),
    [
        (3, BEGINS_MAX, 0, "unusable_log"),
        (3, BEGINS_MAX, 2, "unusable_log"),
        (3, BEGINS_MAX - 1, 0, "busy"),
        (3, BEGINS_MAX - 1, 2, "taken"),
        (1, BEGINS_MAX, 0, "busy"),
    ],
    ids=[
        "it was away for too long", "and was counted", "a table that is not full", "where it was counted",
        "one that goes back far enough",
    ],
)  # fmt: skip
def test_a_store_that_nobody_remembers_says_what_helps(first: int, entries: int, counted: int, code: str) -> None:
    """The table that the BEGIN is built on does not have incarnation 2, which has messages here. That these
    were counted does not say which of them a forgotten BEGIN has made void."""
    numbers = [number for number in range(first, first + entries + 1) if number != 2][:entries]
    asked = begins(begins=[(number, 100) for number in numbers], counted=counted)
    found = begin(msgspec.structs.replace(asked, incarnation=numbers[-1] + 1), promised(2))
    assert getattr(found, "code", "taken") == code
    assert code == "taken" or ("/logs/u" in found.text) is (code == "unusable_log")


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
    found = begin(begins(others={"c": 30}), known)
    assert found.others["c"] == 50, "the greater one, whoever says it"


def test_only_so_many_stores_of_earlier_lists_are_remembered() -> None:
    known = promised(stores=["a"], others={f"s{number}": number + 1 for number in range(answers.OTHERS_MAX + 3)})
    assert min(begin(begins(), known).others.values()) == 4, "those with the latest messages"


def test_a_table_that_is_told_replaces_what_the_store_believed() -> None:
    known = promised(9)
    found = begin(begins(begins=[(2, 60)], claimant=b""), known, replace(FREE, begins=((1, 0), (2, 70)), next_sqn=70))
    assert found.table == ((1, 0), (2, 60), (3, 100))


# A receiver registers ---------------------------------------------------------------------------------------


def registers(**said: Any) -> wire.RegisterReceiver:
    return wire.RegisterReceiver(1, UUID, "quotes", 8, 0, OTHER, **said)


def receiver(**said: Any) -> ReceiverState:
    return ReceiverState(OTHER, 8, 0, **{"ack": 40, "joined": False, **said})


def grants(request: wire.RegisterReceiver, known: ReceiverState, facts: ReceiverFacts, **of: Any) -> Any:
    before = copy.deepcopy(known)
    found = answers.decide_receiver(request, source(**of), known, facts)
    unchanged(before, known)
    return found


def test_a_receiver_goes_on_behind_what_is_saved() -> None:
    assert grants(registers(), receiver(), ReceiverFacts("a", None)) == GrantReceiver(False, 40, False, 2)


@pytest.mark.parametrize(
    ("line", "ack", "joined"),
    [(Acked(50, joined=False), 50, False), (Acked(30, joined=False), 40, False), (Acked(30, joined=True), 30, True)],
    ids=["the board has more", "the state has more", "it says itself where it went on"],
)
@pytest.mark.parametrize("stream", [1, 3])
def test_what_stands_on_the_board_counts(line: Acked, ack: int, joined: bool, stream: int) -> None:
    found = grants(registers(), receiver(), ReceiverFacts("a", None, line=line, line_stream=stream))
    under = max(2, stream) if ack == line.number else 2
    assert found == GrantReceiver(False, ack, joined, under), "a line of a newer BEGIN is not clamped by that"


def test_a_line_that_says_what_the_state_says_counts_under_its_own_begin() -> None:
    line = Acked(40, joined=False)
    found = grants(registers(), receiver(), ReceiverFacts("a", None, line=line, line_stream=3))
    assert (found.ack, found.under) == (40, 3)


def test_a_living_receiver_keeps_its_reg_id() -> None:
    assert grants(registers(), receiver(), ReceiverFacts("a", Held(42, 9))).pid == 42


def test_an_identity_from_another_store_takes_the_acknowledgements_along() -> None:
    asked = registers(identity=RIVAL)
    found = grants(asked, receiver(), ReceiverFacts("a", None, line_before=Acked(60, joined=False)))
    assert found == GrantReceiver(True, 60, True, 2)
    less = grants(asked, receiver(ack=70), ReceiverFacts("a", None, line_before=Acked(60, joined=False)))
    assert less.ack == 70
    assert grants(asked, receiver(), ReceiverFacts("a", None, Held(42, 9))).pid == 42, "it is somebody's there"


def test_a_stranger_that_takes_an_identity_over_has_not_joined_a_receiver_paced_source_by_that() -> None:
    """What it is said to have is where strangers start, behind what other stores keep for it."""
    asked, known = registers(identity=RIVAL), receiver()
    assert not grants(asked, known, ReceiverFacts("a", None), paced=Wanted(1000)).joined
    line = Acked(60, joined=True)
    assert grants(asked, known, ReceiverFacts("a", None, line=line), paced=Wanted(1000)).joined


@pytest.mark.parametrize(("paced", "position"), [(None, 30), (object(), 105)])
def test_where_a_new_receiver_begins(paced: Any, position: int) -> None:
    assert answers.first_position(source(paced=paced), 100, 30, 105, 1000) == position


def test_nobody_begins_farther_back_than_the_rollback() -> None:
    assert answers.first_position(source(), 100, 30, 105, 20) == 80


# Which entry of the state a request means -------------------------------------------------------------------


PACED = Wanted(1000)
PACES = {"repository-allow-receiver-paced-persistence": 1}


def claims(request: wire.RegisterSource, registry: Registry, topics: Topics | None = None) -> Any:
    return answers.claim_source(request, topics or Topics("disk", None, PACES), registry)


def test_a_new_source_is_kept_with_what_it_asked_for() -> None:
    registry = Registry(state())
    found, old = claims(asks(paced=PACED, proxy=True), registry)
    assert (found.paced, found.proxy, old) == (PACED, True, False)
    assert registry.source(UUID) is found


@pytest.mark.parametrize(("said", "code"), [({"proxy": True}, "proxy"), ({"paced": PACED}, "receiver_paced")])
def test_a_source_that_is_known_asks_for_the_same(said: dict[str, Any], code: str) -> None:
    registry = Registry(state())
    first, _ = claims(asks(), registry)
    assert claims(asks(), registry) == (first, True)
    assert claims(asks(**said), registry).code == code
    assert (first.paced, first.proxy) == (None, False)


def test_what_the_store_does_not_grant_leaves_no_entry() -> None:
    registry = Registry(state())
    assert claims(asks(paced=PACED), registry, Topics("disk", None, {})).code == "receiver_paced"
    elsewhere = Topics("disk", None, {}, [TopicOptions("trades")])
    assert claims(asks(), registry, elsewhere).code == "topic_not_kept"
    assert registry.state.sources == []


def test_a_receiver_is_known_by_the_identity_that_another_store_gave_it() -> None:
    known = source()
    registry = Registry(state(sources=[known]))
    made, old = cast("tuple[ReceiverState, bool]", answers.claim_receiver(registers(identity=RIVAL), known, registry))
    assert (made.uuid, old) == (RIVAL, False)


@pytest.mark.parametrize(("kept", "asked", "granted"), [(1, 1, True), (1, 2, False), (1, 0, False)])
def test_a_receivers_mode_stays_what_it_was(kept: int, asked: int, granted: bool) -> None:
    known = source(paced=PACED, receivers=[receiver(paced=kept)])
    found = answers.claim_receiver(registers(paced=asked), known, Registry(state(sources=[known])))
    assert isinstance(found, tuple) is granted
    assert granted or (isinstance(found, wire.Refused) and found.code == "receiver_paced")
