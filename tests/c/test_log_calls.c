/* A call into the kernel or the allocator fails, each in turn: readers, checks and fills say so, keep nothing, give no wrong
 * byte, and do it right when they are asked again. (The store's own calls: torture_syscalls.c.) */
#include "fault_kit.h"
#include "fill_kit.h"
#include "log/reader.h"

enum { SEGMENTS = 33, EACH = 3, ALL = SEGMENTS * EACH, FILLS = 17, SMALL_PAYLOAD = 60 };

static int dir;

/* More segments and fills than the lists have room for at first, and numbers that only a fill has. */
static void build_many(void)
{
    static uint8_t block[KIT_BUFFER];
    dir = kit_subdirectory(root, "many");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    for (uint64_t i = 0; i < SEGMENTS; i++) {
        CHECK_EQ(hf_log_roll(log), HF_OK);
        kit_append(log, i * EACH, EACH, SMALL_PAYLOAD, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
    }
    hf_log_close(log);
    flip(dir, seg0, frame_offset(dir, seg0, 1) + 40, 4);
    for (uint64_t i = 0; i < FILLS; i++) {
        uint64_t first = 1 + i * EACH, next = 0;
        struct hf_fill *f = begin_fill(dir, 1, first, first + 1);
        CHECK(hf_fill_append(f, block, kit_block(block, first, 1, SMALL_PAYLOAD, 0), &next) > 0);
        CHECK_EQ(hf_fill_commit(f), HF_OK);
    }
}

/* What a call that failed may come to: its errno, or that something cannot be read. Never success with less. */
static void a_known_answer(int64_t status, int error)
{
    CHECK(status == HF_ERRNO - error || status == HF_DAMAGED || status == HF_GONE || status == HF_AGAIN);
}

static void its_errno(int64_t status, int error)
{
    CHECK_EQ(status, HF_ERRNO - error);
}

/* ---- readers ---- */

/* The beginning, with what only a fill has, and the end. */
static int64_t read_both_ends(void)
{
    static uint8_t buf[KIT_BUFFER];
    struct hf_logr *r = NULL;
    int64_t status = hf_logr_open(dir, &r);
    if (status != HF_OK) {
        return status;
    }
    for (uint64_t at = 0, next = 0; at < ALL; at = next < EACH + 1 || next == ALL ? next : ALL - 1) {
        status = hf_logr_read(r, at, buf, sizeof buf, &next);
        if (status <= 0) {
            break;
        }
        CHECK_EQ(kit_verify(buf, status, at, 0), next);
        CHECK(next > at);
    }
    hf_logr_close(r);
    return status < 0 ? status : HF_OK;
}

static void a_reader_says_what_failed_and_reads_on_when_it_does_not(void)
{
    CHECK(each_call_fails(CALLOC, ENOMEM, read_both_ends, HF_OK, a_known_answer) >= 4);
    CHECK(each_call_fails(REALLOC, ENOMEM, read_both_ends, HF_OK, a_known_answer) >= 3);
    CHECK(each_call_fails(OPENAT, EMFILE, read_both_ends, HF_OK, a_known_answer) > SEGMENTS);
    CHECK(each_call_fails(FCNTL, EMFILE, read_both_ends, HF_OK, its_errno) >= 1);
    CHECK(each_call_fails(FSTAT, EIO, read_both_ends, HF_OK, a_known_answer) > SEGMENTS);
    CHECK(each_call_fails(FDOPENDIR, ENOMEM, read_both_ends, HF_OK, its_errno) >= 2);
    CHECK(each_call_fails(READDIR, EIO, read_both_ends, HF_OK, its_errno) > 2 * SEGMENTS);
    CHECK(each_call_fails(PREAD, EIO, read_both_ends, HF_OK, a_known_answer) > SEGMENTS);
    CHECK(each_call_fails(PREAD, ENOMEM, read_both_ends, HF_OK, a_known_answer) > SEGMENTS);
    CHECK(each_call_fails(MMAP, ENOMEM, read_both_ends, HF_OK, its_errno) == 0);
}

/* Memory for the index is no more than help. */
static void a_reader_without_memory_for_an_index_walks(void)
{
    static uint8_t buf[KIT_BUFFER];
    struct hf_logr *r = kit_reader(dir);
    uint64_t next;
    CHECK(hf_logr_read(r, ALL - 1, buf, sizeof buf, &next) > 0);
    fault_at(REALLOC, 1, ENOMEM);
    r->index.max = 0;
    free(r->index.entries);
    r->index.entries = NULL;
    int64_t got = hf_logr_read(r, EACH + 1, buf, sizeof buf, &next);
    CHECK(fault_over());
    CHECK_EQ(kit_verify(buf, got, EACH + 1, 0), next);
    kit_expect(r, 0, ALL, 0);
    hf_logr_close(r);
}

static void an_interrupted_read_of_a_header_goes_on(void)
{
    for (int nth = 1; nth < SEGMENTS; nth += 7) {
        fault_at(PREAD, nth, EINTR);
        CHECK_EQ(read_both_ends(), HF_OK);
        CHECK(fault_over());
    }
}

/* ---- checks ---- */

static int64_t check_it_all(void)
{
    struct hf_check_summary sum;
    struct hf_finding found[4];
    int64_t n = hf_log_check(dir, found, 4, &sum);
    if (n == 0) {
        CHECK_EQ(sum.segments, SEGMENTS);
        CHECK_EQ(sum.messages, ALL - 1);
        CHECK_EQ(sum.filled, 1);
        CHECK_EQ(sum.fills, FILLS);
    }
    return n;
}

/* A check that had no descriptor left for a fill called the fill damaged. */
static void a_check_that_lacks_something_finds_no_damage(void)
{
    CHECK(each_call_fails(CALLOC, ENOMEM, check_it_all, 0, its_errno) > 2);
    CHECK(each_call_fails(REALLOC, ENOMEM, check_it_all, 0, its_errno) > 2);
    CHECK(each_call_fails(OPENAT, EMFILE, check_it_all, 0, its_errno) > 2 * SEGMENTS);
    CHECK(each_call_fails(FCNTL, EMFILE, check_it_all, 0, its_errno) == 3); /* two copies, and who keeps it */
    CHECK(each_call_fails(FSTAT, EIO, check_it_all, 0, its_errno) > 2 * SEGMENTS);
    CHECK(each_call_fails(READDIR, EIO, check_it_all, 0, its_errno) > 2 * SEGMENTS);
    CHECK(each_call_fails(PREAD, ENOMEM, check_it_all, 0, its_errno) > SEGMENTS + FILLS);
    CHECK(each_call_fails(MMAP, ENOMEM, check_it_all, 0, its_errno) == 0);
}

/* ---- fills ---- */

static int64_t make_a_fill(void)
{
    static uint8_t block[KIT_BUFFER];
    struct hf_fill *f = NULL;
    uint64_t next = 0, bytes = kit_block(block, 1, 1, SMALL_PAYLOAD, 0);
    int64_t status = hf_fill_create(dir, kit_uuid, 1, 1, 2, &f);
    if (status != HF_OK) {
        return status;
    }
    status = hf_fill_append(f, block, bytes, &next);
    if (status < 0) {
        hf_fill_abort(f);
        return status;
    }
    CHECK_EQ(next, 2);
    return hf_fill_commit(f);
}

/* The fill that was there before is read until the new one is whole. */
static void no_half_fill(int64_t status, int error)
{
    CHECK_EQ(status, HF_ERRNO - error);
    CHECK_EQ(kit_names(dir, "fill-new"), 0);
    CHECK_EQ(kit_names(dir, "fill-"), FILLS);
    CHECK_EQ(read_both_ends(), HF_OK);
}

static void a_fill_that_cannot_be_made_leaves_the_earlier_one(void)
{
    CHECK(each_call_fails(CALLOC, ENOMEM, make_a_fill, HF_OK, no_half_fill) == 1);
    CHECK(each_call_fails(FCNTL, EMFILE, make_a_fill, HF_OK, no_half_fill) == 1);
    CHECK(each_call_fails(GETRANDOM, ENOSYS, make_a_fill, HF_OK, no_half_fill) == 1);
    CHECK(each_call_fails(OPENAT, ENOSPC, make_a_fill, HF_OK, no_half_fill) == 1);
    CHECK(each_call_fails(PWRITE, ENOSPC, make_a_fill, HF_OK, no_half_fill) == 2);
    CHECK(each_call_fails(FDATASYNC, EIO, make_a_fill, HF_OK, no_half_fill) == 1);
    CHECK(each_call_fails(RENAMEAT, EIO, make_a_fill, HF_OK, no_half_fill) == 1);
    CHECK(each_call_fails(FSYNC, EIO, make_a_fill, HF_OK, no_half_fill) == 1);
}

static void a_write_of_nothing_is_an_error_and_an_interrupted_one_goes_on(void)
{
    fault_at(PWRITE, 1, 0);
    CHECK_EQ(make_a_fill(), HF_ERRNO - EIO);
    CHECK(fault_over());
    fault_at(PWRITE, 2, EINTR);
    CHECK_EQ(make_a_fill(), HF_OK);
    CHECK(fault_over());
    CHECK_EQ(read_both_ends(), HF_OK);
}

static int64_t prune(void)
{
    return hf_fill_prune(dir);
}

/* A fill that cannot be looked at is not useless. */
static void keeps_every_fill(int64_t status, int error)
{
    CHECK_EQ(status, HF_ERRNO - error);
    CHECK_EQ(kit_names(dir, "fill-"), FILLS);
}

static void pruning_removes_nothing_that_it_could_not_look_at(void)
{
    CHECK(each_call_fails(CALLOC, ENOMEM, prune, 0, keeps_every_fill) == 3);
    CHECK(each_call_fails(REALLOC, ENOMEM, prune, 0, keeps_every_fill) >= 2);
    CHECK(each_call_fails(OPENAT, EMFILE, prune, 0, keeps_every_fill) > SEGMENTS + FILLS);
    CHECK(each_call_fails(FSTAT, EIO, prune, 0, keeps_every_fill) > SEGMENTS + FILLS);
    CHECK_EQ(kit_names(dir, "fill-"), FILLS);
}

/* What expires is looked at again when the list could not be had: 0 is below every number. */
static void fills_whose_names_cannot_be_listed_stay_and_are_looked_at_again(void)
{
    fault_at(REALLOC, 1, ENOMEM);
    CHECK_EQ(hf_fill_expire(dir, UINT64_MAX), 0);
    CHECK(fault_over());
    CHECK_EQ(kit_names(dir, "fill-"), FILLS);
}

int main(void)
{
    root = kit_directory();
    build_many();
    RUN(a_reader_says_what_failed_and_reads_on_when_it_does_not);
    RUN(a_reader_without_memory_for_an_index_walks);
    RUN(an_interrupted_read_of_a_header_goes_on);
    RUN(a_check_that_lacks_something_finds_no_damage);
    RUN(a_fill_that_cannot_be_made_leaves_the_earlier_one);
    RUN(a_write_of_nothing_is_an_error_and_an_interrupted_one_goes_on);
    RUN(pruning_removes_nothing_that_it_could_not_look_at);
    RUN(fills_whose_names_cannot_be_listed_stay_and_are_looked_at_again);
    done(dir, "many");
    return 0;
}
