"""Every error that holdfast raises: one tree, each with a code, a hint and a verdict whether trying again can
help.

The text of an error is one line: code, what happened with value and limit, what to do about it. `code` is
UM's name where UM has one (LBM_...), else HF_.... `exit_code` is what the command line returns for it: 2
usage or configuration, 3 not running, 4 timeout, 5 data damage, 1 anything else. All of them can be pickled,
because they travel between processes.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Literal, Protocol

from .printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

EXCERPT_HALF = 50
"""Letters of a line that are shown on each side of a wrong place."""

WouldBlockReason = Literal["flight_size", "flight_bytes", "retention", "ring", "claim"]

_WOULD_BLOCK: dict[WouldBlockReason, tuple[str, str]] = {
    "flight_size": ("as many messages are in flight as ume_flight_size allows", "wait, or raise ume_flight_size"),
    "flight_bytes": (
        "as many bytes are in flight as ume_flight_size_bytes allows",
        "wait, or raise ume_flight_size_bytes",
    ),
    "retention": ("retention is full of unreleased messages", "wait, or raise retransmit_retention_size_limit"),
    "claim": ("another thread has a claim open on this source", "try again when it has ended"),
    "ring": ("a receiver still looks at the part of the ring that comes next", "try again, or release views sooner"),
}


def rebuild(cls: type[Error], args: tuple[object, ...], state: dict[str, object]) -> Error:
    """Make an error again from its pickled parts, whatever its constructor takes."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class Error(Exception):
    """Root of all holdfast errors.

    `send_batch` leaves `first_sequence_number` and `sent` (rows published before the failure) on the error it
    raises; `send_stable` leaves `sequence_number`, of the message if it was published.
    """

    code: str = "HF_ERROR"
    hint: str = ""
    retriable: bool = False
    exit_code: int = 1
    first_sequence_number: int | None = None
    sent: int | None = None
    sequence_number: int | None = None

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(printable(message))
        if hint is not None:
            self.hint = printable(hint)
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        """Give the one line: code, message, hint."""
        line = f"{self.code}: {self.args[0]}"
        return f"{line}; {self.hint}" if self.hint else line

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by parts: subclasses' constructors take other arguments than `args`."""
        return rebuild, (type(self), self.args, self.__dict__)


class UsageError(Error):
    """The caller broke a rule of the interface."""

    code = "LBM_EINVAL"
    exit_code = 2


class ClosedError(UsageError):
    """The object was closed before."""

    code = "HF_CLOSED"
    hint = "make a new one"

    def __init__(self, what: str = "handle") -> None:
        super().__init__(f"{what} is closed")
        self.what = what


class ConfigError(Error):
    """A value of the configuration is wrong. `file`, `line`, `column` (from 1) say where, or are None.

    `text` is that line of the file: the error then shows it, with a caret under the place.
    """

    code = "LBM_EINVAL"
    exit_code = 2

    def __init__(
        self, message: str, file: str | None = None, line: int | None = None, column: int | None = None, *,
        hint: str | None = None, text: str | None = None,
    ) -> None:  # fmt: skip
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message, hint=hint)
        self.file, self.line, self.column = file, line, column
        self.text = text

    @property
    def excerpt(self) -> str:
        """The line of the file and a line with the caret, or nothing. Of a long line what is around the
        place."""
        if self.text is None or self.column is None:
            return ""
        before = max(0, self.column - 1 - EXCERPT_HALF)
        shown = self.text[before : before + 2 * EXCERPT_HALF]
        shown = "".join(letter if letter.isprintable() else " " for letter in shown)
        return f"  {shown}\n  {' ' * (self.column - 1 - before)}^"

    def __str__(self) -> str:
        """Give the one line, and below it the excerpt where there is one."""
        return f"{super().__str__()}\n{self.excerpt}" if self.excerpt else super().__str__()


class MissingExtraError(ConfigError, ImportError):
    """A module that an extra brings is not installed. `name` is the module's, `extra` says which."""

    code = "HF_EXTRA"

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(f"this needs {module}, which is not installed", hint=f"pip install 'holdfast[{extra}]'")
        self.name, self.extra = module, extra


class NoDomainError(ConfigError):
    """Who only looks at a domain has none to look at: nothing has ever run there, or its directory is
    gone."""


class NotRegisteredError(Error):
    """The source is not registered with enough stores to send."""

    code = "LBM_EUMENOREG"
    hint = "start the stores, or wait_registered()"
    retriable = True
    exit_code = 3

    def __init__(self, message: str = "not registered with enough stores", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class QuorumLostError(NotRegisteredError):
    """There was a quorum of stores, and it is lost."""

    hint = "restart the stores; sending goes on by itself when a quorum is back"

    def __init__(self, message: str = "the quorum of stores is lost", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class WouldBlockError(Error):
    """A send could not proceed within its timeout; nothing was published. `reason` says what it waited
    for."""

    code = "LBM_EWOULDBLOCK"
    retriable = True
    exit_code = 4

    def __init__(self, reason: WouldBlockReason, why: str = "", hint: str = "") -> None:
        message, usual = _WOULD_BLOCK[reason]
        super().__init__(f"{message} ({reason})" + (f": {why}" if why else ""), hint=hint or usual)
        self.reason = reason


class MessageTooLargeError(Error):
    """The message can never be sent with this configuration. Sizes in bytes; `option` is the one to raise."""

    code = "LBM_EINVAL"
    exit_code = 2

    def __init__(self, size: int, limit: int, option: str = "ring_size") -> None:
        super().__init__(f"a message of {size} bytes, the limit is {limit}", hint=f"raise {option} or send less")
        self.size = size
        self.limit = limit
        self.option = option


class RegistrationError(Error):
    """A registration was refused or failed."""

    code = "HF_REGISTRATION"
    exit_code = 1


class RegIdInUseError(RegistrationError):
    """A live process holds this RegID or session. `pid` is its process, `since` seconds since the epoch.

    `session_id` is the one that stands for the RegID, 0 if none does. `registration_id` is 0 where the
    session is held and no store has a RegID of it.
    """

    code = "HF_REGID_IN_USE"
    hint = "stop that process, or use another RegID or session id; it is granted as soon as that process is dead"
    retriable = True

    def __init__(self, registration_id: int, pid: int, since: float, session_id: int = 0) -> None:
        names = [f"registration id {registration_id}"] if registration_id or not session_id else []
        names += [f"session id {session_id:#x}"] if session_id else []
        name = " (".join(names) + ")" * (len(names) > 1)
        super().__init__(f"{name} is held by process {pid} since {since:.3f}")
        self.registration_id = registration_id
        self.session_id = session_id
        self.pid = pid
        self.since = since


class RegistrationTimeout(Error):  # noqa: N818  (the public name)
    """Registration did not complete in time; it goes on in the background."""

    code = "LBM_ETIMEDOUT"
    hint = "check that the stores run: holdfast stat"
    retriable = True
    exit_code = 4

    def __init__(self, message: str = "registration did not complete in time", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class StabilityTimeout(Error):  # noqa: N818  (the public name)
    """Number `sqn` was not stable in time; `stable` is the highest stable one, as
    `Source.stable_sequence_number`.

    `reclaimed`: it was reclaimed by force before it was stable, and no waiting will help.
    """

    code = "LBM_ETIMEDOUT"
    hint = "wait longer, or look at the stores: holdfast stat"
    retriable = True
    exit_code = 4

    def __init__(self, sqn: int, stable: int, *, reclaimed: bool = False) -> None:
        if reclaimed:
            super().__init__(
                f"number {sqn} was reclaimed by force before it was stable",
                hint="send it again, or raise retransmit_retention_size_limit or ume_message_stability_lifetime",
            )
            self.retriable = False
        else:
            super().__init__(f"number {sqn} is not stable yet, only those up to {stable}")
        self.sqn = sqn
        self.stable = stable
        self.reclaimed = reclaimed


class EvictedError(Error):
    """What a view showed may be overwritten. Nothing of it is acknowledged; it is delivered again from the
    stores."""

    code = "HF_EVICTED"
    hint = "release views sooner, or raise receiver_pin_timeout; it is delivered again"
    retriable = True

    def __init__(self, message: str = "the source went on over this view", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class LayoutMismatchError(Error):
    """A shared object was made by an incompatible version of holdfast. Layout versions, or descriptions of
    them."""

    code = "HF_LAYOUT"
    hint = "run one version of holdfast everywhere in a domain, or remove the object: holdfast gc"

    def __init__(self, theirs: object, ours: object) -> None:
        super().__init__(f"layout {theirs} found, this process has {ours}")
        self.theirs = theirs
        self.ours = ours


class SharedMemoryFullError(Error):
    """Shared memory is full. `need`, `free` and `size` (of all of it) in bytes; -1 where unknown.

    `inodes`: how many it has, if all of them are used; 0: they are not why.
    """

    code = "LBM_ENOMEM"
    hint = "enlarge /dev/shm (docker: --shm-size), lower ring_size, or remove dead objects: holdfast gc"
    retriable = True

    def __init__(self, need: int, free: int, *, size: int = -1, inodes: int = 0) -> None:
        needed = f"{need} bytes needed, " if need >= 0 else ""
        total = f" of {size} in /dev/shm" if size >= 0 else ""
        used = f"all {inodes} inodes are used, " if inodes else ""
        hint = (
            "remove dead objects: holdfast gc; or, as root: mount -o remount,nr_inodes=N /dev/shm" if inodes else None
        )
        super().__init__(f"shared memory is full: {used}{needed}{free} free{total}", hint=hint)
        self.need = need
        self.free = free
        self.size = size
        self.inodes = inodes


class SystemCallError(Error):
    """A system call failed. `errno` is its number; the code is its name, such as EIO."""

    def __init__(self, message: str, errno: int, name: str) -> None:
        super().__init__(message, code=name)
        self.errno = errno


class LimitReachedError(SystemCallError):
    """A limit of this process or of the machine is reached. `limit` is its name, such as RLIMIT_NOFILE.

    `value` is the limit, `used` how much of it is in use; -1 where unknown.
    """

    retriable = True

    def __init__(
        self, message: str, errno: int, name: str, *, limit: str, value: int, used: int, hint: str | None = None
    ) -> None:
        super().__init__(message, errno, name)
        if hint is not None:
            self.hint = printable(hint)
        self.limit = limit
        self.value = value
        self.used = used


class CorruptionError(Error):
    """Bytes that no correct writer leaves, on disk or in shared memory."""

    code = "HF_DAMAGED"
    hint = "stop using the object and look at it: holdfast store check"
    exit_code = 5


class ForeignOwnerError(Error):
    """A shared object belongs to another user, or lets others in."""

    code = "HF_FOREIGN"
    hint = "use a domain directory of your own, mode 0700"

    def __init__(self, message: str = "owned by another user, or open to others", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class DirectoryInUseError(Error):
    """Another store runs on this directory, or has this name, port or pidfile. `pid` is its process, 0 if
    unknown.

    `directory` is the path that it holds; `what` names the thing where it is no directory.
    """

    code = "HF_DIRECTORY_IN_USE"
    hint = "stop that store, or give each store its own directory"
    exit_code = 3

    def __init__(self, pid: int, directory: str = "", what: str = "", *, hint: str | None = None) -> None:
        named = f"{what} ({directory})" if what else f"directory {directory or 'of this store'}"
        super().__init__(f"{named} is in use by the store of process {pid}", hint=hint)
        self.pid = pid
        self.directory = directory


class ReadOnlyError(Error):
    """The disk of a store's directory is read-only: mounted so, or by the kernel after an error
    (errors=remount-ro).

    A store there takes no source in and records nothing; what it has is read. `directory` is the path.
    `since_start`: the store has started there while it was so, and stays as it is until it is started again.
    """

    code = "HF_READ_ONLY"
    hint = (
        "see what the kernel says of that disk (dmesg), repair it (fsck), mount it read-write, and start the store again; "
        "receivers, Spark and `holdfast store check` read what is there meanwhile"
    )

    def __init__(self, directory: str, *, since_start: bool = False, hint: str | None = None) -> None:
        what = "was read-only when the store started there" if since_start else "is read-only"
        super().__init__(f"{directory} cannot be written: its file system {what}", hint=hint)
        self.directory = directory


class RemovedError(Error):
    """The shared memory of a channel was removed from /dev/shm, and no other end is left that has it: nobody
    can come."""

    code = "HF_REMOVED"
    hint = (
        "close both ends of the channel and make them again: what was written and not read is gone with it; keep what cleans "
        "up in /dev/shm away (RemoveIPC=no)"
    )

    def __init__(self, channel: str, name: str, *, hint: str | None = None) -> None:
        super().__init__(f"channel {channel}: /dev/shm/{name} was removed, and its other end is gone", hint=hint)
        self.channel = channel
        self.name = name


class ForkedHandleError(Error):
    """A handle of the parent process was used in a forked child."""

    code = "HF_FORKED"
    hint = "make a new Context in the child"
    exit_code = 2

    def __init__(self, what: str = "handle") -> None:
        super().__init__(f"this {what} belongs to the parent process")
        self.what = what


class FencedError(Error):
    """This process has lost the lock that proves that it lives, in the domain directory `path` or in a
    store's directory.

    Others may take it for dead: its ring is drained, its RegIDs are granted to whoever asks. So it sends and
    acknowledges nothing there any more, and cannot come back.
    """

    code = "HF_FENCED"
    hint = (
        "end this process and start it again; what reads every file of that directory, such as a backup or a copy, must run in "
        "a process of its own: closing any descriptor of a lock file drops the lock"
    )

    def __init__(self, path: str = "", *, hint: str | None = None) -> None:
        super().__init__(
            f"this process has lost its lock in {path or 'its domain'}: others may take it for dead", hint=hint
        )
        self.path = path


class TurnHeldError(Error):
    """A living process keeps others waiting: it stands still in a step that one at a time may do. `pid` is 0
    if unknown.

    Nothing is taken from it, however long it stands. What waited is tried again where it goes on in the
    background.
    """

    code = "HF_AGAIN"
    retriable = True

    def __init__(self, what: str, pid: int) -> None:
        who = f"process {pid}" if pid else "a process"
        hint = f"let it go on (kill -CONT {pid}) or end it (kill -KILL {pid})" if pid else "see holdfast doctor"
        super().__init__(f"{who} stands still while it is its turn {what}; others wait for it", hint=hint)
        self.pid = pid


class AwayStore(Protocol):
    """A store that cannot be read now (engine/log/sight.py); its text says why."""

    @property
    def store(self) -> str:
        """Its name."""


class StoresAwayError(Error):
    """What should be read is at no store that can be read now, and others are away: nobody knows whether it
    is lost.

    Nothing is left out, and nothing is acknowledged, before that is known. `stores` are their names.
    """

    code = "HF_STORES_AWAY"
    hint = (
        "start these stores, or mount their directories, and read again; holdfast store exclude NAME gives up one that "
        "will not come back"
    )
    retriable = True
    exit_code = 3

    def __init__(self, what: str, away: Sequence[AwayStore] = (), *, hint: str | None = None) -> None:
        named = ", ".join(map(str, away))
        super().__init__(f"{what}, and these stores cannot be read: {named}" if named else what, hint=hint)
        self.stores = tuple(each.store for each in away)


class CallableStoreError(Error):
    """store_main() and Contexts do not share a process, and it runs once per process."""

    code = "HF_CALLABLE_STORE"
    hint = "use spawn_store()"
    exit_code = 2


def no_room(error: BaseException) -> bool:
    """Tell whether a file system or a quota is full, which ends when somebody makes room."""
    full = getattr(error, "errno", None) in {errno.ENOSPC, errno.EDQUOT}
    return full or isinstance(error, SharedMemoryFullError)
