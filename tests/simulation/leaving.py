"""Deregistration, as the real machine asks for it (engine/control/deregistration.py, docs/semantics.md F.7);
and the operator's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.engine.control import wire
from holdfast.engine.control.deregistration import ReceiverDeregistration, SourceDeregistration
from holdfast.engine.rules.registration import Grant

if TYPE_CHECKING:
    from simulation.machine import Machine
    from simulation.receiver import DeliveryController
    from simulation.source import Source
    from simulation.store import Store


class SourceLeaving(SourceDeregistration):
    """Of a source whose ring is closed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        super().__init__(
            cast("Any", None), source.registration, cast("Any", source.links), source.machine.config.names, self._heard
        )

    def _heard(self, event: object) -> None:
        self._source.world.note(type(event).__name__)

    @property
    def asks(self) -> bool:
        """Stores have still to answer."""
        return bool(self._waiting)

    def crossed(self, store: int, answer: wire.SourceGranted) -> None:
        """A grant that was on its way when the program called."""
        self._machine.entries[store].grant = Grant(
            answer.registration_id, answer.uuid, answer.next_sqn, answer.old, answer.incarnation, tuple(answer.begins),
            answer.votes, answer.empty_votes, answer.opened, answer.peers, self._names[store],
        )  # fmt: skip
        self.add([store])

    def _complete(self) -> None:
        world, uuid = self._source.world, self._machine.uuid
        if not self._successor and not self._goes_on():
            for key in [key for key in world.rings if key[0] == uuid]:
                del world.rings[key]
            world.boards.pop(uuid, None)

    def _goes_on(self) -> bool:
        """A later incarnation has a ring, or a store that lives is on the board."""
        world, uuid = self._source.world, self._machine.uuid
        board = world.board(uuid)
        later = any(key[0] == uuid and key[1] > self._machine.incarnation for key in world.rings)
        return later or any(board.alive(line) for line in board.stores().values())


class ReceiverLeaving(ReceiverDeregistration):
    """Of a receiver, from the stores of one source."""

    def __init__(self, controller: DeliveryController) -> None:
        self.of, self.over = controller, False
        untold = cast("Any", None)  # the program is told nothing: what a subclass says goes to the world's notes
        super().__init__(
            controller.uuid, "", "", untold, cast("Any", controller.receiver.links), controller.machine.config.names
        )

    def _forgotten(self, store: int, next_sqn: int) -> None:
        self.of.world.note("forgotten", store, next_sqn)

    def _refused(self, store: int, refused: wire.Refused) -> None:
        self.of.world.note("not forgotten", store, refused.code)

    def _complete(self) -> None:
        self.over = True


def deregister(store: Store, client: Any, request: wire.Deregister) -> Any:
    """What a store does (engine/store/sources.py, receivers.py)."""
    source = store.registry.source(request.source)
    if source is None and request.role == "source":
        source = store.registry.source(request.uuid)
    if source is None:
        return wire.Deregistered(request.id, 0)
    repository = store.open(source)
    if request.role == "source":
        held = store.held_by_another(source, client, again=True)
        if held:
            client.holds.pop(("source", source.uuid, source.uuid), None)
        if held or request.incarnation < source.incarnation:
            return wire.Refused(request.id, "reg_id_in_use", "")
        stored = repository.log.next
        store.forget(source)
        return wire.Deregistered(request.id, stored)
    receiver = next((each for each in source.receivers if each.uuid == request.uuid), None)
    if receiver is None:
        return wire.Deregistered(request.id, 0)
    key = "receiver", source.uuid, receiver.uuid
    if store.owner(key) not in {None, client}:
        return wire.Refused(request.id, "reg_id_in_use", "")
    store.save_acks()
    source.receivers.remove(receiver)
    store.save()
    for each in store.clients:
        each.holds.pop(key, None)
    return wire.Deregistered(request.id, receiver.ack)


def operate(machine: Machine) -> None:
    """The operator forgets what a source that was deregistered has left at stores that it could not ask."""
    asking = {each.registration.uuid for each in machine.sources if each.leaving is not None and each.leaving.asks}
    for store in machine.stores.values():
        for source in list(store.state.sources):
            over = machine.truth.left.get(source.uuid, -1)
            held = any(key[1] == source.uuid for each in store.clients for key in each.holds if key[0] == "source")
            if source.incarnation <= over and source.uuid not in asking and not held:
                machine.world.note("operator", store.name)
                store.forget(source)
