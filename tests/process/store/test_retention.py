"""What a store keeps of a source, by its limits: the oldest goes, and no more of it than there has to
(docs/semantics.md I.3)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from support.receiving import SESSION, source, take

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

LIMITS = {"disk": "repository-disk-file-size-limit", "memory": "repository-size-limit"}
LEAST = 196_992
"""The least that a limit may be."""


@pytest.mark.parametrize("kind", LIMITS)
def test_a_store_that_starts_again_keeps_what_is_below_its_limit(
    run_store: Callable[..., ThreadStore], kind: str
) -> None:
    """Each start begins a segment, which has its whole size from then on."""
    with hf.Context(session_id=SESSION) as ctx:
        for life in range(3):
            store = run_store("a", kind, **{LIMITS[kind]: LEAST})
            source(ctx, 5).close()
            assert life < 2 or take(ctx.receiver("quotes"), 15) == list(range(15))
            store.stop()


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("limit", [1 << 20, 3 << 20])
def test_a_store_keeps_most_of_its_limit_at_any_time(
    run_store: Callable[..., ThreadStore], kind: str, limit: int
) -> None:
    """Also when it has just begun a segment."""
    store = run_store("a", kind, **{LIMITS[kind]: limit})
    size, kept = 4096, []
    with hf.Context(session_id=SESSION) as ctx, source(ctx) as src:
        (repository,) = store.store.holdings.drainer.repositories.values()
        for number in range(4 * limit // size):
            src.send(b"x" * size)
            if number % 4 == 3:
                src.wait_stable(timeout=60)
                kept.append((repository.next_sqn - int(repository.info.oldest_sqn)) * size)
    assert min(kept[len(kept) // 2 :]) > limit // 2
    assert max(kept) <= limit


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("limit", [300_000, 1 << 20])
def test_a_store_keeps_most_of_its_limit_where_it_takes_much_at_once(
    run_store: Callable[..., ThreadStore], kind: str, limit: int
) -> None:
    """A block that is as large as a segment, or larger, would let all others go."""
    drainer = run_store("a", kind, **{LIMITS[kind]: limit}).store.drainer
    size, kept = 4096, []
    with hf.Context(session_id=SESSION) as ctx, source(ctx, ring_size=1 << 20) as src:
        (repository,) = drainer.repositories.values()
        for _ in range(4 + 4 * limit // (50 * size)):
            goes_on, stands = threading.Event(), threading.Event()

            def stand(stands: threading.Event = stands, goes_on: threading.Event = goes_on) -> None:
                stands.set()
                goes_on.wait()

            holder = threading.Thread(target=drainer.call, args=(stand,))
            holder.start()
            stands.wait()
            for _ in range(50):
                src.send(b"x" * size)
            goes_on.set()
            holder.join()
            src.wait_stable(timeout=60)
            kept.append((repository.next_sqn - int(repository.info.oldest_sqn)) * size)
    assert min(kept[len(kept) // 2 :]) > limit // 2
    assert max(kept) <= limit


@pytest.mark.parametrize("kind", LIMITS)
def test_what_a_large_message_leaves_of_a_segment_does_not_count(
    run_store: Callable[..., ThreadStore], kind: str
) -> None:
    """Two of them do not fit into one segment."""
    store = run_store("a", kind, **{LIMITS[kind]: 1 << 20})
    with hf.Context(session_id=SESSION) as ctx, source(ctx) as src:
        for _ in range(40):
            src.send(bytes(65_000), timeout=60)
            src.wait_stable(timeout=60)
        (repository,) = store.store.drainer.repositories.values()
        kept = (repository.next_sqn - int(repository.info.oldest_sqn)) * 65_000
    assert (1 << 20) * 3 // 4 < kept <= 1 << 20


@pytest.mark.parametrize("kind", LIMITS)
def test_a_file_is_as_large_as_the_message_in_it(run_store: Callable[..., ThreadStore], kind: str) -> None:
    """And no larger, where that is more than an eighth of the limit."""
    store = run_store("a", kind, **{LIMITS[kind]: 1 << 20})
    with hf.Context(session_id=SESSION) as ctx:
        with source(ctx) as src:
            for _ in range(4):
                src.send(bytes(200_000), timeout=60)
            src.wait_stable(timeout=60)
        store.stop()
        store = run_store("a", kind, **{LIMITS[kind]: 1 << 20})
        with source(ctx) as src:
            src.send(b"one more")
            src.wait_stable(timeout=60)
            (repository,) = store.store.drainer.repositories.values()
            assert int(repository.info.oldest_sqn) == 0


def test_a_store_that_keeps_everything_has_few_files(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "memory", **{"repository-size-threshold": 0, "repository-size-limit": 1 << 30})
    with hf.Context(session_id=SESSION) as ctx, source(ctx) as src:
        for _ in range(100):
            src.send(bytes(40_000), timeout=60)
        src.wait_stable(timeout=60)
        (repository,) = store.store.drainer.repositories.values()
        assert repository.info.segments < 5
