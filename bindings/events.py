"""Events, and what callback options receive: see ``holdfast.engine.events``, whose public names these are."""

from __future__ import annotations

from .engine.events import *  # noqa: F403
from .engine.events import __all__ as __all__
