"""Under which incarnation a store wrote a message into its log: its own newest one then, also where it copied
the message from a peer that has it under an older one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..native.core import ffi, lib
from .info_file import log_reader

if TYPE_CHECKING:
    from ..native.runtime import Path

__all__ = ["written_under"]

BYTES = 4096
"""Of most messages, frames included."""


def written_under(log: Path, number: int) -> int | None:
    """None: nothing can be read there. Raises SystemCallError as :func:`log_reader`."""
    with log_reader(log) as reader:
        if reader is None:
            return None
        following, size = ffi.new("uint64_t *"), BYTES
        for _ in range(2):  # once more where the message is larger
            got = lib.hf_logr_read(reader, number, ffi.new("uint8_t[]", size), size, following)
            if got > 0:
                return int(lib.hf_logr_incarnation(reader))
            if got != lib.HF_SMALL:
                break
            size = int(following[0])
    return None
