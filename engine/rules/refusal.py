"""What a store says when it does not grant. Apart from the machines of registration: who only reads what a
store has written down needs none of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusal"]

LASTING = {
    "reg_id_in_use", "topic_mismatch", "session_mismatch", "other_source", "deregistered", "topic_not_kept", "receiver_paced",
    "proxy", "usage",
}  # fmt: skip
"""Codes that stay until somebody changes something at a client or at a store. A disk that is full, a store
that is busy, and what a later version may say: these pass."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a store did not grant."""

    code: str
    text: str
    pid: int = 0
    since_ns: int = 0
    registration_id: int = 0
    session_id: int = 0

    @property
    def lasts(self) -> bool:
        """Asking again changes nothing."""
        return self.code in LASTING

    @property
    def reason(self) -> str:
        """Never empty: a store of another version may refuse without a word."""
        return self.text or f"refused ({self.code or 'no reason given'})"
