/* drain.h: a store's inner loop: ring -> staging -> log -> published position, for every source that it keeps.
 *
 * One call serves all sources once or more and returns within 500 ms, and within 50 ms
 * from the first block on, so that the thread that owns it can take in
 * new sources. Per item: hf_reader_copy into the staging block (the only place where ring bytes are read), trail
 * check, hf_log_append, which publishes (memory) before the board line moves, or (disk) hf_log_sync when the ring has
 * nothing more or `commit_bytes` are waiting. The board line's ack moves only after the log published: a crash in
 * between costs a late acknowledgement (the store acknowledges at its start what its log has), never a lie.
 *
 * The ack of a receiver-paced source is held back when its log is full of what receivers have not acknowledged: the owner
 * says in bytes of payload how far it may go (ack_payload), here each message is compared with that, to the message
 * exactly. What the owner frees later it acknowledges itself.
 *
 * An item that stops keeps its reader before the block that failed. The caller mends the cause (HF_SMALL: a larger
 * staging block; -1000 - ENOSPC: space), sets status = HF_OK, and it goes on without a gap. Every item needs its
 * board, line and bells. */
#ifndef HF_STORE_DRAIN_H
#define HF_STORE_DRAIN_H
#include "log/log.h"
#include "stream/stream.h"

/* cffi: begin */
struct hf_drain_sample {
    uint64_t payload;
    uint64_t sqn;
};
struct hf_drain_item {
    struct hf_reader *reader;
    struct hf_log *log;
    struct hf_map *board;
    struct hf_map *bells;
    int64_t line_index;
    int64_t status;        /* why this item stopped: HF_OK, HF_LAPPED, HF_CLOSED (drained to the end), HF_DAMAGED, HF_POISONED, -errno */
    uint64_t pending_bytes;/* appended, not yet synced */
    uint64_t messages;     /* frames appended since it was made */
    uint64_t bytes;
    uint64_t rolls;
    uint64_t level;        /* enum hf_level of the log */
    uint64_t paced;        /* 1: a receiver-paced source: the line's ack never passes ack_sqn */
    uint64_t payload;      /* paced: bytes of payload appended since it was made */
    uint64_t ack_payload;  /* paced: a message that brings `payload` above this does not move ack_sqn, nor does any behind it */
    uint64_t ack_sqn;
    struct hf_drain_sample *samples; /* paced: payload and next number behind a message, sample_bytes apart or more; the owner takes them away */
    uint64_t samples_max;
    uint64_t sample_count;
    uint64_t sample_bytes;
    uint64_t sampled;      /* payload at the last one */
    uint64_t block_bytes;  /* of a block, unless one message is larger; 0: HF_STAGING_MAX, which is the most */
};

/* items whose status is HF_OK are served. Returns the number of items with another status (the caller looks at them,
 * mends them or takes them out), 0 after timeout_ns (500 ms at most; 50 ms from the first block on) or when *kick is
 * non-zero. staging: HF_STAGING_MAX bytes + one frame's room, staging_bytes says how many. Sleeps on `bell` by `strategy`
 * when nothing is there. parallel: 1 = do not sync here; items that need it get HF_AGAIN. */
int64_t hf_drain(struct hf_drain_item **items, int64_t n, uint8_t *staging, uint64_t staging_bytes, uint64_t commit_bytes,
                 const volatile uint32_t *kick, struct hf_map *bells, uint32_t bell, int strategy, int64_t timeout_ns, int parallel);
int64_t hf_drain_commit(struct hf_drain_item *item); /* hf_log_sync, then the board line; for a pool of syncing threads */
/* cffi: end */
#endif
