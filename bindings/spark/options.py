"""Every option of ``format("holdfast")``: one table, checked before anything is opened. Pure.

Names are matched without regard to case, as Spark does. A parser takes the text and returns the value, or
raises ValueError with what was expected.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn
from urllib.parse import urlsplit

from ..engine.errors import ConfigError
from ..engine.options.values import SESSION_MAX, integer
from .offsets import EARLIEST, LATEST, NUMBER_MAX, Named, Place, named_numbers, place
from .record_ddl import Field, record_fields

__all__ = ["OPTIONS", "Option", "OptionError", "Options", "Role", "ValueFormat", "parse", "table"]

Role = Literal["schema", "batch", "stream", "write", "stream write"]
"""What the options are for. ``schema``: Spark asks for the columns and does not say what for."""

ROLES: dict[str, frozenset[Role]] = {
    "read": frozenset(("batch", "stream")),
    "batch read": frozenset(("batch",)),
    "stream read": frozenset(("stream",)),
    "write": frozenset(("write", "stream write")),
    "batch write": frozenset(("write",)),
    "streaming query": frozenset(("stream", "stream write")),
    "any": frozenset(("batch", "stream", "write", "stream write")),
}
PLACES = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
TOPICS = ("topic", "subscribe", "subscribePattern", "assign")
ENGINE = "option."
"""What begins so is an option of the source that a writer publishes from."""


class OptionError(ConfigError, ValueError):
    """An option of the data source is wrong: its name, its value, or what it is given together with."""


class ValueFormat(NamedTuple):
    """What payloads are: ``binary``; ``struct`` with the fields of a fixed-size record; ``arrow``, IPC
    streams or files."""

    kind: Literal["binary", "struct", "arrow"]
    fields: tuple[Field, ...] = ()


BINARY = ValueFormat("binary")


@dataclass(frozen=True, slots=True)
class Options:
    """What was given, parsed; else the defaults. One field per row of OPTIONS, in snake case."""

    topic: str = ""
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str = ""
    assign: Mapping[str, tuple[str, ...]] | None = None
    domain: str | None = None
    directory: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    read_from: str = "quorum"
    starting_offsets: Place | None = None
    starting_timestamp: int | None = None
    starting_offsets_by_timestamp: Named | None = None
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] = "error"
    ending_offsets: Place | None = None
    ending_timestamp: int | None = None
    ending_offsets_by_timestamp: Named | None = None
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_records_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_records_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    session: int | None = None
    ack_mode: Literal["progress", "commit", "none"] = "none"
    columns: tuple[str, ...] = ()
    value_format: ValueFormat = BINARY
    include_store: bool = False
    include_crc: bool = False
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    txn_app_id: str = ""
    txn_version: int | None = None
    staging_directory: str = ""
    commit_timeout: float = 120.0
    checkpoint_location: str = ""
    query_name: str = ""
    path: str = ""
    engine: Mapping[str, str] = field(default_factory=dict)


# Values -----------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("a word")
    return text.strip()


def _directory(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("an absolute path: the driver, its tasks and the next run may each work in another directory")
    return text


def _location(text: str) -> str:
    parts = urlsplit(text)
    if not parts.netloc and not parts.path.startswith("/"):
        raise ValueError(
            "an absolute path, or a URI with one (file:///PATH, hdfs://HOST/PATH): a relative one depends on who asks"
        )
    return text


def _names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError("names with commas between them")
    if len(set(found)) < len(found):
        raise ValueError("each name once")
    return found


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from None
    return text


def _assign(text: str) -> dict[str, tuple[str, ...]]:
    expected = 'JSON such as {"orders": ["3847562910", "3847562911"]}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # a thousand brackets
        raise ValueError(expected) from None
    lists = found.values() if isinstance(found, dict) else ()
    if not lists or not all(isinstance(keys, list) and keys for keys in lists):
        raise ValueError(expected)
    return {topic: tuple(str(key) for key in keys) for topic, keys in found.items()}


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"true", "false"}:
        raise ValueError("true or false")
    return word == "true"


def _count(text: str) -> int:
    number = integer(text)
    if not 1 <= number <= NUMBER_MAX:
        raise ValueError(f"a whole number from 1 to {NUMBER_MAX}")
    return number


def _version(text: str) -> int:
    number = integer(text)
    if not 0 <= number <= NUMBER_MAX:
        raise ValueError(f"a whole number from 0 to {NUMBER_MAX}")
    return number


def _milliseconds(text: str) -> int:
    number = integer(text)
    if not 0 <= number <= NUMBER_MAX // 1_000_000:
        raise ValueError("milliseconds since 1970-01-01 UTC")
    return number


def _session(text: str) -> int:
    number = integer(text)
    if not 1 <= number <= SESSION_MAX:
        raise ValueError(f"a session ID from 1 to {SESSION_MAX}")
    return number


_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
DURATION_MAX_H = 1_000_000


def _duration(text: str) -> float:
    match = re.fullmatch(r"\s*(\d{1,18})\s*(ms|s|m|h)\s*", text.lower())
    milliseconds = int(match[1]) * _UNITS[match[2]] if match is not None else -1
    if not 0 <= milliseconds <= DURATION_MAX_H * _UNITS["h"]:
        raise ValueError(f"a time such as 500ms, 30s, 15m or 1h, up to {DURATION_MAX_H}h")
    return milliseconds / 1000


def _read_from(text: str) -> str:
    word = text.strip()
    if word.lower() in {"quorum", "any"}:
        return word.lower()
    if not word.startswith("store:") or not word.removeprefix("store:"):
        raise ValueError("quorum, any, or store:NAME")
    return word


def _value_format(text: str) -> ValueFormat:
    kind, _, rest = text.strip().partition(":")
    if kind == "struct" and rest.strip():
        return ValueFormat("struct", record_fields(rest))
    if text.strip() == "binary":
        return BINARY
    if text.strip() == "arrow":
        return ValueFormat("arrow")
    raise ValueError("binary, arrow, or struct:FIELDS such as struct:price DOUBLE, venue CHAR(4)")


def _one_of(*words: str) -> Callable[[str], str]:
    def parse_word(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(" or ".join(words))
        return word

    return parse_word


# The table --------------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """One option: where it may be given (a key of ROLES), what is shown as its default, and what it means."""

    name: str
    parse: Callable[[str], Any]
    where: str
    default: str
    text: str

    @property
    def field(self) -> str:
        """Its name in :class:`Options`."""
        return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", self.name)


OPTIONS = (
    Option("topic", _text, "any", "", "the topic. A writer's: for rows without another; it wins over the column"),
    Option("subscribe", _names, "read", "", "topics, with commas"),
    Option("subscribePattern", _pattern, "read", "", "topics in which this regular expression is found"),
    Option("assign", _assign, "read", "", 'sources: JSON, topic to RegIDs, `{"orders": ["3847562910"]}`'),
    Option(
        "domain", _text, "any", "`$HOLDFAST_DOMAIN`",
        "the domain whose stores are read, or written to: its name, or the absolute path of its directory",
    ),
    Option("directory", _names, "batch read", "", "store directories, with commas, instead of a domain"),
    Option("stores", _names, "any", "all", "read: only these stores' logs. Write: the stores that the source registers with"),
    Option(
        "readFrom", _read_from, "read", "quorum",
        "`quorum`: what a quorum of the source's stores has; `any`: what one store has; `store:NAME`: what that one has",
    ),
    Option(
        "startingOffsets", place, "read", "batch earliest, stream latest",
        "`earliest`, `latest`, or JSON: topic to source to number, -2 earliest, -1 latest",
    ),
    Option("startingTimestamp", _milliseconds, "read", "", "from the first message sent then or later, ms since 1970"),
    Option("startingOffsetsByTimestamp", named_numbers, "read", "", "the same by source: JSON, topic to source to ms"),
    Option(
        "startingOffsetsByTimestampStrategy", _one_of("error", "latest"), "read", "error",
        "where no message is as new as that: an error, or begin at the end",
    ),
    Option("endingOffsets", place, "batch read", "latest", "exclusive; as startingOffsets"),
    Option("endingTimestamp", _milliseconds, "batch read", "", "up to the first message sent then or later"),
    Option("endingOffsetsByTimestamp", named_numbers, "batch read", "", "the same by source"),
    Option(
        "failOnDataLoss", _flag, "read", "true",
        "numbers that no store has any more: an error, or (false) they are skipped, and told once",
    ),
    Option("minPartitions", _count, "read", "", "at least about this many tasks"),
    Option("maxRecordsPerPartition", _count, "read", "", "at most this many numbers per task"),
    Option("maxRecordsPerTrigger", _count, "stream read", "", "at most this many numbers per micro-batch"),
    Option("maxBytesPerTrigger", _count, "stream read", "", "at most about this many bytes of the logs per micro-batch"),
    Option("minRecordsPerTrigger", _count, "stream read", "", "wait until there are this many"),
    Option("maxTriggerDelay", _duration, "stream read", "15m", "but no longer than this"),
    Option(
        "session", _session, "stream read", "",
        "session ID of the receiver that the query is: it acknowledges what Spark has made durable",
    ),
    Option(
        "ackMode", _one_of("progress", "commit", "none"), "stream read", "progress with a session",
        "when it does: as early as is safe, at Spark's commit, never",
    ),
    Option("columns", _names, "read", "all", "which columns, with commas; only these are built"),
    Option(
        "valueFormat", _value_format, "read", "binary",
        "`binary`; `struct:` and the fields of a fixed-size little-endian record; `arrow`: IPC payloads",
    ),
    Option("includeStore", _flag, "read", "false", "column `store`: whose log a message was read from"),
    Option("includeCrc", _flag, "read", "false", "column `crc`: CRC-32C of the payload"),
    Option(
        "delivery", _one_of("exactly_once", "at_least_once"), "write", "exactly_once",
        "`at_least_once` publishes from the tasks, and a task that is repeated publishes again",
    ),
    Option(
        "txnAppId", _text, "batch write", "",
        "with txnVersion: a batch write that is repeated with both publishes once in each topic",
    ),
    Option("txnVersion", _version, "batch write", "", "grows with every batch of that txnAppId"),
    Option(
        "stagingDirectory", _directory, "write", "in the checkpoint or the domain directory",
        "where rows wait for the commit, and the record of what was published lies; nobody else may write to it",
    ),
    Option("commitTimeout", _duration, "write", "2m", "how long a commit waits for stores, room, and another owner"),
    Option("checkpointLocation", _location, "streaming query", "", "Spark's; not a relative one"),
    Option("queryName", _text, "streaming query", "", "Spark's; a reader's own option names it in `spark/losses`"),
    Option("path", str, "any", "", "not used"),
)  # fmt: skip


def table() -> str:
    """The options as a table in Markdown, for the guide."""
    rows = [f"| `{o.name}` | {o.where} | {o.default or '–'} | {o.text} |" for o in OPTIONS if o.name != "path"]
    rows.append(
        f"| `{ENGINE}NAME` | write | – | option NAME of the source that publishes, such as `{ENGINE}ume_store_group` |"
    )
    return "\n".join(["| option | for | default | meaning |", "|---|---|---|---|", *rows])


_BY_NAME = {option.name.lower(): option for option in OPTIONS}


def parse(options: Mapping[str, str], role: Role) -> Options:
    """The options of a read or a write.

    Raises:
        OptionError: an unknown name (the nearest is named), a wrong value, or options that exclude each
            other.
    """
    values: dict[str, Any] = {}
    engine: dict[str, str] = {}
    for name, text in options.items():
        if name.lower().startswith(ENGINE):
            engine[name[len(ENGINE) :].lower()] = text
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            _unknown(name)
        if role != "schema" and role not in ROLES[option.where]:
            raise OptionError(f"option {option.name} is for a {option.where}, this is a {_said(role)}")
        try:
            values[option.field] = option.parse(text)
        except ValueError as error:
            raise OptionError(f"option {option.name} is {text!r}; expected: {error}") from None
    if engine and role in ROLES["read"]:
        raise OptionError(f"{ENGINE}{next(iter(engine))} is for a write: a read has no source of its own")
    if "session" in values:
        values.setdefault("ack_mode", "progress")
    parsed = Options(**values, engine=engine)
    if role in ROLES["read"]:
        _check_read(parsed, {option.name for option in OPTIONS if option.field in values}, role)
    return parsed


def _unknown(name: str) -> NoReturn:
    near = difflib.get_close_matches(name.lower(), _BY_NAME, 1, 0.5)
    hint = f"did you mean {_BY_NAME[near[0]].name}?" if near else f"options are {', '.join(o.name for o in OPTIONS)}"
    raise OptionError(f"there is no option {name!r}", hint=hint)


def _said(where: str) -> str:
    return {"batch": "batch read", "stream": "stream read", "write": "batch write"}.get(where, where)


def _check_read(options: Options, given: set[str], role: Role) -> None:
    """Which options go together."""
    if len(given & set(TOPICS)) != 1:
        found = ", ".join(name for name in TOPICS if name in given) or "none of them"
        raise OptionError(f"a read needs one of {', '.join(TOPICS)}; given: {found}")
    for exclusive in (PLACES, ENDS, ("domain", "directory")):
        both = [name for name in exclusive if name in given]
        if len(both) > 1:
            raise OptionError(f"options {' and '.join(both)} exclude each other", hint="give one of them")
    if role == "batch":
        _check_edge("startingOffsets", options.starting_offsets, "latest", LATEST)
        _check_edge("endingOffsets", options.ending_offsets, "earliest", EARLIEST)
    if options.ack_mode != "none" and options.session is None:
        raise OptionError(
            f"ackMode is {options.ack_mode}, and there is no session to acknowledge for", hint="give session"
        )
    least, most = options.min_records_per_trigger, options.max_records_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minRecordsPerTrigger is {least}, more than maxRecordsPerTrigger, {most}")


def _check_edge(name: str, edge: Place | None, word: str, number: int) -> None:
    """A batch read that starts at the newest message, or ends at the oldest, reads nothing: that is not
    meant."""
    named = edge.values() if isinstance(edge, Mapping) else ()
    if edge == word or any(number in sources.values() for sources in named):
        raise OptionError(f"{name} says {word}: a batch read would have nothing to read", hint="give numbers")
