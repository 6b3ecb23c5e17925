/* send.c: the hot path of a source: admission, frames, commit (stream.h, rules 1-3 and 5-7). Wait-free; no
 * allocation, and no system call but the clock's and a wake that somebody sleeps for.
 *
 * A send knows three numbers: how far the position, the sequence number and the payload count may go. Everything
 * that can hold a source back (trail and pins, flight size, retention) is folded into them by `admit`, which runs
 * when one of them is reached. */
#include "base/process.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "stream/source.h"

#define HF_FAR (UINT64_C(1) << 62) /* no limit: so far away that it is looked at again once in 2^62 bytes */
#define HF_PUBLISH_EVERY 64        /* messages of one batch between two stores of the tail line */
#define HF_LEAD 1024               /* bytes of ring whose lines are on their way here before they are written */
#define HF_LARGE 16384             /* a message from which on its lines are worth a look at the clock */
#define HF_NOW INT64_MIN           /* in place of a timestamp: the clock is read when it is needed */

/* ---- admission ---- */

/* 1: some participant pins a position in [from, to). Pins below `from` were passed by an earlier grant: they are
 * evicted, and count no more; nor can a broken peer's garbage hold the source longer than one timeout per grant. */
static int pinned(const struct hf_source *s, uint64_t from, uint64_t to)
{
    if (s->board == NULL) {
        return 0;
    }
    const struct hf_board *board = (const struct hf_board *)(const void *)s->board->base;
    for (int i = 0; i < HF_BOARD_LINES; i++) {
        const struct hf_board_line *line = &board->lines[i];
        uint64_t pin =
            hf_load_seq_cst_u64(&line->pin); /* pairs with reader.c: pin_take; pin_stream was stored before it */
        if (pin != UINT64_MAX && pin - from < to - from && hf_load_relaxed_u64(&line->pin_stream) == s->incarnation &&
            hf_load_acquire_u64(&line->state) == HF_LINE_ACTIVE) {
            return 1;
        }
    }
    return 0;
}

/* Where a store that comes back goes on. The first mark behind the trail may lie behind that, so this one is stored before the
 * trail that needs it; and in turn, so that a kill between its two words leaves the one that the old trail needs. */
static void mark_released(struct hf_source *s, uint64_t released)
{
    struct hf_mark *m = &s->header->marks[HF_MARKS + (s->raises++ & 1)];
    const uint8_t *frame = s->ring + (released & s->mask);
    uint64_t sqn = released == s->position ? s->next_sqn : hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_SQN));
    hf_store_relaxed_u64(&m->position, released);
    hf_store_relaxed_u64(&m->sqn, sqn);
}

/* Rule 3. `need`: where the word behind the message ends. The trail never passes what is not released. */
static int64_t trail_raise(struct hf_source *s, uint64_t need, uint64_t released)
{
    uint64_t ring_bytes = s->mask + 1;
    if (s->grant_until_ns != 0) {
        if (pinned(s, s->admit - ring_bytes, s->grant) && hf_now_ns() < s->grant_until_ns) {
            return HF_PINNED;
        }
        s->admit = s->grant + ring_bytes;
        s->grant_until_ns = 0;
        return HF_OK;
    }
    uint64_t least = need - ring_bytes;
    if (hf_after(least, released)) {
        return HF_RETENTION;
    }
    uint64_t trail = hf_after(least + ring_bytes / 8, released) ? released : least + ring_bytes / 8;
    mark_released(s, released);
    hf_store_seq_cst_u64(&s->header->trail, trail); /* pairs with reader.c: pin_take (a reader pins, then looks), */
    hf_fence_seq_cst();                             /* and before the first overwriting store, with hf_ring_passed */
    if (pinned(s, s->admit - ring_bytes, trail)) {
        s->grant = trail;
        s->grant_until_ns = hf_now_ns() + s->pin_timeout_ns;
        return HF_PINNED;
    }
    s->admit = trail + ring_bytes;
    return HF_OK;
}

/* Up to where the retention limit lets the word behind a message come. */
static uint64_t retention_end(const struct hf_source *s, uint64_t released_position)
{
    uint64_t retained = hf_load_relaxed_u64(&s->retained_bytes);
    return retained != 0 && retained < HF_FAR ? released_position + retained + HF_GRANULE : s->position + HF_FAR;
}

static void room_compute(struct hf_source *s, uint64_t released_position, uint64_t flight_sqn)
{
    uint64_t messages = hf_load_relaxed_u64(&s->flight_messages);
    uint64_t bytes = hf_load_relaxed_u64(&s->flight_bytes);
    uint64_t end = retention_end(s, released_position);
    s->room_sqn = messages != 0 && messages < HF_FAR ? flight_sqn + messages : s->next_sqn + HF_FAR;
    s->room_payload =
        bytes != 0 && bytes < HF_FAR ? hf_load_relaxed_u64(&s->flight_payload) + bytes : s->payload + HF_FAR;
    s->room_position = hf_after(s->admit, end) ? end : s->admit;
}

/* 1: a message of `span` bytes of frames fits what is known. 0: a limit is reached, the limits changed, or the source is
 * closed; admit says which. */
static inline int fits(const struct hf_source *s, uint64_t span, uint64_t fragments, uint64_t payload)
{
    return (int64_t)(s->room_position - s->position) >= (int64_t)(span + HF_GRANULE) &&
           (int64_t)(s->room_sqn - s->next_sqn) >= (int64_t)fragments &&
           (int64_t)(s->room_payload - s->payload) >= (int64_t)payload && hf_load_relaxed_u32(&s->changes) == s->seen;
}

/* Looks at everything anew, and says what stands in the way. */
static __attribute__((noinline)) int64_t admit(struct hf_source *s, uint64_t span, uint64_t fragments, uint64_t payload)
{
    uint32_t changes = hf_load_acquire_u32(&s->changes); /* pairs with hf_source_limits, hf_source_close */
    if (hf_load_relaxed_u32(&s->closed) != 0) {
        return HF_CLOSED; /* with the change unseen, so that every later send comes here too */
    }
    s->seen = changes;
    /* All pair with hf_source_settle, hf_source_release: the walk is over, and no number is ahead of its position. */
    uint64_t flight_sqn = hf_load_acquire_u64(&s->flight_sqn);
    uint64_t released_sqn = hf_load_acquire_u64(&s->released_sqn);
    uint64_t released = hf_load_acquire_u64(&s->released_position);
    room_compute(s, released, flight_sqn);
    /* A message is always admitted when nothing is in flight, except for one that is larger than the flight in bytes. */
    if (flight_sqn != s->next_sqn && (int64_t)(s->room_sqn - s->next_sqn) < (int64_t)fragments) {
        return HF_FLIGHT_SIZE;
    }
    if ((int64_t)(s->room_payload - s->payload) < (int64_t)payload) {
        return HF_FLIGHT_BYTES;
    }
    hf_store_relaxed_u64(&s->wanted, span);
    if (released_sqn != s->next_sqn &&
        (int64_t)(retention_end(s, released) - s->position) < (int64_t)(span + HF_GRANULE)) {
        return HF_RETENTION;
    }
    while ((int64_t)(s->admit - s->position) < (int64_t)(span + HF_GRANULE)) {
        int64_t status = trail_raise(s, s->position + span + HF_GRANULE, released);
        if (status != HF_OK) {
            return status;
        }
    }
    room_compute(s, released, flight_sqn);
    return HF_OK;
}

/* ---- writing ---- */

static inline int64_t time_of(struct hf_source *s, int64_t given_ns)
{
    return given_ns != HF_NOW ? given_ns : hf_stamp_read(&s->stamp);
}

/* A frame's header except for its time and its commit word. */
static inline uint8_t *frame_fill(const struct hf_source *s, uint64_t position, uint64_t sqn, uint32_t kind)
{
    uint8_t *frame = s->ring + (position & s->mask);
    hf_store_relaxed_u64(hf_word(frame, HF_WORD_SQN), sqn);
    hf_store_relaxed_u64(hf_word(frame, HF_WORD_KIND), kind);
    return frame;
}

/* Behind the frame's other stores: they wait for a line that the reader has, and the counter is read meanwhile. */
static inline void frame_time(struct hf_source *s, uint8_t *frame, int64_t timestamp_ns)
{
    hf_store_relaxed_u64(hf_word(frame, HF_WORD_TIME), (uint64_t)time_of(s, timestamp_ns));
}

/* The word behind a message, before its commit: rule 1. Before its frame too: it is often in another line, and a commit that
 * waits for that one gives a spinning reader the time to take the frame's line away again. */
static inline void frame_end(const struct hf_source *s, uint64_t position)
{
    hf_store_relaxed_u64(hf_word(s->ring + (position & s->mask), HF_WORD_COMMIT), 0);
    HF_FAIL("source.zeroed");
}

/* The lines that a reader had last are fetched while this frame is written: a store that misses holds up all behind it. */
static inline void frame_ahead(const uint8_t *frame, uint64_t span)
{
    for (uint64_t i = 0; i < span && i < HF_LEAD; i += 64) {
        hf_prefetch_write(frame + HF_LEAD + i); /* the second mapping follows the ring */
    }
}

/* Pairs with every acquire load of a commit word. */
static inline void frame_commit(uint8_t *frame, uint64_t position, uint64_t length)
{
    hf_store_release_u64(hf_word(frame, HF_WORD_COMMIT), hf_ring_commit_word(position, length));
}

/* Two words: a torn mark fails its own check (ring_walk.c: mark_valid). */
static void mark(struct hf_source *s)
{
    struct hf_mark *m = &s->header->marks[(s->position >> s->stripe_shift) % HF_MARKS];
    hf_store_relaxed_u64(&m->position, s->position);
    hf_store_relaxed_u64(&m->sqn, s->next_sqn);
    s->stripe = s->position >> s->stripe_shift;
}

/* `messages` that start in one stripe, of which none but the last ends a step. */
static inline void advance(struct hf_source *s, uint64_t span, uint64_t fragments, uint64_t payload, uint64_t messages)
{
    if (s->position >> s->stripe_shift != s->stripe) {
        mark(s);
    }
    uint64_t before = s->next_sqn;
    s->position += span;
    s->next_sqn += fragments;
    s->payload += payload;
    s->messages += messages;
    if (before >> s->step_shift != s->next_sqn >> s->step_shift) {
        s->steps[(s->next_sqn >> s->step_shift) & s->step_mask] =
            (struct hf_step){s->next_sqn, s->position, s->payload};
    }
}

/* The tail line: for newcomers, tools and policy. Readers that follow never look at it. */
static inline void publish(struct hf_source *s)
{
    hf_store_relaxed_u64(&s->header->messages, s->messages);
    hf_store_relaxed_u64(&s->header->payload_bytes, s->payload);
    hf_store_release_u64(&s->header->tail, s->position);     /* pairs with reader.c: span_committed */
    hf_store_release_u64(&s->header->next_sqn, s->next_sqn); /* pairs with hf_source_release */
    HF_FAIL("source.published");
}

static inline void wake(struct hf_source *s)
{
    if (s->fenced) {
        hf_fence_seq_cst();
    } else {
        hf_compiler_barrier(); /* the sleeper's membarrier is the fence; pairs with hf_line_sleeps */
    }
    if (hf_load_relaxed_u32(s->sleepers) != 0) {
        hf_board_wake_slow(s->board, s->bells);
    }
}

/* Rule 2: all fragments but the first are committed first, behind a word that is still 0. */
static int64_t message_put(struct hf_source *s, const uint8_t *data, uint64_t length, int64_t timestamp_ns)
{
    uint64_t part = s->fragment_bytes;
    uint64_t part_span = hf_frame_span(part + HF_GRANULE);
    uint64_t fragments = length <= s->mask ? (length + part - 1) / part : UINT64_MAX;
    if (fragments > HF_FRAGMENTS_MAX) {
        return HF_TOO_LARGE;
    }
    uint64_t last = length - (fragments - 1) * part;
    uint64_t span = (fragments - 1) * part_span + hf_frame_span(last + HF_GRANULE);
    if (span > (s->mask + 1) / 4) {
        return HF_TOO_LARGE;
    }
    int64_t status = fits(s, span, fragments, length) ? HF_OK : admit(s, span, fragments, length);
    if (status != HF_OK) {
        return status;
    }
    HF_FAIL("source.claimed");
    timestamp_ns = time_of(s, timestamp_ns);
    frame_end(s, s->position + span);
    for (uint32_t i = (uint32_t)fragments; i-- > 0;) {
        uint64_t position = s->position + i * part_span;
        uint64_t bytes = i + 1 == fragments ? last : part;
        uint32_t kind = hf_kind(i) | (i + 1 == fragments ? (uint32_t)HF_FRAME_LAST : 0);
        uint8_t *frame = frame_fill(s, position, s->next_sqn + i, kind);
        HF_FAIL("source.half");
        hf_copy_in(frame + HF_GRANULE, data + i * part, bytes);
        frame_time(s, frame, timestamp_ns);
        HF_FAIL("source.copied");
        frame_commit(frame, position, bytes + HF_GRANULE);
    }
    HF_FAIL("source.committed");
    advance(s, span, fragments, length, 1);
    return HF_OK;
}

/* A message of one frame, for which there is room. */
static inline void frame_put(struct hf_source *s, uint64_t position, uint64_t sqn, const uint8_t *data, uint64_t length,
                             int64_t timestamp_ns)
{
    uint64_t span = hf_frame_span(length + HF_GRANULE);
    HF_FAIL("source.claimed");
    frame_end(s, position + span);
    uint8_t *frame = frame_fill(s, position, sqn, HF_FRAME_FIRST | HF_FRAME_LAST);
    HF_FAIL("source.half");
    frame_ahead(frame, span);
    hf_copy_in(frame + HF_GRANULE, data, length);
    frame_time(s, frame, timestamp_ns);
    HF_FAIL("source.copied");
    frame_commit(frame, position, length + HF_GRANULE);
    HF_FAIL("source.committed");
}

static inline int64_t put(struct hf_source *s, const uint8_t *data, uint64_t length, int64_t timestamp_ns)
{
    if (!HF_LIKELY(length <= s->fragment_bytes)) {
        return message_put(s, data, length, timestamp_ns);
    }
    uint64_t span = hf_frame_span(length + HF_GRANULE);
    if (!HF_LIKELY(fits(s, span, 1, length))) {
        int64_t status = admit(s, span, 1, length);
        if (status != HF_OK) {
            return status;
        }
    }
    frame_put(s, s->position, s->next_sqn, data, length, timestamp_ns);
    advance(s, span, 1, length, 1);
    return HF_OK;
}

/* How many messages of `length`, up to `most`, go in after one look at the room, as one advance. 0: put decides. */
static inline uint64_t run_length(const struct hf_source *s, uint64_t length, uint64_t most)
{
    uint64_t span = hf_frame_span(length + HF_GRANULE);
    if (length > s->fragment_bytes || s->position >> s->stripe_shift != s->stripe || !fits(s, span, 1, length)) {
        return 0;
    }
    uint64_t stripe = ((s->stripe + 1) << s->stripe_shift) - s->position;
    uint64_t step = UINT64_C(1) << s->step_shift;
    uint64_t bytes = hf_lesser(stripe, s->room_position - s->position - HF_GRANULE);
    uint64_t payload = s->room_payload - s->payload;
    most = hf_lesser(hf_lesser(most, step - (s->next_sqn & (step - 1))), s->room_sqn - s->next_sqn);
    most = most * span > bytes ? bytes / span : most;
    return most * length > payload ? payload / length : most;
}

/* As many of the next `most` rows as one look admits, at least one if any. Their number, or why there is none. */
static inline int64_t rows_put(struct hf_source *s, const uint8_t *rows, uint64_t width, uint64_t stride, uint64_t most,
                               int64_t timestamp_ns)
{
    uint64_t run = run_length(s, width, most);
    if (run == 0) {
        int64_t status = put(s, rows, width, timestamp_ns);
        return status == HF_OK ? 1 : status;
    }
    uint64_t span = hf_frame_span(width + HF_GRANULE);
    uint64_t position = s->position;
    uint64_t sqn = s->next_sqn;
    for (uint64_t i = 0; i < run; i++) {
        frame_put(s, position + i * span, sqn + i, rows + i * stride, width, timestamp_ns);
    }
    advance(s, run * span, run, run * width, run);
    return (int64_t)run;
}

/* The caller serialises (stream.h); this finds an open claim, and most callers that do not. An exchange would cost 10 ns. */
static inline int enter(struct hf_source *s)
{
    if (hf_load_relaxed_u32(&s->busy) != 0) {
        return 0;
    }
    hf_store_relaxed_u32(&s->busy, 1);
    return 1;
}

static inline void leave(struct hf_source *s)
{
    hf_store_relaxed_u32(&s->busy, 0);
}

/* The number of the last fragment, once a message is in. */
static inline int64_t finish(struct hf_source *s, uint64_t length, int64_t begin_ns)
{
    publish(s);
    wake(s);
    if (begin_ns != 0) {
        hf_source_fetch_ahead(s, length, begin_ns);
    }
    int64_t sqn = (int64_t)(s->next_sqn - 1);
    leave(s);
    return sqn;
}

int64_t hf_source_send(struct hf_source *s, const uint8_t *data, uint64_t length)
{
    HF_ENTER(s);
    if (!enter(s)) {
        return HF_BUSY;
    }
    int64_t begin_ns = HF_LIKELY(length < HF_LARGE || length > s->fragment_bytes) ? 0 : hf_now_ns();
    int64_t status = put(s, data, length, HF_NOW);
    if (status != HF_OK) {
        leave(s);
        return status;
    }
    return finish(s, length, begin_ns);
}

/* What both batches do after their loop: sent messages become visible in the tail line, sleepers wake once. */
static int64_t batch_finish(struct hf_source *s, uint64_t sent, int64_t status)
{
    if (sent > 0) {
        publish(s);
        wake(s);
    }
    leave(s);
    return sent > 0 ? (int64_t)sent : status;
}

int64_t hf_source_send_rows(struct hf_source *s, const uint8_t *rows, uint64_t width, uint64_t stride, uint64_t count)
{
    HF_ENTER(s);
    if (!enter(s)) {
        return HF_BUSY;
    }
    int64_t status = HF_OK;
    int64_t timestamp_ns = time_of(s, HF_NOW);
    uint64_t sent = 0;
    while (sent < count && status >= 0) {
        uint64_t most = hf_lesser(count - sent, HF_PUBLISH_EVERY - sent % HF_PUBLISH_EVERY);
        status = rows_put(s, rows + sent * stride, width, stride, most, timestamp_ns);
        sent += status > 0 ? (uint64_t)status : 0;
        if (status > 0 && sent % HF_PUBLISH_EVERY == 0) {
            publish(s);
        }
    }
    return batch_finish(s, sent, status);
}

int64_t hf_source_send_binary(struct hf_source *s, const uint8_t *data, const void *offsets, int wide, uint64_t first,
                              uint64_t count)
{
    HF_ENTER(s);
    if (!enter(s)) {
        return HF_BUSY;
    }
    int64_t status = HF_OK;
    int64_t timestamp_ns = time_of(s, HF_NOW);
    uint64_t sent = 0;
    while (sent < count && status == HF_OK) {
        uint64_t i = first + sent;
        int64_t from = wide ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
        int64_t to = wide ? ((const int64_t *)offsets)[i + 1] : ((const int32_t *)offsets)[i + 1];
        status = from < 0 || to < from ? HF_USAGE : put(s, data + from, (uint64_t)(to - from), timestamp_ns);
        if (status == HF_OK && ++sent % HF_PUBLISH_EVERY == 0) {
            publish(s);
        }
    }
    return batch_finish(s, sent, status);
}

/* ---- claim, commit, abort ---- */

uint8_t *hf_source_claim(struct hf_source *s, uint64_t length, int64_t *status)
{
    if (hf_process_forked(s->token)) {
        *status = HF_FORKED;
        return NULL;
    }
    if (!enter(s)) {
        *status = HF_BUSY;
        return NULL;
    }
    uint64_t span = hf_frame_span(length + HF_GRANULE);
    *status = HF_OK;
    if (length > s->fragment_bytes) {
        *status = HF_TOO_LARGE;
    } else if (!fits(s, span, 1, length)) {
        *status = admit(s, span, 1, length);
    }
    if (*status != HF_OK) {
        leave(s);
        return NULL;
    }
    HF_FAIL("source.claimed");
    s->claimed = length + 1; /* the source stays busy until commit or abort */
    return s->ring + (s->position & s->mask) + HF_GRANULE;
}

int64_t hf_source_commit(struct hf_source *s)
{
    HF_ENTER(s);
    if (s->claimed == 0) {
        return HF_USAGE;
    }
    uint64_t length = s->claimed - 1;
    uint64_t span = hf_frame_span(length + HF_GRANULE);
    s->claimed = 0;
    frame_end(s, s->position + span);
    uint8_t *frame = frame_fill(s, s->position, s->next_sqn, HF_FRAME_FIRST | HF_FRAME_LAST);
    frame_time(s, frame, HF_NOW);
    HF_FAIL("source.copied");
    frame_commit(frame, s->position, length + HF_GRANULE);
    HF_FAIL("source.committed");
    advance(s, span, 1, length, 1);
    return finish(s, 0, 0);
}

/* The word at the position is still 0; whatever was written behind it is nothing. */
int64_t hf_source_abort(struct hf_source *s)
{
    HF_ENTER(s);
    if (s->claimed == 0) {
        return HF_USAGE;
    }
    s->claimed = 0;
    leave(s);
    return HF_OK;
}
