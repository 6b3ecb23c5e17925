/* A head that is older than its log, as a power cut, a snapshot or a volume that is attached again leaves it: readers find all
 * that is behind it, and nothing that is not. A head that somebody keeps is believed. */
#include "fill_kit.h"
#include "log/segment.h"

#include <signal.h>

static const uint64_t SMALL = 200; /* payload: some 75 messages a segment */

/* ---- heads ---- */

struct old {
    uint64_t end, end_check, next_sqn; /* as they lie in a head */
};

static struct old head_now(int dir)
{
    struct old o;
    int fd = openat(dir, "head", O_RDONLY);
    CHECK_EQ(pread(fd, &o, sizeof o, offsetof(struct hf_head, end)), sizeof o);
    close(fd);
    return o;
}

static void put_head(int dir, const void *bytes, uint64_t size, uint64_t at)
{
    int fd = openat(dir, "head", O_WRONLY);
    CHECK_EQ(pwrite(fd, bytes, size, (off_t)at), (int64_t)size);
    close(fd);
}

static void set_back(int dir, const struct old *o)
{
    put_head(dir, o, sizeof *o, offsetof(struct hf_head, end));
}

/* The log's files as they are now, under other inodes: nobody keeps the copy. */
static int copied(int dir, const char *name)
{
    int to = kit_subdirectory(root, name);
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY));
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        static uint8_t bytes[KIT_BUFFER];
        if (e->d_name[0] == '.') {
            continue;
        }
        int from = openat(dir, e->d_name, O_RDONLY), out = openat(to, e->d_name, O_WRONLY | O_CREAT, 0600);
        ssize_t n = read(from, bytes, sizeof bytes);
        CHECK(n >= 0 && n < (ssize_t)sizeof bytes);
        CHECK_EQ(write(out, bytes, (size_t)n), n);
        close(from);
        close(out);
    }
    closedir(d);
    return to;
}

static void drop(int dir, const char *name)
{
    close(dir);
    kit_empty(root, name);
}

static struct hf_log_config small(uint64_t retain)
{
    return kit_config(HF_LEVEL_DISK, SEGMENT << 1, SEGMENT << 1, retain);
}

/* A group commit for each message. */
static void stable(struct hf_log *log, uint64_t from, uint64_t to, uint64_t salt)
{
    for (uint64_t sqn = from; sqn < to; sqn++) {
        kit_append(log, sqn, 1, (uint32_t)SMALL, salt);
        CHECK_EQ(hf_log_sync(log), HF_OK);
    }
}

static uint64_t end_of(int dir, int64_t expected)
{
    struct hf_logr *r = kit_reader(dir);
    uint64_t next = 0;
    CHECK_EQ(hf_logr_end(r, &next), expected);
    hf_logr_close(r);
    return next;
}

/* What a reader finds is what the store will find. */
static void agrees_with_open(int dir, uint64_t next)
{
    CHECK_EQ(end_of(dir, HF_OK), next);
    struct hf_log *log = kit_open(dir, small(0));
    CHECK_EQ(kit_info(log).next_sqn, next);
    hf_log_close(log);
    CHECK_EQ(end_of(dir, HF_OK), next);
}

/* A log with numbers [0, count), copied under this name with a head from when there were `known`. */
static int with_old_head(const char *name, uint64_t known, uint64_t count)
{
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small(0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    stable(log, 0, known, 0);
    const struct old o = head_now(dir);
    stable(log, known, count, 0);
    int copy = copied(dir, name);
    hf_log_close(log);
    drop(dir, "log");
    set_back(copy, &o);
    return copy;
}

/* ---- what is there is found ---- */

static void what_a_stale_head_does_not_know_is_found_in_later_segments_too(void)
{
    static uint8_t buf[KIT_BUFFER];
    for (uint64_t known = 0; known <= 200; known += 40) {
        int dir = with_old_head("copy", known, 200);
        struct hf_logr *r = kit_reader(dir);
        uint64_t oldest, next;
        CHECK(hf_logr_read(r, 199, buf, sizeof buf, &next) > 0); /* a read alone finds it */
        CHECK_EQ(next, 200);
        CHECK_EQ(hf_logr_read(r, 200, buf, sizeof buf, &next), HF_AGAIN);
        CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
        CHECK_EQ(oldest, 0);
        CHECK_EQ(next, 200);
        kit_expect(r, 0, 200, 0);
        hf_logr_close(r);
        struct hf_check_summary sum;
        CHECK_EQ(kit_findings(dir, &sum), 0);
        CHECK_EQ(sum.messages, 200);
        CHECK_EQ(sum.next_sqn, 200);
        agrees_with_open(dir, 200);
        drop(dir, "copy");
    }
}

/* Killed between the two stores of a publishing: the number is older than the position. */
static void a_number_older_than_its_position_is_counted_again(void)
{
    int dir = with_old_head("copy", 100, 200);
    struct old o = head_now(dir);
    o.next_sqn = 7;
    set_back(dir, &o);
    CHECK_EQ(end_of(dir, HF_OK), 200);
    o.next_sqn = UINT64_MAX / 2; /* and one that no log has reached is nobody's */
    set_back(dir, &o);
    CHECK_EQ(end_of(dir, HF_OK), 200);
    drop(dir, "copy");
}

static void who_walked_before_goes_on_from_there(void)
{
    int dir = with_old_head("copy", 30, 150);
    struct hf_logr *one = kit_reader(dir), *other = kit_reader(dir);
    struct hf_log_walked mark, again;
    uint64_t next;
    hf_logr_walked(one, &mark);
    CHECK_EQ(mark.end, 0);
    CHECK_EQ(hf_logr_end(one, &next), HF_OK);
    hf_logr_walked(one, &mark);
    CHECK_EQ(mark.sqn, 149);
    hf_logr_resume(other, &mark);
    CHECK_EQ(hf_logr_end(other, &next), HF_OK);
    CHECK_EQ(next, 150);
    hf_logr_walked(other, &again);
    CHECK_EQ(memcmp(&mark, &again, sizeof mark), 0);
    hf_logr_close(one);
    hf_logr_close(other);

    other = kit_reader(dir); /* a segment that is not there: from the beginning */
    mark.segment[3] ^= 1;
    hf_logr_resume(other, &mark);
    CHECK_EQ(hf_logr_end(other, &next), HF_OK);
    CHECK_EQ(next, 150);
    hf_logr_close(other);
    mark.segment[3] ^= 1;
    other = kit_reader(dir); /* a place where no message begins */
    mark.position -= HF_GRANULE;
    hf_logr_resume(other, &mark);
    CHECK_EQ(hf_logr_end(other, &next), HF_OK);
    CHECK_EQ(next, 150);
    hf_logr_close(other);
    drop(dir, "copy");
}

/* ---- and nothing that is not ---- */

static void zero(int dir, const char *name, uint64_t from, uint64_t bytes)
{
    static const uint8_t zeros[4096];
    int fd = openat(dir, name, O_WRONLY);
    CHECK_EQ(pwrite(fd, zeros, bytes, (off_t)from), (int64_t)bytes);
    close(fd);
}

static void a_torn_tail_ends_at_the_last_whole_message(void)
{
    int dir = with_old_head("copy", 5, 40);
    uint64_t last = frame_offset(dir, seg0, 39);
    zero(dir, seg0, last + 100, 64);
    agrees_with_open(dir, 39);
    drop(dir, "copy");

    dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small(0));
    static uint8_t block[KIT_BUFFER];
    const struct old o = head_now(dir);
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    stable(log, 0, 10, 0);
    CHECK_EQ(kit_put(log, block, kit_message(block, 10, 3, 100, 0)), HF_OK);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    int copy = copied(dir, "copy");
    hf_log_close(log);
    drop(dir, "log");
    set_back(copy, &o);
    CHECK_EQ(end_of(copy, HF_OK), 13);
    flip(copy, seg0, frame_offset(copy, seg0, 12) + 40, 1); /* its last fragment: the message is torn as a whole */
    agrees_with_open(copy, 10);
    drop(copy, "copy");
}

/* A SYNC frame further on vouches for what is damaged: it is not a tail. */
static void damage_below_what_was_synced_is_no_end(void)
{
    static uint8_t buf[KIT_BUFFER];
    int dir = with_old_head("copy", 5, 40);
    flip(dir, seg0, frame_offset(dir, seg0, 20) + 40, 1);
    CHECK_EQ(end_of(dir, HF_OK), 40);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next;
    kit_expect(r, 0, 20, 0);
    CHECK_EQ(hf_logr_read(r, 20, buf, sizeof buf, &next), HF_DAMAGED);
    CHECK_EQ(next, 21);
    kit_expect(r, 21, 40, 0);
    hf_logr_close(r);
    agrees_with_open(dir, 40);
    drop(dir, "copy");
}

/* What was there is damaged to the very end: how many numbers it had, nobody can say. */
static void an_end_that_is_damaged_is_unknown(void)
{
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small(0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    stable(log, 0, 40, 0);
    hf_log_close(log);
    int copy = copied(dir, "copy"); /* its head is not stale */
    zero(copy, seg0, frame_offset(copy, seg0, 30), 4096);
    CHECK_EQ(end_of(copy, HF_DAMAGED), 40);
    struct old o = head_now(copy);
    o.next_sqn = 25; /* and the number in it was not written any more */
    set_back(copy, &o);
    CHECK_EQ(end_of(copy, HF_DAMAGED), 30);
    drop(copy, "copy");

    copy = copied(dir, "copy");
    CHECK_EQ(unlinkat(copy, seg0, 0), 0); /* or a file is gone */
    CHECK_EQ(end_of(copy, HF_DAMAGED), 40);
    drop(copy, "copy");
    drop(dir, "log");
}

/* Behind the end lie whole frames of an earlier life of the file, with fitting numbers: of another uuid and position. */
static void a_recycled_file_gives_nothing_of_its_earlier_life(void)
{
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small((uint64_t)6 * SEGMENT));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    uint64_t sqn = 0;
    for (int rolls = 0; rolls < 40; sqn++) {
        uint64_t before = kit_info(log).end;
        stable(log, sqn, sqn + 1, 0);
        rolls += kit_info(log).end - before > 400;
        CHECK(hf_log_prepare(log) >= 0);
        if (sqn % 7 == 0) {
            const struct old o = head_now(dir);
            stable(log, sqn + 1, sqn + 3, 0);
            sqn += 2;
            CHECK(hf_log_prepare(log) >= 0);
            int copy = copied(dir, "copy");
            set_back(copy, &o);
            agrees_with_open(copy, sqn + 1);
            drop(copy, "copy");
            rolls++;
        }
    }
    CHECK(kit_info(log).oldest_sqn > 0);
    hf_log_close(log);
    drop(dir, "log");
}

static void a_segment_whose_header_did_not_arrive_is_none(void)
{
    static const uint8_t nothing[HF_HEADER_PAGE];
    int dir = with_old_head("copy", 30, 40);
    uint64_t base = head_now(dir).end;
    struct hf_log *log = kit_open(dir, small(0));
    base = kit_info(log).end;
    hf_log_close(log);
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, base);
    int fd = openat(dir, name, O_WRONLY | O_CREAT, 0600);
    CHECK_EQ(write(fd, nothing, sizeof nothing), sizeof nothing);
    close(fd);
    agrees_with_open(dir, 40);
    drop(dir, "copy");
}

/* ---- incarnations ---- */

/* A BEGIN syncs the head's table; its end is older again soon after. */
static void what_an_incarnation_made_void_is_not_the_end(void)
{
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small(0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    const struct old o = head_now(dir);
    stable(log, 0, 80, 0);
    CHECK_EQ(hf_log_begin(log, 2, 50), HF_OK);
    int copy = copied(dir, "copy");
    set_back(copy, &o);
    agrees_with_open(copy, 50);
    struct hf_logr *r = kit_reader(copy);
    kit_expect(r, 0, 50, 0);
    hf_logr_close(r);
    drop(copy, "copy");
    stable(log, 50, 60, 9);
    copy = copied(dir, "copy");
    set_back(copy, &o);
    agrees_with_open(copy, 60);
    r = kit_reader(copy);
    kit_expect(r, 50, 60, 9);
    hf_logr_close(r);
    drop(copy, "copy");
    hf_log_close(log);
    drop(dir, "log");
}

/* ---- whose head is believed ---- */

static void append_and_die(void *argument)
{
    const int *dir = argument;
    struct hf_log *log = kit_open(*dir, small(0));
    stable(log, 10, 20, 0);
    kit_append(log, 20, 1, (uint32_t)SMALL, 0);
    raise(SIGKILL);
}

static void while_a_store_has_it_open_its_head_is_the_end(void)
{
    static uint8_t buf[KIT_BUFFER];
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small(0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    stable(log, 0, 10, 0);
    struct hf_logr *r = kit_reader(dir);
    uint64_t oldest, next;
    kit_append(log, 10, 1, (uint32_t)SMALL, 0); /* not stable yet */
    CHECK_EQ(end_of(dir, HF_OK), 10);
    CHECK_EQ(hf_logr_read(r, 10, buf, sizeof buf, &next), HF_AGAIN);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    CHECK_EQ(next, 11);
    hf_log_close(log);
    hf_logr_close(r);
    drop(dir, "log");

    dir = kit_subdirectory(root, "log"); /* with the store dead, what it wrote is in the files, and an open takes it */
    log = kit_open(dir, small(0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    stable(log, 0, 10, 0);
    hf_log_close(log);
    r = kit_reader(dir);
    check_killed(check_fork(append_and_die, &dir), SIGKILL);
    CHECK_EQ(head_now(dir).next_sqn, 20);
    kit_expect(r, 0, 21, 0);
    agrees_with_open(dir, 21);
    hf_logr_close(r);
    drop(dir, "log");
}

static void a_head_that_was_replaced_is_kept_by_nobody(void)
{
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small(0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    const struct old o = head_now(dir);
    stable(log, 0, 30, 0);
    int copy = copied(dir, "copy");
    set_back(copy, &o);
    struct hf_logr *r = kit_reader(copy);
    struct hf_log *other = kit_open(dir, small(0)); /* keeps another file, which gets the name */
    CHECK_EQ(renameat(dir, "head", copy, "head"), 0);
    uint64_t next;
    CHECK_EQ(hf_logr_end(r, &next), HF_OK);
    CHECK_EQ(next, 30);
    hf_logr_close(r);
    hf_log_close(other);
    hf_log_close(log);
    drop(copy, "copy");
    drop(dir, "log");
}

static void a_log_that_is_removed_had_at_least_what_its_head_said(void)
{
    int dir = with_old_head("copy", 30, 40);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next;
    kit_empty(root, "copy");
    CHECK_EQ(hf_logr_end(r, &next), HF_DAMAGED);
    CHECK_EQ(next, 30);
    hf_logr_close(r);
    close(dir);
}

static void a_poisoned_log_ends_where_it_was_last_stable(void)
{
    int dir = with_old_head("copy", 30, 40);
    const uint64_t poisoned = 1;
    put_head(dir, &poisoned, sizeof poisoned, offsetof(struct hf_head, poisoned));
    CHECK_EQ(end_of(dir, HF_OK), 30);
    drop(dir, "copy");
}

static void a_memory_log_of_another_boot_is_unknown(void)
{
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, SEGMENT, SEGMENT, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 20, (uint32_t)SMALL, 0);
    hf_log_close(log);
    CHECK_EQ(end_of(dir, HF_OK), 20);
    put_head(dir, "another boot", 12, offsetof(struct hf_preamble, boot_id));
    CHECK_EQ(end_of(dir, HF_GONE), 20);
    drop(dir, "log");
}

/* The head is as it was when a process kept the log; now nobody does, and it is a lower bound like any other. */
static void a_head_is_believed_no_longer_than_its_lock_is_held(void)
{
    static uint8_t buf[KIT_BUFFER];
    uint64_t next;
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, small(0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    stable(log, 0, 40, 0);
    const struct old o = head_now(dir);
    struct hf_logr *asks = kit_reader(dir), *waits = kit_reader(dir);
    CHECK_EQ(hf_logr_end(asks, &next), HF_OK);
    CHECK_EQ(next, 40);
    CHECK_EQ(hf_logr_read(waits, 40, buf, sizeof buf, &next), HF_AGAIN);
    stable(log, 40, 45, 0);
    hf_log_close(log);
    set_back(dir, &o);
    CHECK_EQ(hf_logr_end(asks, &next), HF_OK);
    CHECK_EQ(next, 45);
    kit_expect(waits, 40, 45, 0);
    hf_logr_close(asks);
    hf_logr_close(waits);
    drop(dir, "log");
}

int main(void)
{
    root = kit_directory();
    RUN(what_a_stale_head_does_not_know_is_found_in_later_segments_too);
    RUN(a_number_older_than_its_position_is_counted_again);
    RUN(who_walked_before_goes_on_from_there);
    RUN(a_torn_tail_ends_at_the_last_whole_message);
    RUN(damage_below_what_was_synced_is_no_end);
    RUN(an_end_that_is_damaged_is_unknown);
    RUN(a_recycled_file_gives_nothing_of_its_earlier_life);
    RUN(a_segment_whose_header_did_not_arrive_is_none);
    RUN(what_an_incarnation_made_void_is_not_the_end);
    RUN(while_a_store_has_it_open_its_head_is_the_end);
    RUN(a_head_that_was_replaced_is_kept_by_nobody);
    RUN(a_log_that_is_removed_had_at_least_what_its_head_said);
    RUN(a_poisoned_log_ends_where_it_was_last_stable);
    RUN(a_memory_log_of_another_boot_is_unknown);
    RUN(a_head_is_believed_no_longer_than_its_lock_is_held);
    return 0;
}
