"""As whom ``holdfast send`` sends: repeated runs of one user go on with one source per topic.

Without that each run would leave a source of its own at the stores, for good, and no order would hold between
the messages of two runs.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.errors import RegIdInUseError, RegistrationError, RegistrationTimeout
from .lines import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engine.client.context import Context
    from ..engine.options.resolve import Options
    from ..engine.source.source import Source

__all__ = ["Identity", "identity", "session_of"]

PREFIX = 0x5E4D << 48
"""Begins every session ID that is worked out here: far from the small numbers, and the times, that users
choose."""

_ELSE = "or send as somebody else: --session N, 0 for a source of this run alone"


def session_of(uid: int, topic: str) -> int:
    """The session ID that a user's sources on ``topic`` have in all runs."""
    digest = hashlib.blake2b(b"%d\0%s" % (uid, os.fsencode(topic)), digest_size=6, person=b"holdfast.send").digest()
    return PREFIX | int.from_bytes(digest)


def identity(topic: str, options: Options, *, named: bool, exclusive: bool) -> Identity:
    """The identity of a run whose source has ``options``. ``named``: the user says which session, or none.
    A session ID or RegIDs of a configuration name one as well."""
    named = named or bool(options.ume_session_id) or any(store.registration_id for store in options.stores)
    return Identity(topic, 0 if named else session_of(os.getuid(), topic), exclusive)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends on ``topic``."""

    topic: str
    session: int
    """0: as the options say."""
    exclusive: bool
    """Nobody else is sent as while somebody holds it."""

    def source(self, context: Context, given: Mapping[str, object], timeout: float) -> Source:
        """A source that may send. While a living process holds the identity it is one without: a line on
        stderr says so.

        Raises:
            RegIdInUseError: held, and it was to be exclusive, or the user has named it.
            RegistrationError, RegistrationTimeout: as ``Source.wait_registered``, with what to do.
        """
        if not self.session:
            return _registered(context, self.topic, given, timeout)
        try:
            return _registered(context, self.topic, {**given, "ume_session_id": self.session}, timeout)
        except RegIdInUseError as held:
            if self.exclusive:
                held.hint = "end that process; without --exclusive messages go out beside it, under a fresh identity"
                raise
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(held.since))
            holder = f"process {held.pid} holds the identity of {self.topic!r} since {since}"
            say(f"{holder}: sending under a fresh one, in no order with its messages", error=True)
        except RegistrationTimeout as late:
            late.hint = (
                f"{self._before()}: start the stores that are named, or give up what only a lost one has (holdfast store "
                f"exclude NAME), {_ELSE}"
            )
            raise
        except RegistrationError as refused:
            refused.hint = (
                f"{self._before()}: name stores and options that go with theirs, or give up what a store has of them "
                f"(holdfast store deregister NAME --source REGID), {_ELSE}"
            )
            raise
        return _registered(context, self.topic, given, timeout)

    def _before(self) -> str:
        return f"it goes on from earlier runs, which sent as session {self.session:#x}"


def _registered(context: Context, topic: str, given: Mapping[str, object], timeout: float) -> Source:
    source = context.source(topic, options=given)
    try:
        source.wait_registered(timeout)
    except BaseException:
        source.close()  # or it goes on asking
        raise
    return source
