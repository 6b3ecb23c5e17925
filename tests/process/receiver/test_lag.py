"""A receiver that is far behind: what it takes does not depend on how far (bindings/README.md, Limits)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.shelved_logs import mapped_files, open_files
from support.three_stores import SHORT, SOURCE

import holdfast as hf

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES, SIZE = 3000, 4096
SEGMENTS_MIN = 5


def test_it_maps_no_log_and_has_one_segment_open(tmp_path: Path) -> None:
    """The store runs in a process of its own, so that the files of this one are the receiver's."""
    where = tmp_path / "a"
    options = {**SOURCE, "ume_session_id": 7, "ume_store_name": ["a"]}
    config = hf.StoreConfig("a", where, options={"repository-disk-file-size-limit": 16 << 20})
    with hf.spawn_store(config, timeout=SHORT), hf.Context() as ctx, ctx.source("quotes", options=options) as src:
        src.wait_registered(SHORT)
        for number in range(MESSAGES):
            src.send(number.to_bytes(4, "little") * (SIZE // 4))
        src.wait_stable(timeout=SHORT)
        segments = list(where.glob("logs/*/seg-*"))
        seen: set[int] = set()
        with ctx.receiver("quotes", start="earliest") as rcv:
            for number in range(MESSAGES):
                message = rcv.receive(SHORT)
                assert message is not None
                assert bytes(message.data[:4]) == number.to_bytes(4, "little")
                if number % 50 == 0:
                    seen.add(sum("/seg-" in name for name in open_files()))
                    assert not [line for line in mapped_files() if "/seg-" in line]
    assert len(segments) >= SEGMENTS_MIN
    assert max(seen) == 1
