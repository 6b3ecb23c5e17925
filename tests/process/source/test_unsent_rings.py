"""A source that dies between the making of its ring and BEGIN: the ring goes, and nobody has to call
``holdfast gc``."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.receiving import until_no_ring

import holdfast as hf
from holdfast.engine.log.stale_rings import unlink_unsent
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

SHORT = 90.0
STOPS = """
import sys
import holdfast as hf
from holdfast.engine.control import wire

def begin(*_, **__):
    print("made", flush=True)
    sys.stdin.read()

wire.Begin = begin
with hf.Context(session_id=7) as ctx:
    ctx.source("quotes", options={"ume_store_name": ["a"], "ring_size": 1 << 17, "fragment_size": 4096}).wait_registered()
"""


@pytest.fixture
def halted(run_store: Callable[..., ThreadStore]) -> Iterator[subprocess.Popen[str]]:
    """A source that has made its ring and has not said BEGIN, and the store that has granted it."""
    run_store()
    process = subprocess.Popen([sys.executable, "-c", STOPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def domain_of(own_domain: str) -> Iterator[Domain]:
    domain = Domain(own_domain)
    yield domain
    domain.close()


def rings(domain: Domain) -> list[str]:
    return [item.name for item in domain.objects() if item.kind == "stream"]


def test_it_is_removed_when_its_source_is_dead_and_the_next_one_goes_on(
    halted: subprocess.Popen[str], domain_of: Domain
) -> None:
    assert len(rings(domain_of)) == 1
    halted.send_signal(signal.SIGKILL)
    halted.wait()
    until_no_ring(domain_of)
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options={"ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)
        assert src.send(b"first") == 0
        src.wait_stable(timeout=SHORT)


def test_it_stays_while_its_source_may_still_begin(halted: subprocess.Popen[str], domain_of: Domain) -> None:
    (item,) = [item for item in domain_of.objects() if item.kind == "stream"]
    halted.send_signal(signal.SIGSTOP)
    assert unlink_unsent(domain_of, {item.uuid: 0}) == []
    assert rings(domain_of) == [item.name]


def test_only_what_has_not_begun_here_and_has_nothing_in_it_goes(
    run_store: Callable[..., ThreadStore], domain_of: Domain
) -> None:
    store = run_store()
    with hf.Context() as ctx:
        for messages, begun, removed in ((1, 0, False), (0, 1, False), (0, 0, True)):
            with ctx.source("quotes", options={"ume_store_name": ["a"]}) as src:
                src.wait_registered(SHORT)
                for _ in range(messages):
                    src.send(b"one")
                store.stop()  # else it would take the ring away
            (item,) = [item for item in domain_of.objects() if item.kind == "stream"]
            assert unlink_unsent(domain_of, {item.uuid: begun}) == ([item.name] if removed else [])
            assert unlink_unsent(domain_of, {}) == []
            store = run_store()
            until_no_ring(domain_of)
