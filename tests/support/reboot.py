"""What a reboot takes."""

from __future__ import annotations

from holdfast.engine.memory.domain import Domain, unlink_object


def forget_shared_memory(name: str) -> None:
    """As a reboot does."""
    domain = Domain(name)
    for item in domain.objects():
        unlink_object(item.name)
    domain.close()
