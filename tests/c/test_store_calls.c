/* A call into the kernel or the allocator fails in a store's life, each in turn, and so it does while a log that a crash
 * left is mended: the store is told, nothing stays open, and what it had been told is stable is there. torture_syscalls.c
 * strikes the system calls among each other and at random; here none is left out, and memory runs out too. */
#include "fault_kit.h"
#include "log/head.h"
#include "log/segment.h"
#include "log_kit.h"

enum { SEGMENT = 16384, PAYLOAD = 100, LIVES = 6, EACH = 8 };

static int root, dir;
static uint32_t level;

static struct hf_log_config config(void)
{
    return kit_config(level, SEGMENT, SEGMENT, 3 * SEGMENT);
}

/* What is below is read, or was let go. */
static void expect_below(uint64_t next)
{
    struct hf_logr *r = NULL;
    if (hf_logr_open(dir, &r) == HF_AGAIN) { /* it failed before there was a log */
        CHECK_EQ(next, 0);
        return;
    }
    uint64_t oldest, published;
    CHECK_EQ(hf_logr_range(r, &oldest, &published), HF_OK);
    CHECK(published >= next);
    kit_expect(r, oldest, next > oldest ? next : oldest, 0);
    hf_logr_close(r);
}

static int64_t live(struct hf_log *log, uint64_t *stable)
{
    static uint8_t block[KIT_BUFFER];
    int64_t status = hf_log_begin(log, 1, 0);
    for (uint64_t life = 0; life < LIVES && status >= 0; life++) {
        for (uint64_t i = 0; i < EACH && status >= 0; i++) {
            status = kit_put(log, block, kit_block(block, life * EACH + i, 1, PAYLOAD, 0));
        }
        status = status >= 0 ? hf_log_sync(log) : status;
        *stable = kit_info(log).next_sqn;
        status = status >= 0 && life % 2 == 0 ? hf_log_prepare(log) : status;
        status = status >= 0 ? hf_log_roll(log) : status;
    }
    return status;
}

/* In a directory of its own. What fails in the life or in the opening after it is the answer. */
static int64_t live_and_open_again(void)
{
    struct hf_log *log = NULL;
    struct hf_log_config c = config();
    uint64_t stable = 0;
    fault_pause(1);
    dir = kit_subdirectory(root, "life");
    fault_pause(0);
    int64_t status = hf_log_open(dir, &c, &log);
    if (status == HF_OK) {
        status = live(log, &stable);
        int64_t rested = hf_log_rest(log, 1);
        status = status < 0 ? status : rested;
    }
    fault_pause(1);
    expect_below(stable);
    fault_pause(0);
    int64_t again = hf_log_open(dir, &c, &log);
    if (again == HF_OK) {
        CHECK(kit_info(log).next_sqn >= stable);
        CHECK_EQ(kit_info(log).damaged, 0);
        hf_log_close(log);
    }
    fault_pause(1);
    expect_below(stable);
    close(dir);
    kit_empty(root, "life");
    fault_pause(0);
    return status < 0 ? status : again;
}

/* Its errno; or nothing more is published, for a write or a sync that fails may have left anything. */
static void is_told(int64_t status, int error)
{
    CHECK(status == HF_ERRNO - error || status == HF_POISONED || status == HF_GONE);
}

static void every_call_of_a_store_may_fail(void)
{
    static const struct {
        enum call call;
        int error;
    } calls[] = {{CALLOC, ENOMEM},    {REALLOC, ENOMEM},   {FCNTL, EMFILE},     {OPENAT, EMFILE}, {FSTAT, EIO},
                 {GETRANDOM, ENOSYS}, {FDOPENDIR, ENOMEM}, {FALLOCATE, ENOSPC}, {PWRITE, ENOSPC}, {PWRITE, EIO},
                 {RENAMEAT, EIO},     {UNLINKAT, EIO},     {FSYNC, EIO},        {FDATASYNC, EIO}};
    for (level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
            CHECK(each_call_fails(calls[i].call, calls[i].error, live_and_open_again, HF_OK, is_told) >= 1);
        }
#if !defined(__SANITIZE_THREAD__)
        CHECK(each_call_fails(MMAP, ENOMEM, live_and_open_again, HF_OK, is_told) >= 2);
#endif
    }
}

static void an_interrupted_allocation_of_a_file_goes_on(void)
{
    level = HF_LEVEL_DISK;
    for (int nth = 2; nth < 5; nth++) { /* the first one is the head's */
        fault_at(FALLOCATE, nth, EINTR);
        CHECK_EQ(live_and_open_again(), HF_OK);
        CHECK(fault_over());
    }
}

/* ---- mending ---- */

/* What a power cut leaves: no head, a torn tail in the first of three segments, and names that never held anything. */
static void leave_wreck(void)
{
    dir = kit_subdirectory(root, "wreck");
    struct hf_log *log = kit_open(dir, config());
    for (uint64_t i = 0; i < 3; i++) {
        kit_append(log, i * EACH, EACH, PAYLOAD, 0);
        CHECK_EQ(hf_log_roll(log), HF_OK);
    }
    hf_log_close(log);
    CHECK_EQ(unlinkat(dir, "head", 0), 0);
    uint8_t zero = 0;
    int f = openat(dir, "seg-0000000000000000", O_WRONLY);
    CHECK_EQ(pwrite(f, &zero, 1, 8192 + 64 + 160 * 5 + 40), 1);
    close(f);
    f = openat(dir, "seg-0000000000100000", O_WRONLY | O_CREAT, 0600);
    CHECK_EQ(ftruncate(f, SEGMENT), 0);
    close(f);
}

/* Opened until it opens; a sync that failed is for good. */
static int64_t mend_a_wreck(void)
{
    struct hf_log *log = NULL;
    struct hf_log_config c = config();
    fault_pause(1);
    leave_wreck();
    fault_pause(0);
    int64_t first = hf_log_open(dir, &c, &log);
    fault_pause(1);
    int64_t status = first == HF_OK ? HF_OK : hf_log_open(dir, &c, &log);
    CHECK(status == HF_OK || (status == HF_POISONED && first == HF_POISONED));
    if (status == HF_OK) {
        CHECK_EQ(kit_info(log).next_sqn, 5);
        CHECK_EQ(kit_info(log).damaged, 0);
        CHECK_EQ(kit_names(dir, "seg-"), 1);
        kit_append(log, 5, EACH, PAYLOAD, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        expect_below(5 + EACH);
        hf_log_close(log);
    }
    close(dir);
    kit_empty(root, "wreck");
    fault_pause(0);
    return first;
}

static void every_call_of_a_mending_may_fail_and_the_next_one_mends(void)
{
    static const struct {
        enum call call;
        int error;
    } calls[] = {{CALLOC, ENOMEM}, {REALLOC, ENOMEM}, {OPENAT, EMFILE}, {FSTAT, EIO},    {UNLINKAT, EIO},
                 {RENAMEAT, EIO},  {FSYNC, EIO},      {FDATASYNC, EIO}, {PWRITE, ENOSPC}};
    level = HF_LEVEL_DISK;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        CHECK(each_call_fails(calls[i].call, calls[i].error, mend_a_wreck, HF_OK, is_told) >= 1);
    }
#if !defined(__SANITIZE_THREAD__)
    CHECK(each_call_fails(MMAP, ENOMEM, mend_a_wreck, HF_OK, is_told) >= 1);
#endif
}

/* Whether it is the same boot decides whether a memory log's head is believed. If not, the frames tell all of it. */
static void a_memory_log_whose_boot_cannot_be_told_is_walked(void)
{
    level = HF_LEVEL_MEMORY;
    dir = kit_subdirectory(root, "boot");
    struct hf_log *log = kit_open(dir, config());
    kit_append(log, 0, EACH, PAYLOAD, 0);
    hf_log_close(log);
    struct hf_log_config c = config();
    fault_at(OPEN, 1, EACCES);
    CHECK_EQ(hf_log_open(dir, &c, &log), HF_OK);
    CHECK(fault_over());
    CHECK_EQ(kit_info(log).next_sqn, EACH);
    CHECK_EQ(kit_info(log).damaged, 0);
    hf_log_close(log);
    expect_below(EACH);
    close(dir);
    kit_empty(root, "boot");
}

/* ---- the table of incarnations ---- */

static void change_head(size_t offset, uint64_t value)
{
    int f = openat(dir, "head", O_WRONLY);
    CHECK_EQ(pwrite(f, &value, sizeof value, (off_t)offset), sizeof value);
    close(f);
}

/* A table that is not whole is not one without entries: readers do without and say so, and the next store mends it. */
static void a_table_of_incarnations_that_cannot_be_read_costs_no_message(void)
{
    level = HF_LEVEL_DISK;
    for (int how = 0; how < 3; how++) {
        dir = kit_subdirectory(root, "table");
        struct hf_log *log = kit_open(dir, config());
        CHECK_EQ(hf_log_begin(log, 4, 0), HF_OK);
        kit_append(log, 0, EACH, PAYLOAD, 0);
        hf_log_close(log);
        if (how == 0) {
            change_head(offsetof(struct hf_head, begin_version), 7);
        } else { /* 1 is the one of a new log, 2 that of its first BEGIN */
            change_head(HF_HEADER_PAGE + offsetof(struct hf_begin_table, count),
                        how == 1 ? HF_INCARNATIONS + 1 : UINT64_MAX);
        }
        uint64_t incarnation = 0, start = 1;
        struct hf_begin table[HF_INCARNATIONS];
        struct hf_logr *r = kit_reader(dir);
        kit_expect(r, 0, EACH, 0);
        CHECK_EQ(hf_logr_begin(r, &incarnation, &start), HF_DAMAGED);
        CHECK_EQ(hf_logr_begins(r, table), HF_DAMAGED);
        struct hf_check_summary sum;
        CHECK_EQ(kit_findings(dir, &sum), 0);
        CHECK_EQ(sum.messages, EACH);
        struct hf_log *mended = kit_open(dir, config());
        CHECK_EQ(kit_info(mended).unsure, 1); /* it may have known of more */
        hf_log_close(mended);
        CHECK_EQ(hf_logr_begin(r, &incarnation, &start), 1);
        CHECK_EQ(incarnation, 4);
        CHECK_EQ(start, 0);
        hf_logr_close(r);
        close(dir);
        kit_empty(root, "table");
    }
}

/* The oldest incarnation makes room for one that only a segment's header tells. */
static void a_full_table_takes_in_what_only_a_segment_knows(void)
{
    level = HF_LEVEL_DISK;
    dir = kit_subdirectory(root, "table");
    struct hf_log *log = kit_open(dir, config());
    static uint8_t old[HF_HEAD_BYTES];
    for (uint64_t i = 1; i <= HF_INCARNATIONS; i++) {
        CHECK_EQ(hf_log_begin(log, i, 0), HF_OK);
    }
    int f = openat(dir, "head", O_RDWR);
    CHECK_EQ(pread(f, old, sizeof old, 0), sizeof old);
    CHECK_EQ(hf_log_begin(log, 1000, 0), HF_OK);
    kit_append(log, 0, EACH, PAYLOAD, 0);
    hf_log_close(log);
    CHECK_EQ(pwrite(f, old, sizeof old, 0), sizeof old); /* none of its pages reached the disk */
    close(f);
    log = kit_open(dir, config());
    CHECK_EQ(kit_info(log).incarnation, 1000);
    struct hf_logr *r = kit_reader(dir);
    struct hf_begin table[HF_INCARNATIONS];
    CHECK_EQ(hf_logr_begins(r, table), HF_INCARNATIONS);
    CHECK_EQ(table[0].incarnation, 2);
    CHECK_EQ(table[HF_INCARNATIONS - 1].incarnation, 1000);
    kit_expect(r, 0, EACH, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
    kit_empty(root, "table");
}

int main(void)
{
    root = kit_directory();
    RUN(every_call_of_a_store_may_fail);
    RUN(an_interrupted_allocation_of_a_file_goes_on);
    RUN(every_call_of_a_mending_may_fail_and_the_next_one_mends);
    RUN(a_memory_log_whose_boot_cannot_be_told_is_walked);
    RUN(a_table_of_incarnations_that_cannot_be_read_costs_no_message);
    RUN(a_full_table_takes_in_what_only_a_segment_knows);
    return 0;
}
