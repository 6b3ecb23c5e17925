"""The machine that loses its power: an image for each store, one for the domain directory, shared memory, a
boot id.

All of it lies in a mount namespace of this process alone. An image's file has what reached the disk, and
nothing of what only the page cache of the file system in it has: a power cut is a copy of it that takes its
place. The file system is mounted commit=300, so that nothing but a sync commits its journal, and what nobody
syncs is as old as the mount.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
import subprocess
import uuid
from typing import TYPE_CHECKING, Self

from holdfast.engine.memory.domain import SHM_DIR

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["DOMAIN_DISK", "Machine"]

IMAGE_BYTES = 64 << 20
BOOT_ID = "/proc/sys/kernel/random/boot_id"
DOMAIN_DISK = "host"
"""The image of the domain directory, and of whatever the host keeps beside its stores."""
_CHUNK = 1 << 20
SHARE = 0.3
"""Of the files, that the kernel writes before the power goes."""
SYNC_FILE_RANGE_WRITE_AND_WAIT = 7
LOOP_SET_STATUS64, LOOP_GET_STATUS64 = 0x4C04, 0x4C05
LOOP_INFO_BYTES, SIZE_LIMIT_AT = 232, 32
"""Of struct loop_info64, and where it has lo_sizelimit."""
_libc = ctypes.CDLL(None)
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


def run(*command: str) -> None:
    """Raises subprocess.CalledProcessError, with what it said."""
    subprocess.run(command, check=True, capture_output=True, text=True)


def copy_sparse(source: Path, target: Path) -> None:
    """What is in the file, and its holes."""
    with source.open("rb") as have, target.open("wb") as copy:
        end = os.fstat(have.fileno()).st_size
        copy.truncate(end)
        at = 0
        while at < end:
            try:
                at = os.lseek(have.fileno(), at, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole is left
                break
            hole = os.lseek(have.fileno(), at, os.SEEK_HOLE)
            while at < hole:
                data = os.pread(have.fileno(), min(_CHUNK, hole - at), at)
                os.pwrite(copy.fileno(), data, at)
                at += len(data)


class Machine:
    """See the module. ``with`` takes everything down at the end. ``run``: HOLDFAST_DIR; ``keeps_run``: it
    lies on an image, too; else it is of memory, as /run is."""

    def __init__(self, root: Path, stores: Iterable[str], run: Path, *, keeps_run: bool) -> None:
        self.root, self.run = root, run
        self._keeps_run = keeps_run
        self._names = [*stores, DOMAIN_DISK] if keeps_run else [*stores]
        self._mounted: list[str] = []
        self.vanished: set[str] = set()
        """Stores whose disk has, since it was mounted."""
        self._generation = dict.fromkeys(self._names, 0)

    def __enter__(self) -> Self:
        self.root.mkdir()
        run("mount", "-t", "tmpfs", "none", str(self.root))
        (self.root / "boot").write_text(str(uuid.uuid4()) + "\n")
        run("mount", "--bind", str(self.root / "boot"), BOOT_ID)
        for name in self._names:
            image = self._image(name)
            with image.open("wb") as file:
                file.truncate(IMAGE_BYTES)
            run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
            self.disk(name).mkdir()
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        run("umount", "-l", BOOT_ID)
        run("umount", "-l", str(self.root))
        self.root.rmdir()

    def disk(self, name: str) -> Path:
        """Where the disk of a store is mounted, or would be."""
        return self.root / f"disk-{name}"

    def _image(self, name: str) -> Path:
        return self.root / f"{name}.{self._generation[name]}"

    def mount(self, name: str) -> None:
        """The disk of a store comes back."""
        run("mount", "-o", "loop,commit=300", str(self._image(name)), str(self.disk(name)))
        self._mounted.append(name)

    def vanish(self, name: str) -> None:
        """From now on the mounted disk of a store gives EIO for whatever the page cache does not have, and
        takes nothing. A sync fails once, as they do; the next one finds nothing to write. The image keeps
        what it has."""
        told = subprocess.run(
            ["losetup", "-j", str(self._image(name)), "-O", "NAME", "-n"], check=True, capture_output=True, text=True
        )
        device = os.open(told.stdout.split()[0], os.O_RDWR)
        status = bytearray(LOOP_INFO_BYTES)
        fcntl.ioctl(device, LOOP_GET_STATUS64, status)
        struct.pack_into("<Q", status, SIZE_LIMIT_AT, 4096)
        fcntl.ioctl(device, LOOP_SET_STATUS64, bytes(status))
        os.close(device)
        self.vanished.add(name)

    def repair(self, name: str) -> None:
        """The disk comes back as it is, to a new mount, within the same boot. No process has a file of it
        open."""
        self._renew(name)
        run("umount", "-l", str(self.disk(name)))
        self._mounted.remove(name)
        self.vanished.remove(name)
        self.mount(name)

    def _renew(self, name: str) -> None:
        """What has reached the disk is the image from now on; the mounted file system goes on in a file
        without a name."""
        copy, old = self.root / "copy", self._image(name)
        copy_sparse(old, copy)
        self._generation[name] += 1
        copy.rename(self._image(name))
        old.unlink()

    def _begin(self) -> None:
        """A boot: shared memory is empty, and so is the domain directory unless it lies on a disk."""
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "none", str(SHM_DIR))
        if self._keeps_run:
            self.mount(DOMAIN_DISK)
            place = self.disk(DOMAIN_DISK) / "run"
            place.mkdir(mode=0o700, exist_ok=True)
            self.run.mkdir(exist_ok=True)
            run("mount", "--bind", str(place), str(self.run))
        else:
            self.run.mkdir(exist_ok=True)
            run("mount", "-t", "tmpfs", "-o", "mode=0700", "none", str(self.run))

    def _end(self) -> None:
        run("umount", "-l", str(self.run))
        for name in self._mounted:
            run("umount", "-l", str(self.disk(name)))
        self._mounted.clear()
        self.vanished.clear()
        run("umount", "-l", str(SHM_DIR))

    def write_back(self, draw: random.Random) -> None:
        """The kernel writes some files to the disks, and what leads to them or not: nobody knows which, or in
        which order."""
        for name in sorted(set(self._mounted) - self.vanished):
            for path in self.disk(name).rglob("*"):
                if draw.random() < SHARE and path.is_file():
                    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                        _libc.sync_file_range(file.fileno(), 0, 0, SYNC_FILE_RANGE_WRITE_AND_WAIT)

    def cut(self, *, another_boot: bool) -> None:
        """The power goes, and comes back. Every process is dead by now. No store's disk is mounted
        afterwards."""
        for name in self._mounted:
            self._renew(name)
        self._end()
        if another_boot:
            (self.root / "boot").write_text(str(uuid.uuid4()) + "\n")
        self._begin()
