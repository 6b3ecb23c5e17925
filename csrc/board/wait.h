/* wait.h: how to wait, nothing else. The ring never knows whether its reader spins or sleeps.
 *
 * The sleeper pays (docs/design.md 10): it sets its flag, issues membarrier(GLOBAL_EXPEDITED), looks again, and only then sleeps
 * on its process's bell, 50 ms at most. The waker needs a compiler barrier, one load, and a system call only if somebody sleeps.
 * Where the waker could not register for membarrier it says so (hf_stream_header.fenced) and fences itself; where the sleeper
 * cannot issue it, it naps for at most 1 ms instead.
 *
 * Who sleeps for nothing costs little. A sleep that ends by itself goes on as it was, with no new barrier: the flag is still
 * set and the bell has not rung, so it is one long sleep, in which the sleeper looked up. And long waits end at ticks (clock.h). */
#ifndef HF_BOARD_WAIT_H
#define HF_BOARD_WAIT_H
#include "board/board.h"

/* cffi: begin */
enum hf_wait { HF_WAIT_BUSY_SPIN = 0, HF_WAIT_YIELD = 1, HF_WAIT_BACKOFF = 2, HF_WAIT_BLOCK = 3 };
/* Both: a waiter says that it is about to sleep. The caller looks again before hf_bell_wait, and sleeps no longer than the result,
 * in ns: 50 ms, or 1 ms where membarrier does not work. 0 where nothing was set.
 *
 * The source waits for acks: sets board.source_waiting, then the barrier. Only hf_board_ack clears it, by its exchange: a waiter
 * that cleared it would take the wake-up of another thread of the source. */
int64_t hf_board_source_waits(struct hf_map *board, uint32_t bell);
/* The owner of a line: sets `sleeping` and `sleepers`, then the barrier; sleeping = 0: it is awake again, result 0. For a thread that waits for one or several streams. */
int64_t hf_line_sleeps(struct hf_map *board, int64_t index, int sleeping);
/* A figure made of every participant's owner, ack and pin: another one means that somebody moved. 0: not a board, or a
 * forked child. */
uint64_t hf_board_glance(const struct hf_map *board);
/* The source waits, by strategy, until the board is not as at that `glance` any more, its bell is not at `rung` any more, or the
 * time is over (50 ms at most). A caller that takes both, looks, and then waits misses nothing. It sleeps once, and acks and
 * the bell wake it; what else moves it sees when it looks again. 1 moved or rung; 0 the time or the sleep is over; HF_FORKED. */
int64_t hf_board_wait(struct hf_map *board, struct hf_map *bells, uint32_t bell, uint64_t glance, uint32_t rung, int strategy,
                      int64_t timeout_ns);
/* cffi: end */

enum {
    HF_WAIT_NAP_NS = 1000000,     /* of one sleep without membarrier: what a lost wake costs */
    HF_WAIT_SPIN_NS = 20000,      /* backoff spins this long: a futex wake costs about as much */
    HF_SOON_MAX_NS = 5000,        /* of a wait that keeps the GIL */
    HF_WAIT_SPIN_ROUNDS = 256,    /* rounds between two looks at the clock */
    HF_WAIT_YIELDS = 4,           /* backoff then yields so often, for a peer that shares the core */
    HF_WAIT_ACK_NS = 100000       /* a source that backs off yields so long: a store's batch takes 30 to 100 us */
};

/* One wait, by strategy. busy_spin and yield never sleep; backoff spins, yields, then sleeps; block sleeps at once.
 *
 *     hf_waiter_start(&w, strategy, timeout_ns);
 *     while (!ready()) {
 *         int step = hf_waiter_pause(&w);
 *         if (step < 0) break;
 *         if (step > 0) {
 *             uint32_t seen = hf_bell_read(bells, bell);
 *             int64_t nap = hf_line_sleeps(board, index, 1);
 *             if (!ready()) hf_bell_wait(bells, bell, seen, min(nap, hf_waiter_left(&w)));
 *             hf_line_sleeps(board, index, 0);
 *         }
 *     }
 */
struct hf_waiter { /* private to the waiting thread */
    int strategy;
    uint32_t rounds;
    uint32_t yields;
    int64_t spin_until_ns; /* CLOCK_MONOTONIC, like deadline_ns */
    int64_t yield_until_ns;
    int64_t deadline_ns;
};

void hf_waiter_start(struct hf_waiter *w, int strategy, int64_t timeout_ns); /* hf_wait_end, HF_WAIT_MAX_NS the longest */
int hf_waiter_pause(struct hf_waiter *w);                /* 0 look again, 1 sleep on the bell now, -1 the deadline passed */
int64_t hf_waiter_left(const struct hf_waiter *w);       /* ns until the deadline, >= 0 */
#endif
