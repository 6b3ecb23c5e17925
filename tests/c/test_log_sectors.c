/* test_log_sectors.c: bad sectors. Pages of chosen files cannot be read. Nothing that was stable is cut or taken for a torn
 * tail, and nobody meets a signal: no file of a log is read through a map. */
#include "base/failpoint.h"
#include "log/writer.h"
#include "sector_kit.h"

/* ---- below what is known to be stable ---- */

static void a_bad_page_costs_its_messages_and_no_others(void)
{
    int dir = fresh();
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 30);
    hf_log_close(log);
    uint64_t at = place(dir, 10) / PAGE * PAGE;
    spoil(dir, "seg-0000000000000000", at, at + PAGE);
    uint64_t missing = read_around(dir, 30);
    CHECK(missing >= 4 && missing <= 5);
    struct hf_check_summary sum;
    struct hf_finding found[4];
    CHECK_EQ(hf_log_check(dir, found, 4, &sum), 1);
    CHECK_EQ(found[0].kind, HF_FOUND_UNREADABLE);
    CHECK_EQ(found[0].next_sqn - found[0].first_sqn, missing);
    CHECK(found[0].first_sqn <= 10 && found[0].next_sqn > 10);
    log = kit_open(dir, config());
    struct hf_log_info info = kit_info(log);
    CHECK_EQ(info.next_sqn, 30);
    CHECK_EQ(info.damaged, 1);
    CHECK_EQ(info.cut_bytes, 0);
    CHECK_EQ(info.unsure, 0);
    grow(log, 30, 40);
    hf_log_close(log);
    CHECK_EQ(read_around(dir, 40), missing);
    all_reads_well();
    CHECK_EQ(read_around(dir, 40), 0);
    finish(dir);
}

static void a_file_that_became_shorter_is_damage_to_who_has_it_open(void)
{
    static uint8_t buf[KIT_BUFFER];
    int dir = fresh();
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 30);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next, at = place(dir, 10);
    CHECK(hf_logr_read(r, 0, buf, 2 * ROOM, &next) > 0);
    int fd = openat(dir, "seg-0000000000000000", O_RDWR);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)at) == 0);
    close(fd);
    CHECK(hf_logr_read(r, next, buf, sizeof buf, &next) > 0);
    CHECK_EQ(next, 10);
    CHECK_EQ(hf_logr_read(r, 10, buf, sizeof buf, &next), HF_DAMAGED);
    CHECK_EQ(next, 30);
    hf_logr_close(r);
    hf_log_close(log);
    finish(dir);
}

/* ---- the end ---- */

static void an_end_that_the_disk_does_not_give_is_unknown(void)
{
    int dir = a_stale_log(20);
    uint64_t at = place(dir, 15) / PAGE * PAGE;
    spoil(dir, "seg-0000000000000000", at, 65536);
    uint64_t told = end_as_told(dir, HF_DAMAGED);
    CHECK(told > 10 && told <= 15);
    for (int life = 0; life < 3; life++) { /* also after it was opened once: then it looks whole */
        struct hf_log *log = kit_open(dir, config());
        struct hf_log_info info = kit_info(log);
        CHECK_EQ(info.cut_bytes, 0);
        CHECK_EQ(info.unsure, 1);
        CHECK(info.unsure_first > 10 && info.unsure_first <= 15);
        CHECK(info.unsure_next >= 20);
        CHECK_EQ(info.next_sqn, info.unsure_first);
        CHECK_EQ(end_as_told(dir, HF_DAMAGED), told); /* to readers of a log that is kept, too */
        hf_log_close(log);
        CHECK_EQ(kit_names(dir, "unsure"), 1);
        CHECK_EQ(end_as_told(dir, HF_DAMAGED), told);
    }
    struct hf_log *log = kit_open(dir, config());
    uint64_t first = kit_info(log).unsure_first;
    grow(log, first, 25); /* from another store, say */
    CHECK_EQ(hf_log_sure(log), HF_OK);
    CHECK_EQ(kit_info(log).unsure, 0);
    CHECK_EQ(hf_log_sure(log), HF_OK);
    CHECK_EQ(end_as_told(dir, HF_OK), 25);
    hf_log_close(log);
    CHECK_EQ(kit_names(dir, "unsure"), 0);
    CHECK_EQ(end_as_told(dir, HF_OK), 25);
    CHECK_EQ(read_around(dir, 25), 0);
    log = kit_open(dir, config());
    CHECK_EQ(kit_info(log).unsure, 0);
    CHECK_EQ(kit_info(log).next_sqn, 25);
    hf_log_close(log);
    all_reads_well();
    CHECK_EQ(read_around(dir, 25), 0);
    finish(dir);
}

static void what_lies_behind_a_bad_page_at_the_end_is_served(void)
{
    int dir = a_stale_log(40);
    uint64_t at = place(dir, 12) / PAGE * PAGE;
    spoil(dir, "seg-0000000000000000", at + PAGE, at + 2 * PAGE);
    CHECK_EQ(end_as_told(dir, HF_DAMAGED), 40);
    struct hf_log *log = kit_open(dir, config());
    struct hf_log_info info = kit_info(log);
    CHECK_EQ(info.unsure, 1);
    CHECK_EQ(info.next_sqn, 40);
    CHECK_EQ(info.cut_bytes, 0);
    CHECK(info.unsure_first > 10 && info.unsure_next < 30);
    hf_log_close(log);
    CHECK_EQ(read_around(dir, 40), info.unsure_next - info.unsure_first);
    all_reads_well();
    CHECK_EQ(read_around(dir, 40), 0);
    finish(dir);
}

static void a_torn_tail_with_nothing_unreadable_is_still_cut(void)
{
    int dir = a_stale_log(20);
    uint64_t at = place(dir, 15);
    int fd = openat(dir, "seg-0000000000000000", O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "torn", 4, (off_t)at + 40) == 4);
    close(fd);
    CHECK_EQ(end_as_told(dir, HF_OK), 15);
    struct hf_log *log = kit_open(dir, config());
    CHECK_EQ(kit_info(log).unsure, 0);
    CHECK_EQ(kit_info(log).next_sqn, 15);
    CHECK(kit_info(log).cut_bytes > 0);
    hf_log_close(log);
    finish(dir);
}

static void a_last_segment_without_a_readable_header_stays(void)
{
    uint8_t head[PAGE];
    int dir = fresh();
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 10);
    save_head(dir, head);
    grow(log, 10, 90);
    uint64_t segments = kit_info(log).segments;
    CHECK(segments > 1);
    struct hf_seg *last = &log->segs[log->count - 1];
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, last->base);
    uint64_t first = last->first_sqn;
    hf_log_close(log);
    put_head(dir, head);
    spoil(dir, name, 0, PAGE);
    CHECK_EQ(end_as_told(dir, HF_DAMAGED), first);
    log = kit_open(dir, config());
    CHECK_EQ(kit_info(log).unsure, 1);
    CHECK_EQ(kit_info(log).segments, segments);
    CHECK_EQ(kit_info(log).unsure_first, first);
    CHECK(kit_info(log).unsure_next >= 90);
    hf_log_close(log);
    CHECK_EQ(read_around(dir, first), 0);
    finish(dir);
}

static void what_a_failed_sync_left_is_copied_around_a_bad_page(void)
{
    int dir = a_stale_log(20);
    uint64_t at = place(dir, 15) / PAGE * PAGE;
    spoil(dir, "seg-0000000000000000", at, at + PAGE);
    hf_log_distrust(dir);
    struct hf_log *log = kit_open(dir, config()); /* into a new file, which has zeros there */
    struct hf_log_info info = kit_info(log);
    CHECK_EQ(info.unsure, 1);
    CHECK_EQ(info.next_sqn, 20);
    CHECK_EQ(info.cut_bytes, 0);
    hf_log_close(log);
    all_reads_well();
    CHECK_EQ(read_around(dir, 20), info.unsure_next - info.unsure_first);
    log = kit_open(dir, config());
    CHECK_EQ(kit_info(log).unsure, 1);
    CHECK_EQ(kit_info(log).unsure_next, info.unsure_next);
    CHECK_EQ(kit_info(log).next_sqn, 20);
    hf_log_close(log);
    finish(dir);
}

static void a_head_that_the_disk_does_not_give_costs_no_message(void)
{
    int dir = fresh();
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 30);
    hf_log_close(log);
    struct hf_logr *r = NULL;
    struct hf_check_summary sum;
    spoil(dir, "head", 0, PAGE);
    CHECK_EQ(hf_logr_open(dir, &r), HF_ERRNO - EIO);
    CHECK_EQ(kit_findings(dir, &sum), HF_ERRNO - EIO);
    log = kit_open(dir, config()); /* it gets a new one, in another place */
    CHECK_EQ(kit_info(log).unsure, 1);
    CHECK_EQ(kit_info(log).next_sqn, 30);
    hf_log_close(log);
    CHECK_EQ(read_around(dir, 30), 0);
    all_reads_well();
    finish(dir);
}

static const char *bug = "";

static void arm(const char *point)
{
    char spec[128];
    snprintf(spec, sizeof spec, "%s;%s", bug, point);
    hf_failpoint_arm(spec);
}

static void open_and_die(void *argument)
{
    hf_log_close(kit_open(*(int *)argument, config()));
    _exit(0);
}

static void lose_head(int dir, int how)
{
    uint8_t byte;
    int fd = openat(dir, "head", O_RDWR);
    if (how == 0) { /* a flipped bit of its magic */
        CHECK_EQ(pread(fd, &byte, 1, 0), 1);
        byte ^= 4;
        CHECK_EQ(pwrite(fd, &byte, 1, 0), 1);
    } else if (how == 1) {
        CHECK_EQ(ftruncate(fd, 100), 0);
    } else {
        spoil(dir, "head", 0, PAGE);
    }
    close(fd);
}

/* The new head has no BEGINs: it must not say that nothing has begun, nor that nothing was stable. */
static void a_head_that_is_lost_stays_lost_until_that_is_recorded(void)
{
    static const char *const points[] = {"head.renamed=kill", "head.synced=kill", "open.cut=kill", NULL};
    for (int run = 0; run < 12; run++) {
        const char *point = points[run % 4];
        struct hf_begin begins[HF_INCARNATIONS];
        uint64_t next = 0;
        int dir = fresh();
        struct hf_log *log = kit_open(dir, config());
        CHECK_EQ(hf_log_begin(log, 4, 0), HF_OK);
        grow(log, 0, 30);
        CHECK_EQ(hf_log_begin(log, 5, 10), HF_OK); /* durable, and in no segment yet */
        hf_log_close(log);
        lose_head(dir, run / 4);
        int fd = openat(dir, "seg-0000000000000000", O_RDWR);
        CHECK_EQ(pwrite(fd, "\xEE", 1, (off_t)place(dir, 25) + 40), 1); /* damage, or torn: only the old head knew */
        close(fd);
        if (point != NULL) {
            arm(point);
            check_killed(check_fork(open_and_die, &dir), SIGKILL);
            arm("");
            struct hf_logr *r = kit_reader(dir);
            CHECK_EQ(hf_logr_begins(r, begins), HF_DAMAGED);
            hf_logr_close(r);
        }
        log = kit_open(dir, config());
        CHECK_EQ(kit_info(log).unsure, 1);
        CHECK_EQ(kit_info(log).cut_bytes, 0);
        struct hf_logr *r = kit_reader(dir);
        CHECK_EQ(hf_logr_end(r, &next), HF_DAMAGED);
        hf_logr_close(r);
        hf_log_close(log);
        all_reads_well();
        finish(dir);
    }
}

struct planted {
    const char *bug;
    void (*test)(void);
};

static void plant(void *argument)
{
    const struct planted *p = argument;
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    parent = kit_subdirectory(parent, p->bug);
    bug = p->bug;
    arm("");
    p->test();
}

static void the_planted_bugs_are_found(void)
{
    static struct planted bugs[] = {
        {"head.create_whole=mutant", a_head_that_is_lost_stays_lost_until_that_is_recorded},
        {"log.unread_is_torn=mutant", an_end_that_the_disk_does_not_give_is_unknown},
    };
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        int status = check_wait(check_fork(plant, &bugs[i]));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

static void a_reader_of_a_head_that_goes_bad_says_so(void)
{
    uint64_t oldest, next;
    uint8_t buf[256];
    int dir = fresh();
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 3);
    struct hf_logr *r = kit_reader(dir);
    spoil(dir, "head", 0, PAGE);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_ERRNO - EIO);
    CHECK_EQ(hf_logr_read(r, 0, buf, sizeof buf, &next), HF_ERRNO - EIO);
    struct hf_begin table[HF_INCARNATIONS];
    CHECK_EQ(hf_logr_begins(r, table), HF_ERRNO - EIO);
    all_reads_well();
    hf_logr_close(r);
    hf_log_close(log);
    finish(dir);
}

int main(void)
{
    parent = kit_directory();
    RUN(a_bad_page_costs_its_messages_and_no_others);
    RUN(a_file_that_became_shorter_is_damage_to_who_has_it_open);
    RUN(an_end_that_the_disk_does_not_give_is_unknown);
    RUN(what_lies_behind_a_bad_page_at_the_end_is_served);
    RUN(a_torn_tail_with_nothing_unreadable_is_still_cut);
    RUN(a_last_segment_without_a_readable_header_stays);
    RUN(what_a_failed_sync_left_is_copied_around_a_bad_page);
    RUN(a_head_that_the_disk_does_not_give_costs_no_message);
    RUN(a_head_that_is_lost_stays_lost_until_that_is_recorded);
    RUN(the_planted_bugs_are_found);
    RUN(a_reader_of_a_head_that_goes_bad_says_so);
    return 0;
}
