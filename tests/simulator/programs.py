"""What runs in the simulated processes: a store, a program that sends, one that receives. They use what users
use, and tell the judge what they see."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy
from support.whole_parts import check_parts

import holdfast
from holdfast import events
from holdfast.engine.client.turn_loop import TurnLoop
from holdfast.engine.log import own_census
from holdfast.engine.options.store_config import StoreConfig
from holdfast.engine.receiver import finished, finished_source, leaving
from holdfast.engine.store import shelf
from holdfast.engine.store.store import Store
from simulator import system
from simulator.native import lib
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.machine import Machine
    from simulator.world import Process

TOPIC, SESSION = "prices", 7
MARK_BYTES = 12
shelf.IDLE_NS, shelf.LOOK_NS, shelf.PATIENCE_NS, shelf.BOARD_NS = 10_000_000, 50_000_000, 100_000_000, 20_000_000
leaving.IDLE_NS, leaving.ANSWER_NS, finished.PATIENCE_NS = 10_000_000, 50_000_000, 20_000_000
finished_source.STANDS_NS = 20_000_000
own_census.RETRY_NS = 500_000_000
"""A seed lasts a second: a log that is over is closed in it and opened again, receivers leave it, and a
census that could not be written is written again."""
check_parts()
GIVES_UP_S = 2.0
ASKS_AGAIN_S = 0.0001
SIZES = (0, 0, 0, 50, 1500, 5000, 14000)
"""Bytes behind the mark."""
SHORT = (0, 0, 50, 900)
"""Of what fits into a fragment."""


def _is_closing(loop: Any) -> bool:
    return world.over or bool(loop.__dict__.get("closing"))


def _closes(loop: Any, value: bool) -> None:
    loop.__dict__["closing"] = value


# A turn's failure ends no context: at the end of a seed, when every call fails, no turn may begin.
TurnLoop.closing = property(_is_closing, _closes)  # type: ignore[assignment]


def store(machine: Machine, index: int, process: Process) -> None:
    """As `holdfast store run`."""
    shape = machine.shape
    one = Store(
        StoreConfig(
            name=shape.names[index],
            directory=machine.path(index),
            domain="d",
            type=shape.levels[index],
            options=shape.store_options(shape.levels[index]),
        )
    )
    one.open()
    process.values["stop"] = one.stop
    try:
        one.run()
    finally:
        world.check()
        one.close()
    world.note("ends", process.name)
    machine.ended(process)


def source(machine: Machine, process: Process) -> None:
    """Sends messages of all sizes, one after the other, until it is told to close."""
    judge, rng, shape = machine.judge, world.rng, machine.shape
    with holdfast.Context("d", session_id=SESSION) as context:
        life = judge.begins(process)
        life.declared = rng.choice(shape.lists)
        life.declared = machine.declares or life.declared
        make = context.smart_source if shape.sends == "smart" else context.source
        made = make(
            TOPIC, options=shape.source_options(life.declared), on_event=lambda event: _heard(judge, life, event)
        )
        life.source = made
        waits_since = system.time.monotonic()
        while process not in machine.closing:
            if life.start is None and world.calm and system.time.monotonic() - waits_since > GIVES_UP_S:
                break  # it says for whom it waits: the next life declares that store again
            if not machine.eager:
                life.stores = {name: store.state for name, store in made.stats().stores.items()}
                system.time.sleep(0.02)
                continue
            system.time.sleep(min(1.0, rng.expovariate(1 / machine.eager)))
            _send(judge, life, shape.sends)
        if process in machine.closing and shape.has("deregister") and not world.calm and rng.random() < 0.6:
            _deregister(made, life, lambda: judge.deregisters(life))
    judge.closes(life)
    world.note("ends", process.name)
    machine.ended(process)


def _send(judge: Any, life: Any, how: str) -> None:
    """One message; of a batch some."""
    rng, made = world.rng, life.source
    marks = [judge.new_mark(life) for _ in range(1 + rng.randrange(6) if how == "batch" else 1)]
    size = MARK_BYTES + rng.choice(SIZES if how == "send" else SHORT)
    rows = [mark + b"." * (size - MARK_BYTES) for mark in marks]
    timeout = rng.choice((0, 0.05, 0.5))
    done, wakeups = 0, life.wakeups
    try:
        if how == "send":
            last = made.send(rows[0], client_data=marks[0], timeout=timeout)
        elif how == "batch":
            table = numpy.frombuffer(b"".join(rows), dtype=numpy.uint8).reshape(len(rows), size)
            _, last = made.send_batch(table, client_data=marks[0], timeout=timeout)
        else:
            claim = made.claim(size, client_data=marks[0], timeout=timeout)
            with claim as view:
                view[:] = rows[0]
            last = claim.sequence_number
        done = len(marks)
    except (holdfast.NotRegisteredError, holdfast.WouldBlockError, holdfast.RegIdInUseError) as error:
        if isinstance(error, holdfast.WouldBlockError):
            judge.told.refused(life, wakeups)
        done = error.sent or 0
        last = -1 if error.first_sequence_number is None else error.first_sequence_number + done - 1
    for index, mark in enumerate(marks):
        if index < done:
            judge.sent(life, mark, last - done + 1 + index, size)
        else:
            judge.not_sent(life, mark)


def _deregister(made: Any, life: Any, told: Callable[[], None]) -> None:
    """Waits a while for the stores that are there."""
    try:
        made.deregister()
    except holdfast.UsageError:  # it is registered nowhere
        return
    told()
    until = system.time.monotonic() + 0.3
    while not life.deregistered and system.time.monotonic() < until:
        system.time.sleep(0.02)


def _heard(judge: Any, life: Any, event: object) -> None:
    match event:
        case events.source.RegistrationError():
            world.note("refused", life.process.name, event.store, event.text)
            life.outdone |= {event.store} if "is over" in event.text else set()
        case events.source.RegistrationSuccess():
            old = bool(event.flags & events.source.RegistrationSuccessFlags.OLD)
            judge.told.source_registers(life, event.store[0], event.registration_id, old=old)
        case events.source.RegistrationComplete():
            judge.registered(life, event.sequence_number)
        case events.source.MessageStable(flags=flags):
            judge.told.stable(life, event, by_store=bool(flags & events.source.StableFlags.STORE))
            if flags & events.source.StableFlags.STABLE:
                judge.stable(life, event.first_sequence_number, event.sequence_number, event.client_data)
        case events.source.MessageNotStable(flags=flags) if flags & events.source.NotStableFlags.TIMEOUT:
            judge.told.given_up(life, event.first_sequence_number, event.sequence_number)
        case events.source.Wakeup():
            judge.told.woken(life)
        case events.source.MessageReclaimed():
            forced = bool((event.flags or 0) & events.source.ReclaimedFlags.FORCED)
            judge.reclaimed(life, event.first_sequence_number, event.sequence_number, forced=forced)
            if not forced:
                judge.told.released(life, event.first_sequence_number, event.sequence_number)
        case events.source.DeregistrationSuccess():
            judge.told.forgets(life, event.store[0])
        case events.source.DeliveryConfirmation():
            judge.confirmed(life, event.first_sequence_number, event.sequence_number)
        case events.source.DeregistrationComplete():
            life.deregistered = True
        case events.source.FlightSizeNotification(state=state):
            judge.flies(life, over=state == events.source.FlightSizeState.OVER)


def receiver(machine: Machine, session: int, process: Process) -> None:
    """Takes what comes, thinks a while, and is done with it."""
    judge, rng = machine.judge, world.rng
    with holdfast.Context("d", session_id=100 + session) as context:
        form = machine.shape.forms[session - 1]
        life = judge.joins(process, session, ordered=form != "arrival")
        options = machine.shape.receiver_options(session)
        starts = machine.shape.starts(session)
        if starts == "chosen":
            options["ume_recovery_sequence_number_info_function"] = lambda info: _chooses(judge, life, info)

        def heard(event: object) -> None:
            _noticed(judge, life, event)

        def think() -> None:
            hurried = 0 < machine.eager < machine.usual  # then a source goes around its ring meanwhile
            if rng.random() < (0.6 if hurried else 0.1):
                system.time.sleep(rng.random() * 0.2)

        def taken(message: Any) -> None:
            first, last, data = message.first_sequence_number, message.sequence_number, bytes(message.data)
            judge.delivered(life, message.source, first, last, data)
            think()
            judge.consumes(life, data)

        def ends() -> bool:
            if life.skip is not None and (machine.shape.has("paced") or rng.random() < 0.05):
                judge.acknowledges_skipped(life)  # else the next acknowledgement covers it
                one.acknowledge_skipped()
                life.skip = None
            return process in machine.closing

        if form == "callback":
            one = context.receiver(TOPIC, options=options, on_event=heard, on_message=taken)
            while not ends():
                system.time.sleep(0.05)
        else:
            one = context.receiver(TOPIC, options=options, on_event=heard)
            while not ends():
                if form == "batch":
                    while not machine.asking:
                        system.time.sleep(ASKS_AGAIN_S)
                    asked_ns = int(lib.sim_now_ns)
                    _take_batch(judge, life, one.receive_batch(8, timeout=0.1), asked_ns, think)
                elif (message := one.receive(timeout=0.1)) is not None:
                    taken(message)
                    if form == "explicit":
                        message.send_explicit_ack()
                    message.release()
        if machine.shape.has("deregister") and not world.calm and rng.random() < 0.6:
            _deregister(one, life, lambda: judge.leaves(life))
    judge.left(life)
    world.note("ends", process.name)
    machine.ended(process)


def _take_batch(judge: Any, life: Any, batch: Any, asked_ns: int, think: Callable[[], None]) -> None:
    """All of a batch, or, where the ring went over it, nothing: it comes again."""
    if batch is None:
        return
    source = batch.source
    think()
    had = set(judge.consumed[life.session])
    frames: list[tuple[int, int, bytes]] = []
    try:
        frames += [
            (int(frame["first_sequence_number"]), int(frame["sequence_number"]), bytes(batch.payload(index)))
            for index, frame in enumerate(batch.frames)
        ]
        for _, _, data in frames:
            judge.consumes(life, data)
        batch.release()
    except holdfast.EvictedError:
        with contextlib.suppress(holdfast.EvictedError):
            batch.release()
        judge.not_consumed(life, had)
        judge.told.evicted(life.process.name, asked_ns, frames, len(batch))
        return
    for first, last, data in frames:
        judge.delivered(life, source, first, last, data)


def _chooses(judge: Any, life: Any, info: Any) -> None:
    """Some time back, or farther than there is anything."""
    low = info.low_sequence_number
    info.low_sequence_number = max(0, low + world.rng.choice((-8, -2, 0, 0, 3, 50)))
    judge.chooses(life, info.source, low, info.low_sequence_number)


def _noticed(judge: Any, life: Any, event: object) -> None:
    match event:
        case events.receiver.RegistrationError():
            world.note("refused", life.process.name, event.store, event.text)
        case events.receiver.RegistrationSuccess():
            old = bool(event.flags & events.receiver.RegistrationSuccessFlags.OLD)
            judge.told.receiver_registers(life, event.store[0], event.receiver_registration_id, old=old)
        case events.receiver.RegistrationComplete():
            judge.told.goes_on(life, event.source, event.sequence_number)
            judge.told.comes_anew(life, event.source, event.sequence_number)
            judge.starts(life, event.source, event.sequence_number)
        case events.receiver.UnrecoverableLoss():
            judge.told.lost(life, event.source, event.sequence_number, event.sequence_number)
        case events.receiver.Skipped():
            judge.told.skipped(life)
        case events.receiver.DeregistrationComplete():
            life.deregistered = True
        case events.receiver.UnrecoverableLossBurst():
            judge.told.lost(life, event.source, None, event.sequence_number)
