"""Another user of the host has the names of a domain, and everything that a user may do in /dev/shm and /tmp.

The other user is a uid that nobody has, taken by setuid in a child (other_user.py): the kernel asks for the
uid and not for an entry in /etc/passwd, so a user made by useradd could do nothing more, and would have to be
removed again. Root runs the tests; it is also the harder victim, for root may open and map anything.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.leftovers import remove_objects
from support.other_user import STRANGER
from support.stranger import stranger

import holdfast as hf
from holdfast.daemon.config import LogConfig
from holdfast.daemon.log_file import DaemonLog, local_time
from holdfast.daemon.process import PidFile
from holdfast.engine.channel.channel import CAPACITY_MIN, ChannelReader, ChannelWriter
from holdfast.engine.channel.names import channel_uuid
from holdfast.engine.log.info_file import log_range, log_view
from holdfast.engine.log.store_directory import StoreDirectory
from holdfast.engine.memory import discovery as directory_module
from holdfast.engine.memory import mapping
from holdfast.engine.memory.discovery import Discovery
from holdfast.engine.memory.domain import SHM_DIR, Domain, open_object
from holdfast.engine.memory.mapping import attach_board, attach_stream
from holdfast.engine.native import kernels
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.native.private_directory import open_log, private_directory
from holdfast.engine.store import log_places
from holdfast.engine.tools import gc as sweep_module
from holdfast.engine.tools import snapshot
from holdfast.engine.tools.doctor import examine
from holdfast.engine.tools.gc import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore


TESTS = Path(__file__).resolve().parents[2]
SHORT = 60.0
OPTIONS = {"ring_size": 1 << 16}
UUID = b"uuid of a source"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def domain_here() -> Iterator[Domain]:
    made = Domain()
    yield made
    made.close()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``holdfast`` in a process of its own: one that hangs fails here."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], capture_output=True, text=True, check=False, timeout=SHORT
    )


# Forged objects ---------------------------------------------------------------------------------------------


@pytest.fixture
def forged(own_domain: str, domain_here: Domain) -> Iterator[list[str]]:
    """A whole source of another user's, with twenty messages, under names of this domain. The names."""
    elsewhere = f"{own_domain}x"
    with hf.Context(domain=elsewhere) as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        for _ in range(20):
            src.send(b"forged")
        theirs = Domain(elsewhere, join=False)
        objects = [item for item in theirs.objects() if item.kind in {"stream", "board"}]
        theirs.close()
        names = [domain_here.prefix + item.name.removeprefix(theirs.prefix) for item in objects]
        for item in objects:  # the source is ours by its process, and the stranger's by every file
            os.chown(SHM_DIR / item.name, STRANGER, STRANGER)
        pairs = [SHM_DIR / name for item, name in zip(objects, names, strict=True) for name in (item.name, name)]
        try:
            stranger("link", *pairs)
            yield names
        finally:
            for item in objects:
                os.chown(SHM_DIR / item.name, 0, 0)
            remove_objects(Path(os.environ["HOLDFAST_DIR"]) / elsewhere)
            for name in names:
                (SHM_DIR / name).unlink(missing_ok=True)


def test_another_users_ring_is_no_source(forged: list[str], domain_here: Domain) -> None:
    with hf.Context() as ctx, ctx.receiver("quotes") as rcv:
        with ctx.source("quotes", options=OPTIONS) as src:
            src.wait_registered(SHORT)
            src.send(b"true")
            got: list[bytes] = []
            while got[-1:] != [b"true"]:
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                got.append(bytes(message))
                message.release()
        assert got == [b"true"]
    assert len(forged) == 2
    assert snapshot.take(domain_here).sources == []


def test_another_users_objects_are_not_opened(forged: list[str], domain_here: Domain) -> None:
    """What is never mapped cannot end us with SIGBUS when its owner truncates it."""
    for name in forged:
        with pytest.raises(hf.ForeignOwnerError, match=f"uid {STRANGER}"):
            open_object(name)
    (stream,) = [name for name in forged if ".s" in name]
    uuid = bytes.fromhex(stream.removeprefix(domain_here.prefix)[:32])
    with pytest.raises(hf.ForeignOwnerError):
        attach_stream(stream)
    with pytest.raises(hf.ForeignOwnerError):
        attach_board(domain_here, uuid)


def test_an_object_with_two_names_is_refused(domain_here: Domain) -> None:
    """Where fs.protected_hardlinks is 0, another user may give a ring of ours a second name, in another
    domain of ours."""
    with hf.Context() as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        (stream,) = [item.name for item in domain_here.objects() if item.kind == "stream"]
        second = domain_here.stream_name(UUID, 1)
        os.link(SHM_DIR / stream, SHM_DIR / second)
        with pytest.raises(hf.ForeignOwnerError, match="2 names"):
            attach_stream(second)
        (SHM_DIR / second).unlink()
        attach_stream(stream).close()


@pytest.mark.parametrize("deed", ["chown", "chmod", "link", "fifo"])
def test_the_core_maps_only_what_is_ours_alone(domain_here: Domain, deed: str) -> None:
    """Whoever hands it the descriptor: a file of our own uid, mode 0600, with one name."""
    with hf.Context() as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        (stream,) = [item.name for item in domain_here.objects() if item.kind == "stream"]
        path, second = SHM_DIR / stream, SHM_DIR / domain_here.stream_name(UUID, 1)
        if deed == "chown":
            os.chown(path, STRANGER, STRANGER)
        elif deed == "chmod":
            path.chmod(0o640)
        elif deed == "link":
            os.link(path, second)
        else:
            os.mkfifo(second, 0o600)
        fd = os.open(second if deed == "fifo" else path, os.O_RDONLY | os.O_NONBLOCK)
        made = ffi.new("struct hf_map **")
        try:
            assert lib.hf_map_attach(fd, lib.HF_KIND_STREAM, 0, 0, made) == lib.HF_FOREIGN
        finally:
            os.close(fd)
            lib.hf_map_detach(made[0])
            os.chown(path, 0, 0)
            path.chmod(0o600)
            second.unlink(missing_ok=True)


def test_who_reads_on_after_the_name_is_gone_is_let(domain_here: Domain) -> None:
    """An object that was unlinked between its opening and its mapping has no name, and is ours."""
    with hf.Context() as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        (stream,) = [item.name for item in domain_here.objects() if item.kind == "stream"]
        opened = open_object(stream)
        (SHM_DIR / stream).unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mapping, "open_object", lambda *_, **__: opened)
            attach_stream(stream).close()


# Names that block, and names in large numbers ---------------------------------------------------------------


def odd_names(domain: Domain) -> list[Path]:
    uuids = [bytes([number]) * 16 for number in range(6)]
    names = [domain.stream_name(uuid, 1) for uuid in uuids] + [domain.board_name(uuid) for uuid in uuids]
    names += [domain.channel_name(uuid, 1) for uuid in uuids] + [domain.memory_logs("s", uuid).name for uuid in uuids]
    return [SHM_DIR / name for name in names]


def test_nothing_that_another_user_puts_there_blocks_anybody(domain_here: Domain) -> None:
    """FIFOs, directories, sockets, links, files, with names of the domain's: who opened one as it comes would
    wait for ever."""
    stranger("oddities", *odd_names(domain_here))
    for arguments in (("stat", "--json"), ("gc", "--dry-run"), ("gc", "--all"), ("doctor",)):
        done = command(*arguments)
        assert done.returncode in {0, 1}, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert all(os.path.lexists(path) for path in odd_names(domain_here)), "gc removes what is its own"
    code = (
        "import holdfast as hf\n"
        "with hf.Context() as ctx, ctx.receiver('quotes') as rcv, ctx.source('quotes', options={'ring_size': 65536}) as src:\n"
        f"    src.wait_registered({SHORT})\n    src.send(b'through')\n    print(bytes(rcv.receive(timeout={SHORT})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SHORT)
    assert done.stdout == "b'through'\n", done.stderr


def test_a_fifo_in_place_of_an_object_is_refused_at_once(domain_here: Domain) -> None:
    path = SHM_DIR / domain_here.stream_name(UUID, 1)
    stranger("fifos", path)
    os.chown(path, 0, 0)  # whoever made it, and whoever may write to it: it is no object
    path.chmod(0o600)
    for writable in (False, True):
        with pytest.raises(hf.ForeignOwnerError):
            open_object(path.name, writable=writable)


def test_ten_thousand_names_of_others_cost_no_opening(domain_here: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger("junk", SHM_DIR, domain_here.prefix, 10_000)
    with hf.Context() as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        opened: list[str] = []

        def counted(name: str, **how: bool) -> int:
            opened.append(name)
            return open_object(name, **how)

        for module in (mapping, directory_module, sweep_module):
            monkeypatch.setattr(module, "open_object", counted)
        ours = {item.kind for item in domain_here.objects()}
        assert ours == {"stream", "board", "bells"}
        assert len(Discovery(domain_here).sources()) == 1
        assert len(snapshot.take(domain_here).sources) == 1
        sweep(domain_here, dry_run=True)
        assert opened
        assert {os.stat(SHM_DIR / name).st_uid for name in opened} == {0}
        assert domain_here.strangers() == {STRANGER: 10_000}
        (found,) = [finding for finding in examine(domain_here) if finding.check == "others" and "uid" in finding.found]
        assert not found.ok
        assert f"uid {STRANGER} has made 10000 names" in found.found


def test_names_that_come_next_stop_nobody(run_store: Callable[..., ThreadStore], domain_here: Domain) -> None:
    """Another user reads the listing, and takes the names of the rings that would come next."""
    run_store()
    options = {**OPTIONS, "ume_store_name": ["a:7:0"]}
    with hf.Context() as ctx, ctx.source("quotes", options=options) as src:
        src.wait_registered(SHORT)
        assert src.send(b"before") == 0
    (uuid,) = {item.uuid for item in domain_here.objects() if item.kind == "board"}
    channel = channel_uuid("features")
    taken = [domain_here.stream_name(uuid, number) for number in range(2, 5)]
    stranger("fifos", *(SHM_DIR / name for name in taken + [domain_here.channel_name(channel, n) for n in (1, 2)]))
    with hf.Context() as ctx, ctx.source("quotes", options=options) as src:
        src.wait_registered(SHORT)
        assert src.send(b"after") == 1
    writer, reader = ChannelWriter("features", capacity=CAPACITY_MIN), ChannelReader("features")
    writer.claim(3)[:] = b"abc"
    writer.commit()
    block = reader.read(SHORT)
    assert block is not None
    assert block.index == 0
    block.release()
    writer.close()
    reader.remove()


def test_root_takes_back_a_name_that_others_have_taken(domain_here: Domain) -> None:
    bells = SHM_DIR / domain_here.bells_name
    for deed, arguments in (("fifos", [bells]), ("directory", [bells]), ("file", [bells, 4096])):
        bells.unlink(missing_ok=True)
        stranger(deed, *arguments)
        hf.Context().close()
        assert bells.stat().st_uid == 0


def test_whoever_is_not_root_is_told_who_has_the_name(domain_here: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "evict", lambda _: False)
    stranger("file", SHM_DIR / domain_here.bells_name, 4096)
    with pytest.raises(hf.ForeignOwnerError, match=f"belongs to uid {STRANGER}"):
        hf.Context()


def test_a_directory_that_another_user_shows_as_a_stores_blocks_no_check(shared: Path) -> None:
    log = shared / "theirs" / "logs" / UUID.hex()
    for path in (shared / "theirs", shared / "theirs" / "logs", log):
        stranger("directory", path)
    stranger(
        "fifos",
        log / "head",
        log / "seg-0000000000000000",
        log / "marks",
        *(shared / "theirs" / f"state.{n}" for n in (0, 1)),
    )
    for verb in (("check",), ("dump",), ("check", "--compare"), ("repair",)):
        done = command("store", *verb, str(shared / "theirs"))
        assert done.returncode in {1, 2, 5}, done.stdout + done.stderr
        assert "Traceback" not in done.stderr


# Directories and files on shared paths ----------------------------------------------------------------------


def stored(run_store: Callable[..., ThreadStore]) -> tuple[ThreadStore, Path]:
    """A memory store that keeps one message, and the directory of its logs in shared memory."""
    store = run_store()
    with hf.Context() as ctx, ctx.source("quotes", options={**OPTIONS, "ume_store_name": ["a:0:0"]}) as src:
        src.wait_registered(SHORT)
        src.send(b"kept")
        src.wait_stable(timeout=SHORT)
    return store, memory_logs(store)


def memory_logs(store: ThreadStore) -> Path:
    return store.store.domain.memory_logs("a", store.store.state.uuid)


def test_a_memory_store_takes_no_directory_of_another_users(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store()
    place = memory_logs(store)
    store.stop()
    stranger("directory", place)
    (place / "planted").touch()
    stored(run_store)
    made = place.stat()
    assert (made.st_uid, made.st_mode & 0o777) == (0, 0o700)
    assert not (place / "planted").exists()


def test_who_is_not_root_is_told_whose_directory_it_is(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_places, "evict", lambda _: False)
    stranger("directory", memory_logs(run_store()))
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**OPTIONS, "ume_store_name": ["a:0:0"]})
        with pytest.raises(hf.RegistrationError, match=f"logs.a.[0-9a-f]+ belongs to uid {STRANGER}, not to 0"):
            src.wait_registered(SHORT)


def test_a_log_that_another_user_made_after_a_reboot_is_no_log(run_store: Callable[..., ThreadStore]) -> None:
    """The store's directory on disk still leads to the place in shared memory, which the reboot has
    emptied."""
    store, place = stored(run_store)
    (log,) = (store.store.directory.path / "logs").iterdir()
    assert log_range(log) == (0, 1)
    store.stop()
    for path in (place, *place.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    assert log_range(log) is None
    assert log_view(log) is None
    with pytest.raises(PermissionError, match=f"uid {STRANGER}"):
        open_log(log)
    for path in (place, *place.rglob("*")):
        os.chown(path, 0, 0)
    assert log_range(log) == (0, 1)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory as /tmp is, and as deep."""
    del tmp_path
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="hfo"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


def test_another_users_directory_is_not_entered(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger("directory", shared / "theirs")
    (shared / "ours").mkdir(mode=0o700)
    stranger("symlink", shared / "ours", shared / "link")
    for name, why in (("theirs", f"belongs to uid {STRANGER}"), ("link", "is not a directory")):
        monkeypatch.setenv("HOLDFAST_DIR", str(shared / name))
        with pytest.raises(hf.Error, match=why):
            hf.Context()
        with pytest.raises(hf.Error, match=why):
            StoreDirectory(shared / name)
        monkeypatch.setenv("XDG_CACHE_HOME", str(shared / name))
    assert list((shared / "theirs").iterdir()) == []


def test_who_does_not_look_whose_a_directory_is_is_caught(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger("directory", shared / "theirs")
    monkeypatch.setattr("holdfast.engine.native.private_directory._check", lambda *_: None)
    with contextlib.suppress(hf.Error):
        StoreDirectory(shared / "theirs").close()
    assert list((shared / "theirs").iterdir()) != []


def test_a_store_may_be_named_by_a_link_of_its_own_user(shared: Path) -> None:
    (shared / "store").symlink_to("elsewhere")
    (shared / "elsewhere").mkdir()
    StoreDirectory(shared / "store").close()
    assert (shared / "elsewhere" / "lock").exists()


def test_a_place_where_anybody_may_rename_is_told_and_holds_no_code(
    shared: Path, domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    assert kernels._cache_directory() is None
    monkeypatch.setenv("HOLDFAST_DIR", str(shared / "run"))
    made = Domain(domain, join=False)
    try:
        found = [finding for finding in examine(made) if finding.check == "others" and not finding.ok]
    finally:
        made.close()
    assert f"in the place of {shared / 'run' / domain}, in {shared}" in found[0].found
    shared.chmod(0o1777)
    assert kernels._cache_directory() == shared / "cache" / "holdfast" / "numba"


def test_what_is_made_on_the_way_is_ours_alone_whatever_the_umask(shared: Path) -> None:
    before = os.umask(0)
    try:
        private_directory(shared / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [(shared / path).stat().st_mode & 0o777 for path in ("a", "a/b", "a/b/c")] == [0o700] * 3


@pytest.mark.parametrize("plant", ["directory", "file"])
def test_code_that_another_user_put_into_the_cache_is_not_executed(
    plant: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    if plant == "directory":
        stranger("directory", shared / "holdfast")
    else:
        (shared / "holdfast").mkdir()
        (shared / "holdfast" / "numba").mkdir(mode=0o700)
        assert kernels._cache_directory() == shared / "holdfast" / "numba"
        (shared / "holdfast" / "numba" / "planted.nbi").touch()
        os.chown(shared / "holdfast" / "numba" / "planted.nbi", STRANGER, STRANGER)
    assert kernels._cache_directory() is None


@pytest.mark.parametrize("deed", ["fifos", "symlink", "file"])
def test_a_log_file_or_pidfile_of_another_users_is_not_written(deed: str, shared: Path) -> None:
    (shared / "ours").write_text("not to be touched")
    path = shared / "file"
    arguments: dict[str, list[object]] = {"fifos": [path], "symlink": [shared / "ours", path], "file": [path, 0]}
    stranger(deed, *arguments[deed])
    with pytest.raises(hf.Error, match=str(path)):
        DaemonLog(LogConfig(str(path)), local_time)
    with pytest.raises(hf.Error, match=str(path)):
        PidFile(str(path))
    assert (shared / "ours").read_text() == "not to be touched"
    if deed == "file":
        assert path.read_bytes() == b""
