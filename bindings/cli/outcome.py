"""How a run of the command ends: its exit code, and one line for every error instead of a traceback.

``HOLDFAST_DEBUG=1`` shows the traceback. SIGINT and SIGTERM unwind the stack, so that handles are closed, and
end in 128 + n.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING

import typer

from ..engine.errors import Error, UsageError
from ..engine.printable import printable
from .app import app
from .asked import asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["command", "run"]

CLICK_ERROR = next(cls for cls in typer.BadParameter.__mro__ if cls.__name__ == "ClickException")
"""Typer has brought a click of its own since 0.2x; older ones use the package."""
GC_OBJECTS = 100_000


class Interrupted(BaseException):
    """A signal asked us to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def _interrupt(number: int, _: object) -> None:
    raise Interrupted(number)


@contextlib.contextmanager
def _unwinding() -> Iterator[None]:
    """Owns SIGINT and SIGTERM meanwhile, and gives them back: a program may call us, too."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [
        number for number, handler in before.items() if handler != signal.SIG_IGN
    ]  # ignored by who started us, as nohup does
    for number in ours:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in ours:
            if before[number] is not None:  # not installed from Python: there is no putting it back
                signal.signal(number, before[number])


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Of a domain with thousands of sources, most of a command's time would go into collections of garbage
    that find nothing. A program that calls us has its own setting back."""
    before = gc.get_threshold()
    gc.set_threshold(GC_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(argv: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    try:
        with _unwinding(), _few_collections():
            return _told(argv)
    except Interrupted as stop:
        return 128 + stop.number


def _told(argv: Sequence[str]) -> int:
    """Runs it, and tells every error."""
    debug = bool(os.environ.get("HOLDFAST_DEBUG"))
    try:
        return _run(argv)
    except (BrokenPipeError, SystemExit):  # what click makes of a broken pipe
        # The reader has what it wanted; nothing more goes out, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Error as error:
        if debug:
            traceback.print_exc()
        excerpt = getattr(error, "excerpt", "")
        return _say(f"{error.args[0]}\n{excerpt}" if excerpt else str(error.args[0]), error.hint, error.exit_code)
    except Exception as error:
        if isinstance(error, CLICK_ERROR):
            return _usage(error)
        if debug:
            traceback.print_exc()
        if isinstance(error, OSError):
            return _say(str(error), "", 1)
        return _say(f"{type(error).__name__}: {error}", "this is a bug: HOLDFAST_DEBUG=1 shows where", 1)


def command(argv: Sequence[str]) -> int:
    """As :func:`run`, for a program: signals are left alone, and errors are raised. UsageError: wrong
    arguments."""
    try:
        return _run(argv)
    except Exception as error:
        if isinstance(error, CLICK_ERROR):
            raise UsageError(str(error.format_message())) from None  # type: ignore[attr-defined]
        raise


def _run(argv: Sequence[str]) -> int:
    code = typer.main.get_command(asked(app, argv)).main(list(argv), prog_name="holdfast", standalone_mode=False)
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _usage(error: Exception) -> int:
    """Wrong arguments. Without any there is no error to tell, only the help."""
    message = str(error.format_message())  # type: ignore[attr-defined]
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message, file=sys.stderr)
        return 2
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "holdfast"
    return _say(message, f"{command} --help", 2)


def _say(message: str, hint: str, code: int) -> int:
    for line in f"error: {message}".split("\n"):  # with an excerpt there are several
        print(printable(line), file=sys.stderr)
    if hint:
        print(f"hint: {printable(hint)}", file=sys.stderr)
    return code
