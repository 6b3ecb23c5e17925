"""What another user of this host does to us. Run by test_other_users.py, as root, which it gives up first:

    python -m support.other_user DEED ARGUMENT...

Only names and files: nothing of holdfast is imported, so what it leaves is what any program could leave.
"""

from __future__ import annotations

import os
import socket
import sys

STRANGER = 54321
"""Nobody has this uid; nothing on the host belongs to it."""


def fifos(*paths: str) -> None:
    """Whoever opens one without O_NONBLOCK waits for ever."""
    for path in paths:
        os.mkfifo(path, 0o666)
        os.chmod(path, 0o666)


def oddities(*paths: str) -> None:
    """A FIFO, a directory, a socket, a link to nothing, an empty file and one that everybody may write, in
    turn."""
    for number, path in enumerate(paths):
        match number % 6:
            case 0:
                fifos(path)
            case 1:
                directory(path)
            case 2:
                socket.socket(socket.AF_UNIX).bind(path)
            case 3:
                os.symlink("/nowhere", path)
            case 4:
                file(path, "0")
            case _:
                file(path, "4096")


def file(path: str, size: str) -> None:
    """Of zeros, open to everybody."""
    with open(path, "wb") as made:
        made.truncate(int(size))
    os.chmod(path, 0o666)


def directory(path: str) -> None:
    """Open to everybody."""
    os.mkdir(path)
    os.chmod(path, 0o777)


def link(*pairs: str) -> None:
    """Gives objects of our own other names: SOURCE TARGET ..."""
    for source, target in zip(pairs[::2], pairs[1::2], strict=True):
        os.link(source, target)


def symlink(*pairs: str) -> None:
    """SOURCE TARGET ..."""
    for source, target in zip(pairs[::2], pairs[1::2], strict=True):
        os.symlink(source, target)


def junk(place: str, prefix: str, count: str) -> None:
    """Names as a domain's, of rings and boards that nobody has made, each an empty file."""
    for number in range(int(count)):
        kind = ("s1", "b", "c7", "x")[number % 4]
        with open(os.path.join(place, f"{prefix}{number:032x}.{kind}"), "wb"):
            pass


if __name__ == "__main__":
    os.umask(0)
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    globals()[sys.argv[1]](*sys.argv[2:])
