/* Timestamps: each way of sending writes the clock's time at the send, one for all fragments of a message. */
#include <time.h>

#include "stream_kit.h"

static int64_t clock_ns(void)
{
    struct timespec t;
    CHECK(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define LAG_NS 2000 /* twice what stamp.h allows, and test_stamp.c checks */

/* The frames in [from, s->position) carry one time, which lies between `before` and now. */
static void expect_one_time(struct hf_source *s, uint64_t from, int64_t before)
{
    int64_t after = clock_ns(), stamped = kit_frame(s, from)->timestamp_ns;
    CHECK(before - LAG_NS <= stamped && stamped <= after + LAG_NS);
    for (uint64_t at = from; at != s->position;) {
        const struct hf_frame *frame = kit_frame(s, at);
        CHECK_EQ(frame->timestamp_ns, stamped);
        at += ((uint32_t)frame->commit + 31) & ~UINT64_C(31);
    }
}

static void every_way_of_sending_writes_the_time_of_the_send(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    static uint8_t data[8000];
    const uint64_t lengths[] = {0, 16, 1000, sizeof data}; /* the last in several fragments */
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint64_t from = s->position;
        int64_t before = clock_ns();
        CHECK(hf_source_send(s, data, lengths[i]) >= 0);
        expect_one_time(s, from, before);
    }
    uint64_t from = s->position;
    int64_t before = clock_ns(), status;
    CHECK(hf_source_claim(s, 100, &status) != NULL);
    CHECK(hf_source_commit(s) >= 0);
    expect_one_time(s, from, before);
    from = s->position;
    before = clock_ns();
    CHECK_EQ(hf_source_send_rows(s, data, 40, 40, 50), 50);
    expect_one_time(s, from, before);
    const int32_t ends[] = {0, 10, 30, sizeof data};
    from = s->position;
    before = clock_ns();
    CHECK_EQ(hf_source_send_binary(s, data, ends, 0, 0, 3), 3);
    expect_one_time(s, from, before);
    hf_source_destroy(s);
}

int main(void)
{
    RUN(every_way_of_sending_writes_the_time_of_the_send);
    return 0;
}
