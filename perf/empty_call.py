"""The price of leaving Python: empty functions behind cffi's API mode, compiled as the product's module is."""

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


def timed_calls(call: Callable[[], object], blocks: int = BLOCKS, block: int = BLOCK, bytes_each: int = 0) -> Reading:
    """``call`` in blocks of ``block``: the value is the median block's ns per call, the histogram has the means."""
    means = np.empty(blocks, dtype=np.int64)
    for i in range(blocks):
        start = time.perf_counter_ns()
        for _ in repeat(None, block):
            call()
        means[i] = time.perf_counter_ns() - start
    return Reading(float(np.median(means)) / block, "ns", means // block, bytes=bytes_each, count=blocks * block)


def empty_call(name: str) -> Callable[[], Reading]:
    """Measures one of the empty functions."""
    if name == "nothing":
        return lambda: timed_calls(library().nothing)
    function = library().nothing_with_bytes
    return lambda: timed_calls(partial(function, PAYLOAD, len(PAYLOAD)))
