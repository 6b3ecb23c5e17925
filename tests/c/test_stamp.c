/* The time that messages carry, beside a clock and a counter that the test moves. The counter goes 3 times in a nanosecond. */
#include "check.h"

#include <stdint.h>

static uint64_t read_counter(void);
int fake_counts(void);
#define HF_COUNTER() read_counter()
/* The product's are linked, too. */
#define hf_stamp_begin begin
#define hf_stamp_look look
#define hf_proc_clock_counts fake_counts
#include <time.h>
static int clock_of_test(clockid_t clock, struct timespec *t);
#define clock_gettime clock_of_test
#include "../../csrc/base/stamp.c"

#define MS INT64_C(1000000)
#define START INT64_C(1700000000000000000)

static uint64_t fake_counter;
static int64_t read_ns;    /* to read the counter takes so long */
static int64_t wall;       /* what the clock says */
static int64_t slower_ppm; /* it goes slower than the counter */
static uint64_t rest;
static int looks;
static int by_counter; /* the kernel keeps its clock by the counter */

int fake_counts(void)
{
    return by_counter;
}

static int clock_of_test(clockid_t clock, struct timespec *t)
{
    CHECK_EQ(clock, CLOCK_REALTIME);
    looks++;
    t->tv_sec = wall / 1000000000;
    t->tv_nsec = wall % 1000000000;
    return 0;
}

static void pass(int64_t ns)
{
    fake_counter += 3 * (uint64_t)ns;
    int64_t late = ns * slower_ppm + (int64_t)rest;
    wall += ns - late / 1000000;
    rest = (uint64_t)(late % 1000000);
}

static uint64_t read_counter(void)
{
    pass(read_ns);
    return fake_counter;
}

static struct hf_stamp fresh(void)
{
    struct hf_stamp t;
    wall = START;
    fake_counter = UINT64_C(1) << 40;
    read_ns = 30;
    slower_ppm = 0;
    rest = 0;
    looks = 0;
    by_counter = 1;
    begin(&t);
    return t;
}

/* What is said now, and how far it is from the clock. */
static int64_t said;
static int64_t off(struct hf_stamp *t)
{
    said = hf_stamp_read(t);
    return said - wall;
}

/* It is what the clock has just said. */
static int is_read(struct hf_stamp *t)
{
    int64_t far = off(t);
    return far <= 0 && far >= -2 * read_ns;
}

static void known(struct hf_stamp *t)
{
    for (int i = 0; i < 30; i++) {
        pass(MS);
        (void)off(t);
    }
    CHECK(t->span != 0);
}

static void it_is_read_each_time_until_the_rate_is_known(void)
{
    struct hf_stamp t = fresh();
    for (int i = 1; i <= 10; i++) {
        CHECK(is_read(&t));
        CHECK_EQ(looks, i);
        pass(MS - 1000);
    }
    known(&t);
}

static void it_is_within_a_microsecond_and_looks_once_in_a_millisecond(void)
{
    const int64_t ppm[] = {0, 50, 500, -500};
    for (size_t k = 0; k < sizeof ppm / sizeof ppm[0]; k++) {
        struct hf_stamp t = fresh();
        slower_ppm = ppm[k];
        known(&t);
        looks = 0;
        int64_t before = said;
        for (int i = 0; i < 1000000; i++) {
            pass(i % 1000);
            int64_t far = off(&t);
            CHECK(far > -1000 && far < 1000);
            CHECK(said >= before);
            before = said;
        }
        CHECK(looks > 400 && looks < 600); /* half a second */
    }
}

static void a_clock_whose_rate_is_changed_is_followed(void)
{
    struct hf_stamp t = fresh();
    known(&t);
    int64_t before = said;
    for (int turn = 0; turn < 20; turn++) {
        slower_ppm = turn % 2 ? -500 : 500;
        for (int i = 0; i < 300000; i++) {
            pass(i % 100 ? 20 : 20000);
            int64_t far = off(&t);
            CHECK(far > -1200 && far < 1200); /* 0.5 us more than before, in a millisecond */
            CHECK(said >= before);
            before = said;
        }
    }
}

static void a_rate_that_is_another_one_for_good_is_learned(void)
{
    const int64_t ppm[] = {450, -450, 5000, 83333, -83333}; /* the last as fast as chrony goes */
    for (size_t k = 0; k < sizeof ppm / sizeof ppm[0]; k++) {
        struct hf_stamp t = fresh();
        known(&t);
        int64_t before = said;
        slower_ppm = ppm[k];
        for (int i = 0; i < 2000000; i++) {
            pass(999);
            int64_t far = off(&t);
            CHECK(far > -100000 && far < 100000);
            CHECK(i < 1500000 || (far > -300 && far < 300));
            CHECK(said >= before);
            before = said;
        }
        CHECK(t.rate != 0);
    }
}

static void a_clock_that_is_set_is_followed_within_a_millisecond(void)
{
    const int64_t steps[] = {-3600 * INT64_C(1000000000), -MS, -30000, 30000, MS, 600 * MS,
                             86400 * INT64_C(1000000000)};
    for (size_t k = 0; k < 2 * sizeof steps / sizeof steps[0]; k++) {
        struct hf_stamp t = fresh();
        fake_counter = UINT64_C(1) << (k % 2 ? 40 : 25); /* a machine that has just started */
        known(&t);
        wall += steps[k / 2];
        pass(MS + 1000);
        CHECK(is_read(&t));
        int64_t before = said;
        for (int i = 0; i < 100000; i++) {
            pass(1000);
            int64_t far = off(&t);
            CHECK(far > -1000 && far < 1000);
            CHECK(said >= before);
            before = said;
        }
        CHECK(t.rate != 0);
    }
}

static void a_clock_that_is_set_back_a_little_is_waited_for(void)
{
    struct hf_stamp t = fresh();
    known(&t);
    int64_t before = said;
    wall -= MS / 2;
    for (int i = 0; i < 2000; i++) {
        pass(1000);
        (void)off(&t);
        CHECK(said >= before);
        before = said;
    }
    CHECK(off(&t) < 1000);
}

static void a_clock_that_is_set_while_its_rate_is_measured_is_read_until_it_is_known(void)
{
    const int64_t steps[] = {-5 * MS, 30000, 100000, MS, 5 * MS, 900 * MS, 3600 * INT64_C(1000000000)};
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        for (int at = 0; at < 30; at++) {
            struct hf_stamp t = fresh();
            (void)off(&t);
            int64_t before = 0;
            for (int i = 0; i < 5000; i++) {
                if (i == 100 * at + 50) {
                    wall += steps[k];
                    before = 0;
                    pass(MS); /* followed within a millisecond */
                }
                pass(10000);
                int64_t far = off(&t);
                CHECK(far > -1000 && far < 1000);
                CHECK(said >= before);
                before = said;
            }
            CHECK(t.rate != 0);
        }
    }
}

static void a_source_that_was_silent_looks_first(void)
{
    struct hf_stamp t = fresh();
    known(&t);
    for (int64_t silent = MS; silent < 3600 * INT64_C(1000000000); silent *= 7) {
        slower_ppm = 300;
        pass(silent);
        slower_ppm = 0;
        CHECK(is_read(&t));
        pass(2 * MS);
        int64_t far = off(&t);
        CHECK(far > -1000 && far < 1000);
    }
}

/* The counter is not read in order: one thread's later read may be of before. */
static void a_counter_that_is_read_early_does_no_harm(void)
{
    struct hf_stamp t = fresh();
    known(&t);
    int64_t before = said;
    for (int i = 0; i < 100000; i++) {
        pass(100);
        fake_counter -= 200 * (uint64_t)(i % 2);
        (void)off(&t);
        CHECK(said >= before);
        before = said;
        fake_counter += 200 * (uint64_t)(i % 2);
    }
    CHECK(looks > 0);
}

static void a_look_that_is_interrupted_is_not_believed(void)
{
    struct hf_stamp t = fresh();
    known(&t);
    int64_t before = said;
    read_ns = 30000;
    pass(2 * MS);
    looks = 0;
    CHECK(is_read(&t));
    CHECK_EQ(looks, 3);
    CHECK(said >= before);
    read_ns = 30;
    pass(1000);
    CHECK(off(&t) < 1000 && said - wall > -1000);
}

static void a_counter_that_is_slow_is_left_alone(void)
{
    struct hf_stamp t = fresh();
    read_ns = 30000;
    for (int i = 0; i < 20; i++) {
        CHECK(is_read(&t));
    }
    looks = 0;
    uint64_t before = fake_counter;
    CHECK(is_read(&t));
    CHECK_EQ(looks, 1);
    CHECK_EQ(fake_counter, before + 3 * (uint64_t)read_ns); /* the one of every read */
}

static void a_kernel_that_does_not_keep_its_clock_by_the_counter_is_asked_each_time(void)
{
    struct hf_stamp t = fresh();
    by_counter = 0;
    begin(&t);
    for (int i = 1; i <= 100; i++) {
        pass(MS);
        CHECK(is_read(&t));
        CHECK_EQ(looks, i);
    }
}

static void a_kernel_that_does_so_no_more_is_believed(void)
{
    struct hf_stamp t = fresh();
    known(&t);
    by_counter = 0;
    fake_counter += 300000; /* another core, whose counter goes otherwise */
    int64_t before = said;
    for (int i = 0; i < 200; i++) {
        pass(10000);
        int64_t far = off(&t);
        CHECK(far < 110000);
        CHECK(said >= before);
        before = said;
    }
    looks = 0;
    CHECK(is_read(&t));
    CHECK_EQ(looks, 1);
    CHECK(is_read(&t));
    CHECK_EQ(looks, 2);
}

int main(void)
{
    RUN(it_is_read_each_time_until_the_rate_is_known);
    RUN(it_is_within_a_microsecond_and_looks_once_in_a_millisecond);
    RUN(a_clock_whose_rate_is_changed_is_followed);
    RUN(a_rate_that_is_another_one_for_good_is_learned);
    RUN(a_clock_that_is_set_is_followed_within_a_millisecond);
    RUN(a_clock_that_is_set_back_a_little_is_waited_for);
    RUN(a_clock_that_is_set_while_its_rate_is_measured_is_read_until_it_is_known);
    RUN(a_source_that_was_silent_looks_first);
    RUN(a_counter_that_is_read_early_does_no_harm);
    RUN(a_look_that_is_interrupted_is_not_believed);
    RUN(a_counter_that_is_slow_is_left_alone);
    RUN(a_kernel_that_does_not_keep_its_clock_by_the_counter_is_asked_each_time);
    RUN(a_kernel_that_does_so_no_more_is_believed);
    return 0;
}
