"""Bugs of one line, each with the test that must fail when it is there: rules that no seed, model or torture
reaches. ``python -m planted_lines NAME`` plants one and runs its test; exit status 1: the test has failed, as
it must.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from simulator.planting import Patch, plant

__all__ = ["LINES", "Line"]

TESTS = Path(__file__).resolve().parent


class Line(NamedTuple):
    """``test``: below tests/. A patch of C: the module that has it is built anew, for this test."""

    patch: Patch
    test: str


LINES = {
    # Who is waited for, and how often somebody is asked
    "everybody_is_named_who_is_unknown": Line(
        Patch("engine/rules/reports.py", "for index in unknown[:excess]]", "for index in unknown]"),
        "unit/rules/test_reports.py::test_against_every_way_in_which_unknown_stores_may_have_come_somewhere",
    ),
    "a_refused_source_asks_as_often_as_before": Line(
        Patch("engine/rules/registration.py", "min(due << min(entry.same, 16), max(due, self.interval_ns))", "due"),
        "unit/rules/test_refusal_pace.py",
    ),
    "the_walk_of_a_log_is_taken_for_over": Line(
        Patch("engine/store/sources.py", "        return walk.over(WALK_S)\n", "        return True\n"),
        "process/store/test_hung_disk.py::test_a_store_serves_others_while_a_walk_hangs_and_then_goes_on_without_that_disk",
    ),
    "a_promise_is_not_on_disk": Line(
        Patch(
            "engine/store/sources.py",
            "known.incarnation, request.least):\n            holdings.save()",
            "known.incarnation, request.least):\n            pass",
        ),
        "process/store/test_clients.py::test_what_could_not_be_saved_is_not_granted_when_it_is_asked_for_again",
    ),
    # What counts, and who is told
    "what_may_be_gone_is_not_told": Line(
        Patch("engine/rules/source_registration.py", "return [*told, reg.Open(", "return [reg.Open("),
        "process/source/test_what_may_be_gone.py",
    ),
    "what_is_in_hand_is_not_consumed": Line(
        Patch(
            "bindings/receiver.py",
            "            message.done()\n            if controller is not",
            "            if controller is not",
        ),
        "process/receiver/test_left_loops.py::test_the_message_in_hand_is_consumed_by_the_next_request",
    ),
    "silence_never_counts": Line(
        Patch("engine/rules/liveness.py", "hangs = self._silence_counts and now_ns", "hangs = False and now_ns"),
        "unit/rules/test_liveness.py::test_where_silence_counts_a_context_that_hangs_is_tmo_alone_and_once",
    ),
    "a_loss_is_told_again_and_again": Line(
        Patch("bindings/spark/losses.py", "            told.add(first, stop)\n", "            pass\n"),
        "spark/test_losses.py",
    ),
    "a_session_is_held_for_ever": Line(
        Patch(
            "engine/receiver/registrar.py",
            "dict.fromkeys([answer.uuid if answer is not None else self.proposal, self.proposal])",
            "[answer.uuid if answer is not None else self.proposal]",
        ),
        "unit/receiver/test_leave_requests.py",
    ),
    "another_receiver_is_deregistered": Line(
        Patch("engine/store/receivers.py", 'or request.proposal not in {b"", hold.proposal}', "or False"),
        "process/store/test_clients.py::test_a_receiver_does_not_deregister_what_another_one_of_its_process_holds_by_now",
    ),
    # Disks that fail
    "a_failed_write_is_noted_on_its_own_device_alone": Line(
        Patch("csrc/log/tell.c", "(void)hf_doubt_set(log->config.doubt);", "(void)0;"),
        "process/faults/test_failed_sync.py::test_a_log_that_fails_is_noted_off_its_device",
    ),
    "the_note_off_the_device_is_not_read": Line(
        Patch("csrc/log/poison.c", "? hf_doubt_get(log->config.doubt) : 0;", "? 0 : 0;"),
        "process/faults/test_failed_sync.py::test_a_log_that_fails_is_noted_off_its_device",
    ),
    "a_store_names_no_place_for_the_note": Line(
        Patch("engine/store/repository.py", "config.doubt = self._doubt", "config.doubt = ffi.NULL"),
        "process/faults/test_failed_sync.py::test_a_poisoned_log_is_written_once_more_at_the_next_start",
    ),
    "a_failed_save_is_noted_nowhere": Line(
        Patch("engine/log/state_file.py", "                doubt.set()\n", "                pass\n"),
        "unit/log/test_state_file.py::test_a_sync_that_failed_is_never_believed_later",
    ),
    "a_read_only_disk_is_an_error_like_another": Line(
        Patch("engine/log/store_directory.py", "        if error.errno == errno.EROFS:\n", "        if False:\n"),
        "process/store/test_read_only.py::test_a_store_whose_state_meets_a_read_only_disk_serves_what_it_has_until_it_can_be_written",
    ),
    # Other users of the host
    "the_core_maps_what_is_anybodys": Line(
        Patch("csrc/base/map.c", " || file->st_uid != geteuid()", ""),
        "process/faults/test_other_users.py::test_the_core_maps_only_what_is_ours_alone",
    ),
    "the_core_maps_what_is_no_file": Line(
        Patch("csrc/base/map.c", "!S_ISREG(file->st_mode) || ", ""),
        "process/faults/test_other_users.py::test_the_core_maps_only_what_is_ours_alone",
    ),
    "the_core_maps_what_has_two_names": Line(
        Patch("csrc/base/map.c", " || file->st_nlink > 1", ""),
        "process/faults/test_other_users.py::test_the_core_maps_only_what_is_ours_alone",
    ),
    "an_object_may_be_a_fifo": Line(
        Patch(
            "engine/native/private_directory.py",
            "        if not stat.S_ISREG(found.st_mode):\n            raise F",
            "        if False:\n            raise F",
        ),
        "process/faults/test_other_users.py::test_a_fifo_in_place_of_an_object_is_refused_at_once",
    ),
    "an_object_may_have_two_names": Line(
        Patch("engine/native/private_directory.py", "        if found.st_nlink > 1:\n", "        if False:\n"),
        "process/faults/test_other_users.py::test_an_object_with_two_names_is_refused",
    ),
    "whose_it_is_is_not_looked_at": Line(
        Patch("engine/memory/domain.py", "return made.st_uid == uid and (stat", "return (stat"),
        "process/faults/test_other_users.py::test_ten_thousand_names_of_others_cost_no_opening",
    ),
    "directories_of_others_are_entered": Line(
        Patch("engine/native/private_directory.py", "if found.st_uid != os.geteuid():", "if False:"),
        "process/faults/test_other_users.py::test_another_users_directory_is_not_entered",
    ),
    "code_of_others_is_executed": Line(
        Patch("engine/native/kernels.py", "            ours = _all_ours(opened)\n", "            ours = True\n"),
        "process/faults/test_other_users.py::test_code_that_another_user_put_into_the_cache_is_not_executed",
    ),
    "text_is_shown_as_it_came": Line(
        Patch(
            "engine/printable.py",
            "    if text.isprintable():\n        return text\n    return",
            "    return text\n    return",
        ),
        "unit/test_printable.py",
    ),
    # Messages that are received in C
    "what_an_exception_kept_is_skipped": Line(
        Patch("csrc/python/lane.c", "        take_back(g, c, s);\n", ""),
        "process/receiver/test_lane.py::test_a_message_that_a_signal_handler_kept_from_the_program_comes_again[receive]",
    ),
    "what_found_no_room_is_passed": Line(
        Patch(
            "engine/receiver/feed.py",
            "        if number < self.next:\n            before",
            "        if False:\n            before",
        ),
        "process/receiver/test_lane.py::test_a_message_that_finds_no_room_in_the_window_comes_when_there_is[receive]",
    ),
    "what_came_behind_a_signal_is_dropped": Line(
        Patch("csrc/python/lane.c", "return waited ? PyErr_CheckSignals() : 0;", "return 0;"),
        "process/receiver/test_lane.py::test_a_message_that_comes_after_a_signal_is_not_lost_where_the_handler_raises",
    ),
    "a_lane_is_for_whoever_comes": Line(
        Patch("csrc/python/lane.c", "g->controllers == l->controllers && ", ""),
        "process/receiver/test_lane.py::test_a_source_that_comes_while_it_is_opened_is_not_left_out",
    ),
    "what_was_evicted_waits_for_the_ring": Line(
        Patch("csrc/python/lane.c", "!g->closed && !g->again;", "!g->closed;"),
        "process/receiver/test_lane.py::test_a_batch_that_was_evicted_comes_again_first",
    ),
    "a_message_that_is_kept_is_used_again": Line(
        Patch("csrc/python/pool.c", "return Py_REFCNT(message) == 1;", "return 1;"),
        "process/receiver/test_pool.py::test_a_program_that_keeps_the_latest_messages_makes_no_more_of_them[3]",
    ),
    "a_release_moves_the_head_during_a_sweep": Line(
        Patch("csrc/python/deliveries.c", "slot == d->head && !d->moving", "slot == d->head"),
        "unit/receiver/test_ack_window.py",
    ),
    # Misuse
    "an_empty_message_is_false": Line(
        Patch("csrc/python/slot.c", "{Py_nb_bool, slot_is_true},", ""),
        "process/receiver/test_handed_out.py::test_a_loop_that_asks_whether_there_is_a_message_does_not_stop_at_an_empty_one",
    ),
    "any_timeout_will_do": Line(
        Patch("engine/native/waiting.py", "    if timeout is None or (isinstance", "    if True or (isinstance"),
        "unit/native/test_waiting.py",
    ),
    "a_task_writes_on_any_host": Line(
        Patch("bindings/spark/place.py", "        if self.boot != boot_id():\n", "        if False:\n"),
        "spark/test_place.py::test_a_writing_task_on_another_host_takes_no_row",
    ),
}


def main(name: str) -> int:
    """See the module."""
    line = LINES[name]
    plant(name, [line.patch], core="holdfast._core")
    quiet = ["-q", "-x", "--tb=short", "-n0", "--no-cov", "-o", "cache_dir=build/planted/pytest"]
    return int(pytest.main([*quiet, str(TESTS / line.test)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
