"""``holdfast gc`` and what memory stores keep in shared memory: whose it is, whatever its store is called
now."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from support.three_stores import SHORT, SOURCE, send

import holdfast as hf
from holdfast.engine.log.info_file import StoreInfo, write_info
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.tools.gc import Item, sweep
from holdfast.engine.tools.orphan_messages import KnownDomain, Messages, Thing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from process.conftest import ThreadStore


def logs_swept(domain: str) -> list[Item]:
    place = Domain(domain, join=False)
    found = [item for item in sweep(place, everything=True) if item.kind == "logs"]
    place.close()
    return found


def sent(name: str) -> None:
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": [f"{name}:0:0"]}) as src:
        src.wait_registered(SHORT)
        send(src, 1)


def test_a_store_that_was_renamed_and_moved_keeps_its_messages(
    run_store: Callable[..., ThreadStore], own_domain: str, tmp_path: Path
) -> None:
    """It has left an info file under the name before, whose process is dead and whose directory is gone."""
    before = run_store("a", directory="first")
    sent("a")
    before.stop()
    (tmp_path / "first").rename(tmp_path / "second")
    store = run_store("z", directory="second")
    sent("z")
    assert logs_swept(own_domain) == []
    assert all((log / "head").exists() for log in store.store.logs.iterdir())


def test_messages_of_a_directory_that_is_gone_are_listed_while_somebody_lives(
    run_store: Callable[..., ThreadStore], own_domain: str, tmp_path: Path
) -> None:
    lost = run_store("a", directory="first")
    sent("a")
    uuid = lost.store.state.uuid.hex()
    lost.stop()
    shutil.rmtree(tmp_path / "first")
    run_store("a", directory="first")
    (found,) = logs_swept(own_domain)
    assert (found.path.endswith(f".logs.a.{uuid}"), found.remove) == (True, False)
    assert found.why.startswith("messages of memory store a in a directory that is gone")


def test_a_name_of_the_release_before_is_whose_links_lead_there(
    run_store: Callable[..., ThreadStore], own_domain: str, tmp_path: Path
) -> None:
    """A store was called a then, and is z now; another one was called a since, and is dead."""
    store = run_store("z", directory="first")
    sent("z")
    store.stop()
    (log,) = store.store.logs.iterdir()
    older = SHM_DIR / f"{store.store.domain.prefix}logs.a"
    shutil.move(log.readlink().parent, older)
    name = log.name
    log.unlink()
    log.symlink_to(older / name)
    again = run_store("z", directory="first")
    write_info(
        again.store.domain, StoreInfo("a", b"a" * 16, str(tmp_path / "a"), str(tmp_path / "a"), "memory", 2**22, 1, 1)
    )
    assert logs_swept(own_domain) == []
    assert (log / "head").exists()


def test_what_nobody_can_list_keeps_the_logs_of_the_release_before(
    run_store: Callable[..., ThreadStore], own_domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("z", directory="first")
    older = SHM_DIR / f"{store.store.domain.prefix}logs.a"
    older.mkdir()
    info = StoreInfo("a", b"a" * 16, str(tmp_path / "a"), str(tmp_path / "a"), "memory", 2**22, 1, 1)
    write_info(store.store.domain, info)

    def refuse(_: object) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.engine.tools.gc.links_in", refuse)
        assert logs_swept(own_domain) == []
    assert older.exists()
    write_info(store.store.domain, info)
    assert [item.path for item in logs_swept(own_domain)] == [str(older)], "no store has a log there"


def test_logs_of_a_domain_that_is_gone_stay_where_a_store_of_another_one_cannot_be_asked(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("z", directory="first")
    here = str(store.store.domain.path)
    logs = Thing("logs", "hf.000000000000.logs.a", b"", 0, 0)

    def kept() -> str:
        return Messages(lambda: [KnownDomain(here)], everything=True).kept(logs, (logs,), "/gone")

    assert kept() == ""

    def refuse(_: object) -> list[Path]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("holdfast.engine.tools.orphan_messages.links_in", refuse)
    assert kept() == f"a store of domain {here} may have a log there: Permission denied"
