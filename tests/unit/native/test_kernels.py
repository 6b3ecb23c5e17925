"""Kernels: compiled and plain Python give the same; the compiled form is a matter of speed only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.native import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray


@pytest.fixture(scope="module")
def compiled() -> Callable[..., Any]:
    kernels.warm()
    assert kernels.wait()
    return kernels.best(kernels.contiguous_prefix)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kernels.wait()  # somebody else may have begun to load them
    monkeypatch.setattr(kernels, "_compiled", {})
    monkeypatch.setattr(kernels, "_thread", None)
    yield
    kernels.wait()


def reference(tags: list[int], lasts: list[int], head: int, tail: int) -> tuple[int, int | None]:
    last = None
    for slot in range(head, tail):
        at = slot % len(tags)
        if tags[at] != 2 * slot + 1:
            return slot, last
        last = lasts[at]
    return max(head, tail), last


@settings(max_examples=200, deadline=None)
@given(
    bits=st.integers(0, 6),
    head=st.integers(0, 2**40),
    live=st.integers(0, 64),
    holes=st.sets(st.integers(0, 63)),
    stale=st.booleans(),
)
def test_compiled_plain_and_reference_agree(
    compiled: Callable[..., Any], bits: int, head: int, live: int, holes: set[int], stale: bool
) -> None:
    size = 1 << bits
    tail = head + min(live, size)
    records: NDArray[Any] = np.zeros(size, kernels.ack_record())
    for slot in range(head, tail):
        tag = 2 * slot + 1
        if slot - head in holes:
            tag = 2 * (slot - size) + 1 if stale else tag - 1
        records[slot % size] = (slot * 10, slot * 10 + 9, tag)
    expected = reference(records["tag"].tolist(), records["last"].tolist(), head, tail)
    for kernel in (compiled, kernels.contiguous_prefix):
        reached, last = kernel(records, head, tail)
        assert reached == expected[0]
        if expected[1] is not None:
            assert last == expected[1]


def test_the_plain_form_serves_until_the_compiled_one_is_loaded(cold: None) -> None:
    assert not kernels.ready()
    assert kernels.best(kernels.contiguous_prefix) is kernels.contiguous_prefix
    kernels.warm()
    kernels.warm()
    assert kernels.wait()
    assert kernels.best(kernels.contiguous_prefix) is not kernels.contiguous_prefix


def test_the_cache_lies_below_the_users_cache_directory(
    cold: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    kernels.jit()
    assert list((tmp_path / "holdfast" / "numba").rglob("*.nbi"))
    assert before == numba.config.CACHE_DIR  # type: ignore[attr-defined]


def test_a_cache_that_cannot_be_made_costs_nothing_but_time(
    cold: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    kernels.jit()
    assert kernels.ready()


def test_a_cache_that_others_may_write_is_not_used(cold: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "holdfast" / "numba").mkdir(parents=True)
    os.chmod(tmp_path / "holdfast" / "numba", 0o777)
    kernels.jit()
    assert kernels.ready()
    assert not list((tmp_path / "holdfast").rglob("*.nb*"))


def test_a_spoiled_cache_is_survived(cold: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernels.jit()
    for path in (tmp_path / "holdfast").rglob("*.nb*"):
        path.write_bytes(b"garbage")
    monkeypatch.setattr(kernels, "_compiled", {})
    kernels.jit()
    assert kernels.ready()


def test_without_a_working_numba_the_plain_form_stays(cold: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(numba, "njit", broken)
    kernels.jit()
    assert not kernels.ready()
    assert kernels.best(kernels.contiguous_prefix) is kernels.contiguous_prefix
