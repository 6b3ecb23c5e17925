"""Calls the program's callbacks, and what becomes of an exception that one of them raises."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..options.resolve import Options

__all__ = ["CallbackErrors"]

_log = logging.getLogger("holdfast")


class CallbackErrors:
    """Of one context. ``name``: the context's, for the log; ``options``: those of objects that have none of
    their own."""

    def __init__(self, name: str, options: Options) -> None:
        self._name, self._options = name, options
        self.count = 0
        """Exceptions that callbacks have raised."""
        self._kept: BaseException | None = None

    def call(self, function: Callable[[Any], object], argument: object, options: Options | None = None) -> None:
        """Calls the program for an object with these options."""
        try:
            function(argument)
        except Exception as error:
            self.failed(error, options)

    def failed(self, error: BaseException, options: Options | None = None) -> None:
        """A callback raised: it is counted, logged, and with ``callback_errors`` ``raise`` kept for whoever
        waits.

        Only the first is kept until somebody has got it.
        """
        self.count += 1
        if isinstance(error, StopIteration | StopAsyncIteration):  # which would end the loop of who gets it
            text, error.__traceback__ = repr(error), None
            error = RuntimeError(f"a callback raised {text}")
        if (options if options is not None else self._options).callback_errors == "raise":
            self._kept = self._kept or error
        _log.error("a callback of %s raised", self._name, exc_info=error)

    @property
    def kept(self) -> bool:
        """Something is kept for whoever waits."""
        return self._kept is not None

    def raise_kept(self) -> None:
        """Raises what is kept, once."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with contextlib.suppress(AttributeError):  # it has a number of its own then, or no room for one
                kept.of_callback = True  # type: ignore[attr-defined]
            raise kept
