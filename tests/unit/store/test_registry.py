"""RegIDs and session IDs at one store: the rows of docs/semantics.md A.2, A.3 and A.4's refusals."""

from __future__ import annotations

import pytest

from holdfast.engine.log.state_file import ReceiverState, SourceState, State
from holdfast.engine.rules.expiry import Timers
from holdfast.engine.rules.registration import REG_ID_MAX, Refusal
from holdfast.engine.store.registry import Registry

NEVER_SEEN = b"x" * 16


def registry(seed: int = 100) -> Registry:
    return Registry(State("a", b"s" * 16, 1, seed))


def source(result: tuple[SourceState, bool] | Refusal) -> tuple[SourceState, bool]:
    assert not isinstance(result, Refusal), result.text
    return result


def receiver(result: tuple[ReceiverState, bool] | Refusal) -> tuple[ReceiverState, bool]:
    assert not isinstance(result, Refusal), result.text
    return result


def refusal(result: tuple[object, bool] | Refusal) -> Refusal:
    assert isinstance(result, Refusal)
    return result


# RegIDs: A.2 ------------------------------------------------------------------------------------------------


def test_a2_reg_id_zero_gets_the_next_number_of_the_stores_series() -> None:
    it = registry()
    assert source(it.claim_source("quotes", 0, 0, b"1" * 16))[0].registration_id == 100
    assert source(it.claim_source("quotes", 0, 0, b"2" * 16))[0].registration_id == 101


def test_a2_sources_and_receivers_draw_from_one_series() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 0, 0, b"1" * 16))
    assert receiver(it.claim_receiver(one, "quotes", 0, 0, b"r" * 16))[0].registration_id == 101
    assert source(it.claim_source("quotes", 0, 0, b"2" * 16))[0].registration_id == 102


def test_a2_the_series_skips_numbers_in_use_and_zero() -> None:
    it = registry(seed=REG_ID_MAX)
    one, _ = source(it.claim_source("a", 1, 0, b"1" * 16))
    it.claim_receiver(one, "a", 2, 0, b"r" * 16)
    assert source(it.claim_source("b", 0, 0, b"2" * 16))[0].registration_id == REG_ID_MAX
    assert source(it.claim_source("c", 0, 0, b"3" * 16))[0].registration_id == 3


def test_a2_a_given_reg_id_is_kept_and_finds_its_state_again() -> None:
    it = registry()
    first, old = source(it.claim_source("quotes", 7, 0, b"1" * 16))
    assert (first.registration_id, old) == (7, False)
    again, old = source(it.claim_source("quotes", 7, 0, b"2" * 16))
    assert again is first
    assert old
    assert again.uuid == b"1" * 16, "the identity is the one of the first registration"


def test_a2_a_receivers_state_is_keyed_by_the_pair() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 1, 0, b"1" * 16))
    two, _ = source(it.claim_source("trades", 2, 0, b"2" * 16))
    first, _ = receiver(it.claim_receiver(one, "quotes", 300, 0, b"r" * 16))
    second, old = receiver(it.claim_receiver(two, "trades", 300, 0, b"q" * 16))
    assert first is not second
    assert not old
    assert receiver(it.claim_receiver(one, "quotes", 300, 0, NEVER_SEEN)) == (first, True)
    assert [kept for _, kept in it.holders(300)] == [first, second]


def test_a2_a_receiver_may_not_have_a_sources_reg_id() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 1, 0, b"1" * 16))
    source(it.claim_source("trades", 2, 0, b"2" * 16))
    for taken in (1, 2):
        refused = refusal(it.claim_receiver(one, "quotes", taken, 0, b"q" * 16))
        assert (refused.code, refused.registration_id) == ("reg_id_in_use", taken)
    assert one.receivers == []


def test_a2_a_source_may_not_have_a_receivers_reg_id() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 1, 0, b"1" * 16))
    it.claim_receiver(one, "quotes", 300, 0, b"r" * 16)
    assert refusal(it.claim_source("trades", 300, 0, b"2" * 16)).code == "reg_id_in_use"
    assert it.sources("trades") == []


@pytest.mark.parametrize("number", [-1, REG_ID_MAX + 1, 2**64 - 1])
def test_a2_reg_ids_have_32_bits(number: int) -> None:
    it = registry()
    assert refusal(it.claim_source("quotes", number, 0, b"1" * 16)).code == "usage"
    one, _ = source(it.claim_source("quotes", REG_ID_MAX, 0, b"1" * 16))
    assert refusal(it.claim_receiver(one, "quotes", number, 0, b"r" * 16)).code == "usage"
    assert one.registration_id == REG_ID_MAX


# Session IDs: A.3 -------------------------------------------------------------------------------------------


def test_a3_a_known_pair_answers_with_the_old_reg_id_an_unknown_one_gets_a_number() -> None:
    it = registry()
    quotes, old = source(it.claim_source("quotes", 0, 0x2A, b"1" * 16))
    assert (quotes.registration_id, old) == (100, False)
    trades, _ = source(it.claim_source("trades", 0, 0x2A, b"2" * 16))
    assert trades.registration_id == 101, "the pair is (topic, session)"
    other, _ = source(it.claim_source("quotes", 0, 0x2B, b"3" * 16))
    assert other.registration_id == 102
    assert source(it.claim_source("quotes", 0, 0x2A, NEVER_SEEN)) == (quotes, True)


def test_a3_with_a_session_id_a_reg_id_that_was_given_is_ignored() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 5, 0x2A, b"1" * 16))
    assert quotes.registration_id == 100
    assert source(it.claim_source("quotes", 9, 0x2A, NEVER_SEEN)) == (quotes, True)
    mine, _ = receiver(it.claim_receiver(quotes, "quotes", 5, 0x2A, b"r" * 16))
    assert mine.registration_id == 101


def test_a3_the_receiver_map_is_separate_and_per_source() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 0, 0x2A, b"1" * 16))
    two, _ = source(it.claim_source("quotes", 0, 0x2B, b"2" * 16))
    first, old = receiver(it.claim_receiver(one, "quotes", 0, 0x2A, b"r" * 16))
    assert not old, "the source of that session is not this receiver"
    second, old = receiver(it.claim_receiver(two, "quotes", 0, 0x2A, b"q" * 16))
    assert not old
    assert len({first.registration_id, second.registration_id, one.registration_id, two.registration_id}) == 4
    assert receiver(it.claim_receiver(one, "quotes", 0, 0x2A, NEVER_SEEN)) == (first, True)


@pytest.mark.parametrize("session", [2**64 - 1, 2**64, -1])
def test_a3_reserved_session_ids_are_refused(session: int) -> None:
    it = registry()
    assert refusal(it.claim_source("quotes", 0, session, b"1" * 16)).code == "usage"
    one, _ = source(it.claim_source("quotes", 0, 2**64 - 2, b"1" * 16))
    assert refusal(it.claim_receiver(one, "quotes", 0, session, b"r" * 16)).code == "usage"


def test_a3_a_reg_id_that_stands_for_a_session_is_not_granted_without_it() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 0, 0x2A, b"1" * 16))
    refused = refusal(it.claim_source("quotes", 100, 0, NEVER_SEEN))
    assert refused.code == "session_mismatch"
    assert "could not register client" in refused.text
    assert "RegID mismatch" in refused.text
    assert "0x2a" in refused.text
    it.claim_receiver(quotes, "quotes", 0, 0x2B, b"r" * 16)
    assert refusal(it.claim_receiver(quotes, "quotes", 101, 0, NEVER_SEEN)).code == "session_mismatch"


def test_a3_a_live_object_that_comes_back_with_another_session_is_refused() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 0, 0x2A, b"1" * 16))
    assert refusal(it.claim_source("quotes", 0, 0x2B, b"1" * 16)).session_id == 0x2A
    it.claim_receiver(quotes, "quotes", 0, 0, b"r" * 16)
    assert refusal(it.claim_receiver(quotes, "quotes", 0, 0x2B, b"r" * 16)).code == "session_mismatch"
    assert len(it.state.sources) == len(quotes.receivers) == 1


# A live object that registers again -------------------------------------------------------------------------


def test_an_object_with_an_assigned_reg_id_is_known_by_its_uuid() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 0, 0, b"1" * 16))
    assert source(it.claim_source("quotes", 0, 0, b"1" * 16)) == (quotes, True)
    mine, _ = receiver(it.claim_receiver(quotes, "quotes", 0, 0, b"r" * 16))
    assert receiver(it.claim_receiver(quotes, "quotes", 0, 0, b"r" * 16)) == (mine, True)
    assert it.state.sources == [quotes]
    assert quotes.receivers == [mine]


# Refusals and settings: A.4 ---------------------------------------------------------------------------------


def test_a4_a_reg_id_of_another_topic() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 7, 0, b"1" * 16))
    refused = refusal(it.claim_source("trades", 7, 0, NEVER_SEEN))
    assert refused.code == "topic_mismatch"
    assert "src topic does not match the info topic" in refused.text
    assert "'quotes'" in refused.text
    assert refusal(it.claim_source("trades", 0, 0, b"1" * 16)).code == "topic_mismatch"
    assert refusal(it.claim_receiver(quotes, "trades", 0, 0, b"r" * 16)).code == "topic_mismatch"


def test_a4_the_timers_of_the_first_registration_win() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 7, 0, b"1" * 16, Timers(500, 700)))
    mine, _ = receiver(it.claim_receiver(quotes, "quotes", 8, 0, b"r" * 16, Timers(50, 70)))
    source(it.claim_source("quotes", 7, 0, NEVER_SEEN, Timers(1, 2)))
    receiver(it.claim_receiver(quotes, "quotes", 8, 0, NEVER_SEEN, Timers(3, 4)))
    assert (quotes.activity_timeout, quotes.state_lifetime) == (500, 700)
    assert (mine.activity_timeout, mine.state_lifetime) == (50, 70)


# Who is known -----------------------------------------------------------------------------------------------


def test_a_source_is_found_under_the_uuid_that_it_has_now_and_by_its_session() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 0, 9, b"1" * 16))
    two, _ = source(it.claim_source("trades", 0, 9, b"2" * 16))
    it.rename(one, b"3" * 16)
    assert (it.source(b"1" * 16), it.source(b"3" * 16)) == (None, one)
    assert source(it.claim_source("quotes", 0, 9, NEVER_SEEN)) == (one, True)
    it.remove(one)
    assert (it.source(b"3" * 16), it.sources(""), set(it.uuids)) == (None, [two], {b"2" * 16})
    it.add(one)
    assert [each.topic for each in it.state.sources] == ["trades", "quotes"]
    assert source(it.claim_source("quotes", 0, 9, NEVER_SEEN)) == (one, True)
    it.remove(one)
    fresh, old = source(it.claim_source("quotes", 0, 9, NEVER_SEEN))
    assert (fresh is one, old) == (False, False)


def test_what_a_state_file_has_is_known_to_the_next_store() -> None:
    before = registry()
    one, _ = source(before.claim_source("quotes", 0, 9, b"1" * 16))
    receiver(before.claim_receiver(one, "quotes", 0, 0, b"r" * 16))
    after = Registry(State("a", b"s" * 16, 2, 100, list(before.state.sources)))
    assert after.source(b"1" * 16) is one
    assert source(after.claim_source("quotes", 0, 9, NEVER_SEEN)) == (one, True)
    assert source(after.claim_source("quotes", 0, 0, b"2" * 16))[0].registration_id == 102
