"""csrc/python: what Python and C both write of each message that is received. slot.h says what the fields
are."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

from typing_extensions import Buffer

ITERATED: int

class Block(Buffer):
    address: int
    capacity: int
    views: int
    def __new__(cls, capacity: int, /) -> Self: ...

class Gate:
    controllers: tuple[object, ...]
    iterated: Any
    closed: bool
    receiving: bool
    @property
    def slots(self) -> int: ...
    left: bool

class Counts:
    delivered: int
    redelivered: int
    dozing: bool

class Passed:
    passed_below: int

class Served:
    ring: Any
    live_from: int
    newer: bool

class Slot:
    block: Block
    _ack_slot: int
    _live_from: int
    _live: bool
    _retained: bool
    def __new__(cls, receiver: Gate, /) -> Self: ...
    @property
    def entry_address(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def first_number(self) -> int: ...
    @property
    def last_number(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def entry_flags(self) -> int: ...
    @property
    def entry_fragments(self) -> int: ...
    @property
    def data(self) -> memoryview: ...
    @property
    def sequence_number(self) -> int: ...
    @property
    def timestamp_ns(self) -> int: ...
    @property
    def released(self) -> bool: ...
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def untie(self) -> bool: ...

class Flow(Iterator[Slot]):
    def __new__(
        cls,
        receiver: Gate,
        controller: Counts,
        feed: Served,
        ring: object,
        addresses: tuple[int, int, int],
        strategy: int,
        within_ns: int,
        look_ns: int,
        /,
    ) -> Self: ...
    def __next__(self) -> Slot: ...

class Awaited:
    def __new__(cls, receiver: Gate, most: int, slice_ns: int, clock: Callable[[], int] | None, /) -> Self: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Self: ...
    def __await__(self) -> Generator[Any, None, Any]: ...
    def throw(self, kind: object, value: object = ..., trace: object = ..., /) -> Any: ...
    def close(self) -> None: ...
    def left(self) -> None: ...
