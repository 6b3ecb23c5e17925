"""The compiled core over the simulator's kernel. Its stub knows the core alone, so everything is Any here."""

from __future__ import annotations

from typing import Any

from holdfast.engine.native import core

ffi: Any = core.ffi
lib: Any = core.lib
