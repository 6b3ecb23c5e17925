"""Workers (worker.py) started by fork: a kill costs milliseconds, not the start of an interpreter.

The process that forks them has one thread and never held a Context: what the children do is what any process
does. It may have loaded what they need (`preload`).
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from typing import TYPE_CHECKING

from support import worker

from holdfast.engine.native import kernels
from holdfast.engine.native.core import lib
from holdfast.engine.store import store

if TYPE_CHECKING:
    from support.worker import Settings

__all__ = ["Child", "preload"]

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def preload() -> None:
    """Loads what the children would each load for themselves."""
    assert store
    kernels.jit()
    gc.collect()
    gc.freeze()  # a collection in a child would copy the pages of all this


class Child:
    """One forked process, with as much of subprocess.Popen as Worker needs."""

    def __init__(self, role: str, settings: Settings, failpoints: str) -> None:
        self.returncode: int | None = None
        parent = os.getpid()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(0)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if settings.domain:
                os.environ["HOLDFAST_DOMAIN"] = settings.domain
            lib.hf_failpoint_arm(failpoints.encode())
            worker.run(role, settings)
            code = 0
        except BaseException:
            sys.stderr.write(f"{role} {settings.name}, life {settings.life}:\n{traceback.format_exc()}")
            sys.stderr.flush()
        finally:
            os._exit(code)

    def poll(self) -> int | None:
        """As Popen.poll."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """As Popen.wait."""
        deadline = time.monotonic() + (1e9 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout or 0)
            time.sleep(0.0005)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """As Popen.send_signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """As Popen.terminate."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """As Popen.kill."""
        self.send_signal(signal.SIGKILL)
