"""The public Context: the engine's, with configuration files, and with receivers that recycle their
messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .config import Configuration
from .engine.client.context import Context as Driver
from .engine.options.resolve import as_given
from .limited_receiver import LimitedReceiver
from .receiver import Receiver

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from .message import Message

__all__ = ["Context"]


class Context(Driver):
    """One domain as a program sees it; ``with`` closes it and its children.

    Args:
        domain: its name, or the absolute path of its directory; default $HOLDFAST_DOMAIN, else ``default``.
        session_id: of its sources and receivers that have none of their own.
        name: UM's context_name; also chooses the ``<context>`` of an XML file.
        application: chooses the ``<application>`` of an XML file.
        config: path of a UM configuration file, flat or XML. The files that UM's environment variables name
            hold as well.
        options: go before any file.

    Raises:
        ConfigError: a bad name or option, or a configuration that cannot be read; ``file``, ``line``,
            ``column`` say where.
        ForeignOwnerError: the domain's directory is not ours alone.
    """

    def __init__(
        self,
        domain: str | None = None,
        session_id: int | str | None = None,
        *,
        name: str | None = None,
        application: str | None = None,
        config: str | os.PathLike[str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.application = application
        named = name if name is not None else as_given("context", options).get("context_name")
        defaults = Configuration(config, application, named if isinstance(named, str) else None)
        super().__init__(domain, session_id, name=name, options=options, defaults=defaults)

    def receiver(
        self,
        topic: str | None = None,
        *,
        pattern: str | None = None,
        options: Mapping[str, object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        on_event: Callable[[Any], object] | None = None,
    ) -> Receiver:
        """A receiver of ``topic``, or of every topic in which ``pattern`` is found (how: ``pattern_type``).

        Raises:
            ConfigError: a bad topic, pattern or option.
        """
        found = self.options_for(
            "receiver", options, topic if pattern is None else pattern, wildcard=pattern is not None
        )
        kind = LimitedReceiver if found.ume_application_outstanding_maximum else Receiver
        receiver = kind(self, topic, pattern, found, on_message, on_event)
        self.add_receiver(receiver)
        return receiver
