"""What the parts of a receiver need of each other, where each would import the other: one says what it needs,
here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ..control import wire
    from ..control.host import Host
    from ..control.link import StoreLink
    from ..memory.discovery import Found
    from ..memory.mapping import Mapping
    from ..memory.sri import SriWatch
    from ..options.resolve import Options
    from ..rules import registration as reg
    from ..rules.chosen_start import ChosenStart, Published
    from ..rules.reconcile import Table
    from .ack_window import Window
    from .arrival_order import ArrivalFeed
    from .feed import Feed

__all__ = ["DeliveryPort", "ReceiverPort", "RegistrarPort"]


class ReceiverPort(Protocol):
    """A receiver, for each of its sources; what its methods do is said at Receiver."""

    context: Host
    options: Options
    chosen: ChosenStart | None
    made: Published | None

    def new_window(self, start: int, *, acks: bool = True) -> Window:
        """What remembers the deliveries from one more source. ``acks``: some store is to hear of them."""

    def resumed(self, uuid: bytes) -> tuple[int, int] | None:
        """Under which incarnation, and from which number on, a source is to be gone on with that was left."""

    def has_session(self, claims: bool = True) -> bool:
        """No other receiver of its session is known to be there; it ``claims`` that."""

    def tell(self, event: object) -> None:
        """Queues an event."""

    def joined(self, uuid: bytes) -> None:
        """Registration with this source is complete."""

    def failed(self, topic: str, source: str, error: Exception) -> None:
        """Registration with a source failed for good."""

    def wake(self) -> None:
        """Something happened that a waiting receiver should look at."""


class RegistrarPort(Protocol):
    """The registration of one source, for what shows what it waits for."""

    session_id: int
    proposal: bytes

    @property
    def stores(self) -> Sequence[NamedStore]:
        """In the order of store indexes."""

    def log_paths(self) -> list[str]:
        """Directories of the source's log, one per store."""

    def earlier_logs(self) -> dict[str, tuple[str, int]]:
        """The source's log at stores that are declared no more."""

    def identity(self) -> tuple[bytes, int]:
        """As stores know this receiver of the source: UUID and RegID."""

    def answers(self) -> list[wire.ReceiverGranted]:
        """What was granted."""

    def table(self) -> Table:
        """The BEGINs that hold."""

    def source_session_id(self) -> int:
        """The source's session ID, 0 for none."""


class NamedStore(Protocol):
    """A store of the source."""

    link: StoreLink

    @property
    def name(self) -> str:
        """The store's."""


class DeliveryPort(Protocol):
    """One source at a receiver, for its registration; what its methods do is said at DeliveryController."""

    receiver: ReceiverPort
    found: Found
    uuid: bytes
    topic: str
    source: str
    client_data: object
    failure: Exception | None
    streaming: bool
    board: Mapping | None
    line: int
    watch: SriWatch
    feed: Feed | ArrivalFeed | None
    acking: AbstractContextManager[object]
    """Held by who writes the flags of the line."""

    @property
    def registrar(self) -> RegistrarPort:
        """Its registration."""

    def complete(self, action: reg.Complete) -> None:
        """The stores have granted enough."""

    def fail(self, error: Exception) -> None:
        """Registration failed for good."""

    def logs(self) -> tuple[list[str], dict[str, int]]:
        """The source's logs, and below which number those of earlier lists count."""

    def known_begin(self) -> tuple[int, int]:
        """The newest BEGIN that holds."""

    def found_logs(self) -> None:
        """A store has granted: where its log is, is known now."""

    def leave_requests(self) -> list[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close."""

    def tell(self, event: object) -> None:
        """Queues an event."""
