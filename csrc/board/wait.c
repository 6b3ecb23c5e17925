/* wait.c: the barrier that lets wakers go without one, and the steps of a wait. See wait.h. */
#include "board/wait.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/status.h"
#include "board/bell.h"

/* Between "I sleep" and the last look. Every registered waker that runs now passes a full barrier during this call:
 * either its commit came before and the last look sees it, or the flag is visible when it looks for sleepers. Without
 * membarrier, our own fence is enough against wakers that fence too; nobody tells us whether they do, hence the nap.
 * Returns the longest sleep. */
static int64_t sleeper_barrier(void)
{
    if (HF_FAIL_STATUS("wait.barrier") == 0 && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0) {
        return HF_WAIT_MAX_NS;
    }
    hf_fence_seq_cst();
    return HF_WAIT_NAP_NS;
}

int64_t hf_board_source_waits(struct hf_map *map, uint32_t bell)
{
    if (hf_process_forked(map->token)) {
        return 0;
    }
    struct hf_board *board = (struct hf_board *)map->base;
    hf_store_relaxed_u32(&board->source_bell, bell);
    hf_store_release_u32(&board->source_waiting, 1); /* pairs with hf_board_ack: its exchange, then source_bell */
    return sleeper_barrier();
}

int64_t hf_line_sleeps(struct hf_map *map, int64_t index, int sleeping)
{
    struct hf_board_line *line = hf_board_line_at(map, index);
    if (line == NULL) {
        return 0;
    }
    if (!sleeping) {
        hf_store_relaxed_u32(&line->sleeping, 0);
        return 0;
    }
    hf_store_relaxed_u32(&line->sleeping, 1);
    /* An exchange, not a store: several sleepers then form one release sequence, and the waker's exchange, which reads
     * the last of them, sees the `sleeping` of all. Pairs with hf_board_wake_slow: sleepers. */
    (void)hf_exchange_u32(&((struct hf_board *)map->base)->sleepers, 1);
    return sleeper_barrier();
}

void hf_waiter_start(struct hf_waiter *w, int strategy, int64_t timeout_ns)
{
    int64_t now = hf_clock_read();
    w->strategy = strategy;
    w->rounds = 0;
    w->yields = 0;
    w->spin_until_ns = w->yield_until_ns = now + HF_WAIT_SPIN_NS;
    w->deadline_ns = hf_wait_end(now, timeout_ns, HF_WAIT_MAX_NS);
}

int64_t hf_waiter_left(const struct hf_waiter *w)
{
    int64_t left = w->deadline_ns - hf_clock_read();
    return left > 0 ? left : 0;
}

/* Spins for spin_until_ns, then yields, then says sleep, and keeps saying it: who was woken for nothing sleeps on. */
static int backoff(struct hf_waiter *w, int64_t now)
{
    if (now < w->spin_until_ns) {
        hf_cpu_relax();
        return 0;
    }
    if (w->yields < HF_WAIT_YIELDS || now < w->yield_until_ns) {
        w->yields++;
        sched_yield();
        return 0;
    }
    return 1;
}

int hf_waiter_pause(struct hf_waiter *w)
{
    if (w->strategy == HF_WAIT_BUSY_SPIN) {
        hf_cpu_relax();
        /* The first round looks at the clock, so that a timeout of 0 does not spin. */
        return w->rounds++ % HF_WAIT_SPIN_ROUNDS == 0 && hf_clock_read() >= w->deadline_ns ? -1 : 0;
    }
    int64_t now =
        hf_clock_read(); /* tens of ns, no system call: fine beside a yield, and it paces the spin of backoff */
    if (now >= w->deadline_ns) {
        return -1;
    }
    switch (w->strategy) {
    case HF_WAIT_YIELD:
        sched_yield();
        return 0;
    case HF_WAIT_BLOCK:
        return 1;
    default:
        return backoff(w, now);
    }
}

/* Odd factors: a line whose words move by turns does not look as it did. Two lines that change places do, and leave the source's
 * room as it was. By a chance of 2^-64 something else does, too: that wait ends late. */
uint64_t hf_board_glance(const struct hf_map *map)
{
    if (hf_process_forked(map->token) || map->kind != HF_KIND_BOARD) {
        return 0;
    }
    const struct hf_board *board = (const struct hf_board *)(const void *)map->base;
    uint64_t sum = 0;
    for (int i = 0; i < HF_BOARD_LINES; i++) {
        const struct hf_board_line *line = &board->lines[i];
        sum += hf_load_relaxed_u64(&line->ack) * UINT64_C(0x9e3779b97f4a7c15);
        sum += hf_load_relaxed_u64(&line->pin) * UINT64_C(0xc2b2ae3d27d4eb4f);
        sum += hf_load_relaxed_u64(&line->owner) * UINT64_C(0x165667b19e3779f9);
    }
    return sum;
}

static int moved(const struct hf_map *board, const struct hf_map *bells, uint32_t bell, uint64_t glance, uint32_t rung)
{
    return hf_board_glance(board) != glance || hf_bell_read(bells, bell) != rung;
}

int64_t hf_board_wait(struct hf_map *board, struct hf_map *bells, uint32_t bell, uint64_t glance, uint32_t rung,
                      int strategy, int64_t timeout_ns)
{
    HF_ENTER(board);
    struct hf_waiter w;
    hf_waiter_start(&w, strategy, timeout_ns);
    w.yield_until_ns = w.spin_until_ns + HF_WAIT_ACK_NS;
    while (!moved(board, bells, bell, glance, rung)) {
        int step = hf_waiter_pause(&w);
        if (step < 0) {
            return 0;
        }
        if (step > 0) {
            int64_t nap = hf_board_source_waits(board, bell);
            int64_t left = hf_waiter_left(&w);
            if (!moved(board, bells, bell, glance, rung)) {
                return hf_bell_wait(bells, bell, rung, nap < left ? nap : left);
            }
        }
    }
    return 1;
}
