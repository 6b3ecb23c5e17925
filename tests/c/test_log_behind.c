/* test_log_behind.c: what a reader that knows another store's table says of a log that has missed a BEGIN: what it has lost, and what it
 * may get yet (docs/design.md 13). */
#include "log/head.h"
#include "log/segment.h"
#include "log_kit.h"

static int root;
static uint8_t buf[KIT_BUFFER];

static void remove_between(int dir, uint64_t from, uint64_t below) /* segments whose first number is in [from, below) */
{
    struct hf_seg *segs = NULL;
    int64_t n = hf_seg_list(dir, kit_uuid, &segs);
    for (int64_t i = 0; i < n; i++) {
        if (segs[i].first_sqn >= from && segs[i].first_sqn < below) {
            char name[HF_SEGMENT_NAME];
            hf_seg_name(name, segs[i].base);
            CHECK(unlinkat(dir, name, 0) == 0);
        }
    }
    hf_seg_list_free(segs, n);
}

static int64_t ask(struct hf_logr *r, uint64_t sqn, uint64_t *next)
{
    return hf_logr_read(r, sqn, buf, sizeof buf, next);
}

/* [first, behind) as a tool copies them from a peer that has `incarnation`. */
static void fill(int dir, uint64_t incarnation, uint64_t first, uint64_t behind)
{
    struct hf_fill *made;
    uint64_t next, bytes = kit_block(buf, first, behind - first, 64, incarnation);
    CHECK_EQ(hf_fill_create(dir, kit_uuid, incarnation, first, behind, &made), HF_OK);
    CHECK(hf_fill_append(made, buf, bytes, &next) > 0);
    CHECK_EQ(hf_fill_commit(made), HF_OK);
}

/* This log lost 100..; a tool filled it from a peer that had begun 2 at 45 already (repair.py: "by the newest table").
 * The fill is of incarnation 2, valid by the table that is told: it must be given. */
static void a_fill_of_the_newer_incarnation_is_read(void)
{
    int dir = kit_subdirectory(root, "fill");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    const struct hf_begin table[] = {{1, 0}, {2, 45}};
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 400, 64, 1);
    hf_log_close(log);
    struct hf_seg *segs = NULL;
    int64_t n = hf_seg_list(dir, kit_uuid, &segs);
    uint64_t first = segs[1].first_sqn, behind = segs[2].first_sqn;
    CHECK(n > 3);
    hf_seg_list_free(segs, n);
    remove_between(dir, first, behind);
    fill(dir, 2, first, behind);
    CHECK_EQ(hf_fill_prune(dir), 0);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, table, 2), HF_OK);
    int64_t got = ask(r, first, &next);
    CHECK(got > 0);
    CHECK_EQ(kit_verify(buf, got, first, 2), behind);
    hf_logr_close(r);
    close(dir);
}

/* The first segments are gone and the told table is full: from the log's own BEGIN (40) on nobody knows what is void. */
static void what_is_forgotten_is_not_stepped_over(void)
{
    int dir = kit_subdirectory(root, "forgot");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    struct hf_begin table[HF_INCARNATIONS];
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 40, 64, 1);
    CHECK_EQ(hf_log_begin(log, 2, 40), HF_OK);
    kit_append(log, 40, 260, 64, 1);
    hf_log_close(log);
    for (uint64_t i = 0; i < HF_INCARNATIONS; i++) {
        table[i] = (struct hf_begin){4 + i, 500};
    }
    remove_between(dir, 0, 41);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, table, HF_INCARNATIONS), HF_OK);
    CHECK_EQ(ask(r, 200, &next), HF_AGAIN);
    int64_t ten = ask(r, 10, &next);
    uint64_t to = next;
    int64_t fifty = ask(r, 50, &next);
    CHECK(ten != HF_AGAIN);
    CHECK(to <= 40); /* 40.. is what nobody knows */
    CHECK_EQ(fifty, HF_AGAIN);
    hf_logr_close(r);
    close(dir);
}

/* Retention let go what BEGIN(2, 45) has made void meanwhile: this log never had those numbers of 2. */
static void what_was_let_go_and_is_void_is_not_gone(void)
{
    int dir = kit_subdirectory(root, "let go");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 40000));
    const struct hf_begin table[] = {{1, 0}, {2, 45}};
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 1000, 64, 1);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, table, 2), HF_OK);
    int64_t ten = ask(r, 10, &next);
    uint64_t to = next;
    int64_t fifty = ask(r, 50, &next);
    ask(r, 990, &next);
    CHECK_EQ(ten, HF_GONE);
    CHECK(to <= 45);
    CHECK_EQ(fifty, HF_AGAIN);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static const struct hf_begin three[] = {{1, 0}, {2, 45}, {3, 200}};

/* A log that has missed the last of `three`, and whose files from 45 to 200 or so are gone. */
static int without_its_middle(const char *name)
{
    int dir = kit_subdirectory(root, name);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 60, 64, 1);
    CHECK_EQ(hf_log_begin(log, 2, 45), HF_OK);
    kit_append(log, 45, 655, 64, 1);
    hf_log_close(log);
    remove_between(dir, 45, 200);
    return dir;
}

/* Void by the log's own table, and behind it only what a missed BEGIN has made void: the step over stops at that BEGIN. */
static void a_step_over_a_gap_stops_at_a_missed_begin(void)
{
    int dir = without_its_middle("step");
    uint64_t next;
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, three, 3), HF_OK);
    CHECK_EQ(ask(r, 200, &next), HF_AGAIN);
    int64_t got = ask(r, 50, &next);
    CHECK(got == HF_DAMAGED || got == HF_GONE);
    CHECK(next <= 200); /* 200.. are 3's: it may get them yet */
    hf_logr_close(r);
    close(dir);
}

/* The head's table is damaged, and so is the only segment of the newest incarnation: the numbers were here. */
static void damage_stays_damage_where_the_table_is_damaged_too(void)
{
    int dir = kit_subdirectory(root, "both");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    const struct hf_begin table[] = {{1, 0}, {2, 45}};
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 45, 64, 1);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(hf_log_begin(log, 2, 45), HF_OK);
    kit_append(log, 45, 20, 64, 2);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_seg *segs = NULL;
    int64_t n = hf_seg_list(dir, kit_uuid, &segs);
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, segs[n - 1].base);
    CHECK_EQ(segs[n - 1].incarnation, 2);
    hf_seg_list_free(segs, n);
    int seg = openat(dir, name, O_RDWR);
    memset(buf, 0x55, 4096);
    CHECK_EQ(pwrite(seg, buf, 4096, 0), 4096);
    close(seg);
    int head = openat(dir, "head", O_RDWR);
    for (int slot = 1; slot < 3; slot++) {
        CHECK_EQ(pwrite(head, "garbage!", 8, 4096 * slot), 8);
    }
    close(head);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, table, 2), HF_OK);
    CHECK_EQ(ask(r, 50, &next), HF_DAMAGED);
    hf_log_close(log);
    hf_logr_close(r);
    close(dir);
}

/* Away while 2 began at 45 and 3 at 80; 45..79 were repaired from a peer. What it took of 3 was never stable, and the
 * source began 4 at 80 while this store was away. 45..79 are valid, stable and here. */
static void a_fill_before_what_is_void_is_read(const char *name, int recorded)
{
    int dir = kit_subdirectory(root, name);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    const struct hf_begin own[] = {{1, 0}, {2, 45}, {3, 80}}, told[] = {{1, 0}, {2, 45}, {3, 80}, {4, 80}};
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, recorded ? 45 : 61, 64, 1);
    CHECK_EQ(hf_log_begins(log, own, 3), HF_OK);
    if (recorded && hf_log_hole(log, 45, 79) == HF_ROLL) {
        CHECK_EQ(hf_log_roll(log), HF_OK);
        CHECK_EQ(hf_log_hole(log, 45, 79), HF_OK);
    }
    kit_append(log, 80, 40, 64, 3);
    hf_log_close(log);
    fill(dir, 2, 45, 80);
    struct hf_logr *r = kit_reader(dir);
    CHECK(ask(r, 50, &next) > 0);
    CHECK_EQ(hf_logr_learn(r, told, 4), HF_OK);
    CHECK(ask(r, 50, &next) > 0);
    hf_logr_close(r);
    close(dir);
}

static void a_fill_of_a_recorded_hole_is_read(void)
{
    a_fill_before_what_is_void_is_read("recorded", 1);
}

static void a_fill_of_the_hole_that_an_incarnation_leaves_is_read(void)
{
    a_fill_before_what_is_void_is_read("left", 0);
}

/* As a step over a gap, and what was missing was filled. */
static void a_fill_of_missing_segments_is_read(void)
{
    int dir = without_its_middle("step2");
    uint64_t next;
    fill(dir, 2, 45, 200);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_learn(r, three, 3), HF_OK);
    CHECK(ask(r, 50, &next) > 0);
    hf_logr_close(r);
    close(dir);
}

int main(void)
{
    root = kit_directory();
    RUN(a_fill_of_the_newer_incarnation_is_read);
    RUN(what_is_forgotten_is_not_stepped_over);
    RUN(what_was_let_go_and_is_void_is_not_gone);
    RUN(a_step_over_a_gap_stops_at_a_missed_begin);
    RUN(damage_stays_damage_where_the_table_is_damaged_too);
    RUN(a_fill_of_a_recorded_hole_is_read);
    RUN(a_fill_of_the_hole_that_an_incarnation_leaves_is_read);
    RUN(a_fill_of_missing_segments_is_read);
    return 0;
}
