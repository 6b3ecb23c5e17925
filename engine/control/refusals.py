"""Why a store did not grant, in the forms of those who are told: the machine's, and the error that a waiting
program gets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import RegIdInUseError, RegistrationError
from ..rules import registration as reg

if TYPE_CHECKING:
    from . import wire

__all__ = ["reason_of", "refusal_error", "refusal_of"]


def reason_of(answer: wire.Refused) -> str:
    """What the store says. Never empty: a store of another version may refuse without a word."""
    return answer.text if answer.text.strip() else f"refused without a reason, code {answer.code or 'none'}"


def refusal_of(answer: wire.Refused, store: str) -> reg.Refusal:
    """The machine's form of a refusal. Its text is never empty, and names the ``store`` that said it."""
    text = reason_of(answer)
    if not re.search(rf"\bstore {re.escape(store)}(?![\w.+-])", text):
        text = f"{text} (store {store})"
    return reg.Refusal(answer.code, text, answer.pid, answer.since_ns, answer.registration_id, answer.session_id)


def refusal_error(refusal: reg.Refusal) -> Exception:
    """What a waiting program gets for a refusal."""
    if refusal.code == "reg_id_in_use":
        since = refusal.since_ns / 1e9
        return RegIdInUseError(refusal.registration_id, refusal.pid, since, refusal.session_id)
    return RegistrationError(refusal.reason)
