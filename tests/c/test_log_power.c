/* test_log_power.c [images [first]]: a disk that loses its power while logs retire segments: it has what was synced, and any of the
 * sectors and names that came after. What was let go never comes back as damage, and what was kept is there.
 * first: the run that they count from; a run's number is its seed. */
#include "base/failpoint.h"
#include "power_kit.h"

enum { RUNS = 300, IMAGES = 20, CONTROLS = 60 };

static int root;
static uint64_t images;
static int lies;         /* the planted bug: what is appended is called stable */
static int credulous;    /* another: readers take the head for the end */
static uint64_t exposed; /* images that show it */
static int caught;       /* of the two */

/* ---- the test ---- */

struct life {
    struct hf_log *log;
    uint64_t released;
};

/* Appends, group commits, releases and prepared spares in any order, `steps` times. */
static void live(struct life *life, uint64_t steps, int sync)
{
    for (uint64_t i = 0; i < steps; i++) {
        kit_append(life->log, kit_info(life->log).appended_sqn, 1, (uint32_t)(300 + roll_dice(900)), 0);
        uint64_t dice = roll_dice(12);
        if (dice < 2 && sync) {
            CHECK_EQ(hf_log_sync(life->log), HF_OK);
        } else if (dice == 2) {
            CHECK(hf_log_prepare(life->log) >= 0);
        } else if (dice == 3 && life->released != UINT64_MAX) {
            uint64_t next = kit_info(life->log).next_sqn;
            life->released = next > 30 ? next - roll_dice(30) : 0;
            CHECK_EQ(hf_log_release(life->log, life->released), HF_OK);
        }
    }
}

/* A header, seal or index may be half there, as it is where nothing was published; no number is missing. */
static void expect_whole(int dir)
{
    struct hf_finding found[16];
    struct hf_check_summary sum;
    int64_t n = hf_log_check(dir, found, 16, &sum);
    CHECK(n >= 0 && n <= 16);
    for (int64_t i = 0; i < n; i++) {
        CHECK_EQ(found[i].first_sqn, found[i].next_sqn);
    }
}

/* What was stable is found before any store has opened the log, and what is found is what its store will have. */
static uint64_t as_readers_find_it(int cut, uint64_t stable)
{
    uint64_t oldest, next, end;
    struct hf_logr *r = kit_reader(cut);
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    if (credulous) {
        exposed += next < stable ? 1 : 0;
    } else if (!lies) {
        CHECK(next >= stable);
        CHECK_EQ(hf_logr_end(r, &end), HF_OK);
        CHECK_EQ(end, next);
        kit_expect(r, oldest, next, 0);
    }
    hf_logr_close(r);
    return next;
}

/* One image of the disk that `dir` is on, opened twice. */
static void one_image(int dir, struct hf_log_config config, const struct hf_log_info *at_cut)
{
    int cut = kit_subdirectory(root, "after");
    cut_power(dir, cut);
    elsewhere = 1;
    expect_whole(cut);
    uint64_t found = as_readers_find_it(cut, at_cut->next_sqn);
    for (int again = 0; again < 2; again++) {
        struct hf_log *log = kit_open(cut, config);
        const struct hf_log_info info = kit_info(log);
        CHECK(again || credulous || info.next_sqn == found);
        CHECK_EQ(info.damaged, 0);
        if (lies) {
            exposed += !again && info.next_sqn < at_cut->appended_sqn ? 1 : 0;
        } else {
            CHECK(info.next_sqn >= at_cut->next_sqn);
        }
        CHECK(again || info.oldest_sqn <= at_cut->oldest_sqn);
        expect_whole(cut);
        struct hf_logr *r = kit_reader(cut);
        kit_expect(r, info.oldest_sqn, info.next_sqn, 0);
        kit_append(log, info.next_sqn, 40, 700, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        kit_expect(r, kit_info(log).oldest_sqn, info.next_sqn + 40, 0);
        expect_whole(cut);
        hf_logr_close(r);
        hf_log_close(log);
    }
    elsewhere = 0;
    images++;
    close(cut);
    kit_empty(root, "after");
}

static void one_run(uint64_t run, uint64_t cuts)
{
    chance = run + 1;
    int dir = kit_subdirectory(root, "before");
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, run % 2 == 0 ? 5 * SEGMENT : 0);
    struct life life = {kit_open(dir, config), run % 2 == 0 ? UINT64_MAX : 0};
    struct hf_log *dead = NULL;
    file_count = 0;
    CHECK_EQ(hf_log_begin(life.log, 1, 0), HF_OK);
    live(&life, roll_dice(150), 1);
    if (run % 3 == 0) {  /* a store that is killed: what it renamed is in no journal yet */
        dead = life.log; /* not closed before the power goes: that would sync */
        life.log = kit_open(dir, config);
        live(&life, roll_dice(20), 0);
    }
    live(&life, roll_dice(60), run % 4 == 1);
    const struct hf_log_info at_cut = kit_info(life.log);
    for (uint64_t i = 0; i < cuts; i++) {
        one_image(dir, config, &at_cut);
    }
    hf_log_close(life.log);
    if (dead != NULL) {
        hf_log_close(dead);
    }
    close(dir);
    kit_empty(root, "before");
}

static void a_power_cut_makes_no_damage_of_what_was_let_go(void)
{
    for (uint64_t run = 0; run < RUNS; run++) {
        one_run(run, 1);
    }
}

static void a_log_that_calls_stable_what_is_not_synced_is_caught(void)
{
    uint64_t before = images;
    lies = 1;
    for (uint64_t run = 0; run < CONTROLS; run++) {
        one_run(run, 1);
    }
    lies = 0;
    CHECK(exposed * 2 > CONTROLS);
    caught++;
    images = before;
}

static void a_reader_that_believes_an_old_head_is_caught(void)
{
    uint64_t before = images;
    credulous = 1;
    exposed = 0;
    hf_failpoint_arm("logr.believe_head=mutant");
    for (uint64_t run = 0; run < CONTROLS; run++) {
        one_run(run, 1);
    }
    hf_failpoint_arm("");
    credulous = 0;
    CHECK(exposed * 10 > CONTROLS); /* most cuts find the head written back, or nothing synced since */
    caught++;
    images = before;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The headers of segments that the last group commit did not know: those of `lost`, a bit each, are zeros. */
static void take_headers(int dir, int lost)
{
    static const uint8_t nothing[4096];
    const struct names names = take_names(dir);
    uint64_t base[FILES];
    int count = 0;
    for (int i = 0; i < names.count; i++) {
        if (strncmp(names.at[i].name, "seg-", 4) == 0) {
            base[count++] = strtoull(names.at[i].name + 4, NULL, 16);
        }
    }
    CHECK_EQ(count, 4);
    qsort(base, 4, sizeof base[0], by_value);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "seg-%016llx", (unsigned long long)base[i + 1]);
        int fd = openat(dir, name, O_WRONLY);
        CHECK(fd >= 0);
        CHECK_EQ(lost & (1 << i) ? pwrite(fd, nothing, sizeof nothing, 0) : (ssize_t)sizeof nothing, sizeof nothing);
        close(fd);
    }
}

static void headers_that_did_not_arrive_are_a_torn_tail(void)
{
    for (int lost = 1; lost < 8; lost++) {
        int dir = kit_subdirectory(root, "headers");
        struct hf_log_config config = kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0);
        struct hf_log *log = kit_open(dir, config), *dead = log;
        file_count = 0;
        kit_append(log, 0, 5, 700, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        for (uint64_t sqn = 5; sqn < 8; sqn++) {
            CHECK_EQ(hf_log_roll(log), HF_OK);
            kit_append(log, sqn, 1, 700, 0);
        }
        take_headers(dir, lost);
        log = kit_open(dir, config);
        CHECK_EQ(kit_info(log).damaged, 0);
        CHECK_EQ(kit_info(log).next_sqn, lost & 1 ? 5 : lost & 2 ? 6 : 7);
        expect_whole(dir);
        hf_log_close(log);
        hf_log_close(dead);
        close(dir);
        kit_empty(root, "headers");
    }
}

/* Else the head on disk would vouch, after the reboot, for files that only its disk life synced. */
static void a_log_that_changes_to_memory_says_so_for_good(void)
{
    for (uint64_t run = 0; run < 20; run++) {
        int dir = kit_subdirectory(root, "before"), cut = kit_subdirectory(root, "after");
        file_count = 0;
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
        kit_append(log, 0, 60, 700, 0);
        hf_log_close(log);
        hf_log_close(kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0))); /* its head is synced at opens */
        struct hf_log_config config = kit_config(HF_LEVEL_MEMORY, SEGMENT, SEGMENT, 3 * SEGMENT);
        log = kit_open(dir, config);
        kit_append(log, 60, 60, 700, 0);
        cut_power(dir, cut);
        int fd = openat(cut, "head", O_WRONLY);
        CHECK_EQ(pwrite(fd, "another boot", 12, offsetof(struct hf_preamble, boot_id)), 12);
        close(fd);
        hf_log_close(log);
        log = kit_open(cut, config);
        CHECK_EQ(kit_info(log).damaged, 0);
        hf_log_close(log);
        close(dir);
        close(cut);
        kit_empty(root, "before");
        kit_empty(root, "after");
    }
}

static uint64_t syncs_left; /* the one behind them fails */

static int fails_once(void)
{
    errno = EIO;
    return syncs_left-- == 0;
}

/* What is in `dir` is on its disk: it is the one that stays after a power cut. */
static void begin_anew(int dir)
{
    const struct names names = take_names(dir);
    new_disk();
    durable = names;
    for (int i = 0; i < names.count; i++) {
        int fd = openat(dir, names.at[i].name, O_RDONLY);
        CHECK_EQ(fdatasync(fd), 0);
        close(fd);
    }
}

/* Whatever sync of an opening fails behind a power cut: what was torn off stays off, and what comes next stays. */
static void a_failed_sync_of_an_opening_that_cuts_loses_nothing_later(void)
{
    char doubt[64];
    uint64_t poisoned = 0;
    snprintf(doubt, sizeof doubt, "/proc/self/fd/%d/doubt", root);
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0);
    config.doubt = doubt;
    for (uint64_t run = 0; run < 120; run++) {
        chance = run + 1;
        int dir = kit_subdirectory(root, "before"), disk = kit_subdirectory(root, "disk");
        new_disk();
        struct life life = {kit_open(dir, config), UINT64_MAX};
        live(&life, 20, 1);
        CHECK_EQ(hf_log_sync(life.log), HF_OK);
        live(&life, 60, 0); /* several segments, of which a part arrives */
        cut_power(dir, disk);
        hf_log_close(life.log);
        begin_anew(disk);
        sync_fails = fails_once;
        syncs_left = run % 8;
        struct hf_log *log = NULL;
        int64_t status = hf_log_open(disk, &config, &log);
        poisoned += status == HF_POISONED;
        sync_fails = NULL;
        log = status == HF_OK ? log : kit_open(disk, config);
        kit_append(log, kit_info(log).appended_sqn, 1 + roll_dice(60), 700, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        const struct hf_log_info stable = kit_info(log);
        one_image(disk, config, &stable);
        hf_log_close(log);
        close(dir);
        close(disk);
        kit_empty(root, "before");
        kit_empty(root, "disk");
    }
    new_disk();
    CHECK(poisoned > 40);
    CHECK_EQ(unlinkat(root, "doubt", 0), -1); /* the last one has taken it away */
}

int main(int argc, char **argv)
{
    uint64_t wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : RUNS;
    files = check_shared(FILES * sizeof *files);
    root = kit_directory();
    RUN(headers_that_did_not_arrive_are_a_torn_tail);
    RUN(a_power_cut_makes_no_damage_of_what_was_let_go);
    RUN(a_log_that_changes_to_memory_says_so_for_good);
    RUN(a_failed_sync_of_an_opening_that_cuts_loses_nothing_later);
    RUN(a_log_that_calls_stable_what_is_not_synced_is_caught);
    RUN(a_reader_that_believes_an_old_head_is_caught);
    for (uint64_t run = first; images < wanted; run++) { /* takes as long as it takes */
        one_run(run, IMAGES);
    }
    printf("{\"evidence\": \"torn_images\", \"counts\": {\"images\": %llu}, \"findings\": 0, \"planted\": [%d, 2]}\n",
           (unsigned long long)images, caught);
    return 0;
}
