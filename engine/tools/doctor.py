"""Looks at what the machine and a domain are like, and says of each thing that will hurt what to do about it.
Changes nothing."""

from __future__ import annotations

import ast
from datetime import datetime
from functools import cached_property, lru_cache
from importlib import metadata, util
from typing import TYPE_CHECKING

from ..control.waits import waiting
from ..errors import Error, ReadOnlyError
from ..memory.domain import SHM_DIR, base_directory
from ..memory.nameless import nameless
from ..native.core import ffi, lib
from ..native.private_directory import is_read_only, movable_at, open_regular
from ..native.runtime import Path, os, time
from .doctor_disk import disk_use
from .doctor_limits import store_limits
from .doctor_turns import standing_still
from .finding import Finding
from .gc import sweep
from .orphans import orphans
from .snapshot import store_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..memory.domain import Domain
    from ..memory.nameless import Nameless
    from .orphans import Orphan
    from .snapshot import StoreFiles

__all__ = ["Finding", "Machine", "examine", "file_system", "removes_ipc"]

SHM_TOTAL_MIN = 256 << 20
"""Bytes: a handful of sources with rings of the default size."""
SHM_FREE_MIN = 64 << 20
"""Bytes: one source more."""
DISK_FREE_MIN = 256 << 20
NETWORK = {"9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "nfs", "nfs4", "smb3"}
"""File systems where locks, mapped files or syncs do not mean what they mean on a disk; also any fuse.*."""
MEMORY = {"ramfs", "tmpfs"}
LOGIND = [
    *("/usr/lib/systemd/logind.conf", "/usr/lib/systemd/logind.conf.d", "/run/systemd/logind.conf.d"),
    *("/etc/systemd/logind.conf", "/etc/systemd/logind.conf.d"),
]
"""The later one wins."""
PREAMBLE, PREAMBLE_BYTES = ffi.typeof("struct hf_preamble *"), ffi.sizeof("struct hf_preamble")
ORPHAN_NS = 60_000_000_000
HARDLINKS = "/proc/sys/fs/protected_hardlinks"
SYSTEM_UID_MAX = 999
"""logind keeps what system users own."""


class Machine:
    """What is the same for each domain: looked at once, when it is first asked for. To look for orphans takes
    all of shared memory and /proc, far longer than the rest."""

    @cached_property
    def shared_memory(self) -> list[Finding]:
        """Its kind, size and room."""
        return list(_shared_memory())

    @cached_property
    def settings(self) -> list[Finding]:
        """Of the system."""
        return [_remove_ipc(), _membarrier()]

    @cached_property
    def extension(self) -> Finding:
        """The compiled core."""
        return _extension()

    @cached_property
    def orphans(self) -> list[Finding]:
        """What no domain claims."""
        return list(_orphans())


def examine(domain: Domain, machine: Machine | None = None) -> list[Finding]:
    """Everything, in a fixed order. ``domain`` need not be joined. ``machine``: shared by several domains."""
    every = machine or Machine()
    return [
        *every.shared_memory, *store_limits(domain), *every.settings, every.extension, *_versions(domain),
        *_directories(domain), *_others(domain), *_turns(domain), *_nameless(domain), *_stale(domain), *every.orphans,
        *_waiting(domain),
    ]  # fmt: skip


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


# The machine ------------------------------------------------------------------------------------------------


def _shared_memory() -> Iterator[Finding]:
    try:
        found = os.statvfs(SHM_DIR)
    except OSError as error:
        yield Finding("shm", ok=False, found=f"{SHM_DIR}: {error.strerror}", remedy=f"mount -t tmpfs tmpfs {SHM_DIR}")
        return
    kind, _ = file_system(SHM_DIR, _mounts())
    if kind not in MEMORY:
        remedy = f"mount -t tmpfs tmpfs {SHM_DIR}"
        yield Finding("shm", ok=False, found=f"{SHM_DIR} is {kind}, not tmpfs", remedy=remedy)
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    said = f"{SHM_DIR}: {_mib(total)}, {_mib(free)} free"
    remedy = ""
    if total < SHM_TOTAL_MIN:
        remedy = f"mount -o remount,size=1g {SHM_DIR} (docker: --shm-size 1g), or lower ring_size of every source"
    elif free < SHM_FREE_MIN:
        remedy = f"holdfast gc, or mount -o remount,size={2 * total // 2**20}m {SHM_DIR}"
    yield Finding("shm", ok=not remedy, found=said, remedy=remedy)


def _remove_ipc() -> Finding:
    """systemd-logind deletes what a user has in /dev/shm at the end of the last session, unless told not
    to."""
    uid = os.geteuid()
    if not os.path.isdir("/run/systemd/seats"):
        return Finding("removeipc", ok=True, found="systemd-logind does not run here")
    if uid <= SYSTEM_UID_MAX:
        return Finding("removeipc", ok=True, found=f"uid {uid} is a system user: logind keeps its shared memory")
    if not removes_ipc(_texts(LOGIND)):
        return Finding("removeipc", ok=True, found="RemoveIPC=no")
    said = "RemoveIPC=yes: logind deletes this user's rings, boards and memory logs when the last session ends"
    remedy = "RemoveIPC=no in /etc/systemd/logind.conf and systemctl restart systemd-logind, or run as a system user"
    return Finding("removeipc", ok=False, found=said, remedy=remedy)


def _texts(places: list[str]) -> list[str]:
    paths = [
        path for place in map(Path, places) for path in (sorted(place.glob("*.conf")) if place.is_dir() else [place])
    ]
    found = []
    for path in paths:
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def removes_ipc(texts: list[str]) -> bool:
    """What logind's configuration files, the later one in force, say of RemoveIPC; its default is yes."""
    said = True
    for line in "\n".join(texts).splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() == "RemoveIPC":
            said = value.strip().lower() in {"1", "on", "true", "y", "yes"}
    return said


def _membarrier() -> Finding:
    if lib.hf_wait_setup() == 1:
        return Finding("membarrier", ok=True, found="membarrier works: a send needs no fence")
    remedy = "allow membarrier(2) in the seccomp profile of the container"
    return Finding(
        "membarrier", ok=False, found="membarrier does not work: sends and wake-ups are slower", remedy=remedy
    )


# The version ------------------------------------------------------------------------------------------------


def _versions(domain: Domain) -> Iterator[Finding]:
    kinds = {"stream": lib.HF_KIND_STREAM, "board": lib.HF_KIND_BOARD, "bells": lib.HF_KIND_BELLS}
    places = [(f"{SHM_DIR}/{item.name}", kinds[item.kind]) for item in domain.objects() if item.kind in kinds]
    folders = [store.info.logs for store in store_files(domain) if store.info is not None]
    places += [(f"{folder}/{log}/head", lib.HF_KIND_HEAD) for folder in folders for log in _names(folder)]
    looked = {path: _foreign_layout(path, kind) for path, kind in places}
    others = sorted(path for path, foreign in looked.items() if foreign)
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        said = f"{others[0]}{more}: made by another version of holdfast"
        remedy = "run one version in a domain: that one, or holdfast gc --all when nothing runs; logs: use that version"
        yield Finding("version", ok=False, found=said, remedy=remedy)
    else:
        yield Finding(
            "version",
            ok=True,
            found=f"{len(looked) - list(looked.values()).count(None)} objects, all of layout {lib.HF_LAYOUT_VERSION}",
        )


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _foreign_layout(path: str, kind: int) -> bool | None:
    """The preamble is done, and says another layout than this extension has for that kind of object. None: it
    is not there, or not ours."""
    try:
        fd = open_regular(path, os.O_RDONLY)
    except (Error, OSError):
        return None
    try:
        data = os.read(fd, PREAMBLE_BYTES)
    finally:
        os.close(fd)
    if len(data) < PREAMBLE_BYTES:
        return False
    preamble = ffi.cast(PREAMBLE, ffi.from_buffer(data))
    said = preamble.layout_version, preamble.struct_hash, preamble.page_size
    return preamble.magic != 0 and said not in _own_layouts(kind)


@lru_cache
def _own_layouts(kind: int) -> set[tuple[int, int, int]]:
    """What the preamble of such an object may say: version, hash and page size. Asked once, for there may be
    thousands of logs."""
    ours = {(lib.hf_layout_version(kind), lib.hf_struct_hash(kind))}
    if kind == lib.HF_KIND_HEAD:  # they are read, and their store makes them anew
        ours |= {(1, lib.hf_head_v1_hash()), (1, lib.hf_head_rest_hash())}
    return {(version, fields, os.sysconf("SC_PAGE_SIZE")) for version, fields in ours}


def _extension() -> Finding:
    """The compiled core against what this package was written for."""
    remedy = "install holdfast again; in a checkout: make setup"
    wanted = _declared()
    lacking = sorted(name for name in wanted if not hasattr(lib, name))
    differ = sorted(name for name, value in wanted.items() if value is not None and getattr(lib, name, value) != value)
    try:
        version = metadata.version("holdfast")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    if lacking or differ:
        said = f"holdfast {version}: the compiled core is of another version: it " + (
            f"lacks {lacking[0]}" if lacking else f"has another {differ[0]}"
        )
        return Finding("version", ok=False, found=said, remedy=remedy)
    return Finding("version", ok=True, found=f"holdfast {version}, compiled core with layout {lib.HF_LAYOUT_VERSION}")


def _declared() -> dict[str, int | None]:
    """Every name of the core that the package's stub declares, with the value of a constant. Empty without
    the stub."""
    spec = util.find_spec("holdfast")
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    try:
        tree = ast.parse((folder / "_core.pyi").read_text())
    except OSError:
        return {}
    found: dict[str, int | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("hf_"):
            found[node.name] = None
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id.startswith("HF_"):
            constant = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
            found[node.target.id] = node.value.value if constant else None  # type: ignore[union-attr]
    return found


# Directories and objects ------------------------------------------------------------------------------------


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return ""


def file_system(path: Path, mountinfo: str) -> tuple[str, str]:
    """Type of the file system that ``path`` lies on, and where that is mounted; from the text of
    /proc/self/mountinfo."""
    found, longest = ("unknown", ""), -1
    for line in mountinfo.splitlines():
        fields, dash, rest = line.partition(" - ")
        if not dash or len(fields.split()) < 5:
            continue
        mount = Path(fields.split()[4].replace("\\040", " "))
        if path.is_relative_to(mount) and len(str(mount)) >= longest:  # the later one of two lies on top
            found, longest = (rest.split()[0], str(mount)), len(str(mount))
    return found


def _directories(domain: Domain) -> Iterator[Finding]:
    mounts = _mounts()
    yield _directory("directory", "domains", base_directory().resolve(), mounts, disk=False)
    for store in store_files(domain):
        info = store.info
        if info is None:
            said = f"store {store.name}: its info file cannot be read"
            yield Finding(
                "store", ok=False, found=said, remedy=f"start it once, or remove {domain.info_path(store.name)}"
            )
            continue
        path = Path(info.directory)
        if not path.is_dir():
            said = f"store {store.name}: {path} does not exist"
            yield Finding(
                "store", ok=False, found=said, remedy="mount or restore it; if it is gone for good: holdfast gc --all"
            )
            continue
        yield _directory(
            "directory", f"store {store.name}", path.resolve(), mounts, disk=info.type in {"disk", "mixed"}
        )
        if info.type in {"disk", "mixed"}:
            yield _space(store.name, path)
            yield from _taken(store, Path(info.logs))
        yield from _written(store, path, Path(info.logs or path / "logs").resolve().parent)
        if store.state == "dead":
            said = f"store {store.name} was killed (pid {info.pid})"
            kind = f" --type {info.type}" if info.type in {"memory", "no-cache"} else ""  # else it would keep elsewhere
            again = f"start it as it was started: holdfast store run --name {store.name} --dir {path}{kind}"
            yield Finding("store", ok=False, found=said, remedy=again)


def _directory(check: str, whose: str, path: Path, mounts: str, *, disk: bool) -> Finding:
    kind, mount = file_system(path, mounts)
    said = f"{whose}: {path} on {kind} ({mount or 'unknown'})"
    if kind in NETWORK or kind.startswith("fuse."):
        remedy = "use a directory on a local disk: locks and syncs do not hold over a network"
        return Finding(check, ok=False, found=said, remedy=remedy)
    if disk and kind in MEMORY:
        remedy = "use a directory on a disk, or a memory store: what is stable here does not survive a reboot"
        return Finding(check, ok=False, found=said, remedy=remedy)
    return Finding(check, ok=True, found=said)


def _written(store: StoreFiles, state: Path, cache: Path) -> Iterator[Finding]:
    """A store on a disk that is read-only takes nothing in; one that has started so, also later. ``cache``:
    of the logs."""
    places = list(dict.fromkeys((state.resolve(), cache)))
    sealed = [each for each in places if is_read_only(each)]
    if sealed:
        said = f"store {store.name}: {sealed[0]} is on a file system that is read-only"
        said = f"{said}: it takes nothing in and records nothing"
        yield Finding("store", ok=False, found=said, remedy=ReadOnlyError.hint)
    elif store.row().read_only:
        where = " or ".join(map(str, places))
        said = f"store {store.name}: it takes nothing in, because {where} was on a file system that was read-only"
        yield Finding("store", ok=False, found=said, remedy="the disk can be written now: start the store again")


def _space(name: str, path: Path) -> Finding:
    found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize
    remedy = "" if free >= DISK_FREE_MIN else "make room, or lower repository-disk-file-size-limit"
    return Finding("directory", ok=not remedy, found=f"store {name}: {_mib(free)} free", remedy=remedy)


def _taken(store: StoreFiles, logs: Path) -> Iterator[Finding]:
    """What its logs may take until each is as full as its limit allows, and what is free."""
    if store.info is None or store.listed is None or not store.info.disk_limit:
        return
    limit, use = store.info.disk_limit, disk_use(logs, store.listed.sources, store.info.disk_limit)
    if not use.sources:
        return
    over = f"; {use.over} are of sources that are over, and stay as they are" if use.over else ""
    said = f"store {store.name}: {use.sources} logs take {_mib(use.taken)} of files{over}; each keeps {_mib(limit)} at most "
    said += f"(repository-disk-file-size-limit): {_mib(use.most)} of files when all are full"
    if use.paced:
        said += f"; {use.paced} are receiver-paced: their limit counts payload, a message takes 32 bytes more, in steps of 32"
    try:
        found = os.statvfs(logs)
    except OSError:
        yield Finding("directory", ok=True, found=said)
        return
    free = found.f_bavail * found.f_frsize
    short = use.most - use.taken - free
    remedy = f"make {_mib(short)} of room, or lower repository-disk-file-size-limit" if short > 0 else ""
    yield Finding("directory", ok=not remedy, found=f"{said}; {_mib(free)} free", remedy=remedy)


def _others(domain: Domain) -> Iterator[Finding]:
    """What other users have done, and could do. Nobody takes such names for the domain's."""
    for uid, count in sorted(domain.strangers().items()):
        said = f"uid {uid} has made {count} names of this domain's in {SHM_DIR}; they are passed over"
        yield Finding(
            "others",
            ok=False,
            found=said,
            remedy=f"as root: find {SHM_DIR} -name '{domain.prefix}*' -uid {uid} -delete",
        )
    stores = [Path(store.info.directory) for store in store_files(domain) if store.info is not None]
    for path in [domain.path, *stores]:
        if (parent := movable_at(path)) is not None:
            said = f"everybody may put another directory in the place of {path}, in {parent}"
            yield Finding("others", ok=False, found=said, remedy=f"chmod +t {parent}, or chmod o-w {parent}")
    try:
        linked = Path(HARDLINKS).read_text().strip() == "0"
    except OSError:
        return
    if linked:
        said = (
            "other users may give objects and logs a second name, which makes them unusable (fs.protected_hardlinks=0)"
        )
        yield Finding("others", ok=False, found=said, remedy="sysctl fs.protected_hardlinks=1")


def _turns(domain: Domain) -> Iterator[Finding]:
    for pid, what in standing_still(domain):
        said = f"process {pid or '(unknown)'} stands still while {what}: who wants to do the same waits for it"
        remedy = f"let it go on (kill -CONT {pid}), or end it (kill -KILL {pid})" if pid else "find and end it"
        yield Finding("turn", ok=False, found=said, remedy=remedy)


def _nameless(domain: Domain) -> Iterator[Finding]:
    for each in nameless(domain):
        if each.kind == "bells":
            said = f"process {each.pid} lives, and the doorbells that it waits on, {SHM_DIR / each.name}, have been removed: "
            said += "what processes do that have started since wakes it up to 50 ms late"
            yield Finding("nameless", ok=False, found=said, remedy=f"restart process {each.pid} when it may be")
            continue
        if each.kind.startswith("channel "):
            yield _channel(each)
            continue
        said = f"process {each.pid} lives, a {each.kind} of topic {each.topic!r}, and {SHM_DIR / each.name} has been removed: "
        said += "new receivers and restarted stores cannot find it"
        remedy = f"close that {each.kind} and make it again, or restart process {each.pid}"
        yield Finding("nameless", ok=False, found=said, remedy=remedy)


def _channel(note: Nameless) -> Finding:
    end = note.kind.removeprefix("channel ")
    said = (
        f"process {note.pid} lives, the {end} of channel {note.topic!r}, and {SHM_DIR / note.name} has been removed: "
    )
    remedy = f"close both ends of that channel and make them again, or restart process {note.pid}"
    return Finding("nameless", ok=False, found=said + "whoever comes to that channel cannot find it", remedy=remedy)


def _stale(domain: Domain) -> Iterator[Finding]:
    """What the dead left. Their lock files count for nothing: they are empty, and the proof of death."""
    try:
        items = [item for item in sweep(domain, dry_run=True) if item.kind != "lock"]
    except (Error, OSError) as error:
        yield Finding(
            "stale", ok=False, found=f"the domain cannot be looked at: {error}", remedy="holdfast gc --dry-run"
        )
        return
    gone, kept = [item for item in items if item.remove], [item for item in items if not item.remove]
    size = _mib(sum(item.bytes for item in gone))
    said = f"{len(gone)} objects of dead processes, {size}" if gone else "nothing that nobody needs"
    yield Finding("stale", ok=not gone, found=said, remedy="holdfast gc" if gone else "")
    for item in kept:
        ok = item.kind == "logs"  # of a memory store that does not run: for its next start, nothing to be done
        remedy = "" if ok else "as it says"
        yield Finding("stale", ok=ok, found=f"{item.kind} {item.path}: {item.why}", remedy=remedy)


def _orphans() -> Iterator[Finding]:
    """In all of shared memory, whichever domain is looked at. Who removes a domain this minute may be about
    to remove that, too."""
    try:
        found = orphans(older_ns=ORPHAN_NS)
    except (Error, OSError) as error:
        said = f"what no domain claims cannot be looked at: {error}"
        yield Finding("orphans", ok=False, found=said, remedy="holdfast gc --orphans")
        return
    goes = [each for each in found if each.gone and not each.kept]
    if goes:
        said = (
            f"{len(goes)} things of {_domains(goes)} whose directory is gone, {_mib(sum(each.bytes for each in goes))}"
        )
        remedy = "holdfast gc --orphans lists them, and with --remove removes them"
        yield Finding("orphans", ok=False, found=f"{said}, the oldest {_oldest(goes)}", remedy=remedy)
    holds = [each for each in found if each.gone and each.needs_all]
    if holds:
        size = _mib(sum(each.bytes for each in holds))
        said = f"{len(holds)} rings and logs of {_domains(holds)} whose directory is gone ({size}, the oldest {_oldest(holds)})"
        said += " may hold messages that nobody else has"
        remedy = "move that same directory back (a copy is another domain), and start its stores; "
        remedy += "or give the messages up: holdfast gc --orphans --remove --all"
        yield Finding("orphans", ok=False, found=said, remedy=remedy)
    unknown = [each for each in found if not each.gone and each.age_ns >= ORPHAN_NS]
    if unknown:
        said = f"{len(unknown)} things of {_domains(unknown, 'unknown ')}, {_mib(sum(each.bytes for each in unknown))}"
        said = f"{said}, the oldest {_oldest(unknown)}: holdfast gc --orphans says why"
        yield Finding("orphans", ok=True, found=said)


def _domains(found: list[Orphan], kind: str = "") -> str:
    count = len({Path(each.path).name[:16] for each in found})
    return f"{count} {kind}domain{'s' if count > 1 else ''}"


def _oldest(found: list[Orphan]) -> str:
    since = (time.time_ns() - max(each.age_ns for each in found)) / 1e9
    return f"of {datetime.fromtimestamp(since).astimezone().isoformat(' ', 'minutes')}"


def _waiting(domain: Domain) -> Iterator[Finding]:
    """Receivers to which nothing can come yet."""
    for wait in waiting(domain):
        session = f", session ID {wait.session_id:#x}" if wait.session_id else ""
        since = datetime.fromtimestamp(wait.since_ns / 1e9).astimezone().isoformat(" ", "seconds")
        said = f"a receiver of {wait.topic!r} (pid {wait.pid}{session}) since {since} {wait.why}"
        yield Finding(
            "receiver", ok=False, found=said, remedy="start the stores that cannot be reached, or see what they say"
        )
