"""What a store says when it does not grant. Apart from the machines of registration: who only reads what a
store has written down needs none of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Refusal"]


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
    def reason(self) -> str:
        """Never empty: a store of another version may refuse without a word."""
        return self.text or f"refused ({self.code or 'no reason given'})"
