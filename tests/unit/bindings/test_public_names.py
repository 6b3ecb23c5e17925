"""The public names of the package: each is there, and is imported when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import holdfast as hf

ERRORS = {"holdfast", "holdfast.version", "holdfast.engine", "holdfast.engine.errors", "holdfast.engine.printable"}
"""What ``import holdfast`` brings: every program may meet an error."""


def loaded(code: str) -> set[str]:
    """Modules of the package that a program has imported."""
    code = f"import sys\n{code}\nprint(*(name for name in sys.modules if name.partition('.')[0] == 'holdfast'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_import_brings_the_errors_and_no_more() -> None:
    assert loaded("import holdfast") == ERRORS


@pytest.mark.parametrize("name", hf.__all__)
def test_each_name_is_there(name: str) -> None:
    found = getattr(hf, name)
    assert isinstance(found, ModuleType) == (name == "events")
    assert getattr(found, "__name__", "").rpartition(".")[2] == name
    assert getattr(hf, name) is found


def test_a_program_gets_them_in_each_way() -> None:
    every = f"assert set({hf.__all__!r}) <= set(globals())"
    assert loaded(f"from holdfast import *\n{every}") > ERRORS
    assert loaded("import holdfast\nholdfast.events.MessageStable") > ERRORS
    assert loaded("from holdfast import Context, events") > ERRORS
    assert loaded(f"import holdfast\nassert set({hf.__all__!r}) <= set(dir(holdfast))") == ERRORS


def test_another_name_is_none() -> None:
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Kontext'"):
        _ = hf.Kontext
    with pytest.raises(ImportError):
        from holdfast import Kontext  # noqa: F401
