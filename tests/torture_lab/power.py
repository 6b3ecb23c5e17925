"""Power cuts: a store works on an ext4 file system in an image; everything is killed, and the image is
copied.

The copy has what reached the disk, and nothing of what only the page cache has. It is mounted, and a store
opens its log there as after another boot: everything that the board called stable must be in it. The
processes are those of core_kills.py; they go on on the image itself.

The planted bug is a log that leaves its fdatasync out. No kill can show it: the page cache outlives the
process.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.failpoints import ROLES
from support.forked_roles import STORE_UUID, open_log
from support.forked_workers import preload
from support.oracle import Finding

from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.native.core import ffi, lib
from torture_lab.core_kills import Episode, Log, Tally
from torture_lab.lab import LOST, Lab, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE_BYTES = 32 << 20
CUTS_PER_EPISODE = 10
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
MUTANT = "log.skip_sync=mutant"


def run(lab: Lab) -> Outcome:
    """150 cuts, or 10,000 (or 4); and the planted bug, which more than half of its cuts must show."""
    own_mounts(lab)
    preload()
    outcome = Outcome()
    domain = Domain("power", join=False)
    memory = Path(tempfile.mkdtemp(prefix="hf-lab-", dir=SHM_DIR))
    try:
        _cuts(lab, domain, memory, outcome, lab.figure(4, 150, 10_000))
        planted = Outcome()
        _cuts(lab, domain, memory, planted, lab.figure(8, 20, 100), MUTANT)
        outcome.count("cuts of the planted bug", planted.counts["cuts"])
        outcome.count("of them caught", planted.times_found(LOST))
        outcome.plant(caught=2 * planted.times_found(LOST) > planted.counts["cuts"])
    finally:
        domain.close()
        shutil.rmtree(memory, ignore_errors=True)
    return outcome


def own_mounts(lab: Lab) -> None:
    """What is mounted here is nobody else's, and ends with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.getuid() != 0:
        lab.skip("mounting an image needs root")
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        lab.skip(f"no mount namespace of its own: {os.strerror(ctypes.get_errno())}")
    if shutil.which("mkfs.ext4") is None:
        lab.skip("mkfs.ext4 is missing: install the Debian package e2fsprogs")
    probe = lab.root / "probe.img"
    _make_image(probe)
    try:
        with _mounted(probe, lab.root / "probe"):
            pass
    except subprocess.CalledProcessError as refused:
        lab.skip(f"no loop device: {refused.stderr.strip()}")
    probe.unlink()


def _make_image(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(path)], check=True)


@contextmanager
def _mounted(image: Path, at: Path) -> Iterator[Path]:
    """commit=300: nothing but a sync commits the journal, so that an image that is copied changes under
    nobody's hands."""
    at.mkdir(exist_ok=True)
    command = ["mount", "-o", "loop,commit=300", str(image), str(at)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def _cuts(lab: Lab, domain: Domain, memory: Path, outcome: Outcome, cuts: int, mutant: str = "") -> None:
    number = 0
    while (
        outcome.counts.get("cuts", 0) < cuts and len(outcome.findings) < cuts
    ):  # a store that never works is no endless lab
        image = memory / "disk.img"
        _make_image(image)
        with _mounted(image, lab.root / "disk") as disk:
            episode = None
            while episode is None or not episode.world.disk:
                if episode is not None:
                    episode.close(keep=False)
                number += 1
                episode = Episode(lab.seed * 100_003 + number, domain, disk / str(number), Tally(), mutant)
            try:
                for _ in range(min(CUTS_PER_EPISODE, cuts - outcome.counts.get("cuts", 0))):
                    _one_cut(lab, episode, image, outcome, quiet=bool(mutant))
            except Finding as found:
                outcome.found(f"seed {lab.seed}, episode {number}: {found}")
            finally:
                episode.close(keep=False)
        image.unlink()


def _one_cut(lab: Lab, episode: Episode, image: Path, outcome: Outcome, *, quiet: bool) -> None:
    """Work for a moment; then the power goes."""
    for role in ("store", "receiver", "source"):
        episode.raise_one(role)
    goal = episode._ack(STORE_UUID) + episode.random.randint(1, 400)
    while episode._ack(STORE_UUID) < goal:
        episode._let_run("")
    episode.kill(*ROLES)
    stable, oldest = episode._ack(STORE_UUID), episode.log.range()[0]
    copy = image.with_name("copy.img")
    shutil.copyfile(image, copy)
    outcome.count("cuts")
    try:
        with _mounted(copy, lab.root / "after") as after:
            _judge(episode, after / episode.world.log.relative_to(lab.root / "disk"), oldest, stable, outcome)
    except Finding as found:
        if quiet:
            outcome.findings.append(str(found))
        else:
            outcome.found(f"seed {lab.seed}, cut {outcome.counts['cuts']}: {found}")
    finally:
        copy.unlink()


def _judge(episode: Episode, path: Path, oldest: int, stable: int, outcome: Outcome) -> None:
    """The log as it is after the power cut. ``oldest``: what it retained before, and it may have let go of no
    more."""
    if not path.exists() or not (path / "head").exists():
        if stable:
            raise Finding(f"{stable} was called stable, and there is no log")
        return
    with (path / "head").open("r+b") as head:
        head.seek(ffi.offsetof("struct hf_preamble", "boot_id"))
        head.write(b"another boot    ")
    world = episode.world
    kept, world.log = world.log, path
    try:
        handle = open_log(world)
    finally:
        world.log = kept
    info = ffi.new("struct hf_log_info *")
    lib.hf_log_info(handle, info)
    lib.hf_log_close(handle)
    if info.damaged:
        raise Finding(f"{info.damaged} damaged ranges where {stable} was called stable")
    if info.next_sqn < stable:
        raise Finding(f"everything below {stable} was called stable, the log ends at {info.next_sqn}")
    if info.oldest_sqn > oldest:
        raise Finding(f"the log began at {oldest} and begins at {info.oldest_sqn} now")
    log = Log(path, world.content, episode.lives, lets_go=oldest > 0)
    try:
        log.rewind()
        log.verify()
    finally:
        log.reopen()
    outcome.count("messages", log.verified - int(info.oldest_sqn))
