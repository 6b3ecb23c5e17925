"""The streaming query as a registered receiver: it acknowledges what Spark has made durable, and shows in
``holdfast stat``.

It lives in the process that Spark keeps for the query's source, from the first question about offsets to the
end of that process. Spark does not always say when that is; then the process's death frees the session, and
the next run takes it over.

A refusal that lasts is an error of the query: two queries with one session would acknowledge each other's
messages. Anything else (a store that is down, or whose disk is full) is not: acknowledgements are cumulative,
and count when the stores are back. It is logged once.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING

from ..context import Context
from ..engine.errors import Error
from ..engine.receiver.ack_only import AckOnlyReceiver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .options import Options

__all__ = ["Session"]

_log = logging.getLogger("holdfast")

HELD_S = 20.0
"""How long a refusal is waited out: what Spark leaves behind of a killed driver dies within some seconds."""
ASKED_AGAIN_S = 2.0
"""A refusal that is not repeated within this time is over: while the store is asked again, it says
nothing."""
STORES_S = 5.0
"""How long the first question waits for stores that do not answer: none of its sources is registered
meanwhile."""
SLOW_S = 30.0
"""The same where a store has told of sources that are over: their logs are opened one after the other."""
LOOK_S = 0.02


class Session:
    """See the module. Opened by the first :meth:`join`; one thread.

    Raises:
        ConfigError: the domain or a configuration file is wrong.
    """

    def __init__(self, options: Options) -> None:
        assert options.session is not None
        self.context = Context(options.domain, session_id=options.session, name=options.query_name or "spark")
        alone = not options.assign  # two queries may share a topic if they share no source
        self.receiver = AckOnlyReceiver(self.context, *_selection(options), chosen=(), alone=alone)
        self._joined: set[bytes] = set()
        self._said: dict[bytes, int] = {}
        """What was acknowledged."""
        self._refused: tuple[Exception, float, float] | None = None
        """What a store says, since when, and when it last did (monotonic, seconds)."""
        self._trouble = ""
        """What was said last of what passes."""

    def join(self, sources: set[bytes]) -> None:
        """Registers with these sources (uuids), as far as their stores answer: the rest follows in the
        background.

        Raises:
            RegIdInUseError: another process holds the session, and has held it for HELD_S.
            RegistrationError: the stores refuse for another reason that lasts.
        """
        new = sources - self._joined
        self.receiver.choose(new)
        since, before = time.monotonic(), len(sources) + 1
        while True:
            missing = sources - self.receiver.acknowledged().keys()
            now = time.monotonic()
            if len(missing) < before:  # of thousands that are over, a few are registered at a time
                since, before = now, len(missing)
            patience = (SLOW_S if self.receiver.pending else STORES_S) if new else 0
            waits = self._is_refused(missing, now)
            self._say_trouble()
            if not missing or (not waits and now >= since + patience):
                break
            time.sleep(LOOK_S)
        self._joined |= sources
        if new & missing:
            _log.warning(
                "session %#x: no store answers yet for %d of its sources; their acknowledgements wait",
                self.context.session_id, len(new & missing),
            )  # fmt: skip

    def _is_refused(self, missing: set[bytes], now: float) -> bool:
        """A store has refused the registration with one of these sources, and may yet grant it. Raises when
        it will not."""
        refusal = self.receiver.refusal(missing)
        if refusal is not None:
            since = self._refused[1] if self._refused is not None else now
            self._refused = refusal, since, now
            if now >= since + HELD_S:
                raise refusal
        elif self._refused is not None and (not missing or now >= self._refused[2] + ASKED_AGAIN_S):
            self._refused = None
        return self._refused is not None

    def _say_trouble(self) -> None:
        trouble = self.receiver.trouble()
        kind = re.sub(r"\d+", "", trouble)  # what is free is another number at each try
        if trouble and kind != self._trouble:
            _log.warning(
                "session %#x: acknowledgements wait, and are tried again: %s", self.context.session_id, trouble
            )
            self._trouble = kind

    def acknowledge(self, below: Mapping[bytes, int]) -> None:
        """Everything below these numbers is durable: uuid of a source -> number. Never raises, never goes
        back."""
        try:
            for source, number in below.items():
                if number > self._said.get(source, 0):
                    self.receiver.acknowledge_below(source, number)
                    self._said[source] = number
        except (Error, OSError):
            _log.exception("session %#x: an acknowledgement failed; the next one covers it", self.context.session_id)

    def settle(self) -> None:
        """What was acknowledged is where it outlives this process, as far as the stores answer.

        A source that it is registered with has it at once. With one that is over it registers for that.
        """
        deadline, before = time.monotonic() + SLOW_S, self.receiver.pending if self._said else 0
        while before and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            pending = self.receiver.pending
            if pending < before:
                deadline, before = time.monotonic() + SLOW_S, pending

    def close(self) -> None:
        """Frees the session for its next life at once. Idempotent."""
        self.settle()
        self.context.close()


def _selection(options: Options) -> tuple[str | None, str | None]:
    """Topic and pattern of the receiver."""
    if options.subscribe_pattern:
        return None, options.subscribe_pattern
    topics = options.subscribe or tuple(options.assign or ()) or (options.topic,)
    if len(topics) == 1:
        return topics[0], None
    return None, r"\A(?:" + "|".join(map(re.escape, topics)) + r")\Z"
