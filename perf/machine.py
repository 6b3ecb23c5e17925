"""The facts without which a figure cannot be read again: machine, kernel, governor, pinning, versions,
commit, date."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .harness import ROOT, compiler

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = ("cffi", "numpy", "numba", "posix_ipc", "msgspec")
CPU = Path("/sys/devices/system/cpu")
CHANGELOG = ROOT / "CHANGELOG.md"


def machine(cores: list[int], disk: Path) -> dict[str, object]:
    """A JSON-able mapping. ``cores``: what the threads were pinned to; ``disk``: a directory on the disk."""
    return {
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "pinned_to": cores if len(cores) > 1 else "not pinned: one core",
        "caches": {path.parent.name + "/" + _read(path.parent / "level"): _read(path) for path in _cache_sizes()},
        "governor": _read(CPU / "cpu0/cpufreq/scaling_governor") or "not exposed (virtual machine)",
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "hypervisor": _field("/proc/cpuinfo", "flags").find(" hypervisor ") >= 0,
        "file_system": _file_system(disk),
        "load_before": os.getloadavg(),
        "commit": _output("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "version": version_in(CHANGELOG.read_text()),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "compiler": _output(compiler(), "--version").splitlines()[:1],
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in PACKAGES},
    }


def cpu_model() -> str:
    """As the kernel names it."""
    return _field("/proc/cpuinfo", "model name") or _field("/proc/cpuinfo", "CPU implementer") or platform.machine()


def slug() -> str:
    """A file name for this kind of machine."""
    return slug_of({"cpu": cpu_model(), "cores": os.cpu_count()})


def slug_of(facts: Mapping[str, Any]) -> str:
    """The same of the machine that these facts are of."""
    return "-".join([*re.findall(r"[a-z0-9.]+", _short(facts["cpu"]).lower()), f"{facts['cores']}core"])


def name_of(facts: Mapping[str, Any]) -> str:
    """Name of this kind of machine in a table: ``Intel Xeon, 2 cores``."""
    return f"{_short(facts['cpu'])}, {facts['cores']} cores"


def version_in(changelog: str) -> str:
    """The newest version that a changelog names, released or not: the package's own changes at the release.

    "" where it names none.
    """
    found = re.search(r"^## \[([^\]]+)\]", changelog, re.MULTILINE)
    return found[1] if found else ""


def _short(cpu: str) -> str:
    return " ".join(re.sub(r"\((r|tm)\)|cpu|processor|@.*", "", cpu, flags=re.IGNORECASE).split())


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _field(path: str, name: str) -> str:
    found = re.search(rf"^{name}\s*:\s*(.*)$", _read(Path(path)), re.MULTILINE)
    return found[1] if found else ""


def _cache_sizes() -> list[Path]:
    return sorted(CPU.glob("cpu0/cache/index*/size"))


def _file_system(directory: Path) -> str:
    """Type and device of the mount that holds ``directory``."""
    best = ("", "", "")
    for line in _read(Path("/proc/mounts")).splitlines():
        device, place, kind = line.split()[:3]
        if directory.resolve().is_relative_to(place) and len(place) >= len(best[1]):
            best = (device, place, kind)
    return f"{best[2]} on {best[0]}"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
