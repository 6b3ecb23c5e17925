/* wait.h: how to wait, nothing else. The ring never knows whether its reader spins or sleeps.
 *
 * The sleeper pays (DESIGN 10): it sets its flag, issues membarrier(GLOBAL_EXPEDITED), looks again, and only then sleeps on its
 * process's bell, 50 ms at most. The waker needs a compiler barrier, one load, and a system call only if somebody sleeps. Where
 * the waker could not register for membarrier it says so (hf_stream_header.fenced) and fences itself; where the sleeper cannot
 * issue it, it naps for at most 1 ms instead. */
#ifndef HF_WAIT_H
#define HF_WAIT_H
#include "board.h"

/* cffi: begin */
enum hf_wait { HF_WAIT_BUSY_SPIN = 0, HF_WAIT_YIELD = 1, HF_WAIT_BACKOFF = 2, HF_WAIT_BLOCK = 3 };
int hf_wait_setup(void); /* registers this process as a waker; 1 membarrier works, 0 it does not (wakers must fence) */
/* The source waits for acks: sets board.source_waiting, barrier; the caller looks again, then hf_bell_wait, then 0 to clear. */
void hf_board_source_waits(struct hf_map *board, uint32_t bell, int waiting);
/* The owner of a line is about to sleep (1) or is awake again (0): sets `sleeping` and `sleepers`, then the barrier. The caller
 * looks at its stream again before hf_bell_wait. For a thread that waits for several streams. */
void hf_line_sleeps(struct hf_map *board, int64_t index, int sleeping);
/* cffi: end */

struct hf_waiter { /* private state of one wait: spin -> yield -> sleep, by strategy */
    int strategy;
    int64_t deadline_ns; /* CLOCK_MONOTONIC */
    uint32_t rounds;
};
#endif
