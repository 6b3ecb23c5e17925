"""The inputs that are kept of each fuzz target: one archive each, ``corpus/TARGET.tar``.

An archive is made the same way from the same inputs, byte by byte. ``tar tf`` lists it, and ``tar rf`` adds a
finding to it. Who grows the corpora unpacks them, works in the directories, and packs them again::

    PYTHONPATH=tests python -m fuzz.corpus unpack|pack
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
from pathlib import Path

__all__ = ["UNPACKED", "inputs", "pack", "unpack"]

ARCHIVES = Path(__file__).resolve().parent / "corpus"
UNPACKED = Path(__file__).resolve().parents[2] / "build" / "fuzz" / "corpus"
"""A directory for each target."""


def inputs(target: str) -> dict[str, bytes]:
    """Name -> input, in the order of their names."""
    with tarfile.open(ARCHIVES / f"{target}.tar") as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read() for name, file in sorted(files.items()) if file is not None}


def unpack() -> None:
    """Every archive into its directory, which has nothing else then."""
    shutil.rmtree(UNPACKED, ignore_errors=True)
    for archive in sorted(ARCHIVES.glob("*.tar")):
        directory = UNPACKED / archive.stem
        directory.mkdir(parents=True)
        for name, data in inputs(archive.stem).items():
            (directory / name).write_bytes(data)


def pack() -> None:
    """Every directory into its archive. Owners, modes and times are left out."""
    for directory in sorted(UNPACKED.iterdir()):
        with tarfile.open(ARCHIVES / f"{directory.name}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for path in sorted(directory.iterdir()):
                data = path.read_bytes()
                member = tarfile.TarInfo(path.name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    {"pack": pack, "unpack": unpack}[sys.argv[1]]()
