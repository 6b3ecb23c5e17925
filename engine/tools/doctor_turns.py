"""Who stands still in a step that only one process at a time may do: others wait for it, and nobody takes it
away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Error
from ..memory.mapping import UnpublishedError, attach_board
from ..memory.turn import holder_of, stands_still
from ..native.core import ffi, lib
from ..native.runtime import os, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..memory.domain import Domain

__all__ = ["standing_still"]

SLOW_S = 1.0
"""A step takes milliseconds; after so long whoever is at it is told of, stopped or not."""


def standing_still(domain: Domain) -> Iterator[tuple[int, str]]:
    """(pid, at what) of each. pid 0: it cannot be named. Waits SLOW_S when somebody is at it just now."""
    first = _turns(domain)
    if first and not all(stands_still(pid) for pid, _ in first.values()):
        time.sleep(SLOW_S)
    again = _turns(domain) if first else {}
    return ((pid, what) for key, (pid, what) in again.items() if key in first)


def _turns(domain: Domain) -> dict[object, tuple[int, str]]:
    found: dict[object, tuple[int, str]] = {}
    pid = _creator(domain)
    if pid is not None:
        found["create", pid] = pid, "it makes, joins or removes shared objects of the domain"
    for item in domain.objects():
        if item.kind != "board":
            continue
        try:
            with attach_board(domain, item.uuid, writable=False) as board:
                claimer = int(ffi.cast("struct hf_board *", board.handle.base).claimer)
        except (FileNotFoundError, UnpublishedError, Error):
            continue
        if claimer and lib.hf_process_alive(domain.fd, claimer, 0, 0) != 0:
            found[claimer] = int(lib.hf_process_pid(domain.fd, claimer)), f"it takes a line on the board {item.name}"
    return found


def _creator(domain: Domain) -> int | None:
    try:
        fd = os.open("create.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=domain.fd)
    except OSError:
        return None
    try:
        return holder_of(fd)
    finally:
        os.close(fd)
