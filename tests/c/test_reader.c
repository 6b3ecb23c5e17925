/* test_reader.c: the reading side of stream/stream.h: laps, damage, pins, copies, scans; and bytes that no correct writer
 * leaves. */
#include "stream_kit.h"

#define START (UINT64_C(0) - (UINT64_C(1) << 19)) /* positions wrap at 2^64 on the way */

static struct hf_source *source(uint64_t start)
{
    struct hf_stream_config config = kit_config();
    config.start_position = start;
    config.pin_timeout_ms = 0;
    return kit_source(&config, NULL);
}

static void a_reader_that_was_overtaken_is_told_so_and_goes_on_from_the_oldest_message(void)
{
    struct hf_source *s = source(START);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    struct hf_entry entry;
    uint8_t buf[1024];
    uint64_t first, next;
    kit_run(s, 200, 256);
    kit_expect(r, 200, 0);
    kit_run(s, 200, 20 * KIT_RING + 96);
    CHECK_EQ(hf_reader_ready(r), HF_LAPPED);
    CHECK_EQ(hf_reader_receive(r, &entry, buf, sizeof buf), HF_LAPPED);
    CHECK_EQ(hf_reader_copy(r, buf, sizeof buf, &first, &next), HF_LAPPED);
    CHECK_EQ(hf_reader_next(r), 1); /* it does not move by itself */
    CHECK_EQ(hf_reader_seek(r, 1), HF_LAPPED);
    CHECK_EQ(hf_reader_seek_oldest(r), HF_OK);
    CHECK(!hf_after(s->admit - KIT_RING, hf_reader_position(r)));
    CHECK(hf_reader_position(r) - (s->admit - KIT_RING) < KIT_RING / HF_MARKS + 256);
    while (hf_reader_next(r) < s->next_sqn) {
        kit_expect(r, 200, hf_reader_next(r));
    }
    CHECK_EQ(hf_reader_ready(r), 0);
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void a_word_of_zero_below_the_trail_is_a_lap_and_not_an_empty_ring(void)
{
    struct hf_source *s = source(START);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    kit_run(s, 200, KIT_RING); /* the word behind the last message has just been zeroed, */
    kit_frame(s, START)->commit = 0;
    CHECK_EQ(hf_reader_ready(r), HF_LAPPED); /* where this reader stands */
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void a_copy_that_is_overtaken_before_its_check_is_not_delivered(void)
{
    struct hf_source *s = source(0);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    struct hf_entry entry;
    uint8_t buf[1024];
    uint64_t first, next;
    kit_run(s, 200, 256);
    kit_header(s)->trail = 32; /* whole frame still there: only the trail says that it may not be */
    CHECK_EQ(hf_reader_receive(r, &entry, buf, sizeof buf), HF_LAPPED);
    CHECK_EQ(hf_reader_copy(r, buf, sizeof buf, &first, &next), HF_LAPPED);
    kit_header(s)->trail = 0;
    kit_expect(r, 200, 0);
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void a_buffer_that_is_too_small_consumes_nothing_and_learns_the_size(void)
{
    struct hf_source *s = source(START);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    struct hf_entry entry;
    static uint8_t buf[8192];
    uint64_t first, next;
    uint64_t lengths[] = {100, 5000};
    for (uint64_t i = 0; i < 2; i++) {
        kit_send(s, lengths[i], i);
        CHECK_EQ(hf_reader_receive(r, &entry, buf, lengths[i] - 1), HF_SMALL);
        CHECK_EQ(entry.length, lengths[i]);
        CHECK_EQ(hf_reader_copy(r, buf, hf_frame_span(lengths[i]), &first, &next), HF_SMALL);
        kit_expect(r, lengths[i], i);
    }
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void seek_stands_before_the_message_that_carries_the_number(void)
{
    struct hf_source *s = source(START);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    CHECK_EQ(hf_reader_seek(r, 0), HF_OK);
    CHECK_EQ(hf_reader_seek(r, 1), HF_AHEAD);
    for (uint64_t i = 0; i < 400; i++) { /* numbers 0, 1..3, 4, 5..7, ... */
        kit_send(s, i % 2 == 0 ? 50 : 2100, i);
        hf_source_release(s, UINT64_MAX);
    }
    CHECK_EQ(hf_reader_seek_oldest(r), HF_OK);
    uint64_t oldest = hf_reader_next(r);
    CHECK(oldest > 0);
    for (uint64_t sqn = oldest; sqn < 800; sqn++) {
        CHECK_EQ(hf_reader_seek(r, sqn), HF_OK);
        CHECK_EQ(hf_reader_next(r), sqn % 4 == 0 ? sqn : sqn / 4 * 4 + 1);
        kit_expect(r, sqn % 4 == 0 ? 50 : 2100, sqn / 4 * 2 + (sqn % 4 != 0));
    }
    CHECK_EQ(hf_reader_seek(r, 800), HF_OK);
    CHECK_EQ(hf_reader_seek(r, 801), HF_AHEAD);
    CHECK_EQ(hf_reader_seek(r, oldest - 1), HF_LAPPED);
    struct hf_mark *marks = kit_header(s)->marks;
    for (int i = 0; i < HF_MARKS; i++) { /* torn, stale or forged marks cost a longer walk, no more */
        if (marks[i].sqn > oldest) {
            marks[i].sqn += (uint64_t)(i % 3) - 1;
            marks[i].position += i % 2 == 0 ? 8 : 32;
        }
    }
    CHECK_EQ(hf_reader_seek(r, 798), HF_OK);
    kit_expect(r, 2100, 399);
    hf_reader_close(r);
    hf_source_destroy(s);
}

/* A store that comes back stands at the first number that it had not called stable: nothing before that is left. */
static void what_is_not_released_is_found_wherever_the_trail_stands(void)
{
    for (uint64_t length = 8; length <= 1024; length = 3 * length / 2 + 8) { /* one fragment each */
        struct hf_source *s = source(START);
        struct hf_reader *r = kit_reader(s, NULL, -1);
        for (int i = 0; i < 500; i++) {
            while (kit_send(s, length, s->next_sqn) >= 0) {
            }
            CHECK_EQ(hf_reader_seek(r, s->released_sqn), HF_OK);
            CHECK_EQ(hf_reader_next(r), s->released_sqn);
            kit_expect(r, length, s->released_sqn);
            hf_source_release(s, s->released_sqn + (s->next_sqn - s->released_sqn) * (uint64_t)(i % 7) / 7 + 1);
        }
        hf_reader_close(r);
        hf_source_destroy(s);
    }
}

static void a_frame_that_is_wrong_and_not_lapped_is_damage(void)
{
    struct hf_source *s = source(START);
    struct hf_entry entry;
    static uint8_t buf[8192];
    uint64_t first, next;
    kit_send(s, 100, 0);
    kit_send(s, 3000, 1);
    struct hf_frame *frames[] = {kit_frame(s, START), kit_frame(s, START + 160), kit_frame(s, START + 160 + 1056)};
    static const uint32_t lengths[] = {0, 1, 31, 1057, UINT32_MAX, UINT32_MAX - 31, UINT32_MAX - 32, 1u << 31};
    for (int f = 0; f < 3; f++) {
        struct hf_frame saved = *frames[f];
        for (uint64_t k = 0; k < 13; k++) {
            struct hf_reader *r = kit_reader(s, NULL, -1);
            if (f > 0) {
                kit_expect(r, 100, 0);
            }
            *frames[f] = saved;
            switch (k) {
            case 0:
                frames[f]->flags ^= HF_FRAME_FIRST;
                break;
            case 1:
                frames[f]->flags |= HF_FRAME_CONTROL;
                break;
            case 2:
                frames[f]->fragment++;
                break;
            case 3:
                frames[f]->sequence_number ^= UINT64_C(1) << 32;
                break;
            case 4:
                frames[f]->commit ^= UINT64_C(1) << 63;
                break;
            default:
                frames[f]->commit = (saved.commit >> 32 << 32) | lengths[k - 5];
            }
            CHECK_EQ(hf_reader_receive(r, &entry, buf, sizeof buf), HF_DAMAGED);
            CHECK_EQ(hf_reader_copy(r, buf, sizeof buf, &first, &next), HF_DAMAGED);
            kit_header(s)->trail += 32 * (uint64_t)(f == 0 ? 1 : 6); /* the same, once the trail has passed it */
            CHECK_EQ(hf_reader_receive(r, &entry, buf, sizeof buf), HF_LAPPED);
            CHECK_EQ(hf_reader_copy(r, buf, sizeof buf, &first, &next), HF_LAPPED);
            kit_header(s)->trail = START;
            hf_reader_close(r);
        }
        *frames[f] = saved;
    }
    hf_source_destroy(s);
}

static void a_batch_shows_whole_messages_in_place_and_gather_joins_fragments(void)
{
    struct hf_map *board = kit_board();
    struct hf_board_line *line = kit_line(board, 2);
    struct hf_source *s = source(START);
    struct hf_reader *r = kit_reader(s, board, 2);
    struct hf_reader *lineless = kit_reader(s, NULL, -1);
    struct hf_entry entries[64];
    static uint8_t out[8192];
    uint64_t from, to, round = 0;
    CHECK_EQ(hf_reader_batch(lineless, entries, 64, 4096, &from, &to), HF_USAGE);
    CHECK_EQ(hf_reader_unpin(lineless, 0, UINT64_MAX), HF_USAGE);
    CHECK_EQ(hf_reader_batch(r, entries, 64, 4096, &from, &to), 0);
    CHECK_EQ(line->pin, UINT64_MAX);
    for (; round < 300; round++) { /* the ring's edge lies in headers, payloads, fragments */
        uint64_t lengths[] = {round % 90, 1500 + round, 16, 32};
        for (uint64_t i = 0; i < 4; i++) {
            kit_send(s, lengths[i], i);
        }
        CHECK_EQ(hf_reader_batch(r, entries, 64, 1 << 20, &from, &to), 4);
        CHECK_EQ(line->pin, from);
        CHECK_EQ(line->pin_stream, 3);
        CHECK_EQ(to, s->position);
        for (uint64_t i = 0; i < 4; i++) {
            CHECK_EQ(entries[i].length, lengths[i]);
            CHECK_EQ(entries[i].fragments, i == 1 ? 2 : 1);
            CHECK_EQ(entries[i].first_sequence_number + entries[i].fragments - 1, entries[i].sequence_number);
            CHECK_EQ(hf_gather(hf_reader_base(r), KIT_RING, &entries[i], out), (int64_t)lengths[i]);
            CHECK(kit_is(out, lengths[i], i));
            CHECK(i == 1 || kit_is(hf_reader_base(r) + entries[i].offset, lengths[i], i));
        }
        hf_source_release(s, UINT64_MAX);
        CHECK_EQ(hf_reader_unpin(r, from, UINT64_MAX), HF_OK);
        CHECK_EQ(line->pin, UINT64_MAX);
    }
    for (uint64_t i = 0; i < 10; i++) {
        kit_send(s, 100, i);
    }
    CHECK_EQ(hf_reader_batch(r, entries, 3, 1 << 20, &from, &to), 3);
    CHECK_EQ(hf_reader_batch(r, entries, 64, 320, &from, &to), 2); /* a second view: the first one's pin stays */
    CHECK_EQ(line->pin, from - 3 * 160);
    CHECK_EQ(hf_reader_batch(r, entries, 64, 1, &from, &to), 1); /* never less than one message */
    CHECK_EQ(hf_reader_unpin(r, from - 5 * 160, from), HF_OK);
    CHECK_EQ(line->pin, from);
    hf_reader_close(r);
    CHECK_EQ(line->pin, UINT64_MAX);
    hf_reader_close(lineless);
    hf_source_destroy(s);
    hf_map_detach(board);
}

static void a_view_that_was_evicted_says_so_when_it_ends(void)
{
    struct hf_map *board = kit_board();
    kit_line(board, 0);
    struct hf_source *s = source(START); /* without the board: no pin holds it */
    struct hf_reader *r = kit_reader(s, board, 0);
    struct hf_entry entries[4];
    uint64_t from, to, later, end;
    kit_run(s, 100, 2 * 160);
    CHECK_EQ(hf_reader_batch(r, entries, 1, 4096, &from, &to), 1);
    kit_run(s, 100, 3 * KIT_RING);
    CHECK_EQ(hf_reader_batch(r, entries, 1, 4096, &later, &end), HF_LAPPED);
    CHECK_EQ(hf_reader_seek(r, s->next_sqn - 1), HF_OK);
    CHECK_EQ(hf_reader_batch(r, entries, 1, 4096, &later, &end), 1);
    CHECK_EQ(kit_line(board, 0)->pin, later); /* the old pin protects nothing any more: a new one */
    CHECK_EQ(hf_reader_unpin(r, from, later), HF_EVICTED);
    CHECK_EQ(hf_reader_unpin(r, later, UINT64_MAX), HF_OK);
    CHECK_EQ(hf_reader_seek(r, s->next_sqn - 9), HF_OK); /* backwards, below a pin that is held */
    uint64_t low = hf_reader_position(r);
    CHECK_EQ(hf_reader_seek(r, s->next_sqn - 1), HF_OK);
    CHECK_EQ(hf_reader_batch(r, entries, 1, 4096, &later, &end), 1);
    CHECK_EQ(hf_reader_seek(r, s->next_sqn - 9), HF_OK);
    CHECK_EQ(hf_reader_batch(r, entries, 1, 4096, &from, &to), 1);
    CHECK_EQ(kit_line(board, 0)->pin, low);
    hf_reader_close(r);
    hf_source_destroy(s);
    hf_map_detach(board);
}

static void a_bulk_copy_holds_whole_messages_only_and_says_which(void)
{
    struct hf_source *s = source(START);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    struct hf_entry entries[64];
    static uint8_t block[KIT_RING];
    uint64_t first, next, consumed, expected = 0;
    CHECK_EQ(hf_reader_copy(r, block, sizeof block, &first, &next), 0);
    for (uint64_t round = 0; round < 200; round++) {
        for (uint64_t i = 0; i < 5; i++) {
            kit_send(s, i == 3 ? 2500 : 40 + round, i);
        }
        uint64_t span = s->position - hf_reader_position(r);
        if (round % 3 == 1) {
            kit_header(s)->tail = hf_reader_position(r); /* died before it stored the tail */
        } else if (round % 3 == 2) {
            kit_header(s)->tail = round % 2 == 0 ? hf_reader_position(r) - 32 : UINT64_C(0x1234567812345677);
        }
        CHECK_EQ(hf_reader_copy(r, block, span - 1, &first, &next), (int64_t)(span - hf_frame_span(72 + round)));
        CHECK_EQ(first, expected);
        CHECK_EQ(next, expected + 6);
        CHECK_EQ(hf_scan(block, sizeof block, entries, 4, &consumed), 4);
        CHECK_EQ(consumed, span - hf_frame_span(72 + round));
        for (uint64_t i = 0; i < 4; i++) {
            static uint8_t out[4096];
            CHECK_EQ(hf_gather(block, 0, &entries[i], out), i == 3 ? 2500 : (int64_t)(40 + round));
            CHECK(kit_is(out, entries[i].length, i));
        }
        kit_header(s)->tail = s->position;
        CHECK_EQ(hf_reader_copy(r, block, sizeof block, &first, &next), (int64_t)hf_frame_span(72 + round));
        expected += 7;
        CHECK_EQ(next, expected);
        hf_source_release(s, UINT64_MAX);
    }
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void a_header_that_cannot_be_is_refused_at_open(void)
{
    struct hf_source *s = source(0);
    struct hf_reader *r;
    uint64_t at, next;
    for (int k = 0; k < 5; k++) {
        struct hf_stream_header saved = *kit_header(s);
        switch (k) {
        case 0:
            kit_header(s)->ring_bytes *= 2;
            break;
        case 1:
            kit_header(s)->start_position = 8;
            break;
        case 2:
            kit_header(s)->fragment_bytes = 31;
            break;
        case 3:
            kit_header(s)->fragment_bytes = KIT_RING / 4 - 31;
            break;
        default:
            kit_header(s)->fragment_bytes = UINT32_MAX;
        }
        CHECK_EQ(hf_reader_open(hf_source_map(s), NULL, NULL, -1, &r), HF_DAMAGED);
        CHECK_EQ(hf_stream_end(hf_source_map(s), &at, &next), HF_DAMAGED);
        CHECK_EQ(hf_stream_valid(hf_source_map(s), &at), HF_DAMAGED);
        *kit_header(s) = saved;
    }
    CHECK_EQ(hf_reader_open(hf_source_map(s), NULL, NULL, 0, &r), HF_USAGE);
    hf_source_destroy(s);
}

static void a_wait_ends_with_a_message_or_with_its_time(void)
{
    struct hf_source *s = source(0);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    struct hf_entry entry;
    uint8_t buf[64];
    for (int strategy = HF_WAIT_BUSY_SPIN; strategy <= HF_WAIT_BLOCK; strategy++) { /* without a line it never sleeps */
        CHECK_EQ(hf_reader_wait(r, strategy, 100000), 0);
        CHECK_EQ(hf_reader_receive_wait(r, &entry, buf, sizeof buf, strategy, 100000), 0);
        CHECK_EQ(hf_reader_receive_soon(r, &entry, buf, sizeof buf, INT64_MAX), 0);
        kit_send(s, 20, 1);
        CHECK_EQ(hf_reader_wait(r, strategy, INT64_MAX), 1);
        CHECK_EQ(hf_reader_receive_wait(r, &entry, buf, sizeof buf, strategy, INT64_MAX), 1);
        CHECK(kit_is(buf, 20, 1));
        kit_send(s, 21, 1);
        CHECK_EQ(hf_reader_receive_soon(r, &entry, buf, sizeof buf, 0), 1);
        CHECK(kit_is(buf, 21, 1));
    }
    hf_source_close(s);
    CHECK_EQ(hf_reader_wait(r, HF_WAIT_BLOCK, INT64_MAX), HF_CLOSED);
    CHECK_EQ(hf_reader_receive_soon(r, &entry, buf, sizeof buf, INT64_MAX), HF_CLOSED);
    hf_reader_close(r);
    hf_source_destroy(s);
}

int main(void)
{
    RUN(a_reader_that_was_overtaken_is_told_so_and_goes_on_from_the_oldest_message);
    RUN(a_word_of_zero_below_the_trail_is_a_lap_and_not_an_empty_ring);
    RUN(a_copy_that_is_overtaken_before_its_check_is_not_delivered);
    RUN(a_buffer_that_is_too_small_consumes_nothing_and_learns_the_size);
    RUN(seek_stands_before_the_message_that_carries_the_number);
    RUN(what_is_not_released_is_found_wherever_the_trail_stands);
    RUN(a_frame_that_is_wrong_and_not_lapped_is_damage);
    RUN(a_batch_shows_whole_messages_in_place_and_gather_joins_fragments);
    RUN(a_view_that_was_evicted_says_so_when_it_ends);
    RUN(a_bulk_copy_holds_whole_messages_only_and_says_which);
    RUN(a_header_that_cannot_be_is_refused_at_open);
    RUN(a_wait_ends_with_a_message_or_with_its_time);
    return 0;
}
