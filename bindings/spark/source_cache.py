"""The sources of a streaming query stay open between its commits.

To open them costs a registration, a new incarnation and a new segment in the log of every store. Spark
commits a query's batches in one process, mostly: it keeps them for KEEP_SECONDS after a commit. Another
process that is to commit for the query says so with the file ``wanted`` beside the record (ledger.py), and
they are let go. A process that dies lets go anyway.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from .publishing import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .options import Options

__all__ = ["opened", "release"]

KEEP_SECONDS = 10.0
LOOK_SECONDS = 0.02
"""How often somebody is looked for who wants them."""


class _Kept(NamedTuple):
    publisher: Publisher
    options: Options
    who: str
    until: float


_lock = threading.Lock()
_kept: dict[Path, _Kept] = {}
"""By the writer's directory."""
_watching = False
"""A thread looks after them."""


@contextlib.contextmanager
def opened(directory: Path, options: Options, who: str, topics: Iterable[str], *, keep: bool) -> Iterator[Publisher]:
    """A publisher with sources for ``topics``, for whoever holds the ledger in ``directory``.

    ``keep``: it stays open if the block ends well.
    """
    publisher = _take(directory, options, who)
    try:
        if publisher is not None:
            publisher.open(topics)
        else:
            wanted = directory / "wanted"
            wanted.touch(0o600)
            publisher = Publisher(options, who)
            try:
                publisher.open(topics)
            finally:
                wanted.unlink(missing_ok=True)
        yield publisher
    except BaseException:
        if publisher is not None:
            publisher.close()
        raise
    if keep:
        _keep(directory, _Kept(publisher, options, who, time.monotonic() + KEEP_SECONDS))
    else:
        publisher.close()


def _take(directory: Path, options: Options, who: str) -> Publisher | None:
    with _lock:
        kept = _kept.pop(directory, None)
    if kept is None or (kept.options, kept.who) == (options, who):
        return kept.publisher if kept is not None else None
    kept.publisher.close()
    return None


def _keep(directory: Path, kept: _Kept) -> None:
    global _watching
    with _lock:
        _kept[directory] = kept
        first, _watching = not _watching, True
    if first:
        threading.Thread(target=_watch, name="holdfast-kept", daemon=True).start()


def _watch() -> None:
    """Closes what was kept long enough or is wanted elsewhere; ends when nothing is kept."""
    global _watching
    watching = True
    while watching:
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        with _lock:
            over = [place for place, kept in _kept.items() if now >= kept.until or (place / "wanted").exists()]
            closing = [_kept.pop(place) for place in over]
            watching = _watching = bool(_kept)
        for kept in closing:
            kept.publisher.close()


def release() -> None:
    """Closes whatever this process keeps."""
    with _lock:
        closing = list(_kept.values())
        _kept.clear()
    for kept in closing:
        kept.publisher.close()


def _forked() -> None:
    """What the parent keeps is not this child's."""
    global _lock, _watching
    _lock, _watching = threading.Lock(), False
    _kept.clear()


os.register_at_fork(after_in_child=_forked)
atexit.register(release)
