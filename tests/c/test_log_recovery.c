/* What a log is after its store was killed at a failpoint, or after the power went: at least what was published, no
 * damage reported, no gap, and the same again at the next open. */
#include "base/failpoint.h"
#include "log_kit.h"

#include <dirent.h>

static int root;

struct progress { /* what the child had published when it died */
    uint64_t next_sqn;
    uint64_t start;  /* newest BEGIN that returned */
    uint64_t begun;  /* its incarnation */
    uint64_t trying; /* a BEGIN that was under way */
};

struct life {
    int dir;
    uint32_t level;
    const char *failpoint;
    struct progress *done;
};

static void open_or_die(struct life *life, struct hf_log **log, uint64_t retain)
{
    struct hf_log_config config = kit_config(life->level, 16384, 32768, retain);
    CHECK_EQ(hf_log_open(life->dir, &config, log), HF_OK);
}

/* A store's life: appends, commits, prepares, rolls, retires, and begins incarnations, until a failpoint kills it.
 * The content of a number is that of its incarnation. */
static void live(void *argument)
{
    struct life *life = argument;
    static uint8_t block[KIT_BUFFER];
    struct hf_log *log;
    hf_failpoint_arm(life->failpoint);
    open_or_die(life, &log, 90000);
    for (uint64_t round = 0; round < 60; round++) {
        struct hf_log_info info = kit_info(log);
        if (round % 30 == 0) { /* the message before it has one fragment: BEGIN lies between messages */
            uint64_t start = info.appended_sqn < 3 ? 0 : info.appended_sqn - 3;
            life->done->trying = 1;
            CHECK_EQ(hf_log_begin(log, info.incarnation + 1, start), HF_OK);
            life->done->begun = info.incarnation + 1;
            life->done->start = start;
            life->done->next_sqn = start;
            life->done->trying = 0;
        }
        info = kit_info(log);
        uint64_t bytes = round % 3 == 0 ? kit_message(block, info.appended_sqn, 5, 300, 0)
                                        : kit_block(block, info.appended_sqn, 7, 200, 0);
        CHECK_EQ(kit_put(log, block, bytes), HF_OK);
        if (round % 4 == 3) {
            CHECK_EQ(hf_log_sync(log), HF_OK);
        }
        life->done->next_sqn = kit_info(log).next_sqn;
        if (round % 2 == 0) {
            CHECK(hf_log_prepare(log) >= 0);
        }
    }
    hf_log_close(log);
}

static void after_death(struct life *life, const struct progress *done)
{
    struct hf_log *log;
    open_or_die(life, &log, 90000);
    struct hf_log_info info = kit_info(log), again;
    CHECK_EQ(info.damaged, 0);
    CHECK(done->trying || info.next_sqn >= done->next_sqn);
    CHECK(info.incarnation == done->begun || (done->trying && info.incarnation == done->begun + 1));
    CHECK_EQ(info.next_sqn, info.appended_sqn);
    struct hf_logr *r = kit_reader(life->dir);
    kit_expect(r, info.oldest_sqn, info.next_sqn, 0);
    hf_log_close(log);
    open_or_die(life, &log, 90000);
    again = kit_info(log);
    CHECK_EQ(again.end, info.end);
    CHECK_EQ(again.next_sqn, info.next_sqn);
    CHECK_EQ(again.cut_bytes, 0);
    CHECK_EQ(again.damaged, 0);
    CHECK_EQ(again.segments, info.segments);
    kit_append(log, info.next_sqn, 20, 200, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_expect(r, again.oldest_sqn > kit_info(log).oldest_sqn ? again.oldest_sqn : kit_info(log).oldest_sqn,
               info.next_sqn + 20, 0);
    struct hf_finding f;
    struct hf_check_summary sum;
    CHECK_EQ(hf_log_check(life->dir, &f, 1, &sum), 0);
    hf_logr_close(r);
    hf_log_close(log);
}

static void kill_everywhere(uint32_t level)
{
    static const char *const points[] = {"log.staged",    "log.copied",     "log.published", "log.synced",
                                         "roll.sealed",   "roll.header",    "roll.renamed",  "retire.told",
                                         "retire.synced", "retire.renamed", "begin.lowered", "begin.placed",
                                         "begin.durable", "begin.stored",   "open.cut"};
    struct progress *done = check_shared(sizeof *done);
    int killed_at[16] = {0};
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        for (int nth = 1; nth <= 33; nth += nth < 4 ? 1 : 8) {
            char spec[64];
            int dir = kit_subdirectory(root, "life");
            memset(done, 0, sizeof *done);
            snprintf(spec, sizeof spec, "%s=kill@%d", points[p], nth);
            struct life life = {dir, level, NULL, done};
            struct life second = {dir, level, spec, done};
            int status = check_wait(check_fork(live, &life)); /* a first life, that fills the directory */
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            status = check_wait(check_fork(live, &second));
            CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                  (WIFEXITED(status) && WEXITSTATUS(status) == 0));
            killed_at[p] += WIFSIGNALED(status) ? 1 : 0;
            after_death(&life, done);
            close(dir);
            kit_empty(root, "life");
        }
        int reached = level == HF_LEVEL_DISK || strcmp(points[p], "log.synced") != 0;
        CHECK_EQ(killed_at[p] > 0, reached); /* a failpoint that nobody meets tests nothing */
    }
    munmap(done, sizeof *done);
}

static void a_memory_store_killed_anywhere_keeps_what_it_published(void)
{
    kill_everywhere(HF_LEVEL_MEMORY);
}

static void a_disk_store_killed_anywhere_keeps_what_it_published(void)
{
    kill_everywhere(HF_LEVEL_DISK);
}

static void begin_and_die(void *argument)
{
    struct life *life = argument;
    struct hf_log *log;
    open_or_die(life, &log, 0);
    hf_failpoint_arm("begin.lowered=kill");
    CHECK_EQ(hf_log_begin(log, 2, 50), HF_OK);
}

/* No reader pairs the table of a BEGIN with numbers that it makes void, whenever the store dies. */
static void a_begin_takes_its_numbers_back_before_it_is_seen(void)
{
    int dir = kit_subdirectory(root, "lowered");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, 16384, 16384, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 100, 96, 0);
    hf_log_close(log);
    struct life life = {dir, HF_LEVEL_MEMORY, NULL, NULL};
    check_killed(check_fork(begin_and_die, &life), SIGKILL);
    struct hf_logr *r = kit_reader(dir);
    struct hf_begin begins[HF_INCARNATIONS];
    struct hf_head head;
    uint64_t oldest, next;
    int fd = openat(dir, "head", O_RDONLY);
    CHECK_EQ(read(fd, &head, sizeof head), sizeof head);
    close(fd);
    CHECK_EQ(head.next_sqn, 50);
    CHECK_EQ(hf_logr_begins(r, begins), 1);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    CHECK_EQ(next, 100);         /* nobody keeps it: by the table that it has, as an open will find it */
    open_or_die(&life, &log, 0); /* it was not durable: nothing has begun */
    CHECK_EQ(kit_info(log).next_sqn, 100);
    kit_expect(r, 0, 100, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void kill_at_open(void *argument)
{
    struct life *life = argument;
    struct hf_log *log;
    hf_failpoint_arm("open.cut=kill");
    open_or_die(life, &log, 0);
}

static void recovery_may_be_killed_and_repeated(void)
{
    int dir = kit_subdirectory(root, "twice");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    kit_append(log, 0, 20, 200, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    kit_append(log, 20, 200, 200, 0); /* never synced, several segments */
    struct life life = {dir, HF_LEVEL_DISK, NULL, NULL};
    pid_t pid = check_fork(kill_at_open, &life); /* the parent's log is only kept from closing properly */
    check_killed(pid, SIGKILL);
    struct hf_log *other = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    CHECK(kit_info(other).next_sqn >= 20);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, kit_info(other).next_sqn, 0);
    hf_logr_close(r);
    hf_log_close(other);
    hf_log_close(log);
    close(dir);
}

/* ---- power cuts ---- */

enum { FILES = 64, FILE_BYTES = 65536, SECTOR = 512 };

struct image {
    int count;
    struct {
        char name[32];
        uint32_t bytes;
        uint8_t data[FILE_BYTES];
    } file[FILES];
};

static void take_image(int dir, struct image *image)
{
    image->count = 0;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = fdopendir(fd);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') {
            continue;
        }
        CHECK(image->count < FILES && strlen(e->d_name) < 32);
        int f = openat(dir, e->d_name, O_RDONLY);
        memcpy(image->file[image->count].name, e->d_name, strlen(e->d_name) + 1);
        ssize_t n = read(f, image->file[image->count].data, FILE_BYTES);
        CHECK(n >= 0);
        image->file[image->count].bytes = (uint32_t)n;
        image->count++;
        close(f);
    }
    closedir(d);
}

static int find_file(const struct image *image, const char *name)
{
    for (int i = 0; i < image->count; i++) {
        if (strcmp(image->file[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

static uint64_t chance = 88;

static uint64_t roll_dice(uint64_t sides)
{
    chance = chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (chance >> 33) % sides;
}

static void put_file(int dir, const char *name, const uint8_t *data, uint32_t bytes)
{
    int f = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(f >= 0);
    CHECK_EQ(write(f, data, bytes), bytes);
    close(f);
}

/* A disk that holds all of `synced` and any of the sectors and names that were written since. */
static void write_mixture(int dir, const struct image *synced, const struct image *later)
{
    static uint8_t data[FILE_BYTES];
    uint64_t taste = roll_dice(4); /* of 4 sectors, how many are new */
    for (int i = 0; i < later->count; i++) {
        int old = find_file(synced, later->file[i].name);
        uint32_t bytes = later->file[i].bytes;
        if (old < 0 && roll_dice(2) == 0) {
            continue; /* its name did not arrive */
        }
        memset(data, 0, sizeof data);
        if (old >= 0) {
            memcpy(data, synced->file[old].data, synced->file[old].bytes);
        }
        for (uint32_t at = 0; at < bytes; at += SECTOR) {
            if (roll_dice(4) < taste + 1) {
                memcpy(data + at, later->file[i].data + at, bytes - at < SECTOR ? bytes - at : SECTOR);
            }
        }
        put_file(dir, later->file[i].name, data, bytes);
    }
}

static void a_power_cut_keeps_what_was_synced_and_never_cries_damage(void)
{
    static struct image synced, later;
    for (uint64_t run = 0; run < 150; run++) {
        int dir = kit_subdirectory(root, "before");
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
        uint64_t first = 1 + roll_dice(60), more = 1 + roll_dice(60), at = 0;
        CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
        for (; at < first; at++) {
            kit_append(log, at, 1, (uint32_t)roll_dice(600), 0);
            if (roll_dice(5) == 0) {
                CHECK_EQ(hf_log_sync(log), HF_OK);
            }
        }
        CHECK_EQ(hf_log_sync(log), HF_OK);
        take_image(dir, &synced);
        for (; at < first + more; at++) {
            kit_append(log, at, 1, (uint32_t)roll_dice(600), 0);
        }
        take_image(dir, &later);
        hf_log_close(log);
        close(dir);
        int cut = kit_subdirectory(root, "after");
        write_mixture(cut, &synced, &later);
        log = kit_open(cut, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
        struct hf_log_info info = kit_info(log);
        CHECK_EQ(info.damaged, 0);
        CHECK(info.next_sqn >= first && info.next_sqn <= first + more);
        CHECK_EQ(info.incarnation, 1);
        /* As many again, with other content: nothing from behind the cut may come back under these numbers. */
        uint64_t end = info.next_sqn + 2 * more;
        kit_append(log, info.next_sqn, 2 * more, 300, 1);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        struct hf_logr *r = kit_reader(cut);
        for (int again = 0; again < 2; again++) {
            kit_expect(r, 0, info.next_sqn, 0);
            kit_expect(r, info.next_sqn, end, 1);
            CHECK_EQ(kit_info(log).next_sqn, end);
            hf_log_close(log);
            log = kit_open(cut, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
        }
        hf_logr_close(r);
        hf_log_close(log);
        close(cut);
        kit_empty(root, "before");
        kit_empty(root, "after");
    }
}

static void old_valid_frames_beyond_a_cut_are_not_resurrected(void)
{
    int dir = kit_subdirectory(root, "beyond");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    kit_append(log, 0, 10, 96, 1);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    uint64_t end = kit_info(log).end;
    kit_append(log, 10, 10, 96, 1); /* one SYNC frame, then ten frames of 128 bytes, none of them synced */
    int fd = openat(dir, "seg-0000000000000000", O_RDWR);
    uint8_t hole[128] = {0};
    CHECK_EQ(pwrite(fd, hole, 128, (off_t)(8192 + end + 64 + 3 * 128)), 128); /* the fourth never arrived */
    close(fd);
    struct hf_log *other = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    CHECK_EQ(kit_info(other).next_sqn, 13);
    CHECK_EQ(kit_info(other).damaged, 0);
    CHECK_EQ(kit_info(other).cut_bytes, 7 * 128);
    kit_append(other, 13, 7, 96, 2); /* other content under the same numbers */
    CHECK_EQ(hf_log_sync(other), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 13, 1);
    kit_expect(r, 13, 20, 2);
    hf_logr_close(r);
    hf_log_close(other);
    hf_log_close(log);
    close(dir);
}

static void a_log_without_its_head_finds_itself_again(void)
{
    int dir = kit_subdirectory(root, "headless");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    CHECK_EQ(hf_log_begin(log, 4, 10), HF_OK);
    kit_append(log, 10, 100, 200, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(hf_log_begin(log, 5, 100), HF_OK);
    kit_append(log, 100, 100, 200, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_log_close(log);
    CHECK(unlinkat(dir, "head", 0) == 0);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    struct hf_log_info info = kit_info(log);
    CHECK_EQ(info.damaged, 0);
    CHECK_EQ(info.oldest_sqn, 10);
    CHECK_EQ(info.next_sqn, 200);
    CHECK_EQ(info.incarnation, 5);
    CHECK_EQ(info.begin_sqn, 100);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 10, 200, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

/* Garbage that fits its check. No segment can begin there, so nothing appended behind it could be read. */
static void an_end_that_no_log_has_is_none(void)
{
    int dir = kit_subdirectory(root, "end");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    kit_append(log, 0, 10, 20, 0);
    hf_log_close(log);
    uint64_t words[2] = {UINT64_MAX - 4095, 0}, mask;
    memcpy(&mask, kit_uuid, sizeof mask);
    words[1] = words[0] ^ mask;
    int head = openat(dir, "head", O_RDWR);
    CHECK_EQ(pwrite(head, words, sizeof words, offsetof(struct hf_head, end)), sizeof words);
    close(head);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, 16384, 16384, 0));
    kit_append(log, 10, 3, 20, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 13, 0);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

int main(void)
{
    root = kit_directory();
    RUN(a_memory_store_killed_anywhere_keeps_what_it_published);
    RUN(a_disk_store_killed_anywhere_keeps_what_it_published);
    RUN(a_begin_takes_its_numbers_back_before_it_is_seen);
    RUN(recovery_may_be_killed_and_repeated);
    RUN(a_power_cut_keeps_what_was_synced_and_never_cries_damage);
    RUN(old_valid_frames_beyond_a_cut_are_not_resurrected);
    RUN(a_log_without_its_head_finds_itself_again);
    RUN(an_end_that_no_log_has_is_none);
    return 0;
}
