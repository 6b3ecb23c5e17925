"""What can go wrong in a task, beyond an option (options.OptionError). They travel from Spark's workers as
text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.log.sight import Away

__all__ = ["DataLossError", "MalformedError", "PlacementError", "StoresAwayError"]


class DataLossError(Error):
    """Numbers ``first`` .. ``last`` of a source that a query should read, and no store has them."""

    code = "HF_DATA_LOSS"
    hint = (
        "failOnDataLoss=false reads on behind them, and says so in the log and in the ledger of losses; holdfast store check "
        "shows what the stores have"
    )
    exit_code = 5

    def __init__(self, topic: str, key: str, first: int, last: int, why: str) -> None:
        super().__init__(f"topic {topic}, source {key}: numbers {first}..{last} are {why}")
        self.topic = topic
        self.key = key
        self.first = first
        self.last = last
        self.why = why


class StoresAwayError(Error):
    """What a query should read is at no store that can be read now, and others are away: nobody knows whether
    it is lost.

    ``failOnDataLoss`` makes no difference: nothing is left out, and nothing is acknowledged, before that is
    known.
    """

    code = "HF_STORES_AWAY"
    hint = (
        "start these stores, or mount their directories, and run the query again; holdfast store exclude NAME gives up one that "
        "will not come back"
    )
    retriable = True
    exit_code = 3

    def __init__(self, what: str, away: Sequence[Away] = (), *, hint: str | None = None) -> None:
        named = ", ".join(map(str, away))
        super().__init__(f"{what}, and these stores cannot be read: {named}" if named else what, hint=hint)
        self.stores = tuple(each.store for each in away)


class MalformedError(Error):
    """A payload that is not what valueFormat says."""

    code = "HF_MALFORMED"
    hint = "valueFormat=binary gives the bytes as they are"

    def __init__(self, topic: str, registration_id: int, number: int, what: str) -> None:
        super().__init__(f"topic {topic}, source {registration_id}, message {number}: {what}")
        self.topic = topic
        self.registration_id = registration_id
        self.number = number


class PlacementError(Error):
    """A task runs where the logs of its range are not."""

    code = "HF_PLACEMENT"

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
