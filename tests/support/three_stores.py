"""One source with the disk or memory stores a, b and c, and a ring that is soon overtaken."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support.workers import until

import holdfast as hf
from holdfast.engine.log import info_file
from holdfast.engine.store import repository

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engine.log.info_file import Lives, Place
    from holdfast.engine.log.state_file import SourceState
    from holdfast.engine.memory.domain import Domain

__all__ = ["SHORT", "SOURCE", "everywhere", "hide_peers", "send", "waits"]

SHORT = 90.0
SOURCE: dict[str, Any] = {
    "ring_size": 1 << 17,
    "fragment_size": 4096,
    "ume_registration_interval": 100,
    "ume_store_check_interval": 50,
    "ume_store_name": list("abc"),
}


def everywhere(src: hf.Source) -> None:
    """Waits until all its stores take part: it may send when a quorum does, and on a slow machine the last
    one comes later."""
    src.wait_registered(SHORT)
    until("all its stores take part", lambda: {at.state for at in src.stats().stores.values()} == {"active"})


def hide_peers(monkeypatch: pytest.MonkeyPatch, uuid: bytes, hidden: Path) -> None:
    """The store of this uuid cannot read the logs of its peers, as in a container of its own: it looks in
    ``hidden`` for them.

    The logs themselves stay: a living store whose log is removed notices it, and has lost what it
    acknowledged.
    """
    places_of = info_file.peers_of

    def peers_of(domain: Domain, source: SourceState, own: info_file.Own, others: Lives) -> list[Place]:
        places = places_of(domain, source, own, others)
        if own.uuid != uuid:
            return places
        return [place._replace(log=hidden / place.store / "logs" / place.log.name) for place in places]

    monkeypatch.setattr(repository, "peers_of", peers_of)


def waits(src: hf.Source, reason: str) -> None:
    """It cannot register, and says why (a pattern), once the stores that are there have answered; and goes on
    waiting."""

    def why(timeout: float) -> str:
        with pytest.raises(hf.RegistrationTimeout) as late:
            src.wait_registered(timeout)
        return str(late.value)

    for pause in (0.0, 3 * SOURCE["ume_registration_interval"] / 1000):
        why(pause)
        until(lambda: f"it waits: {reason}, says {why(0)}", lambda: re.search(reason, why(0)))


def send(src: hf.Source, count: int, pad: int = 0) -> list[tuple[int, bytes]]:
    """This many messages that say their number, until they are stable; and what a log holds of them."""
    said = [b"%d" % number + b"." * pad for number in range(src.next_sequence_number, src.next_sequence_number + count)]
    sent = [(src.send(data), data) for data in said]
    src.wait_stable(timeout=SHORT)
    return sent
