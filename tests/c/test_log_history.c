/* BEGIN tables: whose it is that holds, what a store fills in before its newest BEGIN, and what a reader goes by that knows
 * another store's table (docs/design.md 13). */
#include "log/head.h"
#include "log/segment.h"
#include "log_kit.h"

static int root;

static int fresh(const char *name)
{
    return kit_subdirectory(root, name);
}

/* Away while incarnation 2 began at 45 and 3 at 80: its own 45.. are void, and 45..79 come from a peer's log. */
static void what_came_before_the_newest_begin_is_filled_in_later(uint32_t level, const char *name)
{
    int dir = fresh(name);
    struct hf_log *log = kit_open(dir, kit_config(level, 16384, 16384, 0));
    const struct hf_begin table[] = {{1, 0}, {2, 45}, {3, 80}};
    uint8_t buf[512];
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 61, 64, 1);
    CHECK_EQ(hf_log_begins(log, table, 3), HF_OK);
    CHECK_EQ(kit_info(log).appended_sqn, 45);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_read(r, 50, buf, sizeof buf, &next), HF_AGAIN);
    kit_append(log, 45, 10, 64, 2);
    for (int again = 0; again < 2; again++) { /* a kill in the middle of the fill */
        CHECK_EQ(hf_log_sync(log), HF_OK);
        hf_log_close(log);
        log = kit_open(dir, kit_config(level, 16384, 16384, 0));
        CHECK_EQ(kit_info(log).incarnation, 3);
        CHECK_EQ(kit_info(log).begin_sqn, 80);
        CHECK_EQ(kit_info(log).appended_sqn, 55);
        kit_expect(r, 45, 55, 2);
    }
    kit_append(log, 55, 25, 64, 2);
    kit_append(log, 80, 10, 64, 2);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_expect(r, 0, 45, 1);
    kit_expect(r, 45, 90, 2);
    CHECK_EQ(hf_logr_read(r, 90, buf, sizeof buf, &next), HF_AGAIN);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.messages, 90);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void a_hole_before_the_begin_is_filled(void)
{
    what_came_before_the_newest_begin_is_filled_in_later(HF_LEVEL_MEMORY, "fill-memory");
    what_came_before_the_newest_begin_is_filled_in_later(HF_LEVEL_DISK, "fill-disk");
}

/* BEGIN(2, 45) reached this store alone, and nothing was sent under it; at the others 3 began at 51, with 45..50 still valid. */
static void a_table_replaces_the_one_before_as_a_whole(void)
{
    int dir = fresh("replace");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    const struct hf_begin table[] = {{1, 0}, {3, 51}}, older[] = {{1, 0}, {2, 45}};
    const struct hf_begin same[] = {{1, 0}, {3, 60}}, wrong[] = {{4, 0}, {4, 45}};
    struct hf_begin many[HF_INCARNATIONS + 1], found[HF_INCARNATIONS];
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 49, 64, 1);
    CHECK_EQ(hf_log_begin(log, 2, 45), HF_OK);
    CHECK_EQ(kit_info(log).next_sqn, 45);
    CHECK_EQ(hf_log_begins(log, table, 2), HF_OK);
    CHECK_EQ(kit_info(log).next_sqn, 49); /* valid again */
    CHECK_EQ(kit_info(log).begin_sqn, 51);
    CHECK_EQ(hf_log_begins(log, table, 2), HF_OK); /* again: nothing */
    CHECK_EQ(hf_log_begins(log, older, 2), HF_USAGE);
    CHECK_EQ(hf_log_begins(log, wrong, 2), HF_USAGE);
    CHECK_EQ(hf_log_begins(log, table, 0), HF_USAGE);
    for (uint64_t i = 0; i <= HF_INCARNATIONS; i++) {
        many[i] = (struct hf_begin){10 + i, 100};
    }
    CHECK_EQ(hf_log_begins(log, many, HF_INCARNATIONS + 1), HF_USAGE);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 49, 1);
    CHECK_EQ(hf_logr_begins(r, found), 2);
    CHECK(memcmp(found, table, sizeof table) == 0);
    CHECK_EQ(hf_log_begins(log, same, 2), HF_OK); /* the same incarnation elsewhere: nothing was sent under this one */
    uint64_t incarnation, start;
    CHECK_EQ(hf_logr_begin(r, &incarnation, &start), 1); /* without a read in between */
    CHECK_EQ(incarnation, 3);
    CHECK_EQ(start, 60);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void a_reader_goes_by_what_other_logs_know(void)
{
    int dir = fresh("learn");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    const struct hf_begin table[] = {{1, 0}, {2, 45}, {3, 80}};
    static uint8_t buf[KIT_BUFFER];
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 61, 64, 1);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 40, 61, 1);
    CHECK_EQ(hf_logr_learn(r, table, 3), HF_OK);
    CHECK(hf_logr_read(r, 40, buf, sizeof buf, &next) > 0);
    CHECK_EQ(next, 45);
    CHECK_EQ(hf_logr_read(r, 45, buf, sizeof buf, &next), HF_AGAIN); /* it may get them yet */
    CHECK_EQ(hf_logr_read(r, 60, buf, sizeof buf, &next), HF_AGAIN);
    CHECK_EQ(hf_logr_learn(r, table, HF_INCARNATIONS + 1), HF_USAGE);
    CHECK_EQ(hf_logr_learn(r, table, 0), HF_OK);
    kit_expect(r, 40, 61, 1);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

/* Another BEGIN has made void all that it has from some number on: that is no gap with something behind it. */
static void segments_that_are_void_follow_nothing(void)
{
    enum { LAST = 300 };
    int dir = fresh("void segments");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    const struct hf_begin table[] = {{1, 0}, {2, 45}};
    static uint8_t buf[KIT_BUFFER];
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, LAST, 64, 1);
    CHECK(kit_info(log).segments > 2);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, table, 2), HF_OK);
    kit_expect(r, 0, 45, 1);
    for (uint64_t sqn = 45; sqn < LAST; sqn++) {
        CHECK_EQ(hf_logr_read(r, sqn, buf, sizeof buf, &next), HF_AGAIN);
    }
    hf_logr_close(r);
    hf_log_close(log);
    char first[32];
    hf_seg_name(first, 0);
    CHECK(unlinkat(dir, first, 0) == 0); /* its first file is gone: what else it lacks, it has not lost */
    r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, table, 2), HF_OK);
    CHECK_EQ(hf_logr_read(r, 10, buf, sizeof buf, &next), HF_DAMAGED);
    CHECK_EQ(next, 45);
    CHECK_EQ(hf_logr_read(r, 45, buf, sizeof buf, &next), HF_AGAIN);
    CHECK_EQ(hf_logr_learn(r, table, 0), HF_OK);
    CHECK_EQ(hf_logr_read(r, 10, buf, sizeof buf, &next), HF_DAMAGED);
    CHECK(next > 45);
    hf_logr_close(r);
    close(dir);
}

/* The table is full: what began between this log's last BEGIN and its first entry is forgotten, and may have made void what the log
 * has under that one. */
static void a_log_that_is_older_than_all_that_is_remembered_gives_what_is_older_than_its_last_begin(void)
{
    enum { LAST = 300 };
    int dir = fresh("forgotten");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    struct hf_begin table[HF_INCARNATIONS];
    static uint8_t buf[KIT_BUFFER];
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 40, 64, 1);
    CHECK_EQ(hf_log_begin(log, 2, 40), HF_OK);
    kit_append(log, 40, LAST - 40, 64, 1);
    CHECK(kit_info(log).segments > 2);
    for (uint64_t i = 0; i < HF_INCARNATIONS; i++) {
        table[i] = (struct hf_begin){4 + i, 500};
    }
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, table, HF_INCARNATIONS), HF_OK);
    kit_expect(r, 0, 40, 1);
    for (uint64_t sqn = 40; sqn < LAST; sqn++) { /* in each of its segments: one that follows makes it no gap */
        CHECK_EQ(hf_logr_read(r, sqn, buf, sizeof buf, &next), HF_AGAIN);
    }
    CHECK_EQ(hf_logr_learn(r, table, HF_INCARNATIONS - 1), HF_OK); /* one that has room has forgotten nothing */
    kit_expect(r, 0, LAST, 1);
    table[0].incarnation = 3; /* nothing lies between */
    CHECK_EQ(hf_logr_learn(r, table, HF_INCARNATIONS), HF_OK);
    kit_expect(r, 0, LAST, 1);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

/* A new store of an old source: its log begins with the oldest number that its peers have, below the BEGIN that it was told. */
static void an_empty_log_begins_below_the_begin_and_says_so(void)
{
    int dir = fresh("empty");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    const struct hf_begin table[] = {{1, 0}, {2, 300}};
    uint8_t buf[512];
    uint64_t oldest, end, next;
    CHECK_EQ(hf_log_begins(log, table, 2), HF_OK);
    kit_append(log, 100, 5, 64, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(kit_info(log).oldest_sqn, 100);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_range(r, &oldest, &end), HF_OK);
    CHECK_EQ(oldest, 100);
    CHECK_EQ(end, 105);
    CHECK_EQ(hf_logr_read(r, 50, buf, sizeof buf, &next), HF_GONE);
    CHECK_EQ(next, 100);
    kit_expect(r, 100, 105, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

/* Somebody wrote the table, and its sum, but not we. What stands in the segments' headers holds. */
static void a_table_out_of_order_is_none(void)
{
    int dir = fresh("order");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 10, 20, 1);
    CHECK_EQ(hf_log_begin(log, 2, 7), HF_OK);
    kit_append(log, 7, 5, 20, 2);
    hf_log_close(log);
    const struct hf_begin wrong[2] = {{UINT64_C(1) << 40, 0}, {2, 7}};
    struct hf_begin_table page;
    int head = openat(dir, "head", O_RDWR);
    for (uint64_t generation = 8; generation < 10; generation++) {
        hf_head_begins_page(generation, wrong, 2, &page);
        CHECK_EQ(pwrite(head, &page, sizeof page, (off_t)(HF_HEADER_PAGE * (1 + generation % 2))), sizeof page);
    }
    close(head);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    CHECK_EQ(kit_info(log).incarnation, 2);
    kit_append(log, 12, 3, 20, 2);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 7, 1);
    kit_expect(r, 7, 15, 2);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

int main(void)
{
    root = kit_directory();
    RUN(a_hole_before_the_begin_is_filled);
    RUN(a_table_replaces_the_one_before_as_a_whole);
    RUN(a_reader_goes_by_what_other_logs_know);
    RUN(segments_that_are_void_follow_nothing);
    RUN(a_log_that_is_older_than_all_that_is_remembered_gives_what_is_older_than_its_last_begin);
    RUN(an_empty_log_begins_below_the_begin_and_says_so);
    RUN(a_table_out_of_order_is_none);
    return 0;
}
