"""Files that cannot be read, and files of any bytes: a ConfigError or a result, and never anything else."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.config import Configuration
from holdfast.config.text import BYTES_MAX
from holdfast.engine.errors import ConfigError
from holdfast.engine.options.resolve import resolve
from holdfast.engine.options.table import ROWS

if TYPE_CHECKING:
    from pathlib import Path


def refused(path: object, *words: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        Configuration(path, None, None)  # type: ignore[arg-type]
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert (raised.value.code, raised.value.exit_code) == ("LBM_EINVAL", 2)
    return raised.value


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert refused(missing, str(missing), "cannot be read: No such file or directory").file == str(missing)
    refused(tmp_path, "cannot be read: Is a directory")
    refused("/proc/self/mem", "cannot be read: Input/output error")
    refused("a\0b", "cannot be read")
    refused(7.5, "config = 7.5 is not a path")
    refused("", "config = '' is not a path")


def test_a_variable_that_names_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LBM_DEFAULT_CONFIG_FILE", str(tmp_path / "none"))
    refused(None, str(tmp_path / "none"), "its name is in $LBM_DEFAULT_CONFIG_FILE")


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "um.cfg"
    path.write_bytes("source ume_flight_size 5\ncontext context_name é\n".encode("latin-1"))
    error = refused(path, f"{path}:2:22: the configuration is not UTF-8: byte 0xe9")
    assert (error.line, error.column) == (2, 22)
    path.write_text("source ume_flight_size 5\n", encoding="utf-16")
    refused(path, ":1:1: the configuration is not UTF-8: byte 0xff")


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "um.cfg"
    path.write_bytes(b"#" * BYTES_MAX)
    Configuration(path, None, None)
    path.write_bytes(b"#" * (BYTES_MAX + 1))
    refused(path, "larger than 4194304 bytes")
    refused("/dev/zero", "larger than 4194304 bytes")


def test_a_path_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "um.cfg"
    path.write_text("")
    for given_path in (path, str(path), os.fsencode(path)):
        Configuration(given_path, None, None)  # type: ignore[arg-type]


def test_an_error_with_a_place_survives_the_way_to_another_process(tmp_path: Path) -> None:
    path = tmp_path / "um.cfg"
    path.write_text("sources x 1")
    error = refused(path, "is not a scope")
    twin = copy.copy(error)  # by __reduce_ex__, as pickling does
    assert str(twin) == str(error)
    assert (twin.file, twin.line, twin.column, twin.excerpt) == (error.file, error.line, error.column, error.excerpt)


# Any bytes --------------------------------------------------------------------------------------------------


def either(path: Path, contents: bytes) -> None:
    """Reads it, and makes one object of each kind with it."""
    path.write_bytes(contents)
    told = None
    try:
        found = Configuration(path, None, None)
        resolve("context", {}, None, found.layers("context"))
        resolve("source", {}, None, found.layers("source", "quotes"))
        resolve("receiver", {}, None, found.layers("receiver", ".*", wildcard=True))
    except ConfigError as error:
        told = error
    if told is not None and told.line is not None:
        assert told.line >= 1
        assert told.column is not None
        assert told.column >= 1
        assert str(told).count("\n") in {0, 2}


words = st.sampled_from(
    [
        "source",
        "context",
        "receiver",
        "wildcard_receiver",
        "event_queue",
        "#",
        '"',
        "0",
        "1",
        "-1",
        "0x",
        "a:0:0",
        "0:0",
    ]
    + [name for row in ROWS for name in (row.name, *row.aliases)]
)
spaces = st.sampled_from([" ", "\t", "\n", "\r\n", "\x0b", "\u2028", "\x00", "", " # "])
flat_texts = st.lists(st.tuples(st.one_of(words, st.text(max_size=6)), spaces), max_size=12)
tags = [
    "um-configuration", "templates", "template", "applications", "application", "contexts", "context", "sources",
    "topic", "options", "option", "allow", "x",
]  # fmt: skip
names = st.sampled_from(["version", "name", "template", "type", "order", "rule", "pattern", "default-value"])
values = st.one_of(
    words, st.sampled_from(["1.0", "allow", "deny,allow", "(", "&amp;", "&x;", "'", "<"]), st.text(max_size=4)
)


def element(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    attributes = st.dictionaries(names, values, max_size=3)
    return st.builds(
        lambda tag, given_, inside: "<{0}{1}>{2}</{0}>".format(
            tag, "".join(f' {key}="{value}"' for key, value in given_.items()), "".join(inside)
        ),
        st.sampled_from(tags), attributes, st.lists(children, max_size=3),
    )  # fmt: skip


documents = st.recursive(st.one_of(st.text(max_size=3), element(st.just(""))), element, max_leaves=8)
FRAME = (
    '<um-configuration version="1.0"><templates><template name="a"><options type="source">'
    '<option name="ume_flight_size" default-value="1"/></options></template></templates>'
    "<applications><application>{}</application></applications></um-configuration>"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any") / "um"


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
@example(b"<")
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbf<a/>")
def test_any_bytes(path: Path, contents: bytes) -> None:
    either(path, contents)


@settings(deadline=None, max_examples=300)
@given(flat_texts)
def test_any_flat_text(path: Path, parts: list[tuple[str, str]]) -> None:
    either(path, "".join(word + space for word, space in parts).encode("utf-8", "replace"))


@settings(deadline=None, max_examples=300)
@given(documents)
def test_any_document(path: Path, text: str) -> None:
    either(path, text.encode("utf-8", "replace"))
    either(path, FRAME.format(f"<contexts>{text}</contexts>").encode("utf-8", "replace"))
