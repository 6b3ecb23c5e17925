"""holdfast whose waits spin all along; and so with large messages as one frame each, read where they lie in the ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...peers import SPIN, TIMEOUT_S
from .holdfast_line import Holdfast

if TYPE_CHECKING:
    from collections.abc import Callable

    import holdfast as hf


class Spinning(Holdfast):
    """The same, its waits spinning all along: for programs that have a core to themselves."""

    name = "holdfast, busy_spin"
    options = SPIN


class InPlace(Spinning):
    """As a receiver's batches give them: a view of a message, which ends when the next one has come."""

    name = "holdfast, in place"
    least_bytes = 1 << 20

    def source_options(self) -> dict[str, int]:
        """A message is one frame; a ring that needs no room is the smallest that takes it, and stays in the caches."""
        smallest = {"ring_size": 1 << (4 * self.place.size).bit_length()}
        return {**smallest, **super().source_options(), "fragment_size": self.place.size}

    def one_by_one(self, receiver: hf.Receiver) -> Callable[[], Any]:
        """Batches of one message."""
        held: list[hf.Batch] = []

        def receive() -> Any:
            batch = receiver.receive_batch(1, TIMEOUT_S)
            if batch is None:
                raise TimeoutError(f"no message within {TIMEOUT_S} s")
            for last in held:
                last.release()
            held[:] = [batch]
            frame = batch.frames[0]
            return batch.memory[frame["offset"] : frame["offset"] + frame["length"]]

        return receive
