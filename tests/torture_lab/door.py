"""Somebody who is no client of ours at a store's socket: it answers with what can be read, or hangs up, and
serves the others.

Random bytes of any length; after a right Hello, requests with bytes that flipped, and with names and numbers
that nobody would choose. Some never say a word, some never read. The control is a door that gives back what
it gets.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from typing import TYPE_CHECKING

import msgspec
from fuzz.targets import seeds_wire
from support.oracle import Finding, Stuck
from support.workers import DEADLINE_S

from holdfast.engine.control import wire
from holdfast.engine.errors import CorruptionError
from holdfast.engine.memory.domain import Domain
from torture_lab.load import in_steps, store_in

if TYPE_CHECKING:
    from pathlib import Path

    from torture_lab.lab import Lab, Outcome

__all__ = ["knocked", "plant"]

NAMES = ("", "\0", "../../x", "/", "hf.\0", "x" * 255, "\ud7ff", "*")
LAST = 77
"""id of a client's last request."""
NUMBERS = (0, 1, 2**31, 2**32 - 1, 2**63 - 1)


def knocked(lab: Lab, outcome: Outcome, domain: str) -> None:
    """One store, and others who work meanwhile."""
    pick = random.Random(f"{lab.seed} {domain}")
    with store_in(lab, domain) as store, contextlib.closing(Domain(domain, join=False)) as place:
        path = place.socket_path("a")
        silent = [_connected(path) for _ in range(20)]

        def knock(_: int) -> None:
            for _ in range(5):
                outcome.count("hostile clients")
                outcome.count("of them answered", _knock(path, pick))
            store.check_alive()

        outcome.count("messages", in_steps(domain, "others", lab.figure(100, 500, 3000), knock))
        for sock in silent:
            sock.close()
        in_steps(domain, "after", 1)


def _connected(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(DEADLINE_S)
    sock.connect(os.fspath(path))
    return sock


def _knock(path: Path, pick: random.Random) -> bool:
    """Whether the store has answered what was sent, and did not hang up."""
    with _connected(path) as sock:
        try:
            if pick.random() < 0.3:
                sock.send(pick.randbytes(pick.choice((1, 2, 64, 4096, 100_000))))
                return _answered(sock)
            sock.send(wire.encode(wire.Hello(wire.PROTOCOL, 0, os.getpid(), 0, pick.choice(NUMBERS[:4]))))
            sock.send(pick.choice(_REQUESTS))
            for _ in range(3):
                sock.send(_request(pick))
            sock.send(wire.encode(wire.ListSources(LAST, "nobody's")))
            return pick.random() >= 0.2 and _answered(sock)  # the others hang up, and never look
        except (BrokenPipeError, ConnectionResetError):
            return False


def _request(pick: random.Random) -> bytes:
    """What could be one, with some of it changed."""
    packet = pick.choice(_REQUESTS)
    if pick.random() < 0.5:
        spoiled = bytearray(packet)
        for _ in range(pick.randint(1, 4)):
            spoiled[pick.randrange(len(spoiled))] = pick.randrange(256)
        return bytes(spoiled)
    fields = msgspec.msgpack.decode(packet)
    for name, value in fields.items():
        if name != "type" and not isinstance(value, bool) and pick.random() < 0.3:
            other = {str: NAMES, int: NUMBERS}.get(type(value), (value,))
            fields[name] = pick.choice(other)
    return msgspec.msgpack.encode(fields)


def _answered(sock: socket.socket) -> bool:
    """To the last request; False: the store hung up. Raises Stuck for silence, Finding for what is no
    answer."""
    try:
        while packet := sock.recv(wire.PACKET_MAX):
            answer = wire.decode_answer(packet)
            if isinstance(answer, wire.Sources) and answer.id == LAST:
                return True
    except TimeoutError:
        raise Stuck(f"the store says nothing for {DEADLINE_S:.0f} s") from None
    except CorruptionError as error:
        raise Finding(f"the store's answer is none: {error}") from error
    return False


def _is_request(packet: bytes) -> bool:
    try:
        return not isinstance(wire.decode_request(packet), wire.Hello)
    except CorruptionError:
        return False


_REQUESTS = [packet for packet in seeds_wire() if _is_request(packet)]


def plant(lab: Lab, outcome: Outcome) -> None:
    """The control: a door that is none."""
    path = lab.root / "echo.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.fspath(path))
        listener.listen()

        def echo() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.send(sock.recv(wire.PACKET_MAX))

        thread = threading.Thread(target=echo)
        thread.start()
        try:
            with outcome.catches("answer is none"), _connected(path) as sock:
                sock.send(b"?")
                _answered(sock)
        finally:
            thread.join()
