"""tests/TABLE.md: the test of each module and of each rule."""

from __future__ import annotations

import re

import table


def test_the_table_is_what_the_tests_say() -> None:
    assert table.TABLE.read_text() == table.table(), "run: python tests/table.py"


def test_no_module_and_no_rule_is_without_a_test() -> None:
    rows = [line for line in table.table().splitlines() if line.startswith("| ") and line.endswith("|  |")]
    assert {row.split("|")[1].strip() for row in rows} == table.PLANNED


def test_every_test_that_is_named_beside_exists() -> None:
    named = {name for tests in table.BESIDE.values() for name in tests.split()}
    assert {name for name in named if not (table.TESTS / name).is_file()} == set()
    places = {entry for entry in table.BESIDE if " " not in entry}
    assert {place for place in places if not any(name.startswith(place) for name in table.modules())} == set()


def test_sections_are_found_in_the_ways_that_texts_cite_them() -> None:
    text = "(docs/semantics.md A.2 to A.4, B.1; docs/design.md 12 to 14) and docs/semantics.md G."
    assert table.cited(text) == {
        *(f"semantics {section}" for section in ("A.2", "A.3", "A.4", "B.1", "G")),
        *(f"design {section}" for section in ("12", "13", "14")),
    }


def test_a_module_of_its_own_name_comes_first() -> None:
    (row,) = re.findall(r"^\| `engine/rules/quorum.py` \| (.*) \|$", table.table(), re.MULTILINE)
    assert row.startswith("`unit/rules/test_quorum.py`")
