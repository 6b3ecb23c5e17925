/* A call into the kernel or the allocator fails while somebody makes, attaches or reads shared memory: it says so and leaves
 * nothing. And what nobody does by mistake twice: handles of the wrong kind, lines that are not ours. */
#include "base/failpoint.h"
#include "board/board.h"
#include "fault_kit.h"
#include "stream_kit.h"

static int domain;

static uint64_t file_bytes(int fd)
{
    struct stat file;
    CHECK_EQ(fstat(fd, &file), 0);
    return (uint64_t)file.st_size;
}

/* ---- making and attaching ---- */

static int64_t make_a_source(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_source *s = NULL;
    int fd = memfd_create("hf-test", MFD_CLOEXEC);
    int64_t status = hf_source_create(fd, &config, NULL, NULL, &s);
    if (status == HF_OK) {
        CHECK_EQ(kit_send(s, 100, 1), 0);
        hf_source_destroy(s);
    } else {
        fault_pause(1);
        CHECK_EQ(file_bytes(fd), 0); /* its memory is given back */
        fault_pause(0);
    }
    close(fd);
    return status;
}

static void its_errno(int64_t status, int error)
{
    CHECK_EQ(status, HF_ERRNO - error);
}

static void a_source_that_cannot_be_made_leaves_nothing(void)
{
    CHECK(each_call_fails(ALIGNED_ALLOC, ENOMEM, make_a_source, HF_OK, its_errno) == 1);
    CHECK(each_call_fails(CALLOC, ENOMEM, make_a_source, HF_OK, its_errno) == 2);
    CHECK(each_call_fails(FSTAT, EIO, make_a_source, HF_OK, its_errno) == 1);
    CHECK(each_call_fails(FALLOCATE, ENOSPC, make_a_source, HF_OK, its_errno) == 1);
    CHECK(each_call_fails(MADVISE, ENOMEM, make_a_source, HF_OK, its_errno) == 2);
    CHECK(each_call_fails(OPEN, EMFILE, make_a_source, HF_OK, its_errno) >= 1);
#if !defined(__SANITIZE_THREAD__)
    CHECK(each_call_fails(MMAP, ENOMEM, make_a_source, HF_OK, its_errno) == 3);
#endif
}

static void memory_that_cannot_even_be_given_back_is_that_error(void)
{
    static const char *const points[] = {"segment.allocate=errno:ENOSPC", "segment.populate=errno:ENOMEM"};
    static const uint8_t uuid[16] = {1};
    for (int i = 0; i < 2; i++) {
        int fd = check_memory();
        struct hf_map *map = NULL;
        hf_failpoint_arm(points[i]);
        fault_at(FTRUNCATE, 1, EIO);
        CHECK_EQ(hf_map_create(fd, HF_KIND_BELLS, sizeof(struct hf_bells), 0, uuid, 0, &map), HF_ERRNO - EIO);
        CHECK(fault_over());
        hf_failpoint_arm(NULL);
        CHECK_EQ(hf_map_attach(fd, HF_KIND_BELLS, 1, 1, &map), HF_AGAIN); /* nobody published it */
        close(fd);
    }
}

static int stream_fd;

static int64_t attach_and_read(void)
{
    struct hf_map *map = NULL;
    struct hf_reader *r = NULL;
    int64_t status = hf_map_attach(stream_fd, HF_KIND_STREAM, 0, 1, &map);
    if (status != HF_OK) {
        CHECK(map == NULL);
        return status;
    }
    status = hf_reader_open(map, NULL, NULL, -1, &r);
    if (status == HF_OK) {
        kit_expect(r, 100, 1);
        hf_reader_close(r);
    }
    hf_map_detach(map);
    return status;
}

static void a_stream_that_cannot_be_attached_may_be_tried_again(void)
{
    struct hf_stream_config config = kit_config();
    stream_fd = check_memory();
    struct hf_source *s = kit_source_on(stream_fd, &config, NULL);
    CHECK_EQ(kit_send(s, 100, 1), 0);
    CHECK(each_call_fails(CALLOC, ENOMEM, attach_and_read, HF_OK, its_errno) == 2);
    CHECK(each_call_fails(FSTAT, EIO, attach_and_read, HF_OK, its_errno) == 1);
    CHECK(each_call_fails(MADVISE, ENOMEM, attach_and_read, HF_OK, its_errno) == 2);
    CHECK(each_call_fails(OPEN, EMFILE, attach_and_read, HF_OK, its_errno) == 1);
#if !defined(__SANITIZE_THREAD__)
    CHECK(each_call_fails(MMAP, ENOMEM, attach_and_read, HF_OK, its_errno) == 4);
#endif
    hf_source_destroy(s);
    close(stream_fd);
}

static void a_source_refuses_another_kind_of_board_and_a_number_too_high(void)
{
    struct hf_stream_config config = kit_config();
    struct hf_map *bells = kit_map(HF_KIND_BELLS, sizeof(struct hf_bells));
    struct hf_source *s = NULL;
    int fd = check_memory();
    CHECK_EQ(hf_source_create(fd, &config, bells, NULL, &s), HF_USAGE);
    config.start_sqn = (UINT64_C(1) << 62) + 1;
    CHECK_EQ(hf_source_create(fd, &config, NULL, NULL, &s), HF_USAGE);
    CHECK_EQ(file_bytes(fd), 0);
    close(fd);
    hf_map_detach(bells);
}

/* Somebody in the source's process wrote into its ring: no length is used that a frame cannot have. */
static void a_frame_of_an_impossible_length_is_not_settled_nor_released(void)
{
    static const uint64_t lengths[] = {0, HF_GRANULE - 1, 1024 + HF_GRANULE + 1, UINT32_MAX};
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_EQ(kit_send(s, 96, i), i);
    }
    uint64_t whole = kit_frame(s, 128)->commit;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        kit_frame(s, 128)->commit = (whole >> 32 << 32) | lengths[i];
        CHECK_EQ(hf_source_settle(s, 2), HF_DAMAGED); /* no frame behind it that would not be found */
    }
    kit_frame(s, 128)->commit = whole;
    CHECK_EQ(hf_source_settle(s, 3), 3);
    kit_frame(s, 128)->commit = 0;
    CHECK_EQ(hf_source_release(s, 2), HF_DAMAGED); /* settled, and damaged since */
    CHECK_EQ(hf_source_release(s, 1), 1);
    hf_source_destroy(s);
}

static void a_message_of_a_block_is_taken_whole_or_not_at_all(void)
{
    static uint8_t block[1 << 16], buf[3000];
    struct hf_stream_config config = kit_config();
    struct hf_source *s = kit_source(&config, NULL);
    struct hf_reader *r = kit_reader(s, NULL, -1);
    struct hf_entry found, taken;
    uint64_t first, next, used;
    CHECK_EQ(kit_send(s, 2500, 9), 2);
    int64_t bytes = hf_reader_copy(r, block, sizeof block, &first, &next);
    CHECK_EQ(hf_scan(block, (uint64_t)bytes, &found, 1, &used), 1);
    CHECK_EQ(hf_take(block, &found, &taken, buf, 2499), HF_SMALL);
    CHECK_EQ(taken.length, 2500); /* so much is needed */
    CHECK_EQ(hf_take(block, &found, &taken, buf, 2500), 1);
    CHECK(kit_is(buf, 2500, 9));
    CHECK_EQ(taken.offset, 0);
    CHECK_EQ(taken.flags & HF_ENTRY_RETRANSMIT, HF_ENTRY_RETRANSMIT);
    CHECK_EQ(taken.sequence_number, 2);
    memset(block + 1056, 0, HF_GRANULE); /* the second fragment's header */
    CHECK(hf_take(block, &found, &taken, buf, 2500) < 0);
    hf_reader_close(r);
    hf_source_destroy(s);
}

/* ---- boards and bells ---- */

static struct hf_identity participant(uint8_t number)
{
    return (struct hf_identity){.uuid = {number}, .incarnation = 1, .role = HF_ROLE_RECEIVER, .name = "receiver"};
}

static void a_map_of_another_kind_is_no_board_and_no_bells(void)
{
    struct hf_map *board = kit_board(), *bells = kit_map(HF_KIND_BELLS, sizeof(struct hf_bells));
    struct hf_identity who = participant(1);
    struct hf_board_line line;
    CHECK_EQ(hf_board_claim(bells, domain, &who, NULL), HF_USAGE);
    CHECK_EQ(hf_board_copy(bells, 0, &line), HF_USAGE);
    CHECK_EQ(hf_board_copy(board, HF_BOARD_LINES, &line), HF_USAGE);
    CHECK(hf_board_line_at(bells, 0) == NULL);
    CHECK_EQ(hf_board_release(bells, 0), HF_USAGE);
    hf_board_rebase(bells, 0, 5, 0);
    CHECK_EQ(hf_bell_claim(board, domain), HF_USAGE);
    hf_bell_ring(board, 0);
    hf_bell_ring_all(board);
    CHECK_EQ(hf_bell_read(board, 0), 0);
    bells->writable = board->writable = 0;
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), HF_USAGE);
    CHECK_EQ(hf_bell_claim(bells, domain), HF_USAGE);
    hf_map_detach(board);
    hf_map_detach(bells);
}

static void claim_where_nobody_can_join(void *maps)
{
    struct hf_identity who = participant(1);
    struct hf_map *board = ((struct hf_map **)maps)[0], *bells = ((struct hf_map **)maps)[1];
    board->token = bells->token = hf_process_token(); /* as if it had attached them */
    fault_at(OPENAT, 1, EMFILE);
    CHECK_EQ(hf_bell_claim(bells, domain), HF_ERRNO - EMFILE);
    fault_at(OPENAT, 1, EMFILE);
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), HF_ERRNO - EMFILE);
    fault_at(OPENAT, 1, EMFILE);
    CHECK_EQ(hf_board_mark(board, domain, 0, 0), HF_ERRNO - EMFILE);
    CHECK(fault_over());
}

/* Before the first store into shared memory: whoever cannot be proved dead leaves nothing there. */
static void whoever_cannot_join_the_domain_claims_nothing(void)
{
    struct hf_map *maps[] = {kit_board(), kit_map(HF_KIND_BELLS, sizeof(struct hf_bells))};
    check_exited(check_fork(claim_where_nobody_can_join, maps));
    CHECK_EQ(((struct hf_board *)maps[0]->base)->claimer, 0);
    CHECK_EQ(((struct hf_bells *)maps[1]->base)->bells[0].owner, 0);
    hf_map_detach(maps[0]);
    hf_map_detach(maps[1]);
}

static void everybodys_bell_rings_and_nobody_elses(void)
{
    struct hf_map *map = kit_map(HF_KIND_BELLS, sizeof(struct hf_bells));
    struct hf_bells *bells = (struct hf_bells *)map->base;
    bells->bells[3].owner = bells->bells[HF_BELLS - 1].owner = UINT64_C(0x7777770001);
    hf_bell_ring_all(map);
    for (uint32_t i = 0; i < HF_BELLS; i++) {
        CHECK_EQ(hf_bell_read(map, i), i == 3 || i == HF_BELLS - 1);
    }
    hf_map_detach(map);
}

static void a_participant_whose_death_cannot_be_asked_keeps_its_line(void)
{
    struct hf_map *board = kit_board();
    struct hf_identity who = participant(4);
    struct hf_board_line *line = kit_line(board, 2);
    struct hf_line_view view;
    line->owner = hf_process_token() ^ UINT64_C(0x3333330000);
    line->role = who.role;
    memcpy(line->uuid, who.uuid, sizeof who.uuid);
    CHECK_EQ(hf_process_join(domain), HF_OK);
    fault_at(OPENAT, 1, EMFILE);
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), HF_ERRNO - EMFILE);
    CHECK(fault_over());
    CHECK_EQ(((struct hf_board *)board->base)->claimer, 0); /* the next one's turn */
    CHECK_EQ(line->state, HF_LINE_ACTIVE);
    fault_at(OPENAT, 1, EMFILE);
    CHECK_EQ(hf_board_read(board, domain, 1, &view, 1), 1);
    CHECK(fault_over());
    CHECK_EQ(view.alive, -1);
    line->owner = 0; /* its claimer's successor died before it had described itself */
    CHECK_EQ(hf_board_read(board, domain, 1, &view, 1), 1);
    CHECK_EQ(view.alive, 0);
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), 2);
    CHECK_EQ(hf_board_release(board, 2), HF_OK);
    hf_map_detach(board);
}

static void of_two_lines_of_one_dead_participant_the_first_is_taken(void)
{
    struct hf_map *board = kit_board();
    struct hf_identity who = participant(5);
    for (int i = 6; i < 8; i++) {
        struct hf_board_line *line = kit_line(board, i);
        line->state = HF_LINE_CLOSED;
        line->role = who.role;
        memcpy(line->uuid, who.uuid, sizeof who.uuid);
    }
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), 6);
    kit_line(board, 6)->state = HF_LINE_CLOSED; /* ours, and closed: there is nothing to release */
    CHECK_EQ(hf_board_release(board, 6), HF_USAGE);
    hf_map_detach(board);
}

static void an_ack_without_bells_still_tells_the_source(void)
{
    struct hf_map *board = kit_board();
    struct hf_board *shared = (struct hf_board *)board->base;
    struct hf_identity who = participant(6);
    int64_t index = hf_board_claim(board, domain, &who, NULL);
    CHECK(index >= 0);
    shared->source_waiting = 1;
    hf_board_ack(board, NULL, index, 5, 6);
    CHECK_EQ(shared->source_waiting, 0);
    CHECK_EQ(shared->lines[index].ack, 5);
    CHECK_EQ(shared->lines[index].position, 6);
    hf_board_wake_slow(board, NULL);
    hf_line_range(&shared->lines[index], 9, 10); /* of an incarnation that comes again from 12 on: it stays */
    hf_board_rebase(board, index, 7, 12);
    CHECK_EQ(shared->lines[index].from_sqn, 9);
    hf_board_rebase(board, index, 8, 3);
    CHECK_EQ(shared->lines[index].from_sqn, 3);
    CHECK_EQ(shared->lines[index].to_sqn, 10);
    CHECK_EQ(shared->lines[index].ack, 3);
    hf_line_range(&shared->lines[index], 9, 2); /* an empty one stays empty */
    hf_board_rebase(board, index, 9, 3);
    CHECK_EQ(shared->lines[index].from_sqn, 9);
    hf_board_rebase(board, HF_BOARD_LINES, 10, 0);
    CHECK_EQ(hf_board_release(board, index), HF_OK);
    hf_map_detach(board);
}

static void use_in_child(void *maps)
{
    struct hf_map *board = ((struct hf_map **)maps)[0], *bells = ((struct hf_map **)maps)[1];
    struct hf_board_line line;
    struct hf_line_view view;
    struct hf_identity who = participant(7);
    CHECK_EQ(hf_board_copy(board, 0, &line), HF_FORKED);
    CHECK_EQ(hf_board_read(board, domain, 1, &view, 1), HF_FORKED);
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), HF_FORKED);
    CHECK_EQ(hf_board_mark(board, domain, 0, 0), HF_FORKED);
    CHECK_EQ(hf_bell_claim(bells, domain), HF_FORKED);
    CHECK(hf_board_line_at(board, 0) == NULL);
    hf_board_wake_slow(board, bells);
    hf_bell_ring_all(bells);
    CHECK_EQ(hf_bell_read(bells, 0), 0);
}

static void a_forked_child_has_no_board_and_no_bells(void)
{
    struct hf_map *maps[] = {kit_board(), kit_map(HF_KIND_BELLS, sizeof(struct hf_bells))};
    check_exited(check_fork(use_in_child, maps));
    hf_map_detach(maps[0]);
    hf_map_detach(maps[1]);
}

int main(void)
{
    domain = check_directory();
    RUN(a_source_that_cannot_be_made_leaves_nothing);
    RUN(memory_that_cannot_even_be_given_back_is_that_error);
    RUN(a_stream_that_cannot_be_attached_may_be_tried_again);
    RUN(a_source_refuses_another_kind_of_board_and_a_number_too_high);
    RUN(a_frame_of_an_impossible_length_is_not_settled_nor_released);
    RUN(a_message_of_a_block_is_taken_whole_or_not_at_all);
    RUN(a_map_of_another_kind_is_no_board_and_no_bells);
    RUN(whoever_cannot_join_the_domain_claims_nothing);
    RUN(everybodys_bell_rings_and_nobody_elses);
    RUN(a_participant_whose_death_cannot_be_asked_keeps_its_line);
    RUN(of_two_lines_of_one_dead_participant_the_first_is_taken);
    RUN(an_ack_without_bells_still_tells_the_source);
    RUN(a_forked_child_has_no_board_and_no_bells);
    return 0;
}
