/* Readers walk to the end of a log while a store of an earlier version, which does not say that it keeps it, writes: what they find
 * was true at some time. */
#include <fcntl.h>

#include "log/writer.h"
#include "log_kit.h"

enum { SEGMENT = 32768, PAYLOAD = 200 };

static int root;

struct writing {
    int dir;
    volatile uint64_t stable, appended, stop;
};

/* A store of an earlier version takes no lock. It rolls, retires and recycles while others walk. */
static void write_unlocked(void *argument)
{
    struct writing *w = argument;
    struct hf_log *log = kit_open(w->dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, (uint64_t)6 * SEGMENT));
    struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    CHECK_EQ(fcntl(log->head_fd, F_OFD_SETLK, &none), 0);
    for (uint64_t sqn = 0; !w->stop; sqn++) {
        __atomic_store_n(&w->appended, sqn + 1, __ATOMIC_SEQ_CST);
        kit_append(log, sqn, 1, PAYLOAD, 0);
        if (sqn % 3 == 0) {
            CHECK_EQ(hf_log_sync(log), HF_OK);
            __atomic_store_n(&w->stable, sqn + 1, __ATOMIC_SEQ_CST);
        }
        if (sqn % 16 == 0) {
            CHECK(hf_log_prepare(log) >= 0);
        }
    }
    hf_log_close(log);
}

static void beside_a_writer_the_end_was_true_at_some_time(void)
{
    struct writing *w = check_shared(sizeof *w);
    w->dir = kit_subdirectory(root, "log");
    hf_log_close(kit_open(w->dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0)));
    pid_t writer = check_fork(write_unlocked, w);
    uint64_t walked = 0;
    for (int looks = 0; looks < 3000 || w->stable < 5000; looks++) {
        struct hf_logr *r = kit_reader(w->dir);
        uint64_t next, least = __atomic_load_n(&w->stable, __ATOMIC_SEQ_CST);
        int64_t status = hf_logr_end(r, &next);
        CHECK(status == HF_OK || status == HF_AGAIN);
        CHECK(next >= least);
        CHECK(next <= __atomic_load_n(&w->appended, __ATOMIC_SEQ_CST));
        walked += status == HF_OK && next > least;
        hf_logr_close(r);
    }
    CHECK(walked > 0);
    w->stop = 1;
    CHECK_EQ(check_wait(writer), 0);
    close(w->dir);
    kit_empty(root, "log");
}

/* A store publishes `end`, then next_sqn. What it stands still between is not given: who has it would see the log end before it. */
static void what_is_not_published_is_not_given(void)
{
    enum { BEFORE = 40, AFTER = 59 };
    static uint8_t buf[KIT_BUFFER];
    const uint64_t told = BEFORE;
    uint64_t oldest, next;
    int dir = kit_subdirectory(root, "log");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, AFTER, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    int head = openat(dir, "head", O_WRONLY);
    CHECK_EQ(pwrite(head, &told, sizeof told, offsetof(struct hf_head, next_sqn)), sizeof told);
    close(head);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, BEFORE, 0);
    CHECK_EQ(hf_logr_read(r, BEFORE, buf, sizeof buf, &next), HF_AGAIN);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    CHECK_EQ(next, BEFORE);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
    kit_empty(root, "log");
}

int main(void)
{
    root = kit_directory();
    RUN(beside_a_writer_the_end_was_true_at_some_time);
    RUN(what_is_not_published_is_not_given);
    return 0;
}
