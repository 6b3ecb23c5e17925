/* reader.c: the reading side of a stream (stream.h, rules 1-4 and 7). A reader writes nothing but its own board
 * line; what it reads counts only after it saw that the trail has not passed it. One thread at a time per reader.
 *
 * The way of every read: the commit word (acquire), the header's other words, the payload, acquire fence, trail. A
 * word that is not its position's own and a header that cannot be are told apart by the trail alone: passed =
 * lapped, else damaged. */
#include <errno.h>
#include <stdlib.h>
#include "stream/frame.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "board/bell.h"
#include "board/wait.h"

#define HF_NO_PIN UINT64_MAX /* no position: positions are multiples of 32 */
#define HF_SPAN_MESSAGES 64  /* as many as a source commits between two stores of its tail line */
#define HF_PREFETCH 2048     /* bytes that a batch runs behind its prefetches */
/* Behind the tail nothing is prefetched: it would take the line from the source, which is about to write it. */
#define HF_PREFETCHED (HF_PREFETCH + HF_GRANULE + 64)

struct hf_reader {
    struct hf_ring ring;
    uint64_t position;
    uint64_t next_sqn;
    uint64_t token;
    uint64_t pin;  /* what the line says; HF_NO_PIN */
    uint64_t tail; /* the source's, some time ago: how far a batch may prefetch */
    struct hf_map *board;
    struct hf_map *bells;
    struct hf_board_line *line; /* NULL: cannot pin or sleep */
    int64_t line_index;
    int64_t nap;   /* longest sleep on what the line says, in ns; 0: we have not said that we sleep */
    uint32_t seen; /* our bell, read before we said so */
};

/* Who has found something says no more that it sleeps. */
static inline void wake_up(struct hf_reader *r)
{
    if (!HF_LIKELY(r->nap == 0)) {
        r->nap = 0;
        hf_line_sleeps(r->board, r->line_index, 0);
    }
}

int64_t hf_reader_open(const struct hf_map *stream, struct hf_map *board, struct hf_map *bells, int64_t line_index,
                       struct hf_reader **out)
{
    struct hf_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    int64_t status =
        line_index >= HF_BOARD_LINES || (line_index >= 0 && board == NULL) ? HF_USAGE : hf_ring_open(stream, &r->ring);
    if (status != HF_OK) {
        free(r);
        return status;
    }
    r->position = r->ring.start_position;
    r->next_sqn = r->ring.start_sqn;
    r->token = hf_process_token();
    r->pin = HF_NO_PIN;
    r->board = board;
    r->bells = bells;
    r->line_index = line_index;
    r->line = line_index >= 0 ? hf_board_line_at(board, line_index) : NULL;
    *out = r;
    return HF_OK;
}

void hf_reader_close(struct hf_reader *r)
{
    if (r->pin != HF_NO_PIN && !hf_process_forked(r->token)) {
        hf_store_release_u64(&r->line->pin, HF_NO_PIN);
    }
    free(r);
}

uint64_t hf_reader_next(const struct hf_reader *r)
{
    return r->next_sqn;
}

uint64_t hf_reader_position(const struct hf_reader *r)
{
    return r->position;
}

const uint8_t *hf_reader_base(const struct hf_reader *r)
{
    return r->ring.bytes;
}

/* ---- seek ---- */

static int64_t seek(struct hf_reader *r, uint64_t sqn, int oldest)
{
    uint64_t position;
    uint64_t number;
    if (!hf_ring_mark(&r->ring, oldest ? UINT64_MAX : sqn, oldest, &position, &number)) {
        return HF_LAPPED;
    }
    int64_t found = oldest ? 1 : hf_ring_walk(&r->ring, sqn, &position, &number);
    if (found != 1) {
        return found == 0 ? HF_AHEAD : found;
    }
    r->position = position;
    r->next_sqn = number;
    return HF_OK;
}

int64_t hf_reader_seek(struct hf_reader *r, uint64_t sqn)
{
    HF_ENTER(r);
    return seek(r, sqn, 0);
}

int64_t hf_reader_seek_oldest(struct hf_reader *r)
{
    HF_ENTER(r);
    return seek(r, UINT64_MAX, 1);
}

/* ---- one message ---- */

static int64_t lapped_or(const struct hf_reader *r, int64_t status)
{
    return hf_ring_passed(&r->ring, r->position) ? HF_LAPPED : status;
}

/* No frame of ours at the position: `word` is there. CLOSED is stored after the last commit: if it is seen and the
 * word is still 0 after that, nothing will come. Pairs with hf_source_close. */
static __attribute__((noinline)) int64_t idle(const struct hf_reader *r, uint64_t word)
{
    if (word != 0 || hf_ring_passed(&r->ring, r->position)) {
        return lapped_or(r, HF_DAMAGED);
    }
    if (hf_load_acquire_u64(&r->ring.header->state) != HF_STREAM_CLOSED) {
        return 0;
    }
    const uint8_t *frame = hf_ring_frame(&r->ring, r->position);
    return hf_load_acquire_u64(hf_word_at(frame, HF_WORD_COMMIT)) == 0 ? lapped_or(r, HF_CLOSED) : 0;
}

static inline int64_t ready(const struct hf_reader *r)
{
    const uint8_t *frame = hf_ring_frame(&r->ring, r->position);
    uint64_t word = hf_load_acquire_u64(hf_word_at(frame, HF_WORD_COMMIT)); /* pairs with frame_commit, send.c */
    return HF_LIKELY(hf_commit_own(word, r->position)) ? 1 : idle(r, word);
}

int64_t hf_reader_ready(struct hf_reader *r)
{
    HF_ENTER(r);
    return ready(r);
}

static void advance(struct hf_reader *r, const struct hf_message *m)
{
    r->position += m->bytes;
    r->next_sqn = m->next;
}

/* A message that is not one plain frame: of several fragments, too large for buf, lapped or damaged. */
static __attribute__((noinline)) int64_t receive_slow(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf,
                                                      uint64_t capacity)
{
    struct hf_message m;
    int64_t found = hf_ring_message(&r->ring, r->position, r->next_sqn, &m);
    if (found != 1 || hf_ring_passed(&r->ring, r->position)) {
        return lapped_or(r, HF_DAMAGED);
    }
    hf_entry_fill(entry, &m, (r->position & r->ring.mask) + HF_GRANULE);
    if (m.payload > capacity) {
        return HF_SMALL;
    }
    int64_t copied = hf_gather(r->ring.bytes, r->ring.mask + 1, entry, buf);
    HF_FAIL("reader.copied");
    if (copied < 0 || hf_ring_passed(&r->ring, r->position)) {
        return lapped_or(r, HF_DAMAGED);
    }
    entry->offset = 0;
    advance(r, &m);
    return 1;
}

/* One load of each header word; the lengths that are checked are the lengths that are used. */
static inline int64_t receive(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf, uint64_t capacity)
{
    uint64_t position = r->position;
    const uint8_t *frame = hf_ring_frame(&r->ring, position);
    uint64_t word = hf_load_acquire_u64(hf_word_at(frame, HF_WORD_COMMIT)); /* pairs with frame_commit, send.c */
    if (!HF_LIKELY(hf_commit_own(word, position))) {
        return idle(r, word);
    }
    uint64_t length = (uint32_t)word;
    uint64_t sqn = hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_SQN));
    uint64_t timestamp = hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_TIME));
    uint32_t kind = (uint32_t)hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_KIND));
    uint64_t payload = length - HF_GRANULE; /* wraps for a forged length: then it is beyond both limits */
    if (!HF_LIKELY(kind == (HF_FRAME_FIRST | HF_FRAME_LAST) && sqn == r->next_sqn && payload <= capacity &&
                   payload <= r->ring.frame_max - HF_GRANULE)) {
        return receive_slow(r, entry, buf, capacity);
    }
    hf_copy_out(buf, frame + HF_GRANULE, payload);
    HF_FAIL("reader.copied");
    if (hf_ring_passed(&r->ring, position)) {
        return HF_LAPPED;
    }
    *entry = (struct hf_entry){.sequence_number = sqn,
                               .first_sequence_number = sqn,
                               .timestamp_ns = (int64_t)timestamp,
                               .length = (uint32_t)payload,
                               .fragments = 1};
    r->position = position + hf_frame_span(length);
    r->next_sqn = sqn + 1;
    return 1;
}

int64_t hf_reader_receive(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf, uint64_t capacity)
{
    HF_ENTER(r);
    wake_up(r);
    return receive(r, entry, buf, capacity);
}

/* ---- waiting ---- */

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The flag stands and our bell has not rung since: nobody has taken the hint that we set, or he rings us yet. So a sleep that
 * ended by itself may go on on the same `seen`, without another barrier: all of it is one sleep, in which we looked up.
 * A ring ends it, also one in vain, since it took the hint: a hint that is there now may be another sleeper's, whose
 * barrier is still to come (wake.pml, MUT_DOZE_BY_HINT). Pairs with hf_board_wake_slow. */
static int dozes(const struct hf_reader *r)
{
    return r->nap != 0 && hf_load_relaxed_u32(&r->line->sleeping) != 0 &&
           hf_bell_read(r->bells, hf_load_relaxed_u32(&r->line->bell)) == r->seen;
}

static void sleep_on_bell(struct hf_reader *r, int64_t left_ns)
{
    uint32_t bell = hf_load_relaxed_u32(&r->line->bell);
    if (!dozes(r)) {
        r->seen = hf_bell_read(r->bells, bell);
        r->nap = hf_line_sleeps(r->board, r->line_index, 1);
    }
    if (ready(r) == 0) {
        hf_bell_wait(r->bells, bell, r->seen, min_i64(r->nap, left_ns));
    }
}

/* A wait that ends with nothing leaves the line as it is, and the next one goes on with the same sleep, without spinning. A
 * source that commits in between rings in vain, once: that takes the hint. Whatever is found wakes us up; a flag that a
 * reader leaves behind is cleared by the line's next sleeper or claimer. */
int64_t hf_reader_wait(struct hf_reader *r, int strategy, int64_t timeout_ns)
{
    HF_ENTER(r);
    struct hf_waiter w;
    int64_t status = ready(r);
    if (status == 0) {
        if (r->line == NULL || r->bells == NULL) {
            strategy = strategy == HF_WAIT_BUSY_SPIN ? strategy : HF_WAIT_YIELD;
        } else if (strategy == HF_WAIT_BACKOFF && dozes(r)) {
            strategy = HF_WAIT_BLOCK;
        }
        hf_waiter_start(&w, strategy, timeout_ns);
    }
    while (status == 0) {
        int step = hf_waiter_pause(&w);
        if (step < 0) {
            return 0;
        }
        if (step > 0) {
            sleep_on_bell(r, hf_waiter_left(&w));
        }
        status = ready(r);
    }
    wake_up(r);
    return status;
}

int64_t hf_reader_receive_wait(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf, uint64_t capacity,
                               int strategy, int64_t timeout_ns)
{
    HF_ENTER(r);
    int64_t status = receive(r, entry, buf, capacity);
    if (status != 0) {
        wake_up(r);
        return status;
    }
    status = hf_reader_wait(r, strategy, timeout_ns);
    return status == 1 ? receive(r, entry, buf, capacity) : status;
}

int64_t hf_reader_receive_soon(struct hf_reader *r, struct hf_entry *entry, uint8_t *buf, uint64_t capacity,
                               int64_t within_ns)
{
    HF_ENTER(r);
    int64_t status = receive(r, entry, buf, capacity);
    if (status == 0 && within_ns > 0) {
        int64_t end_ns = hf_now_ns() + (within_ns < HF_SOON_MAX_NS ? within_ns : HF_SOON_MAX_NS);
        do {
            hf_cpu_relax();
            status = receive(r, entry, buf, capacity);
        } while (status == 0 && hf_now_ns() < end_ns);
    }
    if (status != 0) {
        wake_up(r);
    }
    return status;
}

/* ---- in place ---- */

/* Pins `position`, unless a pin that still holds covers it. Pairs with trail_raise and pinned (send.c): either the
 * source sees the pin, or this sees the trail. Older views keep the pin that they had if this one comes too late. */
static int64_t pin_take(struct hf_reader *r, uint64_t position)
{
    uint64_t before = r->pin;
    uint64_t trail = hf_load_seq_cst_u64(&r->ring.header->trail);
    if (before != HF_NO_PIN && !hf_after(trail, before) && !hf_after(before, position)) {
        return HF_OK;
    }
    /* The stream first: a pin is never read with another's stream. */
    hf_store_relaxed_u64(&r->line->pin_stream, r->ring.incarnation);
    hf_store_seq_cst_u64(&r->line->pin, position);
    r->pin = position;
    HF_FAIL("reader.pinned");
    if (hf_after(hf_load_seq_cst_u64(&r->ring.header->trail), position)) {
        hf_store_release_u64(&r->line->pin, before);
        r->pin = before;
        return HF_LAPPED;
    }
    return HF_OK;
}

/* Entries of whole messages from the reader's position on; what is wrong ends the batch, and the next call reports
 * it. */
static int64_t batch_collect(struct hf_reader *r, struct hf_entry *entries, int64_t max, uint64_t max_bytes)
{
    const struct hf_ring ring = r->ring;
    uint64_t position = r->position;
    uint64_t sqn = r->next_sqn;
    int64_t count = 0;
    if (!hf_after(r->tail, position + HF_PREFETCHED)) {
        r->tail = hf_load_relaxed_u64(&ring.header->tail); /* a hint: whatever it says, nothing is read because of it */
    }
    while (count < max) {
        const uint8_t *frame = hf_ring_frame(&ring, position);
        if (HF_LIKELY(hf_after(r->tail, position + HF_PREFETCHED))) {
            __builtin_prefetch(frame + HF_PREFETCH);
            __builtin_prefetch(frame + HF_PREFETCH + HF_GRANULE); /* every other payload starts in the next line */
        }
        uint64_t word = hf_load_acquire_u64(hf_word_at(frame, HF_WORD_COMMIT)); /* pairs with frame_commit, send.c */
        if (!hf_commit_own(word, position)) {
            break;
        }
        struct hf_message m = {.sqn = sqn, .next = sqn + 1, .fragments = 1};
        uint64_t length = (uint32_t)word;
        uint32_t kind = (uint32_t)hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_KIND));
        m.payload = length - HF_GRANULE;
        if (HF_LIKELY(kind == (HF_FRAME_FIRST | HF_FRAME_LAST) && m.payload <= ring.frame_max - HF_GRANULE &&
                      hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_SQN)) == sqn)) {
            m.timestamp_ns = (int64_t)hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_TIME));
            m.bytes = hf_frame_span(length);
        } else if (hf_ring_message(&ring, position, sqn, &m) != 1) {
            break;
        }
        if (count > 0 && position + m.bytes - r->position > max_bytes) {
            break;
        }
        hf_entry_fill(&entries[count++], &m, (position & ring.mask) + HF_GRANULE);
        position += m.bytes;
        sqn = m.next;
    }
    if (count > 0 && hf_ring_passed(&ring, r->position)) { /* evicted while collecting: none of it counts */
        return HF_LAPPED;
    }
    r->position = position;
    r->next_sqn = sqn;
    return count > 0 ? count : lapped_or(r, HF_DAMAGED);
}

int64_t hf_reader_batch(struct hf_reader *r, struct hf_entry *entries, int64_t max, uint64_t max_bytes, uint64_t *from,
                        uint64_t *to)
{
    HF_ENTER(r);
    if (r->line == NULL || max < 1) {
        return HF_USAGE;
    }
    wake_up(r);
    uint64_t before = r->pin;
    *from = *to = r->position;
    int64_t status = ready(r);
    if (status != 1) {
        return status;
    }
    status = pin_take(r, r->position);
    if (status != HF_OK) {
        return status;
    }
    status = batch_collect(r, entries, max, max_bytes);
    if (status < 0 && r->pin != before) {
        hf_store_release_u64(&r->line->pin, before);
        r->pin = before;
    }
    *to = r->position;
    return status;
}

int64_t hf_reader_unpin(struct hf_reader *r, uint64_t from, uint64_t keep)
{
    HF_ENTER(r);
    if (r->line == NULL) {
        return HF_USAGE;
    }
    int evicted = hf_ring_passed(&r->ring, from);
    hf_store_release_u64(&r->line->pin, keep); /* every read of the view is over; pairs with pinned, send.c */
    r->pin = keep;
    return evicted ? HF_EVICTED : HF_OK;
}

/* ---- bulk copy ---- */

/* Committed bytes from the reader's position on, whole messages unless cut at `capacity`. `tail` is at most one
 * publication behind, and a dead source's stays there: then, and where it is nonsense, frames are walked instead. */
static uint64_t span_committed(const struct hf_reader *r, uint64_t capacity)
{
    uint64_t span = hf_load_acquire_u64(&r->ring.header->tail) - r->position; /* pairs with publish, send.c */
    if (span - 1 < r->ring.mask && span % HF_GRANULE == 0) {
        return span < capacity ? span : capacity & ~(uint64_t)(HF_GRANULE - 1);
    }
    struct hf_message m;
    uint64_t sqn = r->next_sqn;
    span = 0;
    for (int i = 0; i < HF_SPAN_MESSAGES && hf_ring_message(&r->ring, r->position + span, sqn, &m) == 1; i++) {
        if (m.bytes > capacity - span) {
            break;
        }
        span += m.bytes;
        sqn = m.next;
    }
    return span;
}

int64_t hf_reader_copy(struct hf_reader *r, uint8_t *buf, uint64_t capacity, uint64_t *first, uint64_t *next)
{
    HF_ENTER(r);
    *first = *next = r->next_sqn;
    int64_t status = ready(r);
    if (status != 1) {
        return status;
    }
    uint64_t span = span_committed(r, capacity);
    hf_copy_out(buf, hf_ring_frame(&r->ring, r->position), span); /* contiguous: the second mapping follows the first */
    HF_FAIL("reader.copied");
    if (hf_ring_passed(&r->ring, r->position)) {
        return HF_LAPPED;
    }
    /* From here on only the copy is read: nobody changes it between check and use. */
    struct hf_message m;
    uint64_t used = 0;
    uint64_t sqn = r->next_sqn;
    while (used < span && hf_block_message(buf + used, span - used, &r->ring, r->position + used, &m) == 1 &&
           m.sqn == sqn) {
        used += m.bytes;
        sqn = m.next;
    }
    if (used == 0) {
        int64_t found = hf_ring_message(&r->ring, r->position, r->next_sqn, &m);
        return lapped_or(r, found == 1 && m.bytes > capacity ? HF_SMALL : HF_DAMAGED);
    }
    r->position += used;
    r->next_sqn = *next = sqn;
    return (int64_t)used;
}
