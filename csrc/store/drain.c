/* drain.c: a store's inner loop. See drain.h.
 *
 * One block per item and round, so that a busy source cannot starve the others. An item that fails keeps its reader
 * before the block that failed: the caller mends what is wrong, sets the status back to HF_OK, and nothing is
 * missing. */
#include "store/drain.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/status.h"
#include "board/bell.h"
#include "board/wait.h"

#include <string.h>

#define BUSY_ROUNDS 64 /* between two looks at the clock while blocks keep coming */

/* Appends a staged block, in a new segment if it must be. */
static int64_t append(struct hf_drain_item *item, uint8_t *block, uint64_t bytes)
{
    int64_t status = hf_log_append(item->log, block, bytes);
    if (status == HF_ROLL) {
        status = hf_log_roll(item->log);
        if (status == HF_OK) {
            item->rolls++;
            status = hf_log_append(item->log, block, bytes);
        }
    }
    return status;
}

/* How far the line may be moved when the log has everything below `next`. */
static uint64_t allowed(const struct hf_drain_item *item, uint64_t next)
{
    return item->paced && item->ack_sqn < next ? item->ack_sqn : next;
}

/* Counts a block that was appended. */
static void pace(struct hf_drain_item *item, const uint8_t *block, uint64_t bytes)
{
    struct hf_frame f;
    for (uint64_t at = 0; at < bytes; at += ((uint64_t)(uint32_t)f.commit + HF_GRANULE - 1) / HF_GRANULE * HF_GRANULE) {
        memcpy(&f, block + at, sizeof f);
        item->payload += (uint32_t)f.commit - sizeof f;
        if (!(f.flags & HF_FRAME_LAST)) {
            continue;
        }
        if (item->payload <= item->ack_payload) {
            item->ack_sqn = f.sequence_number + 1;
        }
        if (item->payload - item->sampled >= item->sample_bytes && item->sample_count < item->samples_max) {
            item->samples[item->sample_count++] = (struct hf_drain_sample){item->payload, f.sequence_number + 1};
            item->sampled = item->payload;
        }
    }
}

/* Group commit, then the line: a crash in between costs a late acknowledgement, never a lie. */
static int64_t commit(struct hf_drain_item *item)
{
    int64_t status = hf_log_sync(item->log);
    if (status == HF_OK) {
        struct hf_log_info info;
        hf_log_info(item->log, &info);
        HF_FAIL("drain.synced");
        item->pending_bytes = 0;
        hf_board_ack(item->board, item->bells, item->line_index, allowed(item, info.next_sqn), info.next_sqn);
    }
    return status;
}

int64_t hf_drain_commit(struct hf_drain_item *item)
{
    item->status = commit(item);
    return item->status;
}

/* What is appended must be synced before anything else is said about this item. parallel: somebody else does it. */
static int64_t settle(struct hf_drain_item *item, int parallel)
{
    if (item->pending_bytes == 0) {
        return HF_OK;
    }
    return parallel ? HF_AGAIN : commit(item);
}

static int64_t take_block(struct hf_drain_item *item, uint8_t *block, uint64_t bytes, uint64_t first, uint64_t next)
{
    if (HF_MUTANT("drain.publish_early")) { /* what the kill tests must notice */
        hf_board_ack(item->board, item->bells, item->line_index, next, next);
    }
    int64_t status = append(item, block, bytes);
    if (status != HF_OK) {
        int64_t found = hf_reader_seek(item->reader, first);
        return found == HF_OK || status == HF_POISONED ? status : found;
    }
    item->messages += next - first;
    item->bytes += bytes;
    if (item->paced) {
        pace(item, block, bytes);
    }
    if (item->level == HF_LEVEL_DISK) {
        item->pending_bytes += bytes;
    } else {
        HF_FAIL("drain.appended");
        hf_board_ack(item->board, item->bells, item->line_index, allowed(item, next), next);
    }
    return HF_OK;
}

/* One block of one item. 1: something moved, 0: nothing was there. */
static int serve(struct hf_drain_item *item, uint8_t *staging, uint64_t staging_bytes, uint64_t commit_bytes,
                 int parallel)
{
    uint64_t first, next, block = staging_bytes < HF_STAGING_MAX ? staging_bytes : HF_STAGING_MAX;
    block = item->block_bytes > 0 && item->block_bytes < block ? item->block_bytes : block;
    int64_t got = hf_reader_copy(item->reader, staging, block, &first, &next);
    while (got == HF_SMALL && block < staging_bytes) { /* a message larger than a usual block */
        block = 2 * block < staging_bytes ? 2 * block : staging_bytes;
        got = hf_reader_copy(item->reader, staging, block, &first, &next);
    }
    if (got <= 0) {
        int moved = item->pending_bytes != 0;
        int64_t status = settle(item, parallel);
        item->status = status != HF_OK ? status : got;
        return moved;
    }
    item->status = take_block(item, staging, (uint64_t)got, first, next);
    if (item->status == HF_OK && item->pending_bytes >= commit_bytes) {
        item->status = settle(item, parallel);
    }
    return 1;
}

/* Something came after the lines said that they sleep, or somebody wants us. */
static int wanted(struct hf_drain_item *const *items, int64_t n, const volatile uint32_t *kick)
{
    for (int64_t i = 0; i < n; i++) {
        if (items[i]->status == HF_OK && hf_reader_ready(items[i]->reader) != 0) {
            return 1;
        }
    }
    return hf_load_acquire_u32(kick) != 0;
}

/* All lines sleep, then all rings are looked at again, then the bell: a source that commits in between sees a
 * sleeper, or we see its frame (board/wait.h). A sleep that ends by itself goes on as it was, until end_ns. */
static void sleep_on_bell(struct hf_drain_item *const *items, int64_t n, const volatile uint32_t *kick,
                          struct hf_map *bells, uint32_t bell, int64_t end_ns)
{
    uint32_t seen = hf_bell_read(bells, bell);
    int64_t nap = HF_WAIT_MAX_NS;
    for (int64_t i = 0; i < n; i++) {
        int64_t longest = hf_line_sleeps(items[i]->board, items[i]->line_index, 1);
        nap = longest < nap ? longest : nap;
    }
    while (!wanted(items, n, kick)) {
        int64_t left = end_ns - hf_now_ns();
        if (left <= 0 || hf_bell_wait(bells, bell, seen, left < nap ? left : nap) != 0) {
            break;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        hf_line_sleeps(items[i]->board, items[i]->line_index, 0);
    }
}

int64_t hf_drain(struct hf_drain_item **items, int64_t n, uint8_t *staging, uint64_t staging_bytes,
                 uint64_t commit_bytes, const volatile uint32_t *kick, struct hf_map *bells, uint32_t bell,
                 int strategy, int64_t timeout_ns, int parallel)
{
    int64_t end_ns = hf_wait_end(hf_now_ns(), timeout_ns, HF_BELL_MAX_NS);
    struct hf_waiter w; /* 50 ms at most: of what does not sleep, and from the first block on, of all that follows it */
    uint64_t rounds = 0;
    int idle = 0;
    hf_waiter_start(&w, strategy, timeout_ns);
    for (;;) {
        int moved = 0;
        int64_t stopped = 0;
        for (int64_t i = 0; i < n; i++) {
            if (items[i]->status == HF_OK) {
                moved |= serve(items[i], staging, staging_bytes, commit_bytes, parallel);
            }
            stopped += items[i]->status != HF_OK;
        }
        if (stopped != 0) {
            return stopped;
        }
        if (hf_load_acquire_u32(kick) != 0) {
            return 0;
        }
        if (moved) {
            idle = 0;
            if (rounds++ == 0) {
                hf_waiter_start(&w, strategy, timeout_ns);
            } else if (rounds % BUSY_ROUNDS == 0 && hf_waiter_left(&w) == 0) {
                return 0;
            }
            continue;
        }
        if (!idle && rounds != 0) { /* the wait begins now, not when the call did */
            hf_waiter_start(&w, strategy, hf_waiter_left(&w));
        }
        idle = 1;
        int step = hf_waiter_pause(&w);
        if (step < 0) {
            return 0;
        }
        if (step > 0) {
            sleep_on_bell(items, n, kick, bells, bell, rounds == 0 ? end_ns : w.deadline_ns);
        }
    }
}
