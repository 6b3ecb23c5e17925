"""What code, comments and documents refer to is there: sections by number, files, headings, links.

A reader has the repository and nothing else. So each reference leads to something in it, and what is moved or
renamed takes its references along. A rule is a function from a file's name and text to what it breaks; each
is shown to bite on planted violations.
"""

from __future__ import annotations

import ast
import glob
import io
import re
import textwrap
import tokenize
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Rule = Callable[[str, str], list[str]]

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("bindings", "engine", "csrc", "tests", "perf", "docs")
KINDS = {".py", ".pyi", ".c", ".h", ".pml", ".md", ".mk"}
C_KINDS = {".c", ".h", ".pml"}
HERE = "tests/test_references.py"
"""It has references that lead nowhere, to show that they are found."""


class Place(NamedTuple):
    """A piece of prose: a comment, a docstring, a paragraph."""

    line: int
    text: str
    """White space and what comments begin with is one space."""
    docstring: bool = False


# Prose of a file --------------------------------------------------------------------------------------------


def flat(text: str) -> str:
    """A comment over several lines as one line."""
    return " ".join(re.sub(r"^\s*(?:#+|\*+(?!\*)|//+)?\s?", "", line).strip() for line in text.split("\n"))


def python_prose(text: str) -> Iterator[Place]:
    """Comments, and strings that stand alone: docstrings, also of attributes."""
    comment: list[str] = []
    start, end = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != end + 1 and comment:
            yield Place(start, flat("\n".join(comment)))
            comment = []
        start = start if comment else token.start[0]
        comment, end = [*comment, token.string], token.start[0]
    if comment:
        yield Place(start, flat("\n".join(comment)))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Place(node.lineno, " ".join(node.value.value.split()), docstring=True)


def c_prose(text: str) -> Iterator[Place]:
    for found in re.finditer(r"/\*.*?\*/|//[^\n]*(?:\n\s*//[^\n]*)*", text, re.DOTALL):
        inside = found[0].removeprefix("/*").removesuffix("*/")
        yield Place(text.count("\n", 0, found.start()) + 1, flat(inside))


def text_prose(text: str) -> Iterator[Place]:
    """Paragraphs."""
    for found in re.finditer(r"(?:[^\n]*\S[^\n]*\n?)+", text):
        yield Place(text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()))


def make_prose(text: str) -> Iterator[Place]:
    for found in re.finditer(r"^[ \t]*#[^\n]*(?:\n[ \t]*#[^\n]*)*", text, re.MULTILINE):
        yield Place(text.count("\n", 0, found.start()) + 1, flat(found[0]))


@cache
def prose(name: str, text: str) -> tuple[Place, ...]:
    suffix = Path(name).suffix
    if suffix in {".py", ".pyi"}:
        return tuple(python_prose(text))
    if suffix in C_KINDS:
        return tuple(c_prose(text))
    return tuple(text_prose(text) if suffix == ".md" else make_prose(text))


# What there is ----------------------------------------------------------------------------------------------

KEY = r"(?:[A-Z](?:\.\d+)?(?: \d+)?|\d+)"
HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)"></a>')


BLOCK = re.compile(r"^(```+)[^\n]*\n.*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)


def outside_code(text: str) -> str:
    """A page without its blocks of code; the lines stay."""
    return BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)


def titles(text: str) -> list[str]:
    """Headings of a page without their anchors."""
    return [ANCHOR.sub("", found[1]).strip() for found in HEADING.finditer(outside_code(text))]


def anchors(text: str) -> set[str]:
    """What may stand behind ``#``: as GitHub makes it from a heading, and what a page names itself."""
    made: set[str] = set()
    for title in titles(text):
        words = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        slug, again = words, 0
        while slug in made:
            again += 1
            slug = f"{words}-{again}"
        made.add(slug)
    return made | set(ANCHOR.findall(outside_code(text)))


@cache
def keys(path: Path) -> frozenset[str]:
    """Numbers of a page's headings: ``D.6``, ``13``, ``N 29``."""
    found = (re.match(rf"({KEY}) \S", title) for title in titles(path.read_text()))
    return frozenset(each[1] for each in found if each)


# Rules ------------------------------------------------------------------------------------------------------

BETWEEN = r"(?:,? and |, | to |-)"
CITATION = re.compile(rf"(docs/\w+\.md) ({KEY}(?:{BETWEEN}{KEY}(?![\w]))*)(?![\w])")


def wrong_numbers(name: str, text: str) -> list[str]:
    """``docs/X.md N`` names a heading with that number; so does each number that follows: ``A.2 to A.4,
    B.5``."""
    wrong = []
    for place in prose(name, text):
        for found in CITATION.finditer(place.text):
            target = ROOT / found[1]
            known = keys(target) if target.is_file() else frozenset()
            cited = re.findall(rf"(?:^|{BETWEEN})({KEY})(?=$|{BETWEEN})", found[2].replace("-", " to "))
            wrong += [f"{place.line}: {found[1]} has no {number}" for number in cited if number not in known]
    return wrong


def wrong_sections(name: str, text: str) -> list[str]:
    """Bare numbers in the pages that have them; and a numbered heading has its number as its anchor."""
    if name not in {"docs/semantics.md", "docs/design.md"}:
        return []
    lines = text.split("\n")
    numbered = {line: found[1] for line, each in enumerate(lines, 1) if (found := re.match(rf"#+ ({KEY}) \S", each))}
    known, letters = set(numbered.values()), {number[0] for number in numbered.values()}
    wrong = [
        f"{line}: {number} has not its number as its anchor"
        for line, number in numbered.items()
        if ANCHOR.findall(lines[line - 1]) != [number.replace(" ", ".")]
    ]
    for line, each in enumerate(lines, 1):
        bare = re.findall(r"(?<![\w.#])([A-Z]\.\d+)(?![\w.]*\w)", ANCHOR.sub("", each))
        wrong += [f"{line}: there is no {number}" for number in bare if number[0] in letters and number not in known]
    return wrong


LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


def wrong_links(name: str, text: str) -> list[str]:
    """``[...](path#anchor)`` of a page leads to a file, and to a heading in it."""
    if not name.endswith(".md"):
        return []
    wrong = []
    shown = re.sub(r"`[^`\n]+`", lambda found: "`" * len(found[0]), outside_code(text))
    for found in LINK.finditer(shown):
        if re.match(r"\w+:", found[1]):
            continue
        line = shown.count("\n", 0, found.start()) + 1
        path, _, anchor = found[1].partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        if not target.exists():
            wrong.append(f"{line}: there is no {path}")
        elif anchor and target.suffix == ".md":
            there = anchors(target.read_text() if path else text)
            wrong += [f"{line}: {path or name} has no #{anchor}"] if anchor not in there else []
    return wrong


NAMED = re.compile(r"(?<![\w/.<-])((?:engine|csrc|tests|perf|bindings|docs)/[\w./*\[\]{},-]*)")
SUFFIXES = (".py", ".pyi", ".c", ".h", ".md", ".pml", ".json", ".jsonl", ".sh", ".[ch]")


def exists(path: str) -> bool:
    """With ``*``, ``[ch]`` and ``{a,b}`` as a shell has them; a module may go without its suffix."""
    choice = re.search(r"\{([^{}]*)\}", path)
    if choice:
        return all(exists(path.replace(choice[0], each, 1)) for each in choice[1].split(","))
    return bool(glob.glob(path, root_dir=ROOT) or glob.glob(f"{path}.*", root_dir=ROOT))


def wrong_paths(name: str, text: str) -> list[str]:
    """Paths from the root that comments and pages name are there; of tests/ and perf/ directories, too."""
    wrong = []
    for place in prose(name, text):
        for found in NAMED.finditer(place.text):
            path = re.sub(r"(?:[.,\-]|\.\.\.)+$", "", found[1])
            if place.text[found.end() :].startswith("<"):  # perf/results/<machine>.json
                continue
            if path.count("[") != path.count("]") or path.count("{") != path.count("}"):
                path = re.split(r"[\[\]{}]", path)[0]
            if path.endswith(SUFFIXES) or path.startswith(("tests/", "perf/")) or path.endswith("/"):
                wrong += [] if exists(path.rstrip("/")) else [f"{place.line}: there is no {path}"]
    return wrong


HEADED = re.compile(r'\b([\w/]+\.md), "([^"]+)"')


def wrong_headings(name: str, text: str) -> list[str]:
    """``X.md, "Heading"`` in code: the page has it."""
    wrong = []
    for place in prose(name, text) if not name.endswith(".md") else []:
        for path, heading in HEADED.findall(place.text):
            if (ROOT / path).is_file() and heading not in titles((ROOT / path).read_text()):
                wrong.append(f"{place.line}: {path} has no heading {heading!r}")
    return wrong


OUTSIDE = re.compile(
    r"um_semantics|\bDESIGN(?:\.md\b|'s| (?=\d|decides))|\bCONTRACT\b|\bHOUSE\b|\breference/\w+\.md|\b\w+\.md §"
)


def wrong_documents(name: str, text: str) -> list[str]:
    """No document is cited that is not in the repository."""
    return [f"{place.line}: {found}" for place in prose(name, text) for found in OUTSIDE.findall(place.text)]


SEE = re.compile(r"\b[Ss]ee (?:also )?[^.;:()]{0,60}?(\b[\w/]+\.md\b|\b(?:docs|tests|csrc|perf)/\w+)")


def wrong_advice(name: str, text: str) -> list[str]:
    """A docstring of bindings/ sends nobody to a page that ``pip install`` does not bring."""
    if not name.startswith("bindings/") or not name.endswith(".py"):
        return []
    return [
        f"{place.line}: see {found}"
        for place in prose(name, text)
        if place.docstring
        for found in SEE.findall(place.text)
    ]


RULES: list[Rule] = [
    wrong_numbers, wrong_sections, wrong_links, wrong_paths, wrong_headings, wrong_documents, wrong_advice,
]  # fmt: skip


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in KINDS]
    found += [*sorted(ROOT.glob("*.md")), ROOT / "Makefile"]
    return [path for path in found if path.is_file() and str(path.relative_to(ROOT)) != HERE]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_reference_leads_somewhere(rule: Rule) -> None:
    found = {}
    for path in files():
        name = str(path.relative_to(ROOT))
        if wrong := rule(name, path.read_text()):
            found[name] = wrong
    assert found == {}


def test_there_are_references_to_look_at() -> None:
    """A rule whose pattern matches nothing would pass for ever."""
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files()}
    places = [place.text for name, text in texts.items() for place in prose(name, text)]
    assert sum(len(NAMED.findall(text)) for text in places) > 300
    assert sum(len(LINK.findall(text)) for name, text in texts.items() if name.endswith(".md")) > 100
    assert sum(len(CITATION.findall(text)) for text in places) > 30
    assert len(keys(ROOT / "docs" / "semantics.md")) > 60
    assert keys(ROOT / "docs" / "design.md") >= {str(number) for number in range(1, 34)}


BROKEN = "docs/semantics.md" + " "
PLANTED: list[tuple[Rule, str, str, int]] = [
    (wrong_numbers, "engine/x.py", f'"""A rule ({BROKEN}D.66)."""\n', 1),
    (wrong_numbers, "engine/x.py", f'"""Rules ({BROKEN}A.2 to A.4, B.55, D.6 and E.99)."""\n', 2),
    (wrong_numbers, "engine/x.py", f"# over two lines ({BROKEN.strip()}\n# D.66): so\n", 1),
    (wrong_numbers, "engine/x.py", f'"""Told ({BROKEN}N 28)."""\n', 1),
    (wrong_numbers, "csrc/x.h", "/* Rules (docs/design.md 3-7, 16, 99),\n * each with its test. */\n", 1),
    (wrong_numbers, "tests/models/x.pml", "/* a\n * Mirrors: docs/design.md 13 and 77; more */\n", 1),
    (wrong_numbers, "engine/x.py", '"""No such page (docs/nothing.md 3)."""\n', 1),
    (wrong_numbers, "perf/README.md", "By docs/design.md 40 it is so.\n", 1),
    (wrong_sections, "docs/semantics.md", "## A Objects\n", 1),
    (wrong_sections, "docs/semantics.md", '## A Objects <a id="B"></a>\n', 1),
    (wrong_sections, "docs/semantics.md", '## A Objects <a id="A"></a>\n\nThe rule of A.9 holds.\n', 1),
    (wrong_links, "README.md", "[gone](docs/nothing.md)\n", 1),
    (wrong_links, "README.md", "[gone](docs/design.md#99)\n", 1),
    (wrong_links, "docs/design.md", "[gone](#nowhere)\n", 1),
    (wrong_links, "docs/design.md", "[gone](README.md)\n", 1),
    (wrong_links, "README.md", "[a [b] c](nothing/at/all)\n", 1),
    (wrong_paths, "engine/x.py", "# as engine/nothing.py has it\n", 1),
    (wrong_paths, "engine/x.py", '"""See csrc/nothing.h, and csrc/base/layout.h."""\n', 1),
    (wrong_paths, "engine/x.py", 'A = 1\n"""Of tests/nothing."""\n', 1),
    (wrong_paths, "csrc/x.c", "// tests/c/test_{log,nothing}.c\n", 1),
    (wrong_paths, "Makefile", "# perf/nothing does it\nall:\n", 1),
    (wrong_paths, "README.md", "`tests/unit/test_nothing.py` and `csrc/nothing_*.c`\n", 2),
    (wrong_headings, "engine/x.py", '# bindings/README.md, "Nothing of the kind"\n', 1),
    (wrong_documents, "engine/x.py", '"""A rule (um_semantics D.6; DESIGN 13)."""\n', 2),
    (wrong_documents, "engine/x.py", '"""See CONTRACT.md, and HOUSE."""\n', 2),
    (wrong_documents, "csrc/x.h", "/* DESIGN\n * 13 says so */\n", 1),
    (wrong_documents, "README.md", "reference/spark.md §2 has it\n", 1),
    (wrong_advice, "bindings/x.py", 'def f() -> None:\n    """Does it. See docs/design.md 13."""\n', 1),
    (wrong_advice, "bindings/x.py", '"""See also the page README.md."""\n', 1),
]  # fmt: skip
FINE: list[tuple[Rule, str, str]] = [
    (wrong_numbers, "engine/x.py", f'"""Rules ({BROKEN}A.2 to A.4, B.1, step 7; docs/design.md 12 to 14, 30)."""\n'),
    (wrong_numbers, "engine/x.py", f'"""{BROKEN}N 29, K, columns "net" and "Default". {BROKEN.strip()} Says."""\n'),
    (wrong_numbers, "README.md", "What docs/design.md says, docs/semantics.md has.\n"),
    (wrong_links, "README.md", "[a](docs/design.md#13) [b](https://x.org/y) [c](#try-it) `[d](none)`\n\n# Try it\n"),
    (wrong_links, "docs/design.md", "```\n[x](none)\n```\n"),
    (wrong_paths, "README.md", "engine/README.md, tests/c/test_*.c, csrc/base/*.[ch], perf/results/<machine>.json, build/x.c\n"),
    (wrong_documents, "tests/support/stores_process.py", "HOUSE = 1\nprint(HOUSE)\n"),
    (wrong_documents, "engine/x.py", "# by design, and of the house\n"),
    (wrong_advice, "bindings/x.py", '"""A store (docs/semantics.md I.6). See Context."""\n'),
    (wrong_advice, "engine/x.py", '"""See docs/design.md 13."""\n'),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "name", "text", "count"), PLANTED)
def test_a_planted_reference_is_found(rule: Rule, name: str, text: str, count: int) -> None:
    assert len(rule(name, text)) == count, rule(name, text)


@pytest.mark.parametrize(("rule", "name", "text"), FINE)
def test_a_good_reference_is_let_be(rule: Rule, name: str, text: str) -> None:
    assert rule(name, text) == []


def test_prose_is_read_over_its_line_ends() -> None:
    python = '# one\n# two\nA = 1  # three\n"""four\nfive"""\n'
    assert [place.text for place in prose("x.py", python)] == ["one two three", "four five"]
    assert [place.text.split() for place in prose("x.c", "/* one\n * two */ int a; // three\n")] == [
        ["one", "two"],
        ["three"],
    ]
    page_text = textwrap.dedent("""\
        one
        two

        three
        """)
    assert [place.line for place in prose("x.md", page_text)] == [1, 4]
