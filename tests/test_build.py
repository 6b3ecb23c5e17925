"""What is built and generated from csrc is what is committed and what is shipped."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FAILPOINT = re.compile(r'HF_FAIL(?:_STATUS)?\("([^"]+)"\)')


def built(name: str) -> Path:
    found = sorted((ROOT / "bindings").glob(f"{name}.*.so"))
    assert len(found) == 1, f"make setup builds exactly one {name}: {found}"
    return found[0]


def symbols(path: Path) -> set[str]:
    listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listing.splitlines()}


def failpoint_names() -> set[str]:
    return {name for path in (ROOT / "csrc").rglob("*.c") for name in FAILPOINT.findall(path.read_text())}


def test_the_stub_and_the_format_tables_are_current() -> None:
    check = [sys.executable, "csrc/generate.py", "--check"]
    done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_test_build_has_failpoints() -> None:
    assert "hf_failpoint" in symbols(built("_core_fp"))
    assert "hf_failpoint" not in symbols(built("_core"))


def test_names_of_failpoints_are_in_the_test_build_alone() -> None:
    names = failpoint_names()
    assert names, "csrc names no failpoint: is the pattern of this test still right?"
    release, test = built("_core").read_bytes(), built("_core_fp").read_bytes()
    assert [name for name in sorted(names) if name.encode() + b"\0" not in test] == []
    assert [name for name in sorted(names) if name.encode() + b"\0" in release] == []


@pytest.mark.parametrize(("variable", "module"), [(None, "holdfast._core"), ("", "holdfast._core_fp")])
def test_the_environment_chooses_the_build(monkeypatch: pytest.MonkeyPatch, variable: str | None, module: str) -> None:
    if variable is None:
        monkeypatch.delenv("HOLDFAST_FAILPOINTS", raising=False)
    else:
        monkeypatch.setenv("HOLDFAST_FAILPOINTS", variable)
    code = "import sys, holdfast.engine.native.core; print(*(m for m in sys.modules if m.startswith('holdfast._core')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.removesuffix(".lib") for name in done.stdout.split()} == {module}


def test_exported_symbols_are_the_module_alone() -> None:
    listing = subprocess.run(["nm", "-D", "--defined-only", built("_core")], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert {name for name in exported if name.startswith("hf_")} == set()
    assert "PyInit__core" in exported


def test_a_wheel_made_from_the_source_distribution_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    def build(what: str, folder: Path) -> str:
        code = f"from setuptools import build_meta; print(build_meta.build_{what}({str(tmp_path)!r}))"
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()[-1]

    for listed in ROOT.glob("*.egg-info/SOURCES.txt"):  # what an earlier build shipped would be shipped again
        listed.unlink()
    with tarfile.open(tmp_path / build("sdist", ROOT)) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked_source = next(path for path in tmp_path.iterdir() if path.is_dir())
    shipped = {path.relative_to(unpacked_source) for path in (unpacked_source / "csrc").rglob("*.[ch]")}
    assert shipped == {path.relative_to(ROOT) for path in (ROOT / "csrc").rglob("*.[ch]")}
    wheel = build("wheel", unpacked_source)
    assert "-cp311-abi3-linux" in wheel
    with zipfile.ZipFile(tmp_path / wheel) as unpacked:
        packed = {name for name in unpacked.namelist() if ".dist-info/" not in name}
    wanted = {f"holdfast/{path.relative_to(ROOT / 'bindings')}" for path in (ROOT / "bindings").rglob("*.py*")}
    wanted |= {f"holdfast/engine/{path.relative_to(ROOT / 'engine')}" for path in (ROOT / "engine").rglob("*.py")}
    wanted = {name.replace("holdfast/spark/shim/", "pyspark_holdfast/") for name in wanted}
    assert packed == {name for name in wanted if "__pycache__" not in name} | {
        "holdfast/_core.abi3.so",
        "holdfast/_receive.abi3.so",
        "holdfast/py.typed",
    }
