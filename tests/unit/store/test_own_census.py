"""What a store writes before it first grants a source (engine/store/own_census.py)."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from support.workers import until

from holdfast.engine.errors import ConfigError, CorruptionError, LimitReachedError
from holdfast.engine.log import census
from holdfast.engine.log.census import Census, CensusFile, key_of
from holdfast.engine.log.state_file import SourceState, State
from holdfast.engine.native import threads
from holdfast.engine.rules.census import TROUBLE
from holdfast.engine.store import own_census
from holdfast.engine.store.own_census import OwnCensus

if TYPE_CHECKING:
    from collections.abc import Callable


class Scene:
    """A store's census, as its state and its info file have it."""

    def __init__(self, domain: Path) -> None:
        self.domain = domain
        self.state = State("c", b"u" * 16, 1, 2)
        self.told: list[object] = []

    def start(self, name: str = "c", *, keeps: bool = True) -> OwnCensus:
        own = OwnCensus(self.domain, name, self.state, lambda: self.told.append(own.mark), keeps=keeps)
        own.begin()
        return own

    def source(self, session: int) -> SourceState:
        found = SourceState(session.to_bytes(16, "big"), "quotes", 100 + session, session)
        self.state.sources.append(found)
        return found

    def file(self, name: str = "c") -> Census:
        found = CensusFile(self.domain, name).load()
        assert found is not None
        return found

    def spoilt(self, name: str = "c") -> bool:
        return Path(os.fsdecode(CensusFile(self.domain, name).path)).read_bytes()[:1] == b"-"

    def has(self, *sessions: int, name: str = "c") -> bool:
        return self.file(name).keys == {key_of("quotes", session, 0) for session in sessions}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    (tmp_path / "domain").mkdir()
    monkeypatch.setattr(census, "register_directory", lambda _: tmp_path / ".register")
    return Scene(tmp_path / "domain")


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, "no room")


def test_it_is_on_disk_before_the_grant_and_told(scene: Scene) -> None:
    own = scene.start()
    assert scene.has()
    source = scene.source(1)
    assert not own.lists(source)
    assert own.note(source)
    assert scene.has(1)
    assert own.lists(source)
    assert scene.told == [own.mark] == [scene.file().mark]
    assert scene.state.census == ("c", *own.mark)
    assert not own.note(source), "it is there"
    assert own.directory == scene.file().directory


def test_a_store_that_starts_goes_on_with_its_census(scene: Scene) -> None:
    scene.start().note(scene.source(1))
    before = scene.file().mark
    scene.source(2)
    scene.start()
    assert scene.has(1, 2)
    assert scene.file().mark == (before.id, before.lines + 1)


def test_a_store_whose_disk_was_lost_knows_what_it_has_granted(scene: Scene) -> None:
    scene.start().note(scene.source(1))
    before = scene.file().mark
    scene.state = State("c", b"v" * 16, 1, 2)
    own = scene.start()
    assert own.mark == before
    assert own.lists(scene.source(1))
    assert not own.lists(scene.source(2))


def test_a_census_that_is_not_the_one_of_its_state_is_begun_anew(scene: Scene) -> None:
    own = scene.start()
    own.note(scene.source(1))
    before = scene.file()
    old = (path := next(CensusFile(scene.domain, "c").directory.iterdir())).read_bytes()
    own.note(scene.source(2))
    path.write_bytes(old)  # set back, in the same file
    assert scene.file() == before
    scene.start()
    assert scene.has(1, 2)
    assert scene.file().mark.id != before.mark.id
    path.unlink()
    scene.start()
    assert scene.has(1, 2)


def test_what_its_directory_was_called_before_is_spoilt(scene: Scene) -> None:
    scene.start().note(scene.source(1))
    scene.start("d")
    assert scene.has(1, name="d")
    with pytest.raises(CorruptionError):
        CensusFile(scene.domain, "c").load()
    scene.start("c")
    assert scene.has(1)


def test_where_somebody_has_taken_it_away_another_one_is_begun_at_once(scene: Scene) -> None:
    own = scene.start()
    own.note(scene.source(1))
    before = own.mark
    next(CensusFile(scene.domain, "c").directory.iterdir()).unlink()
    own.note(scene.source(2))
    assert scene.has(1, 2)
    assert own.mark == scene.file().mark
    assert own.mark.id != before.id


def test_where_it_cannot_be_written_the_trouble_is_told_and_another_one_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = scene.start()
    before = own.mark
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", no_room)
        assert own.note(scene.source(1))
    assert own.mark == TROUBLE
    assert scene.told == [TROUBLE]
    assert scene.state.census == ("c", *TROUBLE)
    with pytest.raises(CorruptionError):
        CensusFile(scene.domain, "c").load()
    assert not own.note(scene.source(2)), "nothing is tried for each source"
    assert not own.look(), "it is not due"
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    until("another one is begun", own.look)
    assert scene.has(1, 2)
    assert own.mark == scene.file().mark != before
    assert scene.state.census == ("c", *own.mark)


def test_a_store_that_was_killed_in_its_trouble_begins_another_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = scene.start()
    before = own.mark
    monkeypatch.setattr(CensusFile, "spoil", no_room)
    with mock.patch.object(os, "write", no_room), pytest.raises(ConfigError, match="its file does not say so"):
        own.note(scene.source(1))
    assert scene.file().mark == before, "it looks whole"
    scene.start()
    assert scene.has(1)
    assert scene.file().mark.id != before.id


def test_who_can_neither_write_nor_tell_grants_nothing(scene: Scene) -> None:
    """However often it is asked."""
    own = scene.start()
    source = scene.source(1)
    with mock.patch.object(own, "_tell", no_room), mock.patch.object(os, "write", no_room):
        for _ in range(2):
            with pytest.raises(OSError, match="no room"):
                own.note(source)
        assert not own.look()
    assert not own.look()
    assert scene.told == [TROUBLE], "told when that can be written"
    assert not own.note(source)


def test_where_the_file_could_not_be_spoilt_no_other_source_is_granted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that outlives a reboot says that it is not in the census. Who was granted before, is."""
    own = scene.start()
    old, begun = scene.source(1), scene.source(2)
    begun.incarnation = 3
    own.note(old)
    with monkeypatch.context() as broken:
        broken.setattr(census, "sync_data", no_room)
        for _ in range(2):
            with pytest.raises(ConfigError, match="its file does not say so"):
                own.note(scene.source(3))
    assert not own.note(old)
    assert not own.note(begun)
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    until("another one is begun", own.look)
    assert scene.has(1, 2, 3)


def test_where_no_thread_can_be_started_it_is_a_trouble(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, however the use of a limit changes. In the end another census is begun."""
    own = scene.start()
    used = itertools.count()

    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    def limited(what: str) -> LimitReachedError:
        assert what == "thread holdfast-census"
        return LimitReachedError(f"no thread: {next(used)} of 7", 11, "EAGAIN", limit="RLIMIT_NPROC", value=7, used=7)

    with monkeypatch.context() as broken:
        broken.setattr(threading.Thread, "start", none)
        broken.setattr(threads, "no_thread", limited)
        with pytest.raises(ConfigError, match="no thread: 0 of 7"):
            own.note(scene.source(1))
        monkeypatch.setattr(own_census, "RETRY_NS", 0)
        assert not own.look()
        assert not own.look()
    assert next(used) == 3, "it was tried each time"
    assert [record.getMessage() for record in caplog.records] == [
        "store c: no thread: 0 of 7; nothing is proved of it while it is away"
    ]
    assert own.mark == TROUBLE
    until("another one is begun", own.look)


def test_a_start_that_failed_is_done_again_as_a_whole(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.start().note(scene.source(1))
    with mock.patch.object(own_census, "spoil", no_room):
        own = scene.start("d")
    assert own.mark == TROUBLE
    assert scene.has(1), "the earlier one is not spoilt"
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    until("another one is begun", own.look)
    assert scene.has(1, name="d")
    with pytest.raises(CorruptionError):
        CensusFile(scene.domain, "c").load()


def test_of_a_store_that_has_moved_to_another_domain_the_earlier_one_is_spoilt(scene: Scene) -> None:
    scene.start().note(scene.source(1))
    earlier, scene.domain = scene.domain, scene.domain.parent / "other"
    scene.domain.mkdir()
    scene.start()
    assert scene.has(1)
    with pytest.raises(CorruptionError):
        CensusFile(earlier, "c").load()


def test_that_it_was_gone_once_is_kept(scene: Scene) -> None:
    scene.start().note(scene.source(1))
    assert not scene.state.census_lost
    next(CensusFile(scene.domain, "c").directory.iterdir()).unlink()
    scene.start()
    scene.start()
    assert scene.state.census_lost


def test_where_somebody_else_writes_it_it_is_not_believed_again_in_this_life(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of that name in another container."""
    own = scene.start()
    CensusFile(scene.domain, "c").renew(())
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    assert own.note(scene.source(1))
    assert not own.look()
    assert own._work is None
    assert own.mark == TROUBLE == scene.told[0]
    with pytest.raises(CorruptionError):
        CensusFile(scene.domain, "c").load()


def test_a_store_that_keeps_its_first_one_knows_nothing_of_the_stores_beside_it(scene: Scene) -> None:
    """They may have been granted sources without one. Nor is the file that is there one of this state."""
    before = CensusFile(scene.domain, "c").renew(())
    source = scene.source(1)
    source.peers, source.directories, source.others = {"a": 1, "c": 1}, {"b": "/b"}, {"e": 9}
    own = scene.start()
    assert {name: each[:2] for name, each in scene.state.censuses.items()} == dict.fromkeys("abe", TROUBLE)
    assert own.mark.id != before.mark.id
    assert scene.has(1)


def test_a_disk_that_hangs_holds_a_grant_up_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    own = scene.start()
    before = own.mark
    goes_on, append = threading.Event(), CensusFile.append

    def hangs(*given: object) -> Census:
        assert goes_on.wait(90)
        return append(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(CensusFile, "append", hangs)
    monkeypatch.setattr(own_census, "PATIENCE_S", 0.01)
    source = scene.source(1)
    with pytest.raises(ConfigError, match="does not answer"):
        own.note(source)
    assert own.mark == TROUBLE
    monkeypatch.setattr(own_census, "PATIENCE_S", 90)
    with pytest.raises(ConfigError, match="does not answer"):
        own.note(source)
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    assert not own.look(), "the disk still hangs"
    goes_on.set()
    until("another one is begun", own.look)
    assert scene.has(1)
    assert own.mark.id != before.id, "what was waited for in vain counts no more"


def test_nothing_is_granted_while_another_one_is_begun(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    own = scene.start()
    with mock.patch.object(os, "write", no_room):
        own.note(scene.source(1))
    renew: Callable[..., Census] = CensusFile.renew
    begun = threading.Event()

    def waits(*given: object) -> Census:
        made = renew(*given)
        begun.set()
        return made

    monkeypatch.setattr(CensusFile, "renew", waits)
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    assert not own.look()
    assert begun.wait(90)
    source = scene.source(2)
    with pytest.raises(ConfigError):
        own.note(source)
    until("another one is begun", own.look)
    assert own.note(source)
    assert scene.has(1, 2)


def test_nor_where_only_an_earlier_census_has_the_source(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was deregistered: what is begun now has it not."""
    own = scene.start()
    again, kept = scene.source(1), scene.source(2)
    own.note(again)
    own.note(kept)
    scene.state.sources.remove(again)
    with mock.patch.object(os, "write", no_room):
        own.note(scene.source(3))
    assert not own.note(again), "the file says that it proves nothing"
    with monkeypatch.context() as hung:
        hung.setattr(own_census, "RETRY_NS", 0)
        hung.setattr(own_census, "in_background", lambda *_: futures.Future())
        assert not own.look()
    with pytest.raises(ConfigError):
        own.note(again)
    assert not own.note(kept)


def test_of_too_many_sources_none_is_kept_and_they_are_granted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store begins another one when it has few enough of them."""
    monkeypatch.setattr(census, "KEYS_MAX", 3)
    monkeypatch.setattr(own_census, "BEGUN_MAX", 2)
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    own = scene.start()
    for session in (1, 2, 3, 4, 5):
        own.note(scene.source(session))
    assert own.mark == TROUBLE == scene.told[-1]
    with pytest.raises(CorruptionError):
        CensusFile(scene.domain, "c").load()
    assert not own.look()
    assert own._work is None
    del scene.state.sources[2:]
    until("another one is begun", own.look)
    assert scene.has(1, 2)


def test_where_nothing_can_prove_anything_sources_are_granted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system does not say when a file was made: nobody believes what lies there, or does not."""
    monkeypatch.setattr(census, "identity", mock.Mock(side_effect=CorruptionError("no births")))
    own = scene.start()
    assert not own.note(scene.source(1))
    assert own.mark == TROUBLE == scene.told[-1]


def test_where_the_names_of_files_are_unsure_nothing_is_granted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often one that may not be there after a power cut is spoilt."""
    with mock.patch.object(census, "sync_directory", no_room):
        own = scene.start()
    monkeypatch.setattr(own_census, "RETRY_NS", 0)
    with mock.patch.object(os, "write", no_room):
        assert not own.look()
        until("it is tried again", lambda: not own.look() and own._work is None)
    assert scene.spoilt()
    with pytest.raises(ConfigError, match="its file does not say so"):
        own.note(scene.source(1))
    until("another one is begun", own.look)
    assert scene.has(1)


def test_a_long_one_is_begun_anew_when_few_of_its_sources_are_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_census, "RENEW_BYTES", 500)
    own = scene.start()
    before = own.mark
    for session in range(1, 20):
        own.note(scene.source(session))
    assert own.mark.id == before.id, "all of its sources are kept"
    assert scene.file().size > 500
    del scene.state.sources[:18]
    for session in range(20, 50):
        own.note(scene.source(session))
        del scene.state.sources[:-1]
    assert own.mark.id != before.id
    assert len(scene.file().keys) < 30
    assert own.lists(scene.state.sources[-1])


def test_where_it_is_switched_off_nothing_is_written_and_what_was_kept_is_spoilt(scene: Scene) -> None:
    never = scene.start(keeps=False)
    assert not never.note(scene.source(1))
    assert not never.look()
    assert never.told is None
    assert scene.state.census is None
    assert not CensusFile(scene.domain, "c").directory.exists()
    scene.start()
    with mock.patch.object(own_census, "spoil", no_room), mock.patch.object(CensusFile, "spoil", no_room):
        assert scene.start(keeps=False).told == TROUBLE
    assert not scene.spoilt(), "the next life tries again"
    ended = scene.start(keeps=False)
    assert ended.told == TROUBLE
    assert scene.state.census == ("c", *TROUBLE)
    with pytest.raises(CorruptionError):
        CensusFile(scene.domain, "c").load()
    before = scene.start()
    assert scene.has(1)
    assert before.mark == scene.file().mark, "switched on again, it is another one"
