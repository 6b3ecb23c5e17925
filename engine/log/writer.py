"""Opens a log to write to it (csrc/log/writer.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..native.core import CData, ffi, lib
from ..native.private_directory import open_log
from ..native.runtime import os
from ..native.status import check
from ..native.sync import make_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["open_writer"]


def open_writer(path: Path, config: CData) -> CData:
    """``struct hf_log *`` of the log in ``path``, which is made if there is none. Raises OSError,
    CorruptionError."""
    if not (path / "head").exists():
        make_directory(path)
    out = ffi.new("struct hf_log **")
    fd = open_log(path)
    try:
        check(lib.hf_log_open(fd, config, out), what=str(path))
    finally:
        os.close(fd)
    log: CData = out[0]
    return log
