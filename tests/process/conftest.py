"""Stores for tests, in a domain of each test's own."""

from __future__ import annotations

import asyncio
import importlib
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.changing_stores import received, sent
from support.command_line import Program
from support.limited_store import MOST, LimitedStore
from support.receiving import SHORT, source, until
from support.stalled_store import Scene
from support.whole_parts import check_parts

import holdfast as hf
from holdfast.engine.log import register
from holdfast.engine.receiver import leaving
from holdfast.engine.store import drainer, shelf
from holdfast.engine.store.holdings import Holdings
from holdfast.engine.store.store import Store, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

check_parts()


class ThreadStore:
    """A store that runs in this process: quick to start, and its state can be looked at. ``crashes``: it is
    to fail."""

    crashes = False

    def __init__(self, config: StoreConfig) -> None:
        self.store = Store(config)
        self.store.open()
        self._thread = threading.Thread(target=self.store.run)
        self._thread.start()
        self._closed = False

    def stop(self) -> None:
        """A clean stop; the directory is free afterwards. Idempotent. Fails where a thread of the store had
        failed."""
        if self._closed:
            return
        self._closed = True
        self.store.stop()
        self._thread.join()
        self.store.close()
        assert self.store.crashed == self.crashes, f"store {self.store.config.name}: a thread of it has failed"


@pytest.fixture(autouse=True)
def own_domain(domain: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every process test, and the processes that it starts, live in a domain of their own.

    In this process no log and no source is left for its age: on a busy machine a test takes longer. No
    store says that it stood still, and no disk of a register is taken for one that hangs.
    """
    monkeypatch.setenv("HOLDFAST_DOMAIN", domain)
    monkeypatch.setattr(shelf, "IDLE_NS", 1 << 62)
    monkeypatch.setattr(leaving, "IDLE_NS", 1 << 62)
    monkeypatch.setattr(drainer, "STILL_NS", 1 << 62)
    monkeypatch.setattr(register, "PATIENCE_S", SHORT)
    monkeypatch.setattr(register.SourceRegister.settle, "__defaults__", (SHORT,))
    return domain


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs a coroutine on an event loop of that kind."""
    with asyncio.Runner(loop_factory=importlib.import_module(request.param).new_event_loop) as runner:
        yield lambda work: runner.run(asyncio.wait_for(work, SHORT))


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[..., LimitedStore]]:
    started: list[LimitedStore] = []

    def begin(soft: int = MOST, hard: int = MOST) -> LimitedStore:
        started.append(LimitedStore(tmp_path, soft, hard))
        return started[-1]

    yield begin
    for store in started:
        store.process.terminate()
        store.process.wait(SHORT)


@pytest.fixture
def run_store(tmp_path: Path) -> Iterator[Callable[..., ThreadStore]]:
    """Starts stores; called again with one name after a stop, it is a restart. All are stopped at the end."""
    started: list[ThreadStore] = []

    def run(
        name: str = "a", kind: str = "memory", directory: str = "", aliases: tuple[str, ...] = (), **options: object
    ) -> ThreadStore:
        place = tmp_path / (directory or f"store-{name}")
        config = StoreConfig(name, place, type=kind, options=options, aliases=aliases)
        started.append(ThreadStore(config))
        return started[-1]

    yield run
    for store in started:
        store.stop()


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Starts programs; what still runs at the end is killed."""
    started: list[Program] = []

    def begin(*arguments: str, **more: Any) -> Program:
        started.append(Program(*arguments, **more))
        return started[-1]

    yield begin
    for program in started:
        program.process.kill()
        program.process.communicate()


@pytest.fixture
def scene(tmp_path: Path, own_domain: str) -> Iterator[Scene]:
    """A context, and a store process that can stand still."""
    with hf.Context(options={"ume_ack_batching_interval": 5}) as context:
        made = Scene(tmp_path, own_domain, context)
        try:
            yield made
        finally:
            made.store.discard()


@pytest.fixture
def wipe(tmp_path: Path) -> Callable[[str], None]:
    """Takes a store's directory away, under its name with a ``-gone``; a second call puts it back."""

    def move(name: str) -> None:
        here, there = tmp_path / f"store-{name}", tmp_path / f"store-{name}-gone"
        if there.exists():
            there.rename(here)
        else:
            here.rename(there)

    return move


@pytest.fixture
def ctx(run_store: Callable[..., ThreadStore]) -> Iterator[hf.Context]:
    """Beside a store; no timer acknowledges while a test goes on."""
    run_store()
    with hf.Context(options={"ume_ack_batching_interval": 60_000}) as context:
        yield context


@pytest.fixture
def src(ctx: hf.Context) -> hf.Source:
    """Of the topic quotes, with that store."""
    return source(ctx)


@pytest.fixture
def rcv(ctx: hf.Context, src: hf.Source) -> hf.Receiver:
    """Registered with it."""
    receiver = ctx.receiver("quotes")
    until("registered", lambda: receiver.stats().sources == 1)
    return receiver


@pytest.fixture
def registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the register of this test is."""
    monkeypatch.setattr(register, "register_directory", lambda _: tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def only_a_has_5_to_9(run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]) -> dict[str, ThreadStore]:
    """0..4 became stable on b and c, and a receiver has them; 5..9 on a and b. Then b is wiped: all three
    run, and neither b nor c has ever heard of a, which the source declares no more."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    assert sent("bc", 5) == 0
    received(0, 4)
    stores["c"].stop()  # or it would read on from b
    assert sent("ab", 5) == 5
    stores["b"].stop()
    wipe("b")
    return stores | {name: run_store(name, "disk") for name in "bc"}


@pytest.fixture
def only_a_has_5_to_9_and_is_away(only_a_has_5_to_9: dict[str, ThreadStore], wipe: Callable[[str], None]) -> None:
    """The same, and a's directory is somewhere else; ``wipe("a")`` brings it back."""
    only_a_has_5_to_9["a"].stop()
    wipe("a")


@pytest.fixture
def unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores whose logs a test hides for a while do not notice it: else they begin new ones after a
    second."""
    monkeypatch.setattr(Holdings, "let_go_removed", lambda _: set())
