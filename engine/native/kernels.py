"""Kernels: loops over record arrays, compiled by Numba when there is time for it, plain Python until then.

A kernel is an ordinary function here. `best(kernel)` is its compiled form once `warm()` has loaded that in
the background, the function itself before: the results are the same, so nobody waits for a compiler. Layout
reaches a kernel only through the dtype of an argument (a cached kernel must not remember an old constant).

Compiled code is cached in $XDG_CACHE_HOME/holdfast/numba (else ~/.cache/...). A cache that cannot be used, or
is not safely ours, costs a compilation in each process and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Error
from .private_directory import movable_at, open_private, private_directory
from .runtime import Path, os, threading

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])

_lock = threading.Lock()
_thread: threading.Thread | None = None
_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}


def ack_record() -> np.dtype[Any]:
    """Return the dtype of one delivered message: first and last number, and the tag of its state.

    tag: 2 * slot while delivered, 2 * slot + 1 when consumed; another slot's tag counts as not consumed
    (ack_window.py).
    """
    import numpy as np

    return np.dtype([("first", "<i8"), ("last", "<i8"), ("tag", "<i8")])


def contiguous_prefix(records: NDArray[Any], head: int, tail: int) -> tuple[int, int]:
    """Walk from slot `head` over consumed records, at most to `tail`.

    records: a ring of ack_record(), length a power of two; slots are free-running. Returns (the first slot
    that is not consumed, the last number of the record before it); the number means nothing when no slot was
    passed.
    """
    tags = records["tag"]
    lasts = records["last"]
    mask = tags.shape[0] - 1
    last = lasts[head & mask]
    while head < tail and tags[head & mask] == 2 * head + 1:
        last = lasts[head & mask]
        head += 1
    return head, last


def best(kernel: _Kernel) -> _Kernel:
    """Return the compiled form of `kernel` if it is loaded, else the function itself."""
    return _compiled.get(kernel, kernel)  # type: ignore[return-value]


def ready() -> bool:
    """Tell whether the compiled kernels are loaded."""
    return bool(_compiled)


def warm() -> None:
    """Load the compiled kernels in a background thread, once per process. Returns at once.

    The thread is not a daemon: a process that ended inside the compiler would crash, so it ends a moment
    later instead.
    """
    global _thread
    with _lock:
        if ready() or (_thread is not None and _thread.is_alive()):
            return
        _thread = threading.Thread(target=jit, name="holdfast-kernels", daemon=False)
        try:
            _thread.start()
        except (RuntimeError, MemoryError):  # no thread can be started now: the functions themselves do
            _thread = None


def wait(timeout: float | None = None) -> bool:
    """Wait (seconds; None = to the end) for a load that `warm` began; tell whether the kernels are ready."""
    loading = _thread
    if loading is not None and loading is not threading.current_thread():
        loading.join(timeout)
    return ready()


def jit() -> None:
    """Compile the kernels, or load them from the cache, now. Where Numba does not work, the Python forms
    stay."""
    try:
        loaded = _load(contiguous_prefix, _cache_directory())
    except Exception:  # a broken or raced cache entry must not cost more than its use
        try:
            loaded = _load(contiguous_prefix, None)
        except Exception:  # Numba itself does not work here: the Python forms go on
            return
    _compiled[contiguous_prefix] = loaded


def _load(kernel: Callable[..., Any], cache: Path | None) -> Callable[..., Any]:
    """Return `kernel` compiled for the argument types it is called with."""
    import numba
    import numpy as np

    with _lock:
        # Numba has no cache directory per function; the place is chosen when the function is decorated.
        settings: Any = numba.config
        before = settings.CACHE_DIR
        try:
            if cache is not None:
                settings.CACHE_DIR = str(cache)
            compiled: Callable[..., Any] = numba.njit(cache=cache is not None)(kernel)
        finally:
            settings.CACHE_DIR = before
    compiled(np.zeros(2, ack_record()), 0, 0)
    return compiled


def _cache_directory() -> Path | None:
    """Return the cache directory, made if need be; None unless it is ours alone to write (cached code is
    executed)."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = Path(root) / "holdfast" / "numba"
    try:
        if movable_at(directory) is not None:
            return None
        private_directory(directory.parent)
        opened = open_private(directory, closed=True)
        try:
            ours = _all_ours(opened)
        finally:
            os.close(opened)
    except (Error, OSError):
        return None
    return directory if ours and os.access(directory, os.W_OK | os.X_OK) else None


def _all_ours(directory: int) -> bool:
    """Nobody else made anything in it: from a time when it was open to others, there may be something."""
    uid = os.geteuid()
    return all(
        os.stat(name, dir_fd=at, follow_symlinks=False).st_uid == uid
        for _, folders, files, at in os.fwalk(dir_fd=directory)
        for name in (*folders, *files)
    )


# A child forked while Numba is being imported would inherit its locks, held by nobody. Bounded: the forking
# thread may itself hold an import lock that the load waits for.
os.register_at_fork(before=lambda: wait(10.0))
