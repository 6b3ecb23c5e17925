/* Fills that are damaged, cut, half made, or made while somebody reads: nobody ever gets wrong bytes from one. */
#include "base/failpoint.h"
#include "fill_kit.h"

#include <sys/stat.h>

#include <pthread.h>

static void no_flipped_bit_of_a_fill_delivers_wrong_bytes(void)
{
    enum { SOME = FIRST + 4 };
    int dir = build("a", END);
    damage(dir, FIRST, SOME);
    fill(dir, 1, FIRST, SOME);
    char name[64];
    snprintf(name, sizeof name, "fill-%016x-%016x", FIRST, SOME);
    struct hf_logr *r = kit_reader(dir);
    for (uint64_t offset = 0; offset < 4096 + (SOME - FIRST) * 160; offset++) {
        int used = offset < sizeof(struct hf_fill_header) || offset >= 4096;
        for (int bit = 0; bit < (used ? 8 : 1) && (used || offset % 7 == 0); bit++) { /* where nothing is, some */
            flip(dir, name, offset, (uint8_t)(1 << bit));
            uint64_t at = FIRST, next, lost = 0;
            while (at < SOME) {
                int64_t n = read_at(r, at, &next); /* verifies the content */
                CHECK(n > 0 || n == HF_DAMAGED);
                CHECK(next > at);
                lost += n > 0 ? 0 : next - at;
                at = next;
            }
            CHECK_EQ(lost, offset < 4096 ? SOME - FIRST : 1);
            CHECK(findings(dir) >= 1);
            flip(dir, name, offset, (uint8_t)(1 << bit));
        }
    }
    kit_expect(r, 0, END, 0);
    hf_logr_close(r);
    done(dir, "a");
}

static void a_fill_that_is_cut_anywhere_is_not_read(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    for (int64_t bytes = 4096 + 20 * 160 - 1; bytes > 0; bytes -= bytes > 4200 ? 97 : 511) {
        fill(dir, 1, FIRST, NEXT);
        char name[64];
        snprintf(name, sizeof name, "fill-%016x-%016x", FIRST, NEXT);
        int f = openat(dir, name, O_RDWR);
        CHECK(ftruncate(f, bytes) == 0);
        close(f);
        struct hf_logr *r = kit_reader(dir);
        uint64_t next;
        CHECK_EQ(read_at(r, FIRST, &next), HF_DAMAGED);
        hf_logr_close(r);
    }
    done(dir, "a");
}

struct victim {
    int dir;
    const char *point;
};

static void make_and_die(void *argument)
{
    const struct victim *v = argument;
    hf_failpoint_arm(v->point);
    fill(v->dir, 1, FIRST, NEXT);
}

static void a_kill_leaves_a_whole_fill_or_none(void)
{
    static const char *const points[] = {"fill.appended=kill", "fill.written=kill", "fill.synced=kill",
                                         "fill.renamed=kill"};
    for (int i = 0; i < 4; i++) {
        int dir = build("a", END);
        damage(dir, FIRST, NEXT);
        struct victim v = {dir, points[i]};
        check_killed(check_fork(make_and_die, &v), SIGKILL);
        CHECK_EQ(kit_names(dir, "fill-new"), i < 3);
        struct hf_logr *r = kit_reader(dir);
        uint64_t next;
        if (i < 3) {
            CHECK_EQ(read_at(r, FIRST, &next), HF_DAMAGED);
        } else {
            kit_expect(r, 0, END, 0);
        }
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
        CHECK_EQ(kit_names(dir, "fill-new"), 0);
        hf_log_close(log);
        fill(dir, 1, FIRST, NEXT);
        kit_expect(r, 0, END, 0);
        hf_logr_close(r);
        done(dir, "a");
    }
}

static void what_cannot_be_synced_is_not_shown(void)
{
    static const char *const points[] = {"log.fdatasync=errno:EIO", "log.pwrite=errno:ENOSPC@2", "log.fsync=errno:EIO"};
    int dir = build("a", END);
    for (int i = 0; i < 3; i++) {
        static uint8_t block[KIT_BUFFER];
        uint64_t next = 0;
        hf_failpoint_arm(points[i]);
        struct hf_fill *f = begin_fill(dir, 1, FIRST, NEXT);
        CHECK(hf_fill_append(f, block, kit_block(block, FIRST, NEXT - FIRST, PAYLOAD, 0), &next) > 0);
        CHECK_EQ(hf_fill_commit(f), HF_ERRNO - (i == 1 ? ENOSPC : EIO));
        CHECK_EQ(kit_names(dir, "fill-"), i == 2); /* the next open copies it */
        struct hf_head head;
        int fd = openat(dir, "head", O_RDONLY);
        CHECK_EQ(read(fd, &head, sizeof head), sizeof head);
        CHECK_EQ(head.poisoned != 0, i == 2); /* the log's names may be in doubt, too */
        close(fd);
    }
    hf_failpoint_arm(NULL);
    struct stat before, after;
    char name[64];
    snprintf(name, sizeof name, "fill-%016x-%016x", FIRST, NEXT);
    CHECK_EQ(fstatat(dir, name, &before, 0), 0);
    hf_log_close(kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0)));
    CHECK_EQ(fstatat(dir, name, &after, 0), 0);
    CHECK(before.st_ino != after.st_ino);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.fills, 1);
    done(dir, "a");
}

/* One thread mends, another one reads all the time: it sees damage or the messages, nothing else. */
static void *mend(void *argument)
{
    static uint8_t block[KIT_BUFFER];
    int dir = *(int *)argument;
    for (uint64_t sqn = FIRST; sqn < NEXT; sqn += 2) {
        struct hf_fill *f = begin_fill(dir, 1, sqn, sqn + 2);
        uint64_t next = 0;
        CHECK(hf_fill_append(f, block, kit_block(block, sqn, 2, PAYLOAD, 0), &next) > 0);
        CHECK_EQ(hf_fill_commit(f), HF_OK);
    }
    return NULL;
}

static void readers_and_a_mender_do_not_disturb_each_other(void)
{
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    struct hf_logr *r = kit_reader(dir);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, mend, &dir) == 0);
    for (uint64_t lost = 1; lost > 0;) {
        lost = 0;
        for (uint64_t at = 0, next; at < END; at = next) {
            int64_t n = read_at(r, at, &next);
            CHECK(n > 0 || n == HF_DAMAGED);
            lost += n > 0 ? 0 : next - at;
        }
    }
    CHECK(pthread_join(thread, NULL) == 0);
    hf_logr_close(r);
    done(dir, "a");
}

static void use_in_a_child(void *argument)
{
    static uint8_t block[KIT_BUFFER];
    uint64_t next;
    CHECK_EQ(hf_fill_append(argument, block, 160, &next), HF_FORKED);
    CHECK_EQ(hf_fill_commit(argument), HF_FORKED);
    hf_fill_abort(argument);
}

static void a_forked_child_may_not_use_it_and_takes_nothing_away(void)
{
    static uint8_t block[KIT_BUFFER];
    uint64_t next;
    int dir = build("a", END);
    damage(dir, FIRST, NEXT);
    struct hf_fill *f = begin_fill(dir, 1, FIRST, NEXT);
    check_exited(check_fork(use_in_a_child, f));
    CHECK(hf_fill_append(f, block, kit_block(block, FIRST, NEXT - FIRST, PAYLOAD, 0), &next) > 0);
    CHECK_EQ(hf_fill_commit(f), HF_OK);
    CHECK_EQ(findings(dir), 0);
    done(dir, "a");
}

int main(void)
{
    root = kit_directory();
    RUN(no_flipped_bit_of_a_fill_delivers_wrong_bytes);
    RUN(a_fill_that_is_cut_anywhere_is_not_read);
    RUN(a_kill_leaves_a_whole_fill_or_none);
    RUN(what_cannot_be_synced_is_not_shown);
    RUN(readers_and_a_mender_do_not_disturb_each_other);
    RUN(a_forked_child_may_not_use_it_and_takes_nothing_away);
    return 0;
}
