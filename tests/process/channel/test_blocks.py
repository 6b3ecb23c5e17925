"""Blocks that no Arrow writer makes, in a channel: its reader is told, and reads on."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa

from holdfast.channel import ShmChannel
from holdfast.engine.channel.channel import ChannelWriter

SMALL = 1 << 18

MALFORMED = """
import sys
import holdfast as hf
from holdfast.channel import ShmChannel
with ShmChannel(sys.argv[1]) as channel:
    while True:
        try:
            batch = channel.read(90)
        except hf.CorruptionError as error:
            print("refused:", error.args[0], flush=True)
            continue
        print(batch.num_rows, sum(len(word.as_py()) for word in batch.column(0)), flush=True)
        if batch.num_rows == 1:
            break
"""


def test_offsets_beyond_their_end_crash_no_reader() -> None:
    """Arrow follows offsets without a look at them: a reader would die of SIGSEGV, or show what lies behind
    the block."""
    words = pa.record_batch({"s": pa.array(["first", "second"] * 50)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, words.schema) as stream:
        stream.write_batch(words)
    good = sink.getvalue().to_pybytes()
    offsets = np.frombuffer(words.column(0).buffers()[1], np.int32)[:101].tobytes()
    at = good.index(offsets)
    raw = ChannelWriter("t", capacity=SMALL)
    for slot, offset in ((50, 0x3FFFFF00), (50, -4), (100, 0x7FFFFF00), (None, 0)):
        data = bytearray(good)
        if slot is not None:
            data[at + 4 * slot : at + 4 * slot + 4] = int.to_bytes(offset, 4, "little", signed=True)
        raw.claim(len(data))[:] = data
        raw.commit()
    raw.close()
    with ShmChannel("t") as writer:
        writer.write(pa.record_batch({"s": ["end"]}))
    done = subprocess.run([sys.executable, "-c", MALFORMED, "t"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [
        line.startswith(f"refused: channel t: block {n} is no record batch") for n, line in enumerate(lines[:3])
    ] == [True] * 3
    assert lines[3:] == ["100 550", "1 3"]
