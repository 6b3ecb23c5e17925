"""By what the register of sources and the censuses know a source (engine/log/source_key.py): names and lines
that lie on disks, as they were before this module was."""

from __future__ import annotations

from pathlib import Path

from holdfast.engine.log.census import key_of, keys_of
from holdfast.engine.log.register import _file_names
from holdfast.engine.log.source_key import digest_of, given, given_by

DOMAIN = Path("/nowhere/käse")
TOPIC = 'quotes/ä "x"'


def test_a_source_is_known_by_its_session_or_by_each_of_its_reg_ids() -> None:
    assert given(7, 3) == (7, 0)
    assert given(0, 3) == (0, 3)
    assert given_by(7, [1, 2]) == [(7, 0)]
    assert given_by(0, [2, 1, 0, 2]) == [(0, 2), (0, 1)]
    assert given_by(0, [0]) == []
    assert len({digest_of("a", 1, 0), digest_of("a", 0, 1), digest_of("a1", 0), digest_of("a", "1", 0)}) == 4


def test_the_files_of_the_register_have_the_names_that_they_had() -> None:
    assert _file_names(DOMAIN, TOPIC, 7, [1, 2]) == ["53cdde6198f58f3f076ac1082cc01ad7"]
    by_reg_ids = ["405cd2267dd930c311fe937a4ca4b78f", "0c9954e8db9357e280b181b5f250a99b"]
    assert _file_names(DOMAIN, TOPIC, 0, [2, 1, 0, 2]) == by_reg_ids
    assert _file_names(DOMAIN, TOPIC, 0, []) == []


def test_a_census_has_the_keys_that_it_had() -> None:
    """A store of a later version goes on with it in the same boot."""
    assert key_of(TOPIC, 7, 3).hex() == "2468325ed36f64af77997e257b7e46e7"
    assert key_of(TOPIC, 0, 3).hex() == "3e8a1e4a121c860832122e843cae8309"
    assert key_of(TOPIC, 2**64 - 1, 3).hex() == "6be6c2c51557990ac15af303762dcafb"
    by_reg_ids = {"3df25add9d5dcbda9fb86988743509aa", "581e59110988bdf9887c1fdf2cdee2a7"}
    assert {key.hex() for key in keys_of(TOPIC, 0, [2, 1, 0, 2])} == by_reg_ids
