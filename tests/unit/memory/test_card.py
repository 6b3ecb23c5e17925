"""The card of a domain: that it lies there, says what it should, and is held (engine/memory/card.py)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast.engine.errors import ForeignOwnerError
from holdfast.engine.memory import card as module
from holdfast.engine.memory.card import Card, HeldCard, leads_to, prefix_of, try_lock, withdraw
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.tools.gc import sweep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAID = Card("/nowhere", 1, 2, "this boot", "mnt:[1]")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldCard]:
    card = HeldCard(tmp_path / "card", SAID)
    card.show()
    yield card
    card.close()


def alone(place: Path) -> bool:
    """Nobody holds it."""
    fd = os.open(place, os.O_RDWR)
    try:
        return try_lock(fd, alone=True)
    finally:
        os.close(fd)


def read(place: Path) -> Card:
    return msgspec.json.decode(place.read_bytes(), type=Card)


def test_who_joins_a_domain_shows_and_holds_its_card(domain: str) -> None:
    joined = Domain(domain)
    place = SHM_DIR / joined.card_name
    made = os.stat(joined.path)
    assert read(place).directory == os.path.realpath(joined.path)
    assert (read(place).device, read(place).inode) == (made.st_dev, made.st_ino)
    assert joined.prefix == prefix_of(made.st_dev, made.st_ino)
    assert os.stat(place).st_mode & 0o777 == 0o600
    assert not alone(place)
    assert joined.objects() == []
    assert joined.strangers() == {}
    joined.close()
    assert alone(place)


def test_who_only_looks_leaves_no_card(domain: str) -> None:
    looking = Domain(domain, join=False)
    with looking.exclusive():
        assert not (SHM_DIR / looking.card_name).exists()
    looking.close()


def test_a_card_that_was_removed_is_there_again_before_anything_is_made(domain: str) -> None:
    joined = Domain(domain)
    place = SHM_DIR / joined.card_name
    place.unlink()
    with joined.exclusive():
        assert read(place).directory == os.path.realpath(joined.path)
        assert not alone(place)
    joined.close()


def test_a_sweep_of_a_domain_with_nothing_in_it_takes_the_card(domain: str) -> None:
    joined = Domain(domain)
    looking = Domain(domain, join=False)
    place = SHM_DIR / joined.card_name
    sweep(looking)
    assert place.exists(), "somebody holds it"
    joined.close()
    sweep(looking, dry_run=True)
    assert place.exists()
    sweep(looking)
    assert not place.exists()
    looking.close()


def test_a_card_that_says_something_else_is_written_anew(held: HeldCard) -> None:
    held.place.write_bytes(b"x" * 4096)
    other = HeldCard(held.place, SAID)
    other.show()
    assert read(held.place) == SAID
    other.close()


def test_two_hold_one_card(held: HeldCard) -> None:
    other = HeldCard(held.place, SAID)
    other.show()
    held.close()
    held.close()
    assert not alone(held.place)
    other.close()
    assert alone(held.place)


def test_a_card_that_goes_before_it_is_locked_is_not_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def locked(fd: int, *, alone: bool) -> bool:
        if not opened:
            (tmp_path / "card").unlink()
        opened.append(fd)
        return try_lock(fd, alone=alone)

    monkeypatch.setattr(module, "try_lock", locked)
    card = HeldCard(tmp_path / "card", SAID)
    card.show()
    assert len(opened) == 2
    assert leads_to(card.place, opened[-1])
    assert read(card.place) == SAID
    card.close()


def test_where_shared_memory_is_full_it_is_held_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    card = HeldCard(tmp_path / "card", SAID)
    card.show()
    assert card.place.read_bytes() == b""
    assert not alone(card.place)
    card.close()


def test_what_has_its_name_is_not_waited_for(tmp_path: Path) -> None:
    card = HeldCard(tmp_path / "card", SAID)
    os.mkfifo(card.place)
    with pytest.raises(ForeignOwnerError):
        card.show()
    withdraw(card.place)
    assert card.place.exists()


def test_a_card_that_somebody_looks_at_is_removed_when_he_has_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for orphans locks the cards of all domains, also of one that ends just then."""
    card = HeldCard(tmp_path / "card", SAID)
    card.show()
    card.close()
    looker = os.open(card.place, os.O_RDWR)
    assert try_lock(looker, alone=True)
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            os.close(looker)

    monkeypatch.setattr("holdfast.engine.memory.card.time.sleep", nap)
    withdraw(card.place)
    assert len(naps) == 3
    assert not card.place.exists()


def test_a_domain_whose_card_is_something_else_works_without(domain: str) -> None:
    looking = Domain(domain, join=False)
    place = SHM_DIR / looking.card_name
    os.mkfifo(place)
    joined = Domain(domain)
    with joined.exclusive():
        pass
    assert place.is_fifo()
    joined.close()
    looking.close()
    place.unlink()
