/* The power goes at each sync of a store that makes a head of layout version 1 anew, and then begins: the disk has what was synced,
 * and any of the sectors and names that came after. BEGINs that were told are there, and a table is the old one or the new one. */
#include "power_kit.h"

#include "base/failpoint.h"
#include "head_kit.h"

enum { FIRST = 40, LAST = 46, IMAGES = 12, RUNS = 3, CONTROLS = 6 };

static int root, disk_dir;
static uint64_t told, begun; /* incarnations that hf_log_begin has returned of, and that it was called with */
static uint64_t images, wrong;
static int planted;

static int is_right(int cut)
{
    struct hf_begin begins[HF_INCARNATIONS];
    struct hf_check_summary sum;
    struct hf_logr *r = NULL;
    struct hf_log *log = NULL;
    struct hf_log_config config = disk();
    if (hf_logr_open(cut, &r) != HF_OK) {
        return 0;
    }
    int64_t n = hf_logr_begins(r, begins);
    hf_logr_close(r);
    if (n < (int64_t)told || n > (int64_t)begun || begins[n - 1].incarnation != (uint64_t)n) {
        return 0;
    }
    struct hf_finding found[4];
    int64_t findings = hf_log_check(cut, found, 4, &sum);
    for (int64_t i = 0; i < findings; i++) { /* a seal may be half there: that costs nothing */
        CHECK(i < 4 && found[i].first_sqn == found[i].next_sqn);
    }
    if (findings < 0 || sum.messages != EACH || hf_log_open(cut, &config, &log) != HF_OK) {
        return 0;
    }
    struct hf_log_info info = kit_info(log);
    hf_log_close(log);
    return info.incarnation == (uint64_t)n && !info.unsure && info.next_sqn == EACH;
}

static int at_each_sync(void)
{
    sync_fails = NULL;
    elsewhere = 1;
    for (int i = 0; i < IMAGES; i++) {
        int cut = kit_subdirectory(root, "after");
        cut_power(disk_dir, cut);
        int right = is_right(cut);
        CHECK(right || planted);
        wrong += !right;
        images++;
        close(cut);
        kit_empty(root, "after");
    }
    elsewhere = 0;
    sync_fails = at_each_sync;
    return 0;
}

static void one_run(uint64_t run)
{
    struct hf_begin begins[HF_INCARNATIONS];
    chance = run + 1;
    new_disk();
    elsewhere = 1;
    disk_dir = old_log(root, FIRST, begins);
    elsewhere = 0;
    const struct names names = take_names(disk_dir);
    for (int i = 0; i < names.count; i++) {
        int fd = openat(disk_dir, names.at[i].name, O_RDONLY);
        CHECK_EQ(fdatasync(fd), 0);
        close(fd);
    }
    CHECK_EQ(fsync(disk_dir), 0);
    told = begun = FIRST;
    sync_fails = at_each_sync;
    struct hf_log *log = kit_open(disk_dir, disk());
    while (begun < LAST) {
        CHECK_EQ(hf_log_begin(log, ++begun, EACH), HF_OK);
        told = begun;
    }
    at_each_sync();
    hf_log_close(log);
    sync_fails = NULL;
    close(disk_dir);
    kit_empty(root, "old");
}

static void a_power_cut_leaves_the_begins_that_were_told(void)
{
    for (uint64_t run = 0; run < RUNS; run++) {
        one_run(run);
    }
    CHECK(images >= RUNS * IMAGES * (4 + LAST - FIRST));
}

static void planted_bugs_are_found(void)
{
    static const char *const bugs[] = {"head.one_slot=mutant", "head.tell_early=mutant", "head.unsynced=mutant"};
    planted = 1;
    for (int i = 0; i < 3; i++) {
        wrong = 0;
        hf_failpoint_arm(bugs[i]);
        for (uint64_t run = 0; run < CONTROLS; run++) {
            one_run(run);
        }
        hf_failpoint_arm(NULL);
        CHECK(wrong > 0);
    }
}

int main(void)
{
    root = kit_directory();
    files = check_shared(FILES * sizeof *files);
    RUN(a_power_cut_leaves_the_begins_that_were_told);
    RUN(planted_bugs_are_found);
    printf("%llu images\n", (unsigned long long)images);
    return 0;
}
