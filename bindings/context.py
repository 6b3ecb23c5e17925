"""The public Context: the engine's, with receivers that recycle their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine.context import Context as Driver
from .engine.options import resolve
from .receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .message import Message

__all__ = ["Context"]


class Context(Driver):
    """One domain as a program sees it. See CONTRACT.md, "Context, source"; ``with`` closes it and its children."""

    def receiver(
        self,
        topic: str | None = None,
        *,
        pattern: str | None = None,
        options: Mapping[str, object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        on_event: Callable[[Any], object] | None = None,
    ) -> Receiver:
        """A receiver of ``topic``, or of every topic that ``pattern`` (a Python regular expression) matches as a whole.

        Raises:
            ConfigError: a bad topic, pattern or option.
        """
        receiver = Receiver(
            self, topic, pattern, resolve("receiver", options or {}, self.options), on_message, on_event
        )
        self.add_receiver(receiver)
        return receiver
