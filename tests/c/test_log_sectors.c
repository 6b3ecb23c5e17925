/* test_log_sectors.c: bad sectors. Pages of chosen files cannot be read; or the n-th read of all fails. Nothing that was
 * stable is cut or taken for a torn tail, and nobody meets a signal: no file of a log is read through a map. */
#include <sys/stat.h>
#include <sys/syscall.h>

#include "log_kit.h"
#include "log_private.h"

enum { PAGE = 4096, PAYLOAD = 1000, ROOM = 1056, BAD = 8 };

/* ---- the disk ---- */

static struct {
    ino_t ino;
    uint64_t from, to;
} bad[BAD];
static int bad_count;
static int nth, error_of_nth, struck; /* the n-th read of all */

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    struct stat st;
    uint64_t from = (uint64_t)offset, to = from + bytes;
    if (nth != 0 && --nth == 0) {
        struck = 1;
        errno = error_of_nth;
        return -1;
    }
    CHECK(syscall(SYS_fstat, fd, &st) == 0);
    for (int i = 0; i < bad_count; i++) {
        if (bad[i].ino == st.st_ino && bad[i].from < to && bad[i].to > from) {
            if (bad[i].from <= from) {
                errno = EIO;
                return -1;
            }
            to = bad[i].from; /* what lies before it, as the kernel does */
        }
    }
    return syscall(SYS_pread64, fd, data, to - from, offset);
}

static void spoil(int dir, const char *name, uint64_t from, uint64_t to)
{
    struct stat st;
    CHECK(fstatat(dir, name, &st, 0) == 0 && bad_count < BAD);
    bad[bad_count].ino = st.st_ino;
    bad[bad_count].from = from;
    bad[bad_count++].to = to;
}

static void all_reads_well(void)
{
    bad_count = 0;
    nth = 0;
}

/* ---- the log ---- */

static int parent;

static int fresh(void)
{
    return kit_subdirectory(parent, "log");
}

static void finish(int dir)
{
    close(dir);
    kit_empty(parent, "log");
}

static struct hf_log_config config(void)
{
    return kit_config(HF_LEVEL_DISK, 65536, 65536, 0);
}

static void grow(struct hf_log *log, uint64_t from, uint64_t to)
{
    kit_append(log, from, to - from, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
}

static void save_head(int dir, uint8_t page[PAGE])
{
    int fd = openat(dir, "head", O_RDONLY);
    CHECK(fd >= 0 && syscall(SYS_pread64, fd, page, PAGE, 0) == PAGE);
    close(fd);
}

/* As a power cut leaves it: as old as its last write-back. */
static void put_head(int dir, const uint8_t page[PAGE])
{
    int fd = openat(dir, "head", O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, page, PAGE, 0) == PAGE);
    close(fd);
}

/* The first segment's offset of the frame of number `sqn`, all of one group being behind one SYNC frame. */
static uint64_t place(int dir, uint64_t sqn)
{
    static uint8_t file[65536];
    int fd = openat(dir, "seg-0000000000000000", O_RDONLY);
    CHECK(fd >= 0 && syscall(SYS_pread64, fd, file, sizeof file, 0) > 0);
    close(fd);
    for (uint64_t at = hf_seg_header_bytes(sizeof file); at < sizeof file; at += 32) {
        struct hf_frame f;
        memcpy(&f, file + at, sizeof f);
        if (f.sequence_number == sqn && (uint32_t)f.commit == 32 + PAYLOAD) {
            return at;
        }
    }
    CHECK(0);
    return 0;
}

/* Reads everything that can be read below `to`; numbers that cannot are counted. */
static uint64_t read_around(int dir, uint64_t to)
{
    static uint8_t buf[KIT_BUFFER];
    struct hf_logr *r = kit_reader(dir);
    uint64_t next = 0, missing = 0;
    for (uint64_t at = 0; at < to; at = next) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        CHECK(n > 0 || n == HF_DAMAGED || n == HF_GONE);
        CHECK(next > at);
        if (n > 0) {
            CHECK_EQ(kit_verify(buf, n, at, 0), next);
        } else {
            missing += (next < to ? next : to) - at;
        }
    }
    hf_logr_close(r);
    return missing;
}

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

/* 0..9 are known to be stable; 10 .. end - 1 were, and the head on disk is from before. */
static int a_stale_log(uint64_t end)
{
    uint8_t head[PAGE];
    int dir = fresh();
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 10);
    save_head(dir, head);
    grow(log, 10, end);
    hf_log_close(log);
    put_head(dir, head);
    return dir;
}

static void an_end_that_the_disk_does_not_give_is_unknown(void)
{
    int dir = a_stale_log(20);
    uint64_t at = place(dir, 15) / PAGE * PAGE;
    spoil(dir, "seg-0000000000000000", at, 65536);
    for (int life = 0; life < 3; life++) { /* also after it was opened once: then it looks whole */
        struct hf_log *log = kit_open(dir, config());
        struct hf_log_info info = kit_info(log);
        CHECK_EQ(info.cut_bytes, 0);
        CHECK_EQ(info.unsure, 1);
        CHECK(info.unsure_first > 10 && info.unsure_first <= 15);
        CHECK(info.unsure_next >= 20);
        CHECK_EQ(info.next_sqn, info.unsure_first);
        hf_log_close(log);
        CHECK_EQ(kit_names(dir, "unsure"), 1);
    }
    struct hf_log *log = kit_open(dir, config());
    uint64_t first = kit_info(log).unsure_first;
    grow(log, first, 25); /* from another store, say */
    CHECK_EQ(hf_log_sure(log), HF_OK);
    CHECK_EQ(kit_info(log).unsure, 0);
    CHECK_EQ(hf_log_sure(log), HF_OK);
    hf_log_close(log);
    CHECK_EQ(kit_names(dir, "unsure"), 0);
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
    log = kit_open(dir, config());
    CHECK_EQ(kit_info(log).unsure, 1);
    CHECK_EQ(kit_info(log).segments, segments);
    CHECK_EQ(kit_info(log).unsure_first, first);
    CHECK(kit_info(log).unsure_next >= 90);
    hf_log_close(log);
    CHECK_EQ(read_around(dir, first), 0);
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

/* ---- each read in turn ---- */

static void each_read_of_an_open_may_fail_and_nothing_stable_goes(void)
{
    for (int n = 1;; n++) {
        int dir = a_stale_log(20);
        struct hf_log *log = NULL;
        struct hf_log_config c = config();
        struck = 0;
        error_of_nth = EIO;
        nth = n;
        int64_t status = hf_log_open(dir, &c, &log);
        nth = 0;
        CHECK(status == HF_OK || status == HF_DAMAGED || status == HF_GONE || status <= HF_ERRNO);
        if (status == HF_OK) {
            CHECK_EQ(kit_info(log).cut_bytes, 0);
            CHECK(kit_info(log).next_sqn >= 20 || kit_info(log).unsure);
            CHECK(kit_info(log).next_sqn >= 20 || kit_info(log).unsure_next >= 20);
            hf_log_close(log);
        }
        log = kit_open(dir, config()); /* once more, all is well */
        CHECK(kit_info(log).next_sqn >= 20 || kit_info(log).unsure_next >= 20);
        uint64_t next = kit_info(log).next_sqn;
        CHECK_EQ(read_around(dir, next), 0);
        hf_log_close(log);
        finish(dir);
        if (!struck) {
            CHECK(n > 4);
            return;
        }
    }
}

static void each_read_of_an_open_without_memory_says_so(void)
{
    for (int n = 1;; n++) {
        int dir = a_stale_log(20);
        struct hf_log *log = NULL;
        struct hf_log_config c = config();
        struck = 0;
        error_of_nth = ENOMEM;
        nth = n;
        int64_t status = hf_log_open(dir, &c, &log);
        nth = 0;
        CHECK_EQ(status, struck ? HF_ERRNO - ENOMEM : HF_OK);
        if (status == HF_OK) {
            hf_log_close(log);
        }
        log = kit_open(dir, config());
        CHECK_EQ(kit_info(log).next_sqn, 20);
        CHECK_EQ(kit_info(log).unsure, 0);
        hf_log_close(log);
        CHECK_EQ(read_around(dir, 20), 0);
        finish(dir);
        if (!struck) {
            return;
        }
    }
}

static void each_read_of_a_reader_and_a_check_may_fail(void)
{
    static uint8_t buf[KIT_BUFFER];
    int dir = fresh(), reads = 0;
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 90);
    hf_log_close(log);
    for (struck = 1; struck; reads++) {
        struct hf_logr *r = NULL;
        struct hf_check_summary sum;
        struck = 0;
        error_of_nth = EIO;
        nth = reads + 1;
        int64_t status = hf_logr_open(dir, &r);
        uint64_t next = 0;
        for (uint64_t at = 0; status >= 0 && at < 90; at = next) {
            status = hf_logr_read(r, at, buf, sizeof buf, &next);
            CHECK(status > 0 || status == HF_DAMAGED || status == HF_ERRNO - EIO);
            CHECK(status < 0 || kit_verify(buf, status, at, 0) == next);
        }
        int met = struck;
        nth = 0;
        if (r != NULL) { /* what failed once is read the next time */
            kit_expect(r, 0, 90, 0);
            hf_logr_close(r);
        }
        struck = 0;
        nth = reads + 1;
        status = kit_findings(dir, &sum);
        CHECK(status >= 0 || status == HF_ERRNO - EIO);
        CHECK(struck || status == 0);
        nth = 0;
        struck |= met;
    }
    CHECK(reads > 8);
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
    RUN(a_head_that_the_disk_does_not_give_costs_no_message);
    RUN(a_reader_of_a_head_that_goes_bad_says_so);
    RUN(each_read_of_an_open_may_fail_and_nothing_stable_goes);
    RUN(each_read_of_an_open_without_memory_says_so);
    RUN(each_read_of_a_reader_and_a_check_may_fail);
    return 0;
}
