"""The client's side of deregistration: "forget me", to every store that this object registered with
(docs/semantics.md F.7).

A store that is down is asked when it is back, as long as the object lives. What a store refuses because
somebody else took the RegID over meanwhile is not this object's any more, and counts as answered.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ..errors import TurnHeldError, UsageError
from ..events import receiver as receiver_events
from ..events import source as source_events
from ..events.info import NoFlags
from ..memory.deregistered_lines import mark_deregistered, receiver_lines
from ..memory.domain import unlink_source
from ..memory.mapping import UnpublishedError, attach_board, read_lines
from ..native.core import CData, ffi, lib
from . import wire
from .refusals import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from ..memory.domain import Domain
    from ..rules.source_registration import SourceRegistration
    from .link import StoreLink

__all__ = [
    "NOBODY", "Deregistration", "Forgotten", "ReceiverDeregistration", "SourceDeregistration", "check_deregister",
    "close_for_good", "mark_own_lines",
]  # fmt: skip

RETRY_NS = 1_000_000_000
"""Pause before a store that failed to do it is asked again."""
NOBODY = bytes(16)
"""No object comes with this."""


def check_deregister(already: bool, stores: Iterable[object]) -> None:
    """Raises UsageError, with UM's texts: called twice, or nothing to deregister from."""
    if already:
        raise UsageError("already deregistering", hint="make a new object to register again")
    if not any(True for _ in stores):
        raise UsageError("not registered with any stores", hint="wait_registered() first")


def close_for_good(stream: CData) -> None:
    """Closes the stream of a source (``struct hf_source *``) that is to be forgotten. The ring says so first:
    this process may be killed before the stores have answered, and then nobody is to wait for the ring."""
    header = ffi.cast("struct hf_stream_header *", lib.hf_source_map(stream).base)
    header.flags |= lib.HF_STREAM_DEREGISTERED
    lib.hf_source_close(stream)


def mark_own_lines(domain: Domain, source: bytes, uuids: Set[bytes], session_id: int) -> None:
    """The board says first that this receiver asks its stores to forget it: nobody is to take its line for
    one that its stores have lost. Where a store keeps it still, that counts."""
    lines = receiver_lines(domain, source) or ()
    mark_deregistered(domain, source, [each for each in lines if any(each.is_of(one, session_id) for one in uuids)])


class Deregistration:
    """Asks the stores, until each has answered. Subclasses say what, and tell the program; the context's
    thread."""

    def __init__(self, links: Sequence[StoreLink]) -> None:
        self._links = links
        self._waiting: set[int] = set()
        self._retry_ns: dict[int, int] = {}
        self._told: set[int] = set()
        """Stores that could not do it, of which the program was told."""

    def _request(self, store: int, request_id: int) -> wire.Deregister:
        """What to ask this store."""
        raise NotImplementedError

    def _forgotten(self, store: int, next_sqn: int) -> None:
        """This store has nothing of the object any more. ``next_sqn``: wire.Deregistered."""
        raise NotImplementedError

    def _say(self, store: int, refused: wire.Refused) -> None:
        """Tells the program what this store says."""
        raise NotImplementedError

    def _refused(self, store: int, refused: wire.Refused) -> None:
        """This store has nothing to forget: somebody else holds the RegID."""
        self._say(store, refused)

    def _complete(self) -> None:
        """All stores have answered."""
        raise NotImplementedError

    def add(self, stores: Iterable[int]) -> None:
        """Stores that granted: also one whose grant came after the call."""
        fresh = set(stores) - self._waiting
        self._waiting |= fresh
        for store in sorted(fresh):
            self._ask(store)

    def _ask(self, store: int) -> None:
        self._retry_ns.pop(store, None)  # it came back during the pause: else it would be asked, and told of, once more
        link = self._links[store]
        link.ask(self._request(store, link.next_id()), lambda answer: self._take(store, answer))

    def asked(self) -> list[StoreLink]:
        """Links on which an answer may come."""
        return [self._links[store] for store in sorted(self._waiting) if self._links[store].up]

    def link_up(self, link: StoreLink) -> None:
        """A store is back."""
        for store in sorted(self._waiting):
            if self._links[store] is link:
                self._ask(store)

    def tick(self, now_ns: int) -> None:
        """Asks those again that failed."""
        for store, due_ns in list(self._retry_ns.items()):
            if not due_ns:
                self._retry_ns[store] = now_ns + RETRY_NS
            elif now_ns >= due_ns:
                self._ask(store)

    def _take(self, store: int, answer: wire.Answer) -> None:
        match answer:
            case wire.Deregistered():
                self._forgotten(store, answer.next_sqn)
            case wire.Refused(code="busy" | "failed" | "read_only"):
                if store not in self._told:
                    self._told.add(store)
                    self._say(store, answer)
                self._retry_ns[store] = 0
                return
            case wire.Refused():
                self._refused(store, answer)
        self._waiting.discard(store)
        if not self._waiting:
            self._complete()


class SourceDeregistration(Deregistration):
    """Of a source, whose stream is closed already. The names of its rings and board go when all stores have
    answered."""

    def __init__(
        self, domain: Domain, machine: SourceRegistration, links: Sequence[StoreLink], names: Sequence[str],
        tell: Callable[[object], None],
    ) -> None:  # fmt: skip
        super().__init__(links)
        self._domain = domain
        self._machine = machine
        self._names = names
        self._tell = tell
        self._successor = False
        """A store has refused: somebody else has the RegID there by now."""

    def _request(self, store: int, request_id: int) -> wire.Deregister:
        grant = self._machine.entries[store].grant
        assert grant is not None
        incarnation = max(self._machine.incarnation, grant.incarnation)
        return wire.Deregister(request_id, "source", grant.uuid, self._machine.uuid, incarnation)

    def _forgotten(self, store: int, next_sqn: int) -> None:
        grant = self._machine.entries[store].grant
        assert grant is not None
        self._tell(
            source_events.DeregistrationSuccess(
                NoFlags.NONE, grant.registration_id, next_sqn - 1, store, self._names[store]
            )
        )

    def _say(self, store: int, refused: wire.Refused) -> None:
        name = self._names[store]
        text = reason_of(refused)
        self._tell(source_events.RegistrationError(text, name, refused.pid, refused.since_ns / 1e9))

    def _refused(self, store: int, refused: wire.Refused) -> None:
        self._successor = True
        self._say(store, refused)

    def _complete(self) -> None:
        if not self._successor:
            # What cannot be removed now is the stores'.
            with (
                contextlib.suppress(TurnHeldError),
                self._domain.exclusive(),
            ):  # nobody joins the board, or opens a ring, between the look and the deed
                if not self._goes_on():
                    unlink_source(self._domain, self._machine.uuid)
        self._tell(source_events.DeregistrationComplete())

    def _goes_on(self) -> bool:
        """The identity has another life: a store that was away has given it to somebody since, or still
        drains its ring."""
        uuid, own = self._machine.uuid, self._machine.incarnation
        if any(item.kind == "stream" and item.incarnation > own for item in self._domain.objects(uuid)):
            return True
        try:
            with attach_board(self._domain, uuid, writable=False) as board:
                views = read_lines(board, self._domain, test=True)
        except (FileNotFoundError, UnpublishedError):
            return False
        return any(view.line.role == lib.HF_ROLE_STORE and view.alive != 0 for view in views)


class Forgotten(NamedTuple):
    """What a store knows a receiver of one source by; as :class:`wire.ReceiverGranted` says it."""

    uuid: bytes
    registration_id: int
    source_registration_id: int
    flags: int


class ReceiverDeregistration(Deregistration):
    """Of a receiver, from the stores of one source; their links and names by store index. ``proposal``: what
    it came with, :data:`NOBODY` where it holds nothing any more."""

    def __init__(
        self, uuid: bytes, topic: str, source: str, tell: Callable[[object], None], links: Sequence[StoreLink],
        names: Sequence[str], proposal: bytes,
    ) -> None:  # fmt: skip
        super().__init__(links)
        self._uuid, self._topic, self._source, self._tell = uuid, topic, source, tell
        self._names, self._proposal = names, proposal
        self._answers: dict[int, wire.ReceiverGranted | Forgotten] = {}

    def start(self, answers: Mapping[int, wire.ReceiverGranted | Forgotten]) -> None:
        """Asks the stores that granted, by index; later also one whose grant has crossed the call."""
        self._answers.update(answers)
        self.add(answers)

    def _request(self, store: int, request_id: int) -> wire.Deregister:
        return wire.Deregister(request_id, "receiver", self._uuid, self._answers[store].uuid, proposal=self._proposal)

    def _forgotten(self, store: int, next_sqn: int) -> None:
        answer = self._answers[store]
        paced = bool(answer.flags & receiver_events.RegistrationSuccessFlags.RPP)
        self._tell(
            receiver_events.DeregistrationSuccess(
                self._topic, self._source, receiver_events.DeregistrationFlags(paced), answer.source_registration_id,
                answer.registration_id, next_sqn - 1, store, self._names[store],
            )
        )  # fmt: skip

    def _say(self, store: int, refused: wire.Refused) -> None:
        name = self._names[store]
        text, since = reason_of(refused), refused.since_ns / 1e9
        self._tell(
            receiver_events.RegistrationError(self._topic, self._source, text, name, refused.pid, since)
        )  # fmt: skip

    def _complete(self) -> None:
        self._tell(receiver_events.DeregistrationComplete(self._topic, self._source))
