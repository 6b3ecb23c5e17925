"""What ``help()``, ``dir()`` and tab completion show of the public classes: what the guide documents, and
examples that run."""

from __future__ import annotations

import doctest
import pydoc
import re
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.engine import shown

ROOT = Path(hf.__file__).resolve().parent.parent
GUIDE = "".join((ROOT / name).read_text() for name in ("README.md", "bindings/README.md", "docs/semantics.md"))
CLASSES = [hf.Context, hf.Source, hf.SmartSource, hf.Receiver, hf.Message, hf.Batch, hf.Claim]


def names(of: object) -> list[str]:
    """What tab completion offers."""
    return [name for name in dir(of) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [*CLASSES, shown.Shown], ids=lambda kind: kind.__name__)
def test_the_examples_of_a_class_run(kind: type) -> None:
    (test,) = doctest.DocTestFinder(recurse=False).find(kind, kind.__name__, globs={})
    assert test.examples
    out: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(test, out=out.append)
    assert not out, "".join(out)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_what_is_shown_is_in_the_guide_and_is_documented(kind: type) -> None:
    unknown = [name for name in names(kind) if not re.search(rf"\b{name}\b", GUIDE)]
    assert not unknown, "the guide has no word of them"
    for name in names(kind):
        assert getattr(kind, name, kind).__doc__ or f"{name}:" in str(kind.__doc__), f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_help_shows_that_and_nothing_of_the_engine(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    assert ">>> import holdfast as hf" in text
    shown_there = set(re.findall(r"^ \|  (\w+)\(", text, re.MULTILINE)) - {kind.__name__}
    assert {name for name in shown_there if not name.startswith("_")} <= {*names(kind), "__new__"}
    assert names(kind)


def test_objects_show_what_their_class_shows() -> None:
    with hf.Context() as ctx:
        src, rcv = ctx.source("quotes"), ctx.receiver("quotes")
        for made in (ctx, src, rcv, ctx.smart_source("other")):
            assert dir(made) == dir(type(made))
        assert len(names(rcv)) < 12
        assert not rcv.receiving, "what is not shown is there"


def test_a_smart_source_shows_no_way_that_it_refuses() -> None:
    assert not [name for name in names(hf.SmartSource) if name.startswith("send")]
    assert "claim" in names(hf.SmartSource)
