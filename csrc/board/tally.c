/* tally.c: the order statistic over the stores' lines, and the wait for it. See tally.h. */
#include "board/tally.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/status.h"
#include "board/bell.h"
#include "board/wait.h"

/* The numbers that somebody waits for. */
struct wanted {
    struct hf_tally *tally;
    const struct hf_map *board;
    uint64_t first, last;
};

void hf_tally_end(struct hf_tally *t)
{
    hf_store_release_u32(&t->ended, 1); /* pairs with agreed */
}

/* One load decides for a line that has not got there, which is what nearly every look finds. */
static int has(const struct wanted *w, uint32_t i)
{
    uint32_t index = w->tally->index[i];
    const struct hf_board *board = (const struct hf_board *)(const void *)w->board->base;
    struct hf_board_line line;
    if (index >= HF_BOARD_LINES || hf_load_relaxed_u64(&board->lines[index].ack) <= w->last ||
        hf_board_copy(w->board, index, &line) != 1) {
        return 0;
    }
    return line.owner == w->tally->owner[i] && line.ack_stream == w->tally->incarnation && line.from_sqn <= w->first &&
           w->last < line.to_sqn && w->last < line.ack;
}

/* Bit i: line i of the tally has all of them. */
static uint64_t holders(const struct wanted *w)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < w->tally->lines; i++) {
        found |= (uint64_t)has(w, i) << i;
    }
    return found;
}

/* Do these make a number stable? No, if the tally has ended by now. */
static int agreed(const struct hf_tally *t, uint64_t holding)
{
    uint32_t failed = 0;
    for (uint32_t i = 0; i < t->rules; i++) {
        const struct hf_tally_rule *rule = &t->rule[i];
        if ((uint32_t)__builtin_popcountll(holding & rule->lines) < rule->needed) {
            failed |= UINT32_C(1) << rule->group;
        }
    }
    uint32_t agree = t->groups - (uint32_t)__builtin_popcount(failed);
    return agree >= t->needed && hf_load_acquire_u32(&t->ended) == 0; /* behind the lines; pairs with hf_tally_end */
}

int64_t hf_tally_soon(struct hf_tally *t, const struct hf_map *board, uint64_t first, uint64_t last)
{
    HF_ENTER(board);
    if (board->kind != HF_KIND_BOARD) {
        return HF_USAGE;
    }
    struct wanted w = {t, board, first, last};
    int stable = agreed(t, holders(&w));
    if (!stable && hf_load_relaxed_u32(&t->at_once) != 0) {
        int64_t end_ns = hf_clock_read() + HF_SOON_MAX_NS;
        do {
            hf_cpu_relax();
            stable = agreed(t, holders(&w));
        } while (!stable && hf_clock_read() < end_ns);
        hf_store_relaxed_u32(&t->at_once, (uint32_t)stable);
    }
    return stable;
}

/* What a waiter saw in the round before. */
struct seen {
    uint64_t holding;
    uint32_t rung;
};

/* A round, with at most one sleep. 1 stable; 0 policy has to look; HF_AGAIN.
 *
 * No wake-up is lost: the bell is read, then the flag is set, then the lines are looked at. An ack that this look does not see finds the
 * flag, and rings (wait.c: sleeper_barrier); the bell is then not as it was read, and hf_bell_wait does not sleep. */
static int64_t go_round(const struct wanted *w, struct hf_map *board, struct hf_map *bells, uint32_t bell,
                        struct hf_waiter *waiter, struct seen *seen)
{
    uint32_t rung = hf_bell_read(bells, bell);
    uint64_t holding = holders(w);
    if (agreed(w->tally, holding)) {
        return 1;
    }
    if (hf_load_acquire_u32(&w->tally->ended) != 0 || (rung != seen->rung && holding == seen->holding)) {
        return 0;
    }
    *seen = (struct seen){holding, rung};
    int pause = hf_waiter_pause(waiter);
    if (pause > 0) {
        int64_t nap = hf_board_source_waits(board, bell);
        int64_t left = hf_waiter_left(waiter);
        if (!agreed(w->tally, holders(w))) {
            HF_FAIL("tally.looked");
            hf_bell_wait(bells, bell, rung, nap < left ? nap : left);
        }
    }
    return pause < 0 ? 0 : HF_AGAIN;
}

int64_t hf_tally_wait(struct hf_tally *t, struct hf_map *board, struct hf_map *bells, uint32_t bell, uint64_t first,
                      uint64_t last, int strategy, int64_t timeout_ns)
{
    HF_ENTER(board);
    if (board->kind != HF_KIND_BOARD) {
        return HF_USAGE;
    }
    struct wanted w = {t, board, first, last};
    struct seen seen = {0, hf_bell_read(bells, bell)};
    struct hf_waiter waiter;
    int64_t status;
    hf_waiter_start(&waiter, strategy, timeout_ns);
    int64_t soon_ns = waiter.spin_until_ns - HF_WAIT_SPIN_NS + HF_SOON_MAX_NS;
    waiter.yield_until_ns = waiter.spin_until_ns + HF_WAIT_ACK_NS;
    do {
        status = go_round(&w, board, bells, bell, &waiter, &seen);
    } while (status == HF_AGAIN);
    hf_store_relaxed_u32(&t->at_once, status == 1 && hf_clock_read() < soon_ns);
    return status;
}
