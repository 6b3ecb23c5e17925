/* Numbers that nobody wants any more: hf_log_release. */
#include "log_kit.h"

enum { MESSAGE = 900, FIRST = 16384, MAX = 32768 };

static int root, made;

static int directory(void)
{
    char name[32];
    snprintf(name, sizeof name, "release-%d", made++);
    return kit_subdirectory(root, name);
}

static void expect_gone_below(struct hf_logr *r, uint64_t below)
{
    static uint8_t buf[KIT_BUFFER];
    uint64_t next = 0, oldest, end;
    CHECK_EQ(hf_logr_range(r, &oldest, &end), HF_OK);
    CHECK_EQ(oldest, below);
    CHECK_EQ(hf_logr_read(r, below - 1, buf, sizeof buf, &next), HF_GONE);
    CHECK_EQ(next, below);
}

static void released_numbers_are_gone_to_the_number_and_their_segments_to_the_segment(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        int dir = directory();
        struct hf_log *log = kit_open(dir, kit_config(level, FIRST, MAX, 0));
        CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
        kit_append(log, 0, 200, MESSAGE, 1);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        uint64_t segments = kit_info(log).segments;
        CHECK(segments > 4);
        struct hf_logr *r = kit_reader(dir);
        kit_expect(r, 0, 200, 1);
        CHECK_EQ(hf_log_release(log, 1), HF_OK); /* in the first segment: none goes */
        CHECK_EQ(kit_info(log).segments, segments);
        expect_gone_below(r, 1);
        CHECK_EQ(hf_log_release(log, 100), HF_OK);
        CHECK(kit_info(log).segments < segments);
        expect_gone_below(r, 100);
        kit_expect(r, 100, 200, 1);
        CHECK_EQ(hf_log_release(log, 50), HF_OK); /* never back */
        expect_gone_below(r, 100);
        CHECK_EQ(hf_log_release(log, 5000), HF_OK); /* all that is there: the active segment stays */
        CHECK_EQ(kit_info(log).segments, 1);
        CHECK_EQ(kit_info(log).oldest_sqn, 200);
        kit_append(log, 200, 50, MESSAGE, 1);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        expect_gone_below(r, 200);
        kit_expect(r, 200, 250, 1);
        hf_logr_close(r);
        hf_log_close(log);
        CHECK_EQ(kit_findings(dir, &(struct hf_check_summary){0}), 0);
        close(dir);
    }
}

static void a_roll_does_not_bring_released_numbers_back(void)
{
    int dir = directory();
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, FIRST, MAX, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 10, MESSAGE, 1);
    CHECK_EQ(hf_log_release(log, 7), HF_OK);
    kit_append(log, 10, 100, MESSAGE, 1);
    CHECK(kit_info(log).segments > 1);
    CHECK_EQ(kit_info(log).oldest_sqn, 7);
    hf_log_close(log);
    close(dir);
}

static void a_retired_file_becomes_the_spare(void)
{
    int dir = directory();
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, FIRST, FIRST, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 60, MESSAGE, 1);
    CHECK_EQ(kit_names(dir, "spare"), 0);
    CHECK_EQ(hf_log_release(log, 60), HF_OK);
    CHECK_EQ(kit_names(dir, "spare"), 1);
    CHECK_EQ(kit_names(dir, "seg-"), 1);
    kit_append(log, 60, 60, MESSAGE, 1);
    hf_log_close(log);
    close(dir);
}

static void an_incarnation_that_begins_below_takes_the_release_back_to_its_start(void)
{
    int dir = directory();
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, FIRST, MAX, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 30, MESSAGE, 1);
    CHECK_EQ(hf_log_release(log, 30), HF_OK);
    CHECK_EQ(hf_log_begin(log, 2, 20), HF_OK);
    kit_append(log, 20, 20, MESSAGE, 2);
    struct hf_logr *r = kit_reader(dir);
    expect_gone_below(r, 20);
    kit_expect(r, 20, 40, 2);
    hf_logr_close(r);
    hf_log_close(log);
    close(dir);
}

static void the_next_open_offers_what_the_segments_still_hold(void)
{
    int dir = directory();
    struct hf_log_config config = kit_config(HF_LEVEL_DISK, FIRST, MAX, 0);
    struct hf_log *log = kit_open(dir, config);
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, 200, MESSAGE, 1);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(hf_log_release(log, 100), HF_OK);
    hf_log_close(log);
    log = kit_open(dir, config);
    uint64_t oldest = kit_info(log).oldest_sqn;
    CHECK(oldest > 0 && oldest < 100);
    CHECK_EQ(hf_log_release(log, 100), HF_OK);
    CHECK_EQ(kit_info(log).oldest_sqn, 100);
    hf_log_close(log);
    close(dir);
}

int main(void)
{
    root = kit_directory();
    RUN(released_numbers_are_gone_to_the_number_and_their_segments_to_the_segment);
    RUN(a_roll_does_not_bring_released_numbers_back);
    RUN(a_retired_file_becomes_the_spare);
    RUN(an_incarnation_that_begins_below_takes_the_release_back_to_its_start);
    RUN(the_next_open_offers_what_the_segments_still_hold);
    return 0;
}
