/* test_board.c: claims, their races and crashes, consistent reading, acks and wakes. */
#include <pthread.h>
#include <stddef.h>

#include "atomic.h"
#include "board.h"
#include "check.h"
#include "process.h"
#include "status.h"
#include "wait.h"

static int domain;
static int board_fd, bells_fd;
static struct hf_map *board, *bells;
static const uint8_t source[16] = {9};

static struct hf_map *make(int fd, uint32_t kind, uint64_t bytes)
{
    struct hf_map *map = NULL;
    CHECK_EQ(hf_map_create(fd, kind, bytes, 0, source, 0, &map), HF_OK);
    hf_map_publish(map);
    return map;
}

static void fresh(void)
{
    hf_map_detach(board);
    hf_map_detach(bells);
    if (board_fd > 0) {
        close(board_fd);
        close(bells_fd);
    }
    board_fd = check_memory();
    bells_fd = check_memory();
    board = make(board_fd, HF_KIND_BOARD, sizeof(struct hf_board));
    bells = make(bells_fd, HF_KIND_BELLS, sizeof(struct hf_bells));
}

/* A child's own mapping, in place of its parent's. */
static void attach_here(void)
{
    CHECK_EQ(hf_map_attach(board_fd, HF_KIND_BOARD, 1, 1, &board), HF_OK);
    CHECK_EQ(hf_map_attach(bells_fd, HF_KIND_BELLS, 1, 1, &bells), HF_OK);
}

static struct hf_identity receiver(uint64_t number)
{
    struct hf_identity who = {.incarnation = 1, .session_id = 5, .role = HF_ROLE_RECEIVER, .name = "receiver"};
    memcpy(who.uuid, &number, sizeof(number));
    return who;
}

/* Waits for its turn as long as it takes. */
static int64_t claim(const struct hf_identity *who, struct hf_line_view *holder)
{
    int64_t index;
    do {
        index = hf_board_claim(board, domain, who, holder);
    } while (index == HF_AGAIN);
    return index;
}

static int64_t claim_number(uint64_t number)
{
    struct hf_identity who = receiver(number);
    return claim(&who, NULL);
}

static struct hf_board *shared(void)
{
    return (struct hf_board *)board->base;
}

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

static struct check_gate ready;

static _Noreturn void stay(void)
{
    check_open(&ready);
    for (;;) {
        pause();
    }
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
        CHECK_EQ(claim_number(1), i == 0 ? 0 : 1); /* unused ones go first */
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
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), 0);
}

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
    line_changes_hands_under(NULL, "board.copied=stop@1");               /* all of the claim during the copy */
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

int main(void)
{
    domain = check_directory();
    RUN(claimed_line_tells_who_owns_it);
    RUN(same_participant_gets_no_second_line_while_it_lives);
    RUN(participant_that_comes_back_finds_its_line_and_positions);
    RUN(unused_lines_go_first_then_the_longest_silent);
    RUN(lines_of_a_dead_process_are_reused_and_those_of_a_stopped_one_are_not);
    RUN(no_two_claimers_get_the_same_line);
    RUN(exactly_one_claimer_gets_a_given_participants_line);
    RUN(claimer_killed_anywhere_blocks_nobody_and_loses_no_ack);
    RUN(line_of_a_claimer_that_died_half_way_is_reused_when_no_other_is_left);
    RUN(stopped_claimer_makes_others_fail_and_never_overlap);
    RUN(reader_never_pairs_one_participants_identity_with_anothers_ack);
    RUN(reader_notices_a_line_that_changes_hands_at_the_worst_moment);
    RUN(claimed_line_is_void_until_it_is_published);
    RUN(range_counts_for_nothing_while_it_changes);
    RUN(ack_never_goes_back_and_rings_only_who_waits);
    RUN(wake_rings_every_active_sleeper_once);
    RUN(garbage_on_the_board_hurts_nobody);
    RUN(forked_child_cannot_use_its_parents_handles);
    RUN(wrong_arguments_are_refused);
    hf_map_detach(board);
    hf_map_detach(bells);
    return 0;
}
