"""0.1.0 and this version in one domain: every role is replaced under load, the stores one by one, killed at
each step.

0.1.0 is built from the history, once per checkout; a checkout without it skips these. Its logs have heads of
layout version 1; a store of this version makes them anew, and 0.1.0 refuses such a directory and changes
nothing in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.command_line import SHORT, Program, run, stat
from support.either_version import Role, version_0_1_0
from support.workers import until

from holdfast.cli import store_finished
from holdfast.cli.store_finished import deregister_finished
from holdfast.engine.log.check import check_store
from holdfast.engine.memory.domain import Domain
from holdfast.engine.native.core import lib
from holdfast.engine.tools.finished import candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STEPS = {
    "a": ["head.written", "head.renamed"],
    "b": ["head.synced"],
    "c": ["head.written", "head.written", "head.synced"],
}
"""Where each store is killed while it makes a head anew (csrc/log/head_file.c); at the last one it has the
new head."""
STORES = list(STEPS)


@pytest.fixture(scope="session")
def old() -> Path:
    """What PYTHONPATH must be for 0.1.0."""
    return version_0_1_0()


class System:
    """Three stores, a source and a receiver."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.roles = {name: Role("store", name, where) for name in STORES}
        self.roles |= {kind: Role(kind, kind, where) for kind in ("source", "receiver")}

    def alive(self) -> None:
        """What was started runs."""
        for role in self.roles.values():
            role.alive()

    def stable(self) -> int:
        """Behind the last number that the source was told of."""
        return max((int(number) for (number,) in self.roles["source"].said("stable")), default=0)

    def got(self) -> dict[int, str]:
        """What the receiver got. A number comes again where it was not acknowledged, and is the same message
        then."""
        found: dict[int, str] = {}
        for number, text in self.roles["receiver"].said("got"):
            assert found.setdefault(int(number), text) == text
        return found

    def goes_on(self) -> None:
        """More becomes stable, and is delivered."""
        before = self.stable()
        until("more is stable", lambda: self.stable() > before + 40, self.alive)
        until("it is delivered", lambda: max(self.got(), default=0) > before + 40, self.alive)

    def heads(self, name: str) -> list[Path]:
        """Of the logs of this store."""
        return sorted((self.where / f"store-{name}" / "logs").glob("*/head"))


@pytest.fixture
def system(tmp_path: Path, own_domain: str) -> Iterator[System]:
    made = System(tmp_path)
    yield made
    for role in made.roles.values():
        if role.process is not None:
            role.process.kill()
            role.process.wait()


def version(head: Path) -> int:
    return int.from_bytes(head.read_bytes()[8:12], "little")


def newest(heads: list[Path]) -> bool:
    return {version(head) for head in heads} == {lib.HF_HEAD_VERSION}


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def replace_store(system: System, name: str) -> None:
    """Kill -9, then this version, which is killed while it makes the head anew."""
    role = system.roles[name]
    role.kill()
    for step in STEPS[name]:
        assert {version(head) for head in system.heads(name)} == {1}
        role.start(None, f"{step}=kill")
        role.died()
    assert {version(head) for head in system.heads(name)} == {lib.HF_HEAD_VERSION}
    role.start(None)


def replace_program(kind: str) -> Callable[[System], None]:
    def replace(system: System) -> None:
        system.roles[kind].kill()
        system.roles[kind].start(None)

    return replace


def replace_stores(system: System) -> None:
    for name in STORES:
        replace_store(system, name)
        system.goes_on()


ORDERS = [
    (replace_program("receiver"), replace_stores, replace_program("source")),
    (replace_program("source"), replace_stores, replace_program("receiver")),
    (replace_stores, replace_program("source"), replace_program("receiver")),
]


@pytest.mark.parametrize(
    "order", ORDERS, ids=["receiver-stores-source", "source-stores-receiver", "stores-source-receiver"]
)
def test_every_role_is_replaced_under_load(
    system: System, old: Path, order: tuple[Callable[[System], None], ...]
) -> None:
    for role in system.roles.values():
        role.start(old)
    system.goes_on()
    for step in order:
        step(system)
        system.goes_on()
    for name in STORES:  # while the source is there: the head of a log at rest has one page, as before
        until("its heads are new", lambda name=name: newest(system.heads(name)), system.alive)  # type: ignore[misc]
    for kind in ("source", "receiver"):
        if kind == "receiver":
            until("all is delivered", lambda: max(system.got()) == system.stable() - 1, system.alive)
        system.roles[kind].stop()
    delivered, last = system.got(), system.stable()
    assert delivered == {number: str(number) for number in range(last)}
    for name in STORES:
        system.roles[name].stop()
        report = check_store(system.where / f"store-{name}")
        assert [(log.findings, log.error) for log in report.logs] == [([], "")]


OPEN_IT = """
import os, sys
from holdfast._core import ffi, lib
config, log = ffi.new("struct hf_log_config *"), ffi.new("struct hf_log **")
ffi.memmove(config.uuid, bytes.fromhex(os.path.basename(sys.argv[1])), 16)
config.level = lib.HF_LEVEL_DISK
status = lib.hf_log_open(os.open(sys.argv[1], os.O_RDONLY), config, log)
sys.exit(ffi.string(lib.hf_status_name(status)).decode())
"""


def test_the_old_version_refuses_a_new_directory_and_changes_nothing(system: System, old: Path) -> None:
    for role in system.roles.values():
        role.start(None)
    system.goes_on()
    role = system.roles["a"]
    role.kill()
    (head,) = system.heads("a")
    before = content(head.parent)
    environment = {**os.environ, "PYTHONPATH": str(old)}
    done = subprocess.run(
        [sys.executable, "-c", OPEN_IT, str(head.parent)], env=environment, check=False, capture_output=True, text=True
    )
    assert done.stderr == "HF_LAYOUT\n"
    role.start(old)
    until("0.1.0 has started", lambda: len(role.said("of")) == 2, role.alive)
    role.stop()
    assert content(head.parent) == before
    role.start(None)
    system.goes_on()


def test_finished_sources_of_a_store_that_was_not_upgraded_stay_and_the_command_says_so(
    old: Path, start: Callable[..., Program], tmp_path: Path, own_domain: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """0.1.0 forgets one source at a time, whatever has come since somebody looked. And it hangs up at what it
    does not know: it was said not to run."""
    store = start("store", "run", "--name", "a", "--dir", str(tmp_path / "a"), PYTHONPATH=str(old))
    assert store.line("stderr").startswith("store a is ready: ")
    assert run("send", "quotes", stdin=b"1\n")[0] == 0
    until("it is stored", lambda: [row["state"] for row in stat()["sources"]] == ["stored"])
    finished = "store", "deregister", "--finished", "--older-than", "0s", "--force"
    for words in (("--dry-run",), ()):
        code, out, err = run(*finished, *words)
        assert (code, err) == (0, "")
        assert ": store a runs, and is of an older release, which cannot be asked: upgrade it; " in out
    found = candidates(domain := Domain(own_domain), 0, None, force=True)
    domain.close()
    monkeypatch.setattr(store_finished, "candidates", lambda *_, **__: [msgspec.structs.replace(found[0], keep="")])
    assert deregister_finished("0s", None, SHORT, None, force=True, dry_run=False) == 1
    assert "store a runs, and hangs up at this request: it is of an older release" in capsys.readouterr().err
    assert [row["topic"] for row in stat()["sources"]] == ["quotes"]
