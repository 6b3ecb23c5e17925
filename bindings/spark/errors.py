"""What can go wrong in a task, beyond an option (options.OptionError). They travel from Spark's workers as
text."""

from __future__ import annotations

from ..engine.errors import Error, StoresAwayError

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
