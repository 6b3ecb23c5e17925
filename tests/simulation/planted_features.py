"""More protocol bugs that the simulation must find: of what only some stores and sources are set to
(config.features)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
from simulation import leaving, pacing, receiver, store
from simulation.planting import Patch, bug

from holdfast.engine.options import receiver_paced
from holdfast.engine.rules import retention
from holdfast.engine.rules.flight import Flight
from holdfast.engine.rules.intervals import Spans
from holdfast.engine.rules.notification import Notices
from holdfast.engine.rules.proxy_source import Proxies
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.store.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.engine.log.state_file import SourceState
    from holdfast.engine.rules.intervals import Interval
    from holdfast.engine.rules.registration import Action

# A store's retention ----------------------------------------------------------------------------------------


@bug(8)
def what_is_gone_is_skipped_in_silence() -> Any:
    """A receiver that comes too late for some goes on with the oldest that is there."""

    def lose(self: receiver.DeliveryController, last: int) -> None:
        self.next = last + 1

    return Patch(receiver.DeliveryController, "lose", lose)


@bug(13)
def an_old_ack_goes_up_to_the_oldest() -> Any:
    """A store takes what it has dropped for acknowledged."""
    real = store.Store.register_receiver

    def register(self: store.Store, client: Any, request: Any) -> Any:
        source = self.registry.source(request.source)
        if source is not None:
            for each in source.receivers:
                each.ack = max(each.ack, self.open(source).log.oldest)
        return real(self, client, request)

    return Patch(store.Store, "register_receiver", register)


@bug(13)
def new_at_a_store_is_new() -> Any:
    """A store that comes to know a receiver late begins with its oldest, and the receiver's next life
    believes it."""
    real = Registry.claim_receiver

    def claim(self: Registry, *asked: Any) -> Any:
        claimed = real(self, *asked)
        if isinstance(claimed, tuple):
            claimed[0].joined = True
        return claimed

    unheard = Patch(store.Store, "has_joined", staticmethod(lambda _line: False))
    return unheard, Patch(Registry, "claim_receiver", claim)


@bug(8)
def a_start_acknowledges_what_it_skips() -> Any:
    """A receiver that starts behind its position says that everything below its start is acknowledged."""
    real = receiver.DeliveryController.cover
    return Patch(receiver.DeliveryController, "cover", lambda self, _position, start: real(self, start, start))


# Settlement -------------------------------------------------------------------------------------------------


@bug(0)
def released_before_it_is_old_enough() -> Any:
    """Age is not waited for."""
    real = retention.Ages.below
    return Patch(retention.Ages, "below", lambda self, now_ns, sent: real(self, now_ns, sent) and sent)


@bug(0)
def the_lifetime_begins_with_the_source() -> Any:
    """What is given up was sent a moment ago."""
    return Patch(
        retention.Retention, "outlived", lambda self, now_ns: self.next * (now_ns > self.config.lifetime_ns > 0)
    )


@bug(0)
def given_up_is_told_stable() -> Any:
    """What was released by force counts as proven."""

    def prove(self: retention.Retention) -> list[Interval]:
        proven = list(self.unproven)
        self.unproven = Spans()
        return proven

    return Patch(retention.Retention, "_prove", prove)


@bug(0)
def stable_is_told_twice() -> Any:
    """An event for a store's acknowledgement, and one more for the same number."""
    real = Notices.stored

    def stored(self: Notices, which: int, fresh: Iterable[Interval], *rest: Any) -> None:
        real(self, which, fresh, *rest)
        real(self, which, list(fresh)[-1:], *rest)

    return Patch(Notices, "stored", stored)


@bug(0)
def stable_is_told_by_the_first_store() -> Any:
    """The event of any store's acknowledgement says STABLE."""
    real = Notices._stable_flags
    return Patch(Notices, "_stable_flags", lambda self, told, _stable, news: real(self, told, True, news))


@bug(0)
def confirmed_is_what_was_delivered() -> Any:
    """A receiver confirms a message that its program still holds."""
    real = retention.Retention.confirmed
    return Patch(
        retention.Retention, "confirmed", lambda self, who, since, ack: real(self, who, since, ack + (ack > since))
    )


@bug(0)
def nobody_is_woken() -> Any:
    """A send that the flight size has refused waits for ever."""
    return Patch(Flight, "wakeup", lambda *_: False)


# Receiver-paced persistence ---------------------------------------------------------------------------------


def pacing_turn(receivers: Callable[[list[tuple[int, int]]], list[tuple[int, int]]]) -> Patch:
    """The rules are asked with other receivers."""
    real = receiver_paced.Pacing.turn
    return Patch(receiver_paced.Pacing, "turn", lambda self, each: real(self, receivers(list(each))))


@bug(0)
def the_first_ack_lets_go() -> Any:
    """Of several receivers the fastest decides."""
    return pacing_turn(lambda each: each and [max(each)])


@bug(0)
def all_receivers_are_non_blocking() -> Any:
    """When it is full, what receivers wait for goes."""
    return pacing_turn(lambda each: [(ack, receiver_paced.NON_BLOCKING) for ack, _ in each])


@bug(0)
def who_has_left_the_board_is_not_waited_for() -> Any:
    """A receiver that is gone is one that has acknowledged."""
    real = pacing.Pacer.receivers

    def receivers(self: pacing.Pacer) -> list[tuple[int, int]]:
        lines = self._repository.board().receivers()
        there = [each.uuid in lines for each in self._repository.source.receivers if each.paced]
        return [each for each, is_there in zip(real(self), there, strict=True) if is_there]

    return Patch(pacing.Pacer, "receivers", receivers)


@bug(0)
def an_identity_that_is_new_is_not_settled() -> Any:
    """A store that answers after the others waits for a receiver by a name that this has not taken."""
    real = ReceiverRegistration._complete

    def complete(self: ReceiverRegistration, now_ns: int) -> list[Action]:
        known, actions = self.identity, real(self, now_ns)
        if actions:
            self.identity = known
        return actions[:1]

    return Patch(ReceiverRegistration, "_complete", complete)


@bug(0)
def nothing_is_withheld() -> Any:
    """A store acknowledges whatever it has, and keeps more than it has room for."""
    return Patch(pacing.Pacer, "allowed", lambda _self, number: number)


# Deregistration ---------------------------------------------------------------------------------------------


@bug(0)
def whoever_asks_deregisters() -> Any:
    """Also a source whose successor has begun."""

    def deregister(where: store.Store, client: Any, request: Any) -> Any:
        with_all = msgspec.structs.replace(request, incarnation=2**40)
        with mock.patch.object(store.Store, "held_by_another", return_value=False):
            return done(where, client, with_all)

    done = leaving.deregister
    return Patch(store, "deregister", deregister)


@bug(23)
def forgotten_and_not_synced() -> Any:
    """A power cut brings back what was deregistered."""

    def forget(self: store.Store, source: SourceState) -> None:
        with mock.patch.object(self, "save", partial(self.save, sync=False)):
            real(self, source)

    real = store.Store.forget
    return Patch(store.Store, "forget", forget)


@bug(9)
def names_go_under_a_successor() -> Any:
    """Who has deregistered removes rings and board, whoever has them by now."""
    where = leaving.SourceLeaving
    return Patch(where, "_goes_on", lambda _self: False), Patch(where, "_refused", lambda *_: None)


@bug(0)
def deregistered_by_one_name() -> Any:
    """A store that BEGIN has told another identity finds nothing to forget."""
    real = leaving.deregister

    def deregister(where: store.Store, client: Any, request: Any) -> Any:
        return real(
            where,
            client,
            msgspec.structs.replace(request, uuid=request.source) if request.role == "source" else request,
        )

    return Patch(store, "deregister", deregister)


# Proxies ----------------------------------------------------------------------------------------------------


@bug(0)
def everybody_stands_in() -> Any:
    """Each store elects itself."""
    return Patch(store, "elected", lambda _own, _others: True)


@bug(0)
def a_proxy_stays() -> Any:
    """A store that stands in for a source does so when that is back, too."""
    real = Proxies.look

    def look(self: Proxies, source: bytes, *, due: bool, chosen: bool) -> Any:
        stands = source in self.standing
        return real(self, source, due=due or stands, chosen=chosen or stands)

    return Patch(Proxies, "look", look)


@bug(12)
def what_is_not_read_here_is_dead() -> Any:
    """A store that has no part in a source that lives stands in for it."""

    def is_held(self: store.Store, source: SourceState) -> bool:
        key = "source", source.uuid, source.uuid
        return self.repositories[source.uuid].owner_lives() or self.owner(key) is not None

    return Patch(store.Store, "is_held", is_held), Patch(store.Store, "takes_part", staticmethod(lambda _source: True))


@bug(0)
def an_empty_log_stands_in() -> Any:
    """A store that was asked once, and has nothing, is waited for."""

    def candidates(self: store.Store, source: SourceState) -> list[bytes]:
        others = [each for each in self.machine.stores.values() if each.name in source.stores]
        return [each.state.uuid for each in others if source.uuid in each.directory.logs]

    return Patch(store.Store, "candidates", candidates)
