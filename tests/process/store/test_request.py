"""One request to a store, as the tools send it, and stores that do not answer as they should
(engine/control/request.py)."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.control import wire
from holdfast.engine.control.request import FIRST, ask
from holdfast.engine.errors import (
    Error,
    NotRegisteredError,
    RegIdInUseError,
    RegistrationError,
    RegistrationTimeout,
    UsageError,
)
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WELCOME = wire.Welcome(wire.PROTOCOL, "a", b"a" * 16, "/a/logs", 1, 1, 1)
REQUEST = wire.Mark(FIRST, 7, [(1, 2)])
ANSWER = wire.Marked(FIRST, [(1, 2)])
LONG, SHORT = 60.0, 0.05


@pytest.fixture
def own(own_domain: str) -> Iterator[Domain]:
    made = Domain(own_domain)
    yield made
    made.close()


@pytest.fixture
def answers(own: Domain) -> Iterator[Callable[..., list[wire.Request]]]:
    """Makes a store ``a`` that answers each request with the next of these packets, and hangs up after the
    last; what it got. ``again``: the next connection gets these. Then it is dead."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(os.fspath(own.socket_path("a")))
    listener.listen()
    threads: list[threading.Thread] = []

    def begin(*packets: list[wire.Answer], again: tuple[list[wire.Answer], ...] = ()) -> list[wire.Request]:
        got: list[wire.Request] = []

        def serve(packets: tuple[list[wire.Answer], ...], *, last: bool) -> None:
            client, _ = listener.accept()
            with client:
                for packet in packets:
                    got.append(wire.decode_request(client.recv(wire.PACKET_MAX)))
                    for answer in packet:
                        client.send(wire.encode(answer))
                if last:
                    listener.close()

        def run() -> None:
            serve(packets, last=not again)
            if again:
                serve(again, last=True)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return got

    yield begin
    for thread in threads:
        thread.join()
    listener.close()


def test_the_answer_to_the_request_is_returned(own: Domain, answers: Callable[..., list[wire.Request]]) -> None:
    got = answers([WELCOME], [ANSWER])
    assert ask(own, "a", REQUEST, LONG) == ANSWER
    hello, request = got
    assert isinstance(hello, wire.Hello)
    assert (hello.protocol, hello.pid) == (wire.PROTOCOL, os.getpid())
    assert request == REQUEST


def test_what_nobody_asked_for_is_not_taken_for_the_answer(
    own: Domain, answers: Callable[..., list[wire.Request]]
) -> None:
    expelled = wire.Expelled(b"s" * 16)
    answers([expelled, WELCOME], [expelled, expelled, ANSWER])
    assert ask(own, "a", REQUEST, LONG) == ANSWER


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("reg_id_in_use", RegIdInUseError),
        ("usage", UsageError),
        ("unknown_source", UsageError),
        ("busy", RegistrationError),
        ("a code of tomorrow", RegistrationError),
    ],
)
def test_a_refusal_is_the_error_that_it_means(
    own: Domain, answers: Callable[..., list[wire.Request]], code: str, raised: type[Error]
) -> None:
    answers([WELCOME], [wire.Refused(FIRST, code, "it is so", 12, 3_500_000_000, 7)])
    with pytest.raises(raised) as refused:
        ask(own, "a", REQUEST, LONG)
    assert type(refused.value) is raised
    if isinstance(refused.value, RegIdInUseError):
        assert (refused.value.registration_id, refused.value.pid, refused.value.since) == (7, 12, 3.5)
    else:
        assert refused.value.args[0] == "it is so"


def test_a_store_that_was_never_there_does_not_run(own: Domain) -> None:
    with pytest.raises(NotRegisteredError, match=f"store a does not run in domain {own.name}") as none:
        ask(own, "a", REQUEST, LONG)
    assert none.value.hint == "start it: holdfast store run --name a --dir DIR"


def test_a_socket_that_a_dead_store_left_is_no_store(own: Domain) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    left.bind(os.fspath(own.socket_path("a")))
    left.close()
    with pytest.raises(NotRegisteredError, match="does not run"):
        ask(own, "a", REQUEST, LONG)


@pytest.mark.parametrize("packets", [([],), ([WELCOME], [])])
def test_a_store_that_dies_before_it_answers_does_not_run(
    own: Domain, answers: Callable[..., list[wire.Request]], packets: tuple[list[wire.Answer], ...]
) -> None:
    answers(*packets)
    with pytest.raises(NotRegisteredError, match="does not run"):
        ask(own, "a", REQUEST, LONG)


def test_a_store_that_hangs_up_at_a_request_and_lives_is_of_an_older_release(
    own: Domain, answers: Callable[..., list[wire.Request]]
) -> None:
    """0.1.0 does so with a request that it does not know."""
    answers([WELCOME], [], again=([WELCOME],))
    with pytest.raises(Error, match="store a runs, and hangs up at this request: it is of an older release") as older:
        ask(own, "a", REQUEST, LONG)
    assert older.value.hint == "stop store a, start it by the release of this command, and ask again"


def test_a_store_that_stands_still_is_waited_for_as_long_as_is_said(own: Domain) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.fspath(own.socket_path("a")))
        listener.listen()  # the kernel connects; nobody accepts
        with pytest.raises(RegistrationTimeout, match=r"store a does not answer in 0\.05 s") as late:
            ask(own, "a", REQUEST, SHORT)
    assert late.value.hint == "it is stopped or stuck: holdfast stat"


@pytest.mark.parametrize(
    "first", [wire.Welcome(wire.PROTOCOL + 1, "a", b"a" * 16, "/a/logs", 1, 1, 1), wire.Refused(FIRST, "usage", "no")]
)
def test_a_store_of_another_version_is_not_asked(
    own: Domain, answers: Callable[..., list[wire.Request]], first: wire.Answer
) -> None:
    got = answers([first])
    with pytest.raises(Error, match="store a speaks another version of the control protocol") as other:
        ask(own, "a", REQUEST, LONG)
    assert other.value.hint == "run one version in a domain"
    assert [type(request) for request in got] == [wire.Hello]
