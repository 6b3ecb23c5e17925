"""UM's flat file: what a line means, and what a wrong one is told."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.config import Configuration
from holdfast.engine.errors import ConfigError
from holdfast.engine.options.resolve import Options, resolve

if TYPE_CHECKING:
    from pathlib import Path


def view(path: Path, scope: str = "source", name: str = "quotes", **more: Any) -> Options:
    return resolve(scope, {}, None, Configuration(path, None, None).layers(scope, name, **more))


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    return tmp_path / "um.cfg"


def test_a_line_is_scope_option_value(flat: Path) -> None:
    flat.write_text(
        "# a comment\n"
        "\n"
        "   \t  \n"
        "source ume_flight_size 5000\n"
        "\tSource\tUME_Registration_Interval \t 0x10   # and why\n"
        "source ume_flight_size_behavior Notify#next to it\r\n"
        "context ume_ack_batching_interval 10\n"
        "receiver ume_use_ack_batching 0"
    )
    source = view(flat)
    assert (source.ume_flight_size, source.ume_registration_interval) == (5000, 16)
    assert source.ume_flight_size_behavior == "notify"
    assert view(flat, "context").ume_ack_batching_interval == 10
    assert not view(flat, "receiver").ume_use_ack_batching


def test_a_later_value_replaces_an_earlier_also_under_its_other_name(flat: Path) -> None:
    flat.write_text("source late_join 0\nsource ume_late_join 1\nsource ume_flight_size 1\nsource ume_flight_size 2\n")
    assert view(flat).late_join
    assert view(flat).ume_flight_size == 2


def test_lists_grow_by_one_entry_a_line_and_zero_clears_them(flat: Path) -> None:
    flat.write_text(
        "source ume_store 127.0.0.1:9\n"
        "source ume_store 0.0.0.0:0\n"
        "source ume_store 127.0.0.1:14567:100:0\n"
        "source ume_store_name a:0:0\n"
        "source ume_store_name b:0:0\n"
        "source ume_store_name b:0:0\n"
        "source ume_store_group 0:3\n"
    )
    assert [str(store) for store in view(flat).stores] == ["127.0.0.1:14567", "a", "b"]
    assert view(flat).ume_store_group[0].size == 3


def test_a_list_has_an_end(flat: Path) -> None:
    flat.write_text("source ume_store_name a\n" * 250)
    assert len(view(flat).stores) == 1
    flat.write_text("source ume_store_name a\n" * 100_000)
    with pytest.raises(ConfigError, match="ume_store_name has more than 250 entries") as raised:
        view(flat)
    assert raised.value.line == 251


def test_every_scope(flat: Path) -> None:
    flat.write_text(
        "context context_name pricer 7\nwildcard_receiver pattern_type regex\nevent_queue queue_size_warning 5\n"
        "receiver ume_session_id 3\nWILDCARD-RECEIVER resolver_query_interval 1\nevent_queue anything at all\n"
    )
    assert view(flat, "context").context_name == "pricer 7"
    assert view(flat, "receiver", wildcard=True).pattern_type == "regex"
    assert view(flat, "receiver", wildcard=True).ume_session_id == 3
    assert view(flat, "receiver").pattern_type == "pcre"


def test_an_empty_file_says_nothing(flat: Path) -> None:
    flat.write_text("")
    assert repr(view(flat)) == "Options(source: )"


def test_a_byte_order_mark_is_not_part_of_the_first_word(flat: Path) -> None:
    flat.write_bytes(b"\xef\xbb\xbfsource ume_flight_size x\n")
    with pytest.raises(ConfigError) as raised:
        view(flat)
    assert (raised.value.line, raised.value.column) == (1, 24)


WRONG: list[tuple[str, int, int, str]] = [
    (
        "\nsource ume_flight_sise 5\n",
        2,
        8,
        "source option 'ume_flight_sise' does not exist; did you mean ume_flight_size?",
    ),
    ("source ume_flight_size 0", 1, 24, "source option ume_flight_size = 0: the minimum is 1 fragments"),
    ("  source\tume_flight_size\tmany # x", 1, 26, "expected a whole number"),
    ("receiver ume_flight_size 5", 1, 10, "ume_flight_size is not an option of a receiver; give it to: source"),
    ("wildcard_receiver use_late_join 1", 1, 19, "is not an option of a wildcard_receiver; give it to: receiver"),
    ("sources ume_flight_size 5", 1, 1, "'sources' is not a scope; one of context, source, receiver"),
    ("store repository-size-limit 5", 1, 1, "'store' is not a scope"),
    ("source", 1, 7, "the option's name is missing; a line is: scope option value"),
    ("source ume_flight_size   # 5", 1, 23, "the value is missing"),
    ('context context_name "a"', 1, 22, "the value is quoted; write it without quotes"),
    ("source ume_store_name 'a:0:0'", 1, 23, "is quoted"),
    ("source ume_store_name a:0:0\nsource ume_store_name a:0:9", 2, 23, "a group from 0 to 4"),
    ("source ume_store_group 1:3\nsource ume_store_group 0:3", 2, 24, "groups in ascending order"),
    ("source ume_store 10.0.0.1:14567", 1, 18, "a loopback address, not '10.0.0.1'"),
    (
        "source ume_force_reclaim_function f",
        1,
        8,
        "is a function; give it in Python: options={'ume_force_reclaim_function'",
    ),
    ("receiver source_notification_function f", 1, 10, "is a function"),
    ("source ume_registration_id 5", 1, 8, "does not exist any more; use ume_store_name"),
    ("source ume_primary_store_address 1.2.3.4", 1, 8, "use ume_store_name, or ume_store = 127.0.0.1:PORT"),
    ("source smart_src_enable_spectrum_channel 1", 1, 42, "the rest of it is not in this version"),
    ("receiver ordered_delivery 0", 1, 27, "0, fragments one by one, is not in this version"),
]


@pytest.mark.parametrize(("text", "line", "column", "words"), WRONG)
def test_a_mistake_is_shown_where_it_is(flat: Path, text: str, line: int, column: int, words: str) -> None:
    flat.write_text(text)
    with pytest.raises(ConfigError) as raised:
        view(flat)
    error = raised.value
    assert (error.file, error.line, error.column) == (str(flat), line, column)
    told, shown, caret = str(error).splitlines()
    assert told.startswith(f"LBM_EINVAL: {flat}:{line}:{column}: ")
    assert words in told
    assert shown == "  " + text.splitlines()[line - 1].replace("\t", " ")
    assert caret == " " * (column + 1) + "^"


def test_of_a_long_line_the_part_around_the_mistake_is_shown(flat: Path) -> None:
    flat.write_text(f"source ume_store_name {'a' * 300}:0:0 # {'b' * 300}")
    with pytest.raises(ConfigError) as raised:
        view(flat)
    _, shown, caret = str(raised.value).splitlines()
    assert len(shown) <= 102
    flat.write_text(f"source ume_flight_size {' ' * 300}x{' ' * 300}#")
    with pytest.raises(ConfigError) as raised:
        view(flat)
    _, shown, caret = str(raised.value).splitlines()
    assert shown[caret.index("^")] == "x"


def test_a_value_of_any_length_makes_a_short_message(flat: Path) -> None:
    flat.write_text(f"source ume_flight_size {'9' * 1_000_000}")
    with pytest.raises(ConfigError) as raised:
        view(flat)
    assert len(str(raised.value)) < 1000


def test_options_of_a_network_are_accepted_with_one_warning(flat: Path, caplog: pytest.LogCaptureFixture) -> None:
    flat.write_text(
        'source transport LBT-RM\ncontext resolver_multicast_interface "en0"\nsource ume_flight_size 3\n'
        "context transport_lbtipc_datagram_max_size 60000\nsource transport TCP\nevent_queue queue_delay_warning 5\n"
        "receiver otr_request_initial_delay 5\n"
    )
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert view(flat).ume_flight_size == 3
    (record,) = caplog.records
    names = "transport, resolver_multicast_interface, transport_lbtipc_datagram_max_size, queue_delay_warning"
    assert record.getMessage() == (
        f"{flat}: options of a network have no effect on one host: {names}, otr_request_initial_delay"
    )


def test_nothing_is_warned_of_where_nothing_is_ignored(flat: Path, caplog: pytest.LogCaptureFixture) -> None:
    flat.write_text("source ume_flight_size 3\nsource fragment_size 100\n")
    assert view(flat).fragment_size == 100
    assert caplog.records == []
