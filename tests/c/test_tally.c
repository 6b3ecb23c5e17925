/* test_tally.c: what a tally finds stable, and the wait for it. */
#include "base/failpoint.h"
#include "board/tally.h"
#include "board_kit.h"

#include <sched.h>

enum { STORES = 6, INCARNATION = 7 };

static struct hf_tally tally;
static uint32_t bell;

static struct hf_identity store(uint64_t number)
{
    struct hf_identity who = {.incarnation = 1, .role = HF_ROLE_STORE, .name = "store"};
    memcpy(who.uuid, &number, sizeof(number));
    return who;
}

static struct hf_board_line *line(int64_t index)
{
    return &shared()->lines[index];
}

static int64_t claim_store(uint64_t number)
{
    struct hf_identity who = store(number);
    int64_t index = claim(&who, NULL);
    hf_line_range(line(index), 0, UINT64_MAX);
    hf_board_rebase(board, index, INCARNATION, 0);
    return index;
}

/* Line i is the one of store i; `needed` of the first `stores` make it stable, in one group. */
static void scene(uint32_t stores, uint32_t needed)
{
    fresh();
    bell = (uint32_t)hf_bell_claim(bells, domain);
    tally = (struct hf_tally){.incarnation = INCARNATION, .lines = stores, .rules = 1, .groups = 1, .needed = 1};
    tally.rule[0] = (struct hf_tally_rule){.lines = (UINT64_C(1) << stores) - 1, .needed = needed};
    for (uint32_t i = 0; i < stores; i++) {
        CHECK_EQ(claim_store(i + 1), i);
        tally.index[i] = i;
        tally.owner[i] = line(i)->owner;
    }
}

static void ack(int64_t index, uint64_t number)
{
    hf_board_ack(board, bells, index, number, number);
}

static int64_t soon(uint64_t first, uint64_t last)
{
    return hf_tally_soon(&tally, board, first, last);
}

/* Whole waits end at ticks. */
static uint64_t tick(void)
{
    return (uint64_t)(hf_now_ns() / HF_WAIT_MAX_NS);
}

static int64_t wait_for(uint64_t number, int strategy, int64_t timeout_ns)
{
    return hf_tally_wait(&tally, board, bells, bell, number, number, strategy, timeout_ns);
}

static void stable_exactly_when_the_line_that_completes_the_quorum_passes(void)
{
    for (uint32_t needed = 1; needed <= 5; needed++) {
        scene(5, needed);
        for (uint32_t i = 0; i < 5; i++) {
            ack(i, 10); /* everything below 10: not 10 */
            CHECK_EQ(soon(10, 10), 0);
        }
        for (uint32_t i = 0; i < 5; i++) {
            ack(4 - i, 11);
            CHECK_EQ(soon(10, 10), i + 1 >= needed);
            CHECK_EQ(wait_for(10, HF_WAIT_BUSY_SPIN, 0), i + 1 >= needed);
            CHECK_EQ(soon(11, 11), 0);
            CHECK_EQ(soon(3, 9), 1);
        }
    }
}

static void a_line_has_only_what_lies_in_its_range(void)
{
    scene(1, 1);
    ack(0, 20);
    hf_line_range(line(0), 5, 15);
    CHECK_EQ(soon(5, 14), 1);
    CHECK_EQ(soon(4, 14), 0);
    CHECK_EQ(soon(5, 15), 0);
    hf_line_range(line(0), 6, UINT64_MAX); /* 5 is lost there */
    CHECK_EQ(soon(5, 5), 0);
    CHECK_EQ(soon(6, 19), 1);
    CHECK_EQ(soon(6, 20), 0);
}

static void an_ack_of_another_incarnation_counts_for_nothing(void)
{
    scene(1, 1);
    ack(0, 20);
    tally.incarnation = INCARNATION + 1;
    CHECK_EQ(soon(3, 3), 0);
    hf_board_rebase(board, 0, INCARNATION + 1, 3);
    CHECK_EQ(soon(3, 3), 0);
    ack(0, 4);
    CHECK_EQ(soon(3, 3), 1);
}

static void a_line_that_has_changed_hands_counts_for_nobody(void)
{
    scene(2, 2);
    ack(0, 20);
    ack(1, 20);
    CHECK_EQ(soon(3, 3), 1);
    CHECK_EQ(hf_board_release(board, 0), HF_OK);
    CHECK_EQ(line(0)->ack, 20);
    CHECK_EQ(soon(3, 3), 0); /* its owner's word is 0 */
    CHECK_EQ(claim_store(1), 0);
    CHECK_EQ(soon(3, 3), 0); /* the same store, back: policy has to find it first */
    tally.owner[0] = line(0)->owner;
    CHECK_EQ(soon(3, 3), 1);
    tally.index[0] = HF_BOARD_LINES;
    CHECK_EQ(soon(3, 3), 0);
}

static void a_store_without_a_line_is_one_too_few(void)
{
    scene(3, 3);
    tally.lines = 2;
    tally.rule[0].lines = 3;
    for (int i = 0; i < 3; i++) {
        ack(i, 1);
    }
    CHECK_EQ(soon(0, 0), 0);
    tally.rule[0].needed = 2;
    CHECK_EQ(soon(0, 0), 1);
}

static void all_rules_of_a_group_and_enough_groups(void)
{
    scene(STORES, 1);
    tally.rules = 4;
    tally.groups = 3;
    tally.rule[0] = (struct hf_tally_rule){.lines = 7, .needed = 2, .group = 0}; /* a quorum of 0, 1, 2, */
    tally.rule[1] = (struct hf_tally_rule){.lines = 4, .needed = 1, .group = 0}; /* and 2, which is registered */
    tally.rule[2] = (struct hf_tally_rule){.lines = 24, .needed = 2, .group = 1};
    tally.rule[3] = (struct hf_tally_rule){.lines = 32, .needed = 1, .group = 2};
    static const int order[] = {0, 1, 2, 3, 4, 5};
    static const uint32_t agree[] = {0, 0, 1, 1, 2, 3};
    for (int i = 0; i < STORES; i++) {
        ack(order[i], 1);
        for (tally.needed = 1; tally.needed <= 4; tally.needed++) {
            CHECK_EQ(soon(0, 0), agree[i] >= tally.needed);
        }
    }
    tally.groups = tally.rules = 0; /* no group is active */
    tally.needed = 1;
    CHECK_EQ(soon(0, 0), 0);
}

static void one_that_has_ended_finds_nothing_stable(void)
{
    scene(1, 1);
    ack(0, 1);
    CHECK_EQ(soon(0, 0), 1);
    hf_tally_end(&tally);
    CHECK_EQ(soon(0, 0), 0);
    CHECK_EQ(wait_for(0, HF_WAIT_BLOCK, INT64_MAX), 0);
    uint64_t begin;
    do { /* not by the end of its time */
        begin = tick();
        CHECK_EQ(wait_for(0, HF_WAIT_BUSY_SPIN, INT64_MAX), 0);
    } while (begin != tick());
}

static void what_did_not_come_at_once_is_not_waited_for_with_the_gil(void)
{
    scene(1, 1);
    tally.at_once = 1;
    CHECK_EQ(soon(0, 0), 0);
    CHECK_EQ(tally.at_once, 0);
    CHECK_EQ(soon(0, 0), 0);
    CHECK_EQ(wait_for(0, HF_WAIT_YIELD, 1000), 0);
    CHECK_EQ(tally.at_once, 0);
    ack(0, 1);
    while (tally.at_once == 0) { /* on a busy machine it has taken longer */
        CHECK_EQ(wait_for(0, HF_WAIT_YIELD, INT64_MAX), 1);
    }
}

static void only_a_board_has_lines(void)
{
    scene(1, 1);
    CHECK_EQ(hf_tally_soon(&tally, bells, 0, 0), HF_USAGE);
    CHECK_EQ(hf_tally_wait(&tally, bells, bells, bell, 0, 0, HF_WAIT_BLOCK, 1), HF_USAGE);
}

/* ---- waiting ---- */

struct mover {
    pthread_t thread;
    void (*move)(void);
    int asleep; /* it waits until the source has said that it sleeps */
};

static void until_it_sleeps(void)
{
    while (hf_load_acquire_u32(&shared()->source_waiting) == 0) {
        sched_yield();
    }
}

static void *move_it(void *argument)
{
    const struct mover *m = argument;
    if (m->asleep) {
        until_it_sleeps();
    }
    m->move();
    return NULL;
}

static void begin_to_move(struct mover *m)
{
    hf_store_relaxed_u32(&shared()->source_waiting, 0);
    CHECK_EQ(pthread_create(&m->thread, NULL, move_it, m), 0);
}

static int64_t until_stable(int strategy)
{
    int64_t status;
    do {
        status = wait_for(0, strategy, INT64_MAX);
    } while (status == 0);
    return status;
}

static void one_after_the_other(void)
{
    ack(0, 1);
    sched_yield();
    ack(1, 1);
}

static void a_wait_by_every_strategy_ends_with_the_quorum(void)
{
    for (int strategy = HF_WAIT_BUSY_SPIN; strategy <= HF_WAIT_BLOCK; strategy++) {
        scene(3, 2);
        struct mover m = {.move = one_after_the_other, .asleep = strategy == HF_WAIT_BLOCK};
        begin_to_move(&m);
        CHECK_EQ(until_stable(strategy), 1);
        CHECK_EQ(pthread_join(m.thread, NULL), 0);
        CHECK_EQ(soon(0, 0), 1);
    }
}

static uint32_t rounds;

static void the_first_of_two_then_the_second_when_it_sleeps_again(void)
{
    ack(0, 1); /* takes the flag, and rings */
    until_it_sleeps();
    hf_add_u32(&rounds, 1);
    ack(1, 1);
}

/* In one call: who has the numbers changed when the bell was rung, so it goes on. It is another call only if the time was over. */
static void an_ack_that_is_too_few_lets_it_sleep_on(void)
{
    int64_t status = 0;
    while (status == 0) {
        scene(3, 2);
        struct mover m = {.move = the_first_of_two_then_the_second_when_it_sleeps_again, .asleep = 1};
        begin_to_move(&m);
        uint64_t begin = tick();
        status = wait_for(0, HF_WAIT_BLOCK, INT64_MAX);
        if (status == 0) { /* its time was over: never for the ack's sake */
            CHECK(begin != tick());
            CHECK_EQ(until_stable(HF_WAIT_BLOCK), 1);
        }
        CHECK_EQ(pthread_join(m.thread, NULL), 0);
    }
    CHECK_EQ(status, 1);
    CHECK(rounds > 0);
}

static void rings(void)
{
    hf_bell_ring(bells, bell);
}

static void ends(void)
{
    hf_tally_end(&tally);
    hf_bell_ring(bells, bell);
}

static void policy_looks_when_the_bell_rings_for_something_else(void)
{
    static void (*const moves[])(void) = {rings, ends};
    for (int i = 0; i < 2; i++) {
        uint64_t begin, end;
        do { /* not by the end of its time */
            scene(1, 1);
            struct mover m = {.move = moves[i], .asleep = 1};
            begin_to_move(&m);
            begin = tick();
            CHECK_EQ(wait_for(0, HF_WAIT_BLOCK, INT64_MAX), 0);
            end = tick();
            hf_store_relaxed_u32(&shared()->source_waiting, 1); /* it may never have come to that */
            CHECK_EQ(pthread_join(m.thread, NULL), 0);
        } while (begin != end);
        ack(0, 1);
        CHECK_EQ(wait_for(0, HF_WAIT_BLOCK, INT64_MAX), i == 0);
    }
}

static void acks_and_rings_nothing(void)
{
    hf_board_ack(board, NULL, 0, 1, 1);
}

/* The ack comes between the flag and the sleep, and only what the source looks at last can tell it before the time is over. */
static void it_looks_once_more_before_it_sleeps(void)
{
    uint64_t begin, end;
    do { /* the other thread may come too late */
        scene(1, 1);
        hf_failpoint_arm("wait.barrier=delay");
        struct mover m = {.move = acks_and_rings_nothing, .asleep = 1};
        begin_to_move(&m);
        begin = tick();
        int64_t status = wait_for(0, HF_WAIT_BLOCK, INT64_MAX);
        end = tick();
        CHECK_EQ(pthread_join(m.thread, NULL), 0);
        CHECK(status == 0 || status == 1);
        hf_failpoint_arm("");
    } while (begin != end);
}

enum { ROUNDS = 40 };
static uint64_t acked;

static void acks_a_little_later(void)
{
    nanosleep(&(struct timespec){0, 300000}, NULL);
    ack(0, 1);
    acked = tick();
}

/* The ack comes between the last look and the sleep. Asleep beside it, the source would wake at the next tick, every time. */
static void an_ack_behind_the_last_look_is_not_slept_through(void)
{
    int late = 0;
    for (int i = 0; i < ROUNDS; i++) {
        scene(1, 1);
        hf_failpoint_arm("tally.looked=delay");
        struct mover m = {.move = acks_a_little_later, .asleep = 1};
        begin_to_move(&m);
        CHECK_EQ(until_stable(HF_WAIT_BLOCK), 1);
        uint64_t end = tick();
        CHECK_EQ(pthread_join(m.thread, NULL), 0);
        hf_failpoint_arm("");
        late += end != acked;
    }
    printf("    (%d late wakes of %d)\n", late, ROUNDS);
    CHECK(late < ROUNDS / 2); /* a busy machine makes one late now and then */
}

/* Without membarrier it sleeps in naps; the time of a call is over when it is over, not when a nap is. */
static void naps_are_not_the_end(void)
{
    scene(1, 1);
    hf_failpoint_arm("wait.barrier=errno:EPERM");
    struct mover m = {.move = acks_and_rings_nothing, .asleep = 1};
    begin_to_move(&m);
    CHECK_EQ(until_stable(HF_WAIT_BACKOFF), 1);
    CHECK_EQ(pthread_join(m.thread, NULL), 0);
    hf_failpoint_arm("");
}

static void ask_as_a_child(void *argument)
{
    (void)argument;
    CHECK_EQ(soon(0, 0), HF_FORKED);
    CHECK_EQ(wait_for(0, HF_WAIT_BUSY_SPIN, INT64_MAX), HF_FORKED);
}

static void a_forked_child_is_told_nothing_of_its_parents_board(void)
{
    scene(1, 1);
    ack(0, 1);
    check_exited(check_fork(ask_as_a_child, NULL));
}

int main(void)
{
    domain = check_directory();
    RUN(stable_exactly_when_the_line_that_completes_the_quorum_passes);
    RUN(a_line_has_only_what_lies_in_its_range);
    RUN(an_ack_of_another_incarnation_counts_for_nothing);
    RUN(a_line_that_has_changed_hands_counts_for_nobody);
    RUN(a_store_without_a_line_is_one_too_few);
    RUN(all_rules_of_a_group_and_enough_groups);
    RUN(one_that_has_ended_finds_nothing_stable);
    RUN(what_did_not_come_at_once_is_not_waited_for_with_the_gil);
    RUN(only_a_board_has_lines);
    RUN(a_wait_by_every_strategy_ends_with_the_quorum);
    RUN(an_ack_that_is_too_few_lets_it_sleep_on);
    RUN(policy_looks_when_the_bell_rings_for_something_else);
    RUN(it_looks_once_more_before_it_sleeps);
    RUN(an_ack_behind_the_last_look_is_not_slept_through);
    RUN(naps_are_not_the_end);
    RUN(a_forked_child_is_told_nothing_of_its_parents_board);
    hf_map_detach(board);
    hf_map_detach(bells);
    close(domain);
    return 0;
}
