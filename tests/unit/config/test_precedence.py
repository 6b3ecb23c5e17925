"""What goes before what: options=, the context's options=, the file, UM's environment variables, the
defaults."""

from __future__ import annotations

import os
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from holdfast.config import Configuration
from holdfast.engine.errors import ConfigError
from holdfast.engine.options.resolve import Options, resolve

if TYPE_CHECKING:
    from pathlib import Path

XML = """<um-configuration version="1.0"><applications><application name="app"><contexts><context>
<options type="source"><option name="{0}" default-value="{1}"/></options>
<options type="context"><option name="{0}" default-value="{2}"/></options>
<sources><topic topicname="quotes"><options type="source"><option name="{0}" default-value="{3}"/></options></topic></sources>
</context></contexts></application></applications></um-configuration>"""

PLACES = ["own", "context", "file", "file context", "flat", "flat context", "xml", "xml context"]
"""Highest first."""


def in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: tuple[str, ...]) -> Options:
    """A source's view when ``ume_session_id`` is given at these places, each with its own number, from 1."""
    number = {place: PLACES.index(place) + 1 for place in places}
    found = {}
    for kind in ("file", "flat", "xml"):
        lines = [("source", number.get(kind)), ("context", number.get(f"{kind} context"))]
        given = [(scope, value) for scope, value in lines if value is not None]
        if not given:
            continue
        found[kind] = tmp_path / kind
        if kind == "xml":
            options = "".join(
                f'<options type="{scope}"><option name="ume_session_id" default-value="{value}"/></options>'
                for scope, value in given
            )
            found[kind].write_text(
                '<um-configuration version="1.0"><applications><application name="app"><contexts><context>'
                f"{options}</context></contexts></application></applications></um-configuration>"
            )
        else:
            found[kind].write_text("".join(f"{scope} ume_session_id {value}\n" for scope, value in given))
    if "flat" in found:
        monkeypatch.setenv("LBM_DEFAULT_CONFIG_FILE", str(found["flat"]))
    if "xml" in found:
        monkeypatch.setenv("LBM_XML_CONFIG_FILENAME", str(found["xml"]))
        monkeypatch.setenv("LBM_XML_CONFIG_APPNAME", "app")
    defaults = Configuration(found.get("file"), None, None)
    context = {"ume_session_id": number["context"]} if "context" in number else {}
    outer = resolve("context", context, None, defaults.layers("context"))
    own = {"ume_session_id": number["own"]} if "own" in number else {}
    return resolve("source", own, outer, defaults.layers("source", "quotes"))


@pytest.mark.parametrize("places", [*combinations(PLACES, 2)], ids=" over ".join)
def test_of_any_two_places_the_higher_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: tuple[str, ...]
) -> None:
    assert in_force(tmp_path, monkeypatch, places).ume_session_id == PLACES.index(places[0]) + 1


@pytest.mark.parametrize("place", PLACES)
def test_each_place_goes_before_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    view = in_force(tmp_path, monkeypatch, (place,))
    assert view.ume_session_id == PLACES.index(place) + 1
    assert view.given("ume_session_id")


def test_nothing_given_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = in_force(tmp_path, monkeypatch, ())
    assert (view.ume_session_id, view.given("ume_session_id")) == (0, False)


def test_a_topic_goes_before_the_rest_of_its_file_and_that_before_its_context(tmp_path: Path) -> None:
    path = tmp_path / "um.xml"
    path.write_text(XML.format("ume_session_id", 1, 2, 3))
    defaults = Configuration(path, "app", None)
    assert resolve("source", {}, None, defaults.layers("source", "quotes")).ume_session_id == 3
    assert resolve("source", {}, None, defaults.layers("source", "trades")).ume_session_id == 1
    assert resolve("receiver", {}, None, defaults.layers("receiver", "quotes")).ume_session_id == 2


def test_a_list_of_a_higher_place_replaces_that_of_a_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "high").write_text("source ume_store_name a\nsource ume_store_name b\n")
    (tmp_path / "low").write_text("source ume_store_name c\n")
    monkeypatch.setenv("LBM_DEFAULT_CONFIG_FILE", str(tmp_path / "low"))
    layers = Configuration(tmp_path / "high", None, None).layers("source", "quotes")
    assert [str(store) for store in resolve("source", {}, None, layers).stores] == ["a", "b"]
    assert [str(store) for store in resolve("source", {"ume_store_name": "x"}, None, layers).stores] == ["x"]


def test_the_applications_name_goes_before_the_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "um.xml"
    path.write_text(XML.format("ume_session_id", 1, 2, 3))
    monkeypatch.setenv("LBM_XML_CONFIG_FILENAME", str(path))
    monkeypatch.setenv("LBM_XML_CONFIG_APPNAME", "none such")
    Configuration(None, "app", None)
    with pytest.raises(ConfigError, match="there is no application 'none such'"):
        Configuration(None, None, None)


def test_the_environments_application_is_not_that_of_a_file_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "um.xml"
    path.write_text(XML.format("ume_session_id", 1, 2, 3))
    monkeypatch.setenv("LBM_XML_CONFIG_APPNAME", "app")
    with pytest.raises(ConfigError, match="there is no application without a name"):
        Configuration(path, None, None)


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LBM_DEFAULT_CONFIG_FILE", "")
    monkeypatch.setenv("LBM_XML_CONFIG_FILENAME", "")
    assert list(Configuration(None, None, None).layers("source", "quotes")) == []


def test_the_environment_of_these_tests_names_no_file() -> None:
    assert not [name for name in os.environ if name.startswith("LBM_")]
