"""Work on a thread that nobody waits for at exit (engine/native/background.py)."""

from __future__ import annotations

import subprocess
import sys
import threading
from unittest import mock

import pytest

import holdfast as hf
from holdfast.engine.native.background import in_background

HANGS = """
import threading
from holdfast.engine.native.background import in_background

begun = threading.Event()

def hang():
    begun.set()
    threading.Event().wait()

in_background("hangs", hang)
assert begun.wait(90)
print("the end")
"""


def test_what_it_comes_to_is_in_the_future() -> None:
    assert in_background("works", lambda: threading.current_thread().name).result(90) == "works"

    def fails() -> None:
        raise KeyError("no")

    assert isinstance(in_background("fails", fails).exception(90), KeyError)


def test_a_thread_that_cannot_be_started_is_named() -> None:
    with (
        mock.patch.object(threading.Thread, "start", side_effect=RuntimeError("can't start new thread")),
        pytest.raises(hf.SystemCallError, match="thread works: no thread can be started"),
    ):
        in_background("works", lambda: None)


def test_a_process_ends_while_its_thread_hangs() -> None:
    """As on a disk that does not answer."""
    ended = subprocess.run([sys.executable, "-c", HANGS], timeout=90, capture_output=True, text=True, check=True)
    assert ended.stdout == "the end\n"
