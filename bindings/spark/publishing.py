"""The sources that a write publishes from, open for one commit or one task.

Their session IDs are worked out from who publishes and the topic, so that whoever repeats a commit meets the
same source: it goes on where that ended. A source never gives up what is not stable: it blocks before it
would have to (docs/semantics.md D.2, D.6).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import time
from typing import TYPE_CHECKING, Any, Self

from ..context import Context
from ..engine.errors import ConfigError, NotRegisteredError, RegIdInUseError, RegistrationTimeout
from ..engine.log.catalog import topic_sources
from ..engine.native.private_directory import open_private, open_regular
from ..engine.options.values import SESSION_MAX
from .options import ENGINE, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ..engine.log.catalog import TopicSource
    from ..engine.source.source import Source
    from .options import Options

__all__ = ["Publisher", "session_of", "slot"]

FRAME_BYTES = 64
"""Of a fragment beyond its payload, at most: header, and padding to the granule (csrc/README.md)."""
REGISTRATION_MS = 500
"""How long all stores are waited for where a quorum is there (docs/semantics.md B.1), unless an option says
otherwise."""
OURS = {
    "ume_session_id": "it is worked out from the query and the topic",
    "ume_flight_size_behavior": "a write waits at the flight size",
    "ume_message_stability_lifetime": "commitTimeout is how long a commit waits; no message is given up",
}
"""Source options that a write sets itself, and why."""


def session_of(who: str, topic: str) -> int:
    """The session ID of the source that ``who`` publishes from into ``topic``."""
    digest = hashlib.blake2b(f"{who}\0{topic}".encode(), digest_size=8, person=b"holdfast.spark").digest()
    return int.from_bytes(digest) % SESSION_MAX + 1


@contextlib.contextmanager
def slot(directory: Path) -> Iterator[str]:
    """A name that nobody else has meanwhile, and that is used again afterwards: stores keep the state of
    every source.

    For writes that nobody goes on with. The lowest one whose lock file in ``directory`` is free.
    """
    at = open_private(directory)
    try:
        for number in itertools.count():
            fd = open_regular(directory / f"slot-{number}", os.O_RDWR | os.O_CREAT, at=at)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            try:
                yield f"slot-{number}"
            finally:
                os.close(fd)
            return
    finally:
        os.close(at)


class Publisher:
    """See the module. ``with`` closes it.

    ``who`` names the writer. Every wait ends after ``commit_timeout`` seconds without progress, with the
    error of what was waited for.
    """

    def __init__(self, options: Options, who: str) -> None:
        self._options = options
        self._who = who
        self._timeout = options.commit_timeout
        self._context = Context(options.domain)
        self._sources: dict[str, Source] = {}

    def open(self, topics: Iterable[str]) -> None:
        """Sources for these topics, registered when it returns: a quorum of stores has all that they ever
        published.

        Raises:
            ConfigError: no stores, or options that a write cannot have.
            RegistrationTimeout, RegistrationError: the stores do not answer, or refuse.
        """
        fresh = [topic for topic in topics if topic not in self._sources]
        for topic in fresh:
            self._sources[topic] = self._context.source(topic, options=self._given(topic))
        for topic in fresh:
            self._register(self._sources[topic])

    def _given(self, topic: str) -> dict[str, object]:
        given: dict[str, object] = dict(self._options.engine)
        for name, why in OURS.items():
            if name in given:
                raise OptionError(f"{ENGINE}{name} cannot be given: {why}")
        if names := self._options.stores:
            if clash := given.keys() & {"ume_store", "ume_store_name", "ume_store_group"}:
                raise OptionError(f"stores and {ENGINE}{min(clash)} exclude each other", hint="give one of them")
            given |= {"ume_store_name": [f"{name}:0:0" for name in names], "ume_store_group": [f"0:{len(names)}"]}
        given |= {
            "ume_session_id": session_of(self._who, topic),
            "ume_flight_size_behavior": "block",
            "ume_message_stability_lifetime": 0,
        }
        settled = self._context.options_for("source", given, topic)
        if not settled.stores:
            known = ",".join(self._context.domain.store_names()) or "a,b,c"
            raise OptionError("a write needs the stores that keep its messages", hint=f'option("stores", "{known}")')
        given.setdefault("ume_registration_interval", REGISTRATION_MS)
        limit = settled.retransmit_retention_size_limit
        if "ume_flight_size" not in given:
            given["ume_flight_size"] = max(1, limit // 4 // FRAME_BYTES)
            settled = self._context.options_for("source", given, topic)
        flight = settled.ume_flight_size_bytes + settled.ume_flight_size * FRAME_BYTES
        if not settled.ume_flight_size_bytes or flight > limit:
            raise ConfigError(
                f"a flight of {settled.ume_flight_size_bytes} bytes in {settled.ume_flight_size} fragments can outgrow "
                f"retransmit_retention_size_limit, {limit}: what is not stable would be given up",
                hint=f"lower ume_flight_size_bytes (0: no limit) and ume_flight_size, {FRAME_BYTES} bytes per fragment",
            )
        return given

    def _register(self, source: Source) -> None:
        """As ``wait_registered``; and waits for a holder that has to end first, such as the driver before
        this one."""
        deadline = time.monotonic() + self._timeout
        held: RegIdInUseError | None = None
        while True:
            try:
                source.wait_registered(max(0.0, deadline - time.monotonic()))
                return
            except RegIdInUseError as error:
                held = error
            except RegistrationTimeout:
                if held is not None:
                    raise held from None
                raise
            time.sleep(0.02)  # the source asks again by itself

    def position(self, topic: str) -> tuple[int, int]:
        """The number that the next message will carry, and bytes per fragment."""
        source = self._sources[topic]
        return source.next_sequence_number, int(source.options.fragment_size)

    def kept(self, topic: str) -> TopicSource | None:
        """What the stores keep of it; None where they keep no messages."""
        source, domain = self._sources[topic], str(self._context.domain.path)
        found = topic_sources(domain, wanted=topic.__eq__)
        return next((each for each in found if each.uuid == source.uuid.hex()), None)

    def admit(self, topic: str, size: int) -> None:
        """Raises MessageTooLargeError for a payload that can never be sent."""
        self._sources[topic].check_size(size)

    def send(self, topic: str, values: Any) -> None:
        """Publishes a pyarrow binary array, a message per element. A store that goes away is waited for, if
        it is needed."""
        source = self._sources[topic]
        done = 0
        while done < len(values):
            try:
                source.send_batch(values.slice(done), timeout=self._timeout)
                return
            except NotRegisteredError as error:
                done += error.sent or 0
            self._register(source)

    def wait_stable(self) -> None:
        """Returns when everything that was sent is stable. Raises StabilityTimeout."""
        for source in self._sources.values():
            source.wait_stable(timeout=self._timeout)

    def close(self) -> None:
        """Closes the sources: their session IDs are free."""
        self._context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
