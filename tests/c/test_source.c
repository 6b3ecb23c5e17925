/* test_source.c: what policy says to a source: what is settled leaves the flight, what is released leaves the ring. */
#include "stream_kit.h"

/* Frames of 128 bytes, but for fragments: 1056 each, the last one less. */
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
    RUN(a_payload_larger_than_the_flight_in_bytes_is_never_admitted);
    RUN(the_oldest_go_while_more_is_retained_than_is_to_be_kept);
    RUN(a_message_of_several_fragments_goes_as_a_whole_or_stays);
    RUN(a_send_that_finds_no_room_says_how_much_it_wanted);
    RUN(a_forked_child_settles_nothing);
    return 0;
}
