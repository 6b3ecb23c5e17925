"""What stores and sources tell each other of censuses: between the form of the wire and that of the rules
(engine/rules/census.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..rules.census import MORE, TROUBLE, Identity, Mark, Told
from .fields import MarkOf, Number  # noqa: TC001  (msgspec decodes by them)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..rules.census import Remembered
    from ..rules.registration import Grant

__all__ = ["CensusTold", "brief", "marks_of", "tell", "told_of"]


class CensusTold(msgspec.Struct, frozen=True, array_like=True):
    """What a store says with its grant."""

    mark: MarkOf
    directory: tuple[Number, Number, Number]
    others: dict[str, MarkOf]
    forgot: bool = False
    lost: bool = False


def tell(
    mark: Mark, directory: Identity, others: Mapping[str, Remembered], *, forgot: bool, lost: bool = False
) -> CensusTold:
    """As it goes out."""
    return CensusTold(mark, directory, {name: each[:2] for name, each in others.items()}, forgot, lost)


def brief(said: CensusTold | None) -> CensusTold | None:
    """Without the other stores: of these nothing is known then."""
    return msgspec.structs.replace(said, others={MORE: TROUBLE}) if said is not None else None


def told_of(said: CensusTold | None) -> Told | None:
    """As it came in."""
    if said is None:
        return None
    others = {name: Mark(*mark) for name, mark in said.others.items()}
    return Told(Mark(*said.mark), said.directory, others, said.forgot, said.lost)


def marks_of(grants: Iterable[Grant]) -> dict[str, Mark]:
    """What BEGIN tells of the stores that have granted; of one that keeps no census beside others that do,
    that it is in trouble."""
    grants = list(grants)
    if all(grant.census is None for grant in grants):
        return {}
    return {grant.name: grant.census.mark if grant.census is not None else TROUBLE for grant in grants}
