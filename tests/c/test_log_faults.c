/* What the log refuses: malformed blocks, a failed sync, a full disk, another source's directory, a forked child. */
#include "base/failpoint.h"
#include "base/sync.h"
#include "log_kit.h"

#include <sys/stat.h>

static int root;

static int fresh(const char *name)
{
    return kit_subdirectory(root, name);
}

static void malformed_blocks_are_refused_and_leave_no_trace(void)
{
    int dir = fresh("malformed");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 0, 0, 0));
    static uint8_t block[KIT_BUFFER];
    kit_append(log, 0, 5, 64, 0);
    struct hf_log_info before = kit_info(log);
    struct hf_frame *f = (void *)block;
    uint64_t bytes = kit_block(block, 4, 2, 64, 0);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_USAGE); /* a number that is there already */
    kit_block(block, 6, 2, 64, 0);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_USAGE); /* a gap that nobody declared */
    CHECK_EQ(hf_log_append(log, block, bytes - 1), HF_USAGE);
    CHECK_EQ(hf_log_append(log, block, 0), HF_USAGE);
    const uint32_t lengths[] = {0, 31, 97 + 200, UINT32_MAX, UINT32_MAX - 30, UINT32_MAX - 31, 1u << 31};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        kit_block(block, 5, 2, 64, 0);
        f->commit = (f->commit & ~UINT64_C(0xFFFFFFFF)) | lengths[i];
        CHECK_EQ(hf_log_append(log, block, bytes), HF_DAMAGED);
    }
    kit_block(block, 5, 2, 64, 0);
    f->flags = HF_FRAME_FIRST;
    CHECK_EQ(hf_log_append(log, block, bytes), HF_DAMAGED); /* the second frame starts a message inside one */
    kit_block(block, 5, 2, 64, 0);
    f->flags = HF_FRAME_CONTROL | HF_FRAME_FIRST | HF_FRAME_LAST;
    CHECK_EQ(hf_log_append(log, block, bytes), HF_DAMAGED);
    uint64_t half = kit_message(block, 5, 3, 64, 0) / 3 * 2;
    CHECK_EQ(hf_log_append(log, block, half), HF_DAMAGED); /* not a whole message */
    CHECK_EQ(kit_info(log).end, before.end);
    kit_append(log, 5, 5, 64, 0);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 10, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static ino_t inode(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, 0) == 0 ? st.st_ino : 0;
}

static void the_first_sync_error_poisons_until_all_is_written_once_more(void)
{
    int dir = fresh("poison");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 0, 0, 0));
    struct hf_logr *r = kit_reader(dir);
    static uint8_t block[KIT_BUFFER];
    kit_append(log, 0, 5, 64, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_append(log, 5, 5, 64, 0);
    hf_failpoint_arm("log.fdatasync=errno:EIO@1");
    CHECK_EQ(hf_log_sync(log), HF_POISONED);
    CHECK_EQ(hf_log_sync(log), HF_POISONED); /* though the next one would return 0 */
    uint64_t bytes = kit_block(block, 10, 1, 64, 0);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_POISONED);
    CHECK_EQ(hf_log_begin(log, 9, 9), HF_POISONED);
    CHECK_EQ(hf_log_roll(log), HF_POISONED);
    CHECK_EQ(kit_info(log).next_sqn, 5);
    kit_expect(r, 0, 5, 0); /* what was published stays readable */
    hf_log_close(log);
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, 0, 0, 0);
    const ino_t before = inode(dir, "seg-0000000000000000");
    for (int level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        config.level = (uint32_t)level;
        hf_failpoint_arm("log.fdatasync=errno:EIO@1"); /* of the copy */
        CHECK_EQ(hf_log_open(dir, &config, &log), HF_POISONED);
        CHECK_EQ(inode(dir, "seg-0000000000000000"), before);
        kit_expect(r, 0, 5, 0);
    }
    hf_failpoint_arm(NULL);
    log = kit_open(dir, config);
    CHECK(inode(dir, "seg-0000000000000000") != before);
    CHECK_EQ(kit_info(log).next_sqn, 10);
    CHECK_EQ(kit_names(dir, "copy-new"), 0);
    kit_append(log, 10, 5, 64, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_expect(r, 0, 15, 0);
    hf_logr_close(r);
    hf_log_close(log);
    const ino_t after = inode(dir, "seg-0000000000000000");
    hf_log_close(kit_open(dir, config)); /* it is over */
    CHECK_EQ(inode(dir, "seg-0000000000000000"), after);
    close(dir);
}

/* Whoever syncs the directory on another thread: the next group commit does not believe its own sync of the same names. */
static void a_failed_sync_of_names_poisons_whoever_asked(void)
{
    for (int helper = 0; helper < 3; helper++) {
        int dir = fresh("names");
        struct hf_log_config config = kit_config(HF_LEVEL_DISK, 16384, 16384, 3 * 16384);
        struct hf_log *log = kit_open(dir, config);
        while (kit_names(dir, "spare") == 0) { /* until a segment is retired */
            kit_append(log, kit_info(log).appended_sqn, 1, 1000, 0);
            CHECK_EQ(hf_log_sync(log), HF_OK);
        }
        const uint64_t stable = kit_info(log).next_sqn;
        hf_failpoint_arm("log.fsync=errno:EIO@1");
        if (helper == 0) {
            CHECK_EQ(hf_log_prepare(log), HF_POISONED);
        } else if (helper == 1) {
            CHECK_EQ(hf_log_roll(log), HF_POISONED);
        } else {
            hf_log_distrust(dir);
        }
        hf_failpoint_arm(NULL);
        CHECK_EQ(hf_log_prepare(log), HF_POISONED);
        CHECK_EQ(hf_log_sync(log), HF_POISONED);
        hf_log_close(log);
        log = kit_open(dir, config);
        CHECK_EQ(kit_names(dir, "spare"), 0);
        CHECK_EQ(kit_info(log).next_sqn, stable);
        hf_log_close(log);
        close(dir);
        kit_empty(root, "names");
    }
}

/* A doubt holds where the head has lost its flag, while the boot lasts; unknown is not none. */
static void a_doubt_counts_in_its_boot(void)
{
    static const char *const boots[] = {"", "another boot,not", "too short"};
    int dir = fresh("doubted");
    char doubt[80];
    snprintf(doubt, sizeof doubt, "/proc/self/fd/%d/doubt", root);
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, 0, 0, 0);
    config.doubt = doubt;
    struct hf_log *log = kit_open(dir, config);
    kit_append(log, 0, 5, 64, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_append(log, 5, 5, 64, 0);
    CHECK_EQ(hf_doubt_get(doubt), 0);
    hf_failpoint_arm("log.fdatasync=errno:EIO@1");
    CHECK_EQ(hf_log_sync(log), HF_POISONED);
    hf_failpoint_arm(NULL);
    CHECK_EQ(hf_doubt_get(doubt), 1);
    hf_log_close(log);
    for (int i = 0; i < 3; i++) {
        const uint64_t none = 0;
        int fd = openat(dir, "head", O_WRONLY);
        CHECK_EQ(pwrite(fd, &none, sizeof none, offsetof(struct hf_head, poisoned)), sizeof none);
        close(fd);
        if (i > 0) {
            fd = open(doubt, O_WRONLY | O_CREAT, 0600);
            CHECK_EQ(write(fd, boots[i], strlen(boots[i])), strlen(boots[i]));
            close(fd);
        }
        const ino_t before = inode(dir, "seg-0000000000000000");
        hf_log_close(kit_open(dir, config));
        CHECK_EQ(inode(dir, "seg-0000000000000000") != before, i != 1);
        CHECK_EQ(hf_doubt_get(doubt), 0);
        unlink(doubt);
    }
    CHECK_EQ(symlink("nowhere", doubt), 0);
    CHECK_EQ(hf_doubt_get(doubt), HF_ERRNO - ELOOP);
    CHECK_EQ(hf_doubt_set(doubt), HF_ERRNO - ELOOP);
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_ERRNO - ELOOP);
    hf_doubt_clear(doubt);
    close(dir);
}

/* What an earlier boot could not sync is not there any more, or on the disk. */
static void a_flag_of_another_boot_is_over(void)
{
    static const uint64_t flags[] = {1, 0x1234567812345678};
    int dir = fresh("reboot");
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, 0, 0, 0);
    hf_log_close(kit_open(dir, config));
    for (int i = 0; i < 2; i++) {
        struct hf_log *log = kit_open(dir, config);
        kit_append(log, kit_info(log).appended_sqn, 5, 64, 0);
        hf_log_close(log);
        const ino_t before = inode(dir, "seg-0000000000000000");
        int fd = openat(dir, "head", O_WRONLY);
        CHECK_EQ(pwrite(fd, &flags[i], sizeof flags[i], offsetof(struct hf_head, poisoned)), sizeof flags[i]);
        close(fd);
        log = kit_open(dir, config);
        CHECK_EQ(kit_info(log).next_sqn, 5 * (uint64_t)(i + 1));
        CHECK_EQ(inode(dir, "seg-0000000000000000") != before, i == 0);
        kit_append(log, kit_info(log).appended_sqn, 0, 64, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        hf_log_close(log);
    }
    close(dir);
}

struct victim {
    int dir;
    const char *point;
};

static void open_and_die(void *argument)
{
    const struct victim *v = argument;
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, 0, 0, 0);
    struct hf_log *log;
    hf_failpoint_arm(v->point);
    hf_log_open(v->dir, &config, &log);
}

static void a_renewal_that_is_killed_begins_again(void)
{
    static const char *const points[] = {"renew.copied=kill", "renew.renamed=kill", "renew.synced=kill"};
    for (int i = 0; i < 3; i++) {
        int dir = fresh("renewal");
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 0, 0, 0));
        kit_append(log, 0, 5, 64, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        hf_log_distrust(dir);
        hf_log_close(log);
        struct victim v = {dir, points[i]};
        check_killed(check_fork(open_and_die, &v), SIGKILL);
        const ino_t before = inode(dir, "seg-0000000000000000");
        log = kit_open(dir, kit_config(HF_LEVEL_DISK, 0, 0, 0));
        CHECK(inode(dir, "seg-0000000000000000") != before);
        CHECK_EQ(kit_names(dir, "copy-new"), 0);
        CHECK_EQ(kit_info(log).next_sqn, 5);
        hf_log_close(log);
        close(dir);
        kit_empty(root, "renewal");
    }
}

static void a_head_whose_name_is_in_doubt_is_made_again(void)
{
    int dir = fresh("head");
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, 0, 0, 0);
    struct hf_log *log;
    hf_failpoint_arm("log.fsync=errno:EIO@1");
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_POISONED);
    CHECK_EQ(kit_names(dir, "head"), 0);
    hf_failpoint_arm("log.fdatasync=errno:EIO@1");
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_POISONED);
    CHECK_EQ(kit_names(dir, "head"), 0);
    hf_failpoint_arm(NULL);
    hf_log_close(kit_open(dir, config));
    close(dir);
}

static void a_full_disk_is_an_error_and_appending_resumes_when_it_is_not(void)
{
    int dir = fresh("full");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    static uint8_t block[KIT_BUFFER];
    kit_append(log, 0, 5, 64, 0);
    hf_failpoint_arm("log.fallocate=errno:ENOSPC");
    CHECK_EQ(hf_log_roll(log), HF_ERRNO - ENOSPC);
    CHECK_EQ(hf_log_prepare(log), HF_ERRNO - ENOSPC);
    CHECK_EQ(kit_names(dir, "spare") + kit_names(dir, "roll-new"), 0);
    kit_append(log, 5, 5, 64, 0);                  /* nothing changed: the old segment goes on */
    hf_failpoint_arm("log.pwrite=errno:ENOSPC@2"); /* the SYNC frame is written, the block is not */
    CHECK_EQ(hf_log_sync(log), HF_OK);
    uint64_t bytes = kit_block(block, 10, 1, 64, 0);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_ERRNO - ENOSPC);
    hf_failpoint_arm(NULL);
    bytes = kit_block(block, 10, 1, 64, 0);
    CHECK_EQ(hf_log_append(log, block, bytes), HF_ROLL); /* never again behind half a block */
    kit_append(log, 10, 10, 64, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 20, 0);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void a_log_of_another_source_or_layout_is_refused(void)
{
    int dir = fresh("foreign");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 0, 0, 0));
    hf_log_close(log);
    struct hf_log_config config = kit_config(HF_LEVEL_MEMORY, 0, 0, 0);
    config.uuid[3] ^= 1;
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_DAMAGED);
    config.uuid[3] ^= 1;
    uint32_t version = HF_HEAD_VERSION + 1;
    int fd = openat(dir, "head", O_RDWR);
    CHECK_EQ(pwrite(fd, &version, sizeof version, offsetof(struct hf_preamble, layout_version)), sizeof version);
    close(fd);
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_LAYOUT);
    struct hf_logr *r;
    CHECK_EQ(hf_logr_open(dir, &r), HF_LAYOUT);
    config.level = 9;
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_USAGE);
    close(dir);
}

struct handles {
    struct hf_log *log;
    struct hf_logr *reader;
};

static void child_of_fork(void *handles)
{
    static uint8_t block[KIT_BUFFER];
    struct hf_log *log = ((struct handles *)handles)->log;
    struct hf_logr *r = ((struct handles *)handles)->reader;
    struct hf_begin begins[HF_INCARNATIONS] = {{1, 0}};
    uint64_t a, b;
    CHECK_EQ(hf_log_append(log, block, kit_block(block, 1, 1, 64, 0)), HF_FORKED);
    CHECK_EQ(hf_log_lost(log, 1, 1), HF_FORKED);
    CHECK_EQ(hf_log_begin(log, 1, 1), HF_FORKED);
    CHECK_EQ(hf_log_roll(log), HF_FORKED);
    CHECK_EQ(hf_log_prepare(log), HF_FORKED);
    CHECK_EQ(hf_log_release(log, 1), HF_FORKED);
    CHECK_EQ(hf_log_sync(log), HF_FORKED);
    hf_log_close(log);
    CHECK_EQ(hf_logr_range(r, &a, &b), HF_FORKED);
    CHECK_EQ(hf_logr_read(r, 0, block, sizeof block, &a), HF_FORKED);
    CHECK_EQ(hf_logr_begin(r, &a, &b), HF_FORKED);
    CHECK_EQ(hf_logr_begins(r, begins), HF_FORKED);
    CHECK_EQ(hf_logr_learn(r, begins, 1), HF_FORKED);
    hf_logr_close(r);
}

static void a_forked_child_cannot_touch_its_parents_log(void)
{
    int dir = fresh("forked");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 0, 0, 0));
    kit_append(log, 0, 1, 64, 0);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 1, 0);
    check_exited(check_fork(child_of_fork, &(struct handles){log, r}));
    kit_append(log, 1, 1, 64, 0);
    kit_expect(r, 0, 2, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

/* Position and checksum are each log's own. */
static void equal_messages_of_two_logs_are_equal_bytes_once_they_are_plain(void)
{
    static uint8_t block[2][KIT_BUFFER];
    static const char *const names[] = {"one", "another"};
    int64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        uint8_t uuid[16];
        uint64_t next;
        int dir = fresh(names[i]);
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 0, 0, 0));
        kit_append(log, 0, 3, 50, 0);
        struct hf_logr *r = kit_reader(dir);
        hf_logr_uuid(r, uuid);
        CHECK_EQ(memcmp(uuid, kit_uuid, sizeof uuid), 0);
        bytes = hf_logr_read(r, 0, block[i], KIT_BUFFER, &next);
        CHECK_EQ(next, 3);
        hf_logr_close(r);
        hf_log_close(log);
        close(dir);
    }
    CHECK(memcmp(block[0], block[1], (size_t)bytes) != 0);
    hf_frames_plain(block[0], (uint64_t)bytes);
    hf_frames_plain(block[1], (uint64_t)bytes);
    CHECK_EQ(memcmp(block[0], block[1], (size_t)bytes), 0);
    CHECK_EQ(kit_verify(block[0], bytes, 0, 0), 3);
}

int main(void)
{
    root = kit_directory();
    RUN(malformed_blocks_are_refused_and_leave_no_trace);
    RUN(the_first_sync_error_poisons_until_all_is_written_once_more);
    RUN(a_failed_sync_of_names_poisons_whoever_asked);
    RUN(a_doubt_counts_in_its_boot);
    RUN(a_flag_of_another_boot_is_over);
    RUN(a_renewal_that_is_killed_begins_again);
    RUN(a_head_whose_name_is_in_doubt_is_made_again);
    RUN(a_full_disk_is_an_error_and_appending_resumes_when_it_is_not);
    RUN(a_log_of_another_source_or_layout_is_refused);
    RUN(a_forked_child_cannot_touch_its_parents_log);
    RUN(equal_messages_of_two_logs_are_equal_bytes_once_they_are_plain);
    return 0;
}
