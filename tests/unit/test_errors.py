"""The error tree: one line each, codes, verdicts, exit codes; and the only way from a C result to an
error."""

from __future__ import annotations

import copy
import errno

import pytest

from holdfast.engine import errors
from holdfast.engine.log.sight import Away
from holdfast.engine.native import status
from holdfast.engine.native.core import ffi, lib

SAMPLES: list[tuple[errors.Error, str, bool, int]] = [
    (errors.Error("something"), "HF_ERROR", False, 1),
    (errors.UsageError("wrong", hint="do it right"), "LBM_EINVAL", False, 2),
    (errors.ClosedError("source quotes"), "HF_CLOSED", False, 2),
    (errors.ConfigError("no such option", "a.cfg", 3, 7, hint="x"), "LBM_EINVAL", False, 2),
    (errors.MissingExtraError("pyarrow", "spark"), "HF_EXTRA", False, 2),
    (errors.NoDomainError("there is no domain 'x'"), "LBM_EINVAL", False, 2),
    (errors.NotRegisteredError("0 of 1 stores"), "LBM_EUMENOREG", True, 3),
    (errors.QuorumLostError(), "LBM_EUMENOREG", True, 3),
    (errors.WouldBlockError("flight_size"), "LBM_EWOULDBLOCK", True, 4),
    (errors.MessageTooLargeError(10, 5, "ring_size"), "LBM_EINVAL", False, 2),
    (errors.RegistrationError("refused"), "HF_REGISTRATION", False, 1),
    (errors.RegIdInUseError(7, 123, 1.5), "HF_REGID_IN_USE", True, 1),
    (errors.RegistrationTimeout(), "LBM_ETIMEDOUT", True, 4),
    (errors.StabilityTimeout(9, 5), "LBM_ETIMEDOUT", True, 4),
    (errors.EvictedError(), "HF_EVICTED", True, 1),
    (errors.LayoutMismatchError(2, 1), "HF_LAYOUT", False, 1),
    (errors.SharedMemoryFullError(100, 10), "LBM_ENOMEM", True, 1),
    (errors.SystemCallError("log: I/O error", 5, "EIO"), "EIO", False, 1),
    (
        errors.LimitReachedError("no more", 24, "EMFILE", limit="RLIMIT_NOFILE", value=256, used=256, hint="ulimit -n"),
        "EMFILE",
        True,
        1,
    ),
    (errors.CorruptionError("bad crc"), "HF_DAMAGED", False, 5),
    (errors.ForeignOwnerError(), "HF_FOREIGN", False, 1),
    (errors.DirectoryInUseError(42, "/tmp/a"), "HF_DIRECTORY_IN_USE", False, 3),
    (errors.ReadOnlyError("/srv/a"), "HF_READ_ONLY", False, 1),
    (errors.RemovedError("features", "hf.x"), "HF_REMOVED", False, 1),
    (errors.ForkedHandleError(), "HF_FORKED", False, 2),
    (errors.FencedError("/run/x"), "HF_FENCED", False, 1),
    (errors.TurnHeldError("on the board of x", 42), "HF_AGAIN", True, 1),
    (errors.StoresAwayError("numbers 5..9", [Away("b", 10, "it is not there")]), "HF_STORES_AWAY", True, 3),
    (errors.CallableStoreError("a Context lives here"), "HF_CALLABLE_STORE", False, 2),
]


@pytest.mark.parametrize(("error", "code", "retriable", "exit_code"), SAMPLES, ids=lambda v: type(v).__name__)
def test_every_error_has_code_verdict_and_exit_code_in_one_line(
    error: errors.Error, code: str, retriable: bool, exit_code: int
) -> None:
    assert (error.code, error.retriable, error.exit_code) == (code, retriable, exit_code)
    text = str(error)
    assert text.startswith(f"{code}: ")
    assert "\n" not in text
    assert error.hint in text


def test_the_samples_are_the_whole_tree() -> None:
    defined = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.Error)}
    assert defined == {type(error) for error, *_ in SAMPLES}


@pytest.mark.parametrize("error", [error for error, *_ in SAMPLES], ids=lambda e: type(e).__name__)
def test_an_error_survives_the_way_to_another_process(error: errors.Error) -> None:
    error.sent = 3
    twin = copy.copy(error)  # by __reduce_ex__, as pickling does
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)


def test_errors_name_values_limits_and_places() -> None:
    assert "a.cfg:3:7" in str(errors.ConfigError("x", "a.cfg", 3, 7))
    assert "ring_size" in str(errors.MessageTooLargeError(10, 5, "ring_size"))
    assert "123" in str(errors.RegIdInUseError(7, 123, 1.5))
    assert "42" in str(errors.DirectoryInUseError(42))
    away = errors.StoresAwayError("numbers 5..9 are nowhere", [Away("b", 10, "it is not there")])
    assert "5..9 are nowhere, and these stores cannot be read: b (it is not there); start" in str(away)
    assert away.stores == ("b",)


def every_status() -> list[tuple[str, int]]:
    found = {name: number for number, name in ffi.typeof("enum hf_status").elements.items()}
    return sorted((name, number) for name, number in found.items() if number < 0 and name != "HF_ERRNO")


KINDS = {
    "HF_AHEAD": errors.UsageError,
    "HF_BUSY": errors.UsageError,
    "HF_CLOSED": errors.ClosedError,
    "HF_DAMAGED": errors.CorruptionError,
    "HF_EVICTED": errors.EvictedError,
    "HF_FLIGHT_BYTES": errors.WouldBlockError,
    "HF_FLIGHT_SIZE": errors.WouldBlockError,
    "HF_FENCED": errors.FencedError,
    "HF_FOREIGN": errors.ForeignOwnerError,
    "HF_FORKED": errors.ForkedHandleError,
    "HF_LAYOUT": errors.LayoutMismatchError,
    "HF_PINNED": errors.WouldBlockError,
    "HF_RETENTION": errors.WouldBlockError,
    "HF_TOO_LARGE": errors.MessageTooLargeError,
    "HF_USAGE": errors.UsageError,
}


@pytest.mark.parametrize(("name", "number"), every_status())
def test_every_result_of_the_core_becomes_its_error(name: str, number: int) -> None:
    with pytest.raises(errors.Error) as raised:
        status.check(number, what="the thing", size=9, limit=4)
    assert type(raised.value) is KINDS.get(name, errors.Error)
    assert "is unknown" not in str(raised.value)
    if name not in KINDS:
        assert raised.value.code == name


@pytest.mark.parametrize("value", [0, 1, 2**62])
def test_values_pass(value: int) -> None:
    assert status.check(value) == value


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (lib.HF_FLIGHT_SIZE, "flight_size"),
        (lib.HF_FLIGHT_BYTES, "flight_bytes"),
        (lib.HF_RETENTION, "retention"),
        (lib.HF_PINNED, "ring"),
    ],
)
def test_a_send_that_would_block_says_why(number: int, reason: str) -> None:
    assert status.would_block(number)
    with pytest.raises(errors.WouldBlockError, match=reason) as raised:
        status.check(number)
    assert raised.value.reason == reason


def test_other_results_are_not_waited_out() -> None:
    assert not any(status.would_block(number) for number in (0, lib.HF_CLOSED, lib.HF_TOO_LARGE, lib.HF_ERRNO - 28))


def test_full_shared_memory_says_what_is_needed_and_free() -> None:
    with pytest.raises(errors.SharedMemoryFullError) as raised:
        status.check(lib.HF_ERRNO - errno.ENOSPC, size=1 << 50)
    assert raised.value.need == 1 << 50
    assert 0 <= raised.value.free < 1 << 50


def test_without_a_size_no_memory_is_not_full_shared_memory() -> None:
    """ext4 says it of a device that has gone: who read such a log was told of /dev/shm, and waited."""
    found = status.error_of(lib.HF_ERRNO - errno.ENOMEM, what="the head of a log")
    assert type(found) is errors.SystemCallError
    assert "the head of a log: Cannot allocate memory" in str(found)
    assert type(status.error_of(lib.HF_ERRNO - errno.ENOMEM, size=7)) is errors.SharedMemoryFullError


def test_a_full_disk_is_not_full_shared_memory() -> None:
    with pytest.raises(errors.SystemCallError, match=r"ENOSPC: .*is full") as raised:
        status.check(lib.HF_ERRNO - errno.ENOSPC, what="/")
    assert (raised.value.errno, raised.value.retriable) == (errno.ENOSPC, True)


@pytest.mark.parametrize(("number", "code"), [(errno.EIO, "EIO"), (errno.EACCES, "EACCES"), (9999, "errno 9999")])
def test_a_failed_system_call_keeps_its_name(number: int, code: str) -> None:
    error = status.error_of(lib.HF_ERRNO - number, what="log")
    assert isinstance(error, errors.SystemCallError)
    assert (error.code, error.errno) == (code, number)


def test_a_result_that_nobody_knows_is_still_an_error() -> None:
    assert "-999" in str(status.error_of(-999))
