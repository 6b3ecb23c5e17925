"""Runs a command that dies with the process that started it: ``python -S bound.py COMMAND...``.

So a soak that is killed -9 leaves no process. The kernel keeps the wish over an exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = int(sys.argv[1])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        os.execvp(sys.argv[2], sys.argv[2:])
