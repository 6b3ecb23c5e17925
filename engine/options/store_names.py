"""Names that a store may have. Apart from what a store is: whoever looks for one needs no more."""

from __future__ import annotations

import re

from ..errors import ConfigError
from .values import NAME_MAX, STORE_NAME

__all__ = ["PORT_MAX", "check_name", "is_port", "is_store_name", "port_name"]

PORT_MAX = 65535
_PORT_NAME = re.compile(r"127\.0\.0\.1:[1-9][0-9]{0,4}")


def port_name(port: int) -> str:
    """The name that a port is, as sources write it (option ume_store)."""
    return f"127.0.0.1:{port}"


def is_store_name(name: object) -> bool:
    """A name that a store may have: letters, digits and ``_ . + -``, 31 at most; or ``127.0.0.1:PORT``."""
    if not isinstance(name, str):
        return False
    if STORE_NAME.fullmatch(name):
        return len(name) <= NAME_MAX
    return _PORT_NAME.fullmatch(name) is not None and is_port(int(name.partition(":")[2]))


def check_name(name: object, what: str = "store name") -> None:
    """Raises ConfigError unless it is a name that a store may have."""
    if not is_store_name(name):
        size = f" ({len(name)} characters)" if isinstance(name, str) and len(name) > NAME_MAX else ""
        raise ConfigError(
            f"{what} {name!r}{size} is not a name",
            hint=f"letters, digits and _ . + -, {NAME_MAX} at most, or 127.0.0.1:PORT",
        )


def is_port(port: object) -> bool:
    """It can be one."""
    return isinstance(port, int) and not isinstance(port, bool) and 0 < port <= PORT_MAX
