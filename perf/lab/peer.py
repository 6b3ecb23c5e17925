"""What an adapter of a product gives to the workloads: two ends, for messages or for a log."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .data import Check, Messages

Level = Literal["memory", "disk"]
"""What a log's acknowledgement means: no sync per commit; or a sync before each acknowledgement."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one measurement takes place. Its ``folder`` is new, on the medium that the level asks for."""

    folder: Path
    size: int
    """Bytes of a message's payload, at most."""
    core: int | None = None
    """Of the receivers and servers; None: not pinned."""
    receivers: int = 1
    level: Level = "memory"
    roomy: bool = True
    """Whether limits and buffers are raised to the measurement's size; else they are the product's
    defaults."""


def no_such_call(*_: object) -> Any:
    """What a product does not have. Raises NotImplementedError."""
    raise NotImplementedError("this product has no such call")


@dataclass(frozen=True, slots=True)
class Sender:
    """One end, in the measuring process. It waits where the product's flow control says so."""

    send: Callable[[bytes], object]
    """One message. A log's: one commit of one message."""
    send_many: Callable[[Messages], object] = no_such_call
    """Some messages by one call, where the product has such a call (``batches``). A log's: one commit."""
    finish: Callable[[], object] = lambda: None
    """Returns when everything is handed over. A log's: acknowledged at its level."""
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Receiver:
    """The other end, in another process. Both calls wait."""

    receive: Callable[[], Any] = no_such_call
    """The next message's payload, a buffer that is valid until the next call. Not a log's."""
    take: Callable[[Check], int] = no_such_call
    """Read some messages by one call and have them checked; returns how many they were."""
    close: Callable[[], object] = lambda: None


class Peer:
    """A product in one topology. The measuring process starts and stops it; then it travels to the processes
    of the receivers.

    Attributes:
        name: its column. ``needs``: Python module or program -> the package that brings it.
        ours: whether it is holdfast. ``bare``: not a product, but what a product cannot beat.
        batches: whether a line of messages has calls for many at once.
        least_bytes: the smallest message that it is for.
        in_flight: whether a log has further commits under way while one is not yet acknowledged. That is
            another promise than to answer for each, so it has a comparison of its own.
        servers: process IDs of what it runs beside the two ends.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[tuple[str, str], ...]] = ()
    ours: ClassVar[bool] = False
    bare: ClassVar[bool] = False
    batches: ClassVar[bool] = False
    least_bytes: ClassVar[int] = 0
    in_flight: ClassVar[bool] = False
    levels: ClassVar[tuple[Level, ...]] = ("memory", "disk")
    """Of a log."""

    def __init__(self) -> None:
        self.servers: list[int] = []

    @classmethod
    def available(cls) -> str | None:
        """None, or what is missing and the package that brings it."""
        absent = [f"{what} is missing: {package}" for what, package in cls.needs if not _found(what)]
        return "; ".join(absent) or None

    def start(self, place: Place) -> None:
        """Make what both ends share: sockets, queues, servers, tables. Raises what the product raises."""
        self.place = place

    def sender(self) -> Sender:
        """Open this process's end. The receivers are there by then."""
        raise NotImplementedError

    def receiver(self, index: int) -> Receiver:
        """Open the other end, in a process of its own; ``index`` counts the receivers from 0."""
        raise NotImplementedError

    def stop(self) -> None:
        """End what start() made. Both ends are closed."""

    def __getstate__(self) -> dict[str, Any]:
        """What travels: nothing that only the measuring process may have (names that begin with an
        underscore)."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


def _found(what: str) -> bool:
    """A name with a dash is a program, any other one a Python module."""
    return bool(shutil.which(what, path=PROGRAMS) if "-" in what else importlib.util.find_spec(what))


PROGRAMS = ":".join(("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"))
"""Where servers are looked for: Debian puts some into /usr/sbin, which is not on everybody's path."""
