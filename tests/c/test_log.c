/* The log in ordinary life: append, publish, roll, retain, BEGIN, LOST, readers, check; and what the bytes look
 * like. */
#include "base/atomic.h"
#include "log/segment.h"
#include "log_kit.h"

#include <pthread.h>
#include <sched.h>

static int root;

static int fresh(const char *name)
{
    return kit_subdirectory(root, name);
}

static void what_memory_appends_is_published_at_once(void)
{
    int dir = fresh("memory");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 0, 0, 0));
    struct hf_logr *r = kit_reader(dir);
    uint8_t buf[4096];
    uint64_t next;
    CHECK_EQ(hf_logr_read(r, 0, buf, sizeof buf, &next), HF_AGAIN);
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 10, 100, 0);
    CHECK_EQ(kit_info(log).next_sqn, 10);
    CHECK_EQ(kit_info(log).dirty, 0);
    kit_expect(r, 0, 10, 0);
    CHECK_EQ(hf_logr_read(r, 10, buf, sizeof buf, &next), HF_AGAIN);
    kit_append(log, 10, 1000, 100, 0);
    kit_expect(r, 3, 1010, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void what_disk_appends_is_published_by_sync_only(void)
{
    int dir = fresh("disk");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 0, 0, 0));
    struct hf_logr *r = kit_reader(dir);
    uint8_t buf[4096];
    uint64_t next;
    kit_append(log, 0, 10, 100, 0);
    CHECK_EQ(kit_info(log).next_sqn, 0);
    CHECK_EQ(kit_info(log).dirty, 1);
    CHECK_EQ(hf_logr_read(r, 0, buf, sizeof buf, &next), HF_AGAIN);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(kit_info(log).next_sqn, 10);
    kit_expect(r, 0, 10, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(kit_info(log).syncs, 1); /* nothing was dirty */
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void segments_double_and_every_number_is_found_from_anywhere(void)
{
    int dir = fresh("roll");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 1 << 20, 0));
    kit_append(log, 0, 20000, 90, 0);
    struct hf_log_info info = kit_info(log);
    CHECK(info.segments >= 6);
    CHECK_EQ(info.next_sqn, 20000);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 20000, 0);
    uint8_t buf[512];
    uint64_t next, seed = 5;
    for (int i = 0; i < 3000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        uint64_t sqn = (seed >> 33) % 20000;
        int64_t n = hf_logr_read(r, sqn, buf, sizeof buf, &next);
        CHECK(n > 0);
        CHECK_EQ(kit_verify(buf, n, sqn, 0), next);
    }
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.messages, 20000);
    CHECK_EQ(sum.segments, info.segments);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void a_block_larger_than_a_segment_gets_a_segment_that_fits(void)
{
    int dir = fresh("large");
    static uint8_t block[KIT_BUFFER];
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 65536, 0));
    uint64_t bytes = kit_message(block, 0, 9, 65536, 0);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_ROLL);
    CHECK_EQ(hf_log_roll(log), HF_OK);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_OK);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next;
    uint8_t small[4096];
    CHECK_EQ(hf_logr_read(r, 4, small, sizeof small, &next), HF_SMALL);
    CHECK_EQ(next, bytes);
    int64_t n = hf_logr_read(r, 4, block, sizeof block, &next); /* a middle fragment: from the first on */
    CHECK_EQ(n, bytes);
    CHECK_EQ(kit_verify(block, n, 0, 0), 9);
    CHECK_EQ(next, 9);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void retention_drops_the_oldest_and_readers_are_told(void)
{
    int dir = fresh("retention");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 65536, 300000));
    for (uint64_t i = 0; i < 200; i++) {
        kit_append(log, i * 50, 50, 200, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        CHECK(hf_log_prepare(log) >= 0);
    }
    struct hf_log_info info = kit_info(log);
    CHECK(info.bytes <= 300000 + 65536);
    CHECK(info.oldest_sqn > 0);
    CHECK(kit_names(dir, "spare") <= 1);
    struct hf_logr *r = kit_reader(dir);
    uint8_t buf[4096];
    uint64_t next, oldest;
    CHECK_EQ(hf_logr_read(r, 0, buf, sizeof buf, &next), HF_GONE);
    CHECK_EQ(next, info.oldest_sqn);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    CHECK_EQ(oldest, info.oldest_sqn);
    kit_expect(r, oldest, 10000, 0);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.messages, 10000 - oldest);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void a_reader_whose_segment_is_recycled_never_sees_damage(void)
{
    int dir = fresh("recycled");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 60000));
    kit_append(log, 0, 30, 200, 0);
    struct hf_logr *r = kit_reader(dir);
    static uint8_t buf[2048];
    uint64_t next, at = 0;
    for (uint64_t i = 0; i < 3000; i++) { /* slower than the writer: overtaken again and again */
        kit_append(log, 30 + i * 3, 3, 200, 0);
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        if (n == HF_GONE) {
            CHECK(next > at);
        } else {
            CHECK(n > 0);
            CHECK_EQ(kit_verify(buf, n, at, 0), next);
            next = i % 3 == 0 ? at + 1 : next;
        }
        at = next;
    }
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void a_spare_is_made_once_and_taken_by_the_roll(void)
{
    int dir = fresh("spare");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 32768, 32768, 0));
    CHECK_EQ(hf_log_prepare(log), 1);
    CHECK_EQ(hf_log_prepare(log), 0);
    CHECK_EQ(kit_names(dir, "spare"), 1);
    kit_append(log, 0, 10, 200, 0);
    CHECK_EQ(kit_names(dir, "spare"), 0);
    hf_log_close(log);
    close(dir);
}

struct helper {
    struct hf_log *log;
    int dir;
    uint32_t stop;
};

static void *prepare_for_ever(void *argument)
{
    struct helper *h = argument;
    while (!hf_load_acquire_u32(&h->stop)) {
        CHECK(hf_log_prepare(h->log) >= 0);
        sched_yield();
    }
    return NULL;
}

/* Follows the log from a thread of its own, and checks it now and then: never damage, never a wrong byte. */
static void *read_for_ever(void *argument)
{
    struct helper *h = argument;
    static uint8_t buf[1 << 16];
    struct hf_logr *r = kit_reader(h->dir);
    uint64_t at = 0, next;
    for (uint64_t i = 0; !hf_load_acquire_u32(&h->stop); i++) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        if (n > 0) {
            CHECK_EQ(kit_verify(buf, n, at, 0), next);
        } else {
            CHECK(n == HF_AGAIN || n == HF_GONE);
        }
        at = next;
        if (i % 16 == 0) {
            struct hf_check_summary sum;
            CHECK_EQ(kit_findings(h->dir, &sum), 0);
        }
        sched_yield();
    }
    hf_logr_close(r);
    return NULL;
}

static void helper_readers_and_check_work_beside_the_store(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        int dir = fresh(level == HF_LEVEL_MEMORY ? "beside-memory" : "beside-disk");
        struct hf_log *log = kit_open(dir, kit_config(level, 16384, 32768, 150000));
        struct helper h = {log, dir, 0};
        pthread_t helper, reader;
        CHECK_EQ(pthread_create(&helper, NULL, prepare_for_ever, &h), 0);
        CHECK_EQ(pthread_create(&reader, NULL, read_for_ever, &h), 0);
        for (uint64_t i = 0; i < 600; i++) {
            kit_append(log, i * 10, 10, 200, 0);
            CHECK_EQ(hf_log_sync(log), HF_OK);
            sched_yield();
        }
        hf_store_release_u32(&h.stop, 1);
        pthread_join(helper, NULL);
        pthread_join(reader, NULL);
        CHECK_EQ(kit_info(log).next_sqn, 6000);
        hf_log_close(log);
        close(dir);
    }
}

static void a_later_incarnation_overrides_the_numbers_it_took_over(void)
{
    int dir = fresh("begin");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    static uint8_t block[KIT_BUFFER];
    uint8_t buf[512];
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK); /* again: nothing */
    CHECK_EQ(hf_log_begin(log, 1, 5), HF_USAGE);
    kit_append(log, 0, 50, 64, 1);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 50, 1);
    CHECK_EQ(hf_log_begin(log, 2, 45), HF_OK);
    CHECK_EQ(hf_log_begin(log, 1, 45), HF_USAGE);
    CHECK_EQ(kit_info(log).appended_sqn, 45);
    CHECK_EQ(kit_info(log).next_sqn, 45);
    CHECK_EQ(hf_logr_read(r, 47, buf, sizeof buf, &next), HF_AGAIN); /* void at once, before anything replaces it */
    uint64_t bytes = kit_block(block, 45, 1, 64, 2);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_ROLL);
    kit_append(log, 45, 10, 64, 2);
    kit_expect(r, 0, 45, 1);
    kit_expect(r, 45, 55, 2);
    CHECK_EQ(hf_log_begin(log, 3, 40), HF_OK);
    kit_append(log, 40, 8, 64, 3);
    kit_expect(r, 0, 40, 1);
    kit_expect(r, 40, 48, 3);
    CHECK_EQ(hf_logr_read(r, 48, buf, sizeof buf, &next), HF_AGAIN);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.messages, 48);
    hf_log_close(log);
    log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0)); /* and after a restart */
    CHECK_EQ(kit_info(log).incarnation, 3);
    CHECK_EQ(kit_info(log).begin_sqn, 40);
    CHECK_EQ(kit_info(log).appended_sqn, 48);
    kit_expect(r, 0, 40, 1);
    kit_expect(r, 40, 48, 3);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void begins_beyond_the_table_keep_the_newest(void)
{
    int dir = fresh("begins");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    for (uint64_t k = 1; k <= HF_INCARNATIONS + 10; k++) {
        CHECK_EQ(hf_log_begin(log, k, k - 1), HF_OK);
        kit_append(log, k - 1, 2, 64, k); /* each time one message is voided by the next */
    }
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK(kit_info(log).bytes <= (HF_INCARNATIONS + 10) * 12288 + 16384); /* unused tails were given back */
    struct hf_logr *r = kit_reader(dir);
    for (uint64_t k = 1; k < HF_INCARNATIONS + 10; k++) {
        kit_expect(r, k - 1, k, k);
    }
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void lost_ranges_and_holes_are_told_apart(void)
{
    int dir = fresh("lost");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 0, 0, 0));
    struct hf_logr *r = kit_reader(dir);
    uint8_t buf[4096];
    uint64_t next;
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 100, 5, 64, 0); /* a store that joined late: an empty log starts anywhere */
    CHECK_EQ(hf_log_lost(log, 105, 104), HF_USAGE);
    CHECK_EQ(hf_log_lost(log, 106, 110), HF_USAGE);
    CHECK_EQ(hf_log_lost(log, 105, UINT64_MAX), HF_USAGE);
    CHECK_EQ(hf_log_lost(log, 105, 199), HF_OK);
    kit_append(log, 200, 5, 64, 0);
    CHECK_EQ(hf_log_hole(log, 205, 204), HF_USAGE);
    CHECK_EQ(hf_log_hole(log, 206, 219), HF_USAGE);
    CHECK_EQ(hf_log_hole(log, 205, 219), HF_OK);
    kit_append(log, 220, 5, 64, 0);
    CHECK_EQ(hf_log_begin(log, 2, 300), HF_OK); /* began behind what this store has: a hole */
    kit_append(log, 300, 5, 64, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    for (int again = 0; again < 2; again++) {
        CHECK_EQ(hf_logr_read(r, 50, buf, sizeof buf, &next), HF_GONE);
        CHECK_EQ(next, 100);
        kit_expect(r, 100, 105, 0);
        CHECK_EQ(hf_logr_read(r, 150, buf, sizeof buf, &next), HF_LOST);
        CHECK_EQ(next, 200);
        kit_expect(r, 200, 205, 0);
        for (uint64_t n = 205; n < 220; n++) { /* by the copy that stands there, and by the index */
            CHECK_EQ(hf_logr_read(r, n, buf, sizeof buf, &next), HF_HOLE);
            CHECK_EQ(next, 220);
        }
        kit_expect(r, 220, 225, 0);
        CHECK_EQ(hf_logr_let_go(r, 99), 0); /* it began with 100 */
        CHECK_EQ(hf_logr_read(r, 225, buf, sizeof buf, &next), HF_GONE);
        CHECK_EQ(next, 300);
        kit_expect(r, 300, 305, 0);
        hf_log_close(log);
        log = kit_open(dir, kit_config(HF_LEVEL_DISK, 0, 0, 0));
    }
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

/* The format by hand, from base/layout.h's words and the table CRC alone: nothing of the log's own code. */
static void the_bytes_on_disk_are_what_the_specification_says(void)
{
    int dir = fresh("golden");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    static uint8_t file[16384];
    CHECK_EQ(hf_log_begin(log, 7, 40), HF_OK);
    kit_append(log, 40, 1, 5, 0);
    kit_append(log, 41, 1, 64, 0);
    CHECK_EQ(hf_log_lost(log, 42, 49), HF_OK);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_append(log, 50, 1, 1, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(hf_log_roll(log), HF_OK);
    int fd = openat(dir, "seg-0000000000000000", O_RDONLY);
    CHECK_EQ(read(fd, file, sizeof file), sizeof file);
    close(fd);
    struct hf_segment_header h;
    memcpy(&h, file, sizeof h);
    CHECK_EQ(h.pre.magic, 0x3154534644484604);
    CHECK_EQ(h.pre.header_bytes, 8192);
    CHECK_EQ(h.pre.total_bytes, 16384);
    CHECK_EQ(h.pre.incarnation, 7);
    CHECK(memcmp(h.source_uuid, kit_uuid, 16) == 0);
    CHECK_EQ(h.first_sqn, 40);
    CHECK_EQ(h.crc, hf_crc32c_table(0, file, 180));
    CHECK(memcmp(file, file + 2048, 184) == 0);
    uint8_t text[24];
    memcpy(text, h.pre.uuid, 16);
    memcpy(text + 16, &h.pre.incarnation, 8);
    const uint32_t seed = hf_crc32c_table(0, text, 24);
    const struct {
        uint64_t position, sqn, first, last;
        uint32_t length;
        uint16_t flags, fragment;
    } want[] = {
        {0, 40, 0, 0, 48, HF_FRAME_CONTROL, HF_CONTROL_SYNC},
        {64, 40, 0, 0, 37, 3, 0},
        {128, 41, 0, 0, 96, 3, 0},
        {224, 42, 42, 49, 48, HF_FRAME_CONTROL, HF_CONTROL_LOST},
        {288, 50, 288, 0, 48, HF_FRAME_CONTROL, HF_CONTROL_SYNC},
        {352, 50, 0, 0, 33, 3, 0},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const uint8_t *at = file + 8192 + want[i].position;
        struct hf_frame f;
        memcpy(&f, at, sizeof f);
        CHECK_EQ(f.commit, (want[i].position / 32 + 1) << 32 | want[i].length);
        CHECK_EQ(f.sequence_number, want[i].sqn);
        CHECK_EQ(f.flags, want[i].flags);
        CHECK_EQ(f.fragment, want[i].fragment);
        CHECK_EQ(f.crc, hf_crc32c_table(hf_crc32c_table(seed, at, 28), at + 32, want[i].length - 32));
        if (f.flags & HF_FRAME_CONTROL) {
            CHECK(memcmp(at + 32, &want[i].first, 8) == 0 && memcmp(at + 40, &want[i].last, 8) == 0);
        }
        for (uint64_t k = want[i].length; k % 32 != 0; k++) {
            CHECK_EQ(at[k], 0);
        }
    }
    CHECK_EQ(h.seal.end_position, 416);
    CHECK_EQ(h.seal.next_sqn, 51);
    CHECK_EQ(h.seal.index_count, 0); /* an only entry is left out: tests/c/test_log_rest.c has a larger one */
    CHECK_EQ(h.seal.index_crc, 0);
    CHECK(hf_zeros(file + 4096, 4096));
    CHECK_EQ(h.seal.crc, hf_crc32c_table(hf_crc32c_table(0, h.pre.uuid, 16), file + 256, 28));
    hf_log_close(log);
    close(dir);
}

/* Until the seal, entries are whatever a recycled file had there. */
static void garbage_in_the_index_of_an_unsealed_segment_is_written_over_by_its_seal(void)
{
    enum { ENTRIES = 4 };
    const uint64_t file_bytes = ENTRIES * HF_INDEX_STEP;
    int dir = kit_subdirectory(root, "index");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, file_bytes, file_bytes, 0));
    kit_append(log, 0, 4, 20, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_log_close(log);
    const uint64_t end = 4096 + ENTRIES * sizeof(struct hf_index_entry);
    int f = openat(dir, "seg-0000000000000000", O_RDWR);
    uint8_t garbage[ENTRIES * sizeof(struct hf_index_entry)], byte;
    memset(garbage, 0xA5, sizeof garbage);
    CHECK_EQ(pwrite(f, garbage, sizeof garbage, 4096), sizeof garbage);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    hf_log_close(kit_open(dir, kit_config(HF_LEVEL_DISK, file_bytes, file_bytes, 0)));
    CHECK_EQ(kit_findings(dir, &sum), 0); /* sealed: one entry, zeros behind it */
    for (uint64_t at = 4096; at <= end; at += sizeof(struct hf_index_entry)) {
        CHECK_EQ(pread(f, &byte, 1, (off_t)at), 1);
        byte ^= 1;
        CHECK_EQ(pwrite(f, &byte, 1, (off_t)at), 1);
        CHECK_EQ(kit_findings(dir, &sum), 1);
        byte ^= 1;
        CHECK_EQ(pwrite(f, &byte, 1, (off_t)at), 1);
    }
    CHECK_EQ(kit_findings(dir, &sum), 0);
    close(f);
    close(dir);
    kit_empty(root, "index");
}

int main(void)
{
    root = kit_directory();
    RUN(what_memory_appends_is_published_at_once);
    RUN(what_disk_appends_is_published_by_sync_only);
    RUN(segments_double_and_every_number_is_found_from_anywhere);
    RUN(a_block_larger_than_a_segment_gets_a_segment_that_fits);
    RUN(retention_drops_the_oldest_and_readers_are_told);
    RUN(a_reader_whose_segment_is_recycled_never_sees_damage);
    RUN(a_spare_is_made_once_and_taken_by_the_roll);
    RUN(helper_readers_and_check_work_beside_the_store);
    RUN(a_later_incarnation_overrides_the_numbers_it_took_over);
    RUN(begins_beyond_the_table_keep_the_newest);
    RUN(lost_ranges_and_holes_are_told_apart);
    RUN(the_bytes_on_disk_are_what_the_specification_says);
    RUN(garbage_in_the_index_of_an_unsealed_segment_is_written_over_by_its_seal);
    return 0;
}
