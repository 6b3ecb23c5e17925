/* What a log let go is gone, and what it has lost is damage: at its beginning too, and when nothing is left of it. */
#include "base/failpoint.h"
#include "fill_kit.h"

enum { MESSAGE = 900, COUNT = 200, KEEP = 5 * SEGMENT };

/* Bases and first numbers of the segments that are there. */
struct segments {
    int count;
    uint64_t base[64];
    uint64_t first[64];
};

static struct segments list(int dir)
{
    struct segments found = {0};
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY));
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strncmp(e->d_name, "seg-", 4) != 0) {
            continue;
        }
        struct hf_segment_header h;
        int f = openat(dir, e->d_name, O_RDONLY), i = found.count++;
        CHECK_EQ(pread(f, &h, sizeof h, 0), sizeof h);
        close(f);
        for (; i > 0 && found.base[i - 1] > h.base_position; i--) {
            found.base[i] = found.base[i - 1];
            found.first[i] = found.first[i - 1];
        }
        found.base[i] = h.base_position;
        found.first[i] = h.first_sqn;
    }
    closedir(d);
    return found;
}

static void lose(int dir, uint64_t base)
{
    char name[32];
    snprintf(name, sizeof name, "seg-%016llx", (unsigned long long)base);
    CHECK_EQ(unlinkat(dir, name, 0), 0);
}

static struct hf_log_config config_of(uint32_t level, uint64_t retain)
{
    return kit_config(level, SEGMENT, SEGMENT, retain);
}

/* A closed log with the numbers [start, start + COUNT), less what `retain` bytes let go. Each message synced. */
static int made(const char *name, uint32_t level, uint64_t retain, uint64_t start)
{
    int dir = kit_subdirectory(root, name);
    struct hf_log *log = kit_open(dir, config_of(level, retain));
    CHECK_EQ(hf_log_begin(log, 1, start), HF_OK);
    for (uint64_t sqn = start; sqn < start + COUNT; sqn++) {
        kit_append(log, sqn, 1, MESSAGE, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
    }
    hf_log_close(log);
    return dir;
}

/* Readers and check call [first, next) damaged, and have the rest up to `end`. */
static void expect_lost(int dir, uint64_t first, uint64_t next, uint64_t end)
{
    static uint8_t buf[KIT_BUFFER];
    uint64_t at, oldest;
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_range(r, &oldest, &at), HF_OK);
    CHECK_EQ(oldest, first);
    CHECK_EQ(at, end);
    for (uint64_t sqn = first; sqn < next; sqn += 3) {
        CHECK_EQ(hf_logr_read(r, sqn, buf, sizeof buf, &at), HF_DAMAGED);
        CHECK_EQ(at, next);
    }
    if (first > 0) {
        CHECK_EQ(hf_logr_read(r, first - 1, buf, sizeof buf, &at), HF_GONE);
        CHECK_EQ(at, first);
    }
    kit_expect(r, next, end, 0);
    hf_logr_close(r);
    struct hf_finding found[2];
    struct hf_check_summary sum;
    CHECK_EQ(hf_log_check(dir, found, 2, &sum), first < next);
    if (first < next) {
        CHECK_EQ(found[0].kind, HF_FOUND_GAP);
        CHECK_EQ(found[0].first_sqn, first);
        CHECK_EQ(found[0].next_sqn, next);
    }
}

/* [first, next) comes from a peer that has one message in each block. */
static void refill(int dir, uint64_t first, uint64_t next)
{
    static uint8_t block[KIT_BUFFER];
    struct hf_fill *f = begin_fill(dir, 1, first, next);
    for (uint64_t sqn = first, now = 0; sqn < next; sqn = now) {
        CHECK(hf_fill_append(f, block, kit_block(block, sqn, 1, MESSAGE, 0), &now) > 0);
    }
    CHECK_EQ(hf_fill_commit(f), HF_OK);
}

/* Lives on without [first, next), with it from a fill, and after a restart. */
static void live_on(int dir, uint32_t level, uint64_t first, uint64_t next, uint64_t end)
{
    expect_lost(dir, first, next, end); /* before any store has opened it */
    for (int again = 0; again < 2; again++) {
        struct hf_log *log = kit_open(dir, config_of(level, 0));
        struct hf_log_info info = kit_info(log);
        CHECK_EQ(info.damaged, 1);
        CHECK_EQ(info.oldest_sqn, first);
        CHECK_EQ(info.next_sqn, end);
        CHECK_EQ(info.empty, 0);
        expect_lost(dir, first, next, end);
        kit_append(log, end, 30, MESSAGE, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        end += 30;
        expect_lost(dir, first, next, end);
        hf_log_close(log);
    }
    refill(dir, first, next);
    expect_lost(dir, first, first, end);
    struct hf_log *log = kit_open(dir, config_of(level, 0));
    CHECK_EQ(hf_log_release(log, first + 1), HF_OK); /* what is still wanted of it stays */
    expect_lost(dir, first + 1, first + 1, end);
    hf_log_close(log);
    done(dir, "a");
}

static void a_lost_beginning_is_damage(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        for (int lost = 1; lost < 4; lost++) {
            for (uint64_t retain = 0; retain <= KEEP; retain += KEEP) {
                int dir = made("a", level, retain, 1000);
                struct segments s = list(dir);
                CHECK((s.first[0] > 1000) == (retain > 0));
                for (int i = 0; i < lost; i++) {
                    lose(dir, s.base[i]);
                }
                live_on(dir, level, s.first[0], s.first[lost], 1000 + COUNT);
            }
        }
    }
}

static void a_log_of_which_only_the_head_is_left_knows_what_it_had(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        for (uint64_t retain = 0; retain <= KEEP; retain += KEEP) {
            int dir = made("a", level, retain, UINT64_C(1) << 40);
            struct segments s = list(dir);
            for (int i = 0; i < s.count; i++) {
                lose(dir, s.base[i]);
            }
            live_on(dir, level, s.first[0], (UINT64_C(1) << 40) + COUNT, (UINT64_C(1) << 40) + COUNT);
        }
    }
}

static void a_lost_beginning_is_let_go_with_what_follows_it(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        for (int release = 0; release < 2; release++) {
            int dir = made("a", level, 0, 0);
            struct segments s = list(dir);
            lose(dir, s.base[0]);
            struct hf_log *log = kit_open(dir, config_of(level, release ? 0 : KEEP));
            if (release) {
                CHECK_EQ(hf_log_release(log, s.first[1]), HF_OK); /* no segment goes, and nothing is missed any more */
                expect_lost(dir, s.first[1], s.first[1], COUNT);
            }
            uint64_t end = COUNT;
            for (; kit_info(log).oldest_sqn < s.first[3]; end++) {
                kit_append(log, end, 1, MESSAGE, 0);
                CHECK_EQ(hf_log_sync(log), HF_OK);
                CHECK_EQ(release ? hf_log_release(log, end - 100) : HF_OK, HF_OK);
            }
            uint64_t oldest = kit_info(log).oldest_sqn;
            expect_lost(dir, oldest, oldest, end);
            hf_log_close(log);
            log = kit_open(dir, config_of(level, 0));
            CHECK_EQ(kit_info(log).damaged, 0);
            CHECK(kit_info(log).oldest_sqn > s.first[1]);
            hf_log_close(log);
            done(dir, "a");
        }
    }
}

static void an_incarnation_that_begins_in_the_lost_numbers_takes_them_over(void)
{
    int dir = made("a", HF_LEVEL_DISK, 0, 0);
    struct segments s = list(dir);
    lose(dir, s.base[0]);
    lose(dir, s.base[1]);
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK, 0));
    CHECK_EQ(hf_log_begin(log, 2, s.first[1]), HF_OK);
    kit_append(log, s.first[1], 40, MESSAGE, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    expect_lost(dir, 0, s.first[1], s.first[1] + 40);
    hf_log_close(log);
    done(dir, "a");
}

/* The beginning is told by two words; each alone proves nothing. */
static void a_flipped_bit_of_the_beginning_makes_no_damage(void)
{
    int dir = made("a", HF_LEVEL_DISK, KEEP, 0);
    struct segments s = list(dir);
    CHECK(s.first[0] > 0 && s.base[0] > 0);
    for (size_t at = offsetof(struct hf_head, oldest_sqn); at < offsetof(struct hf_head, begin_version); at++) {
        for (int bit = 0; bit < 8; bit++) {
            flip(dir, "head", at, (uint8_t)(1 << bit));
            struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK, KEEP));
            CHECK_EQ(kit_info(log).damaged, 0);
            CHECK_EQ(kit_info(log).segments, s.count);
            hf_log_close(log);
            expect_lost(dir, s.first[0], s.first[0], COUNT);
        }
    }
    done(dir, "a");
}

/* A segment in the middle is lost, and the head's position is wrong: what lies before is no ghost. */
static void a_wrong_position_takes_no_segment_away(void)
{
    int dir = made("a", HF_LEVEL_DISK, 0, 0);
    struct segments s = list(dir);
    lose(dir, s.base[1]);
    int fd = openat(dir, "head", O_WRONLY);
    CHECK_EQ(pwrite(fd, &s.base[2], sizeof s.base[2], offsetof(struct hf_head, oldest_position)), sizeof s.base[2]);
    close(fd);
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK, 0));
    CHECK_EQ(kit_info(log).segments, s.count - 1);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, s.first[1], 0);
    kit_expect(r, s.first[2], COUNT, 0);
    hf_logr_close(r);
    hf_log_close(log);
    done(dir, "a");
}

static void a_new_head_takes_what_was_let_go_for_gone(void)
{
    int dir = made("a", HF_LEVEL_DISK, KEEP, 0);
    struct segments s = list(dir);
    CHECK_EQ(unlinkat(dir, "head", 0), 0);
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK, KEEP));
    CHECK_EQ(kit_info(log).damaged, 0);
    expect_lost(dir, s.first[0], s.first[0], COUNT);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_let_go(r, s.first[0] - 1), 1);
    CHECK_EQ(hf_logr_let_go(r, s.first[0]), 0);
    hf_logr_close(r);
    hf_log_close(log);
    done(dir, "a");
}

/* The pages of a memory log on a disk, and its names, are of any age then. */
static void after_a_reboot_the_head_of_a_memory_log_proves_nothing(void)
{
    int dir = made("a", HF_LEVEL_MEMORY, 0, 0);
    struct segments s = list(dir);
    lose(dir, s.base[0]);
    flip(dir, "head", offsetof(struct hf_preamble, boot_id), 1);
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_MEMORY, 0));
    CHECK_EQ(kit_info(log).damaged, 0);
    expect_lost(dir, s.first[1], s.first[1], COUNT);
    hf_log_close(log);
    done(dir, "a");
}

static void what_cannot_be_said_for_good_does_not_go(void)
{
    int dir = made("a", HF_LEVEL_DISK, 0, 0);
    struct segments s = list(dir);
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK, 0));
    hf_failpoint_arm("log.fdatasync=errno:EIO@1");
    CHECK_EQ(hf_log_release(log, s.first[3]), HF_POISONED);
    hf_failpoint_arm(NULL);
    CHECK_EQ(hf_log_release(log, s.first[4]), HF_POISONED); /* though the next sync would return 0 */
    CHECK_EQ(kit_names(dir, "seg-"), s.count);
    hf_log_close(log);
    done(dir, "a");
}

static void fills_go_when_nothing_of_them_is_wanted(void)
{
    int dir = made("a", HF_LEVEL_DISK, 0, 0);
    refill(dir, 3, 5);
    refill(dir, 6, 8);
    struct hf_log *log = kit_open(dir, config_of(HF_LEVEL_DISK, 0));
    static const int left[] = {2, 2, 2, 2, 2, 1, 1, 1, 0};
    for (uint64_t below = 1; below < sizeof left / sizeof left[0]; below++) {
        CHECK_EQ(hf_log_release(log, below), HF_OK);
        CHECK_EQ(kit_names(dir, "fill-"), left[below]);
    }
    hf_log_close(log);
    done(dir, "a");
}

int main(void)
{
    root = kit_directory();
    RUN(a_lost_beginning_is_damage);
    RUN(a_log_of_which_only_the_head_is_left_knows_what_it_had);
    RUN(a_lost_beginning_is_let_go_with_what_follows_it);
    RUN(an_incarnation_that_begins_in_the_lost_numbers_takes_them_over);
    RUN(a_flipped_bit_of_the_beginning_makes_no_damage);
    RUN(a_wrong_position_takes_no_segment_away);
    RUN(a_new_head_takes_what_was_let_go_for_gone);
    RUN(after_a_reboot_the_head_of_a_memory_log_proves_nothing);
    RUN(what_cannot_be_said_for_good_does_not_go);
    RUN(fills_go_when_nothing_of_them_is_wanted);
    return 0;
}
