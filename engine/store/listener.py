"""Where a store is met: the control socket under its name, and symbolic links from its other names
(engine/memory/domain.py).

A name and a port belong to the living store that took them first; dead ones are replaced. Other names (the
label that UM's XML file gives a store) are taken only where nobody has them, and yield to a store whose name
they are. Everything happens under the domain's creation lock. A crash leaves a socket that nobody listens on
and links that lead to it: the next start of that name or port, or of that store, replaces them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..control import peer
from ..errors import DirectoryInUseError, TurnHeldError
from ..native.runtime import os, socket
from ..options.store_names import is_store_name, port_name
from ..options.values import STORE_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from ..memory.domain import Domain
    from ..options.store_config import StoreConfig

__all__ = ["StoreListener"]

ENDINGS = (".sock", ".info")
BACKLOG = 128


class StoreListener:
    """The listening socket of one store; ``sock`` does not block.

    Raises:
        ConfigError: the path is too long for a Unix socket.
        DirectoryInUseError: a living store has the name or the port.
    """

    def __init__(self, domain: Domain, config: StoreConfig) -> None:
        self._domain = domain
        self._name = config.name
        self._path = domain.socket_path(config.name)
        self.aliases: set[str] = set()
        """The other names that it has got."""
        ports = {port_name(config.port)} if config.port else set()
        with domain.exclusive(patient=True):  # or a process that is stopped for a moment would end a store that starts
            if self._path.is_symlink() and STORE_NAME.fullmatch(config.name):  # a port is no other name that yields
                _remove(self._path)
            self._require_free(self._path, f"store name {config.name}", "choose another name")
            for port in ports - {config.name}:
                self._require_free(domain.socket_path(port), f"port {config.port}", "choose another port")
            self._path.unlink(missing_ok=True)
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self.sock.setblocking(False)
                self.sock.bind(os.fspath(self._path))
                os.chmod(self._path, 0o600)
                self.sock.listen(BACKLOG)
                self.aliases = (ports | {alias for alias in config.aliases if self._is_free(alias)}) - {config.name}
                self._link()
            except BaseException:
                self._leave()
                raise

    def close(self) -> None:
        """Nobody gets in any more. What says who the store was stays, also under its other names.
        Idempotent."""
        if self.sock.fileno() >= 0:
            with contextlib.suppress(OSError, TurnHeldError), self._domain.exclusive():
                self._leave()  # an error: the domain has been removed meanwhile, for example
            self.sock.close()

    def _leave(self) -> None:
        self._path.unlink(missing_ok=True)
        for alias in self.aliases:
            path = self._domain.socket_path(alias)
            if path.is_symlink() and os.readlink(path) == self._path.name:  # not if somebody has it by now
                path.unlink()
        self.sock.close()

    def _require_free(self, path: Path, what: str, remedy: str) -> None:
        pid = _holder(path)
        if pid is not None:
            hint = f"it runs in domain {self._domain.name}: stop it, or {remedy}"
            raise DirectoryInUseError(pid, str(path), what, hint=hint)

    def _is_free(self, alias: str) -> bool:
        """No store has ever had this name, and none that lives has it as another one."""
        if not is_store_name(alias):
            return False
        socket_path, info = self._domain.socket_path(alias), self._domain.info_path(alias)
        if any(os.path.lexists(path) and not path.is_symlink() for path in (socket_path, info)):
            return False
        return os.path.realpath(socket_path) == os.path.realpath(self._path) or _holder(socket_path) is None

    def _link(self) -> None:
        for path in list(self._domain.stores.iterdir()):
            if path.is_symlink() and os.readlink(path) in {f"{self._name}{ending}" for ending in ENDINGS}:
                path.unlink()  # of an earlier start: it may have another port now
        for alias in self.aliases:
            path = self._domain.socket_path(alias)
            _remove(path)
            for ending in ENDINGS:
                path.with_name(f"{alias}{ending}").symlink_to(f"{self._name}{ending}")


def _remove(path: Path) -> None:
    """A name's socket and its file that says who it is, or the links instead of them."""
    for ending in ENDINGS:
        path.with_name(path.name.removesuffix(".sock") + ending).unlink(missing_ok=True)


def _holder(path: Path) -> int | None:
    """The process that listens there, 0 if it does not say who it is, None if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except BlockingIOError:  # it lives, and does not look at those who come
            return 0
        return peer.check_peer(probe)
