/* A log that is closed for long: hf_log_rest. */
#include <sys/stat.h>

#include "base/failpoint.h"
#include "log/frame.h"
#include "log/head.h"
#include "log_kit.h"

enum { FIRST = 1 << 20, MAX = 1 << 21, PAGE = 4096, USED_MAX = 3 * PAGE }; /* head, header and frames; no index */

static int root, made;

static int directory(void)
{
    char name[32];
    snprintf(name, sizeof name, "rest-%d", made++);
    return kit_subdirectory(root, name);
}

/* Bytes of disk of all files of a log. */
static uint64_t room(int dir)
{
    uint64_t bytes = 0;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = fdopendir(fd);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        struct stat st;
        CHECK(fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
        bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_blocks * 512 : 0;
    }
    closedir(d);
    return bytes;
}

static uint64_t head_bytes(int dir)
{
    struct stat st;
    CHECK_EQ(fstatat(dir, "head", &st, 0), 0);
    return (uint64_t)st.st_size;
}

/* As a reader and a check find it; nobody has it open to write. */
static void expect_all(int dir, uint64_t next_sqn)
{
    struct hf_logr *r = kit_reader(dir);
    uint64_t next = 0;
    CHECK_EQ(hf_logr_end(r, &next), HF_OK);
    CHECK_EQ(next, next_sqn);
    kit_expect(r, 0, next_sqn, 1);
    hf_logr_close(r);
    CHECK_EQ(kit_findings(dir, &(struct hf_check_summary){0}), 0);
}

static struct hf_log_config config_of(uint32_t level)
{
    return kit_config(level, FIRST, MAX, 0);
}

/* Three messages in a new log of a source that is over; it has a spare. */
static struct hf_log *three(int dir, uint32_t level)
{
    struct hf_log *log = kit_open(dir, config_of(level));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 3, 100, 1);
    CHECK_EQ(hf_log_prepare(log), 1);
    return log;
}

static void it_keeps_its_messages_and_no_room_for_more(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        int dir = directory();
        struct hf_log *log = three(dir, level);
        CHECK_EQ(kit_names(dir, "spare"), 1);
        CHECK(room(dir) > FIRST);
        CHECK_EQ(hf_log_rest(log, 1), HF_OK); /* what was appended is published, too */
        CHECK_EQ(kit_names(dir, "spare"), 0);
        CHECK(room(dir) <= USED_MAX);
        CHECK_EQ(head_bytes(dir), PAGE);
        expect_all(dir, 3);
        log = kit_open(dir, config_of(level));
        CHECK_EQ(head_bytes(dir), 3 * PAGE);
        CHECK_EQ(kit_info(log).next_sqn, 3);
        CHECK_EQ(kit_info(log).cut_bytes, 0);
        CHECK_EQ(kit_info(log).unsure, 0);
        CHECK_EQ(kit_info(log).incarnation, 1);
        CHECK_EQ(hf_log_rest(log, 1), HF_OK); /* again: nothing was new */
        CHECK(room(dir) <= USED_MAX);
        log = kit_open(dir, config_of(level));
        CHECK_EQ(hf_log_begin(log, 2, 3), HF_OK);
        kit_append(log, 3, 5, 100, 1);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        CHECK_EQ(kit_info(log).segments, 2);
        struct hf_logr *r = kit_reader(dir);
        kit_expect(r, 0, 8, 1);
        hf_logr_close(r);
        CHECK_EQ(hf_log_rest(log, 1), HF_OK);
        CHECK(room(dir) <= USED_MAX + 2 * PAGE);
        expect_all(dir, 8);
        close(dir);
    }
}

/* An index of one entry says nothing; one of more does. */
static void the_index_of_a_larger_log_stays(void)
{
    enum { COUNT = 200, BYTES = 1000 };
    int dir = directory();
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, COUNT, BYTES, 1);
    CHECK_EQ(hf_log_rest(log, 1), HF_OK);
    struct hf_seg *segs = NULL;
    CHECK_EQ(hf_seg_list(dir, NULL, &segs), 1);
    CHECK(segs[0].seal.index_count > 2);
    CHECK_EQ(hf_seg_open(dir, &segs[0]), HF_OK);
    struct hf_index_entry entries[FIRST / HF_INDEX_STEP];
    CHECK_EQ(hf_seg_index(&segs[0], entries, FIRST / HF_INDEX_STEP), segs[0].seal.index_count);
    CHECK_EQ(entries[0].sqn, 0);
    CHECK_EQ(entries[0].offset, 2 * PAGE + HF_CONTROL_ROOM);
    CHECK(entries[1].offset >= HF_INDEX_STEP && entries[1].sqn > 0);
    CHECK_EQ(segs[0].seal.index_crc, hf_crc32c_table(0, (const uint8_t *)entries, 16 * segs[0].seal.index_count));
    hf_seg_list_free(segs, 1);
    expect_all(dir, COUNT);
    close(dir);
}

/* Who has the files open reads on, and meets what comes later. */
static void a_reader_goes_on_through_rest_and_next_life(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        uint8_t buf[4096];
        uint64_t next;
        struct hf_begin begins[HF_INCARNATIONS];
        int dir = directory();
        struct hf_log *log = three(dir, level);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        struct hf_logr *r = kit_reader(dir), *idle = kit_reader(dir);
        kit_expect(r, 0, 3, 1);
        CHECK_EQ(hf_logr_read(r, 3, buf, sizeof buf, &next), HF_AGAIN);
        CHECK_EQ(hf_log_rest(log, 1), HF_OK);
        CHECK_EQ(hf_logr_read(r, 3, buf, sizeof buf, &next), HF_AGAIN);
        kit_expect(r, 0, 3, 1);
        CHECK_EQ(hf_logr_begins(idle, begins), 1);
        log = kit_open(dir, config_of(level));
        CHECK_EQ(hf_log_begin(log, 2, 3), HF_OK);
        kit_append(log, 3, 5, 100, 1);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        kit_expect(r, 3, 8, 1);
        CHECK_EQ(hf_log_rest(log, 1), HF_OK);
        CHECK_EQ(hf_logr_begins(idle, begins), 2);
        kit_expect(idle, 0, 8, 1);
        hf_logr_close(r);
        hf_logr_close(idle);
        close(dir);
    }
}

static void a_log_without_a_message_rests_too(void)
{
    int dir = directory();
    CHECK_EQ(hf_log_rest(kit_open(dir, config_of(HF_LEVEL_DISK)), 1), HF_OK);
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK));
    CHECK_EQ(hf_log_begin(log, 1, 40), HF_OK);
    CHECK_EQ(hf_log_rest(log, 1), HF_OK);
    log = kit_open(dir, config_of(HF_LEVEL_DISK));
    kit_append(log, 40, 2, 100, 1);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(kit_info(log).next_sqn, 42);
    hf_log_close(log);
    close(dir);
}

static void messages_that_a_begin_made_void_stay_void(void)
{
    int dir = directory();
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 5, 100, 1);
    CHECK_EQ(hf_log_begin(log, 2, 2), HF_OK); /* the active segment takes nothing more, and is not sealed yet */
    CHECK_EQ(hf_log_rest(log, 1), HF_OK);
    expect_all(dir, 2);
    log = kit_open(dir, config_of(HF_LEVEL_DISK));
    CHECK_EQ(kit_info(log).next_sqn, 2);
    kit_append(log, 2, 3, 100, 2);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 2, 1);
    kit_expect(r, 2, 5, 2);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

/* ---- a store that dies over it ---- */

struct death {
    int dir;
    uint32_t level;
    const char *at;
};

static void rest_and_die(void *argument)
{
    const struct death *d = argument;
    struct hf_log *log = three(d->dir, d->level);
    hf_failpoint_arm(d->at);
    hf_log_rest(log, 1);
}

static void open_and_die(void *argument)
{
    const struct death *d = argument;
    hf_failpoint_arm(d->at);
    hf_log_close(kit_open(d->dir, config_of(d->level)));
}

static void a_store_that_dies_over_it_loses_nothing(void)
{
    static const char *const points[] = {"rest.sealed=kill", "rest.unspared=kill", "head.written=kill",
                                         "head.renamed=kill", "rest.settled=kill"};
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
            if (level == HF_LEVEL_DISK && strcmp(points[i], "rest.settled=kill") == 0) {
                continue; /* there is nothing left to be synced */
            }
            struct death d = {directory(), level, points[i]};
            check_killed(check_fork(rest_and_die, &d), SIGKILL);
            expect_all(d.dir, 3);
            CHECK_EQ(head_bytes(d.dir), i == 3 ? PAGE : 3 * PAGE);
            struct hf_log *log = kit_open(d.dir, config_of(level));
            CHECK_EQ(kit_info(log).next_sqn, 3);
            CHECK_EQ(kit_info(log).cut_bytes, 0);
            CHECK_EQ(hf_log_rest(log, 1), HF_OK);
            CHECK(room(d.dir) <= USED_MAX);
            expect_all(d.dir, 3);
            close(d.dir);
        }
    }
}

static void a_store_that_dies_as_it_opens_it_loses_nothing(void)
{
    static const char *const points[] = {"head.written=kill", "head.renamed=kill", "head.synced=kill", "open.cut=kill"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        struct death d = {directory(), HF_LEVEL_DISK, points[i]};
        CHECK_EQ(hf_log_rest(three(d.dir, d.level), 1), HF_OK);
        check_killed(check_fork(open_and_die, &d), SIGKILL);
        expect_all(d.dir, 3);
        struct hf_log *log = kit_open(d.dir, config_of(d.level));
        CHECK_EQ(kit_info(log).unsure, 0);
        CHECK_EQ(hf_log_begin(log, 2, 3), HF_OK);
        kit_append(log, 3, 5, 100, 1);
        CHECK_EQ(hf_log_rest(log, 1), HF_OK);
        expect_all(d.dir, 8);
        close(d.dir);
    }
}

/* ---- what the system refuses ---- */

/* A full disk leaves the head as large as it was; a log at rest needs room to be opened again, and none to be read. */
static void a_full_disk_is_said_and_loses_nothing(void)
{
    int dir = directory();
    struct hf_log *log = three(dir, HF_LEVEL_DISK);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_failpoint_arm("log.fallocate=errno:ENOSPC");
    CHECK_EQ(hf_log_rest(log, 1), HF_OK);
    CHECK_EQ(head_bytes(dir), 3 * PAGE);
    CHECK_EQ(kit_names(dir, "head-new"), 0);
    expect_all(dir, 3);
    hf_failpoint_arm("");
    CHECK_EQ(hf_log_rest(kit_open(dir, config_of(HF_LEVEL_DISK)), 1), HF_OK);
    CHECK_EQ(head_bytes(dir), PAGE);
    hf_failpoint_arm("log.fallocate=errno:ENOSPC");
    struct hf_log_config config = config_of(HF_LEVEL_DISK);
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_ERRNO - ENOSPC);
    expect_all(dir, 3);
    hf_failpoint_arm("");
    CHECK_EQ(head_bytes(dir), PAGE);
    CHECK_EQ(hf_log_rest(kit_open(dir, config), 1), HF_OK);
    expect_all(dir, 3);
    close(dir);
}

static void a_poisoned_log_keeps_its_head(void)
{
    int dir = directory();
    struct hf_log *log = three(dir, HF_LEVEL_DISK);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_log_distrust(dir);
    CHECK_EQ(hf_log_rest(log, 1), HF_POISONED);
    CHECK_EQ(head_bytes(dir), 3 * PAGE);
    int own = openat(dir, "head", O_RDONLY | O_CLOEXEC);
    CHECK_EQ(hf_head_rest(dir, own), HF_USAGE);
    close(own);
    CHECK_EQ(hf_log_rest(kit_open(dir, config_of(HF_LEVEL_DISK)), 1), HF_OK);
    expect_all(dir, 3);
    close(dir);
}

/* What is acknowledged from memory, and the disk does not take: the head does not call it durable. */
static void a_disk_that_takes_nothing_is_said_and_loses_nothing(void)
{
    static const char *const syncs[] = {"log.fdatasync=errno:EIO", "log.fsync=errno:EIO"};
    for (size_t i = 0; i < sizeof syncs / sizeof syncs[0]; i++) {
        int dir = directory();
        struct hf_log *log = three(dir, HF_LEVEL_MEMORY);
        struct hf_head head;
        int fd;
        hf_failpoint_arm(syncs[i]);
        CHECK_EQ(hf_log_rest(log, 1), HF_POISONED);
        hf_failpoint_arm("");
        CHECK_EQ(hf_head_open(dir, &fd, &head), HF_OK);
        close(fd);
        CHECK_EQ(head.level, HF_LEVEL_MEMORY);
        log = kit_open(dir, config_of(HF_LEVEL_MEMORY));
        kit_append(log, 3, 5, 100, 1);
        CHECK_EQ(hf_log_rest(log, 1), HF_OK);
        expect_all(dir, 8);
        close(dir);
    }
}

int main(void)
{
    root = kit_directory();
    RUN(it_keeps_its_messages_and_no_room_for_more);
    RUN(the_index_of_a_larger_log_stays);
    RUN(a_reader_goes_on_through_rest_and_next_life);
    RUN(a_log_without_a_message_rests_too);
    RUN(messages_that_a_begin_made_void_stay_void);
    RUN(a_store_that_dies_over_it_loses_nothing);
    RUN(a_store_that_dies_as_it_opens_it_loses_nothing);
    RUN(a_full_disk_is_said_and_loses_nothing);
    RUN(a_poisoned_log_keeps_its_head);
    RUN(a_disk_that_takes_nothing_is_said_and_loses_nothing);
    return 0;
}
