/* Fills: what a log lacks comes from the file beside it, in order, verified, and only as long as it is valid. */
#include "fill_kit.h"
#include "log/segment.h"

static void segments_and_fill_are_one_sequence(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    struct hf_logr *r = kit_reader(dir); /* opened before there is a fill */
    uint64_t next;
    CHECK_EQ(read_at(r, FIRST, &next), HF_DAMAGED);
    CHECK_EQ(next, NEXT);
    CHECK_EQ(findings(dir), 1);
    fill(dir, 1, FIRST, NEXT);
    kit_expect(r, 0, END, 0);
    for (uint64_t sqn = 0; sqn < END; sqn++) { /* also when somebody comes in the middle */
        CHECK(read_at(r, sqn, &next) > 0);
    }
    hf_logr_close(r);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.fills, 1);
    CHECK_EQ(sum.filled, NEXT - FIRST);
    CHECK_EQ(sum.messages, END - (NEXT - FIRST));
    done(dir, "a");
}

static void a_small_buffer_reads_a_fill_message_by_message(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    fill(dir, 1, FIRST, NEXT);
    struct hf_logr *r = kit_reader(dir);
    uint8_t buf[200];
    uint64_t next;
    CHECK_EQ(hf_logr_read(r, FIRST, buf, 64, &next), HF_SMALL);
    CHECK_EQ(next, 160);
    for (uint64_t sqn = 0; sqn < END; sqn++) {
        CHECK_EQ(hf_logr_read(r, sqn, buf, sizeof buf, &next), 160);
        CHECK_EQ(kit_verify(buf, 160, sqn, 0), next);
        CHECK_EQ(next, sqn + 1);
    }
    hf_logr_close(r);
    done(dir, "a");
}

static void messages_of_several_fragments_fit_the_seam(void)
{
    static uint8_t block[KIT_BUFFER];
    int dir = kit_subdirectory(root, "a");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, SEGMENT << 1, SEGMENT << 1, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    for (uint64_t sqn = 0; sqn < 60; sqn += 3) {
        CHECK_EQ(kit_put(log, block, kit_message(block, sqn, 3, 70, 0)), HF_OK);
    }
    hf_log_close(log);
    flip(dir, seg0, frame_offset(dir, seg0, 31) + 50, 1);
    struct hf_fill *f = begin_fill(dir, 1, 30, 34); /* 33..35 does not fit below 34 */
    uint64_t next = 0, bytes = kit_message(block, 30, 3, 70, 0), two = bytes + kit_message(block + bytes, 33, 3, 70, 0);
    CHECK_EQ(hf_fill_append(f, block, two, &next), bytes);
    CHECK_EQ(next, 33);
    CHECK_EQ(hf_fill_commit(f), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 60, 0);
    CHECK(hf_logr_read(r, 31, block, sizeof block, &next) > 0); /* starts at the message's first fragment */
    CHECK_EQ(((struct hf_frame *)(void *)block)->sequence_number, 30);
    hf_logr_close(r);
    CHECK_EQ(findings(dir), 0);
    done(dir, "a");
}

static void no_fill_is_passed_over(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    fill(dir, 1, 45, 48);
    fill(dir, 1, 50, 52);
    struct hf_logr *r = kit_reader(dir);
    static const uint64_t stops[][2] = {{40, 45}, {48, 50}, {52, 60}};
    uint64_t next;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(read_at(r, stops[i][0], &next), HF_DAMAGED);
        CHECK_EQ(next, stops[i][1]);
    }
    kit_expect(r, 45, 48, 0);
    kit_expect(r, 50, 52, 0);
    kit_expect(r, NEXT, END, 0);
    struct hf_finding found[4];
    struct hf_check_summary sum;
    CHECK_EQ(hf_log_check(dir, found, 4, &sum), 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(found[i].first_sqn, stops[i][0]);
        CHECK_EQ(found[i].next_sqn, stops[i][1]);
    }
    CHECK_EQ(sum.filled, 5);
    hf_logr_close(r);
    done(dir, "a");
}

static void lost_records_holes_and_lost_files_are_filled(void)
{
    static uint8_t block[KIT_BUFFER];
    int dir = kit_subdirectory(root, "a");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 30, PAYLOAD, 0);
    CHECK_EQ(hf_log_lost(log, 30, 34), HF_OK);
    CHECK_EQ(hf_log_hole(log, 35, 39), HF_OK);
    kit_append(log, 40, 10, PAYLOAD, 0);
    CHECK_EQ(hf_log_begin(log, 2, 70), HF_OK); /* 50..69: a hole */
    CHECK_EQ(kit_put(log, block, kit_block(block, 70, 20, PAYLOAD, 0)), HF_OK);
    CHECK_EQ(hf_log_begin(log, 3, 90), HF_OK);
    CHECK_EQ(kit_put(log, block, kit_block(block, 90, 10, PAYLOAD, 0)), HF_OK);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next, third = 30 * 160 + 2 * 64 + 10 * 160;
    CHECK_EQ(read_at(r, 33, &next), HF_LOST);
    CHECK_EQ(read_at(r, 37, &next), HF_HOLE);
    CHECK_EQ(next, 40);
    CHECK_EQ(read_at(r, 55, &next), HF_GONE);
    third = (third + 63) & ~UINT64_C(31);
    int removed = 0;
    for (uint64_t base = third; base < third + 4096 && !removed; base += 32) { /* the file of 70..89 */
        char name[32];
        snprintf(name, sizeof name, "seg-%016llx", (unsigned long long)base);
        removed = unlinkat(dir, name, 0) == 0;
    }
    CHECK(removed);
    CHECK(read_at(r, 75, &next) < 0);
    CHECK_EQ(findings(dir), 1);
    fill(dir, 3, 30, 40);
    fill(dir, 3, 50, 90);
    kit_expect(r, 0, 100, 0);
    CHECK_EQ(findings(dir), 0);
    hf_logr_close(r);
    hf_log_close(log);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0)); /* and a store that starts keeps it so */
    r = kit_reader(dir);
    kit_expect(r, 0, 100, 0);
    hf_logr_close(r);
    hf_log_close(log);
    done(dir, "a");
}

static void a_segment_without_header_and_a_lost_tail_are_filled(void)
{
    int dir = build("a", END);
    flip(dir, seg0, 40, 1);
    flip(dir, seg0, HF_SEGMENT_COPY + 40, 1);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next;
    CHECK_EQ(read_at(r, 0, &next), HF_DAMAGED);
    CHECK_EQ(next, END);
    fill(dir, 1, 0, END);
    kit_expect(r, 0, END, 0);
    CHECK_EQ(findings(dir), 0);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(kit_info(log).appended_sqn, END);
    kit_append(log, END, 20, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_expect(r, 0, END + 20, 0);
    hf_logr_close(r);
    hf_log_close(log);
    done(dir, "a");
}

/* A BEGIN that is later than the fill takes its numbers over, whoever knows it: the head, a segment, or another log. */
static void a_later_begin_voids_a_fill(void)
{
    uint64_t next;
    for (int how = 0; how < 3; how++) {
        int dir = build("a", END);
        damage(dir, FIRST, NEXT);
        fill(dir, 1, FIRST, NEXT);
        struct hf_logr *r = kit_reader(dir);
        kit_expect(r, FIRST, NEXT, 0);
        struct hf_begin told = {2, 50};
        if (how == 2) {
            CHECK_EQ(hf_logr_learn(r, &told, 1), HF_OK);
        } else {
            struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
            CHECK_EQ(hf_log_begin(log, 2, 50), HF_OK);
            kit_append(log, 50, 5, PAYLOAD, 9);
            CHECK_EQ(hf_log_sync(log), HF_OK);
            hf_log_close(log);
        }
        if (how == 1) { /* the head's table is unreadable: the segments' headers say it */
            for (uint64_t slot = 1; slot < 3; slot++) {
                flip(dir, "head", HF_HEADER_PAGE * slot + offsetof(struct hf_begin_table, crc), 1);
            }
            hf_logr_close(r);
            r = kit_reader(dir);
        }
        kit_expect(r, FIRST, 50, 0);
        static uint8_t buf[KIT_BUFFER];
        int64_t n = hf_logr_read(r, 50, buf, sizeof buf, &next);
        if (how == 2) {
            CHECK(n < 0);
        } else {
            CHECK_EQ(kit_verify(buf, n, 50, 9), 55);
        }
        hf_logr_close(r);
        done(dir, "a");
    }
}

/* Segments of a later incarnation may hold numbers from before it began: they void nothing there. */
static void a_later_segment_that_begins_below_its_begin_does_not_void_a_fill(void)
{
    static uint8_t block[KIT_BUFFER];
    int dir = kit_subdirectory(root, "a");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT << 1, SEGMENT << 1, 0));
    CHECK_EQ(hf_log_begin(log, 3, 80), HF_OK);
    CHECK_EQ(kit_put(log, block, kit_block(block, 0, END, PAYLOAD, 0)), HF_OK);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_log_close(log);
    damage(dir, FIRST, NEXT);
    fill(dir, 1, FIRST, NEXT);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, END, 0);
    CHECK_EQ(hf_logr_incarnation(r), 3);
    kit_expect(r, FIRST, NEXT, 0);
    CHECK_EQ(hf_logr_incarnation(r), 1);
    hf_logr_close(r);
    CHECK_EQ(findings(dir), 0);
    done(dir, "a");
}

static void pruning_removes_what_is_void_in_part(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    fill(dir, 1, FIRST, NEXT);
    fill(dir, 1, 10, 20);
    CHECK_EQ(hf_fill_prune(dir), 0);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(hf_log_begin(log, 2, 50), HF_OK);
    CHECK_EQ(hf_fill_prune(dir), 1);
    CHECK_EQ(kit_names(dir, "fill-"), 1);
    hf_log_close(log);
    done(dir, "a");
}

static void damage_to_what_is_void_costs_nothing(void)
{
    int dir = build("a", END);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(hf_log_begin(log, 2, 50), HF_OK);
    hf_log_close(log);
    damage(dir, 70, 80);
    struct hf_finding found[4];
    struct hf_check_summary sum;
    CHECK_EQ(hf_log_check(dir, found, 4, &sum), 1);
    CHECK_EQ(found[0].kind, HF_FOUND_DAMAGE);
    CHECK_EQ(found[0].next_sqn, found[0].first_sqn);
    done(dir, "a");
}

static void retention_and_pruning_remove_fills(void)
{
    int dir = kit_subdirectory(root, "a");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 3 * SEGMENT));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, END, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    fill(dir, 1, 3, 9);
    fill(dir, 1, 30, 1000);
    CHECK_EQ(kit_names(dir, "fill-"), 2);
    for (uint64_t sqn = END; kit_info(log).oldest_sqn < 30; sqn += 10) {
        kit_append(log, sqn, 10, PAYLOAD, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
    }
    CHECK_EQ(kit_names(dir, "fill-"), 1);
    fill(dir, 1, 3, 9);
    fill(dir, 1, 2000, 2010);
    char name[64];
    snprintf(name, sizeof name, "fill-%016x-%016x", 2000, 2010);
    flip(dir, name, 20, 1);
    CHECK_EQ(findings(dir), 1);
    CHECK_EQ(hf_fill_prune(dir), 2);
    CHECK_EQ(kit_names(dir, "fill-"), 1);
    CHECK_EQ(findings(dir), 0);
    hf_log_close(log);
    done(dir, "a");
}

static void one_of_another_source_or_range_is_not_read(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    static uint8_t block[KIT_BUFFER];
    uint8_t other[16] = "another source";
    struct hf_fill *f = NULL;
    uint64_t next = 0;
    CHECK_EQ(hf_fill_create(dir, other, 1, FIRST, NEXT, &f), HF_OK);
    CHECK(hf_fill_append(f, block, kit_block(block, FIRST, NEXT - FIRST, PAYLOAD, 5), &next) > 0);
    CHECK_EQ(hf_fill_commit(f), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(read_at(r, FIRST, &next), HF_DAMAGED);
    fill(dir, 1, FIRST + 1, NEXT);
    char from[64], to[64];
    snprintf(from, sizeof from, "fill-%016x-%016x", FIRST + 1, NEXT);
    snprintf(to, sizeof to, "fill-%016x-%016x", FIRST, NEXT);
    CHECK(renameat(dir, from, dir, to) == 0);
    CHECK_EQ(read_at(r, FIRST, &next), HF_DAMAGED);
    CHECK_EQ(read_at(r, FIRST + 1, &next), HF_DAMAGED);
    hf_logr_close(r);
    done(dir, "a");
}

static void what_does_not_follow_is_refused(void)
{
    int dir = build("a", END);
    static uint8_t block[KIT_BUFFER];
    uint64_t next = 0;
    struct hf_fill *f = NULL;
    CHECK_EQ(hf_fill_create(dir, kit_uuid, 1, 5, 5, &f), HF_USAGE);
    f = begin_fill(dir, 1, FIRST, NEXT);
    CHECK_EQ(hf_fill_append(f, block, kit_block(block, FIRST + 1, 3, PAYLOAD, 0), &next), HF_DAMAGED);
    CHECK_EQ(hf_fill_append(f, block, kit_block(block, FIRST, 3, PAYLOAD, 0) - 32, &next), HF_DAMAGED);
    CHECK_EQ(hf_fill_append(f, block, kit_message(block, FIRST, 3, 20, 0) - 64, &next), HF_DAMAGED);
    kit_block(block, FIRST, 1, PAYLOAD, 0);
    ((struct hf_frame *)(void *)block)->flags |= HF_FRAME_CONTROL;
    CHECK_EQ(hf_fill_append(f, block, 160, &next), HF_DAMAGED);
    CHECK_EQ(hf_fill_commit(f), HF_USAGE); /* nothing was taken */
    CHECK_EQ(kit_names(dir, "fill-"), 0);
    f = begin_fill(dir, 1, FIRST, NEXT);
    CHECK(hf_fill_append(f, block, kit_block(block, FIRST, 30, PAYLOAD, 0), &next) > 0);
    CHECK_EQ(next, NEXT);
    CHECK_EQ(hf_fill_append(f, block, kit_block(block, NEXT, 1, PAYLOAD, 0), &next), 0);
    hf_fill_abort(f);
    CHECK_EQ(kit_names(dir, "fill-"), 0);
    done(dir, "a");
}

static void a_fill_takes_no_more_than_its_most_bytes_but_one_message_always(void)
{
    int dir = build("a", END);
    static uint8_t block[KIT_BUFFER];
    uint64_t next = 0, total = 0, sqn = 0;
    struct hf_fill *f = begin_fill(dir, 1, 0, UINT64_MAX);
    for (int64_t took = 1; took > 0; sqn = next) {
        took = hf_fill_append(f, block, kit_message(block, sqn, 50, 20000, 0), &next);
        CHECK(took >= 0);
        total += (uint64_t)took;
    }
    CHECK(total <= HF_FILL_MAX && total > HF_FILL_MAX - KIT_BUFFER);
    hf_fill_abort(f);
    done(dir, "a");
}

static void a_replaced_fill_is_read_as_it_is_now(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    fill(dir, 1, FIRST, NEXT);
    char name[64];
    snprintf(name, sizeof name, "fill-%016x-%016x", FIRST, NEXT);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next;
    kit_expect(r, 0, END, 0);
    flip(dir, name, 4096 + 160 * 5 + 40, 1);
    CHECK_EQ(read_at(r, FIRST + 5, &next), HF_DAMAGED);
    CHECK_EQ(next, FIRST + 6);
    struct hf_finding found[4];
    struct hf_check_summary sum;
    CHECK_EQ(hf_log_check(dir, found, 4, &sum), 2); /* both files are damaged there */
    CHECK_EQ(found[0].kind, HF_FOUND_FILL);
    CHECK_EQ(found[0].first_sqn, FIRST + 5);
    CHECK_EQ(found[0].next_sqn, FIRST + 6);
    fill(dir, 1, FIRST + 5, FIRST + 6);
    kit_expect(r, 0, END, 0);
    CHECK_EQ(findings(dir), 0);
    fill(dir, 1, FIRST, NEXT);
    kit_expect(r, 0, END, 0);
    hf_logr_close(r);
    done(dir, "a");
}

int main(void)
{
    root = kit_directory();
    RUN(segments_and_fill_are_one_sequence);
    RUN(a_small_buffer_reads_a_fill_message_by_message);
    RUN(messages_of_several_fragments_fit_the_seam);
    RUN(no_fill_is_passed_over);
    RUN(lost_records_holes_and_lost_files_are_filled);
    RUN(a_segment_without_header_and_a_lost_tail_are_filled);
    RUN(a_later_begin_voids_a_fill);
    RUN(a_later_segment_that_begins_below_its_begin_does_not_void_a_fill);
    RUN(pruning_removes_what_is_void_in_part);
    RUN(damage_to_what_is_void_costs_nothing);
    RUN(retention_and_pruning_remove_fills);
    RUN(one_of_another_source_or_range_is_not_read);
    RUN(what_does_not_follow_is_refused);
    RUN(a_fill_takes_no_more_than_its_most_bytes_but_one_message_always);
    RUN(a_replaced_fill_is_read_as_it_is_now);
    return 0;
}
