"""Planted bugs of what only some sources and stores are set to (shape.FEATURES), and of what is told. See
planted.py."""

from __future__ import annotations

from simulator.planting import Patch

__all__ = ["FEATURES"]

PACER = "engine/store/pacer.py"
NOTICES = "engine/rules/notification.py"
RETENTION = "engine/rules/retention.py"
EXPIRY = "engine/store/expiry.py"

FEATURES: dict[str, tuple[Patch, ...]] = {
    "what_is_gone_is_skipped_in_silence": (
        Patch(
            "engine/receiver/delivery_controller.py",
            "        self.window.lost(first, last)\n        if last",
            "        self.window.lost(first, last)\n        return\n        if last",
        ),
    ),
    "released_before_it_is_old_enough": (
        Patch(
            RETENTION,
            "return min(self.settled, old) if self.config.age_threshold_ns else self.settled",
            "return self.settled",
        ),
    ),
    "the_lifetime_begins_with_the_source": (
        Patch(
            RETENTION,
            "        return self._lives.below(now_ns, self.next)\n",
            "        return self.next * (now_ns > self.config.lifetime_ns > 0)\n",
        ),
    ),
    "given_up_is_told_stable": (
        Patch(
            RETENTION,
            "            return []\n        open_ = Spans()\n        for low, high in self.unproven:",
            "            return []\n        proven = list(self.unproven)\n        self.unproven = Spans()\n"
            "        return proven\n        open_ = Spans()\n        for low, high in self.unproven:",
        ),
    ),
    "stable_is_told_twice": (
        Patch(
            NOTICES,
            "                self.queue.append(MessageStable(flags, told.last, told.first, told.client_data, store, name))\n",
            "                self.queue += [MessageStable(flags, told.last, told.first, told.client_data, store, name)] * 2\n",
        ),
    ),
    "stable_is_told_by_the_first_store": (
        Patch(
            NOTICES,
            "        if not stable:\n            return StableFlags(0)\n",
            "",
        ),
    ),
    "confirmed_is_what_was_delivered": (
        Patch(
            RETENTION,
            "spans.add(max(since, self.start), min(ack, self.next))",
            "spans.add(max(since, self.start), min(ack + (ack > since), self.next))",
        ),
    ),
    "nobody_is_woken": (
        Patch(
            "engine/rules/flight.py",
            "        if refused is None or not",
            "        if True or refused is None or not",
        ),
    ),
    "the_first_ack_lets_go": (
        Patch(
            PACER,
            "turn = self._pacing.turn(self._receivers())",
            "turn = self._pacing.turn(sorted(self._receivers())[-1:])",
        ),
    ),
    "all_receivers_are_non_blocking": (
        Patch(
            PACER,
            "turn = self._pacing.turn(self._receivers())",
            "turn = self._pacing.turn([(ack, 2) for ack, _ in self._receivers()])",
        ),
    ),
    "who_has_left_the_board_is_not_waited_for": (
        Patch(PACER, "            if receiver.paced\n", "            if receiver.paced and receiver.uuid in acks\n"),
    ),
    "an_identity_that_is_new_is_not_settled": (
        Patch(
            "engine/rules/receiver_registration.py",
            "        self.identity = self.identity or next(iter(grants.values())).uuid\n",
            "",
        ),
        Patch("engine/rules/receiver_registration.py", "return [said, *self._unify(now_ns)]", "return [said]"),
    ),
    "a_live_ack_covers_what_is_to_be_recovered": (
        Patch(
            "engine/receiver/arrival_order.py",
            "return live.ack if old.ack >= self.split else old.ack",
            "return live.ack if max(old.ack, live.ack - 1) >= self.split else old.ack",
        ),
    ),
    "nobody_is_told_what_a_start_has_skipped": (
        Patch(
            "engine/receiver/delivery_controller.py",
            "if self.skipped is not None and self.receiver.options.ume_receiver_paced_persistence:",
            "if False:",
        ),
    ),
    "nothing_is_withheld": (
        Patch(PACER, "        return min(next_sqn, int(self._repository.item.ack_sqn))\n", "        return next_sqn\n"),
        Patch(
            "csrc/store/drain.c",
            "    return item->paced && item->ack_sqn < next ? item->ack_sqn : next;\n",
            "    return item->paced && item->ack_sqn < next ? next : next;\n",
        ),
    ),
    "everybody_stands_in": (Patch(EXPIRY, "chosen = due and has and elected(", "chosen = due and has or elected("),),
    "a_proxy_stays": (
        Patch(
            "engine/rules/proxy_source.py",
            "        stands = source in self.standing\n",
            "        stands = source in self.standing\n        due, chosen = due or stands, chosen or stands\n",
        ),
    ),
    "what_is_not_read_here_is_dead": (
        Patch(EXPIRY, "        if due and self._lives_elsewhere(source):\n", "        if False:\n"),
    ),
    "an_empty_log_stands_in": (
        Patch(
            EXPIRY,
            "self.proxies.able(source.uuid, has)",
            "self.proxies.able(source.uuid, repository is not None)",
        ),
        Patch(EXPIRY, "source.proxy and source.incarnation and options", "source.proxy and options"),
    ),
    "a_registration_id_is_given_twice": (
        Patch(
            "engine/store/registry.py",
            "        candidate = self.state.next_registration_id\n        while candidate",
            "        return self.state.next_registration_id\n        while candidate",
        ),
    ),
    "a_board_for_each_incarnation": (
        Patch(
            "engine/memory/new_ring.py",
            "            board = own_board(domain, uuid)\n",
            "            unlink_object(domain.board_name(uuid))\n            board = own_board(domain, uuid)\n",
        ),
    ),
    "an_incarnation_is_used_twice": (
        Patch(
            "engine/rules/election.py",
            "    incarnation = max(promised, *(grant.incarnation + 1 for grant in grants.values()))\n",
            "    incarnation = next(iter(grants.values())).incarnation + 1\n",
        ),
        Patch(
            "engine/rules/source_registration.py",
            "        if unpromised := self._promised_less(incarnation):\n",
            "        if False:\n            unpromised = []\n",
        ),
        Patch("engine/memory/new_ring.py", "max(incarnation, _newest_on(board, domain) + 1)", "incarnation"),
        Patch(
            "engine/memory/new_ring.py",
            "                    config.incarnation += 1\n",
            "                    unlink_object(name)\n",
        ),
        Patch(
            "engine/store/answers.py",
            "    if incarnation == source.promised:\n        return claimant in",
            "    if True:\n        return True or claimant in",
        ),
    ),
    "whoever_asks_deregisters": (
        Patch(
            "engine/store/sources.py",
            "        if holder is not None or request.incarnation < source.incarnation:\n",
            "        if False:\n",
        ),
    ),
    "names_go_under_a_successor": (
        Patch("engine/control/deregistration.py", "        if not self._successor:\n", "        if True:\n"),
        Patch(
            "engine/control/deregistration.py",
            "                if not self._goes_on():\n",
            "                if True:\n",
        ),
    ),
    "deregistered_by_one_name": (
        Patch(
            "engine/store/sources.py",
            "source = registry.source(request.source) or registry.source(request.uuid)",
            "source = registry.source(request.source)",
        ),
    ),
    "forgotten_and_not_synced": (
        Patch(
            "engine/store/holdings.py",
            "            self.save()\n        except (ReadOnlyError, OSError):  # they are kept, then",
            "            self.save(sync=False)\n        except (ReadOnlyError, OSError):  # they are kept, then",
        ),
    ),
    "an_old_ack_goes_up_to_the_oldest": (
        Patch(
            "engine/store/receivers.py",
            "            if not old:\n                receiver.ack = answers",
            "            receiver.ack = max(receiver.ack, oldest)\n"
            "            if not old:\n                receiver.ack = answers",
        ),
    ),
    "it_catches_up_for_ever": (
        Patch("engine/store/repository.py", "        self.line.say_catching_up(False)\n", "        pass\n"),
    ),
    "a_quorum_is_not_enough": (
        Patch(
            "engine/rules/quorum.py",
            "self._among(n, registered) >= self.needed(n) for n in",
            "self._among(n, registered) >= self._among(n, range(self.stores)) for n in",
        ),
    ),
    "a_session_has_two_receivers": (
        Patch(
            "engine/store/answers.py",
            "    if holder is not None:\n        return in_use(request.id, facts.store, receiver",
            "    if False:\n        return in_use(request.id, facts.store, receiver",
        ),
        Patch(
            "engine/control/session_claim.py",
            "        self._held, self._found_ns = holder is None, asked_ns\n",
            "        holder = None\n        self._held, self._found_ns = True, asked_ns\n",
        ),
    ),
    "new_at_a_store_is_new": (
        Patch("engine/store/registry.py", "timers.lifetime_ms, joined=False,", "timers.lifetime_ms, joined=True,"),
        Patch("engine/store/answers.py", "if line.number >= ack or line.joined:", "if line.number >= ack:"),
    ),
    "latest_is_when_it_registers": (
        Patch("engine/rules/chosen_start.py", "            number = latest()\n", "            number = end\n"),
    ),
    "a_number_ahead_is_waited_for": (
        Patch(
            "engine/rules/chosen_start.py",
            "number = latest() if asked > end else min(asked, came)",
            "number = latest() if asked > end else asked",
        ),
    ),
}
"""The last two are of where a program says that a receiver starts, and show in scenes_guests.py. Of the nine
before them six are of what is left behind, and show in scenes_leaving.py. The receivers of a session are kept
apart by the claim and by the stores: only both breaks together let two of them in.

What is forgotten is saved twice: when the logs are gone, a save brings the one before it to disk
(StateFile.save). So it matters that the first one is synced only where the disk goes before that. What a
receiver's line on the board says corrects what a store has granted wrongly, with the next save of
acknowledgements at the latest: the one shows after a power cut, which takes the board, the other before that
save.
"""
