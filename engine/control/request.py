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
        Error: it runs, and its release does not know the request, or speaks another version of the protocol.
    """
    welcomed = False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            if _is_welcome(_greet(sock, domain, store, timeout)):
                welcomed = True
                sock.send(wire.encode(request))
                return _checked(_answer(sock))
    except TimeoutError:
        raise _silent(store, timeout) from None
    except (FileNotFoundError, ConnectionError):
        if welcomed and _still_runs(domain, store, timeout):
            raise _not_understood(store) from None
        raise _not_running(domain, store) from None
    raise Error(f"store {store} speaks another version of the control protocol", hint="run one version in a domain")


def _greet(sock: socket.socket, domain: Domain, store: str, timeout: float) -> wire.Answer:
    """What the store says first. Raises what it refuses, TimeoutError, FileNotFoundError, ConnectionError."""
    sock.settimeout(timeout)
    sock.connect(os.fspath(domain.socket_path(store)))
    peer.check_peer(sock)
    pid = os.getpid()
    token, start = lib.hf_process_token(), lib.hf_process_start(pid)
    with contextlib.suppress(BrokenPipeError):  # it has hung up already, and said why
        sock.send(wire.encode(wire.Hello(wire.PROTOCOL, token, pid, start, Bells.of(domain).index)))
    welcome = _answer(sock)
    if isinstance(welcome, wire.Refused) and not welcome.id:  # no client is let in
        _checked(welcome)
    return welcome


def _is_welcome(answer: wire.Answer) -> bool:
    return isinstance(answer, wire.Welcome) and answer.protocol == wire.PROTOCOL


def _still_runs(domain: Domain, store: str, timeout: float) -> bool:
    """It has welcomed us and hung up. One that welcomes again did not die of the request."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            return _is_welcome(_greet(sock, domain, store, timeout))
    except TimeoutError:
        raise _silent(store, timeout) from None
    except (FileNotFoundError, ConnectionError):
        return False


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


def _silent(store: str, timeout: float) -> RegistrationTimeout:
    hint = "it is stopped or stuck: holdfast stat"
    return RegistrationTimeout(f"store {store} does not answer in {timeout:g} s", hint=hint)


def _not_understood(store: str) -> Error:
    """A store of 0.1.0 hangs up at a request that it does not know."""
    text = f"store {store} runs, and hangs up at this request: it is of an older release, which does not know it"
    return Error(text, hint=f"stop store {store}, start it by the release of this command, and ask again")


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
