"""Mutants of the rules (tests/mutants): every operator is found, the finder plants what is tried, and who
survives is reported."""

from __future__ import annotations

import pytest
from mutants.equal import EQUAL, Equal
from mutants.kill import suites
from mutants.mutate import Mutant, mutants_of, population
from mutants.verdict import wrong
from simulator.planting import ROOT, _Finder


@pytest.mark.parametrize(
    ("expression", "mutations"),
    [
        ("a < b", ["a < b → a <= b"]),
        ("a <= b", ["a <= b → a < b"]),
        ("a > b", ["a > b → a >= b"]),
        ("a >= b", ["a >= b → a > b"]),
        ("a == b", ["a == b → a != b"]),
        ("a != b", ["a != b → a == b"]),
        ("a is None", ["a is None → a is not None"]),
        ("a is not None", ["a is not None → a is None"]),
        ("a in b", ["a in b → a not in b"]),
        ("a not in b", ["a not in b → a in b"]),
        ("a < b <= c", ["a < b <= c → a <= b <= c", "a < b <= c → a < b < c"]),
        ("a + 1", ["1 → 2", "1 → 0"]),
        ("a[0]", ["0 → 1"]),
        ("a[-1]", ["-1 → 0"]),
        ("min(a, b)", ["min(a, b) → max(a, b)"]),
        ("max(a, key=b)", ["max(a, key=b) → min(a, key=b)"]),
        ("a and b and c", ["a and b and c → a or b or c"]),
        ("a or b", ["a or b → a and b"]),
        ("not a", ["not a → a"]),
        ("True, None, 1.5, 'a < 1', f'{a + 1}', 1_000", []),
    ],
)
def test_every_operator_is_found(expression: str, mutations: list[str]) -> None:
    assert [each.mutation for each in mutants_of("x.py", f"x = {expression}\n")] == mutations


def test_what_decides_nothing_is_left_alone() -> None:
    text = (
        '"""a < 1"""\nclass C:\n    """not 1"""\n\n    __slots__ = ("a", "b")[1:]\n    field: A[1] = 1\n\n'
        '    def f(self, a: B[1] = c) -> D[1]:\n        """1 < 2"""\n        log.info(f"{a + 1}")\n\n'
        "    def __init__(self) -> None:\n        self.a = self.b = -1\n        self.c: A[1] = 0\n"
    )
    assert mutants_of("x.py", text) == []


def test_a_mutant_is_the_text_with_one_operator_changed() -> None:
    text = "class C:\n    def é(self, a, b):\n        return 'é', a < b, 'é'  # why\n"
    (mutant,) = mutants_of("x.py", text)
    assert mutant.planted == text.replace("a < b", "(a <= b)")
    assert (mutant.function, mutant.line, mutant.number) == ("C.é", "return 'é', a < b, 'é'  # why", 3)


def test_the_same_twice_on_one_line_is_counted() -> None:
    assert [(each.mutation, each.nth) for each in mutants_of("x.py", "x = f(1, 1)\n")] == [
        ("1 → 2", 1), ("1 → 0", 1), ("1 → 2", 2), ("1 → 0", 2),
    ]  # fmt: skip


def test_the_finder_plants_a_mutant() -> None:
    path = "engine/rules/quorum.py"
    mutant = next(each for each in population() if (each.path, each.function) == (path, "quorum"))
    spec = _Finder([mutant.patch]).find_spec("holdfast.engine.rules.quorum")
    assert spec is not None
    assert spec.loader is not None
    source = spec.loader.get_source(spec.name)  # type: ignore[attr-defined]  # a SourceFileLoader
    assert source == mutant.planted != (ROOT / path).read_text()


def made(mutation: str, *, path: str = "x.py") -> Mutant:
    return Mutant(path, "f", "line", mutation, 1, 7, "")


def listed(mutant: Mutant) -> Equal:
    return Equal(mutant.path, mutant.function, mutant.line, mutant.mutation, "why", mutant.nth)


def test_a_survivor_is_reported_unless_it_is_listed() -> None:
    dead, alive = [made(f"{each} → 0") for each in range(99)], made("a → b")
    tried = {**dict.fromkeys(dead, "units"), alive: ""}
    assert wrong(tried, tried, []) == ["survives: x.py:7 f: a → b | line"]
    assert wrong(tried, tried, [listed(alive)]) == []


def test_a_listed_one_that_dies_or_is_no_mutant_is_reported() -> None:
    dead = made("a → b")
    assert wrong({dead: "seeds"}, [dead], [listed(dead)]) == ["is listed as equal, and dies: x.py:7 f: a → b"]
    (found,) = wrong({}, [dead], [listed(made("c → d"))])
    assert found.startswith("is listed as equal, and is no mutant of the text: ")


def test_too_many_that_are_equal_are_reported() -> None:
    equal = [made(f"{each} → 0") for each in range(3)]
    tried = {**dict.fromkeys([made(f"{each} → 1") for each in range(97)], "limit"), **dict.fromkeys(equal, "")}
    assert wrong(tried, tried, [listed(each) for each in equal]) == ["3 of 100 survive: at least 98% must die"]


def test_the_list_of_equal_ones_fits_the_text() -> None:
    assert wrong({}, population(), EQUAL) == []
    assert all(each.why for each in EQUAL)


def test_the_tests_of_a_module_come_first() -> None:
    own, others = suites("engine/rules/quorum.py")
    assert own[0].endswith("unit/rules/test_quorum.py")
    assert not set(own) & set(others)
    assert any(test.endswith("unit/rules/test_resting.py") for test in others)
