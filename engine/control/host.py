"""What a source or a receiver needs of the context that it belongs to. Context implements it; nobody below
imports Context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import contextlib
    import threading
    from collections.abc import Callable, Iterable, Mapping

    from ..errors import FencedError
    from ..memory.discovery import Discovery
    from ..memory.domain import Domain
    from ..memory.mapping import Bells
    from ..memory.mapping import Mapping as Segment
    from ..options.resolve import Options
    from . import wire
    from .link import StoreLink
    from .waits import WaitFile

__all__ = ["Child", "Host"]


class Child(Protocol):
    """A source or a receiver of a context."""

    def leave_requests(self) -> Iterable[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close."""


class Host(Protocol):
    """See the module; what each of them does is said at Context."""

    name: str
    made_at: str
    session_id: int
    options: Options
    domain: Domain
    bells: Bells
    discovery: Discovery
    waits: WaitFile
    fence: FencedError | None

    # Threads: who does the context's work, and who waits for it.

    @property
    def in_turn(self) -> bool:
        """This thread does the context's work now."""

    @property
    def sequential(self) -> bool:
        """There is no thread: whoever waits does the work."""

    def turning(self) -> contextlib.AbstractContextManager[object]:
        """Held while the context's work is done."""

    def wait(self, condition: threading.Condition, timeout: float) -> None:
        """Waits for ``condition``; in a sequential context by doing the work that makes it true."""

    def sleep_on_bell(self, prepare: Callable[[], int], limit_ns: int) -> None:
        """Sleeps until this process's bell rings."""

    def poll(self, timeout: float | None = 0) -> int:
        """Does the context's work on the caller's thread."""

    def wake(self) -> None:
        """Makes the context's thread look around."""

    # Callbacks of the program, and what they raise.

    @property
    def callback_raised(self) -> bool:
        """Something is kept for whoever waits."""

    def callback(self, function: Callable[[Any], object], argument: object, options: Options | None = None) -> None:
        """Calls the program."""

    def callback_failed(self, error: BaseException, options: Options | None = None) -> None:
        """A callback of the program raised."""

    def raise_callback_error(self) -> None:
        """Raises what a callback raised, once."""

    def child_closed(self) -> None:
        """As :meth:`raise_callback_error`, at the end of a child's close."""

    # The context's life, and its connections.

    @property
    def forked(self) -> bool:
        """This is a child of the process that made the context."""

    def check_usable(self) -> None:
        """Raises ForkedHandleError, ClosedError or FencedError."""

    def check_fence(self) -> None:
        """Raises FencedError when this process has lost its lock in the domain."""

    def link(self, store: str) -> StoreLink:
        """The one connection of the context to a store."""

    def store_links(self) -> Iterable[StoreLink]:
        """Connections to every store that was ever seen in the domain."""

    def joined(self, source: bytes, board: Segment, session_id: int) -> None:
        """A receiver has joined ``source``: the context shows itself on its board, if it is to."""

    def options_for(
        self, scope: str, given: Mapping[str, object] | None, name: str | None, *, wildcard: bool = False
    ) -> Options:
        """Options that a source or receiver of topic (or pattern) ``name`` would have."""

    def add_receiver(self, receiver: Any) -> None:
        """Takes a receiver in."""

    def has(self, child: Child) -> bool:
        """It has not been taken out."""

    def leave(self, child: Child, timeout: float | None = None, awaited: Iterable[StoreLink] = ()) -> None:
        """Takes a child out and tells its stores. ``awaited``: links on which it has asked for something
        more."""
