"""Names that are removed from /dev/shm under a system that lives: its owners say so, tools show it, and what
helps is told."""

from __future__ import annotations

import json
import logging
import shutil
from typing import TYPE_CHECKING, Any

from support.command_line import run, stat
from support.recorded_events import Events
from support.workers import until

import holdfast as hf
from holdfast.engine.log.info_file import log_range
from holdfast.engine.memory import nameless
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.memory.mapping import Mapping

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from process.conftest import ThreadStore

SHORT = 90.0
SESSION = 0x2A
SOURCE: dict[str, Any] = {"ume_store_name": ["a:0:0", "b:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}


def remove_names(domain: Domain) -> list[str]:
    """As ``rm /dev/shm/hf.*`` does, in this domain only."""
    names = [item.name for item in domain.objects() if item.kind in {"stream", "board", "bells"}]
    for name in names:
        (SHM_DIR / name).unlink()
    return names


def findings() -> list[dict[str, Any]]:
    code, out, _ = run("doctor", "--json")
    found = [each for each in json.loads(out) if each["check"] == "nameless"]
    assert code == 1 or not found
    return found


def texts(events: Events, word: str) -> list[str]:
    return [event.text for event in events.of("RegistrationError") if word in event.text]


def lost(source: hf.Source) -> str:
    try:
        source.send(b"x", timeout=0)
    except hf.QuorumLostError as error:
        return str(error)
    except hf.WouldBlockError:
        pass
    return ""


def test_a_source_whose_ring_was_removed_says_so_and_can_be_made_again(run_store: Callable[..., ThreadStore]) -> None:
    first = run_store("a", "disk")
    second = run_store("b", "disk")
    told, heard = Events(), Events()
    domain = Domain()
    with hf.Context(session_id=SESSION) as ctx, hf.Context(session_id=7) as other:
        source = ctx.source("quotes", options=SOURCE, on_event=told)
        source.wait_registered(SHORT)
        receiver = other.receiver("quotes", on_event=heard)
        source.send(b"before")
        source.wait_stable(timeout=SHORT)
        assert receiver.receive(SHORT) is not None
        removed = remove_names(domain)
        assert len(removed) == 3
        until("the source says so", lambda: texts(told, "was removed while its source lives"))
        until("the receiver says so", lambda: texts(heard, "was removed while its receiver lives"))
        source.send(b"after")  # traffic goes on through what is mapped
        source.wait_stable(timeout=SHORT)
        assert receiver.receive(SHORT) is not None
        until("the doorbells are missed", lambda: "the doorbells" in str(findings()))
        found = [each for each in findings() if "the doorbells" not in each["found"]]
        assert sorted(each["found"].split(" of topic")[0].rpartition(" a ")[2] for each in found) == [
            "receiver",
            "source",
        ]
        assert all("make it again" in each["remedy"] for each in found)
        seen = stat()
        assert [(row["state"], row["alive"]) for row in seen["sources"]] == [("nameless", True)]
        assert [row["alive"] for row in seen["receivers"]] == [True]
        first.stop()
        run_store("a", "disk")
        until("the store's refusal is told", lambda: texts(told, "is gone"))
        assert "close it and make it again" in texts(told, "is gone")[0]
        until("sends say what helps", lambda: "make it again" in lost(source))
        source.close()
        receiver.close()
        again = ctx.source("quotes", options=SOURCE)
        again.wait_registered(SHORT)
        number = again.send(b"new life")
        again.wait_stable(timeout=SHORT)  # also at b, whose line was on the board that is gone
        late = other.receiver("quotes")
        until("the new receiver has it", lambda: (message := late.receive(0.1)) and message.sequence_number == number)
        assert [each["found"].count("wakes it up to 50 ms late") for each in findings()] == [1], (
            "these contexts live on"
        )
        assert [(row["state"], row["alive"]) for row in stat()["sources"]] == [("live", True)]
    second.stop()
    run_store("b", "disk")
    with hf.Context(session_id=SESSION):
        until("who waits now has its doorbells", lambda: not findings())
    domain.close()


def log_of(store: ThreadStore) -> Path:
    return store.store.logs / store.store.state.sources[0].uuid.hex()


def test_a_store_whose_log_was_removed_begins_another_one_from_its_peers(
    run_store: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture
) -> None:
    """In shared memory, as RemoveIPC does it. What the store writes on is found by nobody, so it must not
    count."""
    caplog.set_level(logging.ERROR, "holdfast.store")
    run_store("b", "disk")
    store = run_store("a", "memory")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=SOURCE) as source:
        source.wait_registered(SHORT)
        for _ in range(9):
            source.send(b"before")
        source.wait_stable(timeout=SHORT)
        until("a has all", lambda: log_range(log_of(store)) == (0, 9))
        shutil.rmtree(log_of(store).resolve())
        until("the store notices", lambda: "was removed while its store lives" in caplog.text)
        until("its new log has all", lambda: log_of(store).exists() and log_range(log_of(store)) == (0, 9))
        source.wait_registered(SHORT)  # both stores are needed
        source.send(b"after")
        source.wait_stable(timeout=SHORT)
        until("its new log goes on", lambda: log_range(log_of(store)) == (0, 10))
    assert caplog.text.count("was removed while its store lives") == 1


def test_a_log_that_cannot_be_looked_at_is_not_taken_for_removed(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with (
        hf.Context(session_id=SESSION) as ctx,
        ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a:0:0"]}) as source,
    ):
        source.wait_registered(SHORT)
        looked: list[Path] = []

        def refuse(path: Path) -> tuple[int, int]:
            looked.append(path)
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr("holdfast.engine.store.log_places._inode", refuse)
        until("the store has looked twice", lambda: len(looked) > 1)
        number = source.send(b"on")
        source.wait_stable(timeout=SHORT)
        assert log_range(log_of(store)) == (number, number + 1)


def test_owners_that_do_not_look_are_caught(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: each believes that its names are there. Nobody is told, nor the doctor."""
    looks: list[str] = []

    def believes(mapping: Mapping) -> bool:
        looks.append(mapping.name)
        return True

    def is_there(name: str) -> bool:
        looks.append(name)
        return False

    run_store("a", "disk")
    run_store("b", "disk")
    told, heard = Events(), Events()
    domain = Domain()
    with hf.Context(session_id=SESSION) as ctx, hf.Context(session_id=7) as other:
        source = ctx.source("quotes", options=SOURCE, on_event=told)
        source.wait_registered(SHORT)
        receiver = other.receiver("quotes", on_event=heard)
        source.send(b"before")
        assert receiver.receive(SHORT) is not None
        with monkeypatch.context() as planted:
            planted.setattr(Mapping, "is_named", believes)
            planted.setattr(nameless, "missing", is_there)
            removed = remove_names(domain)
            until("all were looked at three times", lambda: all(looks.count(name) >= 3 for name in removed))
            assert not [*texts(told, "was removed"), *texts(heard, "was removed"), *findings()]
        until("the source says so", lambda: texts(told, "was removed while its source lives"))
    domain.close()
