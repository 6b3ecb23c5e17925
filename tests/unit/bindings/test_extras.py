"""What is not installed is named, with the extra that brings it, where it is first needed; also by who
imports it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.extras import needed, required

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("module", "extra"), [("pyspark.sql", "spark"), ("pyarrow", "spark"), ("matplotlib.figure", "plot")]
)
def test_what_an_import_lacks_is_named_with_what_brings_it(module: str, extra: str) -> None:
    name = module.partition(".")[0]
    with pytest.raises(hf.MissingExtraError, match=f"needs {name}") as caught, needed():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert caught.value.hint == f"pip install 'holdfast[{extra}]'"
    assert (caught.value.name, caught.value.extra, caught.value.code) == (name, extra, "HF_EXTRA")
    assert (caught.value.exit_code, caught.value.retriable) == (2, False)
    assert isinstance(caught.value, hf.ConfigError | ImportError)


def test_another_module_is_pythons_to_name() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), needed():
        raise ModuleNotFoundError("No module named 'holdfast.no_such_module'", name="holdfast.no_such_module")


def test_what_is_there_is_not_imported_to_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    required("pyarrow")
    monkeypatch.setitem(sys.modules, "pyarrow", type(sys)("pyarrow"))  # made by hand
    required("pyarrow")


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("import holdfast.spark", "pyspark"),
        ("import holdfast.spark", "pyarrow"),
        ("from holdfast.channel import ShmChannel; ShmChannel('features')", "pyarrow"),
    ],
)
def test_without_its_extra_a_module_says_which(tmp_path: Path, program: str, module: str) -> None:
    """A fresh interpreter in which nobody can find the module."""
    hidden = (
        "import importlib.util as u, sys\n"
        "find = u.find_spec\n"
        f"u.find_spec = lambda name, *more: None if name == {module!r} else find(name, *more)\n"
    )
    caught = "try:\n    {}\nexcept ImportError as error:\n    print(repr(error.name), error)\n"
    code = hidden + caught.format(program)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{module!r} HF_EXTRA: this needs {module}")
    assert "pip install 'holdfast[spark]'" in done.stdout
