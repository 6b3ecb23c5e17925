/* test_wait.c: bells, the sleeper's barrier, and the steps of a wait. */
#include "base/failpoint.h"
#include "board_kit.h"

#include <sched.h>

static void bell_rung_between_read_and_wait_is_not_slept_through(void)
{
    fresh();
    uint32_t bell = (uint32_t)hf_bell_claim(bells, domain);
    uint32_t seen = hf_bell_read(bells, bell);
    CHECK_EQ(hf_bell_wait(bells, bell, seen, 1000), 0);
    CHECK_EQ(hf_bell_wait(bells, bell, seen, 0), 0);
    hf_bell_ring(bells, bell);
    CHECK_EQ(hf_bell_wait(bells, bell, seen, INT64_MAX), 1);
    CHECK_EQ(hf_bell_wait(bells, bell, seen, 0), 1);
    CHECK_EQ(hf_bell_wait(bells, bell, seen, -5), 1);
}

static void bell_out_of_range_is_ignored(void)
{
    fresh();
    hf_bell_ring(bells, HF_BELLS);
    hf_bell_ring(bells, UINT32_MAX);
    CHECK_EQ(hf_bell_read(bells, HF_BELLS), 0);
    CHECK_EQ(hf_bell_wait(bells, HF_BELLS, 0, INT64_MAX), 0);
}

static void ring_when_it_sleeps(void *argument)
{
    attach_here();
    uint32_t bell = *(uint32_t *)argument;
    for (int i = 0; i < 3; i++) {
        hf_bell_ring(bells, bell);
    }
}

static void another_process_rings(void)
{
    fresh();
    uint32_t bell = (uint32_t)hf_bell_claim(bells, domain);
    uint32_t seen = hf_bell_read(bells, bell);
    pid_t pid = check_fork(ring_when_it_sleeps, &bell);
    while (hf_bell_wait(bells, bell, seen, INT64_MAX) == 0) {
        sched_yield();
    }
    check_exited(pid);
    CHECK_EQ(hf_bell_read(bells, bell), seen + 3);
}

enum { THREADS = 16 };
static uint32_t go;

static void *claim_bell(void *argument)
{
    while (hf_load_acquire_u32(&go) == 0) {
        hf_cpu_relax();
    }
    *(int64_t *)argument = hf_bell_claim(bells, domain);
    return NULL;
}

static void claim_bell_as_a_child(void *argument)
{
    attach_here();
    *(int64_t *)argument = hf_bell_claim(bells, domain);
    CHECK_EQ(hf_bell_claim(bells, domain), *(int64_t *)argument);
}

static void process_has_one_bell_whichever_thread_asks(void)
{
    fresh();
    go = 0;
    pthread_t threads[THREADS];
    int64_t got[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, claim_bell, &got[i]), 0);
    }
    hf_failpoint_arm("bell.scanned=delay"); /* all of them could have looked before the first one takes a bell */
    hf_store_release_u32(&go, 1);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(got[i], 0);
    }
    hf_failpoint_arm("");
    int64_t *theirs = check_shared(sizeof(*theirs));
    check_exited(check_fork(claim_bell_as_a_child, theirs));
    CHECK_EQ(*theirs, 1);
    munmap(theirs, sizeof(*theirs));
}

static void tell_token(void *argument)
{
    CHECK_EQ(hf_process_join(domain), HF_OK);
    *(uint64_t *)argument = hf_process_token();
}

static void bell_of_a_dead_process_is_reused_when_none_is_left(void)
{
    fresh();
    uint64_t *dead = check_shared(sizeof(*dead));
    check_exited(check_fork(tell_token, dead));
    struct hf_bells *table = (struct hf_bells *)bells->base;
    for (uint64_t i = 0; i < HF_BELLS; i++) {
        table->bells[i].owner = UINT64_C(0x5a5a5a0000000000) | (i + 1); /* nobody knows them: neither alive nor dead */
    }
    CHECK_EQ(hf_bell_claim(bells, domain), HF_FULL);
    table->bells[300].owner = *dead | 1;
    CHECK_EQ(hf_bell_claim(bells, domain), 300);
    CHECK_EQ(hf_bell_claim(bells, domain), 300);
    munmap(dead, sizeof(*dead));
}

static void bells_of_the_dead_are_taken_from_them(void)
{
    fresh();
    uint64_t *dead = check_shared(sizeof(*dead));
    check_exited(check_fork(tell_token, dead));
    struct hf_bells *table = (struct hf_bells *)bells->base;
    int64_t mine = hf_bell_claim(bells, domain);
    uint64_t own = table->bells[mine].owner, unknown = UINT64_C(0x5a5a5a0000000001);
    table->bells[300].owner = *dead | 1;
    table->bells[301].owner = unknown; /* neither alive nor dead */
    CHECK_EQ(hf_bell_bury(bells, domain), 1);
    CHECK_EQ(table->bells[300].owner, 0);
    CHECK_EQ(table->bells[301].owner, unknown);
    CHECK_EQ(table->bells[mine].owner, own);
    CHECK_EQ(hf_bell_bury(bells, domain), 0);
    munmap(dead, sizeof(*dead));
}

static void register_as_a_child(void *argument)
{
    (void)argument;
    CHECK_EQ(hf_wait_registered(), 0); /* whatever the parent did */
    hf_failpoint_arm("wait.register=errno:EPERM");
    CHECK_EQ(hf_wait_setup(), 0);
    CHECK_EQ(hf_wait_registered(), 0);
    hf_failpoint_arm("");
    CHECK_EQ(hf_wait_setup(), hf_wait_registered());
}

static void waker_registers_once_and_again_after_fork(void)
{
    int works = hf_wait_setup();
    printf("    (membarrier %s here)\n", works ? "works" : "does not work");
    CHECK_EQ(hf_wait_registered(), works);
    CHECK_EQ(hf_wait_setup(), works);
    check_exited(check_fork(register_as_a_child, NULL));
    CHECK_EQ(hf_wait_registered(), works);
}

static void sleeper_without_membarrier_only_naps(void)
{
    fresh();
    struct hf_identity who = {.role = HF_ROLE_RECEIVER};
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), 0);
    hf_failpoint_arm("wait.barrier=errno:ENOSYS");
    CHECK_EQ(hf_line_sleeps(board, 0, 1), HF_WAIT_NAP_NS);
    CHECK_EQ(hf_board_source_waits(board, 0), HF_WAIT_NAP_NS);
    hf_failpoint_arm("");
    int64_t longest = hf_wait_setup() ? HF_WAIT_MAX_NS : HF_WAIT_NAP_NS;
    CHECK_EQ(hf_line_sleeps(board, 0, 1), longest);
    CHECK_EQ(hf_line_sleeps(board, 0, 0), 0);
    CHECK_EQ(hf_board_source_waits(board, 0), longest);
}

static void a_wait_of_50_ms_ends_at_a_tick_and_a_shorter_one_in_its_time(void)
{
    int64_t tick = HF_WAIT_MAX_NS, day = 86400 * INT64_C(1000000000);
    int64_t now = day + 30000000;
    CHECK_EQ(hf_wait_end(now, -1, tick), now);
    CHECK_EQ(hf_wait_end(now, tick - 1, tick), now + tick - 1);
    CHECK_EQ(hf_wait_end(now, tick, tick), day + tick);
    CHECK_EQ(hf_wait_end(now, INT64_MAX, tick), day + tick);
    CHECK_EQ(hf_wait_end(day, tick, tick), day + tick); /* on a tick: the next one, not at once */
    CHECK_EQ(hf_wait_end(now, 4 * tick, HF_BELL_MAX_NS), day + 4 * tick);
    CHECK_EQ(hf_wait_end(now, INT64_MIN, HF_BELL_MAX_NS), now);
}

/* The steps of one wait until it ends or says sleep; how many rounds it took. */
static int walk(int strategy, int64_t timeout_ns, int *rounds)
{
    struct hf_waiter w;
    hf_waiter_start(&w, strategy, timeout_ns);
    CHECK(hf_waiter_left(&w) <= HF_WAIT_MAX_NS);
    if (timeout_ns == INT64_MAX) { /* the next tick may be now */
        w.deadline_ns = INT64_MAX;
    }
    int step = 0;
    for (*rounds = 0; step == 0; ++*rounds) {
        step = hf_waiter_pause(&w);
    }
    if (step < 0) {
        CHECK_EQ(hf_waiter_left(&w), 0);
    }
    return step;
}

static void each_strategy_waits_in_its_own_way(void)
{
    int rounds;
    do { /* the time may be over before it looks for the first time */
        CHECK_EQ(walk(HF_WAIT_BUSY_SPIN, 3000000, &rounds), -1);
    } while (rounds == 1);
    CHECK_EQ(walk(HF_WAIT_YIELD, 3000000, &rounds), -1);
    CHECK_EQ(walk(HF_WAIT_BLOCK, INT64_MAX, &rounds), 1);
    CHECK_EQ(rounds, 1);
    for (int strategy = HF_WAIT_BUSY_SPIN; strategy <= HF_WAIT_BLOCK; strategy++) {
        CHECK_EQ(walk(strategy, 0, &rounds), -1);
        CHECK_EQ(rounds, 1);
        CHECK_EQ(walk(strategy, INT64_MIN, &rounds), -1);
    }
}

static void backoff_spins_then_yields_then_keeps_sleeping(void)
{
    struct hf_waiter w;
    hf_waiter_start(&w, HF_WAIT_BACKOFF, INT64_MAX);
    w.deadline_ns = INT64_MAX; /* the machine may be busy */
    int rounds = 0;
    while (hf_waiter_pause(&w) == 0) {
        rounds++;
    }
    CHECK(rounds >= HF_WAIT_YIELDS);
    CHECK_EQ(w.yields, HF_WAIT_YIELDS);
    CHECK(hf_now_ns() >= w.spin_until_ns);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(hf_waiter_pause(&w), 1);
    }
    w.deadline_ns = 0;
    CHECK_EQ(hf_waiter_pause(&w), -1);
}

/* A source commits numbers, one only after the last was acked; a receiver sleeps for each. As in stream.c, with a word
 * for a ring: nobody may get stuck, whatever the strategies, with and without membarrier. */
enum { MESSAGES = 2000 };
struct pair {
    uint64_t committed;
    uint32_t late; /* sleeps that ended by themselves although what they waited for had come */
    int receiver_strategy;
    int source_strategy;
};

static void receive_all(void *argument)
{
    struct pair *pair = argument;
    attach_here();
    uint32_t bell = (uint32_t)hf_bell_claim(bells, domain);
    (void)hf_wait_setup();
    struct hf_identity who = {.role = HF_ROLE_RECEIVER, .bell = bell};
    int64_t index;
    do {
        index = hf_board_claim(board, domain, &who, NULL);
    } while (index == HF_AGAIN);
    CHECK(index >= 0);
    for (uint64_t next = 1; next <= MESSAGES;) {
        struct hf_waiter w;
        hf_waiter_start(&w, pair->receiver_strategy, INT64_MAX);
        while (hf_load_acquire_u64(&pair->committed) < next) {
            int step = hf_waiter_pause(&w);
            if (step < 0) {
                break;
            }
            if (step > 0) {
                uint32_t seen = hf_bell_read(bells, bell);
                int64_t nap = hf_line_sleeps(board, index, 1);
                if (hf_load_acquire_u64(&pair->committed) < next && hf_bell_wait(bells, bell, seen, nap) == 0 &&
                    hf_load_acquire_u64(&pair->committed) >= next) {
                    (void)hf_add_u32(&pair->late, 1);
                }
                hf_line_sleeps(board, index, 0);
            }
        }
        if (hf_load_acquire_u64(&pair->committed) >= next) {
            hf_board_ack(board, bells, index, next, next);
            next++;
        }
    }
}

static void await_ack(struct pair *pair, uint32_t bell, uint64_t number)
{
    const uint64_t *ack = &((struct hf_board *)board->base)->lines[0].ack;
    for (;;) {
        uint64_t glance = hf_board_glance(board);
        uint32_t rung = hf_bell_read(bells, bell);
        if (hf_load_acquire_u64(ack) >= number) {
            return;
        }
        if (hf_board_wait(board, bells, bell, glance, rung, pair->source_strategy, INT64_MAX) == 0 &&
            hf_load_acquire_u64(ack) >= number) {
            (void)hf_add_u32(&pair->late, 1);
        }
    }
}

static void exchange(int source_strategy, int receiver_strategy, const char *receiver_failpoints)
{
    fresh();
    struct pair *pair = check_shared(sizeof(*pair));
    pair->source_strategy = source_strategy;
    pair->receiver_strategy = receiver_strategy;
    uint32_t bell = (uint32_t)hf_bell_claim(bells, domain);
    int fenced = !hf_wait_setup();
    hf_failpoint_arm(receiver_failpoints); /* inherited */
    pid_t pid = check_fork(receive_all, pair);
    hf_failpoint_arm("");
    for (uint64_t number = 1; number <= MESSAGES; number++) {
        hf_store_release_u64(&pair->committed, number);
        if (fenced) {
            hf_fence_seq_cst();
        } else {
            hf_compiler_barrier();
        }
        if (hf_load_relaxed_u32(&((struct hf_board *)board->base)->sleepers) != 0) {
            hf_board_wake_slow(board, bells);
        }
        await_ack(pair, bell, number);
        /* A busy machine makes a wake late now and then; lost ones come in thousands. */
        CHECK(hf_load_relaxed_u32(&pair->late) < 100);
    }
    check_exited(pid);
    printf("    (%u late wakes of %d)\n", pair->late, MESSAGES);
    munmap(pair, sizeof(*pair));
}

static void sleeping_source_and_sleeping_receiver_wake_each_other(void)
{
    exchange(HF_WAIT_BLOCK, HF_WAIT_BLOCK, "");
}

static void backing_off_source_and_receiver_wake_each_other(void)
{
    exchange(HF_WAIT_BACKOFF, HF_WAIT_BACKOFF, "");
}

static void processes_without_membarrier_wake_each_other(void)
{
    exchange(HF_WAIT_YIELD, HF_WAIT_BLOCK, "wait.barrier=errno:ENOSYS;wait.register=errno:EPERM");
}

/* What ends a wait for the board, done by another thread while it lasts. */
struct mover {
    pthread_t thread;
    void (*move)(void);
    int asleep; /* the source is about to sleep first */
};

static struct hf_board_line *line(void)
{
    return hf_board_line_at(board, 0);
}

static void acks(void)
{
    hf_board_ack(board, bells, 0, line()->ack + 1, 0);
}

static void lets_go_of_its_view(void)
{
    hf_store_release_u64(&line()->pin, UINT64_MAX);
}

static void changes_hands(void)
{
    hf_store_release_u64(&line()->owner, 0);
}

static void rings(void)
{
    hf_bell_ring(bells, 0);
}

static void *move_it(void *argument)
{
    const struct mover *m = argument;
    while (m->asleep && hf_load_acquire_u32(&((struct hf_board *)board->base)->source_waiting) == 0) {
        sched_yield();
    }
    m->move();
    return NULL;
}

static void a_source_waits_by_strategy_for_whatever_moves_on_its_board(void)
{
    void (*const moves[])(void) = {acks, lets_go_of_its_view, changes_hands, rings};
    for (int strategy = HF_WAIT_BUSY_SPIN; strategy <= HF_WAIT_BLOCK; strategy++) {
        for (size_t i = 0; i < sizeof(moves) / sizeof(*moves); i++) {
            fresh();
            struct hf_identity who = {.role = HF_ROLE_RECEIVER};
            CHECK_EQ(hf_bell_claim(bells, domain), 0);
            CHECK_EQ(hf_board_claim(board, domain, &who, NULL), 0);
            hf_store_relaxed_u64(&line()->pin, 4096);
            uint64_t glance = hf_board_glance(board);
            uint32_t rung = hf_bell_read(bells, 0);
            CHECK_EQ(hf_board_wait(board, bells, 0, glance, rung, strategy, 1000), 0); /* nothing moves */
            hf_store_relaxed_u32(&((struct hf_board *)board->base)->source_waiting, 0);
            struct mover m = {.move = moves[i], .asleep = strategy == HF_WAIT_BLOCK};
            CHECK_EQ(pthread_create(&m.thread, NULL, move_it, &m), 0);
            while (hf_board_wait(board, bells, 0, glance, rung, strategy, INT64_MAX) == 0) {
                /* who lets go of a view or a line rings no bell: the next wait sees it */
            }
            CHECK_EQ(pthread_join(m.thread, NULL), 0);
            CHECK_EQ(hf_board_glance(board) == glance, moves[i] == rings);
            CHECK_EQ(hf_board_wait(board, bells, 0, glance, rung, HF_WAIT_BLOCK, INT64_MAX), 1); /* came before it */
        }
    }
    CHECK_EQ(hf_board_glance(bells), 0);
}

static void acks_and_rings_nothing(void)
{
    hf_board_ack(board, NULL, 0, line()->ack + 1, 0);
}

/* The ack comes between the flag and the sleep, and only what the source looks at last can tell it. */
static void a_source_looks_once_more_before_it_sleeps(void)
{
    fresh();
    struct hf_identity who = {.role = HF_ROLE_RECEIVER};
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), 0);
    uint32_t bell = (uint32_t)hf_bell_claim(bells, domain), rung = hf_bell_read(bells, bell);
    int64_t seen = 0;
    hf_failpoint_arm("wait.barrier=delay");
    while (seen == 0) { /* the other thread may come too late */
        hf_store_relaxed_u32(&((struct hf_board *)board->base)->source_waiting, 0);
        struct mover m = {.move = acks_and_rings_nothing, .asleep = 1};
        CHECK_EQ(pthread_create(&m.thread, NULL, move_it, &m), 0);
        seen = hf_board_wait(board, bells, bell, hf_board_glance(board), rung, HF_WAIT_BLOCK, INT64_MAX);
        CHECK_EQ(pthread_join(m.thread, NULL), 0);
    }
    hf_failpoint_arm("");
    CHECK_EQ(seen, 1);
}

static void a_source_that_backs_off_sleeps_only_when_a_batch_would_be_through(void)
{
    fresh();
    uint32_t bell = (uint32_t)hf_bell_claim(bells, domain), rung = hf_bell_read(bells, bell);
    uint64_t glance = hf_board_glance(board);
    const uint32_t *waiting = &((struct hf_board *)board->base)->source_waiting;
    CHECK_EQ(hf_board_wait(board, bells, bell, glance, rung, HF_WAIT_BACKOFF, HF_WAIT_ACK_NS), 0);
    CHECK_EQ(hf_load_relaxed_u32(waiting), 0);
    while (hf_load_relaxed_u32(waiting) == 0) { /* a tick may end a wait before it sleeps */
        CHECK_EQ(hf_board_wait(board, bells, bell, glance, rung, HF_WAIT_BACKOFF, INT64_MAX), 0);
    }
}

static void wait_as_a_child(void *argument)
{
    (void)argument;
    CHECK_EQ(hf_board_wait(board, bells, 0, hf_board_glance(board), 0, HF_WAIT_BUSY_SPIN, INT64_MAX), HF_FORKED);
}

static void a_forked_child_does_not_wait_for_its_parents_board(void)
{
    fresh();
    check_exited(check_fork(wait_as_a_child, NULL));
}

int main(void)
{
    domain = check_directory();
    RUN(bell_rung_between_read_and_wait_is_not_slept_through);
    RUN(bell_out_of_range_is_ignored);
    RUN(another_process_rings);
    RUN(process_has_one_bell_whichever_thread_asks);
    RUN(bell_of_a_dead_process_is_reused_when_none_is_left);
    RUN(bells_of_the_dead_are_taken_from_them);
    RUN(waker_registers_once_and_again_after_fork);
    RUN(sleeper_without_membarrier_only_naps);
    RUN(a_wait_of_50_ms_ends_at_a_tick_and_a_shorter_one_in_its_time);
    RUN(each_strategy_waits_in_its_own_way);
    RUN(backoff_spins_then_yields_then_keeps_sleeping);
    RUN(sleeping_source_and_sleeping_receiver_wake_each_other);
    RUN(backing_off_source_and_receiver_wake_each_other);
    RUN(processes_without_membarrier_wake_each_other);
    RUN(a_source_waits_by_strategy_for_whatever_moves_on_its_board);
    RUN(a_source_looks_once_more_before_it_sleeps);
    RUN(a_source_that_backs_off_sleeps_only_when_a_batch_would_be_through);
    RUN(a_forked_child_does_not_wait_for_its_parents_board);
    hf_map_detach(board);
    hf_map_detach(bells);
    return 0;
}
