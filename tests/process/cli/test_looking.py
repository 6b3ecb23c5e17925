"""`holdfast events` and `holdfast doctor`, as programs and beside them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support import receiving
from support.command_line import COMMAND, run, until
from support.receiving import SHORT, options, send, source, take, until_no_ring
from support.three_stores import everywhere
from support.workers import stand_still

import holdfast as hf
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.tools import doctor, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore
    from support.command_line import Program


def line(program: Program, **wanted: Any) -> dict[str, Any]:
    """The next event with these fields."""
    while True:
        event = json.loads(program.line())
        if wanted.items() <= event.items():
            assert isinstance(event, dict)
            return event


def test_a_store_that_came_back_after_its_source_stands_where_its_log_is(run_store: Callable[..., ThreadStore]) -> None:
    """It has joined no board: the line there is of its life before."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx, ctx.source("quotes", options=options(*"abc")) as src:
        everywhere(src)
        send(src, 5)
        stores["b"].stop()
        send(src, 5)
        src.close()
        until_no_ring(ctx.domain)
        run_store("b", "disk")

        def where() -> list[tuple[str, str, int | None]]:
            (row,) = snapshot.take(ctx.domain).sources
            return [(store.name, store.state, store.stable) for store in row.stores]

        receiving.until("it has what the others have", lambda: where() == [(name, "active", 9) for name in "abc"])


def test_events_follow_what_comes_goes_and_moves(
    run_store: Callable[..., ThreadStore], start: Callable[..., Program]
) -> None:
    store = run_store()
    following = start("events", "-f", "--json", "--interval", "0.05")
    line(following, event="store", state="running", name="a", pid=os.getpid())
    with hf.Context(session_id=5) as ctx:
        src = source(ctx)
        line(following, event="source", state="live", topic="quotes", session_id=5, number=-1)
        send(src, 3)
        line(following, event="stability", topic="quotes", number=2, behind=0)
        with hf.Context(session_id=7, name="reader") as receiving:
            take(receiving.receiver("quotes"), 3)
            line(following, event="receiver", state="live", name="reader", session_id=7)
            send(src, 1)
            line(following, event="lag", session_id=7, number=2, behind=1)
        line(following, event="receiver", state="gone", session_id=7)
    line(following, event="source", state="stored")
    store.stop()
    line(following, event="copy", state="down", name="a")
    following.signal(signal.SIGINT)
    assert following.end()[0] == 130


def test_events_without_follow_tell_what_is_there_in_words(run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    with hf.Context(session_id=5) as ctx:
        source(ctx, 3)
        code, out, err = run("events")
    assert (code, err) == (0, "")
    lines = [said.split(" ", 1)[1] for said in out.splitlines()]
    assert lines == [
        f"store a running (pid {os.getpid()})",
        f"source 'quotes' session 0x5 live (pid {os.getpid()}), sent 2, 0 unstable",
        "store a active for source 'quotes' session 0x5, holds 2, 0 behind",
    ]


def test_a_store_in_reserve_is_idle_and_counts_for_nothing(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    run_store("b")
    with hf.Context() as ctx:
        source(ctx, 3, ume_store_name=["a", "b"], ume_store_group=["0:1"], ume_registration_interval=60_000)
        (row,) = snapshot.take(ctx.domain).sources
        assert [(at.name, at.state, at.stable) for at in row.stores] == [("a", "active", 2), ("b", "idle", None)]
        assert [at.lag for at in row.stores] == [0, None], "nothing is known of a log of b's"
        assert (row.stable, row.unstable) == (2, 0)


# The doctor -------------------------------------------------------------------------------------------------


def found(*, ok: bool | None = None, check: str = "") -> list[doctor.Finding]:
    """What the doctor finds in this test's domain."""
    domain = Domain(join=False)
    try:
        findings = doctor.examine(domain)
    finally:
        domain.close()
    return [each for each in findings if ok in {None, each.ok} and check in {"", each.check}]


def test_a_good_machine_with_a_running_store_is_well(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk")
    code, out, err = run("doctor", "--json")
    findings = json.loads(out)
    wrong = [each["check"] for each in findings if not each["ok"]]
    left = len(wrong)  # what others have left in shared memory is told, and is no fault of this domain
    assert set(wrong) <= {"orphans"}
    assert (code, err) == (int(left > 0), "")
    assert {each["check"] for each in findings} - {"orphans"} == {
        "shm", "limits", "removeipc", "membarrier", "version", "directory", "stale",
    }  # fmt: skip
    code, out, _ = run("doctor")
    assert (code, out.splitlines()[-1]) == (
        (1, f"{left} of {len(findings)} need attention") if left else (0, "all is well")
    )


def test_every_finding_that_is_not_good_has_a_remedy_and_the_exit_code_is_1(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    run_store("a", "disk").stop()
    (tmp_path / "store-a").rename(tmp_path / "elsewhere")
    code, out, _ = run("doctor")
    assert code == 1
    assert "store a: " in out
    assert "does not exist\n      remedy: mount or restore it" in out
    assert all(each.remedy for each in found(ok=False))


def test_what_dead_processes_left_is_found(start: Callable[..., Program], tmp_path: Path) -> None:
    store = start("store", "run", "--name", "a", "--dir", str(tmp_path / "a"))
    store.line("stderr")
    sender = start("send", "quotes", stdin=subprocess.PIPE)
    assert sender.process.stdin is not None
    sender.process.stdin.write(b"1\n")
    sender.process.stdin.flush()
    until(lambda seen: [row["stable"] for row in seen["sources"]] == [0])
    assert found(check="stale", ok=False) == []
    for program in (store, sender):  # the store first: it would take a dead source's ring away
        program.process.kill()
        program.process.wait()
    (stale,) = found(check="stale", ok=False)
    assert stale.remedy == "holdfast gc"
    (dead,) = found(check="store", ok=False)
    assert f"store a was killed (pid {store.process.pid})" in dead.found
    assert run("gc")[0] == 0
    assert found(check="stale", ok=False) == []


def test_what_a_stopped_memory_store_keeps_needs_no_attention(tmp_path: Path) -> None:
    with hf.spawn_store(hf.StoreConfig("a", tmp_path / "a", type="memory")), hf.Context() as context:
        it = context.source("quotes", options={"ume_store_name": ["a:7"]})
        it.wait_registered(SHORT)
        it.send(b"1")
        it.wait_stable(timeout=SHORT)
    kept = [each for each in found(check="stale") if "messages of memory store a" in each.found]
    assert [each.ok for each in kept] == [True], "what doctor complains of is removed by those who believe it"


@pytest.mark.parametrize(("kind", "again"), [("memory", " --type memory"), ("disk", "")])
def test_a_killed_store_is_to_be_started_as_what_it_was(
    start: Callable[..., Program], tmp_path: Path, kind: str, again: str
) -> None:
    store = start("store", "run", "--name", "a", "--dir", str(tmp_path / "a"), "--type", kind)
    store.line("stderr")
    store.process.kill()
    store.process.wait()
    (dead,) = found(check="store", ok=False)
    assert dead.remedy.endswith(f"holdfast store run --name a --dir {tmp_path / 'a'}{again}")


@pytest.mark.parametrize("kind", ["tmpfs", "nfs4", "fuse.sshfs"])
def test_a_disk_store_on_memory_or_on_a_network_is_found(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    run_store("a", "disk")
    assert found(check="directory", ok=False) == []
    monkeypatch.setattr(doctor, "_mounts", lambda: f"1 0 0:1 / / rw - {kind} x rw\n")
    wrong = found(check="directory", ok=False)
    assert "store a" in wrong[-1].found
    assert f"on {kind} (/)" in wrong[-1].found


def test_an_object_of_another_version_is_found(run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    with hf.Context() as ctx:
        source(ctx, 1)
        assert found(check="version", ok=False) == []
        board = SHM_DIR / next(item.name for item in ctx.domain.objects() if item.kind == "board")
        with board.open("r+b") as file:
            file.seek(12)
            hash_of_structs = file.read(4)
            file.seek(12)
            file.write(bytes([hash_of_structs[0] ^ 1]))
        (other,) = found(check="version", ok=False)
        assert str(board) in other.found


def test_a_core_of_another_version_than_the_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = doctor._declared()
    assert declared["HF_LAYOUT_VERSION"] is not None
    assert "hf_stream_end" in declared
    monkeypatch.setattr(doctor, "_declared", lambda: {**declared, "hf_of_tomorrow": None})
    assert "lacks hf_of_tomorrow" in found(check="version", ok=False)[0].found
    monkeypatch.setattr(doctor, "_declared", lambda: {**declared, "HF_LAYOUT_VERSION": 99})
    assert "has another HF_LAYOUT_VERSION" in found(check="version", ok=False)[0].found


def test_the_limits_of_each_store_are_looked_at_and_not_those_of_the_doctor(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    store = start("store", "run", "--name", "a", "--dir", str(tmp_path / "a"))
    store.line("stderr")
    limited = subprocess.run(
        ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *COMMAND, "doctor", "--json"],
        capture_output=True,
        timeout=SHORT,
        check=False,
    )
    assert limited.stderr == b""
    said = [each["found"] for each in json.loads(limited.stdout) if each["check"] == "limits"]
    assert len(said) == 2
    assert all(f" of process {store.process.pid} is " in each for each in said)
    stand_still(store.process.pid)  # it looks around: then it has some more
    used = len(os.listdir(f"/proc/{store.process.pid}/fd"))
    most = used * 10 // 8
    _, hard = resource.prlimit(store.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(store.process.pid, resource.RLIMIT_NOFILE, (most, hard))
    (near,) = found(check="limits", ok=False)
    assert f"store a: RLIMIT_NOFILE of process {store.process.pid} is {most}, {used} are used" in near.found
    assert "ulimit -n" in near.remedy
    resource.prlimit(store.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert found(check="limits", ok=False) == []
    store.signal(signal.SIGCONT)


def test_a_store_that_may_not_write_large_files_is_found(run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, hard))
    try:
        (small,) = found(check="limits", ok=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"store a: RLIMIT_FSIZE of process {os.getpid()} is {1 << 40:,} bytes" in small.found
    assert "ulimit -f" in small.remedy


def test_without_a_store_there_are_no_limits_to_look_at() -> None:
    (only,) = found(check="limits")
    assert only.ok
