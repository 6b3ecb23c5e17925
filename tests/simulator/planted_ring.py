"""Planted bugs of the ring, and of who is taken for dead. See planted.py.

The core runs from one call to the next without a pause here. Where a bug opens a window between two stores,
its patch sleeps there: so another thread runs first, and a process is stopped or killed in the midst of it.
"""

from __future__ import annotations

from simulator.planting import Patch

__all__ = ["DEATH", "RING"]

READER = "csrc/stream/reader.c"
SEND = "csrc/stream/send.c"
WALK = "csrc/stream/ring_walk.c"
PROCESS = "csrc/base/process.c"
WAITS = "nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);\n"
READER_SLEEPS = Patch(READER, "#include <stdlib.h>\n", "#include <stdlib.h>\n#include <time.h>\n")

RING: dict[str, tuple[Patch, ...]] = {
    "a_word_without_its_position": (
        Patch(
            SEND,
            "    hf_store_relaxed_u64(hf_word(s->ring + (position & s->mask), HF_WORD_COMMIT), 0);\n",
            "    (void)s;\n    (void)position;\n",
        ),
        Patch(READER, "    return HF_LIKELY(hf_commit_own(word, r->position)) ? 1 :", "    return word != 0 ? 1 :"),
        Patch(READER, "    if (!HF_LIKELY(hf_commit_own(word, position))) {", "    if (word == 0) {"),
        Patch(READER, "        if (!hf_commit_own(word, position)) {", "        if (word == 0) {"),
        Patch(WALK, "        if (!hf_commit_own(word, position + m.bytes) || length", "        if (length"),
    ),
    "no_room_for_the_next_word": (
        Patch(
            SEND,
            "(int64_t)(s->room_position - s->position) >= (int64_t)(span + HF_GRANULE)",
            "(int64_t)(s->room_position - s->position) >= (int64_t)span",
        ),
        Patch(
            SEND,
            "    while ((int64_t)(s->admit - s->position) < (int64_t)(span + HF_GRANULE)) {\n"
            "        int64_t status = trail_raise(s, s->position + span + HF_GRANULE, released);\n",
            "    while ((int64_t)(s->admit - s->position) < (int64_t)span) {\n"
            "        int64_t status = trail_raise(s, s->position + span, released);\n",
        ),
    ),
    "the_first_fragment_is_committed_first": (
        Patch(
            SEND,
            "    for (uint32_t i = (uint32_t)fragments; i-- > 0;) {\n",
            "    for (uint32_t i = 0; i < (uint32_t)fragments; i++) {\n",
        ),
        Patch(
            SEND,
            "data + i * part, bytes);\n        frame_time(s, frame, timestamp_ns);\n",
            "data + i * part, bytes);\n        frame_time(s, frame, timestamp_ns);\n        " + WAITS,
        ),
    ),
    "a_ring_mapped_once": (  # the line that stands in for one of csrc/base/pages.c
        Patch(
            "tests/simulator/kernel/maps.c",
            "__real_mmap(base + once, ring, both, how, sim_arena, (off_t)(at + header))",
            "__real_mmap(base + once, ring / 2, both, how, sim_arena, (off_t)(at + header + ring / 2))",
        ),
    ),
    "a_view_is_not_verified_at_its_end": (
        Patch(READER, "    int evicted = hf_ring_passed(&r->ring, from);\n", "    int evicted = 0;\n"),
    ),
    "the_trail_passes_what_is_not_released": (
        Patch(
            SEND,
            "    if (hf_after(least, released)) {\n"
            "        return HF_RETENTION;\n"
            "    }\n"
            "    uint64_t trail = hf_after(least + ring_bytes / 8, released) ? released : least + ring_bytes / 8;\n",
            "    uint64_t trail = least + ring_bytes / 8;\n",
        ),
    ),
    "a_store_copies_and_does_not_look_at_the_trail": (
        READER_SLEEPS,
        Patch(
            READER,
            "    hf_copy_out(buf, hf_ring_frame(&r->ring, r->position), span); /* contiguous: the second mapping follows"
            " the first */\n"
            '    HF_FAIL("reader.copied");\n'
            "    if (hf_ring_passed(&r->ring, r->position)) {\n"
            "        return HF_LAPPED;\n"
            "    }\n",
            "    hf_copy_out(buf, hf_ring_frame(&r->ring, r->position), HF_GRANULE);\n    "
            + WAITS
            + "    hf_copy_out(buf + HF_GRANULE, hf_ring_frame(&r->ring, r->position) + HF_GRANULE, span - HF_GRANULE);\n",
        ),
    ),
    "a_receiver_copies_and_does_not_look_at_the_trail": (
        READER_SLEEPS,
        Patch(
            READER,
            "    hf_copy_out(buf, frame + HF_GRANULE, payload);\n"
            '    HF_FAIL("reader.copied");\n'
            "    if (hf_ring_passed(&r->ring, position)) {\n"
            "        return HF_LAPPED;\n"
            "    }\n",
            "    " + WAITS + "    hf_copy_out(buf, frame + HF_GRANULE, payload);\n",
        ),
        Patch(
            READER,
            "    int64_t copied = hf_gather(",
            "    " + WAITS + "    int64_t copied = hf_gather(",
        ),
        Patch(
            READER,
            "    if (copied < 0 || hf_ring_passed(&r->ring, r->position)) {",
            "    if (copied < 0) {",
        ),
    ),
    "pins_are_looked_at_before_the_trail_is_stored": (
        Patch(
            SEND,
            "    mark_released(s, released);\n",
            "    int held = pinned(s, s->admit - ring_bytes, trail);\n"
            "    " + WAITS + "    mark_released(s, released);\n",
        ),
        Patch(
            SEND,
            "    if (pinned(s, s->admit - ring_bytes, trail)) {\n        s->grant = trail;",
            "    if (held) {\n        s->grant = trail;",
        ),
    ),
    "a_reader_pins_and_does_not_look": (
        Patch(READER, "    if (hf_after(hf_load_seq_cst_u64(&r->ring.header->trail), position)) {", "    if (0) {"),
        Patch(READER, "    if (count > 0 && hf_ring_passed(&ring, r->position)) {", "    if (0) {"),
    ),
}

DEATH: dict[str, tuple[Patch, ...]] = {
    "a_broken_connection_is_death": (
        Patch(
            "engine/store/sources.py",
            "        return Held(stream.pid, stream.since_ns) if stream is not None else None\n",
            "        return None\n",
        ),
        Patch(
            "engine/store/repository.py",
            "            if not self.owner_gone() or not self.drained():\n",
            "            if not self.drained():\n",
        ),
    ),
    "silence_is_death": (
        Patch(
            "csrc/base/proc.c",
            "    int dead = state == 'X' ||",
            "    int dead = state == 'T' || state == 'X' ||",
        ),
        Patch(
            PROCESS,
            "    return status == HF_ERRNO - ENOENT ? alive_by_start(pid, start) : status;\n",
            "    return status == HF_ERRNO - ENOENT || status == 1 ? alive_by_start(pid, start) : status;\n",
        ),
    ),
    "a_dead_process_looks_alive": (
        Patch(
            PROCESS,
            "    return status == HF_ERRNO - ENOENT ? alive_by_start(pid, start) : status;\n",
            "    return status == HF_ERRNO - ENOENT ? alive_by_start(pid, start) : 1;\n",
        ),
    ),
}
