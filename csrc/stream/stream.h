/* stream.h: the broadcast ring. One source writes each message once; any number of readers and stores read it in place.
 *
 * Rules (docs/design.md 3-7, 16, 17), each with its test in tests/c/test_stream.c, rule 3 also in litmus_pin.c:
 *  1. A frame exists when its commit word, carrying its own position, is there. The word at `tail` is always 0: the next word is
 *     zeroed before a commit, so that old payload never looks like a frame. Hence admission: p + L + 32 <= admit.
 *  2. A message of several fragments stores its first commit word last: all or nothing.
 *  3. `trail` says what may be overwritten. To raise it: store it (seq_cst), look at every pin of this incarnation on the board,
 *     and if one is below, wait (HF_PINNED) until it moves or pin_timeout passes; then write. What a send is given at a time is at most N/8.
 *     A reader stores its pin (seq_cst), then loads trail; trail > pin means evicted.
 *  4. Copying readers never pin: copy, acquire fence, load trail, discard from the first overrun frame on, also when the word
 *     that they read was 0.
 *  5. Numbers and the tail move at commit; an abort, a kill, a failed send leave no trace.
 *     Sends, claim to commit, and close are one at a time: the caller's lock, in Python the GIL, which their wrappers keep.
 *  6. Limits are numbers that policy sets and send compares: flight (from how much has left it), and released position + N.
 *  7. No length, position or flag of a frame is used before it is checked against the ring; a frame that is wrong while the
 *     trail has not passed it is HF_DAMAGED. */
#ifndef HF_STREAM_STREAM_H
#define HF_STREAM_STREAM_H
#include "board/board.h"

/* cffi: begin */
struct hf_source; /* the writing side; private memory of the source's process */

struct hf_stream_config {
    uint8_t uuid[16];
    uint64_t incarnation;
    uint64_t start_sqn;
    uint64_t start_position; /* multiple of 32; tests start near 2^63 */
    uint64_t ring_bytes;     /* power of two, >= 64 KiB */
    uint64_t session_id;
    uint32_t fragment_bytes; /* 32 .. ring / 4 - 32 */
    uint32_t pin_timeout_ms;
    uint32_t flags;          /* enum hf_stream_flag */
    char topic[256];
};

/* Makes the ring in `fd` (posix_ipc, O_CREX) and publishes it. board and bells may be NULL (tests, benches): no pins, no sleepers. */
int64_t hf_source_create(int fd, const struct hf_stream_config *config, struct hf_map *board, struct hf_map *bells, struct hf_source **out);
void hf_source_destroy(struct hf_source *s);          /* unmaps; the name stays. Stores CLOSED first unless `hf_source_abandon`ed */
void hf_source_close(struct hf_source *s);            /* stores state CLOSED and wakes everybody */
void hf_source_abandon(struct hf_source *s);          /* from now on destroy leaves the stream OPEN, as a kill does */
struct hf_map *hf_source_map(struct hf_source *s);

/* Number of the last fragment, or FLIGHT_SIZE, FLIGHT_BYTES, RETENTION, PINNED, TOO_LARGE, BUSY, FORKED, CLOSED. Never waits. */
int64_t hf_source_send(struct hf_source *s, const uint8_t *data, uint64_t length);
/* rows of equal width, one message each. Returns how many were sent (>= 1), or the status that stopped the first.
 * One timestamp for all. The numbers are first = next_sqn before the call (under the caller's lock) and on. */
int64_t hf_source_send_rows(struct hf_source *s, const uint8_t *rows, uint64_t width, uint64_t stride, uint64_t count);
/* Arrow binary layout: message i is data[offsets[i] .. offsets[i + 1]]. wide: offsets are int64, else int32. */
int64_t hf_source_send_binary(struct hf_source *s, const uint8_t *data, const void *offsets, int wide, uint64_t first, uint64_t count);
/* One fragment of `length` bytes, written in place by the caller. NULL on failure, *status says why. */
uint8_t *hf_source_claim(struct hf_source *s, uint64_t length, int64_t *status);
int64_t hf_source_commit(struct hf_source *s);        /* its number */
int64_t hf_source_abort(struct hf_source *s);

uint64_t hf_source_next(const struct hf_source *s);   /* next number */
/* Policy's limits; 0 = none. flight_messages (fragments), flight_bytes (payload): sent and not settled, and what
 * lies in holes. retained_bytes (frames): sent and not released. */
void hf_source_limits(struct hf_source *s, uint64_t flight_messages, uint64_t flight_bytes, uint64_t retained_bytes);
/* Every message below `sqn` (fragments one by one) leaves the flight, and stays retained; the holes that there are stay in flight.
 * Returns the fragments that were passed. */
int64_t hf_source_settle(struct hf_source *s, uint64_t sqn);
/* The same with other holes: bounds[0] .. bounds[1] and so on, `count` of them, ascending, at or above what is released and below
 * what is settled then. Else HF_USAGE, and nothing moves. Holes that a release passes count until the next call leaves them out. */
int64_t hf_source_settle_around(struct hf_source *s, uint64_t sqn, const uint64_t *bounds, uint32_t count);
/* Releases them: they may be overwritten; settled they are, too. Both walk their frames. Returns the fragments released. */
int64_t hf_source_release(struct hf_source *s, uint64_t sqn);
/* Changes nothing. First number that stays when whole messages go, the oldest first, as long as they lie below `below_sqn` and more
 * than keep_bytes of frames are retained. */
int64_t hf_source_oldest(const struct hf_source *s, uint64_t below_sqn, uint64_t keep_bytes);
uint64_t hf_source_wanted(const struct hf_source *s); /* bytes of frames of the message that last met HF_RETENTION */
void hf_source_in_flight(const struct hf_source *s, uint64_t *fragments, uint64_t *bytes, uint64_t *retained_bytes);
void hf_source_stable(struct hf_source *s, uint64_t sqn); /* writes header.stable_sqn and the heartbeat, for stat */
void hf_source_sri(struct hf_source *s, const struct hf_sri_store *stores, uint32_t count, const struct hf_sri_groups *groups); /* sequence lock */

struct hf_reader; /* one thread at a time */

/* `stream` stays the caller's. line_index < 0: a reader without a line (stat, tests): it cannot pin or sleep. */
int64_t hf_reader_open(const struct hf_map *stream, struct hf_map *board, struct hf_map *bells, int64_t line_index, struct hf_reader **out);
void hf_reader_close(struct hf_reader *r);
/* Stand before the message that carries `sqn` (any of its fragments). HF_LAPPED: below the trail. HF_AHEAD: beyond the tail
 * (sqn == next number is fine). Uses the marks, then walks. */
int64_t hf_reader_seek(struct hf_reader *r, uint64_t sqn);
int64_t hf_reader_seek_oldest(struct hf_reader *r); /* the oldest message that the marks know: within N/64 + one message of the trail */
uint64_t hf_reader_next(const struct hf_reader *r);    /* number that it will deliver next */
uint64_t hf_reader_position(const struct hf_reader *r);
/* 1 ready, 0 nothing, HF_LAPPED, HF_DAMAGED, HF_CLOSED (state CLOSED and everything read). */
int64_t hf_reader_ready(struct hf_reader *r);
/* One message, copied to buf. 1 and *entry (offset 0) filled; 0 nothing; HF_SMALL with entry->length telling the size needed
 * (nothing consumed); HF_LAPPED, HF_DAMAGED, HF_CLOSED. */
int64_t hf_reader_receive(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf, uint64_t capacity);
/* Same, and spins for within_ns (capped at 5 us). Python keeps the GIL: giving it away and taking it back costs as much. */
int64_t hf_reader_receive_soon(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf, uint64_t capacity, int64_t within_ns);
/* Same, after waiting with `strategy` (board/wait.h) for at most timeout_ns (capped at 50 ms). */
int64_t hf_reader_receive_wait(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf, uint64_t capacity, int strategy, int64_t timeout_ns);
int64_t hf_reader_wait(struct hf_reader *r, int strategy, int64_t timeout_ns); /* as hf_reader_ready */
/* Up to max messages in place, at most max_bytes of frames; pins the first one's position on the reader's line if nothing is
 * pinned yet. Entry offsets count from hf_reader_base (a fragmented message: see hf_gather). Returns the count; *from, *to: the
 * ring positions that the batch spans, to be passed to hf_reader_unpin. */
int64_t hf_reader_batch(struct hf_reader *r, struct hf_entry *entries, int64_t max, uint64_t max_bytes, uint64_t *from, uint64_t *to);
const uint8_t *hf_reader_base(const struct hf_reader *r); /* of the ring's double mapping, 2 * ring_bytes long */
/* Ends a view of [from, ...). keep = lowest position still viewed, or UINT64_MAX. HF_OK, or HF_EVICTED: the trail passed `from`. */
int64_t hf_reader_unpin(struct hf_reader *r, uint64_t from, uint64_t keep);
/* Frames copied as they are, from the reader's position on, at most capacity bytes, whole messages only, verified against the
 * trail: for stores. Returns bytes; 0 nothing; advances. *first, *next: numbers of the first frame and behind the last. */
int64_t hf_reader_copy(struct hf_reader *r, uint8_t *buf, uint64_t capacity, uint64_t *first, uint64_t *next);

/* Entries of the whole messages in a private block of frames (a log block, or hf_reader_copy's). Offsets count from block. */
int64_t hf_scan(const uint8_t *block, uint64_t bytes, struct hf_entry *entries, int64_t max, uint64_t *consumed);
/* Entries of numbers below `live_from` get the retransmission flag. Returns how many have it. */
int64_t hf_mark_retransmitted(struct hf_entry *entries, int64_t count, uint64_t live_from);
/* Copies a message's payload together. base: the block or ring base; wrap: ring bytes (frames wrap by position there) or 0. */
int64_t hf_gather(const uint8_t *base, uint64_t wrap, const struct hf_entry *entry, uint8_t *out);
/* Messages as columns: one array each, NULL for one that is not wanted. Filled row by row, over any number of blocks. */
struct hf_columns {
    int64_t *sequence_number;       /* of the last fragment */
    int64_t *first_sequence_number;
    int64_t *timestamp_ns;
    int32_t *flags;                 /* enum hf_entry_flag */
    int32_t *offsets;               /* rows_max + 1, the first of them set by the caller: payload i is values[offsets[i] .. offsets[i + 1]] */
    uint8_t *values;                /* payloads, back to back */
    int64_t *crc;                   /* CRC-32C of the payload, 0 .. 2^32 - 1 */
    int64_t rows;                   /* that are there */
    int64_t rows_max;
    uint64_t bytes;                 /* of values that are there */
    uint64_t bytes_max;             /* with offsets at most 2^31 - 1 */
};
/* Appends messages until the first one that has no room. Base and wrap as for hf_gather. Returns how many it took, or HF_DAMAGED: the
 * memory is not what the entries say (a ring's: overwritten meanwhile); HF_USAGE: bytes_max is too large. */
int64_t hf_columns(const uint8_t *base, uint64_t wrap, const struct hf_entry *entries, int64_t count, struct hf_columns *to);
/* One message of a private block, as hf_reader_receive delivers one of a ring: payload to buf, *entry with offset 0 and the
 * retransmission flag. 1, or HF_SMALL with entry->length telling the size needed. */
int64_t hf_take(const uint8_t *block, const struct hf_entry *from, struct hf_entry *entry, uint8_t *buf, uint64_t capacity);
/* Reads a stream header's tail, next number and committed end (walks from a mark; the source may be dead). */
int64_t hf_stream_end(const struct hf_map *stream, uint64_t *tail, uint64_t *next_sqn);
/* HF_OK: from the oldest valid mark (or the start) to the committed end every frame chains. HF_DAMAGED else; *at = position. */
int64_t hf_stream_valid(const struct hf_map *stream, uint64_t *at);
/* A consistent copy of the SRI; returns the store count, or HF_AGAIN if the source keeps writing (or died while it wrote). */
int64_t hf_stream_sri(const struct hf_map *stream, struct hf_sri_store *out25, uint64_t *version, struct hf_sri_groups *groups);
/* cffi: end */
#endif
