"""A context that is closed by one thread while another one uses it: everything is closed, and nobody gets a
strange error."""

from __future__ import annotations

import threading

import pytest

import holdfast as hf

SHORT = 90.0
ROUNDS = 20
"""Each finds a context that closes too early with a chance of more than one half (seen when it did)."""


@pytest.mark.parametrize("kind", ["source", "smart_source", "receiver"])
def test_what_is_made_while_a_context_closes_is_refused_or_closed(kind: str) -> None:
    more = {"options": {"ring_size": 1 << 16}} if kind == "source" else {}  # it makes many until the context closes
    for _ in range(ROUNDS):
        ctx = hf.Context()
        made: list[hf.Source | hf.Receiver] = []
        some, over = threading.Event(), threading.Event()

        def make(
            ctx: hf.Context = ctx,
            made: list[hf.Source | hf.Receiver] = made,
            some: threading.Event = some,
            over: threading.Event = over,
        ) -> None:
            try:
                while not over.is_set():
                    made.append(getattr(ctx, kind)(f"topic-{len(made)}", **more))
                    some.set()
            except hf.ClosedError:
                return

        maker = threading.Thread(target=make)
        maker.start()
        assert some.wait(SHORT)
        ctx.close()
        over.set()
        maker.join(SHORT)
        assert made
        assert ctx.stats().sources == ctx.stats().receivers == 0, "nothing was left open"


def test_several_threads_may_close_a_context_at_once() -> None:
    for _ in range(ROUNDS):
        ctx = hf.Context()
        ctx.source("quotes")
        ctx.receiver("quotes")
        failed: list[BaseException] = []

        def close(ctx: hf.Context = ctx, failed: list[BaseException] = failed) -> None:
            try:
                ctx.close()
            except BaseException as error:
                failed.append(error)

        closers = [threading.Thread(target=close) for _ in range(4)]
        with ctx.turning():  # so that all of them are under way before one is done
            for closer in closers:
                closer.start()
        for closer in closers:
            closer.join(SHORT)
        assert not failed
        assert repr(ctx).endswith(" closed>")
