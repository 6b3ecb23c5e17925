/* The file `head`: a write of its table of BEGINs that is torn, and one of layout version 1, which is made anew. */
#include "base/failpoint.h"
#include "head_kit.h"
#include "log/writer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { SECTOR = 512, SECTORS = HF_HEAD_BYTES / SECTOR };
static int root;
static const char *planted = ""; /* a bug that is switched on with every failpoint */

static void arm(const char *point)
{
    char spec[128];
    snprintf(spec, sizeof spec, "%s%s%s", planted, *planted != 0 && *point != 0 ? ";" : "", point);
    hf_failpoint_arm(*spec == 0 ? NULL : spec);
}

static void finish(int dir, const char *name)
{
    close(dir);
    kit_empty(root, name);
}

/* ---- a torn write ---- */

/* Any of the sectors of a BEGIN may reach the disk, and any may not: the table is the old one or the new one. The head on disk
 * is as of the last good sync; what comes after is in `later`, at each step. */
static void tear(int dir, const uint8_t *before, const uint8_t *later, uint64_t count, uint64_t *kept)
{
    uint8_t torn[HF_HEAD_BYTES];
    struct hf_begin begins[HF_INCARNATIONS];
    uint32_t changed[SECTORS], n = 0;
    for (uint32_t i = 0; i < SECTORS; i++) {
        if (memcmp(before + i * SECTOR, later + i * SECTOR, SECTOR) != 0) {
            changed[n++] = i;
        }
    }
    CHECK(n >= 1 && n < 12);
    for (uint32_t set = 0; set < UINT32_C(1) << n; set++) {
        memcpy(torn, before, sizeof torn);
        for (uint32_t i = 0; i < n; i++) {
            if (set >> i & 1) {
                memcpy(torn + changed[i] * SECTOR, later + changed[i] * SECTOR, SECTOR);
            }
        }
        put(dir, torn, sizeof torn);
        int64_t found = begins_of(dir, begins);
        CHECK(found == (int64_t)count - 1 || found == (int64_t)count);
        for (int64_t i = 0; i < found; i++) {
            CHECK_EQ(begins[i].incarnation, (uint64_t)i + 1);
        }
        kept[found == (int64_t)count]++;
        struct hf_log *log = kit_open(dir, disk());
        CHECK_EQ(kit_info(log).incarnation, (uint64_t)found);
        CHECK_EQ(kit_info(log).unsure, 0);
        hf_log_close(log);
    }
}

struct step {
    int dir;
    uint64_t count;
    const char *point;
};

static void begin_and_die(void *argument)
{
    const struct step *s = argument;
    struct hf_log *log = kit_open(s->dir, disk());
    arm(s->point);
    hf_log_begin(log, s->count, 0);
    _exit(0);
}

/* Sector 2 of version 1 began within the 14th BEGIN. */
static void a_torn_write_leaves_the_old_table_or_the_new_one(void)
{
    static const char *const points[] = {"begin.placed=kill", "begin.durable=kill"};
    static uint8_t before[HF_HEAD_BYTES], later[HF_HEAD_BYTES];
    uint64_t kept[2] = {0};
    for (uint64_t count = 2; count <= HF_INCARNATIONS; count += count < 12 ? 5 : 1) {
        int dir = kit_subdirectory(root, "torn");
        struct hf_log *log = kit_open(dir, disk());
        for (uint64_t i = 1; i < count; i++) {
            CHECK_EQ(hf_log_begin(log, i, 0), HF_OK);
        }
        hf_log_close(log);
        hf_log_close(kit_open(dir, disk()));
        load(dir, before);
        struct step s = {dir, count, points[count % 2]};
        check_killed(check_fork(begin_and_die, &s), SIGKILL);
        load(dir, later);
        tear(dir, before, later, count, kept);
        finish(dir, "torn");
    }
    CHECK(kept[0] > 0 && kept[1] > 0);
}

/* A table that was durable and is not whole any more: its BEGINs are not known, which is not the table before it. */
static void a_durable_table_that_is_lost_is_not_replaced_by_the_one_before(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    int dir = kit_subdirectory(root, "rot");
    struct hf_log *log = kit_open(dir, disk());
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK_EQ(hf_log_begin(log, i, 0), HF_OK);
    }
    uint64_t newest = log->generation;
    hf_log_close(log);
    uint8_t file[HF_HEAD_BYTES];
    load(dir, file);
    file[HF_HEADER_PAGE * (1 + newest % 2) + sizeof(struct hf_begin_table) / 2] ^= 4; /* what no entry has yet, */
    put(dir, file, sizeof file);
    CHECK_EQ(begins_of(dir, begins), 3);
    file[HF_HEADER_PAGE * (1 + newest % 2) + offsetof(struct hf_begin_table, begins)] ^= 4; /* and what one has */
    put(dir, file, sizeof file);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_begins(r, begins), HF_DAMAGED);
    for (int again = 0; again < 2; again++) {
        log = kit_open(dir, disk());
        CHECK_EQ(kit_info(log).unsure, 1);
        hf_log_close(log);
    }
    CHECK_EQ(hf_logr_begins(r, begins), 2); /* told by the store that opened it: it is the table that there is now */
    hf_logr_close(r);
    finish(dir, "rot");
}

/* The table and the end that belongs to it, whatever has come since the reader looked. */
static void a_view_has_the_table_and_its_end(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    uint64_t next = 99;
    int dir = kit_subdirectory(root, "view");
    struct hf_log *log = kit_open(dir, disk());
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_logr_view(r, begins, &next), 0);
    CHECK_EQ(next, 0);
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, EACH, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(hf_logr_view(r, begins, &next), 1);
    CHECK_EQ(next, EACH);
    CHECK_EQ(hf_log_begin(log, 2, 4), HF_OK);
    CHECK_EQ(hf_logr_view(r, begins, &next), 2);
    CHECK_EQ(begins[1].start_sqn, 4);
    CHECK_EQ(next, 4);
    uint64_t newest = log->generation;
    hf_log_close(log);
    CHECK_EQ(hf_logr_view(r, begins, &next), 2);
    CHECK_EQ(next, 4);
    uint8_t file[HF_HEAD_BYTES];
    load(dir, file);
    file[HF_HEADER_PAGE * (1 + newest % 2) + offsetof(struct hf_begin_table, begins)] ^= 4;
    put(dir, file, sizeof file);
    struct hf_logr *later = kit_reader(dir);
    CHECK_EQ(hf_logr_view(later, begins, &next), HF_DAMAGED);
    hf_logr_close(later);
    hf_logr_close(r);
    finish(dir, "view");
}

/* ---- version 1 ---- */

static void expect_old(int dir, uint64_t count)
{
    struct hf_begin begins[HF_INCARNATIONS];
    struct hf_check_summary sum;
    struct hf_logr *r = kit_reader(dir);
    uint64_t oldest, next;
    CHECK_EQ(hf_logr_begins(r, begins), count);
    CHECK_EQ(begins[count - 1].incarnation, count);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    CHECK_EQ(oldest, 0);
    CHECK_EQ(next, EACH);
    kit_expect(r, 0, EACH, 0);
    hf_logr_close(r);
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.messages, EACH);
}

static uint32_t version_of(int dir)
{
    uint8_t file[HF_HEAD_BYTES];
    struct hf_preamble pre;
    uint64_t bytes = load(dir, file);
    memcpy(&pre, file, sizeof pre);
    CHECK_EQ(bytes, pre.layout_version == 1 ? 4096 : HF_HEAD_BYTES);
    return pre.layout_version;
}

static void open_and_close(void *argument)
{
    const struct step *s = argument;
    arm(s->point);
    hf_log_close(kit_open(s->dir, disk()));
    _exit(0);
}

static void a_log_of_version_1_is_read_and_its_store_makes_the_head_anew(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    for (uint64_t count = 1; count <= HF_INCARNATIONS; count += 21) {
        int dir = old_log(root, count, begins);
        expect_old(dir, count);
        CHECK_EQ(version_of(dir), 1); /* whoever only reads changes nothing */
        struct hf_log *log = kit_open(dir, disk());
        CHECK_EQ(kit_info(log).unsure, 0);
        CHECK_EQ(kit_info(log).incarnation, count);
        hf_log_close(log);
        CHECK_EQ(version_of(dir), 2);
        expect_old(dir, count);
        finish(dir, "old");
    }
}

static void a_store_killed_while_it_makes_the_head_anew_leaves_one_of_the_two(void)
{
    static const char *const points[] = {"head.written=kill", "head.renamed=kill", "head.synced=kill", "open.cut=kill"};
    struct hf_begin begins[HF_INCARNATIONS];
    for (int i = 0; i < 4; i++) {
        int dir = old_log(root, 40, begins);
        struct step s = {dir, 0, points[i]};
        check_killed(check_fork(open_and_close, &s), SIGKILL);
        CHECK_EQ(version_of(dir), i == 0 ? 1 : 2);
        expect_old(dir, 40);
        hf_log_close(kit_open(dir, disk()));
        CHECK_EQ(version_of(dir), 2);
        CHECK_EQ(kit_names(dir, "head-new"), 0);
        expect_old(dir, 40);
        finish(dir, "old");
    }
}

/* The directory's sync failed: the next open trusts neither name, and makes a third file. */
static void a_head_whose_name_may_not_be_on_disk_is_made_once_more(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    struct stat first, second;
    struct hf_log *log = NULL;
    struct hf_log_config config = disk();
    int dir = old_log(root, 20, begins);
    arm("log.fsync=errno:EIO@1");
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_POISONED);
    arm("");
    CHECK_EQ(fstatat(dir, "head", &first, 0), 0);
    expect_old(dir, 20);
    hf_log_close(kit_open(dir, config));
    CHECK_EQ(fstatat(dir, "head", &second, 0), 0);
    CHECK(first.st_ino != second.st_ino);
    CHECK_EQ(version_of(dir), 2);
    expect_old(dir, 20);
    finish(dir, "old");
}

/* Poison, a doubt and an unknown end are the log's, not the head's layout's. */
static void what_an_old_head_says_of_a_failed_sync_is_kept(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    struct stat before, after;
    int dir = old_log(root, 20, begins);
    hf_log_distrust(dir);
    CHECK_EQ(version_of(dir), 1);
    CHECK_EQ(fstatat(dir, "seg-0000000000000000", &before, 0), 0);
    struct step s = {dir, 0, "head.synced=kill"};
    check_killed(check_fork(open_and_close, &s), SIGKILL);
    CHECK_EQ(version_of(dir), 2);
    hf_log_close(kit_open(dir, disk()));
    CHECK_EQ(fstatat(dir, "seg-0000000000000000", &after, 0), 0);
    CHECK(before.st_ino != after.st_ino); /* it was written once more */
    expect_old(dir, 20);
    finish(dir, "old");
}

/* Killed inside the sequence lock: the sum decides. A table that is not whole is unreadable, and not one without BEGINs. */
static void an_old_table_is_read_by_its_sum(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    for (int how = 0; how < 3; how++) {
        int dir = old_log(root, 20, begins);
        struct hf_head_v1 old;
        int fd = openat(dir, "head", O_RDWR);
        CHECK_EQ(pread(fd, &old, sizeof old, 0), sizeof old);
        old.begin_version += how != 2;
        old.begins[15].start_sqn += how != 0; /* its second sector did not reach the disk */
        CHECK_EQ(pwrite(fd, &old, sizeof old, 0), sizeof old);
        close(fd);
        for (int opened = 0; opened < 2; opened++) {
            CHECK_EQ(begins_of(dir, begins), how == 0 ? 20 : HF_DAMAGED);
            struct step s = {dir, 0,
                             "open.cut=kill"}; /* as a head of version 2 says it, until the log is unsure for good */
            check_killed(check_fork(open_and_close, &s), SIGKILL);
            CHECK_EQ(version_of(dir), 2);
        }
        struct hf_log *log = kit_open(dir, disk());
        CHECK_EQ(kit_info(log).unsure, how != 0);
        CHECK_EQ(kit_info(log).incarnation, 20); /* its segment tells that one */
        hf_log_close(log);
        CHECK_EQ(begins_of(dir, begins), how == 0 ? 20 : 1);
        finish(dir, "old");
    }
}

/* ---- readers of a head that is replaced under them ---- */

static void a_reader_of_the_old_head_goes_on_with_the_new_one(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    for (int linked = 0; linked < 2; linked++) {
        uint64_t oldest, next;
        uint8_t file[HF_HEAD_BYTES];
        int dir = old_log(root, 20, begins);
        if (linked) { /* a copy of the directory that shares its files */
            CHECK_EQ(linkat(dir, "head", dir, "head-of-copy", 0), 0);
        }
        struct hf_logr *r = kit_reader(dir), *table = kit_reader(dir), *range = kit_reader(dir);
        kit_expect(r, 0, EACH, 0);
        CHECK_EQ(hf_logr_begins(table, begins), 20);
        CHECK_EQ(hf_logr_read(r, EACH, file, sizeof file, &next),
                 HF_AGAIN); /* it waits at the end that it has walked to */
        struct hf_log *log = kit_open(dir, disk());
        CHECK_EQ(hf_log_begin(log, 21, 10), HF_OK);
        kit_append(log, 10, 15, PAYLOAD, 9);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        CHECK_EQ(hf_logr_begins(table, begins), 21);
        CHECK_EQ(hf_logr_range(range, &oldest, &next), HF_OK);
        CHECK_EQ(next, 25);
        kit_expect(r, EACH, 25, 9);
        kit_expect(r, 0, 10, 0);
        kit_append(log, 25, 5, PAYLOAD, 9);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        kit_expect(r, 25, 30, 9); /* it is told by the new one: nothing is walked, nothing is opened again */
        hf_log_close(log);
        hf_logr_close(r);
        hf_logr_close(table);
        hf_logr_close(range);
        finish(dir, "old");
    }
}

static void a_reader_of_a_removed_directory_keeps_what_it_has(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    int dir = old_log(root, 3, begins);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(unlinkat(dir, "head", 0), 0);
    kit_expect(r, 0, EACH, 0);
    CHECK_EQ(hf_logr_begins(r, begins), 3);
    hf_logr_close(r);
    finish(dir, "old");
}

static void a_head_of_another_source_is_not_gone_on_with(void)
{
    struct hf_begin begins[HF_INCARNATIONS];
    uint8_t file[HF_HEAD_BYTES];
    uint64_t oldest, next;
    int dir = old_log(root, 3, begins);
    struct hf_logr *r = kit_reader(dir);
    uint64_t bytes = load(dir, file);
    file[offsetof(struct hf_preamble, uuid)] ^= 1;
    put(dir, file, bytes);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_DAMAGED);
    CHECK_EQ(hf_logr_begins(r, begins), HF_DAMAGED);
    hf_logr_close(r);
    finish(dir, "old");
}

/* What comes after this version is refused, and nothing is touched. */
static void another_layout_is_left_as_it_is(void)
{
    uint8_t before[HF_HEAD_BYTES], after[HF_HEAD_BYTES];
    for (uint32_t version = 1; version <= 3; version += 2) { /* 1: of another hash */
        struct hf_begin begins[HF_INCARNATIONS];
        struct hf_log_config config = disk();
        struct hf_log *log = NULL;
        struct hf_logr *r = NULL;
        int dir = old_log(root, 3, begins);
        static const char *const left[] = {"head-new", "spare-new", "roll-new", "spare"};
        for (int i = 0; i < 4; i++) {
            close(openat(dir, left[i], O_WRONLY | O_CREAT, 0600));
        }
        load(dir, before);
        memcpy(before + offsetof(struct hf_preamble, layout_version), &version, sizeof version);
        before[offsetof(struct hf_preamble, struct_hash)] ^= 1;
        put(dir, before, HF_HEAD_BYTES);
        CHECK_EQ(hf_log_open(dir, &config, &log), HF_LAYOUT);
        CHECK_EQ(hf_logr_open(dir, &r), HF_LAYOUT);
        load(dir, after);
        CHECK(memcmp(before, after, sizeof after) == 0);
        CHECK_EQ(kit_names(dir, ""), 2 + 2 + 4); /* with "." and ".." */
        finish(dir, "old");
    }
}

/* ---- bugs that these tests must find ---- */

struct bug {
    const char *spec;
    void (*test)(void);
};

static void with_a_bug(void *argument)
{
    const struct bug *b = argument;
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    root = kit_subdirectory(root, b->spec);
    planted = b->spec;
    arm("");
    b->test();
}

static void planted_bugs_are_found(void)
{
    static const struct bug bugs[] = {
        {"head.one_slot=mutant", a_torn_write_leaves_the_old_table_or_the_new_one},
        {"head.tell_early=mutant", a_torn_write_leaves_the_old_table_or_the_new_one},
        {"head.older_table=mutant", a_durable_table_that_is_lost_is_not_replaced_by_the_one_before},
        {"head.v1_empty=mutant", an_old_table_is_read_by_its_sum},
        {"head.trust_name=mutant", a_head_whose_name_may_not_be_on_disk_is_made_once_more},
        {"logr.old_head=mutant", a_reader_of_the_old_head_goes_on_with_the_new_one},
    };
    for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
        struct bug b = bugs[i];
        int status = check_wait(check_fork(with_a_bug, &b));
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1) {
            fprintf(stderr, "not found: %s\n", b.spec);
        }
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    }
}

int main(void)
{
    root = kit_directory();
    RUN(a_torn_write_leaves_the_old_table_or_the_new_one);
    RUN(a_durable_table_that_is_lost_is_not_replaced_by_the_one_before);
    RUN(a_view_has_the_table_and_its_end);
    RUN(a_log_of_version_1_is_read_and_its_store_makes_the_head_anew);
    RUN(a_store_killed_while_it_makes_the_head_anew_leaves_one_of_the_two);
    RUN(a_head_whose_name_may_not_be_on_disk_is_made_once_more);
    RUN(what_an_old_head_says_of_a_failed_sync_is_kept);
    RUN(an_old_table_is_read_by_its_sum);
    RUN(a_reader_of_the_old_head_goes_on_with_the_new_one);
    RUN(a_reader_of_a_removed_directory_keeps_what_it_has);
    RUN(a_head_of_another_source_is_not_gone_on_with);
    RUN(another_layout_is_left_as_it_is);
    RUN(planted_bugs_are_found);
    return 0;
}
