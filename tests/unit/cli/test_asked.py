"""A command line makes the parser of its own verb alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer

from holdfast.cli.app import app
from holdfast.cli.asked import asked

if TYPE_CHECKING:
    from collections.abc import Iterator


def command_of(*argv: str) -> Any:
    return typer.main.get_command(asked(app, argv))


def verbs(command: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """Every verb of a command, those of its groups and of theirs included."""
    for name, each in getattr(command, "commands", {}).items():
        yield (*before, name)
        yield from verbs(each, *before, name)


WHOLE = sorted(verbs(typer.main.get_command(app)))


def text_of(command: Any, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    code = command.main([*argv, "--help"], prog_name="holdfast", standalone_mode=False)
    return code, capsys.readouterr().out


def test_there_are_verbs() -> None:
    assert {("stat",), ("doctor",), ("store",), ("store", "run"), ("pipeline", "audit")} <= set(WHOLE)
    assert len(WHOLE) > 20


@pytest.mark.parametrize("argv", WHOLE, ids=" ".join)
def test_it_has_one_verb_which_is_as_in_the_whole(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    whole, part = typer.main.get_command(app), command_of(*argv, "--json")
    below = [verb for verb in WHOLE if verb[: len(argv)] == argv]
    assert sorted(verbs(part)) == sorted({*below, *(argv[:end] for end in range(1, len(argv)))})
    assert text_of(part, argv, capsys) == text_of(whole, argv, capsys)


@pytest.mark.parametrize("argv", [(), ("--help",), ("--version", "stat"), ("stats",), ("",)], ids=" ".join)
def test_what_begins_with_no_verb_has_all(argv: tuple[str, ...]) -> None:
    assert sorted(verbs(command_of(*argv))) == WHOLE


def test_a_group_without_a_verb_of_its_own_has_all_of_its_verbs() -> None:
    assert sorted(verbs(command_of("store", "--help"))) == [verb for verb in WHOLE if verb[0] == "store"]


def test_the_next_command_of_the_same_process_has_its_own_verb() -> None:
    assert list(verbs(command_of("stat"))) == [("stat",)]
    assert list(verbs(command_of("doctor"))) == [("doctor",)]
