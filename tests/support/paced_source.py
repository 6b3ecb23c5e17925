"""Options of a receiver-paced source, of its receivers, and of stores that are soon full."""

from __future__ import annotations

from typing import Any

SIZE = 1000


LIMIT = 200_000


FLIGHT = 50_000


STORE: dict[str, Any] = {
    "repository-allow-receiver-paced-persistence": 1,
    "repository-allow-ack-on-reception": 1,
    "source-check-interval": 5,
}


MEMORY = {**STORE, "repository-size-limit": LIMIT}


DISK = {**STORE, "repository-disk-file-size-limit": LIMIT}


SOURCE: dict[str, Any] = {
    "ume_store_name": ["a:0:0"],
    "ring_size": 1 << 19,
    "fragment_size": 4096,
    "ume_receiver_paced_persistence": 1,
    "ume_flight_size_bytes": FLIGHT,
}


BLOCKS = {"ume_receiver_paced_persistence": 1}


NEVER_BLOCKS = {"ume_receiver_paced_persistence": 2}
