"""Scenes that need a process of their own: little memory, little disk, another user. Run by test_limits.py as

    python -m support.cramped_scenes SCENE ARGUMENT...

A scene that returns has passed; what it asserts is in its traceback otherwise.
"""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from process.conftest import ThreadStore
from support.kept_messages import messages

import holdfast as hf
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.store.store import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T", bound=hf.Error)
SHORT = 90.0
MIB = 1 << 20
NOBODY = 65534


def until(true: Callable[[], object]) -> None:
    """Waits for a state."""
    deadline = time.monotonic() + SHORT
    while not true():
        assert time.monotonic() < deadline, "the time is over"
        time.sleep(0.005)


def refused(source: hf.Source, kind: type[T]) -> T:
    """What wait_registered raises."""
    with pytest.raises(kind) as error:
        source.wait_registered(SHORT)
    return error.value


def names(*kinds: str) -> list[str]:
    """Objects of this domain in shared memory, of these kinds."""
    domain = Domain(join=False)
    try:
        return [item.name for item in domain.objects() if item.kind in kinds]
    finally:
        domain.close()


def fill(path: Path, leave: int) -> None:
    """A file that takes all the space but ``leave`` bytes; a store that prepares a segment meanwhile only
    takes from it."""

    def taken() -> bool:
        room = os.statvfs(path.parent)
        try:
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - leave)
        except OSError:
            return False
        return True

    until(taken)


def shared_memory_is_full() -> None:
    """A ring that does not fit is a typed error, leaves nothing behind, and fits when there is room."""
    filler = SHM_DIR / "filler"
    fill(filler, 3 * MIB)
    told: list[object] = []
    with hf.Context() as ctx, ctx.source("big", options={"ring_size": 8 * MIB}, on_event=told.append) as src:
        error = refused(src, hf.SharedMemoryFullError)
        assert error.need >= 8 * MIB, error
        assert 0 < error.free <= 3 * MIB, error
        assert "--shm-size" in str(error)
        assert "\n" not in str(error)
        until(lambda: names("stream") == [])  # it goes on trying, and what a try makes is gone when it fails
        with pytest.raises(hf.RegistrationTimeout, match="shared memory is full"):
            src.wait_registered(0)
        assert refused(src, hf.SharedMemoryFullError) is not error, "tried again for who waits"
        with ctx.source("small", options={"ring_size": MIB}) as small:
            small.wait_registered(SHORT)
            small.send(b"there is room for this one")
        filler.unlink()
        src.wait_registered(SHORT)  # what the last attempt failed of is not raised again
        assert src.send(b"now") == 0
        said = [event for event in told if isinstance(event, hf.events.source.RegistrationError)]
        assert len(said) == 1, "told once"
        assert "--shm-size" in said[0].text
    assert names("stream", "board") == []


def memory_for_a_context_is_missing() -> None:
    """Not even the domain's bells fit."""
    filler = SHM_DIR / "filler"
    fill(filler, 4096)
    with pytest.raises(hf.SharedMemoryFullError) as full:
        hf.Context()
    assert full.value.need > 0, full.value
    assert names("bells", "board", "stream") == []
    filler.unlink()
    hf.Context().close()


def store_disk_is_full(directory: str, kind: str) -> None:
    """The source blocks, the store goes on answering, and everything resumes by itself."""
    filler = (SHM_DIR if kind == "memory" else Path(directory)) / "filler"
    store = ThreadStore(StoreConfig("a", Path(directory) / "store", type=kind))
    options = {"ume_store_name": ["a:0:0"], "ring_size": MIB, "ume_flight_size": 100_000}
    record = bytes(range(250)) * 4
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options)
        src.wait_registered(SHORT)
        assert src.send(record) == 0
        src.wait_stable(timeout=SHORT)
        fill(filler, MIB // 2)
        sent = 1
        blocked = None
        while blocked is None:
            assert sent < 20_000, "the disk is never full"
            try:
                src.send(record, timeout=1.0)
                sent += 1
            except hf.WouldBlockError as error:
                blocked = error
        assert src.next_sequence_number == sent, "a failed send consumes no number"
        stable = src.stable_sequence_number
        assert stable < sent - 1
        rcv = ctx.receiver("quotes")
        for _ in range(stable + 1):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            assert bytes(message) == record
            message.release()
        with ctx.source("others", options=options) as other:  # the store still answers, if only with a refusal
            refused_or_registered(other)
        filler.unlink()
        for _ in range(3000):
            assert src.send(record, timeout=SHORT) == sent
            sent += 1
        src.wait_stable(timeout=SHORT)
        for number in range(stable + 1, sent):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            assert (message.sequence_number, bytes(message)) == (number, record)
            message.release()
    store.stop()


def one_of_three_disks_is_full(small: str, large: str) -> None:
    """The store on it falls behind, is lapped, catches up, and meets a full disk again: it tells its source
    once, and has everything when there is room."""
    filler = Path(small) / "filler"
    stores = {
        name: ThreadStore(StoreConfig(name, Path(small if name == "c" else large) / name, type="disk"))
        for name in "abc"
    }
    told: list[object] = []
    options = {"ume_store_name": ["a:0:0", "b:0:0", "c:0:0"], "ring_size": MIB // 4, "ume_store_check_interval": 20}
    record = bytes(range(250)) * 4
    with hf.Context() as ctx, ctx.source("quotes", options=options, on_event=told.append) as src:
        src.wait_registered(SHORT)
        send(src, record, 100)
        until(lambda: state(src, "c") == ("active", 99))
        fill(filler, MIB // 2)
        send(src, record, 6000)
        until(lambda: state(src, "c")[0] == "full")
        until(lambda: full_stores(told))
        behind, halts = state(src, "c")[1], stores["c"].store.drainer._halts
        send(src, record, 6000)
        filler.unlink()
        fill(filler, 6 * MIB)  # less than it lacks
        until(lambda: state(src, "c")[1] > behind and any(halt.waits for halt in list(halts.values())))
        assert state(src, "c")[0] == "full", "it has read from the others, and met the full disk again"
        assert len(full_stores(told)) == 1, "it has not been well in between"
        event = full_stores(told)[0]
        assert (event.store, event.quorum_lost, event.registered, event.required) == ("c", False, 2, 2)
        assert str(Path(small)) in event.text
        src.wait_stable(timeout=SHORT)
        filler.unlink()
        until(lambda: state(src, "c") == ("active", src.next_sequence_number - 1))
        logs = [next((Path(store.store.logs)).iterdir()) for store in stores.values()]
    for store in stores.values():
        store.stop()
    assert messages(logs[2]) == [(number, record) for number in range(12_100)]


def send(source: hf.Source, record: bytes, count: int) -> None:
    for _ in range(count):
        source.send(record, timeout=SHORT)


def state(source: hf.Source, name: str) -> tuple[str, int]:
    """Of a store, and the highest number that is stable there."""
    found = source.stats().stores[name]
    return found.state, found.stable_sequence_number


def full_stores(told: list[object]) -> list[hf.events.source.StoreUnresponsive]:
    return [event for event in told if isinstance(event, hf.events.source.StoreUnresponsive) and event.reason == "full"]


def refused_or_registered(source: hf.Source) -> None:
    """Any typed answer will do."""
    try:
        source.wait_registered(SHORT)
    except hf.RegistrationTimeout:
        raise
    except hf.Error:
        return


def files_may_not_grow() -> None:
    """RLIMIT_FSIZE: the error names the system call's reason, nothing is left."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
    with hf.Context() as ctx, ctx.source("big", options={"ring_size": 2 * MIB}) as src:
        error = refused(src, hf.SystemCallError)
        assert error.code == "EFBIG", error
        until(lambda: names("stream") == [])
    assert names("stream", "board") == []


def directory_of_another_user() -> None:
    """The domain belongs to root, this process does not."""
    with hf.Context():
        pass
    os.setuid(NOBODY)
    with pytest.raises(hf.ForeignOwnerError, match="uid 0"):
        hf.Context()


def object_of_another_user(mode: str) -> None:
    """The domain is ours, but somebody else has made the object that we want."""
    base = Path(os.environ["HOLDFAST_DIR"])
    base.mkdir()
    os.chown(base, NOBODY, NOBODY)
    base.chmod(0o700)
    os.seteuid(NOBODY)
    domain = Domain(join=False)
    name = domain.bells_name
    domain.close()
    os.seteuid(0)
    path = SHM_DIR / name
    path.write_bytes(bytes(1 << 17))
    path.chmod(int(mode, 8))
    try:
        os.seteuid(NOBODY)
        with pytest.raises(hf.ForeignOwnerError):
            hf.Context()
    finally:
        os.seteuid(0)
        path.unlink()


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # the threads of a store that was not stopped would wait for ever
