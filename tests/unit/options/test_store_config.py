"""What no store can be is told before anything is touched: StoreConfig, and what is given in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.engine.options.resolve import find, resolve
from holdfast.engine.options.store_config import check_config
from holdfast.engine.options.table import RECEIVER, SOURCE, STORE

MONTH_MS = 30 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("wrong", "told", "remedy"),
    [
        ({"directory": ""}, "directory '' of store a", "this store's alone"),
        ({"directory": None}, "directory None of store a", "this store's alone"),
        ({"directory": b"/tmp/a"}, "directory b'/tmp/a' of store a", "this store's alone"),
        ({"directory": "a\0b"}, "directory 'a\\x00b' of store a", "this store's alone"),
        ({"cache": ""}, "cache '' of store a", "this store's alone"),
        ({"options": [1]}, "options [1] of store a", "a mapping"),
        ({"topics": ["quotes"]}, "topics ['quotes'] of store a", "TopicOptions"),
        ({"topics": "quotes"}, "topics 'quotes' of store a", "TopicOptions"),
    ],
)
def test_a_field_of_another_kind_is_told_with_its_value_and_what_it_should_be(
    wrong: dict[str, Any], told: str, remedy: str
) -> None:
    with pytest.raises(hf.ConfigError) as raised:
        check_config(hf.StoreConfig(**{"name": "a", "directory": "/nowhere", **wrong}))
    assert told in str(raised.value)
    assert remedy in str(raised.value.hint)


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "/a", "", ".", "..", "a\0b", "a\nb", "a\x1b[2J", "a\u202eb", "x" * 32, None]
)
def test_a_name_that_is_no_file_name_is_refused_where_it_is_made(name: Any) -> None:
    with pytest.raises(hf.ConfigError) as raised:
        hf.StoreConfig(name, "/nowhere")
    assert f"store name {name!r}" in str(raised.value)
    assert "letters, digits and _ . + -, 31 at most" in str(raised.value.hint)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "field",
    [
        {"port": -1}, {"port": 65536}, {"port": True}, {"aliases": "ab"}, {"aliases": 7}, {"directory": "a\0b"},
        {"directory": "/a\x1bb"}, {"directory": Path("/a\nb")}, {"cache": "/a\x85b"}, {"cache": ""},
        {"domain": "../x"}, {"domain": "a\n"}, {"domain": "/a\nb/c"}, {"domain": "/"}, {"domain": "x" * 65}, {"domain": 7},
    ],
)  # fmt: skip
def test_what_else_no_store_can_be_is_refused_where_it_is_made(field: dict[str, Any]) -> None:
    with pytest.raises(hf.ConfigError) as raised:
        hf.StoreConfig(**{"name": "a", "directory": "/nowhere", **field})
    assert repr(*field.values()) in str(raised.value)


@pytest.mark.parametrize("alias", ["../x", "b\n", "a label with blanks", "", None, "x" * 32])
def test_another_name_that_is_no_file_name_is_refused_where_it_is_made(alias: Any) -> None:
    with pytest.raises(hf.ConfigError) as raised:
        hf.StoreConfig("a", "/nowhere", aliases=["b", alias])
    assert f"alias of store a {alias!r}" in str(raised.value)
    assert "letters, digits and _ . + -, 31 at most" in str(raised.value.hint)


@pytest.mark.parametrize("domain", [None, "", "default", "a.b-1", "/run/holdfast/default", "/run/x/"])
def test_a_domain_is_a_name_or_a_path_that_ends_in_one(domain: str | None) -> None:
    assert hf.StoreConfig("a", "/nowhere", domain=domain).domain == domain


@pytest.mark.parametrize("directory", ["/nowhere/a", "a", Path("a")])
def test_a_directory_is_a_string_or_a_path(directory: Any) -> None:
    assert check_config(hf.StoreConfig("a", directory)).store.type == "disk"


def test_what_is_no_store_config_is_a_usage_error() -> None:
    wrong: Any = 7
    with pytest.raises(hf.UsageError, match=r"7.* StoreConfig"):
        hf.spawn_store(wrong)


@pytest.mark.parametrize("name", ["disk-state-directoryy", "repository-typ"])
def test_a_misspelt_option_names_the_one_that_was_meant_also_where_only_xml_has_it(name: str) -> None:
    with pytest.raises(hf.ConfigError) as raised:
        find(STORE, name)
    assert raised.value.hint == f"did you mean {'disk-state-directory' if 'disk' in name else 'repository-type'}?"


def test_a_state_may_live_for_a_month() -> None:
    for name in ("source-state-lifetime", "receiver-state-lifetime"):
        check_config(hf.StoreConfig("a", "/nowhere", options={name: MONTH_MS}))
    for scope in (SOURCE, RECEIVER):
        assert resolve(scope, {"ume_state_lifetime": MONTH_MS}).ume_state_lifetime == MONTH_MS
