"""Bugs that the simulator must find, each within 2,000 seeds: a simulator that has not failed is no evidence.
Each is a patch of the product's own lines. planted_ring.py, planted_features.py and planted_censuses.py
have more.

Not among them is a store that takes a BEGIN which it has not promised, or which was built without one that it
has messages of. Alone neither does harm: whose grant still counts is connected, and holds the session there;
the ring of who is taken for dead goes before the next one is granted; and a ring's number is above all that
the board has seen. ``an_incarnation_is_used_twice`` breaks the promise and the last of these.

Nor, since logs are shelved within a seed, three that no 2,000 seeds find by themselves: logs of a late number
that are looked for once (tests/process/receiver/test_late.py has it), a board line that counts for two stores
(tests/process/source/test_swapped_stores.py), and a source of unknown stores that is taken for one without.
"""

from __future__ import annotations

from simulator.planted_censuses import CENSUSES
from simulator.planted_features import FEATURES
from simulator.planted_ring import DEATH, RING
from simulator.planting import Patch

__all__ = ["PLANTED", "STAGE"]

RULES = "engine/rules"
STORE = "engine/store"
SETTLEMENT = "engine/source/settlement.py"

PLANTED: dict[str, tuple[Patch, ...]] = {
    "half_is_a_quorum": (Patch(f"{RULES}/quorum.py", "    return size // 2 + 1\n", "    return (size + 1) // 2\n"),),
    "one_store_is_enough": (
        Patch(
            f"{RULES}/quorum.py",
            "rules = [(self.groups.needed(number), members)]",
            "rules = [(1, members)]",
        ),
    ),
    "any_group_will_do": (
        Patch(
            f"{RULES}/quorum.py",
            "            needed = len(deciding) // 2 + 1\n",
            "            needed = 1\n",
        ),
    ),
    "released_before_it_is_confirmed": (
        Patch(
            f"{RULES}/retention.py",
            "self._confirmed = self._unconfirmed(needed) if needed else self.next",
            "self._confirmed = self.next",
        ),
    ),
    "stable_is_what_was_sent": (
        Patch(
            f"{RULES}/retention.py",
            "        number = self.holdings.first_unstable(self.stable)\n",
            "        number = max(self.holdings.first_unstable(self.stable), min(self._had))\n",
        ),
        Patch(
            f"{RULES}/retention.py",
            "self._had[store] = max(self._had[store], since, ack)",
            "self._had[store] = self.next",
        ),
    ),
    "who_has_forgotten_votes": (
        Patch(
            f"{RULES}/election.py",
            "            found.add(store)\n    return found\n",
            "            pass\n    return found\n",
        ),
    ),
    "nobody_is_waited_for": (
        Patch(
            f"{RULES}/election.py",
            "    if _wanted(groups, seated, grants, empty, names, register):\n        return None\n",
            "",
        ),
    ),
    "it_answers_while_the_owner_lives": (
        Patch(f"{STORE}/sources.py", "        if owner is not None and owner is not but:\n", "        if False:\n"),
        Patch(
            f"{STORE}/sources.py",
            "        return Held(stream.pid, stream.since_ns) if stream is not None else None\n",
            "        return None\n",
        ),
        Patch(
            f"{STORE}/repository.py",
            "            if not self.owner_gone() or not self.drained():\n",
            "            if not self.drained():\n",
        ),
    ),
    "it_answers_before_the_ring_is_drained": (
        Patch(f"{STORE}/answers.py", "    if not facts.drained:\n        return Wait()\n", ""),
    ),
    "a_ring_is_left_too_soon": (
        Patch(
            f"{STORE}/repository.py",
            "            if not self.owner_gone() or not self.drained():\n                return False\n",
            "",
        ),
    ),
    "acknowledged_before_the_sync": (
        Patch(
            "csrc/store/drain.c",
            "        item->pending_bytes += bytes;\n",
            "        item->pending_bytes += bytes;\n"
            "        hf_board_ack(item->board, item->bells, item->line_index, next, next);\n",
        ),
    ),
    "a_failed_sync_is_believed": (
        Patch(
            "csrc/base/sync.c",
            "    return (what == HF_SYNC_NAMES ? fsync(fd) : fdatasync(fd)) == 0 ? HF_OK : HF_ERRNO - errno;\n",
            "    (void)(what == HF_SYNC_NAMES ? fsync(fd) : fdatasync(fd));\n    return HF_OK;\n",
        ),
    ),
    "no_name_is_synced": (
        Patch(
            "csrc/base/sync.c",
            "    return (what == HF_SYNC_NAMES ? fsync(fd) : fdatasync(fd)) == 0",
            "    return (what == HF_SYNC_NAMES ? 0 : fdatasync(fd)) == 0",
        ),
    ),
    "no_byte_is_synced": (
        Patch(
            "csrc/base/sync.c",
            "    return (what == HF_SYNC_NAMES ? fsync(fd) : fdatasync(fd)) == 0",
            "    return (what == HF_SYNC_NAMES ? fsync(fd) : 0) == 0",
        ),
    ),
    "a_start_acknowledges": (
        Patch(
            "engine/receiver/delivery_controller.py",
            "self._cover(min(position, high + 1), start.sequence_number)",
            "self._cover(high + 1, start.sequence_number)",
        ),
    ),
    "who_is_new_confirms_what_it_skipped": (
        Patch(
            "engine/receiver/delivery_controller.py",
            "before if kept else position if old else max(position, start), FOR_EVER)",
            "before if kept else position, FOR_EVER)",
        ),
    ),
    "a_receiver_starts_one_late": (
        Patch(
            f"{RULES}/start_and_gap.py",
            "    return Start(min(start, high + 1), limited, clamped)",
            "    return Start(min(start + 1, high + 1), limited, clamped)",
        ),
    ),
    "an_ack_goes_beyond_a_gap": (
        Patch(
            "engine/native/kernels.py",
            "    while head < tail and tags[head & mask] == 2 * head + 1:",
            "    while head < tail:",
        ),
    ),
    "delivered_is_acknowledged": (
        Patch(
            "csrc/python/deliveries.c",
            "    record->tag = 2 * d->tail;",
            "    record->tag = 2 * d->tail + 1;",
        ),
    ),
    "a_blind_peer_is_empty": (
        Patch(f"{RULES}/reports.py", "return FOR_EVER if view is None else", "return 0 if view is None else"),
        Patch(
            f"{RULES}/reports.py",
            "return {index: numbers.get(name, FOR_EVER) for",
            "return {index: numbers.get(name, 0) for",
        ),
    ),
    "the_lowest_log_is_believed": (
        Patch(
            f"{RULES}/election.py",
            "    start = max(start, least)\n",
            "    start = min(knowing.values(), default=start)\n",
        ),
    ),
    "records_are_never_void": (
        Patch(
            f"{RULES}/reconcile.py",
            "    return min((start for number, start in table if number > incarnation), default=FOR_EVER)\n",
            "    return FOR_EVER\n",
        ),
    ),
    "the_state_is_not_synced": (
        Patch(
            f"{STORE}/holdings.py",
            "self._file.save(self.state, sync=sync, sources=",
            "self._file.save(self.state, sync=False, sources=",
        ),
    ),
    "a_segment_is_as_large_as_what_is_kept": (
        Patch(
            f"{STORE}/holdings.py",
            "            config.max_segment_bytes = segment_bytes(config.retain_bytes)\n",
            "            pass\n",
        ),
    ),
    "the_way_to_a_store_is_not_synced": (
        Patch(
            f"{STORE}/store.py", "                begin_in(each.path, self.domain.doubts)\n", "                pass\n"
        ),
    ),
    "it_sends_before_begin_is_durable": (
        Patch(
            f"{RULES}/source_registration.py",
            "return self._in_phase(Phase.ACTIVE)",
            "return self._in_phase(Phase.ACTIVE, Phase.ANNOUNCED)",
        ),
    ),
    "a_dead_ring_is_unlinked_too_soon": (
        Patch(
            "engine/log/stale_rings.py",
            "if not left.stores or left.groups.stable_number(positions) >= left.end:",
            "if not left.stores or max(positions.values()) >= left.end:",
        ),
    ),
    "the_release_before_is_not_read": (
        Patch(
            "csrc/log/head.c",
            "return hash == hf_head_v1_hash() || hash == hf_head_rest_hash() ? HF_OK : HF_LAYOUT;",
            "return HF_LAYOUT;",
        ),
    ),
    "a_line_counts_from_the_beginning": (
        Patch("engine/log/board_line.py", "self.index), number, FOR_EVER)", "self.index), 0, FOR_EVER)"),
    ),
    "what_is_lost_is_a_silent_jump": (Patch(f"{STORE}/repository.py", "        self.lacks_below(gap.last + 1)\n", ""),),
    "an_empty_memory_log_votes": (
        Patch("engine/log/state_file.py", "            self.learner |= self.incarnation > 0\n", "            pass\n"),
    ),
    "an_ack_is_not_clamped": (
        Patch("engine/log/state_file.py", "        return min([ack, *since])\n", "        return ack\n"),
    ),
    "an_earlier_life_was_granted_nothing": (
        Patch(f"{RULES}/receiver_registration.py", "if knowing else self._promised(grants)", "if True else {}"),
    ),
    "ignorance_becomes_lost": (
        Patch(
            f"{RULES}/reconcile.py",
            "return Hole(held, number - 1) if undecided else Lost(held, number - 1)",
            "return Lost(held, number - 1)",
        ),
    ),
    "an_orphan_voids": (
        Patch(f"{RULES}/reports.py", "    if not rivals or _completes(with_it, may):\n", "    if top:\n"),
    ),
    "an_orphan_is_copied": (
        Patch(
            f"{STORE}/missed_begins.py",
            "    complete = table[: table.index(newest) + 1] if newest in table else ()",
            "    return table\n",
        ),
    ),
    "the_register_is_lost": (
        Patch(
            "engine/log/register.py",
            "        if entries is not None:\n            self._known",
            "        if False:\n            self._known",
        ),
    ),
    "an_ack_of_another_incarnation_counts": (Patch(SETTLEMENT, "elif copy.ack_stream == self._incarnation:", "else:"),),
    "memory_logs_are_called_after_the_store": (
        Patch(
            "engine/store/holdings.py", "domain.memory_logs(name, state.uuid)", "domain.memory_logs(name, bytes(16))"
        ),
    ),
    **RING,
    **DEATH,
    **FEATURES,
    **CENSUSES,
}

STAGE = {
    "a_dead_ring_is_unlinked_too_soon": "disaster",
    "a_blind_peer_is_empty": "blind",
    "a_ring_is_left_too_soon": "clogged",
    "it_answers_before_the_ring_is_drained": "clogged",
    "it_sends_before_begin_is_durable": "poised",
    "the_state_is_not_synced": "dawn",
    "the_release_before_is_not_read": "upgrade",
    "an_earlier_life_was_granted_nothing": "newcomer",
    "ignorance_becomes_lost": "cloistered",
    "the_lowest_log_is_believed": "laggard",
    "an_orphan_voids": "outpost",
    "an_orphan_is_copied": "outpost",
    "the_register_is_lost": "roundabout",
    "an_ack_of_another_incarnation_counts": "careless",
    "a_line_counts_from_the_beginning": "brimful",
    "what_is_lost_is_a_silent_jump": "brimful",
    "pins_are_looked_at_before_the_trail_is_stored": "verge",
    "a_reader_pins_and_does_not_look": "verge",
    "an_empty_memory_log_votes": "emptied",
    "an_ack_is_not_clamped": "rewound",
    "a_live_ack_covers_what_is_to_be_recovered": "rewound",
    "whoever_asks_deregisters": "overdue",
    "names_go_under_a_successor": "overdue",
    "deregistered_by_one_name": "renamed",
    "forgotten_and_not_synced": "rises",
    "an_old_ack_goes_up_to_the_oldest": "outgrown",
    "new_at_a_store_is_new": "stranger",
    "latest_is_when_it_registers": "guests",
    "a_number_ahead_is_waited_for": "guests",
    "memory_logs_are_called_after_the_store": "swap",
    "a_session_has_two_receivers": "usurp",
    "a_quorum_is_not_enough": "without",
    "it_catches_up_for_ever": "absence",
    **dict.fromkeys(CENSUSES, "relocated"),
    "no_census_proves_anything": "debut",
    "nobody_is_told_what_a_start_has_skipped": "glut",
}
"""Plots, or faults, in which these show: seeds that have none such are not asked."""
