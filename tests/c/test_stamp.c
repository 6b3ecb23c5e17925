/* The time that messages carry, beside a clock and a counter that the test moves. The counter goes 3 times in a nanosecond. */
#include "check.h"

#include <stdint.h>

static uint64_t read_counter(void);
#define HF_COUNTER() read_counter()
/* The product's are linked, too. */
#define hf_stamp_begin begin
#define hf_stamp_look look
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
    begin(&t);
    t.counts = 1; /* whatever this machine has */
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
    struct hf_stamp t = fresh();
    for (int i = 0; i < 60000; i++) {
        slower_ppm = i < 57000 ? 0 : 450;
        pass(MS);
        (void)off(&t);
    }
    for (int i = 0; i < 10000; i++) {
        pass(999);
        int64_t far = off(&t);
        CHECK(far > -200 && far < 200);
    }
}

static void a_clock_that_is_set_is_followed_within_a_millisecond(void)
{
    const int64_t steps[] = {-3600 * INT64_C(1000000000), -MS, -30000, 30000, MS, 86400 * INT64_C(1000000000)};
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        struct hf_stamp t = fresh();
        known(&t);
        wall += steps[k];
        pass(MS + 1000);
        CHECK(is_read(&t));
        for (int i = 0; i < 100000; i++) {
            pass(1000);
            int64_t far = off(&t);
            CHECK(far > -1000 && far < 1000);
        }
    }
}

/* The rate that it measured is wrong, then, and it is found out. */
static void a_clock_that_is_set_while_the_rate_is_measured_does_no_harm_for_long(void)
{
    const int64_t steps[] = {-5 * MS, 5 * MS, 900 * MS, 3600 * INT64_C(1000000000)};
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        struct hf_stamp t = fresh();
        (void)off(&t);
        pass(9 * MS);
        (void)off(&t);
        wall += steps[k];
        for (int i = 0; i < 3000; i++) {
            pass(10000);
            int64_t far = off(&t);
            CHECK(far > -MS && far < MS);
        }
        for (int i = 0; i < 3000; i++) {
            pass(10000);
            int64_t far = off(&t);
            CHECK(far > -1000 && far < 1000);
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
        int64_t before = said;
        CHECK(off(&t) > -1000 && said - wall < 20000);
        CHECK(said > before);
        pass(2 * MS);
        int64_t far = off(&t);
        CHECK(far > -1000 && far < 1000);
    }
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
    t.counts = 0;
    for (int i = 1; i <= 100; i++) {
        pass(MS);
        CHECK(is_read(&t));
        CHECK_EQ(looks, i);
    }
}

int main(void)
{
    RUN(it_is_read_each_time_until_the_rate_is_known);
    RUN(it_is_within_a_microsecond_and_looks_once_in_a_millisecond);
    RUN(a_clock_whose_rate_is_changed_is_followed);
    RUN(a_rate_that_is_another_one_for_good_is_learned);
    RUN(a_clock_that_is_set_is_followed_within_a_millisecond);
    RUN(a_clock_that_is_set_while_the_rate_is_measured_does_no_harm_for_long);
    RUN(a_source_that_was_silent_looks_first);
    RUN(a_look_that_is_interrupted_is_not_believed);
    RUN(a_counter_that_is_slow_is_left_alone);
    RUN(a_kernel_that_does_not_keep_its_clock_by_the_counter_is_asked_each_time);
    return 0;
}
