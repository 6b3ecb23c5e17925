/* A log that goes to rest, or is taken up again, on a disk that loses its power: at each of its syncs, and behind them. */
#include "base/failpoint.h"
#include "power_kit.h"

enum { RUNS = 300, CONTROLS = 60, IMAGES = 4, LIVES = 3 };

static int root, watched = -1; /* the directory whose disk loses its power at each sync; -1: none does */
static struct hf_log_config config;
static struct hf_begin begun[LIVES];
static uint64_t begins, held; /* what is stable */
static uint64_t images, lost;

/* Half a header, or a torn tail, may be there where nothing was published; no number is missing. */
static int costs_nothing(int cut)
{
    struct hf_finding found[16];
    struct hf_check_summary sum;
    int64_t n = hf_log_check(cut, found, 16, &sum);
    int good = n >= 0 && n <= 16;
    for (int64_t i = 0; good && i < n; i++) {
        good = found[i].first_sqn == found[i].next_sqn;
    }
    return good;
}

/* 1: all that is stable is there, for readers and for the store that opens it next. */
static int is_whole(int cut)
{
    struct hf_begin found[HF_INCARNATIONS];
    uint64_t next = 0;
    struct hf_logr *r = NULL;
    int whole = hf_logr_open(cut, &r) == HF_OK;
    if (whole) {
        whole = hf_logr_begins(r, found) == (int64_t)begins && memcmp(found, begun, begins * sizeof *begun) == 0 &&
                hf_logr_end(r, &next) == HF_OK && next >= held;
        if (whole) {
            kit_expect(r, 0, held, 0);
        }
        hf_logr_close(r);
    }
    whole = whole && costs_nothing(cut);
    struct hf_log *log = kit_open(cut, config);
    struct hf_log_info info = kit_info(log);
    whole = whole && !info.unsure && info.damaged == 0 && info.next_sqn == next &&
            info.incarnation == begun[begins - 1].incarnation;
    CHECK_EQ(hf_log_rest(log, 1), HF_OK);
    return whole;
}

static void reboot(int cut)
{
    int fd = openat(cut, "head", O_WRONLY | O_CLOEXEC);
    CHECK(fd < 0 || pwrite(fd, "another boot", 12, offsetof(struct hf_preamble, boot_id)) == 12);
    CHECK(fd < 0 || close(fd) == 0);
}

static void look(int dir)
{
    for (int i = 0; i < IMAGES; i++) {
        int cut = kit_subdirectory(root, "after"), again = elsewhere;
        cut_power(dir, cut);
        reboot(cut);
        elsewhere = 1;
        lost += !is_whole(cut);
        elsewhere = again;
        images++;
        close(cut);
        kit_empty(root, "after");
    }
}

static int at_a_sync(void)
{
    if (watched >= 0) {
        look(watched);
    }
    return 0;
}

/* One incarnation of a source, and its log's way to rest. */
static void live(int dir, uint64_t incarnation)
{
    struct hf_log *log = kit_open(dir, config);
    watched = -1;
    begun[begins] = (struct hf_begin){incarnation, held};
    CHECK_EQ(hf_log_begin(log, incarnation, held), HF_OK);
    begins++;
    uint64_t count = roll_dice(4);
    if (count > 0) {
        kit_append(log, held, count, (uint32_t)(30 + roll_dice(900)), 0);
    }
    if (roll_dice(2) == 0) {
        CHECK_EQ(hf_log_sync(log), HF_OK);
        held += count;
        count = 0;
    }
    if (roll_dice(2) == 0) {
        CHECK(hf_log_prepare(log) >= 0);
    }
    watched = dir;
    CHECK_EQ(hf_log_rest(log, 1), HF_OK);
    held += count; /* rest has synced it */
    look(dir);
}

static void run_all(uint64_t runs)
{
    sync_fails = at_a_sync;
    for (uint64_t run = 0; run < runs; run++) {
        chance = run + 1;
        int dir = kit_subdirectory(root, "before");
        new_disk();
        watched = -1; /* a head that is new: nothing is stable yet */
        begins = held = 0;
        for (uint64_t life = 1; life <= LIVES; life++) {
            live(dir, life);
        }
        watched = -1;
        close(dir);
        kit_empty(root, "before");
    }
    sync_fails = NULL;
}

static void nothing_is_lost_on_the_way_to_rest_and_back(void)
{
    run_all(RUNS);
    CHECK(images > RUNS * LIVES * IMAGES * 2);
    CHECK_EQ(lost, 0);
}

/* The planted bug, which the images must show. */
static void a_head_that_is_named_before_it_is_on_disk_is_caught(void)
{
    hf_failpoint_arm("head.unsynced=mutant");
    run_all(CONTROLS);
    hf_failpoint_arm("");
    CHECK(lost > CONTROLS);
}

/* A source's lives, of which nothing is synced before its log goes to rest. `on_disk`: as it is asked to. */
static void rest_from_memory(uint64_t runs, int on_disk)
{
    struct hf_log_config memory = kit_config(HF_LEVEL_MEMORY, SEGMENT, SEGMENT, 0);
    for (uint64_t run = 0; run < runs; run++) {
        chance = run + 1;
        int dir = kit_subdirectory(root, "before");
        new_disk();
        begins = held = 0;
        for (uint64_t life = 1; life <= LIVES; life++) {
            struct hf_log *log = kit_open(dir, memory);
            begun[begins] = (struct hf_begin){life, held};
            CHECK_EQ(hf_log_begin(log, life, held), HF_OK);
            begins++;
            uint64_t count = 1 + roll_dice(4);
            kit_append(log, held, count, (uint32_t)(30 + roll_dice(900)), 0);
            CHECK_EQ(hf_log_rest(log, on_disk), HF_OK);
            held += count;
            look(dir);
        }
        close(dir);
        kit_empty(root, "before");
    }
}

static void what_was_acknowledged_from_memory_is_on_disk_at_rest(void)
{
    images = lost = 0;
    rest_from_memory(RUNS, 1);
    CHECK_EQ(images, RUNS * LIVES * IMAGES);
    CHECK_EQ(lost, 0);
    rest_from_memory(CONTROLS, 0);
    CHECK(lost > CONTROLS);
}

int main(void)
{
    files = check_shared(FILES * sizeof *files);
    root = kit_directory();
    config = kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0);
    RUN(nothing_is_lost_on_the_way_to_rest_and_back);
    RUN(a_head_that_is_named_before_it_is_on_disk_is_caught);
    RUN(what_was_acknowledged_from_memory_is_on_disk_at_rest);
    return 0;
}
