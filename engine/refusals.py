"""Why a store did not grant, in the forms of those who are told: the machine's, and the error that a waiting program gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import registration as reg
from .errors import RegIdInUseError, RegistrationError

if TYPE_CHECKING:
    from . import wire

__all__ = ["refusal_error", "refusal_of"]


def refusal_of(answer: wire.Refused) -> reg.Refusal:
    """The machine's form of a refusal."""
    return reg.Refusal(answer.code, answer.text, answer.pid, answer.since_ns, answer.registration_id, answer.session_id)


def refusal_error(refusal: reg.Refusal) -> Exception:
    """What a waiting program gets for a refusal."""
    if refusal.code == "reg_id_in_use":
        since = refusal.since_ns / 1e9
        return RegIdInUseError(refusal.registration_id, refusal.pid, since, refusal.session_id)
    return RegistrationError(refusal.reason)
