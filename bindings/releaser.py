"""What a message or a batch needs of the receiver that delivered it. Receiver implements it; nobody below
imports Receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .engine.control.host import Host
    from .engine.log.columns import Entries
    from .engine.options.resolve import Options
    from .engine.receiver.delivery_controller import DeliveryController

__all__ = ["Arrays", "Buffers", "Releaser"]


class Buffers(Protocol):
    """Where released messages wait to be used again (MessagePool)."""

    buffers: int

    def kept(self, name: str) -> None:
        """A program keeps a view of a released message."""


class Arrays(Protocol):
    """Where the arrays of released batches wait (EntriesPool)."""

    def give(self, entries: Entries) -> None:
        """Back from use."""


class Releaser(Protocol):
    """See the module; what each of them does is said at Receiver."""

    context: Host
    options: Options
    closed: bool

    @property
    def slots(self) -> int:
        """Messages that are in use (Gate)."""

    @property
    def name(self) -> str:
        """Topic or pattern."""

    @property
    def pool(self) -> Buffers:
        """Of its messages."""

    @property
    def entries(self) -> Arrays:
        """Of its batches."""

    def was_consumed(self, controller: DeliveryController, ack_slot: int, last: int) -> None:
        """A message or a batch, which ends with number ``last``, is consumed."""

    def batch_evicted(self, controller: DeliveryController, ack_slot: int) -> None:
        """A batch was overwritten before it was released."""
