/* drain.c: see drain.h. */
#include "drain.h"

#include "atomic.h"
#include "status.h"
#include "wait.h"

int64_t hf_drain_commit(struct hf_drain_item *item)
{
    int64_t status = hf_log_sync(item->log);
    if (status < 0) {
        return status;
    }
    item->pending_bytes = 0;
    struct hf_log_info info;
    hf_log_info(item->log, &info);
    hf_board_ack(item->board, item->bells, item->line_index, info.next_sqn, info.appended_sqn);
    return HF_OK;
}

/* Appends a staged block, rolling when the segment is full. A block that does not get in is read again later: the reader
 * goes back to its first number. */
static int64_t append(struct hf_drain_item *item, uint8_t *staging, uint64_t bytes, uint64_t first)
{
    int64_t status = hf_log_append(item->log, staging, bytes);
    if (status == HF_ROLL) {
        status = hf_log_roll(item->log);
        if (status >= 0) {
            item->rolls += 1;
            status = hf_log_append(item->log, staging, bytes);
        }
    }
    if (status < 0) {
        int64_t back = hf_reader_seek(item->reader, first);
        return back == HF_LAPPED ? HF_LAPPED : status;
    }
    return HF_OK;
}

/* One staged block of one item. 1 something moved, 0 nothing to do, < 0 the item stops. */
static int64_t serve(struct hf_drain_item *item, uint8_t *staging, uint64_t staging_bytes, uint64_t commit_bytes,
                     int parallel)
{
    uint64_t first = 0, next = 0;
    int64_t got = hf_reader_copy(item->reader, staging, staging_bytes, &first, &next);
    if (got > 0) {
        int64_t status = append(item, staging, (uint64_t)got, first);
        if (status < 0) {
            return status;
        }
        item->pending_bytes += (uint64_t)got;
        item->bytes += (uint64_t)got;
        item->messages += next - first;
        if (item->level != HF_LEVEL_MEMORY && item->pending_bytes < commit_bytes) {
            return 1;
        }
    }
    if (item->pending_bytes > 0) {
        if (parallel && item->level != HF_LEVEL_MEMORY) {
            return HF_AGAIN;
        }
        int64_t status = hf_drain_commit(item);
        return status < 0 ? status : 1;
    }
    return got;
}

/* Everybody's flag first, then a last look at everybody's ring (wait.h). The kick is looked at after the bell was read: whoever
 * kicks rings afterwards. */
static void sleep_on_bell(struct hf_drain_item **items, int64_t n, const volatile uint32_t *kick, struct hf_map *bells,
                          uint32_t bell, int64_t left_ns)
{
    uint32_t seen = hf_bell_read(bells, bell);
    int found = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t nap = hf_line_sleeps(items[i]->board, items[i]->line_index, 1);
        left_ns = nap < left_ns ? nap : left_ns;
    }
    for (int64_t i = 0; i < n; i++) {
        found |= hf_reader_ready(items[i]->reader) != 0;
    }
    if (!found && !*kick && left_ns > 0) {
        hf_bell_wait(bells, bell, seen, left_ns);
    }
    for (int64_t i = 0; i < n; i++) {
        hf_line_sleeps(items[i]->board, items[i]->line_index, 0);
    }
}

int64_t hf_drain(struct hf_drain_item **items, int64_t n, uint8_t *staging, uint64_t staging_bytes,
                 uint64_t commit_bytes, const volatile uint32_t *kick, struct hf_map *bells, uint32_t bell,
                 int strategy, int64_t timeout_ns, int parallel)
{
    struct hf_waiter round, waiter; /* the whole call; the wait since something last moved */
    hf_waiter_start(&round, strategy, timeout_ns);
    waiter = round;
    for (;;) {
        int moved = 0;
        int64_t stopped = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t did = serve(items[i], staging, staging_bytes, commit_bytes, parallel);
            moved |= did > 0;
            if (did < 0) {
                items[i]->status = did;
                stopped += 1;
            }
        }
        if (stopped > 0 || *kick) {
            return stopped;
        }
        if (moved) {
            int64_t left = hf_waiter_left(&round);
            if (left <= 0) {
                return 0;
            }
            hf_waiter_start(&waiter, strategy, left);
            continue;
        }
        int pause = hf_waiter_pause(&waiter);
        if (pause < 0) {
            return 0;
        }
        if (pause > 0) {
            sleep_on_bell(items, n, kick, bells, bell, hf_waiter_left(&waiter));
        }
    }
}
