"""What the doctor makes of a store's limits and their use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.engine.native.limits import Use
from holdfast.engine.tools import doctor_limits

if TYPE_CHECKING:
    from holdfast.engine.memory.domain import Domain

NOBODY = cast("Domain", None)


def looks(
    monkeypatch: pytest.MonkeyPatch, *uses: Use, state: str = "running", is_seen: bool = True
) -> list[tuple[bool, str, str]]:
    store: Any = SimpleNamespace(name="a", state=state, info=SimpleNamespace(pid=7), is_seen=is_seen)
    monkeypatch.setattr(doctor_limits, "store_files", lambda _: [store])
    monkeypatch.setattr(doctor_limits, "uses_of", lambda pid: list(uses) if pid == 7 else [])
    monkeypatch.setattr(doctor_limits, "file_size_limit", lambda _: None)
    return [(each.ok, each.found, each.remedy) for each in doctor_limits.store_limits(NOBODY)]


@pytest.mark.parametrize(("used", "ok"), [(204, True), (205, False), (256, False)])
def test_from_80_percent_on_it_needs_attention(monkeypatch: pytest.MonkeyPatch, used: int, ok: bool) -> None:
    ((fine, said, remedy),) = looks(monkeypatch, Use("RLIMIT_NOFILE", "process 7", used, 256, "raise it"))
    assert (fine, said) == (ok, f"store a: RLIMIT_NOFILE of process 7 is 256, {used} are used")
    assert remedy == ("" if ok else "from 80 % on, new sources may soon be refused: raise it")


def test_what_cannot_be_read_is_not_called_good(monkeypatch: pytest.MonkeyPatch) -> None:
    ((fine, said, remedy),) = looks(monkeypatch)
    assert (fine, said) == (False, "store a: limits and use of process 7 cannot be read")
    assert "the store's user" in remedy


def test_another_process_with_its_pid_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store in a container has another pid there."""
    ((fine, said, _),) = looks(monkeypatch, Use("RLIMIT_NOFILE", "process 7", 1, 256, "raise it"), is_seen=False)
    assert (fine, said) == (False, "store a: limits and use of process 7 cannot be read")


def test_a_store_that_does_not_run_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, state="dead") == [(True, "no store runs: there are no limits to look at", "")]
