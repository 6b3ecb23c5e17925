/* test_source.c: what policy says to a source: what is settled leaves the flight, what is released leaves the ring. */
#include "stream_kit.h"

/* Frames of 128 bytes, except for fragments: 1056 each, the last one less. */
static void send_plain(struct hf_source *s, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        CHECK(kit_send(s, 96, i) >= 0);
    }
}

static void expect_flight(struct hf_source *s, uint64_t fragments, uint64_t bytes, uint64_t retained)
{
    uint64_t out[3];
    hf_source_in_flight(s, &out[0], &out[1], &out[2]);
    CHECK_EQ(out[0], fragments);
    CHECK_EQ(out[1], bytes);
    CHECK_EQ(out[2], retained);
}

static void what_is_settled_leaves_the_flight_and_stays_retained(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    hf_source_limits(s, 4, 400, 1024);
    send_plain(s, 4);
    CHECK_EQ(kit_send(s, 0, 0), HF_FLIGHT_SIZE);
    CHECK_EQ(hf_source_settle(s, 3), 3);
    expect_flight(s, 1, 96, 512);
    CHECK_EQ(hf_source_settle(s, 3), 0);
    CHECK_EQ(hf_source_settle(s, 1), 0);
    send_plain(s, 3);
    expect_flight(s, 4, 384, 896);
    CHECK_EQ(hf_source_settle(s, UINT64_MAX), 4);
    expect_flight(s, 0, 0, 896);
    CHECK_EQ(kit_send(s, 96, 0), 7);
    CHECK_EQ(kit_send(s, 96, 0), HF_RETENTION); /* settled or not, they take up the retention buffer */
    CHECK_EQ(hf_source_release(s, 2), 2);
    expect_flight(s, 1, 96, 768);
    CHECK_EQ(kit_send(s, 96, 0), 8);
    hf_source_destroy(s);
}

static void what_is_released_is_settled(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    send_plain(s, 1000 / 4);
    CHECK_EQ(hf_source_settle(s, 100), 100);
    CHECK_EQ(hf_source_release(s, 40), 40); /* behind what is settled */
    expect_flight(s, 150, 150 * 96, 210 * 128);
    CHECK_EQ(hf_source_release(s, 100), 60); /* all of it */
    expect_flight(s, 150, 150 * 96, 150 * 128);
    CHECK_EQ(hf_source_release(s, 130), 30); /* and further */
    expect_flight(s, 120, 120 * 96, 120 * 128);
    CHECK_EQ(hf_source_settle(s, 120), 0);
    hf_source_destroy(s);
}

static void settled_frames_are_not_overwritten_before_they_are_released(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    int64_t status;
    while ((status = kit_send(s, 96, 0)) >= 0) {
        CHECK_EQ(hf_source_settle(s, UINT64_MAX), 1);
    }
    CHECK_EQ(status, HF_RETENTION);
    CHECK_EQ(kit_header(s)->trail, config.start_position);
    CHECK_EQ(hf_source_release(s, 1), 1);
    CHECK(kit_send(s, 96, 0) >= 0);
    hf_source_destroy(s);
}

static void settling_a_frame_that_was_written_over_is_damage_and_moves_nothing(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    send_plain(s, 3);
    kit_frame(s, 128)->commit ^= UINT64_C(1) << 40;
    CHECK_EQ(hf_source_settle(s, 3), HF_DAMAGED);
    CHECK_EQ(hf_source_release(s, 3), HF_DAMAGED);
    CHECK_EQ(hf_source_oldest(s, 3, 0), HF_DAMAGED);
    expect_flight(s, 3, 288, 384);
    CHECK_EQ(hf_source_release(s, 1), 1);
    hf_source_destroy(s);
}

/* Payloads of 1 + number bytes, so that each sum says which numbers it is of. */
static void send_rising(struct hf_source *s, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        CHECK(kit_send(s, 1 + hf_source_next(s), 0) >= 0);
    }
}

static uint64_t payload_of(uint64_t low, uint64_t high)
{
    uint64_t sum = 0;
    for (uint64_t number = low; number < high; number++) {
        sum += 1 + number;
    }
    return sum;
}

static uint64_t bytes_in_flight(struct hf_source *s)
{
    uint64_t out[3];
    hf_source_in_flight(s, &out[0], &out[1], &out[2]);
    return out[1];
}

static uint64_t in_flight(struct hf_source *s)
{
    uint64_t out[3];
    hf_source_in_flight(s, &out[0], &out[1], &out[2]);
    return out[0];
}

static void a_hole_stays_in_flight_and_nothing_behind_it_does(void)
{
    struct hf_stream_config config = kit_config();
    config.start_sqn = 100; /* the first hole begins in the second step */
    struct hf_source *s = kit_source(&config, NULL);
    uint64_t holes[4] = {110, 113, 140, 220};
    send_rising(s, 150);
    CHECK_EQ(hf_source_settle_around(s, 230, holes, 2), 130);
    CHECK_EQ(in_flight(s), 20 + 3 + 80);
    CHECK_EQ(bytes_in_flight(s), payload_of(230, 250) + payload_of(110, 113) + payload_of(140, 220));
    CHECK_EQ(hf_source_settle(s, 240), 10); /* the holes stay as they are */
    CHECK_EQ(in_flight(s), 10 + 3 + 80);
    CHECK_EQ(hf_source_release(s, 110), 10);
    CHECK_EQ(in_flight(s), 10 + 3 + 80);
    holes[2] = 200;
    CHECK_EQ(hf_source_settle_around(s, 0, holes, 2), 0);
    CHECK_EQ(bytes_in_flight(s), payload_of(240, 250) + payload_of(110, 113) + payload_of(200, 220));
    CHECK_EQ(hf_source_settle_around(s, 0, holes, 1), 0);
    CHECK_EQ(in_flight(s), 10 + 3);
    CHECK_EQ(hf_source_release(s, 113), 3); /* by force: the hole is gone, and said to be gone next */
    CHECK_EQ(hf_source_settle_around(s, UINT64_MAX, NULL, 0), 10);
    CHECK_EQ(in_flight(s), 0);
    CHECK_EQ(bytes_in_flight(s), 0);
    hf_source_destroy(s);
}

static void a_send_has_the_flight_size_but_for_the_holes(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    uint64_t holes[2] = {2, 4};
    hf_source_limits(s, 5, 500, 0);
    send_plain(s, 5);
    CHECK_EQ(kit_send(s, 0, 0), HF_FLIGHT_SIZE);
    CHECK_EQ(hf_source_settle_around(s, 5, holes, 1), 5);
    send_plain(s, 3);
    CHECK_EQ(kit_send(s, 21, 0), HF_FLIGHT_SIZE);
    hf_source_limits(s, 6, 500, 0);
    CHECK_EQ(kit_send(s, 21, 0), HF_FLIGHT_BYTES); /* 5 x 96 are in flight */
    CHECK_EQ(kit_send(s, 20, 0), 8);
    hf_source_settle_around(s, 9, holes, 1);
    hf_source_limits(s, 1, 0, 0);
    CHECK_EQ(kit_send(s, 0, 0),
             HF_FLIGHT_SIZE); /* what is behind the hole is settled, and yet something is in flight */
    hf_source_settle_around(s, 9, NULL, 0);
    CHECK_EQ(kit_send(s, 2500, 0), 11); /* nothing is: more fragments than the flight size */
    hf_source_destroy(s);
}

/* The flight counts them though the nearest step lies behind a hole's bound, or none was written between. */
static void holes_among_messages_of_several_fragments(void)
{
    struct hf_stream_config config = kit_config();
    config.ring_bytes = 1 << 18;
    struct hf_source *s = kit_source(&config, NULL);
    for (int i = 0; i < 20; i++) {
        CHECK(kit_send(s, 6000, 0) >= 0); /* six fragments: 5 of 1024 bytes, one of 880 */
    }
    uint64_t holes[6] = {62, 65, 66, 68, 118, 119};
    CHECK_EQ(hf_source_settle_around(s, UINT64_MAX, holes, 3), 120);
    CHECK_EQ(in_flight(s), 6);
    CHECK_EQ(bytes_in_flight(s), UINT64_C(6) * 1024);
    holes[1] = 66; /* with 65, the last one of its message */
    CHECK_EQ(hf_source_settle_around(s, UINT64_MAX, holes, 3), 0);
    CHECK_EQ(in_flight(s), 7);
    CHECK_EQ(bytes_in_flight(s), UINT64_C(6) * 1024 + 880);
    hf_source_destroy(s);
}

static void holes_that_cannot_be_are_refused_and_nothing_moves(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    send_plain(s, 10);
    CHECK_EQ(hf_source_release(s, 3), 3);
    const uint64_t bad[][4] = {{2, 4, 5, 6}, {4, 6, 5, 7}, {5, 4, 6, 7}, {4, 5, 8, 9}};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(hf_source_settle_around(s, 8, bad[i], 2), HF_USAGE);
        expect_flight(s, 7, 672, 896);
    }
    const uint64_t good[4] = {4, 5, 7, 8};
    kit_frame(s, 5 * 128)->commit ^= UINT64_C(1) << 40;
    CHECK_EQ(hf_source_settle_around(s, 8, good, 2), HF_DAMAGED);
    CHECK_EQ(hf_source_settle_around(s, 3, good, 1), HF_USAGE); /* it lies behind what is settled */
    expect_flight(s, 7, 672, 896);
    hf_source_destroy(s);
}

static void a_payload_larger_than_the_flight_in_bytes_is_never_admitted(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    hf_source_limits(s, 2, 3000, 0);
    CHECK_EQ(kit_send(s, 3001, 0), HF_FLIGHT_BYTES);
    CHECK_EQ(kit_send(s, 3000, 0), 2); /* more fragments than the flight size: nothing is in flight */
    CHECK_EQ(kit_send(s, 0, 0), HF_FLIGHT_SIZE);
    hf_source_settle(s, UINT64_MAX);
    CHECK_EQ(kit_send(s, 3001, 0), HF_FLIGHT_BYTES);
    CHECK_EQ(hf_source_next(s), 3);
    hf_source_destroy(s);
}

static void the_oldest_go_while_more_is_retained_than_is_to_be_kept(void)
{
    struct hf_stream_config config = kit_config();
    config.start_sqn = 50;
    struct hf_source *s = kit_source(&config, NULL);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 0), 50);
    send_plain(s, 10); /* 50 .. 59, 1280 bytes */
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 1280), 50);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 1279), 51);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 1152), 51);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 1), 60);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 0), 60);
    CHECK_EQ(hf_source_oldest(s, 53, 0), 53);
    CHECK_EQ(hf_source_oldest(s, 53, 1100), 52);
    CHECK_EQ(hf_source_oldest(s, 20, 0), 50);
    CHECK_EQ(hf_source_release(s, 55), 5);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 640), 55);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 500), 57);
    CHECK_EQ(hf_source_next(s), 60);
    expect_flight(s, 5, 480, 640);
    hf_source_destroy(s);
}

static void a_message_of_several_fragments_goes_as_a_whole_or_stays(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    CHECK_EQ(kit_send(s, 2500, 0), 2); /* 1056 + 1056 + 512 */
    CHECK_EQ(kit_send(s, 96, 0), 3);
    CHECK_EQ(kit_send(s, 2500, 0), 6);
    CHECK_EQ(hf_source_oldest(s, 1, 0), 0);
    CHECK_EQ(hf_source_oldest(s, 2, 0), 0);
    CHECK_EQ(hf_source_oldest(s, 3, 0), 3);
    CHECK_EQ(hf_source_oldest(s, 6, 0), 4);
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 2 * 2624 + 127), 3); /* one byte too many: all three fragments go */
    CHECK_EQ(hf_source_oldest(s, UINT64_MAX, 2 * 2624 + 128), 0);
    CHECK_EQ(hf_source_release(s, 1), 1); /* what is left of a message that was released in part */
    CHECK_EQ(hf_source_oldest(s, 4, 0), 4);
    hf_source_destroy(s);
}

static void a_send_that_finds_no_room_says_how_much_it_wanted(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    hf_source_limits(s, 0, 0, 3000);
    CHECK_EQ(kit_send(s, 1024, 0), 0);
    CHECK_EQ(kit_send(s, 1024, 0), 1);
    CHECK_EQ(kit_send(s, 2000, 0), HF_RETENTION);
    CHECK_EQ(hf_source_wanted(s), 1056 + 1024);
    int64_t goes = hf_source_oldest(s, UINT64_MAX, 3000 - hf_source_wanted(s));
    CHECK_EQ(goes, 2); /* 920 may stay, and a message takes 1056 */
    CHECK_EQ(hf_source_release(s, (uint64_t)goes), 2);
    CHECK_EQ(kit_send(s, 2000, 0), 3);
    CHECK_EQ(kit_send(s, 32, 0), 4);
    CHECK_EQ(kit_send(s, 2000, 0), HF_RETENTION);
    hf_source_destroy(s);
}

static void use_in_child(void *argument)
{
    struct hf_source *s = argument;
    CHECK_EQ(hf_source_settle(s, 1), HF_FORKED);
    CHECK_EQ(hf_source_settle_around(s, 1, NULL, 0), HF_FORKED);
    CHECK_EQ(hf_source_release(s, 1), HF_FORKED);
    CHECK_EQ(hf_source_oldest(s, 1, 0), HF_FORKED);
}

static void a_forked_child_settles_nothing(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    send_plain(s, 1);
    check_exited(check_fork(use_in_child, s));
    expect_flight(s, 1, 96, 128);
    hf_source_destroy(s);
}

int main(void)
{
    RUN(what_is_settled_leaves_the_flight_and_stays_retained);
    RUN(what_is_released_is_settled);
    RUN(settled_frames_are_not_overwritten_before_they_are_released);
    RUN(settling_a_frame_that_was_written_over_is_damage_and_moves_nothing);
    RUN(a_hole_stays_in_flight_and_nothing_behind_it_does);
    RUN(a_send_has_the_flight_size_but_for_the_holes);
    RUN(holes_among_messages_of_several_fragments);
    RUN(holes_that_cannot_be_are_refused_and_nothing_moves);
    RUN(a_payload_larger_than_the_flight_in_bytes_is_never_admitted);
    RUN(the_oldest_go_while_more_is_retained_than_is_to_be_kept);
    RUN(a_message_of_several_fragments_goes_as_a_whole_or_stays);
    RUN(a_send_that_finds_no_room_says_how_much_it_wanted);
    RUN(a_forked_child_settles_nothing);
    return 0;
}
