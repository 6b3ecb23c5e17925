"""One list of the core's C files: what ``find`` gives is linted, compiled, linked, counted, fuzzed,
benchmarked and shipped.

A list that is kept beside it goes empty when a folder moves, and nothing else fails: a lint that reads
nothing, a stale extension. make is asked what it would do (``-n -B``), so the lists are those of its
commands.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from setuptools import Distribution

from perf.harness import bench_files

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "csrc"))

import build_core  # noqa: E402
from fuzz.plant import CSRC, PLANTED, planted  # noqa: E402
from support.failpoints import failpoints  # noqa: E402

MARK = "/* cffi: begin */"
NOT_IN_THE_PRODUCT = {"csrc/base/failpoint.c"}
VARIANTS = ["plain", "asan", "tsan", "reach", "quick", "cov"]
_DEFINED = re.compile(r"^\w[\w *]*?\b(hf_\w+|PyInit_\w+)\([^;{}]*\)\n\{", re.MULTILINE)


@functools.cache
def tree() -> frozenset[str]:
    """Every C file of csrc."""
    found = subprocess.run(["find", "csrc", "-name", "*.[ch]"], cwd=ROOT, capture_output=True, text=True, check=True)
    return frozenset(found.stdout.split())


def core() -> set[str]:
    """The sources of the core: without those of csrc/python."""
    return {name for name in tree() if name.endswith(".c") and not name.startswith("csrc/python/")}


def make(*arguments: str) -> str:
    """What make prints. It is a run of its own, also where these tests are run by make."""
    outer = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    done = subprocess.run(["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout


@functools.cache
def commands(target: str) -> list[str]:
    """What make would run to make ``target`` anew."""
    return make("-n", "-B", target).replace("\\\n", " ").splitlines()


def command(target: str, part: str) -> list[str]:
    """The words of the last command that has ``part`` in it."""
    return [line for line in commands(target) if part in line][-1].split()


def objects(target: str, variant: str) -> list[str]:
    """Sources of csrc whose objects of this variant are linked into ``target``, each as often as it is."""
    begin = f"build/c/{variant}/csrc/"
    words = command(target, f" -o {target}")
    return sorted(f"csrc/{word[len(begin) : -2]}.c" for word in words if word.startswith(begin) and word.endswith(".o"))


def test_the_tree_has_what_is_looked_for() -> None:
    assert tree() > {"csrc/base/layout.h", "csrc/stream/reader.c", "csrc/log/reader.c", "csrc/python/slot.c"}
    assert len(core()) > 40
    assert tree() >= NOT_IN_THE_PRODUCT


def test_lint_reads_all_but_the_tables_that_are_set_by_hand() -> None:
    read = {word for word in command("lint", "clang-format") if re.search(r"\.[ch]$", word)}
    tables = {name for name in tree() if MARK in (ROOT / name).read_text()}
    assert {name for name in read if name.startswith("csrc/")} == tree() - tables
    others = {str(path.relative_to(ROOT)) for folder in ("tests", "perf") for path in (ROOT / folder).rglob("*.[ch]")}
    assert {name for name in read if not name.startswith("csrc/")} == others


def test_headers_that_cffi_reads_are_those_with_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = {name for name in tree() if MARK in (ROOT / name).read_text()}
    assert marked == {f"csrc/{name}.h" for name in build_core.HEADERS}
    assert build_core.declarations()
    for wrong in (build_core.HEADERS[:-1], (*build_core.HEADERS, "log/segment")):
        monkeypatch.setattr(build_core, "HEADERS", wrong)
        with pytest.raises(ValueError, match=r"store/drain|log/segment"):
            build_core.declarations()


def test_the_extensions_are_made_of_all_sources() -> None:
    assert set(build_core.sources("holdfast._core")) == core()
    assert set(build_core.sources("holdfast._core")) == set(build_core.sources("holdfast._core_fp"))
    kernel = {str(path.relative_to(ROOT)) for path in build_core.KERNEL.glob("*.c")}
    assert set(build_core.sources("holdfast._core_sim")) == core() | kernel
    assert set(build_core.sources("holdfast._receive")) == {name for name in tree() if name.endswith(".c")} - core()


@pytest.mark.parametrize("module", ["_core_fp", "_core_sim", "_receive"])
def test_the_built_extension_has_the_functions_of_each_source(module: str) -> None:
    found = next((ROOT / "bindings").glob(f"{module}.*.so"))
    listing = subprocess.run(["nm", found], capture_output=True, text=True, check=True).stdout
    there = {line.split()[-1] for line in listing.splitlines()}
    for name in [each for each in build_core.sources(module) if each.startswith("csrc/")]:
        defined = set(_DEFINED.findall((ROOT / name).read_text()))
        assert defined, f"{name} defines nothing that this test knows"
        assert defined & there, f"{name} is not in {found.name}"


def test_the_extension_is_made_anew_when_any_file_changes() -> None:
    rules = make("-npq", "clean")
    found = re.search(r"^build/core\.stamp:(.*)$", rules, re.MULTILINE)
    assert found
    kernel = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/simulator/kernel").glob("*.[ch]")}
    assert {word for word in found[1].split() if word.endswith((".c", ".h"))} == tree() | kernel
    found = re.search(r"^build/py-asan/none/_receive\.abi3\.so:(.*)$", rules, re.MULTILINE)
    assert found
    assert {word for word in found[1].split() if word.endswith((".c", ".h"))} == tree()
    found = re.search(r"^build/fuzz/planted/%\.c:(.*)$", rules, re.MULTILINE)
    assert found
    assert {word for word in found[1].split() if word.endswith(".c")} == core()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_c_test_is_linked_with_all_of_the_core(variant: str) -> None:
    assert objects(f"build/c/{variant}/test_board", variant) == sorted(core())


@pytest.mark.parametrize(
    ("kind", "variant"),
    [("asan", "asan"), ("planted", "asan"), ("reach", "reach"), ("quick", "quick"), ("planted-quick", "quick")],
)
def test_a_fuzz_target_is_linked_with_all_of_the_core(kind: str, variant: str) -> None:
    assert objects(f"build/fuzz/{kind}/stream", variant) == sorted(core())


def test_libfuzzer_is_given_all_of_the_core() -> None:
    assert {word for word in command("fuzz-long", "-max_total_time") if word.startswith("csrc/")} == core()


def test_the_sanitized_extension_is_linked_with_all_of_the_core() -> None:
    target = "build/py-asan/_core.abi3.so"
    assert objects(target, "asan") == sorted(core())


def test_coverage_counts_all_that_is_in_the_product() -> None:
    words = command("coverage", "gcovr")
    left_out = [after for word, after in itertools.pairwise(words) if word == "--exclude"]
    counted = {name for name in objects("build/c/cov/test_board", "cov") if name.startswith("csrc/")}
    assert words[words.index("--filter") + 1].strip("'") == "csrc/"
    assert {
        name for name in counted if not any(re.match(each, name) for each in left_out)
    } == core() - NOT_IN_THE_PRODUCT
    assert len(left_out) == len(NOT_IN_THE_PRODUCT), "what is left out is there"


def test_the_benchmarks_are_linked_with_all_of_the_core() -> None:
    linked = {str(path.relative_to(ROOT)) for path in bench_files(".c")}
    assert {name for name in linked if name.startswith("csrc/")} == core()
    assert linked - core() == {str(path.relative_to(ROOT)) for path in (ROOT / "perf").rglob("*.c")}
    headers = {str(path.relative_to(ROOT)) for path in bench_files(".h")}
    assert headers >= {name for name in tree() if name.endswith(".h") and not name.startswith("csrc/python/")}


def test_the_source_distribution_has_every_file() -> None:
    shipped = set(build_core.BuildCore(Distribution()).get_source_files())
    assert {name for name in shipped if name.endswith((".c", ".h"))} == tree()
    assert {"csrc/build_core.py", "csrc/generate.py", "csrc/README.md"} <= shipped


def test_each_planted_bug_lies_in_a_source_of_the_core() -> None:
    assert {f"csrc/{bug.file}" for bug in PLANTED.values()} <= core()
    for target, bug in PLANTED.items():
        assert planted(target) != (CSRC / bug.file).read_text()


def test_every_failpoint_has_a_role_or_a_reason() -> None:
    pattern = re.compile(r'HF_FAIL(?:_STATUS)?\("([a-z]+\.[a-z_]+)"\)')
    there = {name for path in core() for name in pattern.findall((ROOT / path).read_text())}
    named = {name for name, _ in failpoints()}
    assert len(there) > 40
    elsewhere = {"fill", "head", "renew", "rest", "tally"}
    told = {name for name in there if name.partition(".")[0] in elsewhere} - {"head.pwrite"}
    assert there - named == told
