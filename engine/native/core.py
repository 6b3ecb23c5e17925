"""The compiled core. Everything in the engine that needs C imports ``ffi`` and ``lib`` from here.

``holdfast._core`` is the release module. A development build also has ``holdfast._core_fp``: the same sources
with failpoints compiled in. A process that was started with ``HOLDFAST_FAILPOINTS`` set uses that one; a spec
in it arms them (csrc/base/failpoint.h, hf_failpoint_arm), an empty one does not. ``holdfast._core_sim`` is
the same sources over the simulator's kernel, for a process with ``HOLDFAST_SIMULATED`` set. Wheels lack both:
the variables fail there, loudly.

``holdfast._receive`` (csrc/python) has what Python and C both write of each message that is received, and the
loop of an iteration. It calls whichever core this process uses.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..._receive import Awaited, Block, Counts, Deliveries, Flow, Gate, Lane, Pool, Served, Slot

__all__ = [
    "Awaited", "Block", "CData", "Counts", "Deliveries", "Flow", "Gate", "Lane", "Pool", "Served", "Slot", "ffi", "lib",
]  # fmt: skip

if TYPE_CHECKING:
    from ..._core import CData, ffi, lib
else:
    _failpoints = os.environ.get("HOLDFAST_FAILPOINTS")
    if "HOLDFAST_SIMULATED" in os.environ:
        from ..._core_sim import ffi, lib
    elif _failpoints is None:
        from ..._core import ffi, lib
    else:
        from ..._core_fp import ffi, lib

        lib.hf_failpoint_arm(_failpoints.encode())
    CData = ffi.CData
