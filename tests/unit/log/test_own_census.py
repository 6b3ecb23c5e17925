"""What a store writes before it first grants a source (engine/log/own_census.py)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from holdfast.engine.errors import ConfigError
from holdfast.engine.log import census, own_census
from holdfast.engine.log.census import Census, key_of, read
from holdfast.engine.log.info_file import StoreInfo, write_info
from holdfast.engine.log.own_census import OwnCensus
from holdfast.engine.log.state_file import SourceState, State

if TYPE_CHECKING:
    from holdfast.engine.memory.domain import Domain


class Scene:
    """A store's census, and the state and the info file that it has."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.path = domain.census_path("c")
        self.state = State("c", b"u" * 16, 1, 2)

    def start(self) -> OwnCensus:
        """A life that says who it is."""
        own = OwnCensus(self.domain, "c", self.state)
        write_info(self.domain, StoreInfo("c", self.state.uuid, "/c", "/c/logs", "disk", 1, 1, 1, census=own.life))
        return own

    def source(self, session: int) -> SourceState:
        found = SourceState(session.to_bytes(16, "big"), "quotes", 100 + session, session)
        self.state.sources.append(found)
        return found

    def wipe(self) -> None:
        self.state = State("c", os.urandom(16), 1, 2)

    def file(self) -> Census:
        return read(self.path)

    def has(self, *sessions: int) -> bool:
        """By its session, and by the RegID that it has there."""
        by_session = {key_of("quotes", session, 0) for session in sessions}
        return self.file().each() == by_session | {key_of("quotes", 0, 100 + session) for session in sessions}


@pytest.fixture
def scene(place: Domain) -> Scene:
    return Scene(place)


def no_room(*_: object, **__: object) -> int:
    raise OSError("no room")


def test_a_key_is_there_before_the_grant(scene: Scene) -> None:
    own = scene.start()
    assert scene.has()
    source = scene.source(1)
    own.note(source)
    assert scene.has(1)
    before = scene.path.stat()
    own.note(source)
    assert scene.path.stat() == before, "it is there"
    assert scene.file().life == own.life


def test_a_life_goes_on_with_what_was_granted_in_this_boot(scene: Scene) -> None:
    """Also where the store's files are others now."""
    scene.start().note(scene.source(1))
    scene.source(2)
    own = scene.start()
    assert scene.has(1, 2)
    assert scene.file().life == own.life
    scene.wipe()
    scene.start().note(scene.source(3))
    assert scene.has(1, 2, 3)
    assert scene.file().whole


def test_of_what_was_lost_with_files_and_census_nobody_knows_until_the_next_boot(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.start().note(scene.source(1))
    scene.path.unlink()
    scene.wipe()
    scene.start()
    assert "may have granted sources in this boot that nobody knows any more" in caplog.text
    for _ in range(2):
        assert not scene.file().whole
        scene.start()
    monkeypatch.setattr(census, "boot_id", lambda: b"another boot id.")
    monkeypatch.setattr(own_census, "boot_id", lambda: b"another boot id.")
    scene.start()
    assert scene.file().whole


def test_a_store_that_is_forgotten_by_name_and_comes_back_is_a_new_one(scene: Scene) -> None:
    scene.start()
    scene.path.unlink()
    scene.domain.info_path("c").unlink()
    scene.wipe()
    scene.start()
    assert scene.file().whole


def test_where_it_cannot_be_written_it_is_taken_away_and_written_again_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = scene.start()
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", no_room)
        own.note(scene.source(1))
        assert not scene.path.exists()
        own.note(scene.source(2))
        own.look()
        broken.setattr(own_census, "RETRY_NS", 0)
        own.look()
        assert not scene.path.exists()
    own.look()
    assert not scene.path.exists(), "it is not due"
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    own.look()
    assert scene.has(1, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "store c keeps no census now: no room; new sources wait for it while it is away",
        "store c keeps a census again",
    ]


def test_what_runs_out_of_memory_is_a_trouble(scene: Scene) -> None:
    own = scene.start()
    with mock.patch.object(own_census, "add", side_effect=MemoryError):
        own.note(scene.source(1))
    assert not scene.path.exists()


def test_one_that_cannot_be_read_at_a_start_is_not_taken_for_none(scene: Scene) -> None:
    """The process has no descriptors, for example."""
    scene.start().note(scene.source(1))
    with mock.patch.object(own_census, "read", no_room):
        scene.start()
    assert not scene.file().whole


def test_a_line_that_is_written_in_part_is_a_trouble(scene: Scene) -> None:
    own = scene.start()
    with mock.patch.object(os, "write", return_value=7):
        own.note(scene.source(1))
    assert not scene.path.exists()


def test_who_can_neither_write_nor_take_it_away_grants_nothing(scene: Scene) -> None:
    """However often it is asked. What is there stays known."""
    own = scene.start()
    known, source = scene.source(1), scene.source(2)
    own.note(known)
    with mock.patch.object(os, "write", no_room), mock.patch.object(os, "unlink", no_room):
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"can be neither written nor removed \(no room\)"):
                own.note(source)
        own.note(known)
        own.look()
    assert scene.has(1)
    own.note(source)
    assert not scene.path.exists()


def test_a_store_starts_where_it_can_write_none(scene: Scene) -> None:
    """The one that is there is of an earlier life."""
    scene.start().note(scene.source(1))
    with mock.patch.object(os, "write", no_room), mock.patch.object(os, "unlink", no_room):
        own = scene.start()
    assert scene.file().life != own.life
    own.note(scene.source(2))
    assert not scene.path.exists()


def test_where_somebody_has_taken_it_away_it_is_written_anew(scene: Scene) -> None:
    own = scene.start()
    own.note(scene.source(1))
    scene.path.unlink()
    own.note(scene.source(2))
    assert scene.has(1, 2)


def test_a_long_one_is_written_anew_when_few_of_its_sources_are_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier life has granted stays."""
    scene.start().note(scene.source(1))
    scene.wipe()
    monkeypatch.setattr(own_census, "RENEW_KEYS", 40)
    own = scene.start()
    for session in range(2, 30):
        own.note(scene.source(session))
    assert scene.has(*range(1, 30)), "all of its sources are kept"
    del scene.state.sources[:26]
    for session in range(30, 60):
        own.note(scene.source(session))
        del scene.state.sources[:-2]
    assert len(scene.file().each()) < 50
    assert scene.file().lists(key_of("quotes", 1, 0))
    assert scene.file().lists(key_of("quotes", 59, 0))


def test_of_too_many_sources_none_is_kept_and_they_are_granted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_census, "KEYS_MAX", 6)
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    own = scene.start()
    for session in (1, 2, 3, 4, 5):
        own.note(scene.source(session))
    assert not scene.path.exists()
    own.look()
    assert not scene.path.exists()
    del scene.state.sources[2:]
    own.look()
    assert scene.has(1, 2)
