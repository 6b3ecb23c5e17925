"""Aeron IPC: the C samples of a build. They claim, write a number and commit; the other side counts."""

import re
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path
from typing import ClassVar

from ..peer import PROGRAMS, Place
from ..programs import Program
from ..server import launch

CLAIM_MAX, STREAM_BYTES = 8192 - 32, 1 << 30
TUNED = "TERM_BUFFER_SPARSE_FILE=0", "IPC_MTU_LENGTH=8k", "CLIENT_PRE_TOUCH_MAPPED_MEMORY=1", "THREADING_MODE=SHARED"
IDLE = "SHARED_IDLE_STRATEGY=spin", "SHARED_IDLE_STRATEGY=sleep-ns", "SHARED_IDLE_STRATEGY_INIT_ARGS=1ms"
RATE = re.compile(r"([\d.e+]+) msgs/sec, ([\d.e+]+) bytes/sec")
MEDIAN = re.compile(r"^ *([\d.]+) +0\.5\d* ", re.MULTILINE)  # of cping's histogram: µs, share


class Aeron(Program):
    """With Aeron's own settings for IPC. Its driver has a third core to itself, or naps on the receiver's."""

    name = "Aeron, C"
    build: ClassVar[Path | None] = None

    @classmethod
    def available(cls) -> str | None:
        """None, or that ``--aeron`` is not given, or what is not there."""
        if cls.build is None:
            return "no build is given: --aeron DIR, a build of it with the C samples (DIR/binaries)"
        return None if (cls.build / "binaries/aeronmd").exists() else f"{cls.build}/binaries/aeronmd is missing"

    def one_way(self, size: int) -> dict[str, float]:
        """Until the last commit; unread is then half a term at most, 3 % of it."""
        publish = f"streaming_{'exclusive_' if size <= CLAIM_MAX else ''}publisher -c aeron:ipc -m"  # else in fragments
        timed = f"{publish} {STREAM_BYTES // (size + 32)} -L {size}"  # after a message that waits for the subscriber
        rate, volume = map(float, RATE.findall(self._said("rate_subscriber -c aeron:ipc", f"{publish} 1", timed))[-1])
        if abs(volume / rate - size) > size / 20:
            raise RuntimeError(f"-L {size} sent {volume / rate:.0f} B: it is not built as perf/LAB.md says")
        return {"rate": rate}

    def round_trip(self) -> dict[str, float]:
        """With a reading of the clock in each."""
        ping = "cping -c aeron:ipc -C aeron:ipc -m 100k -w 100k -L 16"
        return {"p50": 1000 * float(MEDIAN.findall(self._said("cpong -c aeron:ipc -C aeron:ipc", ping))[0])}

    def _said(self, partner: str, *programs: str) -> str:
        """By the last program. The driver and the partner are there only meanwhile: they spin."""
        core, idle = (2, IDLE[:1]) if len(self.bench.cores) > 2 else (1, IDLE[1:])
        own = *TUNED, *idle, "DIR_DELETE_ON_SHUTDOWN=1", f"DIR={self.folder}/aeron"
        env = ["env", f"PATH={(self.build or Path()).resolve()}/binaries:{PROGRAMS}", *(f"AERON_{one}" for one in own)]
        with ExitStack() as stack:
            for index, program in ((core, "aeronmd"), (1, partner)):
                place = Place(self.folder, 0, self.bench.core(index) if self.bench.pinned else None)
                stack.enter_context(closing(launch([*env, *program.split()], place, "")))
            for program in programs:
                ran = subprocess.run([*env, *program.split()], check=True, capture_output=True, text=True, timeout=60)
        if ran.stderr:  # a publisher that cannot send ends well
            raise RuntimeError(ran.stderr.strip())
        return ran.stdout
