"""holdfast whose waits spin all along; also with large messages as one frame each, which are read where they
lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...peers import FRAME_BYTES, SPIN, TIMEOUT_S
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
    least_bytes = 64 << 10

    def source_options(self) -> dict[str, int]:
        """A message is one frame; a ring that needs no room is the smallest that takes it, and stays in the
        caches."""
        smallest = {"ring_size": 1 << (4 * (self.place.size + FRAME_BYTES) - 1).bit_length()}
        return {**smallest, **super().source_options(), "fragment_size": self.place.size}

    def one_by_one(self, receiver: hf.Receiver) -> Callable[[], Any]:
        """Batches of one message."""
        held: hf.Batch | None = None

        def receive() -> Any:
            nonlocal held
            batch = receiver.receive_batch(1, TIMEOUT_S)
            if batch is None:
                raise TimeoutError(f"no message within {TIMEOUT_S} s")
            if held is not None:
                held.release()
            held = batch
            frame = batch.frames[0]
            return batch.memory[frame["offset"] : frame["offset"] + frame["length"]]

        return receive
