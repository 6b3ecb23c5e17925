"""The sentence that names a limit, and what is blamed on one."""

from __future__ import annotations

import contextlib
import copy
import errno
import os
import resource
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.errors import LimitReachedError, SharedMemoryFullError, SystemCallError
from holdfast.engine.memory.domain import open_object
from holdfast.engine.native import limits, status
from holdfast.engine.native.core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator

ENOMEM, EMFILE, ENFILE = (lib.HF_ERRNO - number for number in (errno.ENOMEM, errno.EMFILE, errno.ENFILE))


@contextlib.contextmanager
def no_descriptors() -> Iterator[int]:
    """Meanwhile this process has none left; its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        most = max(int(name) for name in os.listdir("/proc/self/fd")) + 4
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def mapped(monkeypatch: pytest.MonkeyPatch, used: int) -> None:
    use = limits.Use("vm.max_map_count", "process 7", used, 65530, limits.RAISE_MAPPINGS)
    monkeypatch.setattr(limits, "mappings", lambda: use)


def test_no_descriptor_names_the_limit_its_value_and_the_remedy() -> None:
    with no_descriptors() as most:
        error = status.error_of(EMFILE, what="the ring")
    assert isinstance(error, LimitReachedError)
    assert (error.code, error.errno, error.retriable) == ("EMFILE", errno.EMFILE, True)
    assert (error.limit, error.value, error.used) == ("RLIMIT_NOFILE", most, most)
    said = f"EMFILE: the ring: Too many open files: RLIMIT_NOFILE of process {os.getpid()} is {most:,}, {most:,} are used; "
    assert str(error).startswith(said)
    assert "ulimit -n" in error.hint
    assert "LimitNOFILE" in error.hint
    again = copy.copy(error)  # as pickle makes it again
    assert (str(again), again.limit) == (str(error), error.limit)


def test_who_cannot_read_which_boot_this_is_without_descriptors_is_told_the_limit() -> None:
    boot = ffi.new("uint8_t[16]")
    with no_descriptors() as most:
        error = status.error_of(lib.hf_boot_id(boot), what="the board")
    assert isinstance(error, LimitReachedError)
    assert (error.limit, error.value) == ("RLIMIT_NOFILE", most)


def test_the_machines_table_of_files_is_named() -> None:
    error = status.error_of(ENFILE)
    assert isinstance(error, LimitReachedError)
    assert error.limit == "fs.file-max"
    assert error.value > 0
    assert error.used > 0
    assert "fs.file-max" in error.hint
    with no_descriptors():  # it cannot be read: unknown
        error = status.error_of(ENFILE)
    assert isinstance(error, LimitReachedError)
    assert (error.value, error.used) == (-1, -1)
    assert "fs.file-max of the machine is unknown, how many are used is unknown" in str(error)


def test_too_many_mappings_are_named_and_not_taken_for_full_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped(monkeypatch, 65528)
    for size in (-1, 1 << 20):
        error = status.error_of(ENOMEM, what="hf.x", size=size)
        assert isinstance(error, LimitReachedError)
        assert (error.limit, error.value, error.used) == ("vm.max_map_count", 65530, 65528)
        assert "sysctl vm.max_map_count" in str(error)
    mapped(monkeypatch, 300)
    assert type(status.error_of(ENOMEM, what="hf.x")) is SystemCallError
    assert type(status.error_of(ENOMEM, what="hf.x", size=1 << 20)) is SharedMemoryFullError


def test_a_limited_address_space_is_named_where_it_is_why(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped(monkeypatch, 300)
    used = limits._addresses("self")
    assert used is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = used + (1 << 30)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        far, near = status.error_of(ENOMEM), status.error_of(ENOMEM, size=1 << 31)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert type(far) is SystemCallError
    assert isinstance(near, LimitReachedError)
    assert (near.limit, near.value) == ("RLIMIT_AS", most)


def test_what_no_limit_refused_stays_what_it_is() -> None:
    for error in (OSError(errno.EIO, "no"), OSError("no number"), ValueError("x"), SystemCallError("x", 5, "EIO")):
        assert limits.named(error) is error


def test_who_makes_an_object_without_descriptors_is_told_the_limit() -> None:
    """posix_ipc raises an OSError without a number."""
    with no_descriptors() as most, pytest.raises(LimitReachedError) as told:
        open_object(f"hf.limits.{os.getpid()}", create=True)
    assert (told.value.limit, told.value.value) == ("RLIMIT_NOFILE", most)


def test_a_process_is_read_as_it_counts_itself() -> None:
    by_name = {use.limit: use for use in limits.uses_of(os.getpid())}
    own = limits.descriptors()
    assert own is not None
    assert by_name["RLIMIT_NOFILE"].most == own.most
    assert abs(by_name["RLIMIT_NOFILE"].used - own.used) < 8
    assert by_name["vm.max_map_count"].used > 10
    assert limits.uses_of(2**22 + 1) == [], "nobody: unknown, and not none used"


def test_the_soft_limit_is_the_hard_one_and_what_it_was_afterwards() -> None:
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(soft, 512)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
        with limits.descriptors_to_the_hard_limit():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low, hard)
        with limits.descriptors_to_the_hard_limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (low + 1, hard))
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low + 1, hard), "somebody else's word stays"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
