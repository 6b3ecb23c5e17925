"""One request to a running store, and its answer: for tools that are neither source nor receiver."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..errors import (
    Error,
    NotRegisteredError,
    RegIdInUseError,
    RegistrationError,
    RegistrationTimeout,
    UsageError,
)
from ..memory.mapping import Bells
from ..native.core import lib
from ..native.runtime import os, socket
from . import peer, wire
from .refusals import reason_of

if TYPE_CHECKING:
    from ..memory.domain import Domain

__all__ = ["ask"]

FIRST = 1
"""Id of the only request."""


def ask(domain: Domain, store: str, request: wire.Request, timeout: float) -> wire.Answer:
    """Asks the store named ``store``; ``request.id`` is FIRST, ``domain`` joined.

    Raises:
        NotRegisteredError: no such store runs.
        RegistrationTimeout: it does not answer in ``timeout`` seconds.
        UsageError, RegIdInUseError, RegistrationError: what it refuses.
    """
    path = domain.socket_path(store)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(timeout)
        try:
            sock.connect(os.fspath(path))
            peer.check_peer(sock)
            pid = os.getpid()
            token, start = lib.hf_process_token(), lib.hf_process_start(pid)
            with contextlib.suppress(BrokenPipeError):  # it has hung up already, and said why
                sock.send(wire.encode(wire.Hello(wire.PROTOCOL, token, pid, start, Bells.of(domain).index)))
            welcome = _answer(sock)
            if isinstance(welcome, wire.Refused) and not welcome.id:  # no client is let in
                _checked(welcome)
            if isinstance(welcome, wire.Welcome) and welcome.protocol == wire.PROTOCOL:
                sock.send(wire.encode(request))
                return _checked(_answer(sock))
        except TimeoutError:
            hint = "it is stopped or stuck: holdfast stat"
            raise RegistrationTimeout(f"store {store} does not answer in {timeout:g} s", hint=hint) from None
        except (FileNotFoundError, ConnectionError):
            raise _not_running(domain, store) from None
    raise Error(f"store {store} speaks another version of the control protocol", hint="run one version in a domain")


def _answer(sock: socket.socket) -> wire.Answer:
    while True:
        try:
            packet = sock.recv(wire.PACKET_MAX)
        except ConnectionResetError:  # what it said before it hung up comes behind that
            packet = sock.recv(wire.PACKET_MAX)
        if not packet:
            raise ConnectionResetError
        answer = wire.decode_answer(packet)
        if not isinstance(answer, wire.Expelled):  # nobody asked: this process holds what is taken away
            return answer


def _not_running(domain: Domain, store: str) -> NotRegisteredError:
    hint = f"start it: holdfast store run --name {store} --dir DIR"
    return NotRegisteredError(f"store {store} does not run in domain {domain.name}", hint=hint)


def _checked(answer: wire.Answer) -> wire.Answer:
    if not isinstance(answer, wire.Refused):
        return answer
    match answer.code:
        case "reg_id_in_use":
            raise RegIdInUseError(answer.registration_id, answer.pid, answer.since_ns / 1e9, answer.session_id)
        case "usage" | "unknown_source":
            raise UsageError(reason_of(answer))
        case _:
            raise RegistrationError(reason_of(answer))
