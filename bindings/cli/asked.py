"""The part of an app that a command line asks for. Typer makes a parser of each verb that an app has, with a
type adapter for each of its arguments, though one verb runs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer import Typer
    from typer.models import CommandInfo, TyperInfo

__all__ = ["asked"]


def asked(app: Typer, argv: Sequence[str]) -> Typer:
    """The app with the verb alone that ``argv`` begins with; the whole app where it begins with none, as for
    ``--help`` and for a misspelt one."""
    word, rest = (argv[0], argv[1:]) if argv else ("", ())
    verbs = [verb for verb in app.registered_commands if _name(verb) == word]
    groups = [_narrowed(group, rest) for group in app.registered_groups if group.name == word]
    if not verbs and not groups:
        return app
    part = copy.copy(app)
    part.registered_commands, part.registered_groups = verbs, groups
    return part


def _name(verb: CommandInfo) -> str:
    return verb.name or (verb.callback.__name__ if verb.callback is not None else "")


def _narrowed(group: TyperInfo, argv: Sequence[str]) -> TyperInfo:
    part = copy.copy(group)
    if part.typer_instance is not None:
        part.typer_instance = asked(part.typer_instance, argv)
    return part
