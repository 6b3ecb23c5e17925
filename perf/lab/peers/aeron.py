"""Aeron IPC: the C samples of a build. They claim, write a number and commit; the other side counts."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, ClassVar

from ..peer import Place
from ..programs import Program
from ..server import launch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES, ROUND_TRIPS, LIMIT_S = 2_000_000, 20_000, 60
RATE = re.compile(r"([\d.e+]+) msgs/sec")
MEDIAN = re.compile(r"^ *([\d.]+) +0\.5\d* ", re.MULTILINE)  # of cping's histogram: µs, share


class Aeron(Program):
    """Its driver is on the receiver's core. Nobody touches the payload behind its number; holdfast's do."""

    name = "Aeron, C"
    build: ClassVar[Path | None] = None

    @classmethod
    def available(cls) -> str | None:
        """None, or that ``--aeron`` is not given, or what is not there."""
        if cls.build is None:
            return "no build is given: --aeron DIR, a build of it with the C samples (DIR/binaries)"
        return None if (cls.build / "binaries/aeronmd").exists() else f"{cls.build}/binaries/aeronmd is missing"

    @contextmanager
    def running(self) -> Iterator[Program]:
        core = self.bench.core(1) if self.bench.pinned else None
        self.place, self.home = Place(self.folder, 0, core), f"{self.folder}/aeron"
        driver = ["env", f"AERON_DIR={self.home}", f"{self.build}/binaries/aeronmd"]
        with ExitStack() as stack:
            for command in (driver, self._command("rate_subscriber"), self._command("cpong", "-C")):
                stack.enter_context(closing(launch(command, self.place, "")))
            yield self

    def _command(self, program: str, *channels: str) -> list[str]:
        ways = [word for flag in ("-c", *channels) for word in (flag, "aeron:ipc")]
        return [f"{self.build}/binaries/{program}", "-p", self.home, *ways]

    def one_way(self, size: int) -> dict[str, float]:
        command = [*self._command("streaming_exclusive_publisher"), "-m", str(MESSAGES), "-L", str(size)]
        return {"rate": float(RATE.findall(_said(command))[-1])}

    def round_trip(self) -> dict[str, float]:
        command = [*self._command("cping", "-C"), "-m", str(ROUND_TRIPS), "-w", str(ROUND_TRIPS), "-L", "16"]
        return {"p50": 1000 * float(MEDIAN.findall(_said(command))[0])}


def _said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
