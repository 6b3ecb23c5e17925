"""What a program sees of a public class, in tab completion and in ``help()``: what the guide documents, and
nothing of what the class shares with the engine."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["Shown"]


class _Kind(type):
    """A class that says by itself what ``dir()`` shows of it."""

    _shown: tuple[str, ...]

    def __dir__(cls) -> list[str]:
        return sorted({*cls._shown, *(name for name in super().__dir__() if name.startswith("__"))})


class Shown(metaclass=_Kind):
    """Base of a public class; ``_shown``: the names that belong to it. All others can be reached as before.

    >>> from holdfast.engine.shown import Shown
    >>> class Source(Shown):
    ...     _shown = ("send",)
    ...     def send(self): ...
    ...     def turn(self): ...
    >>> [name for name in dir(Source()) if not name.startswith("_")]
    ['send']
    """

    __slots__ = ()
    _shown: ClassVar[tuple[str, ...]] = ()

    def __dir__(self) -> Any:
        return dir(type(self))
