/* test_board_read.c: consistent reading while lines change hands, acks, wakes, garbage. */
#include "base/failpoint.h"
#include "board_kit.h"

/* Two participants take turns on the only free line; whoever reads must never see one's identity with the other's
 * numbers. */
enum { TURNS = 3000 };
static uint32_t stop_reading;

static void *read_while_it_changes_hands(void *argument)
{
    uint64_t *copies = argument;
    static struct hf_line_view views[HF_BOARD_LINES];
    while (hf_load_acquire_u32(&stop_reading) == 0) {
        int64_t n = hf_board_read(board, domain, 0, views, HF_BOARD_LINES);
        CHECK(n >= HF_BOARD_LINES - 1);
        const struct hf_line_view *last = &views[n - 1];
        if (last->index != HF_BOARD_LINES - 1) {
            continue;
        }
        uint64_t number;
        memcpy(&number, last->line.uuid, sizeof(number));
        CHECK(number == 1001 || number == 1002);
        CHECK(last->line.ack == 0 || last->line.ack == number);
        CHECK(last->line.ack <= last->line.position);
        CHECK_EQ(last->line.session_id, number);
        CHECK(last->line.to_sqn <= last->line.from_sqn || last->line.to_sqn - last->line.from_sqn == number);
        (*copies)++;
    }
    return NULL;
}

static void take_the_last_line(uint64_t number)
{
    struct hf_identity who = receiver(number);
    who.session_id = number;
    CHECK_EQ(claim(&who, NULL), HF_BOARD_LINES - 1);
    struct hf_board_line *line = hf_board_line_at(board, HF_BOARD_LINES - 1);
    hf_line_range(line, 5, 5 + number);
    hf_board_ack(board, NULL, HF_BOARD_LINES - 1, number, number);
    hf_line_range(line, 7 + number, 7 + 2 * number);
    CHECK_EQ(hf_board_release(board, HF_BOARD_LINES - 1), HF_OK);
}

static void reader_never_pairs_one_participants_identity_with_anothers_ack(void)
{
    fresh();
    for (uint64_t i = 0; i < HF_BOARD_LINES - 1; i++) {
        CHECK_EQ(claim_number(i), i);
    }
    take_the_last_line(1001);
    stop_reading = 0;
    uint64_t copies = 0;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, read_while_it_changes_hands, &copies), 0);
    for (int i = 0; i < TURNS; i++) {
        take_the_last_line(1001 + (uint64_t)i % 2);
    }
    hf_store_release_u32(&stop_reading, 1);
    pthread_join(thread, NULL);
    printf("    (%llu copies of the line)\n", (unsigned long long)copies);
}

/* The same, step by step: a claimer and a reader that stop at the worst places. */
static void await_stop(pid_t pid)
{
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
    CHECK_EQ(info.si_code, CLD_STOPPED);
}

static void go_on(pid_t pid)
{
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0); /* takes the report, so that the next one is new */
    kill(pid, SIGCONT);
}

static void claim_as_2_and_ack(void *failpoints)
{
    attach_here();
    hf_failpoint_arm(failpoints);
    CHECK_EQ(claim_number(2), 0);
    hf_board_ack(board, NULL, 0, 222, 222);
    stay();
}

static void read_one_line(void *failpoints)
{
    attach_here();
    hf_failpoint_arm(failpoints);
    struct hf_line_view view;
    if (hf_board_read(board, domain, 0, &view, 1) == 1 && view.index == 0) {
        CHECK_EQ(view.line.uuid[0], view.line.ack == 111 ? 1 : 2);
        CHECK(view.line.ack == 111 || view.line.ack == 222);
    }
}

static void own_line_0_as_1_and_stay(void *argument)
{
    (void)argument;
    attach_here();
    CHECK_EQ(claim_number(1), 0);
    hf_board_ack(board, NULL, 0, 111, 111);
    stay();
}

/* Line 0 was participant 1's, who is dead; it is the only one that can be claimed. */
static void only_line_0_of_a_dead_process(void)
{
    fresh();
    ready = check_gate();
    pid_t pid = check_fork(own_line_0_as_1_and_stay, NULL);
    check_pass(&ready);
    for (uint64_t i = 1; i < HF_BOARD_LINES; i++) {
        CHECK_EQ(claim_number(100 + i), i);
    }
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
}

static void line_changes_hands_under(char *claimer_stops, char *reader_stops)
{
    only_line_0_of_a_dead_process();
    pid_t claimer = 0;
    if (claimer_stops != NULL) {
        claimer = check_fork(claim_as_2_and_ack, claimer_stops);
        await_stop(claimer);
    }
    pid_t reader = check_fork(read_one_line, reader_stops);
    if (*reader_stops != '\0') {
        await_stop(reader); /* has copied what was there */
        if (claimer_stops == NULL) {
            claimer = check_fork(claim_as_2_and_ack, "");
        } else {
            go_on(claimer);
        }
        check_pass(&ready); /* it is participant 2's now, ack included */
        go_on(reader);
    }
    check_exited(reader);
    kill(claimer, SIGKILL);
    check_killed(claimer, SIGKILL);
    check_close(&ready);
}

static void reader_notices_a_line_that_changes_hands_at_the_worst_moment(void)
{
    line_changes_hands_under(NULL, "board.copied=stop@1");                 /* all of the claim during the copy */
    line_changes_hands_under("board.owned=stop@1", "board.copied=stop@1"); /* all but the first owner word */
    line_changes_hands_under("board.owned=stop@1", "");
    line_changes_hands_under("board.described=stop@1", "");
}

static void claimed_line_is_void_until_it_is_published(void)
{
    only_line_0_of_a_dead_process();
    pid_t claimer = check_fork(claim_as_2_and_ack, "board.described=stop@1");
    await_stop(claimer);
    struct hf_line_view view;
    CHECK_EQ(hf_board_read(board, domain, 0, &view, 1), 1);
    CHECK_EQ(view.index, 1);
    kill(claimer, SIGKILL);
    check_killed(claimer, SIGKILL);
    check_close(&ready);
}

static void change_range_under_failpoint(void *spec)
{
    attach_here();
    CHECK_EQ(claim_number(1), 0);
    struct hf_board_line *line = hf_board_line_at(board, 0);
    hf_line_range(line, 1500, UINT64_MAX);
    hf_failpoint_arm(spec);
    hf_line_range(line, 50, 60);
}

static void range_counts_for_nothing_while_it_changes(void)
{
    fresh();
    check_killed(check_fork(change_range_under_failpoint, "board.range=kill@1"), SIGKILL);
    struct hf_line_view view;
    CHECK_EQ(hf_board_read(board, domain, 0, &view, 1), 1);
    CHECK(view.line.to_sqn <= view.line.from_sqn);
}

static void ack_never_goes_back_and_rings_only_who_waits(void)
{
    fresh();
    int64_t bell = hf_bell_claim(bells, domain);
    CHECK_EQ(bell, 0);
    CHECK_EQ(claim_number(1), 0);
    struct hf_board_line *line = hf_board_line_at(board, 0);
    uint32_t seen = hf_bell_read(bells, 0);
    hf_board_ack(board, bells, 0, 10, 12);
    CHECK_EQ(line->ack, 10);
    CHECK_EQ(line->position, 12);
    hf_board_ack(board, bells, 0, 5, 5);
    CHECK_EQ(line->ack, 10);
    CHECK_EQ(line->position, 12);
    CHECK_EQ(hf_bell_read(bells, 0), seen);
    CHECK(hf_board_source_waits(board, 0) > 0);
    hf_board_ack(board, bells, 0, 20, 3);
    CHECK_EQ(line->ack, 20);
    CHECK_EQ(line->position, 20);
    CHECK_EQ(hf_bell_read(bells, 0), seen + 1);
    CHECK_EQ(shared()->source_waiting, 0);
    hf_board_ack(board, bells, 0, 21, 21); /* rung once */
    CHECK_EQ(hf_bell_read(bells, 0), seen + 1);
    hf_board_ack(board, NULL, 0, 22, 22);
    hf_board_ack(board, bells, -1, 99, 99);
    hf_board_ack(board, bells, HF_BOARD_LINES, 99, 99);
    CHECK_EQ(hf_bell_read(bells, 0), seen + 1);
    line->owner ^= UINT64_C(1) << 40; /* somebody else's line stays as it is */
    hf_board_ack(board, bells, 0, 30, 30);
    CHECK_EQ(line->ack, 22);
    hf_board_rebase(board, 0, 2, 7);
    CHECK_EQ(line->ack, 22);
    CHECK_EQ(hf_board_release(board, 0), HF_USAGE);
    line->owner ^= UINT64_C(1) << 40;
    hf_board_rebase(board, 0, 2, 7); /* BEGIN(2, 7) voids acks of 7.. */
    CHECK_EQ(line->ack, 7);
    CHECK_EQ(line->ack_stream, 2);
    hf_board_ack(board, NULL, 0, 9, 9);
    hf_board_rebase(board, 0, 2, 7); /* once per incarnation */
    hf_board_rebase(board, 0, 1, 0);
    CHECK_EQ(line->ack, 9);
    hf_line_range(line, 8, 20);
    hf_board_rebase(board, 0, 3, 8);
    CHECK_EQ(line->from_sqn, 8);
    hf_board_rebase(board, 0, 4, 5); /* it joined at 8, and gets what comes from 5 on */
    CHECK_EQ(line->ack, 5);
    CHECK_EQ(line->from_sqn, 5);
    CHECK_EQ(line->to_sqn, 20);
    hf_line_range(line, 0, 0);
    hf_board_rebase(board, 0, 5, 3); /* it has not joined */
    CHECK_EQ(line->from_sqn, 0);
    CHECK_EQ(line->to_sqn, 0);
    hf_line_range(line, 5, 6);
    hf_board_rebase(board, 0, 6, 7);
    CHECK_EQ(line->from_sqn, 5);
    CHECK_EQ(hf_board_release(board, 0), HF_OK);
}

static void wake_rings_every_active_sleeper_once(void)
{
    fresh();
    for (uint64_t i = 0; i < 4; i++) {
        struct hf_identity who = receiver(i);
        who.bell = (uint32_t)(10 + i);
        CHECK_EQ(claim(&who, NULL), i);
    }
    CHECK(hf_line_sleeps(board, 0, 1) > 0);
    CHECK(hf_line_sleeps(board, 2, 1) > 0);
    CHECK(hf_line_sleeps(board, 3, 1) > 0);
    CHECK_EQ(hf_line_sleeps(board, 3, 0), 0);
    CHECK_EQ(hf_line_sleeps(board, HF_BOARD_LINES, 1), 0);
    hf_board_line_at(board, 1)->bell = HF_BELLS; /* a broken peer's: ignored */
    CHECK(hf_line_sleeps(board, 1, 1) > 0);
    CHECK_EQ(shared()->sleepers, 1);
    hf_board_wake_slow(board, bells);
    CHECK_EQ(shared()->sleepers, 0);
    CHECK_EQ(hf_bell_read(bells, 10), 1);
    CHECK_EQ(hf_bell_read(bells, 11), 0);
    CHECK_EQ(hf_bell_read(bells, 12), 1);
    CHECK_EQ(hf_bell_read(bells, 13), 0);
    hf_board_wake_slow(board, bells); /* nobody went to sleep since */
    CHECK_EQ(hf_bell_read(bells, 10), 1);
}

static void garbage_on_the_board_hurts_nobody(void)
{
    fresh();
    uint64_t random = 88172645463325252U;
    static struct hf_line_view views[HF_BOARD_LINES];
    for (int round = 0; round < 20; round++) {
        for (uint64_t i = sizeof(struct hf_preamble); i + 8 <= sizeof(struct hf_board); i += 8) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            memcpy(board->base + i, &random, 8);
        }
        int64_t n = hf_board_read(board, domain, 1, views, HF_BOARD_LINES);
        CHECK(n >= 0 && n <= HF_BOARD_LINES);
        hf_board_wake_slow(board, bells);
        hf_board_ack(board, bells, 5, 1, 1);
        struct hf_identity who = receiver(1);
        CHECK_EQ(hf_board_claim(board, domain, &who, NULL), HF_ERRNO - ENOENT); /* whose turn? nobody can say */
        shared()->claimer = 0;
        int64_t index = hf_board_claim(board, domain, &who, NULL); /* a line whose pid and start prove its owner dead */
        CHECK(index == HF_FULL || (index >= 0 && index < HF_BOARD_LINES));
    }
}

static void use_parents_handles(void *argument)
{
    (void)argument;
    struct hf_identity who = receiver(8);
    struct hf_line_view view;
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), HF_FORKED);
    CHECK_EQ(hf_board_release(board, 0), HF_FORKED);
    CHECK_EQ(hf_board_read(board, domain, 0, &view, 1), HF_FORKED);
    CHECK(hf_board_line_at(board, 0) == NULL);
    CHECK_EQ(hf_bell_claim(bells, domain), HF_FORKED);
    CHECK_EQ(hf_bell_read(bells, 0), 0);
    CHECK_EQ(hf_line_sleeps(board, 0, 1), 0);
    CHECK_EQ(hf_board_source_waits(board, 0), 0);
    hf_board_ack(board, bells, 0, 1, 1);
    hf_board_wake_slow(board, bells);
    hf_bell_ring(bells, 0);
}

static void forked_child_cannot_use_its_parents_handles(void)
{
    fresh();
    CHECK_EQ(claim_number(1), 0);
    check_exited(check_fork(use_parents_handles, NULL));
    CHECK_EQ(hf_board_line_at(board, 0)->ack, 0);
}

static void wrong_arguments_are_refused(void)
{
    fresh();
    struct hf_identity nobody = receiver(1);
    nobody.role = HF_ROLE_NONE;
    CHECK_EQ(hf_board_claim(board, domain, &nobody, NULL), HF_USAGE);
    struct hf_identity who = receiver(1);
    CHECK_EQ(hf_board_claim(bells, domain, &who, NULL), HF_USAGE);
    CHECK_EQ(hf_bell_claim(board, domain), HF_USAGE);
    CHECK_EQ(hf_board_claim(board, -1, &who, NULL), HF_ERRNO - EBADF);
    CHECK(hf_board_line_at(board, -1) == NULL);
    CHECK(hf_board_line_at(board, HF_BOARD_LINES) == NULL);
    CHECK_EQ(hf_board_release(board, 3), HF_USAGE);
}

static void read_line_0_while_it_loses_numbers(void *spec)
{
    attach_here();
    hf_failpoint_arm(spec);
    struct hf_board_line copy;
    CHECK_EQ(hf_board_copy(board, 0, &copy), 1);
    CHECK(copy.ack <= 5 || copy.from_sqn == 9);
}

static void whoever_sees_an_ack_sees_the_range_that_moved_before_it(void)
{
    fresh();
    CHECK_EQ(claim_number(7), 0);
    struct hf_board_line *line = hf_board_line_at(board, 0);
    hf_line_range(line, 3, UINT64_MAX);
    hf_board_ack(board, NULL, 0, 5, 5);
    pid_t reader = check_fork(read_line_0_while_it_loses_numbers, "board.copied=stop@1");
    await_stop(reader);
    hf_line_range(line, 9, UINT64_MAX);
    hf_board_ack(board, NULL, 0, 12, 12);
    go_on(reader);
    check_exited(reader);
}

static void one_line_is_copied_like_all(void)
{
    fresh();
    struct hf_board_line copy;
    CHECK_EQ(hf_board_copy(board, 0, &copy), HF_AGAIN); /* free */
    CHECK_EQ(hf_board_copy(board, -1, &copy), HF_USAGE);
    CHECK_EQ(hf_board_copy(board, HF_BOARD_LINES, &copy), HF_USAGE);
    CHECK_EQ(claim_number(7), 0);
    hf_line_range(hf_board_line_at(board, 0), 3, UINT64_MAX);
    hf_board_ack(board, NULL, 0, 5, 6);
    CHECK_EQ(hf_board_copy(board, 0, &copy), 1);
    struct hf_line_view view;
    CHECK_EQ(hf_board_read(board, domain, 0, &view, 1), 1);
    CHECK(memcmp(&copy, &view.line, sizeof copy) == 0);
    CHECK(copy.from_sqn == 3 && copy.ack == 5 && copy.position == 6);
    CHECK_EQ(hf_board_release(board, 0), HF_OK);
    CHECK_EQ(hf_board_copy(board, 0, &copy), 1); /* a released line stays readable */
    CHECK(copy.owner == 0 && copy.ack == 5 && copy.state == HF_LINE_CLOSED);
}

int main(void)
{
    domain = check_directory();
    RUN(reader_never_pairs_one_participants_identity_with_anothers_ack);
    RUN(reader_notices_a_line_that_changes_hands_at_the_worst_moment);
    RUN(claimed_line_is_void_until_it_is_published);
    RUN(range_counts_for_nothing_while_it_changes);
    RUN(ack_never_goes_back_and_rings_only_who_waits);
    RUN(wake_rings_every_active_sleeper_once);
    RUN(garbage_on_the_board_hurts_nobody);
    RUN(forked_child_cannot_use_its_parents_handles);
    RUN(one_line_is_copied_like_all);
    RUN(whoever_sees_an_ack_sees_the_range_that_moved_before_it);
    RUN(wrong_arguments_are_refused);
    hf_map_detach(board);
    hf_map_detach(bells);
    return 0;
}
