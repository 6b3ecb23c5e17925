"""RegIDs and session IDs at one store (um_semantics A.2, A.3)."""

from __future__ import annotations

from holdfast.engine.registration import Refusal
from holdfast.engine.store_registry import REG_ID_MAX, Registry
from holdfast.engine.store_state import ReceiverState, SourceState, State


def registry(seed: int = 100) -> Registry:
    return Registry(State("a", b"s" * 16, 1, seed))


def source(result: tuple[SourceState, bool] | Refusal) -> tuple[SourceState, bool]:
    assert not isinstance(result, Refusal), result.text
    return result


def receiver(result: tuple[ReceiverState, bool] | Refusal) -> tuple[ReceiverState, bool]:
    assert not isinstance(result, Refusal), result.text
    return result


def test_reg_id_zero_gets_the_next_free_number() -> None:
    it = registry()
    assert source(it.claim_source("quotes", 0, 0, b"1" * 16))[0].registration_id == 100
    assert source(it.claim_source("quotes", 0, 0, b"2" * 16))[0].registration_id == 101


def test_a_given_reg_id_is_kept_and_finds_its_state_again() -> None:
    it = registry()
    first, old = source(it.claim_source("quotes", 7, 0, b"1" * 16))
    assert (first.registration_id, old) == (7, False)
    again, old = source(it.claim_source("quotes", 7, 0, b"2" * 16))
    assert again is first
    assert old
    assert again.uuid == b"1" * 16, "the identity is the one of the first registration"


def test_a_reg_id_of_another_topic_is_refused() -> None:
    it = registry()
    it.claim_source("quotes", 7, 0, b"1" * 16)
    refused = it.claim_source("trades", 7, 0, b"2" * 16)
    assert isinstance(refused, Refusal)
    assert refused.code == "topic_mismatch"
    assert "quotes" in refused.text


def test_a_session_remembers_its_reg_id_per_topic_and_ignores_a_given_one() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 5, 0x2A, b"1" * 16))
    assert quotes.registration_id == 100
    trades, _ = source(it.claim_source("trades", 0, 0x2A, b"2" * 16))
    assert trades is not quotes
    assert source(it.claim_source("quotes", 9, 0x2A, b"3" * 16)) == (quotes, True)


def test_source_and_receiver_maps_are_separate() -> None:
    it = registry()
    quotes, _ = source(it.claim_source("quotes", 0, 0x2A, b"1" * 16))
    mine, old = receiver(it.claim_receiver(quotes, 0, 0x2A, b"r" * 16))
    assert not old
    assert mine.registration_id != quotes.registration_id
    assert receiver(it.claim_receiver(quotes, 0, 0x2A, b"q" * 16)) == (mine, True)


def test_one_receiver_reg_id_may_have_a_state_under_each_source() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 1, 0, b"1" * 16))
    two, _ = source(it.claim_source("trades", 2, 0, b"2" * 16))
    first, _ = receiver(it.claim_receiver(one, 300, 0, b"r" * 16))
    second, _ = receiver(it.claim_receiver(two, 300, 0, b"r" * 16))
    assert first is not second


def test_roles_do_not_share_a_reg_id() -> None:
    it = registry()
    one, _ = source(it.claim_source("quotes", 1, 0, b"1" * 16))
    it.claim_receiver(one, 300, 0, b"r" * 16)
    assert isinstance(it.claim_receiver(one, 1, 0, b"q" * 16), Refusal)
    assert isinstance(it.claim_source("trades", 300, 0, b"2" * 16), Refusal)


def test_assigned_numbers_wrap_and_skip_those_in_use_and_zero() -> None:
    it = registry(seed=REG_ID_MAX)
    it.claim_source("a", 1, 0, b"1" * 16)
    assert source(it.claim_source("b", 0, 0, b"2" * 16))[0].registration_id == REG_ID_MAX
    assert source(it.claim_source("c", 0, 0, b"3" * 16))[0].registration_id == 2
