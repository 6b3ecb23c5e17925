"""One source with the disk or memory stores a, b and c, and a ring that is soon overtaken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import holdfast as hf

__all__ = ["SHORT", "SOURCE", "send"]

SHORT = 30.0
SOURCE: dict[str, Any] = {
    "ring_size": 1 << 17,
    "fragment_size": 4096,
    "ume_registration_interval": 100,
    "ume_store_check_interval": 50,
    "ume_store_name": list("abc"),
}


def send(src: hf.Source, count: int, pad: int = 0) -> list[tuple[int, bytes]]:
    """So many messages that say their number, until they are stable; and what a log holds of them."""
    said = [b"%d" % number + b"." * pad for number in range(src.next_sequence_number, src.next_sequence_number + count)]
    sent = [(src.send(data), data) for data in said]
    src.wait_stable(timeout=SHORT)
    return sent
