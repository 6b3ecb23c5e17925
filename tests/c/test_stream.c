/* test_stream.c: the writing side of stream/stream.h, rule by rule, and the tools that read a stream whose source is gone. */
#include "stream_kit.h"

static const uint64_t starts[] = {0, (UINT64_C(1) << 63) - (UINT64_C(1) << 15), UINT64_C(0) - (UINT64_C(1) << 20),
                                  (UINT64_C(32) << 32) - 4096}; /* the last: the tag goes through 0 */

static void messages_of_every_length_arrive_in_order_over_laps_positions_and_numbers_that_wrap(void)
{
    for (size_t k = 0; k < sizeof starts / sizeof *starts; k++) {
        struct hf_stream_config config = kit_config();
        config.start_position = starts[k];
        config.start_sqn = (UINT64_C(1) << 32) - 1000;
        struct hf_source *s = kit_source(&config, NULL);
        struct hf_reader *r = kit_reader(s, NULL, -1);
        for (uint64_t i = 0; i < 4000; i++) {
            uint64_t length = i % 301;
            CHECK_EQ(kit_send(s, length, i), (int64_t)(config.start_sqn + i));
            CHECK_EQ(kit_frame(s, s->position)->commit, 0); /* rule 1 */
            kit_expect(r, length, i);
            CHECK_EQ(hf_source_release(s, UINT64_MAX), 1);
        }
        CHECK_EQ(hf_reader_next(r), config.start_sqn + 4000);
        CHECK_EQ(hf_reader_position(r), s->position);
        uint64_t at;
        CHECK_EQ(hf_stream_valid(hf_source_map(s), &at), HF_OK);
        hf_reader_close(r);
        hf_source_destroy(s);
    }
}

static void a_fragmented_message_arrives_whole_and_its_number_is_that_of_the_last_fragment(void)
{
    struct hf_stream_config config = kit_config();
    config.start_position = starts[2];
    struct hf_source *s = kit_source(&config, NULL);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    uint64_t sqn = 0;
    uint64_t lengths[] = {1024, 1025, 2048, 2049, 10000, KIT_RING / 4 - 1024};
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t length = lengths[i % 6];
        sqn += (length + 1023) / 1024;
        CHECK_EQ(kit_send(s, length, i), (int64_t)sqn - 1);
        CHECK_EQ(kit_frame(s, s->position)->commit, 0);
        kit_expect(r, length, i);
        hf_source_release(s, UINT64_MAX);
    }
    CHECK_EQ(kit_header(s)->messages, 60);
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void what_can_never_fit_is_refused_and_takes_no_number(void)
{
    struct hf_stream_config config = kit_config();
    config.fragment_bytes = 32;
    struct hf_source *s = kit_source(&config, NULL);
    CHECK_EQ(kit_send(s, KIT_RING / 8, 1), (int64_t)KIT_RING / 8 / 32 - 1); /* frames fill just a quarter of the ring */
    CHECK_EQ(kit_send(s, KIT_RING / 8 + 1, 1), HF_TOO_LARGE);
    CHECK_EQ(hf_source_send(s, NULL, UINT64_MAX), HF_TOO_LARGE);
    CHECK_EQ(hf_source_send(s, NULL, UINT64_MAX - 31), HF_TOO_LARGE);
    CHECK_EQ(hf_source_send(s, NULL, UINT64_C(1) << 32), HF_TOO_LARGE);
    CHECK_EQ(hf_source_next(s), KIT_RING / 8 / 32);
    hf_source_destroy(s);
    config.ring_bytes = UINT64_C(1) << 24; /* room for 65536 fragments, one more than a message may have */
    s = kit_source(&config, NULL);
    static uint8_t data[65536 * 32];
    CHECK_EQ(hf_source_send(s, data, sizeof data), HF_TOO_LARGE);
    CHECK_EQ(hf_source_send(s, data, sizeof data - 32), 65534);
    hf_source_destroy(s);
}

static void a_config_that_cannot_be_is_refused(void)
{
    struct hf_source *s;
    struct hf_stream_config bad[7];
    for (int i = 0; i < 7; i++) {
        bad[i] = kit_config();
    }
    bad[0].ring_bytes = KIT_RING / 2;
    bad[1].ring_bytes = KIT_RING + 4096;
    bad[2].ring_bytes = UINT64_C(1) << 35;
    bad[3].start_position = 16;
    bad[4].fragment_bytes = 31;
    bad[5].fragment_bytes = (uint32_t)(KIT_RING / 4 - 31);
    memset(bad[6].topic, 'x', sizeof bad[6].topic);
    for (int i = 0; i < 7; i++) {
        int fd = check_memory();
        CHECK_EQ(hf_source_create(fd, &bad[i], NULL, NULL, &s), HF_USAGE);
        close(fd);
    }
}

static void a_claim_owns_the_source_and_an_abort_leaves_no_trace(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    int64_t status;
    CHECK_EQ(hf_source_commit(s), HF_USAGE);
    CHECK_EQ(hf_source_abort(s), HF_USAGE);
    uint8_t *view = hf_source_claim(s, 100, &status);
    CHECK(view != NULL && status == HF_OK);
    memset(view, 0xff, 100);
    CHECK_EQ(kit_send(s, 10, 0), HF_BUSY);
    CHECK(hf_source_claim(s, 10, &status) == NULL && status == HF_BUSY);
    CHECK_EQ(hf_reader_ready(r), 0);
    CHECK_EQ(hf_source_abort(s), HF_OK);
    CHECK_EQ(hf_source_next(s), 0);
    CHECK_EQ(hf_reader_ready(r), 0);
    CHECK(hf_source_claim(s, 1025, &status) == NULL && status == HF_TOO_LARGE);
    view = hf_source_claim(s, 77, &status);
    kit_fill(view, 77, 5);
    CHECK_EQ(hf_source_commit(s), 0);
    CHECK_EQ(kit_send(s, 10, 6), 1);
    kit_expect(r, 77, 5);
    kit_expect(r, 10, 6);
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void flight_size_and_flight_bytes_stop_a_send_until_a_release(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    uint64_t fragments, bytes, retained;
    hf_source_limits(s, 3, 0, 0);
    CHECK_EQ(kit_send(s, 3000, 0), 2); /* three fragments */
    CHECK_EQ(kit_send(s, 10, 0), HF_FLIGHT_SIZE);
    CHECK_EQ(hf_source_release(s, 1), 1); /* fragments are released one by one */
    CHECK_EQ(kit_send(s, 10, 0), 3);
    CHECK_EQ(kit_send(s, 10, 0), HF_FLIGHT_SIZE);
    hf_source_in_flight(s, &fragments, &bytes, &retained);
    CHECK_EQ(fragments, 3);
    CHECK_EQ(bytes, 3000 - 1024 + 10);
    CHECK_EQ(retained, 1056 + 992 + 64);
    CHECK_EQ(hf_source_release(s, UINT64_MAX), 3);
    CHECK_EQ(kit_send(s, 5000, 0), 8); /* five fragments: always admitted when nothing is in flight */
    CHECK_EQ(kit_send(s, 1, 0), HF_FLIGHT_SIZE);
    hf_source_limits(s, 0, 5100, 0); /* a changed limit counts at once */
    CHECK_EQ(kit_send(s, 100, 0), 9);
    CHECK_EQ(kit_send(s, 1, 0), HF_FLIGHT_BYTES);
    CHECK_EQ(kit_send(s, 0, 0), 10);
    CHECK_EQ(hf_source_release(s, UINT64_MAX), 7);
    CHECK_EQ(kit_send(s, 5100, 0), 15);
    CHECK_EQ(kit_send(s, 1, 0), HF_FLIGHT_BYTES);
    hf_source_limits(s, 0, 0, 0);
    CHECK_EQ(kit_send(s, 1, 0), 16);
    hf_source_destroy(s);
}

static void a_release_goes_no_further_than_what_is_committed_and_never_back(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    CHECK_EQ(hf_source_release(s, 5), 0);
    for (uint64_t i = 0; i < 10; i++) {
        kit_send(s, i, i);
    }
    CHECK_EQ(hf_source_release(s, 4), 4);
    CHECK_EQ(hf_source_release(s, 4), 0);
    CHECK_EQ(hf_source_release(s, 1), 0);
    CHECK_EQ(hf_source_release(s, 100), 6);
    kit_send(s, 1, 1);
    kit_frame(s, s->released_position)->commit ^= UINT64_C(1) << 40;
    CHECK_EQ(hf_source_release(s, 100), HF_DAMAGED);
    hf_source_destroy(s);
}

static void unreleased_messages_stop_the_source_and_are_never_overwritten(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    int64_t status;
    uint64_t sent = 0;
    while ((status = kit_send(s, 224, sent)) >= 0) {
        sent++;
    }
    CHECK_EQ(status, HF_RETENTION);
    CHECK_EQ(sent, KIT_RING / 256 - 1); /* rule 1: room for the word behind the last */
    CHECK_EQ(hf_source_release(s, 1), 1);
    CHECK_EQ(kit_send(s, 224, sent++), KIT_RING / 256 - 1);
    CHECK_EQ(kit_send(s, 224, sent), HF_RETENTION);
    CHECK(!hf_after(kit_header(s)->trail, s->released_position));
    CHECK_EQ(hf_reader_seek(r, 0), HF_LAPPED);
    CHECK_EQ(hf_reader_seek(r, 1),
             HF_OK); /* what was released last has a mark of its own: a store may come back to it */
    CHECK_EQ(hf_reader_seek_oldest(r), HF_OK);
    while (hf_reader_next(r) < sent) {
        kit_expect(r, 224, hf_reader_next(r));
    }
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void the_retention_limit_counts_frames_and_spares_a_source_that_retains_nothing(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    hf_source_limits(s, 0, 0, 256);
    CHECK_EQ(kit_send(s, 96, 0), 0);
    CHECK_EQ(kit_send(s, 96, 0), 1);
    CHECK_EQ(kit_send(s, 0, 0), HF_RETENTION);
    hf_source_release(s, 1);
    CHECK_EQ(kit_send(s, 97, 0), HF_RETENTION);
    CHECK_EQ(kit_send(s, 96, 0), 2);
    hf_source_release(s, UINT64_MAX);
    CHECK_EQ(kit_send(s, 900, 0), 3);
    CHECK_EQ(kit_send(s, 0, 0), HF_RETENTION);
    hf_source_destroy(s);
}

static void a_pin_holds_the_source_back_until_it_moves(void)
{
    struct hf_stream_config config = kit_config();
    config.start_position = starts[2];
    struct hf_map *board = kit_board();
    struct hf_source *s = kit_source(&config, board);
    struct hf_board_line *line = kit_line(board, 5);
    line->pin_stream = config.incarnation;
    line->pin = config.start_position + 8192;
    int64_t status;
    uint64_t sent = 0;
    while ((status = kit_send(s, 224, sent)) >= 0) {
        hf_source_release(s, UINT64_MAX);
        sent++;
    }
    CHECK_EQ(status, HF_PINNED);
    CHECK_EQ(kit_send(s, 224, sent), HF_PINNED);
    CHECK(sent >= KIT_RING / 256 - 1);
    CHECK(!hf_after(s->admit - KIT_RING, line->pin)); /* nothing at or behind the pin was granted */
    line->pin += 32768;
    CHECK_EQ(kit_send(s, 224, sent), (int64_t)sent);
    line->pin = s->admit - KIT_RING;
    kit_line(board, 5)->state = HF_LINE_CLOSED; /* pins of a closed line, */
    hf_source_release(s, UINT64_MAX);
    kit_run(s, 224, 2 * KIT_RING);
    line->state = HF_LINE_ACTIVE; /* of another ring, */
    line->pin_stream = config.incarnation - 1;
    line->pin = s->position;
    kit_run(s, 224, 2 * KIT_RING);
    line->pin_stream = config.incarnation; /* and pins that were passed hold nobody */
    kit_run(s, 224, 2 * KIT_RING);
    hf_source_destroy(s);
    hf_map_detach(board);
}

static void a_pin_is_passed_after_its_timeout(void)
{
    struct hf_stream_config config = kit_config();
    config.pin_timeout_ms = 0;
    struct hf_map *board = kit_board();
    struct hf_source *s = kit_source(&config, board);
    struct hf_board_line *line = kit_line(board, 0);
    line->pin_stream = config.incarnation;
    line->pin = 0;
    uint64_t pinned = 0;
    for (uint64_t sent = 0; sent < 1000;) {
        int64_t status = kit_send(s, 224, sent);
        pinned += status == HF_PINNED;
        CHECK(status >= 0 || status == HF_PINNED);
        sent += status >= 0;
        hf_source_release(s, UINT64_MAX);
    }
    CHECK_EQ(pinned, 1); /* once, at the grant that passed it */
    hf_source_destroy(s);
    hf_map_detach(board);
}

static void rows_go_out_in_order_with_one_timestamp_and_stop_at_the_limit(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    static uint8_t rows[200 * 48];
    for (uint64_t i = 0; i < 200; i++) {
        kit_fill(rows + i * 48, 40, i);
    }
    hf_source_limits(s, 150, 0, 0);
    CHECK_EQ(hf_source_send_rows(s, rows, 40, 48, 0), 0);
    CHECK_EQ(hf_source_send_rows(s, rows, 40, 48, 200), 150);
    CHECK_EQ(hf_source_send_rows(s, rows, 40, 48, 200), HF_FLIGHT_SIZE);
    CHECK_EQ(hf_source_next(s), 150);
    for (uint64_t i = 0; i < 150; i++) {
        CHECK_EQ(kit_frame(s, i * 96)->timestamp_ns, kit_frame(s, 0)->timestamp_ns);
        kit_expect(r, 40, i);
    }
    CHECK_EQ(hf_reader_ready(r), 0);
    hf_source_release(s, UINT64_MAX);
    hf_source_limits(s, 0, 0, 0);
    static uint8_t wide[3 * 2000];
    kit_fill(wide, 2000, 1);
    kit_fill(wide + 2000, 2000, 2);
    kit_fill(wide + 4000, 2000, 3);
    CHECK_EQ(hf_source_send_rows(s, wide, 2000, 2000, 3), 3); /* of two fragments each */
    for (uint64_t i = 1; i <= 3; i++) {
        kit_expect(r, 2000, i);
    }
    CHECK_EQ(hf_source_next(s), 156);
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void arrow_offsets_of_both_widths_cut_the_messages(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    static uint8_t data[10000];
    int32_t narrow[] = {0, 10, 10, 3010, 3110};
    int64_t wide[] = {0, 10, 10, 3010, 3110};
    for (int k = 0; k < 4; k++) {
        kit_fill(data + narrow[k], (uint64_t)(narrow[k + 1] - narrow[k]), (uint64_t)k);
    }
    CHECK_EQ(hf_source_send_binary(s, data, narrow, 0, 0, 4), 4);
    CHECK_EQ(hf_source_send_binary(s, data, wide, 1, 1, 3), 3);
    uint64_t order[] = {0, 1, 2, 3, 1, 2, 3};
    for (int i = 0; i < 7; i++) {
        uint64_t k = order[i];
        kit_expect(r, (uint64_t)(wide[k + 1] - wide[k]), k);
    }
    int64_t bad[] = {0, 5, 4, 9};
    CHECK_EQ(hf_source_send_binary(s, data, bad, 1, 0, 3), 1);
    CHECK_EQ(hf_source_send_binary(s, data, bad, 1, 1, 2), HF_USAGE);
    bad[0] = -1;
    CHECK_EQ(hf_source_send_binary(s, data, bad, 1, 0, 1), HF_USAGE);
    hf_reader_close(r);
    hf_source_destroy(s);
}

static void a_closed_stream_is_closed_to_senders_and_to_readers_that_have_read_all(void)
{
    struct hf_stream_config config = kit_config();
    int fd = check_memory();
    struct hf_source *s = kit_source_on(fd, &config, NULL);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    kit_send(s, 10, 1);
    hf_source_close(s);
    CHECK_EQ(kit_send(s, 10, 2), HF_CLOSED);
    int64_t status;
    CHECK(hf_source_claim(s, 1, &status) == NULL && status == HF_CLOSED);
    CHECK_EQ(hf_reader_ready(r), 1);
    kit_expect(r, 10, 1);
    CHECK_EQ(hf_reader_ready(r), HF_CLOSED);
    hf_reader_close(r);
    hf_source_destroy(s);
    CHECK_EQ(ftruncate(fd, 0), 0);
    s = kit_source_on(fd, &config, NULL);
    hf_source_abandon(s);
    hf_source_destroy(s);
    struct hf_map *map;
    CHECK_EQ(hf_map_attach(fd, HF_KIND_STREAM, 1, 0, &map), HF_OK);
    CHECK_EQ(((struct hf_stream_header *)(void *)map->base)->state, HF_STREAM_OPEN);
    hf_map_detach(map);
    close(fd);
}

static void the_sri_is_read_whole_or_not_at_all(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    struct hf_sri_store in[26], out[25];
    uint64_t version;
    struct hf_sri_groups grouped = {.sizes = {3, 22}, .intergroup = 3}, groups;
    memset(in, 'n', sizeof in);
    CHECK_EQ(hf_stream_sri(hf_source_map(s), out, &version, &groups), 0);
    hf_source_sri(s, in, 26, &grouped);
    CHECK_EQ(hf_stream_sri(hf_source_map(s), out, &version, &groups), 25);
    CHECK_EQ(version, 2);
    CHECK(memcmp(&groups, &grouped, sizeof groups) == 0);
    CHECK_EQ(strlen(out[24].name), HF_NAME_MAX - 1); /* ended, whatever was there */
    CHECK(memcmp(out[24].uuid, in[24].uuid, 16) == 0);
    kit_header(s)->sri_version++; /* died while it wrote */
    CHECK_EQ(hf_stream_sri(hf_source_map(s), out, &version, &groups), HF_AGAIN);
    kit_header(s)->sri_version++;
    kit_header(s)->sri_count = 26;
    CHECK_EQ(hf_stream_sri(hf_source_map(s), out, &version, &groups), HF_DAMAGED);
    hf_source_stable(s, 17);
    CHECK_EQ(kit_header(s)->stable_sqn, 17);
    hf_source_destroy(s);
}

static void a_stream_with_a_hole_or_a_wrong_frame_is_not_valid(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    uint64_t at, next;
    CHECK_EQ(hf_stream_valid(hf_source_map(s), &at), HF_OK);
    CHECK_EQ(hf_stream_end(hf_source_map(s), &at, &next), HF_OK);
    CHECK(at == 0 && next == 0);
    kit_run(s, 96, 3 * KIT_RING);
    CHECK_EQ(hf_stream_end(hf_source_map(s), &at, &next), HF_OK);
    CHECK(at == s->position && next == s->next_sqn);
    uint64_t victim = s->position - 128 * 20;
    struct hf_frame saved = *kit_frame(s, victim);
    for (int k = 0; k < 5; k++) {
        struct hf_frame *frame = kit_frame(s, victim);
        frame->commit = k == 0   ? 0
                        : k == 1 ? saved.commit ^ UINT64_C(1) << 33
                        : k == 2 ? saved.commit + 32
                                 : saved.commit;
        frame->sequence_number += k == 3;
        frame->fragment = k == 4;
        CHECK_EQ(hf_stream_valid(hf_source_map(s), &at), HF_DAMAGED);
        CHECK(at == victim || (k == 2 && at == victim + 160)); /* a wrong length shows at the next frame */
        *frame = saved;
    }
    CHECK_EQ(hf_stream_valid(hf_source_map(s), &at), HF_OK);
    memset(kit_header(s)->marks, 0x55,
           sizeof kit_header(s)->marks); /* a ring that has gone round and lost every mark */
    CHECK_EQ(hf_stream_end(hf_source_map(s), &at, &next), HF_DAMAGED);
    hf_source_destroy(s);
}

struct handles {
    struct hf_source *s;
    struct hf_reader *r;
};

static void use_parents_handles(void *argument)
{
    struct handles *h = argument;
    struct hf_entry entry;
    int64_t status;
    uint64_t a, b, c;
    CHECK_EQ(hf_source_send(h->s, NULL, 0), HF_FORKED);
    CHECK_EQ(hf_source_send_rows(h->s, NULL, 1, 1, 1), HF_FORKED);
    CHECK_EQ(hf_source_send_binary(h->s, NULL, NULL, 0, 0, 1), HF_FORKED);
    CHECK_EQ(hf_source_commit(h->s), HF_FORKED);
    CHECK_EQ(hf_source_abort(h->s), HF_FORKED);
    CHECK(hf_source_claim(h->s, 1, &status) == NULL && status == HF_FORKED);
    CHECK_EQ(hf_source_release(h->s, 1), HF_FORKED);
    CHECK_EQ(hf_source_next(h->s), 1);
    CHECK_EQ(hf_reader_ready(h->r), HF_FORKED);
    CHECK_EQ(hf_reader_receive(h->r, &entry, NULL, 0), HF_FORKED);
    CHECK_EQ(hf_reader_receive_soon(h->r, &entry, NULL, 0, 1), HF_FORKED);
    CHECK_EQ(hf_reader_receive_wait(h->r, &entry, NULL, 0, 0, 1), HF_FORKED);
    CHECK_EQ(hf_reader_wait(h->r, 0, 1), HF_FORKED);
    CHECK_EQ(hf_reader_seek(h->r, 1), HF_FORKED);
    CHECK_EQ(hf_reader_seek_oldest(h->r), HF_FORKED);
    CHECK_EQ(hf_reader_batch(h->r, &entry, 1, 1, &a, &b), HF_FORKED);
    CHECK_EQ(hf_reader_unpin(h->r, 0, 0), HF_FORKED);
    CHECK_EQ(hf_reader_copy(h->r, NULL, 0, &a, &b), HF_FORKED);
    hf_source_in_flight(h->s, &a, &b, &c);
    hf_source_stable(h->s, 1);
    hf_source_sri(h->s, NULL, 0, &(struct hf_sri_groups){.intergroup = 0});
    hf_reader_close(h->r);
    hf_source_destroy(h->s);
}

static void a_forked_child_gets_forked_and_leaves_the_parents_stream_alone(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_map *board = kit_board();
    struct hf_board_line *line = kit_line(board, 0);
    struct hf_source *s = kit_source(&config, board);
    struct hf_reader *r = kit_reader(s, board, 0);
    struct hf_entry entry;
    uint64_t from, to;
    kit_send(s, 1, 1);
    CHECK_EQ(hf_reader_batch(r, &entry, 1, UINT64_MAX, &from, &to), 1);
    uint64_t pin = line->pin;
    CHECK(pin != UINT64_MAX);
    check_exited(check_fork(use_parents_handles, &(struct handles){s, r}));
    CHECK_EQ(kit_header(s)->state, HF_STREAM_OPEN);
    CHECK_EQ(line->pin, pin); /* the parent still looks at its batch */
    CHECK_EQ(hf_reader_unpin(r, from, UINT64_MAX), HF_OK);
    kit_send(s, 1, 2);
    kit_expect(r, 1, 2);
    hf_reader_close(r);
    hf_source_destroy(s);
    hf_map_detach(board);
}

int main(void)
{
    RUN(messages_of_every_length_arrive_in_order_over_laps_positions_and_numbers_that_wrap);
    RUN(a_fragmented_message_arrives_whole_and_its_number_is_that_of_the_last_fragment);
    RUN(what_can_never_fit_is_refused_and_takes_no_number);
    RUN(a_config_that_cannot_be_is_refused);
    RUN(a_claim_owns_the_source_and_an_abort_leaves_no_trace);
    RUN(flight_size_and_flight_bytes_stop_a_send_until_a_release);
    RUN(a_release_goes_no_further_than_what_is_committed_and_never_back);
    RUN(unreleased_messages_stop_the_source_and_are_never_overwritten);
    RUN(the_retention_limit_counts_frames_and_spares_a_source_that_retains_nothing);
    RUN(a_pin_holds_the_source_back_until_it_moves);
    RUN(a_pin_is_passed_after_its_timeout);
    RUN(rows_go_out_in_order_with_one_timestamp_and_stop_at_the_limit);
    RUN(arrow_offsets_of_both_widths_cut_the_messages);
    RUN(a_closed_stream_is_closed_to_senders_and_to_readers_that_have_read_all);
    RUN(the_sri_is_read_whole_or_not_at_all);
    RUN(a_stream_with_a_hole_or_a_wrong_frame_is_not_valid);
    RUN(a_forked_child_gets_forked_and_leaves_the_parents_stream_alone);
    return 0;
}
