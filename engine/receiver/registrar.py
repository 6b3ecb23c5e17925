"""Registers one receiver with the stores of one source, and again when the source's SRI says so
(docs/semantics.md B.2, B.3).

The decisions are registration.ReceiverRegistration's; this is its driver, on the context's thread: requests
and answers over the links, the program's RegID callback, and the events.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..control import wire
from ..control.deregistration import ReceiverDeregistration, mark_own_lines
from ..control.link import twin_of
from ..control.refusals import refusal_of
from ..control.waits import Wait
from ..events import info as callbacks
from ..events import receiver as events
from ..log.info_file import read_info
from ..memory.sri import Sri
from ..native.core import lib
from ..native.runtime import os, secrets, time
from ..rules import registration as reg
from ..rules.receiver_registration import REGISTERED, ReceiverRegistration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..control.link import StoreLink
    from ..memory.discovery import Found
    from ..rules.quorum import Groups
    from ..rules.reconcile import Table
    from .ports import DeliveryPort

__all__ = ["Registered", "Registrar"]

_log = logging.getLogger("holdfast")


@dataclass(slots=True)
class Registered:
    """One store of the source."""

    link: StoreLink
    wanted: int | None = None
    """RegID to ask for, once the program has said it."""
    answer: wire.ReceiverGranted | None = None
    """What it granted last; it stays when the store dies."""
    asked: bool = False
    """It is to grant, perhaps by another identity than it has granted."""
    seen: tuple[int, int] = (0, 0)
    """(incarnation, version) in the SRI when it granted, or when this receiver last asked because of it."""

    @property
    def name(self) -> str:
        """The store's."""
        return self.link.name


class Registrar:
    """See the module. ``stores``: in the order of store indexes."""

    def __init__(self, controller: DeliveryPort, names: Sequence[str], groups: Groups, incarnation: int) -> None:
        self._controller = controller
        self._receiver = controller.receiver
        options, context = self._receiver.options, self._receiver.context
        self.stores = [Registered(context.link(name)) for name in names]
        self._dropped: dict[str, Registered] = {}
        """Stores that the source names no more, by name: they hold this receiver's registration until it
        leaves."""
        self.session_id = int(options.ume_session_id or context.session_id)
        self.proposal = secrets.token_bytes(16)
        """The receiver's identity, if no store knows another one."""
        named = options.ume_registration_extended_function is not None  # it may name the RegID again
        self.ephemeral = not (self.session_id or named or options.ume_state_lifetime)
        """Nobody asks to keep this receiver: it leaves nothing."""
        self._incarnation = incarnation
        self._groups = groups
        """As the newest SRI says."""
        self._machine = self._new_machine()
        self.deregistration: ReceiverDeregistration | None = None
        self.said: Mapping[str, str] = {}
        """Directories of the source's log, where a store has told of them without a registration."""
        self._waits_since_ns = 0
        """CLOCK_REALTIME; 0: it does not wait."""
        self._left = False
        """It has said that it leaves: what a store granted now, nobody would let go. So it asks no more."""
        self._names = 0
        """Grows when the source names other stores, and at the end: older questions have no answers then."""

    def _new_machine(self) -> ReceiverRegistration:
        options = self._receiver.options
        return ReceiverRegistration(
            self._groups, options.ume_registration_interval * 1_000_000,
            options.ume_consensus_sequence_number_behavior, stagger=secrets.randbelow(1000) / 1000,
        )  # fmt: skip

    def start(self) -> None:
        """First turn: links that are up already will not say so again."""
        if self._left:
            return
        if not self.stores:
            self._controller.complete(reg.Complete(0, True))
            return
        sri = self._controller.watch.look(time.monotonic_ns())
        if sri is not None:
            self.follow(sri)
        for store in list(self.stores):
            self._listen(store.link)

    def _listen(self, link: StoreLink) -> None:
        if self not in link.listeners:
            link.listeners.append(self)
        if link.up:
            self.link_up(link)

    def link_up(self, link: StoreLink) -> None:
        """LinkListener."""
        if self.deregistration is not None:
            self.deregistration.link_up(link)
            return
        for index in self._indexes(link):
            self._act(self._machine.connected(index, time.monotonic_ns()))

    def link_down(self, link: StoreLink) -> None:
        """LinkListener."""
        for index in self._indexes(link):
            self._act(self._machine.disconnected(index))

    def hindered(self, link: StoreLink) -> None:
        """LinkListener."""
        controller = self._controller
        controller.tell(events.RegistrationError(controller.topic, controller.source, link.hindrance, link.name))

    def expelled(self, link: StoreLink) -> None:
        """LinkListener."""
        self.link_down(link)
        self.link_up(link)

    def concerns(self, source: bytes) -> bool:
        """LinkListener."""
        return self._controller.uuid == source

    def _indexes(self, link: StoreLink) -> list[int]:
        return [index for index, store in enumerate(self.stores) if store.link is link]

    def tick(self, now_ns: int) -> None:
        """Timers."""
        if self.deregistration is not None:
            self.deregistration.tick(now_ns)
            return
        self._act(self._machine.tick(now_ns))
        self._show_wait()

    def refusal(self, since_ns: int) -> reg.Refusal | None:
        """Why a store refuses, if one does; as :meth:`Registration.refusal`."""
        return self._machine.refusal(since_ns)

    def _act(self, actions: list[reg.Action]) -> None:
        for action in actions if not self._left else ():
            match action:
                case reg.Ask(index):
                    self._ask(index)
                case reg.Granted(index, grant):
                    self._granted(index, grant)
                case reg.GiveUp(index, uuid):
                    link = self.stores[index].link
                    link.ask(wire.Leave(link.next_id(), "receiver", self._controller.uuid, uuid), lambda _: None)
                case reg.RefusedBy(index, refusal):
                    self._refused(index, refusal)
                case reg.Unresponsive():
                    self._unresponsive(action)
                case reg.Waits():
                    self._waits(action)
                case reg.Complete():
                    if self._receiver.has_session():  # else another receiver has it: this one leaves the source
                        self._controller.complete(action)

    # Asking -------------------------------------------------------------------------------------------------

    def _ask(self, index: int) -> None:
        """With a RegID callback the store is first asked for the source: the RegID that it holds is the
        store's to know."""
        store, controller = self.stores[index], self._controller
        asked = {reg.Phase.ASKED, reg.Phase.ACTIVE}
        others = [each for each, entry in zip(self.stores, self._machine.entries, strict=True) if entry.phase in asked]
        if self._twins(store, [each for each in others if each is not store]):
            refusal = reg.Refusal("usage", f"{store.name} is another name of one of the others")
            self._act(self._machine.refused(index, refusal))
            return
        if store.wanted is None and self._receiver.options.ume_registration_extended_function is not None:
            if not self.session_id:
                request = wire.ListSources(store.link.next_id(), controller.topic, source=controller.uuid)
                self._send(index, request, self._listed)
                return
            _log.info(
                "topic %r: session ID %#x is in force, so no RegID is asked for", controller.topic, self.session_id
            )
        self._register(index, store.wanted or 0)

    def _twins(self, store: Registered, others: Sequence[Registered]) -> list[Registered]:
        return [each for each in others if twin_of((each.link, store.link), 1) is not None]

    def _listed(self, index: int, answer: wire.Answer) -> None:
        """The program's callback says what RegID to ask for."""
        if self.deregistration is not None:
            return
        store, controller = self.stores[index], self._controller
        sources = answer.sources if isinstance(answer, wire.Sources) else []
        held = next((info.registration_id for info in sources), 0)
        if not held:
            self._act(self._machine.refused(index, reg.Refusal("unknown_source", "the store does not know it yet")))
            return
        function = self._receiver.options.ume_registration_extended_function
        info = callbacks.RegistrationInfo(
            callbacks.NoFlags.NONE, held, index, store.name, controller.source, controller.client_data
        )
        try:
            store.wanted = reg.checked_registration_id(function(info))
        except Exception as error:
            controller.fail(error)
            return
        self._register(index, store.wanted)

    def _register(self, index: int, wanted: int) -> None:
        if self._left:  # in the program's callback, perhaps
            return
        store, controller, options = self.stores[index], self._controller, self._receiver.options
        store.wanted, store.asked = wanted, True
        request = wire.RegisterReceiver(
            store.link.next_id(), controller.uuid, controller.topic, wanted, self.session_id, self.proposal,
            controller.line >= 0, options.ume_activity_timeout, options.ume_state_lifetime,
            options.ume_receiver_paced_persistence, self._machine.asked_as(index), self.ephemeral,
        )  # fmt: skip
        self._send(index, request, lambda at, answer: self._answered(at, answer, request))

    def _send(self, index: int, request: wire.Request, answered: Callable[[int, wire.Answer], None]) -> None:
        """To one store; its answer goes astray when the source has named other stores meanwhile."""
        names = self._names
        self.stores[index].link.ask(request, lambda answer: answered(index, answer) if names == self._names else None)

    def _answered(self, index: int, answer: wire.Answer, request: wire.RegisterReceiver) -> None:
        now = time.monotonic_ns()
        match answer:
            case wire.Refused(code="reg_id_in_use") if self._is_own_line(answer, request):
                self._register(index, request.registration_id)
            case wire.ReceiverGranted():
                store = self.stores[index]
                store.answer, store.asked = answer, self._left  # who has left asks no more
                self._dropped = {name: each for name, each in self._dropped.items() if not self._twins(store, [each])}
                if self.deregistration is not None:  # it crossed the call
                    self.deregistration.start({index: answer})
                    return
                sri = self._controller.watch.look(now)
                if sri is not None and index < len(sri.versions):  # what the SRI says by now led to this grant
                    store.seen = max(store.seen, (sri.incarnation, sri.versions[index]))
                grant = reg.Grant(
                    answer.registration_id, answer.uuid, answer.next_sqn, answer.old, answer.acknowledged_under,
                    tuple(answer.begins), position=answer.position, high_sqn=answer.high_sqn,
                    given_up=self._called(answer.excluded), readmitted=self._called(answer.readmitted),
                    kept_for=answer.kept_for,
                )  # fmt: skip
                self._act(self._machine.granted(index, grant, now))
                if sri is not None:
                    self.follow(sri)
            case wire.Refused() if self.deregistration is None:
                self._act(self._machine.refused(index, refusal_of(answer, self.stores[index].name)))

    def _called(self, names: Sequence[str]) -> list[int]:
        return [index for index, each in enumerate(self.stores) if each.name in names]

    def _is_own_line(self, refused: wire.Refused, request: wire.RegisterReceiver) -> bool:
        """The holder is this receiver itself: it took its line on the board, with the other stores, while the
        request was on its way. The next request says that it holds the line."""
        joined = self._controller.line >= 0 and not request.holds_line
        return joined and self.deregistration is None and refused.pid == os.getpid()

    def _granted(self, index: int, grant: reg.Grant) -> None:
        store = self.stores[index]
        assert store.answer is not None
        flags = events.RegistrationSuccessFlags
        said = flags(store.answer.flags) | (flags.OLD if grant.old else flags(0))
        if store.answer.source_session_id:
            said |= flags.SRC_SID
        controller = self._controller
        controller.tell(
            events.RegistrationSuccess(
                controller.topic, controller.source, said, store.answer.source_registration_id, grant.registration_id,
                grant.next_sqn, index, store.name, store.answer.source_session_id,
            )
        )  # fmt: skip
        if store.answer.unrecorded:
            text = f"store {store.name} serves what it has and records nothing: {store.answer.unrecorded}"
            controller.tell(events.RegistrationError(controller.topic, controller.source, text, store.name))
        controller.found_logs()
        if controller.board is not None and self.deregistration is None and self._receiver.context.fence is None:
            # The last store that knew it may have forgotten it by its operator's word; this one knows it.
            with controller.acking:  # who acknowledges may change the flags, too
                line = lib.hf_board_line_at(controller.board.handle, controller.line)
                if line.flags & lib.HF_LINE_DEREGISTERED:
                    line.flags &= ~lib.HF_LINE_DEREGISTERED

    def _refused(self, index: int, refusal: reg.Refusal) -> None:
        if refusal.code != "unknown_source":  # the store has not heard of it yet: asked again
            controller, since = self._controller, refusal.since_ns / 1e9
            controller.tell(
                events.RegistrationError(
                    controller.topic, controller.source, refusal.reason, self.stores[index].name, refusal.pid, since
                )
            )

    def _unresponsive(self, said: reg.Unresponsive) -> None:
        """UM's receivers have no StoreUnresponsive: why they wait is a RegistrationError (docs/semantics.md
        B.3, L.2)."""
        controller, name = self._controller, self.stores[said.store].name
        text = f"store {said.store} [{name}] unresponsive" + ("" if said.answered else " - no registration response")
        text += f"; registered with {said.registered} of its group, {said.required} are needed"
        controller.tell(events.RegistrationError(controller.topic, controller.source, text, name, 0, 0.0))

    def _waits(self, action: reg.Waits) -> None:
        controller = self._controller
        hinders = [self.stores[index].name for index, text in action.said if text != REGISTERED]
        name = hinders[0] if hinders else ""
        why = self._why_it_waits(action.said, action.disputed)
        controller.tell(events.RegistrationError(controller.topic, controller.source, why, name))

    def _why_it_waits(self, said: Sequence[tuple[int, str]], disputed: bool) -> str:
        if not said:
            return "waits: the source is registered with none of its stores"
        each = "; ".join(
            f"store {index} [{self.stores[index].name}]: {self.stores[index].link.hindrance or text}" for index, text in said
        )  # fmt: skip
        registered = sum(text == REGISTERED for _, text in said)
        short = "what the others have begun decides where it starts" if disputed else "which are too few"
        return f"waits: registered with {registered} of {len(said)} stores, {short}: {each}"

    def _show_wait(self) -> None:
        """To `doctor` and `stat`, as long as it lasts."""
        controller, waits = self._controller, self._receiver.context.waits
        if not self._machine.waiting or controller.failure is not None:
            self._waits_since_ns = 0
            waits.show(controller, None)
            return
        self._waits_since_ns = self._waits_since_ns or time.time_ns()
        why = self._why_it_waits(self._machine.said(), self._machine.disputed)
        wait = Wait(controller.topic, controller.uuid.hex(), self.session_id, self._waits_since_ns, why)
        waits.show(controller, wait)

    # The SRI ------------------------------------------------------------------------------------------------

    def follow(self, sri: Sri) -> None:
        """The SRI has changed: registers again with exactly the stores that the source has registered with
        since."""
        if self._left or self.deregistration is not None or sri.incarnation < self._incarnation:
            return
        controller = self._controller
        names = tuple(store.name for store in self.stores)
        news = []
        if sri.incarnation > self._incarnation:
            self._incarnation = sri.incarnation
            news.append(f"incarnation {sri.incarnation} began at {sri.start_sqn}")
        if sri.stores != names:
            news.append(f"stores {', '.join(sri.stores) or 'none'} instead of {', '.join(names) or 'none'}")
        if (sri.stores, sri.groups) != (names, self._groups):
            self._rename(sri.stores, sri.groups)
        now = time.monotonic_ns()
        expected = {index for index, version in enumerate(sri.versions) if version > 0}
        if (
            not sri.live and not self._machine.complete
        ):  # it registers with nobody any more: whoever has kept it will do
            expected = set(range(len(sri.versions)))
        before = self._machine.seated
        for word, changed in (("with", expected - before), ("without", before - expected)):
            if self._machine.complete and changed:
                news.append(f"{word} {', '.join(sri.stores[index] for index in sorted(changed))}")
        self._act(self._machine.expect(expected, now))
        if news:
            controller.tell(events.RegistrationChange(controller.topic, controller.source, "; ".join(news)))
        for index, version in enumerate(sri.versions):
            store = self.stores[index]
            if version > 0 and (sri.incarnation, version) > store.seen:
                store.seen = sri.incarnation, version
                self._act(self._machine.again(index, now))

    def follow_store(self, found: Found) -> None:
        """A store knows an incarnation whose ring is gone already: its source may have named other stores."""
        if found.incarnation > self._incarnation:
            versions = (1,) * len(found.stores)
            said = Sri(found.incarnation, found.start_sqn, found.stores, found.groups, versions, 0, found.session_id)
            self.follow(said)

    def _rename(self, names: tuple[str, ...], groups: Groups) -> None:
        """The source names other stores, or groups them otherwise. Those that stay keep their
        registration."""
        context = self._receiver.context
        before = {store.name: (store, entry) for store, entry in zip(self.stores, self._machine.entries, strict=True)}
        old = self._machine
        self.stores = [before[name][0] if name in before else Registered(context.link(name)) for name in names]
        self._names += 1
        self._groups = groups
        self._machine = self._new_machine()
        self._machine.complete, self._machine.first_ns = old.complete, old.first_ns
        self._machine.identity = old.identity
        for index, name in enumerate(names):
            if name in before and before[name][1].phase is reg.Phase.ACTIVE:
                self._machine.entries[index] = before[name][1]
        known = self._dropped | {name: store for name, (store, _) in before.items()}
        self._dropped = {name: store for name, store in known.items() if name not in names}
        for store in self._dropped.values():
            if self in store.link.listeners:
                store.link.listeners.remove(self)
        for store in self.stores:
            self._listen(store.link)

    # What the stores said -----------------------------------------------------------------------------------

    def answers(self) -> list[wire.ReceiverGranted]:
        """What was granted, in the order of store indexes."""
        return [store.answer for store in self.stores if store.answer is not None]

    def granted(self) -> list[tuple[str, wire.ReceiverGranted]]:
        """Names of the stores that granted, and what."""
        return [(store.name, store.answer) for store in self.stores if store.answer is not None]

    def table(self) -> Table:
        """The BEGINs that hold, by what was granted; of several tables that may hold, what all of them
        have."""
        tables = self._machine.tables()
        table = tables[-1]
        while table and not all(table[-1] in each for each in tables):
            table = table[:-1]
        return table

    def source_session_id(self) -> int:
        """The source's session ID, 0 for none."""
        found = self._controller.found
        return max((answer.source_session_id for answer in self.answers()), default=found.session_id)

    def identity(self) -> tuple[bytes, int]:
        """uuid and RegID of the receiver."""
        uuid = self._machine.identity or self.proposal
        held = [grant for grant in self._machine.grants() if grant.uuid == uuid]
        return uuid, held[0].registration_id if held else 0

    def log_paths(self) -> list[str]:
        """Directories of the source's log, one per store: as granted, else as :attr:`said`, else as the
        store's info file says, else empty."""
        return [
            store.answer.log if store.answer is not None else self.said.get(store.name) or self._log_of(store.name)
            for store in self.stores
        ]

    def earlier_logs(self) -> dict[str, tuple[str, int]]:
        """The source's log at stores that are declared no more, by its directory: the store, and below which
        number it counts."""
        declared, found = set(self.log_paths()), dict[str, tuple[str, int]]()
        for store, (log, below) in [each for answer in self.answers() for each in answer.others.items()]:
            if log not in declared and below > found.get(log, ("", 0))[1]:
                found[log] = store, below
        return found

    def _log_of(self, name: str) -> str:
        info = read_info(self._receiver.context.domain, name)
        return f"{info.logs}/{self._controller.uuid.hex()}" if info is not None else ""

    # The end ------------------------------------------------------------------------------------------------

    def deregister(self) -> None:
        """The stores that granted forget the receiver; it registers with none from now on."""
        every = [*self.stores, *self._dropped.values()]  # also those of earlier lists know it
        links, names = [store.link for store in every], [store.name for store in every]
        self.deregistration = ReceiverDeregistration(
            self._controller.uuid, self._controller.topic, self._controller.source, self._controller.tell, links, names,
            self.proposal,
        )  # fmt: skip
        answers = {index: store.answer for index, store in enumerate(every) if store.answer is not None}
        uuids = {answer.uuid for answer in answers.values()}
        mark_own_lines(self._receiver.context.domain, self._controller.uuid, uuids, self.session_id)
        self.deregistration.start(answers)

    def leave_requests(self) -> list[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close: also those of earlier lists, and those that forget it."""
        self._left = True
        return [leave for store in [*self.stores, *self._dropped.values()] for leave in self._leaves(store)]

    def _leaves(self, store: Registered) -> list[tuple[StoreLink, wire.Leave]]:
        """As granted, and as proposed: a grant may be on its way, of another identity than the one before."""
        link, answer, of = store.link, store.answer, self._controller.uuid
        names = dict.fromkeys([answer.uuid if answer is not None else self.proposal, self.proposal])
        return [(link, wire.Leave(link.next_id(), "receiver", of, name)) for name in names if link.up]

    def close(self) -> None:
        """Listens no more, to what was asked neither, and is not seen waiting."""
        self._names += 1
        self._receiver.context.waits.show(self._controller, None)
        for store in self.stores:
            if self in store.link.listeners:
                store.link.listeners.remove(self)
