/* test_frames.c: frames that lie in private blocks, and bytes that no correct writer leaves, in blocks and rings. */
#include "base/crc32c.h"
#include "stream_kit.h"

#define START (UINT64_C(0) - (UINT64_C(1) << 19)) /* positions wrap at 2^64 on the way */

static struct hf_source *source(uint64_t start)
{
    struct hf_stream_config config = kit_config();
    config.start_position = start;
    config.pin_timeout_ms = 0;
    return kit_source(&config, NULL);
}

static uint64_t put(uint8_t *block, uint64_t at, uint32_t length, uint64_t sqn, uint16_t flags, uint16_t fragment)
{
    struct hf_frame frame = {
        .commit = length, .sequence_number = sqn, .flags = flags, .fragment = fragment, .crc = 0xabcd};
    memcpy(block + at, &frame, sizeof frame);
    return at + hf_frame_span(length);
}

static void a_scan_steps_over_control_frames_and_gaps_and_leaves_a_part_of_a_message(void)
{
    enum { ONE = HF_FRAME_FIRST | HF_FRAME_LAST };
    static uint8_t block[4096];
    struct hf_entry entries[8];
    uint64_t consumed;
    uint64_t at = put(block, 0, 48, 0, HF_FRAME_CONTROL | ONE, HF_CONTROL_SYNC);
    at = put(block, at, 32, 7, ONE, 0);
    at = put(block, at, 48, 8, HF_FRAME_CONTROL | ONE, HF_CONTROL_LOST);
    at = put(block, at, 100, 900, ONE, 0); /* numbers jump between messages after a LOST */
    uint64_t whole = put(block, at, 96, 901, HF_FRAME_FIRST, 0);
    whole = put(block, whole, 33, 902, HF_FRAME_LAST, 1);
    CHECK_EQ(hf_scan(block, whole, entries, 8, &consumed), 3);
    CHECK_EQ(consumed, whole);
    CHECK_EQ(entries[2].first_sequence_number, 901);
    CHECK_EQ(entries[2].sequence_number, 902);
    CHECK_EQ(entries[2].length, 65);
    for (uint64_t cut = at; cut < whole; cut++) {
        CHECK_EQ(hf_scan(block, cut, entries, 8, &consumed), 2);
        CHECK_EQ(consumed, at);
    }
    CHECK_EQ(hf_scan(block, whole, entries, 1, &consumed), 1);
    CHECK_EQ(hf_scan(block, 0, entries, 8, &consumed), 0);
}

static void a_scan_refuses_nonsense_but_delivers_what_lies_before_it(void)
{
    enum { ONE = HF_FRAME_FIRST | HF_FRAME_LAST };
    static uint8_t block[4096];
    struct hf_entry entries[8];
    uint64_t consumed;
    static const struct {
        uint32_t length;
        uint16_t flags;
        uint16_t fragment;
        int64_t status;
    } bad[] = {
        {0, ONE, 0, HF_DAMAGED},      {31, ONE, 0, HF_DAMAGED},           {64, HF_FRAME_LAST, 0, HF_DAMAGED},
        {64, ONE, 1, HF_DAMAGED},     {64, ONE | 8, 0, HF_DAMAGED},       {UINT32_MAX, ONE, 0, 0}, /* not all here */
        {UINT32_MAX - 31, ONE, 0, 0}, {64, HF_FRAME_FIRST, 0, HF_DAMAGED}}; /* the second half is missing */
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        put(block, 0, bad[k].length, 5, bad[k].flags, bad[k].fragment);
        CHECK_EQ(hf_scan(block, sizeof block, entries, 8, &consumed), bad[k].status);
        CHECK_EQ(consumed, 0);
        uint64_t at = put(block, 0, 64, 4, ONE, 0);
        put(block, at, bad[k].length, 5, bad[k].flags, bad[k].fragment);
        CHECK_EQ(hf_scan(block, sizeof block, entries, 8, &consumed), 1);
        CHECK_EQ(consumed, at);
        memset(block, 0, sizeof block);
    }
    put(block, put(block, 0, 64, 5, HF_FRAME_FIRST, 0), 64, 7, HF_FRAME_LAST, 1); /* a gap inside a message */
    CHECK_EQ(hf_scan(block, sizeof block, entries, 8, &consumed), HF_DAMAGED);
    struct hf_entry forged = {.offset = 32, .length = 10, .fragments = 2};
    uint8_t out[16];
    CHECK_EQ(hf_gather(block, 0, &forged, out), HF_DAMAGED); /* more than the entry has room for */
}

/* Five messages: of one fragment with 5, 0 and 300 bytes, of three fragments with 70, of one with 1. Returns the bytes. */
static uint64_t five(uint8_t *block, struct hf_entry entries[5])
{
    enum { ONE = HF_FRAME_FIRST | HF_FRAME_LAST };
    uint64_t consumed, at = 0;
    memset(block, 0, 4096);
    for (uint32_t i = 0; i < 4096; i++) {
        block[i] = (uint8_t)(i * 7 + i / 256);
    }
    at = put(block, at, 32 + 5, 100, ONE, 0);
    at = put(block, at, 32, 101, ONE, 0);
    at = put(block, at, 32 + 300, 102, ONE, 0);
    at = put(block, at, 32 + 33, 103, HF_FRAME_FIRST, 0);
    at = put(block, at, 32 + 36, 104, 0, 1);
    at = put(block, at, 32 + 1, 105, HF_FRAME_LAST, 2);
    at = put(block, at, 32 + 1, 106, ONE, 0);
    CHECK_EQ(hf_scan(block, at, entries, 5, &consumed), 5);
    entries[2].timestamp_ns = -7;
    return at;
}

static void columns_have_each_message_once_over_any_number_of_calls(void)
{
    static uint8_t block[4096], values[400], one[400];
    struct hf_entry entries[5];
    int64_t last[8], first[8], when[8], crc[8];
    int32_t flags[8], offsets[9] = {0};
    five(block, entries);
    for (int64_t step = 1; step <= 5; step++) {
        struct hf_columns to = {.sequence_number = last,
                                .first_sequence_number = first,
                                .timestamp_ns = when,
                                .flags = flags,
                                .offsets = offsets,
                                .values = values,
                                .crc = crc,
                                .bytes_max = 376};
        memset(values, 0xee, sizeof values);
        int64_t taken = 0;
        while (taken < 5) {
            to.rows_max = taken + step;
            int64_t more = hf_columns(block, 0, entries + taken, 5 - taken, &to);
            CHECK(more > 0 && more <= step);
            taken += more;
            CHECK_EQ(to.rows, taken);
        }
        CHECK_EQ(to.bytes, 376);
        CHECK_EQ(values[376], 0xee);
        for (int i = 0; i < 5; i++) {
            CHECK_EQ(last[i], entries[i].sequence_number);
            CHECK_EQ(first[i], entries[i].first_sequence_number);
            CHECK_EQ(when[i], i == 2 ? -7 : 0);
            CHECK_EQ(flags[i], i == 3 ? HF_ENTRY_FRAGMENTED : 0);
            CHECK_EQ(offsets[i + 1] - offsets[i], entries[i].length);
            CHECK_EQ(hf_gather(block, 0, &entries[i], one), entries[i].length);
            CHECK(memcmp(values + offsets[i], one, entries[i].length) == 0);
            CHECK_EQ(crc[i], hf_crc32c(0, one, entries[i].length));
        }
    }
}

static void columns_end_before_what_has_no_room_and_leave_out_what_is_not_wanted(void)
{
    static uint8_t block[4096], values[400];
    struct hf_entry entries[5];
    int64_t last[5], crc[5];
    int32_t offsets[6] = {0};
    five(block, entries);
    struct hf_columns to = {.values = values, .offsets = offsets, .rows_max = 5, .bytes_max = 374};
    memset(values, 0xee, sizeof values);
    CHECK_EQ(hf_columns(block, 0, entries, 5, &to), 3);
    CHECK(to.rows == 3 && to.bytes == 305 && values[305] == 0xee);
    CHECK_EQ(hf_columns(block, 0, entries + 3, 2, &to), 0); /* no room for the next one, though there is for another */
    to = (struct hf_columns){.sequence_number = last, .crc = crc, .rows_max = 5};
    CHECK_EQ(hf_columns(block, 0, entries, 5, &to), 5);
    CHECK(to.rows == 5 && to.bytes == 0 && last[4] == 106);
    to = (struct hf_columns){.values = values, .offsets = offsets, .rows_max = 5, .bytes_max = UINT64_C(1) << 31};
    CHECK_EQ(hf_columns(block, 0, entries, 5, &to), HF_USAGE); /* 32-bit offsets could not tell */
    to = (struct hf_columns){.values = values, .rows_max = 5, .bytes_max = sizeof values};
    entries[3].length = 69; /* shorter than what its frames say */
    CHECK_EQ(hf_columns(block, 0, entries, 5, &to), HF_DAMAGED);
    to = (struct hf_columns){.crc = crc, .rows_max = 5};
    CHECK_EQ(hf_columns(block, 0, entries, 5, &to), HF_DAMAGED);
    entries[3].length = 71; /* and longer */
    to = (struct hf_columns){.crc = crc, .rows_max = 5};
    CHECK_EQ(hf_columns(block, 0, entries, 5, &to), HF_DAMAGED);
}

/* ---- garbage ---- */

static uint64_t dice_state = 88172645463325252u;

static uint64_t dice(uint64_t sides)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 7;
    dice_state ^= dice_state << 17;
    return dice_state % sides;
}

/* Values that sit on the edges of what readers check, or anywhere. */
static uint64_t wild(uint64_t near)
{
    switch (dice(6)) {
    case 0:
        return near + 32 * (dice(9) - 4);
    case 1:
        return (near / 32 + 1) << 32 | (UINT32_MAX - dice(64));
    case 2:
        return (near / 32 + 1) << 32 | dice(2200);
    case 3:
        return UINT64_MAX - dice(64);
    case 4:
        return near ^ UINT64_C(1) << dice(64);
    default:
        return dice_state;
    }
}

static void spoil(struct hf_source *s)
{
    uint64_t position = s->position - 32 * dice(KIT_RING / 32);
    uint8_t *word = kit_ring(s) + (position & (KIT_RING - 1)) + 8 * dice(4);
    struct hf_stream_header *header = kit_header(s);
    uint64_t value = wild(position);
    switch (dice(8)) {
    case 0:
        header->trail = value;
        break;
    case 1:
        header->tail = value;
        break;
    case 2:
        header->marks[dice(HF_MARKS)].position = value;
        break;
    case 3:
        header->marks[dice(HF_MARKS)].sqn = value;
        break;
    case 4:
        header->state = value;
        break;
    case 5:
        header->sri_count = (uint32_t)value;
        break;
    default:
        memcpy(word, &value, sizeof value);
    }
}

/* The numbers of a message of `fragments` are forged to begin with `first`. The end that the ring has then. */
static int64_t end_with(uint64_t first, uint16_t fragments, uint64_t *next)
{
    struct hf_source *s = source(0);
    struct hf_stream_header *header = kit_header(s);
    uint64_t tail, length = (uint64_t)(fragments - 1) * header->fragment_bytes + 1;
    CHECK(kit_send(s, length, 0) >= 0);
    for (uint64_t at = header->start_position, n = 0; at != s->position; n++) {
        struct hf_frame *frame = kit_frame(s, at);
        frame->sequence_number = first + n;
        at += hf_frame_span((uint32_t)frame->commit);
    }
    header->start_sqn = first;
    memset(header->marks, 0, sizeof header->marks);
    int64_t status = hf_stream_end(hf_source_map(s), &tail, next);
    hf_source_destroy(s);
    return status;
}

static void numbers_that_end_or_would_begin_anew_are_damage(void)
{
    uint64_t next;
    CHECK_EQ(end_with(UINT64_MAX - 4, 3, &next), HF_OK);
    CHECK_EQ(next, UINT64_MAX - 1);
    CHECK_EQ(end_with(UINT64_MAX - 3, 3, &next), HF_DAMAGED); /* no message has the number that would come next */
    CHECK_EQ(end_with(UINT64_MAX - 2, 3, &next), HF_DAMAGED);
    CHECK_EQ(end_with(UINT64_MAX - 1, 3, &next), HF_DAMAGED);
    CHECK_EQ(end_with(UINT64_MAX, 1, &next), HF_DAMAGED);
}

static int is_answer(int64_t status)
{
    return status == HF_LAPPED || status == HF_DAMAGED || status == HF_CLOSED || status == HF_AHEAD ||
           status == HF_SMALL || status == HF_AGAIN || status == HF_EVICTED;
}

static void every_reader_survives_any_bytes(struct hf_source *s, struct hf_reader *r)
{
    static uint8_t buf[KIT_RING];
    static struct hf_entry entries[256];
    static struct hf_sri_store stores[HF_STORES_MAX];
    uint64_t a, b;
    struct hf_sri_groups groups;
    uint64_t capacity = dice(sizeof buf);
    int64_t n = hf_reader_copy(r, buf, capacity, &a, &b);
    CHECK(n <= (int64_t)capacity && (n >= 0 || is_answer(n)));
    CHECK(n <= 0 || (hf_scan(buf, (uint64_t)n, entries, 256, &a) >= 1 && a <= (uint64_t)n));
    n = hf_reader_batch(r, entries, 256, dice(KIT_RING), &a, &b);
    CHECK(n >= 0 || is_answer(n));
    for (int64_t i = 0; i < n; i++) {
        CHECK(entries[i].length <= KIT_RING / 4 && entries[i].offset <= KIT_RING);
        spoil(s); /* between the check and the use */
        int64_t got = hf_gather(hf_reader_base(r), KIT_RING, &entries[i], buf);
        CHECK(got == entries[i].length || got == HF_DAMAGED);
    }
    if (n > 0) {
        struct hf_columns to = {.values = buf, .rows_max = n, .bytes_max = dice(sizeof buf)};
        int64_t taken = hf_columns(hf_reader_base(r), KIT_RING, entries, n, &to);
        CHECK(taken <= n && (taken >= 0 || taken == HF_DAMAGED) && to.bytes <= to.bytes_max);
    }
    hf_reader_unpin(r, a, UINT64_MAX);
    for (int i = 0; i < 4; i++) {
        n = hf_reader_receive(r, entries, buf, dice(4096));
        CHECK(n == 0 || n == 1 || is_answer(n));
    }
    n = hf_stream_valid(hf_source_map(s), &a);
    CHECK(n == HF_OK || is_answer(n));
    n = hf_stream_end(hf_source_map(s), &a, &b);
    CHECK(n == HF_OK || is_answer(n));
    n = hf_stream_sri(hf_source_map(s), stores, &a, &groups);
    CHECK((n >= 0 && n <= HF_STORES_MAX) || is_answer(n));
    n = hf_reader_seek(r, dice(2) ? wild(s->next_sqn) : s->next_sqn - dice(1000));
    CHECK(n == HF_OK || is_answer(n));
    n = hf_reader_seek_oldest(r);
    CHECK(n == HF_OK || is_answer(n));
    memcpy(buf, kit_ring(s), sizeof buf); /* the raw ring, taken for a block */
    a = 0;
    for (uint64_t at = 32 * dice(KIT_RING / 32); at < sizeof buf; at += a) {
        n = hf_scan(buf + at, sizeof buf - at, entries, 256, &a);
        CHECK(a <= sizeof buf - at && (n >= 0 || n == HF_DAMAGED));
        if (a == 0) {
            break;
        }
    }
}

static void readers_survive_any_bytes_in_the_ring_and_its_header(void)
{
    struct hf_map *board = kit_board();
    kit_line(board, 0);
    for (int round = 0; round < 300; round++) {
        struct hf_source *s = source(START - 32 * dice(100000));
        struct hf_reader *r = kit_reader(s, board, 0);
        for (uint64_t i = dice(600); i > 0; i--) {
            kit_send(s, dice(8) ? dice(300) : dice(4000), i);
            hf_source_release(s, UINT64_MAX);
        }
        for (int k = 0; k < 30; k++) {
            spoil(s);
            every_reader_survives_any_bytes(s, r);
        }
        hf_reader_close(r);
        hf_source_abandon(s);
        hf_source_destroy(s);
    }
    hf_map_detach(board);
}

static void messages_that_were_delivered_before_are_marked_and_counted(void)
{
    struct hf_entry entries[4] = {
        {.sequence_number = 6}, {.sequence_number = 7}, {.sequence_number = 8}, {.sequence_number = 9}};
    entries[3].flags = HF_ENTRY_RETRANSMIT; /* was read back from a log */
    CHECK_EQ(hf_mark_retransmitted(entries, 4, 0), 1);
    CHECK_EQ(hf_mark_retransmitted(entries, 4, 8), 3);
    CHECK_EQ(entries[1].flags, HF_ENTRY_RETRANSMIT);
    CHECK_EQ(entries[2].flags, 0);
    CHECK_EQ(hf_mark_retransmitted(entries, 0, UINT64_MAX), 0);
    CHECK_EQ(hf_mark_retransmitted(entries, 4, UINT64_MAX), 4);
}

int main(void)
{
    RUN(a_scan_steps_over_control_frames_and_gaps_and_leaves_a_part_of_a_message);
    RUN(a_scan_refuses_nonsense_but_delivers_what_lies_before_it);
    RUN(columns_have_each_message_once_over_any_number_of_calls);
    RUN(columns_end_before_what_has_no_room_and_leave_out_what_is_not_wanted);
    RUN(numbers_that_end_or_would_begin_anew_are_damage);
    RUN(readers_survive_any_bytes_in_the_ring_and_its_header);
    RUN(messages_that_were_delivered_before_are_marked_and_counted);
    return 0;
}
