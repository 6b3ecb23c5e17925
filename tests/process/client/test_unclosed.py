"""What a program forgets to close is told, with the line of the program that made it."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from pathlib import Path

SHORT = 90


def said(tmp_path: Path, text: str) -> list[str]:
    """What a program says of what it has not closed."""
    path = tmp_path / "program.py"
    path.write_text(text)
    command = [sys.executable, "-W", "default::ResourceWarning", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=SHORT, check=True)
    assert "Traceback" not in run.stderr, run.stderr
    return [line.partition("ResourceWarning: ")[2] for line in run.stderr.splitlines() if "ResourceWarning" in line]


def dropped(make: str, ctx: hf.Context) -> list[str]:
    """The warnings of a source that nobody has any more."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(ctx, make)("quotes")
        gc.collect()
    return [str(each.message) for each in caught if each.category is ResourceWarning]


@pytest.mark.parametrize("make", ["source", "smart_source"])
def test_a_source_that_is_dropped(ctx: hf.Context, make: str) -> None:
    line = dropped.__code__.co_firstlineno + 4
    (text,) = dropped(make, ctx)
    assert text == (
        f"source quotes, made at {__file__}:{line}, was not closed: it stays registered until its context is closed"
    )
    assert ctx.stats().sources == 1, "it is as it was"


def test_one_that_is_closed_is_not_told_of(ctx: hf.Context) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ctx.source("quotes").close()
        with ctx.source("quotes"):
            pass
        with hf.Context() as other:
            kept = other.source("quotes")
        assert "closed" in repr(kept)
        del kept
        gc.collect()


def test_nor_one_that_is_deregistered(ctx: hf.Context) -> None:
    src = ctx.source("quotes", options={"ume_store_name": ["a"]})
    src.wait_registered(SHORT)
    src.deregister()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del src
        gc.collect()


def test_a_context_that_the_program_polls_is_told_of_when_it_is_dropped() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hf.Context(name="polled", options={"operational_mode": "sequential"})
        gc.collect()
    (text,) = [str(each.message) for each in caught if each.category is ResourceWarning]
    assert text.startswith(f"context polled, made at {__file__}:")


def test_code_without_a_name_makes_things(ctx: hf.Context) -> None:
    exec("ctx.source('quotes').close()", {"ctx": ctx, "__name__": None})


def test_nor_one_that_could_not_be_made(ctx: hf.Context) -> None:
    with pytest.raises(hf.ConfigError):
        ctx.source("quotes", options={"ring_size": 1})
    gc.collect()


def test_a_context_that_is_open_when_the_program_ends(tmp_path: Path) -> None:
    made = "import holdfast as hf\nctx = hf.Context(name='feed')\nsrc = ctx.source('quotes')\n"
    told = f"context feed, made at {tmp_path}/program.py:2, was not closed: "
    told += "stores hold its registrations until they see that it is gone"
    assert said(tmp_path, made) == [told], "of its sources nothing: they end with it"
    assert said(tmp_path, f"{made}del ctx, src\n")[-1] == told, "its thread keeps it"
    assert said(tmp_path, f"{made}ctx.close()\n") == []
    assert said(tmp_path, f"import atexit\n{made}atexit.register(ctx.close)\n") == []


def test_a_forked_child_says_nothing_of_what_is_its_parents(tmp_path: Path) -> None:
    program = """
import os
import holdfast as hf
with hf.Context() as ctx:
    src = ctx.source("quotes")
    child = os.fork()
    if not child:
        del src, ctx
        raise SystemExit  # by way of what a program does at its end
    assert os.waitpid(child, 0)[1] == 0
"""
    assert said(tmp_path, program) == []
