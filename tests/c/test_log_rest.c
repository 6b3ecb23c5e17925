/* A log that is closed for long: hf_log_rest. */
#include <sys/stat.h>

#include "base/failpoint.h"
#include "log_kit.h"

enum { FIRST = 1 << 20, MAX = 1 << 21, USED_MAX = 32768 };

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

static void it_keeps_its_messages_and_no_room_for_more(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        int dir = directory();
        struct hf_log *log = kit_open(dir, kit_config(level, FIRST, MAX, 0));
        CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
        kit_append(log, 0, 3, 100, 1);
        CHECK_EQ(hf_log_prepare(log), 1);
        CHECK_EQ(kit_names(dir, "spare"), 1);
        CHECK(room(dir) > FIRST);
        CHECK_EQ(hf_log_rest(log), HF_OK); /* what was appended is published, too */
        CHECK_EQ(kit_names(dir, "spare"), 0);
        CHECK(room(dir) <= USED_MAX);
        struct hf_logr *r = kit_reader(dir);
        kit_expect(r, 0, 3, 1);
        CHECK_EQ(hf_log_rest(log), HF_OK); /* again: nothing */
        hf_log_close(log);
        uint64_t next = 0;
        CHECK_EQ(hf_logr_end(r, &next), HF_OK);
        CHECK_EQ(next, 3);
        kit_expect(r, 0, 3, 1);
        hf_logr_close(r);
        CHECK_EQ(kit_findings(dir, &(struct hf_check_summary){0}), 0);
        log = kit_open(dir, kit_config(level, FIRST, MAX, 0));
        CHECK_EQ(kit_info(log).next_sqn, 3);
        CHECK_EQ(kit_info(log).cut_bytes, 0);
        CHECK_EQ(hf_log_begin(log, 2, 3), HF_OK);
        kit_append(log, 3, 5, 100, 1);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        r = kit_reader(dir);
        kit_expect(r, 0, 8, 1);
        hf_logr_close(r);
        hf_log_close(log);
        close(dir);
    }
}

/* Nobody does this; but a log at rest is still a log. */
static void what_comes_after_goes_into_a_new_segment(void)
{
    int dir = directory();
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FIRST, MAX, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 3, 100, 1);
    CHECK_EQ(hf_log_rest(log), HF_OK);
    kit_append(log, 3, 3, 100, 1);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(kit_info(log).segments, 2);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 6, 1);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void a_log_without_a_message_rests_too(void)
{
    int dir = directory();
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FIRST, MAX, 0));
    CHECK_EQ(hf_log_rest(log), HF_OK);
    CHECK_EQ(hf_log_begin(log, 1, 40), HF_OK);
    CHECK_EQ(hf_log_rest(log), HF_OK);
    hf_log_close(log);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, FIRST, MAX, 0));
    kit_append(log, 40, 2, 100, 1);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(kit_info(log).next_sqn, 42);
    hf_log_close(log);
    close(dir);
}

static void messages_that_a_begin_made_void_stay_void(void)
{
    int dir = directory();
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FIRST, MAX, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 5, 100, 1);
    CHECK_EQ(hf_log_begin(log, 2, 2), HF_OK); /* the active segment takes nothing more, and is not sealed yet */
    CHECK_EQ(hf_log_rest(log), HF_OK);
    CHECK_EQ(kit_info(log).next_sqn, 2);
    hf_log_close(log);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, FIRST, MAX, 0));
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

static void rest_and_die(void *argument)
{
    struct hf_log *log = kit_open(*(int *)argument, kit_config(HF_LEVEL_DISK, FIRST, MAX, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 3, 100, 1);
    CHECK_EQ(hf_log_prepare(log), 1);
    hf_failpoint_arm("rest.sealed=kill");
    hf_log_rest(log);
}

static void a_store_that_dies_over_it_loses_nothing(void)
{
    int dir = directory();
    check_killed(check_fork(rest_and_die, &dir), SIGKILL);
    struct hf_logr *r = kit_reader(dir);
    uint64_t next = 0;
    CHECK_EQ(hf_logr_end(r, &next), HF_OK);
    CHECK_EQ(next, 3);
    kit_expect(r, 0, 3, 1);
    hf_logr_close(r);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FIRST, MAX, 0));
    CHECK_EQ(kit_info(log).next_sqn, 3);
    CHECK_EQ(kit_info(log).cut_bytes, 0);
    CHECK_EQ(hf_log_rest(log), HF_OK);
    hf_log_close(log);
    CHECK(room(dir) <= USED_MAX);
    CHECK_EQ(kit_findings(dir, &(struct hf_check_summary){0}), 0);
    close(dir);
}

int main(void)
{
    root = kit_directory();
    RUN(it_keeps_its_messages_and_no_room_for_more);
    RUN(what_comes_after_goes_into_a_new_segment);
    RUN(a_log_without_a_message_rests_too);
    RUN(messages_that_a_begin_made_void_stay_void);
    RUN(a_store_that_dies_over_it_loses_nothing);
    return 0;
}
