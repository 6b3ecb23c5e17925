"""Work on a thread that nobody waits for at exit: a disk that hangs holds it for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from .runtime import futures, threading
from .threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["in_background"]

_T = TypeVar("_T")


def in_background(name: str, work: Callable[[], _T]) -> futures.Future[_T]:
    """What ``work()`` returns, or raises. Raises as :func:`start_thread`: no thread can be started now."""
    future: futures.Future[_T] = futures.Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    start_thread(threading.Thread(target=run, name=name, daemon=True))
    return future
