"""What tests of files share: a domain in which no store runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def place(domain: str) -> Iterator[Domain]:
    made = Domain(domain, join=False)
    yield made
    made.close()
