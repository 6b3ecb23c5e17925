"""The options of the example programs: UM's letters and defaults, where UM has them (docs/semantics.md M)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import holdfast as hf

from .common import CHECKSUM_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence


class Parser(argparse.ArgumentParser):
    """Options of one program. A wrong one is one line and exit code 2."""

    def __init__(self, doc: str | None) -> None:
        style = argparse.RawDescriptionHelpFormatter
        name = f"python -m holdfast.examples.{Path(sys.argv[0]).stem}"
        super().__init__(prog=name, description=doc, formatter_class=style, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise hf.UsageError(message, hint=f"{self.prog} --help")

    def add_options(self) -> None:
        """Adds -o, as the command ``holdfast`` has it."""
        text = "any option of the source or receiver; may be repeated"
        self.add_argument("-o", "--option", metavar="NAME=VALUE", action="append", default=[], type=_pair, help=text)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def whole(text: str) -> int:
    """Parse a number; 0x and 0o as in Python."""
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def natural(text: str) -> int:
    """Parse a number from 0."""
    number = whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def seconds(text: str) -> float:
    """Parse a time from 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0")
    return number


def minimal(doc: str | None, stores: Sequence[str] = ("a",)) -> Parser:
    """The parser of a minimal source; UM's have no options."""
    parser = Parser(doc)
    names = " ".join(stores)
    parser.add_argument("--store", nargs="+", default=list(stores), metavar="NAME", help=f"stores by name ({names})")
    parser.add_argument("--interval", type=seconds, default=1.0, metavar="S", help="pause after each message (1)")
    parser.add_argument("--timeout", type=seconds, metavar="S", help="how long to wait for the stores (for ever)")
    return parser


def publisher(doc: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """Options of umesrc. Raises UsageError."""
    parser = Parser(doc)
    add = parser.add_argument
    add("topic")
    add("-c", "--config", metavar="FILE", help="UM configuration file")
    add("-d", "--delay", type=seconds, default=1, metavar="S", help="before the first message (1)")
    add("-D", "--deregister", action="store_true", help="deregister the source at the end")
    add("-f", "--flight-size", type=natural, metavar="N", help="messages in flight (1000)")
    add("-j", "--late-join", action="store_true", help="late join, which is on anyhow")
    add("-l", "--length", type=natural, default=25, metavar="BYTES", help="length of a message (25)")
    add("-L", "--linger", type=seconds, default=5, metavar="S", help="at the end, while messages are in flight (5)")
    add("-m", "--message-rate", type=natural, default=0, metavar="N", help="messages per second, if the flight allows")
    add("-M", "--messages", type=natural, default=10_000_000, metavar="N", help="how many (10000000)")
    add("-n", "--non-block", action="store_true", help="sends that do not wait")
    add("-N", "--seqnum-info", action="store_true", help="print the numbers of each message")
    add("-P", "--pause", type=natural, default=0, metavar="MS", help="after each message")
    add("-s", "--statistics", type=seconds, default=0, metavar="S", help="print statistics every S seconds")
    add("-t", "--storename", dest="store", action="append", metavar="NAME[:REGID]", help="store; may be repeated")
    add("-v", "--verbose", action="store_true", help="print stability, reclaim and confirmation events")
    add("-V", "--verifiable", action="store_true", help="messages with a checksum")
    parser.add_options()
    given = parser.parse_args(argv)
    if given.message_rate and given.pause:
        parser.error("-m and -P exclude each other")
    if given.verifiable and given.length < CHECKSUM_BYTES:
        parser.error(f"-l {given.length}: a verifiable message has at least {CHECKSUM_BYTES} bytes")
    return given


def subscriber(doc: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """Options of umercv. Raises UsageError."""
    parser = Parser(doc)
    add = parser.add_argument
    add("topic")
    add("-A", "--ascii", action="count", default=0, help="print messages as text (twice: one per line)")
    add("-c", "--config", metavar="FILE", help="UM configuration file")
    add("-D", "--deregister", type=natural, metavar="N", help="deregister after N messages")
    add("-e", "--explicit-ack", type=natural, metavar="N", help="acknowledge by hand, every N messages")
    add("-E", "--exit", action="store_true", help="exit when a source has ended")
    add("-i", "--regid-offset", type=natural, default=1000, metavar="N", help="RegID = source's + N (1000); 0 = any")
    add("--max-sources", type=natural, default=10, metavar="N", help="sources in the statistics, at most (10)")
    add("-N", "--seqnum", type=whole, metavar="X", help="start X behind the stores' low number")
    add("-r", "--msgs", type=natural, metavar="N", help="exit after N messages")
    add("--session-id", type=natural, default=0, metavar="N", help="session ID instead of RegIDs")
    add("-s", "--statistics", type=seconds, default=0, metavar="S", help="print statistics every S seconds")
    add("-S", "--stop", action="store_true", help="exit when a source has ended, with a summary")
    add("-u", "--uregid", type=natural, default=0, metavar="N", help="identity in delivery confirmations")
    add("-v", "--verbose", action="count", default=0, help="print each message (twice: its bytes)")
    add("-V", "--verify", action="store_true", help="check what umesrc -V has sent")
    add("-x", "--no-exit-on-reg-error", action="store_true", help="go on after a registration error")
    parser.add_options()
    return parser.parse_args(argv)
