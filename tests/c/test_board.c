/* test_board.c: claims, their races and crashes. */
#include "base/failpoint.h"
#include "board_kit.h"

static void claimed_line_tells_who_owns_it(void)
{
    fresh();
    struct hf_identity who = receiver(77);
    who.registration_id = 4;
    who.bell = 3;
    int64_t index = claim(&who, NULL);
    CHECK_EQ(index, 0);
    hf_line_range(hf_board_line_at(board, index), 10, UINT64_MAX);
    struct hf_line_view views[HF_BOARD_LINES];
    CHECK_EQ(hf_board_read(board, domain, 0, views, HF_BOARD_LINES), 1);
    CHECK_EQ(views[0].alive, -1);
    CHECK_EQ(hf_board_read(board, domain, 1, views, HF_BOARD_LINES), 1);
    const struct hf_board_line *line = &views[0].line;
    CHECK_EQ(views[0].alive, 1);
    CHECK_EQ(views[0].index, 0);
    CHECK_EQ(line->owner & ~UINT64_C(0xffff), hf_process_token());
    CHECK_EQ(line->state, HF_LINE_ACTIVE);
    CHECK_EQ(line->from_sqn, 10);
    CHECK_EQ(line->to_sqn, UINT64_MAX);
    CHECK_EQ(line->ack, 0);
    CHECK_EQ(line->pin, UINT64_MAX);
    CHECK_EQ(line->bell, 3);
    CHECK_EQ(line->registration_id, 4);
    CHECK_EQ(line->owner_pid, getpid());
    CHECK_EQ(line->owner_start, hf_process_start((uint32_t)getpid()));
    CHECK_EQ(memcmp(line->uuid, who.uuid, 16), 0);
    CHECK_EQ(strcmp(line->name, "receiver"), 0);
    CHECK_EQ(shared()->claimer, 0);
}

static void same_participant_gets_no_second_line_while_it_lives(void)
{
    fresh();
    CHECK_EQ(claim_number(1), 0);
    struct hf_line_view holder;
    struct hf_identity who = receiver(1);
    CHECK_EQ(claim(&who, &holder), HF_BUSY);
    CHECK_EQ(holder.index, 0);
    CHECK_EQ(holder.alive, 1);
    CHECK_EQ(holder.line.owner_pid, getpid());
    who.role = HF_ROLE_STORE; /* a uuid may play two roles */
    CHECK_EQ(claim(&who, &holder), 1);
}

static void participant_that_comes_back_finds_its_line_and_positions(void)
{
    fresh();
    CHECK_EQ(claim_number(1), 0);
    CHECK_EQ(claim_number(2), 1);
    hf_board_ack(board, NULL, 1, 40, 50);
    CHECK_EQ(hf_board_release(board, 1), HF_OK);
    CHECK_EQ(hf_board_release(board, 1), HF_USAGE);
    struct hf_line_view views[2];
    CHECK_EQ(hf_board_read(board, domain, 1, views, 2), 2);
    CHECK_EQ(views[1].line.state, HF_LINE_CLOSED);
    CHECK_EQ(views[1].line.owner, 0);
    CHECK_EQ(views[1].line.ack, 40); /* still readable */
    CHECK_EQ(views[1].alive, 0);
    CHECK_EQ(hf_board_release(board, 0), HF_OK);
    struct hf_identity who = receiver(2);
    who.incarnation = 2;
    CHECK_EQ(claim(&who, NULL), 1);
    CHECK_EQ(hf_board_line_at(board, 1)->ack, 40);
    CHECK_EQ(hf_board_line_at(board, 1)->position, 50);
    CHECK_EQ(hf_board_line_at(board, 1)->incarnation, 2);
    CHECK_EQ(hf_board_release(board, 1), HF_OK);
    who.level = HF_LEVEL_DISK; /* an ack of another level says something else */
    CHECK_EQ(claim(&who, NULL), 1);
    CHECK_EQ(hf_board_line_at(board, 1)->ack, 0);
}

static void unused_lines_go_first_then_the_longest_silent(void)
{
    fresh();
    for (uint64_t i = 0; i < HF_BOARD_LINES; i++) {
        CHECK_EQ(claim_number(i), i);
        if (i == 5) {
            CHECK_EQ(hf_board_release(board, 5), HF_OK);
        }
    }
    CHECK_EQ(hf_board_release(board, 9), HF_OK);
    CHECK_EQ(hf_board_release(board, 2), HF_OK);
    hf_board_ack(board, NULL, 9, 7, 7); /* not ours any more */
    CHECK_EQ(hf_board_line_at(board, 9)->ack, 0);
    CHECK_EQ(claim_number(1000), 5);
    CHECK_EQ(claim_number(1001), 9);
    CHECK_EQ(claim_number(1002), 2);
    CHECK_EQ(claim_number(1003), HF_FULL);
    CHECK_EQ(shared()->claimer, 0);
}

static void claim_all_and_stay(void *argument)
{
    (void)argument;
    attach_here();
    for (uint64_t i = 0; i < HF_BOARD_LINES; i++) {
        CHECK_EQ(claim_number(i), i);
        hf_board_ack(board, NULL, (int64_t)i, 100 + i, 0);
    }
    hf_board_line_at(board, 70)->heartbeat_ns = 1;
    stay();
}

static void lines_of_a_dead_process_are_reused_and_those_of_a_stopped_one_are_not(void)
{
    fresh();
    ready = check_gate();
    pid_t pid = check_fork(claim_all_and_stay, NULL);
    check_pass(&ready);
    kill(pid, SIGSTOP);
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
    CHECK_EQ(claim_number(1000), HF_FULL);
    CHECK_EQ(claim_number(3), HF_BUSY);
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    static struct hf_line_view views[HF_BOARD_LINES];
    CHECK_EQ(hf_board_read(board, domain, 1, views, HF_BOARD_LINES), HF_BOARD_LINES);
    for (uint64_t i = 0; i < HF_BOARD_LINES; i++) {
        CHECK_EQ(views[i].alive, 0);
        CHECK_EQ(views[i].line.ack, 100 + i); /* a crash leaves it */
    }
    CHECK_EQ(claim_number(1000), 70);
    CHECK_EQ(hf_board_line_at(board, 70)->ack, 0);
    CHECK_EQ(claim_number(3), 3);
    CHECK_EQ(hf_board_line_at(board, 3)->ack, 103);
    check_close(&ready);
}

static void lines_that_nobody_goes_on_with_go_before_those_of_who_may_come_again(void)
{
    fresh();
    for (uint64_t i = 0; i < HF_BOARD_LINES; i++) {
        struct hf_identity who = receiver(i);
        who.flags = i == 20 || i == 30 ? HF_LINE_EPHEMERAL : 0;
        CHECK_EQ(claim(&who, NULL), i);
    }
    int64_t released[] = {10, 30, 20, 40};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(hf_board_release(board, released[i]), HF_OK);
        hf_board_line_at(board, released[i])->heartbeat_ns = (uint64_t)i + 1;
    }
    hf_board_line_at(board, 5)->flags = HF_LINE_EPHEMERAL; /* it lives */
    CHECK_EQ(hf_board_mark(board, domain, 40, hf_board_line_at(board, 40)->since_ns), 1);
    CHECK_EQ(claim_number(1000), 30);
    CHECK_EQ(claim_number(1001), 20);
    CHECK_EQ(claim_number(1002), 40); /* deregistered */
    CHECK_EQ(claim_number(1003), 10);
    CHECK_EQ(claim_number(1004), HF_FULL);
}

static void buried_lines_name_nobody_and_keep_what_they_say(void)
{
    fresh();
    ready = check_gate();
    pid_t pid = check_fork(claim_all_and_stay, NULL);
    check_pass(&ready);
    CHECK_EQ(hf_board_bury(board, domain), 0); /* it lives */
    hf_board_line_at(board, 8)->role = HF_ROLE_STORE;
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    CHECK_EQ(hf_board_bury(board, domain), HF_BOARD_LINES - 1);
    CHECK_EQ(hf_board_bury(board, domain), 0);
    CHECK(hf_board_line_at(board, 8)->owner != 0);
    static struct hf_line_view views[HF_BOARD_LINES];
    CHECK_EQ(hf_board_read(board, domain, 1, views, HF_BOARD_LINES), HF_BOARD_LINES);
    for (uint64_t i = 0; i < HF_BOARD_LINES; i++) {
        CHECK_EQ(views[i].alive, 0);
        CHECK_EQ(views[i].line.ack, 100 + i);
    }
    CHECK_EQ(claim_number(3), 3); /* who comes back finds it */
    CHECK_EQ(hf_board_line_at(board, 3)->ack, 103);
    CHECK_EQ(claim_number(1000), 70);
    CHECK_EQ(hf_board_bury(board, domain), 0); /* both are ours */
    CHECK_EQ(hf_board_bury(bells, domain), HF_USAGE);
    check_close(&ready);
}

/* The race: several processes, each with several threads. */
enum { PROCESSES = 3, THREADS = 32, RACERS = PROCESSES * THREADS };
struct race {
    uint32_t go;
    int same_uuid;
    int64_t got[RACERS];
};

struct racer {
    struct race *race;
    int number;
};

static void *run_racer(void *argument)
{
    struct racer *racer = argument;
    while (hf_load_acquire_u32(&racer->race->go) == 0) {
        hf_cpu_relax();
    }
    racer->race->got[racer->number] = claim_number(racer->race->same_uuid ? 1 : 1 + (uint64_t)racer->number);
    return NULL;
}

struct heat {
    struct race *race;
    int process;
};

static void run_heat(void *argument)
{
    struct heat *heat = argument;
    attach_here();
    pthread_t threads[THREADS];
    struct racer racers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){heat->race, heat->process * THREADS + i};
        CHECK_EQ(pthread_create(&threads[i], NULL, run_racer, &racers[i]), 0);
    }
    check_open(&ready);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    check_open(&ready);
    for (;;) {
        pause(); /* its lines must not become a dead process's while others still claim */
    }
}

static void run_race(struct race *race)
{
    fresh();
    ready = check_gate();
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        struct heat heat = {race, i};
        pids[i] = check_fork(run_heat, &heat);
    }
    for (int i = 0; i < PROCESSES; i++) {
        check_pass(&ready);
    }
    hf_store_release_u32(&race->go, 1);
    for (int i = 0; i < PROCESSES; i++) {
        check_pass(&ready);
    }
    for (int i = 0; i < PROCESSES; i++) {
        kill(pids[i], SIGKILL);
        check_killed(pids[i], SIGKILL);
    }
    check_close(&ready);
}

static void a_mark_meets_the_claim_that_it_is_for_and_the_next_claim_takes_it_off(void)
{
    fresh();
    CHECK_EQ(claim_number(1), 0);
    CHECK_EQ(claim_number(2), 1);
    struct hf_board_line *line = hf_board_line_at(board, 1);
    uint64_t since = line->since_ns;
    CHECK_EQ(hf_board_release(board, 1), HF_OK);
    line->flags = HF_LINE_EXPLICIT;
    CHECK_EQ(hf_board_mark(board, domain, 1, since + 1), 0);
    CHECK_EQ(line->flags, HF_LINE_EXPLICIT);
    CHECK_EQ(hf_board_mark(board, domain, 1, since), 1);
    CHECK_EQ(line->flags, HF_LINE_EXPLICIT | HF_LINE_DEREGISTERED);
    CHECK_EQ(hf_board_line_at(board, 0)->flags, 0);
    CHECK_EQ(claim_number(2), 1);
    CHECK_EQ(line->flags, 0);
    CHECK_EQ(hf_board_mark(board, domain, 1, since), 0); /* it came back meanwhile */
    CHECK_EQ(line->flags, 0);
    line->role = HF_ROLE_STORE;
    CHECK_EQ(hf_board_mark(board, domain, 1, line->since_ns), 0);
    CHECK_EQ(hf_board_mark(board, domain, 2, 0), 0); /* never used */
    CHECK_EQ(hf_board_line_at(board, 2)->flags, 0);
    CHECK_EQ(hf_board_mark(board, domain, HF_BOARD_LINES, 0), HF_USAGE);
    CHECK_EQ(hf_board_mark(bells, domain, 0, 0), HF_USAGE);
    CHECK_EQ(shared()->claimer, 0);
}

/* A living process has the turn for as long as it likes. */
static void nobody_marks_while_it_is_anothers_turn(void)
{
    fresh();
    CHECK_EQ(claim_number(1), 0);
    shared()->claimer = hf_process_token() | 1;
    CHECK_EQ(hf_board_mark(board, domain, 0, hf_board_line_at(board, 0)->since_ns), HF_AGAIN);
    CHECK_EQ(hf_board_line_at(board, 0)->flags, 0);
    shared()->claimer = 0;
}

static void no_two_claimers_get_the_same_line(void)
{
    struct race *race = check_shared(sizeof(*race));
    run_race(race);
    int taken[HF_BOARD_LINES] = {0};
    for (int i = 0; i < RACERS; i++) {
        CHECK(race->got[i] >= 0);
        CHECK_EQ(taken[race->got[i]]++, 0);
    }
    munmap(race, sizeof(*race));
}

static void exactly_one_claimer_gets_a_given_participants_line(void)
{
    for (int round = 0; round < 5; round++) {
        struct race *race = check_shared(sizeof(*race));
        race->same_uuid = 1;
        run_race(race);
        int winners = 0;
        for (int i = 0; i < RACERS; i++) {
            winners += race->got[i] >= 0;
            CHECK(race->got[i] >= 0 || race->got[i] == HF_BUSY);
        }
        CHECK_EQ(winners, 1);
        munmap(race, sizeof(*race));
    }
}

static void claim_under_failpoint(void *spec)
{
    attach_here();
    hf_failpoint_arm(spec);
    (void)claim_number(1);
}

static void release_under_failpoint(void *spec)
{
    attach_here();
    CHECK_EQ(claim_number(1), 0);
    hf_failpoint_arm(spec);
    (void)hf_board_release(board, 0);
}

static void claimer_killed_anywhere_blocks_nobody_and_loses_no_ack(void)
{
    char *points[] = {"board.turn=kill@1", "board.owned=kill@1", "board.described=kill@1"};
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        fresh();
        check_killed(check_fork(claim_under_failpoint, points[i]), SIGKILL); /* on a new line */
        CHECK_EQ(claim_number(1), i == 0 ? 0 : 1);                           /* unused ones go first */
        int64_t index = i == 0 ? 0 : 1;
        hf_board_ack(board, NULL, index, 30, 31);
        CHECK_EQ(hf_board_release(board, index), HF_OK);
        check_killed(check_fork(claim_under_failpoint, points[i]), SIGKILL); /* on its own line */
        struct hf_line_view view;
        CHECK_EQ(hf_board_read(board, domain, 1, &view, 1), 1);
        CHECK_EQ(view.line.ack, 30);
        CHECK_EQ(view.alive, 0);
        CHECK_EQ(claim_number(2), i == 0 ? 1 : 2);
        CHECK_EQ(claim_number(1), index);
        CHECK_EQ(hf_board_line_at(board, index)->ack, 30);
        CHECK_EQ(hf_board_line_at(board, index)->position, 31);
    }
    fresh();
    check_killed(check_fork(release_under_failpoint, "board.closed=kill@1"), SIGKILL);
    CHECK_EQ(claim_number(1), 0);
}

static void line_of_a_claimer_that_died_half_way_is_reused_when_no_other_is_left(void)
{
    fresh();
    check_killed(check_fork(claim_under_failpoint, "board.described=kill@1"), SIGKILL);
    for (uint64_t i = 1; i < HF_BOARD_LINES; i++) {
        CHECK_EQ(claim_number(10 + i), i);
    }
    CHECK_EQ(claim_number(1000), 0);
    CHECK_EQ(claim_number(1001), HF_FULL);
}

/* A reader takes it for the version of a line without an owner. */
static void time_of_a_claim_is_stored_behind_every_other_detail(void)
{
    fresh();
    check_killed(check_fork(claim_under_failpoint, "board.described=kill@1"), SIGKILL);
    const struct hf_board_line *line = hf_board_line_at(board, 0);
    CHECK_EQ(line->role, HF_ROLE_RECEIVER);
    CHECK_EQ(strcmp(line->name, "receiver"), 0);
    CHECK_EQ(line->since_ns, 0);
}

static void stop_in_turn(void *argument)
{
    (void)argument;
    attach_here();
    hf_failpoint_arm("board.turn=stop@1");
    (void)claim_number(1);
    pause();
}

static void stopped_claimer_makes_others_fail_and_never_overlap(void)
{
    fresh();
    pid_t pid = check_fork(stop_in_turn, NULL);
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
    struct hf_identity who = receiver(2);
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), HF_AGAIN);
    struct hf_line_view turn = {0};
    CHECK_EQ(hf_board_claim(board, domain, &who, &turn), HF_AGAIN);
    CHECK_EQ(turn.line.owner_pid, pid);
    CHECK(turn.line.owner != 0);
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), 0);
}

int main(void)
{
    domain = check_directory();
    RUN(claimed_line_tells_who_owns_it);
    RUN(same_participant_gets_no_second_line_while_it_lives);
    RUN(participant_that_comes_back_finds_its_line_and_positions);
    RUN(unused_lines_go_first_then_the_longest_silent);
    RUN(lines_of_a_dead_process_are_reused_and_those_of_a_stopped_one_are_not);
    RUN(lines_that_nobody_goes_on_with_go_before_those_of_who_may_come_again);
    RUN(buried_lines_name_nobody_and_keep_what_they_say);
    RUN(a_mark_meets_the_claim_that_it_is_for_and_the_next_claim_takes_it_off);
    RUN(nobody_marks_while_it_is_anothers_turn);
    RUN(no_two_claimers_get_the_same_line);
    RUN(exactly_one_claimer_gets_a_given_participants_line);
    RUN(claimer_killed_anywhere_blocks_nobody_and_loses_no_ack);
    RUN(line_of_a_claimer_that_died_half_way_is_reused_when_no_other_is_left);
    RUN(time_of_a_claim_is_stored_behind_every_other_detail);
    RUN(stopped_claimer_makes_others_fail_and_never_overlap);
    hf_map_detach(board);
    hf_map_detach(bells);
    return 0;
}
