"""A program that is a store, and at a line of its input reads every file of a directory, as a backup within
it would.

    python store_reads_its_directory.py DIRECTORY NAME STORE_DIRECTORY

Lines on stdout: ``read``; ``ended CODE`` with what store_main returned.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading

import holdfast as hf


def back_up(directory: str) -> None:
    """Waits for a line, then copies all of it."""
    if sys.stdin.readline():
        with tempfile.TemporaryDirectory() as copy, contextlib.suppress(shutil.Error):  # sockets cannot be copied
            shutil.copytree(directory, f"{copy}/all")
        print("read", flush=True)


def main() -> None:
    """See the module."""
    directory, name, where = sys.argv[1:]
    threading.Thread(target=back_up, args=(directory,), daemon=True).start()
    print("ended", hf.store_main(hf.StoreConfig(name, where, type="memory")), flush=True)


if __name__ == "__main__":
    main()
