"""Mutants of a rule: one operator of its text is another one."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from simulator.planting import ROOT, Patch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RULES", "Mutant", "mutants_of", "population"]

RULES = "engine/rules"
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
EXTREMES = {"min": "max", "max": "min"}
BOUND_MAX = 999
"""Greater constants are durations in nanoseconds and sizes of memory: one more of these is no other rule."""


class Mutant(NamedTuple):
    """One mutant."""

    path: str
    function: str
    """With its class; empty: of the module."""
    line: str
    """The text of the line on which the mutated expression begins."""
    mutation: str
    """The expression, an arrow, and what it becomes."""
    nth: int
    """Which one of several that are the same by all of the above."""
    number: int
    """Of the line."""
    planted: str
    """The whole text of the mutated file."""

    def __str__(self) -> str:
        return f"{self.path}:{self.number} {self.function}: {self.mutation}"

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """What it is known by, wherever its line has moved to."""
        return self[:5]

    @property
    def patch(self) -> Patch:
        """What planting.plant takes."""
        return Patch(self.path, (ROOT / self.path).read_text(), self.planted)


def population() -> list[Mutant]:
    """All mutants of all rules, in the order of the text."""
    paths = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / RULES).glob("*.py"))
    return [mutant for path in paths for mutant in mutants_of(path, (ROOT / path).read_text())]


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All mutants of one file. Raises SyntaxError: one of them does not compile."""
    whole = text.encode()  # columns of the tree are bytes
    lines = whole.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found: list[Mutant] = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for function, node in _expressions(ast.parse(text), ""):
        line_text = lines[node.lineno - 1].decode().strip()
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        for other in _others(node):
            mutation = f"{ast.unparse(node)} → {ast.unparse(other)}"
            planted = (whole[:begin] + f"({ast.unparse(other)})".encode() + whole[end:]).decode()
            compile(planted, path, "exec")
            same = function, line_text, mutation
            seen[same] += 1
            found.append(Mutant(path, *same, seen[same], node.lineno, planted))
    return found


def _expressions(node: ast.AST, function: str, *, initial: bool = False) -> Iterator[tuple[str, ast.expr]]:
    """All expressions that decide something, and the functions in which they are: no annotations, no texts,
    no ``__slots__``, and no constants that an attribute has at first, most of which nobody ever reads.
    ``initial``: those are set here."""
    if isinstance(node, ast.JoinedStr) or _is_slots(node):
        return
    if isinstance(node, ast.expr):
        yield function, node
    if _is_negative(node) or (initial and isinstance(node, ast.Assign | ast.AnnAssign) and _is_number(node.value)):
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
        initial = isinstance(node, ast.ClassDef) or node.name == "__init__"
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns"}:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _expressions(child, function, initial=initial)


def _is_number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) or _is_negative(node)


def _is_negative(node: ast.AST | None) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def _is_slots(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(to, ast.Name) and to.id == "__slots__" for to in node.targets
    )


def _others(node: ast.expr) -> Iterator[ast.expr]:
    """What this expression becomes: the same, with another operator."""
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                other = copy.copy(node)
                other.ops = [*ops[:place], COMPARISONS[type(operator)](), *ops[place + 1 :]]
                yield other
        case ast.Constant(value=value) if type(value) is int and value <= BOUND_MAX:
            yield ast.Constant(value + 1)
            if value > 0:  # what is counted is never negative
                yield ast.Constant(value - 1)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) is int:
            yield ast.Constant(1 - value)  # -1 is "none", or the last one; -2 is only another "none"
        case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
            called = copy.copy(node)
            called.func = ast.Name(EXTREMES[name])
            yield called
        case ast.BoolOp(op=joined, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(joined, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
