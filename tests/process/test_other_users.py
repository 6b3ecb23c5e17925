"""Another user of the host has the names of a domain, and everything that a user may do in /dev/shm and /tmp.

The other user is a uid that nobody has, taken by setuid in a child (stranger.py): the kernel asks for the uid and not for an
entry in /etc/passwd, so a user made by useradd could do nothing more, and would have to be removed again. Root runs the tests; it
is also the harder victim, for root may open and map anything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from process.stranger import STRANGER

import holdfast as hf
from holdfast.engine import directory as directory_module
from holdfast.engine import segments, survey
from holdfast.engine import sweep as sweep_module
from holdfast.engine.directory import Directory
from holdfast.engine.doctor import examine
from holdfast.engine.domain import SHM_DIR, Domain, open_object
from holdfast.engine.segments import attach_board, attach_stream
from holdfast.engine.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Iterator


TESTS = Path(__file__).resolve().parents[1]
SHORT = 60.0
OPTIONS = {"ring_size": 1 << 16}
UUID = b"uuid of a source"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


def stranger(deed: str, *arguments: object) -> None:
    """The other user does this, now."""
    subprocess.run(
        [sys.executable, "-m", "process.stranger", deed, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=True, timeout=SHORT,
    )  # fmt: skip


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


# Forged objects -------------------------------------------------------------------------------------------------------------


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
    assert survey.take(domain_here).sources == []


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
    """Where fs.protected_hardlinks is 0, another user may give a ring of ours a second name, in another domain of ours."""
    with hf.Context() as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        (stream,) = [item.name for item in domain_here.objects() if item.kind == "stream"]
        second = domain_here.stream_name(UUID, 1)
        os.link(SHM_DIR / stream, SHM_DIR / second)
        with pytest.raises(hf.ForeignOwnerError, match="2 names"):
            attach_stream(second)
        (SHM_DIR / second).unlink()
        attach_stream(stream).close()


def test_who_reads_on_after_the_name_is_gone_is_let(domain_here: Domain) -> None:
    """An object that was unlinked between its opening and its mapping has no name, and is ours."""
    with hf.Context() as ctx, ctx.source("quotes", options=OPTIONS) as src:
        src.wait_registered(SHORT)
        (stream,) = [item.name for item in domain_here.objects() if item.kind == "stream"]
        opened = open_object(stream)
        (SHM_DIR / stream).unlink()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(segments, "open_object", lambda *_, **__: opened)
            attach_stream(stream).close()


# Names that block, and names in large numbers -------------------------------------------------------------------------------


def odd_names(domain: Domain) -> list[Path]:
    uuids = [bytes([number]) * 16 for number in range(6)]
    names = [domain.stream_name(uuid, 1) for uuid in uuids] + [domain.board_name(uuid) for uuid in uuids]
    names += [domain.channel_name(uuid, 1) for uuid in uuids] + [domain.memory_logs(f"s{n}").name for n in range(6)]
    return [SHM_DIR / name for name in names]


def test_nothing_that_another_user_puts_there_blocks_anybody(domain_here: Domain) -> None:
    """FIFOs, directories, sockets, links, files, with names of the domain's: who opened one as it comes would wait for ever."""
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
    os.chown(path, 0, 0)  # whoever made it: it is no object
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

        for module in (segments, directory_module, sweep_module):
            monkeypatch.setattr(module, "open_object", counted)
        ours = {item.kind for item in domain_here.objects()}
        assert ours == {"stream", "board", "bells"}
        assert len(Directory(domain_here).sources()) == 1
        assert len(survey.take(domain_here).sources) == 1
        sweep(domain_here, dry_run=True)
        assert opened
        assert {os.stat(SHM_DIR / name).st_uid for name in opened} == {0}
        assert domain_here.strangers() == {STRANGER: 10_000}
        (found,) = [finding for finding in examine(domain_here) if finding.check == "others" and "uid" in finding.found]
        assert not found.ok
        assert f"uid {STRANGER} has made 10000 names" in found.found
