"""The public Context: the engine's, with configuration files, and with receivers that recycle their
messages."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

from .config import Configuration
from .engine.client.context import Context as Driver
from .engine.client.process_role import tell_unclosed
from .engine.options.resolve import as_given
from .engine.receiver.start import check_start
from .engine.shown import Shown
from .limited_receiver import LimitedReceiver
from .receiver import Receiver

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from .engine.events import ReceiverEvent
    from .message import Message

__all__ = ["Context"]


class Context(Shown, Driver):
    """One domain as a program sees it; ``with`` closes it and its children.

    >>> import holdfast as hf
    >>> with hf.Context(session_id=42) as ctx:
    ...     src, rcv = ctx.source("quotes"), ctx.receiver("quotes")
    ...     src.wait_registered(timeout=10)
    ...     number = src.send(b"101.5", timeout=10)
    ...     with rcv.receive(timeout=10) as msg:
    ...         print(number, bytes(msg))
    0 b'101.5'

    Sources, receivers and stores of one domain, in any process of this host, find each other by topic. A
    thread of the context's own does what is due; callbacks run there.

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

    _shown = ("close", "poll", "receiver", "smart_source", "source", "stats")

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
        self._made = True

    def __del__(self) -> None:
        if getattr(self, "_made", False) and not (self._loop.closing or self.forked or sys.is_finalizing()):
            tell_unclosed(self)

    def receiver(
        self,
        topic: str | None = None,
        *,
        pattern: str | None = None,
        options: Mapping[str, object] | None = None,
        on_message: Callable[[Message], object] | None = None,
        on_event: Callable[[ReceiverEvent], object] | None = None,
        start: Literal["earliest", "latest"] | int | datetime | None = None,
        reset: bool = False,
    ) -> Receiver:
        """A receiver of ``topic``, or of every topic in which ``pattern`` is found (how: ``pattern_type``).

        ``start`` says where it begins with each source with which its session has no position yet::

            ctx.receiver("quotes", start="latest")  # what is published from now on
            ctx.receiver("quotes", start="earliest")  # all that stores keep
            ctx.receiver("quotes", start=1000)  # number 1000 of each source, or the oldest behind it
            ctx.receiver("quotes", start=datetime.now(timezone.utc) - timedelta(hours=1))

        A number or a time that lies ahead means "latest". With ``reset`` a session that has a position goes
        to ``start``, too. What it goes back over is delivered again. What it skips is acknowledged by the
        program's next acknowledgement, or by ``acknowledge_skipped()``; else the next start has it.

        Raises:
            ConfigError: a bad topic, pattern, option or start; a datetime without a time zone; ``reset``
                without ``start``; ``start`` beside ``ume_recovery_sequence_number_info_function``, or beside
                ``use_late_join`` 0 or ``ume_use_store`` 0 unless it is "latest".
        """
        found = self.options_for(
            "receiver", options, topic if pattern is None else pattern, wildcard=pattern is not None
        )
        kind = LimitedReceiver if found.ume_application_outstanding_maximum else Receiver
        chosen = check_start(start, found, reset=reset)
        receiver = kind(self, topic, pattern, found, on_message, on_event, chosen)
        self.add_receiver(receiver)
        return receiver
