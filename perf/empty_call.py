"""The price of leaving Python: empty functions behind cffi's API mode, compiled as the product's module
is."""

from __future__ import annotations

import contextlib
import subprocess
import sysconfig
import time
from functools import cache, partial
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from cffi import FFI

from .harness import BUILD, Reading, compiler

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "holdfast_perf_empty"
DECLARATIONS = """
int64_t nothing(void);
int64_t nothing_with_bytes(const uint8_t *data, uint64_t length);
"""
SOURCE = """
#include <stdint.h>
static int64_t nothing(void) { return 0; }
static int64_t nothing_with_bytes(const uint8_t *data, uint64_t length) { return data == 0 ? -1 : (int64_t)length; }
"""
BLOCK = 1000
BLOCKS = 200
PAYLOAD = b"x" * 128


@cache
def library() -> Any:
    """The compiled module's ``lib``. Raises CalledProcessError with gcc's message on its standard error."""
    BUILD.mkdir(parents=True, exist_ok=True)
    source, target = BUILD / f"{NAME}.c", BUILD / f"{NAME}.so"
    ffi = FFI()
    ffi.cdef(DECLARATIONS)
    ffi.set_source(NAME, SOURCE)
    with contextlib.redirect_stdout(None):  # it tells what it does
        ffi.emit_c_code(str(source))
    include = f"-I{sysconfig.get_path('include')}"
    command = [
        compiler(),
        "-O2",
        "-fPIC",
        "-shared",
        "-DPy_LIMITED_API=0x030b0000",
        include,
        str(source),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)
    spec = spec_from_file_location(NAME, target, loader=ExtensionFileLoader(NAME, str(target)))
    if spec is None:
        raise ImportError(f"{target} cannot be loaded")
    module = module_from_spec(spec)
    ExtensionFileLoader(NAME, str(target)).exec_module(module)
    return module.lib


def timed_calls(*calls: Callable[[], object], blocks: int = BLOCKS, bytes_each: int = 0) -> list[Reading]:
    """Each call in blocks of BLOCK, block by block in turns; one reading per call.

    The value is the median block's ns per call, the histogram has the means.
    """
    taken = np.empty((len(calls), blocks), dtype=np.int64)
    for i in range(blocks):
        for row, call in enumerate(calls):
            start = time.perf_counter_ns()
            for _ in repeat(None, BLOCK):
                call()
            taken[row, i] = time.perf_counter_ns() - start
    return [
        Reading(float(np.median(of)) / BLOCK, "ns", of // BLOCK, bytes=bytes_each, count=blocks * BLOCK) for of in taken
    ]


def empty_call(name: str) -> Callable[[], Reading]:
    """Measures one of the empty functions."""
    if name == "nothing":
        return lambda: timed_calls(library().nothing)[0]
    function = library().nothing_with_bytes
    return lambda: timed_calls(partial(function, PAYLOAD, len(PAYLOAD)))[0]


class Paired:
    """A call and the empty one, block by block in turns: what disturbs one disturbs the other."""

    def __init__(self, call: Callable[[], object], blocks: int, bytes_each: int) -> None:
        self._call, self._blocks, self._bytes = call, blocks, bytes_each
        self._reading: Reading | None = None

    def empty(self) -> Reading:
        """Measures both, returns the empty one's."""
        empty, self._reading = timed_calls(library().nothing, self._call, blocks=self._blocks, bytes_each=self._bytes)
        return empty

    def call(self) -> Reading:
        """The other one's of the same measurement. Raises RuntimeError if ``empty`` did not go before."""
        reading, self._reading = self._reading, None
        if reading is None:
            raise RuntimeError("empty() measures both")
        return reading
