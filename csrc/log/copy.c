/* copy.c: a reader's copy of frames: chunk by chunk, verified on the copy, whole messages only. See
 * reader.c. */
#include "log/reader.h"
#include "log/frame.h"

#include <string.h>

enum stop { STOP_NONE, STOP_END, STOP_FULL, STOP_BAD, STOP_LOST, STOP_FAILED };

/* A copy under way. */
struct copying {
    struct hf_chain chain;
    uint64_t position;  /* of the next frame */
    uint64_t at;        /* where it lies in the buffer, if it was read; out <= at */
    uint64_t have;      /* behind what was read */
    uint64_t upper;     /* published end of this segment */
    uint64_t void_from; /* first number that a later incarnation has taken over */
    uint64_t out;       /* bytes in the buffer that are kept */
    uint64_t done;      /* of these, whole messages */
    struct hf_control_body lost;
    int64_t lack;   /* HF_LOST or HF_HOLE: what `lost` says */
    int64_t failed; /* an errno */
};

/* Length of the run of whole messages of one fragment each, with the numbers that follow, at the start of `bytes` of
 * verified frames: what nearly every log consists of, understood without hf_chain_take. */
static uint64_t take_plain(struct copying *c, const uint8_t *block, uint64_t bytes, uint64_t position)
{
    uint64_t at = 0, sqn = c->chain.next_sqn;
    if (c->chain.fragment != 0 || c->chain.jump) {
        return 0;
    }
    while (at < bytes && sqn < c->void_from) { /* void_from: at most UINT64_MAX, which no message has */
        struct hf_frame f;
        memcpy(&f, block + at, sizeof f);
        if (f.flags != (HF_FRAME_FIRST | HF_FRAME_LAST) || f.fragment != 0 || f.sequence_number != sqn) {
            break;
        }
        sqn++;
        at += hf_frame_room((uint32_t)f.commit);
    }
    if (at > 0) {
        c->chain.next_sqn = c->chain.whole_sqn = sqn;
        c->chain.whole = position + at;
    }
    return at;
}

/* Closes the gap that control frames left before the frames at c->at, and counts what is whole. */
static void keep(struct copying *c, uint8_t *buf, uint64_t bytes)
{
    if (c->out != c->at) {
        memmove(buf + c->out, buf + c->at, bytes);
    }
    c->out += bytes;
    c->done = c->chain.fragment == 0 ? c->out : c->done;
}

static void step(struct copying *c, uint64_t bytes)
{
    c->at += bytes;
    c->position += bytes;
}

/* Takes over `bytes` of verified frames at buf + c->at: numbers must follow, control frames are squeezed out. */
static enum stop accept_frames(struct copying *c, uint8_t *buf, uint64_t bytes)
{
    const uint64_t end = c->at + bytes;
    while (c->at < end) {
        uint64_t plain = take_plain(c, buf + c->at, end - c->at, c->position);
        if (plain > 0) {
            keep(c, buf, plain);
            step(c, plain);
            continue;
        }
        struct hf_frame f;
        struct hf_control_body body = {0, 0};
        memcpy(&f, buf + c->at, sizeof f);
        uint64_t room = hf_frame_room((uint32_t)f.commit);
        int control = (f.flags & HF_FRAME_CONTROL) != 0;
        if (control && (uint32_t)f.commit == HF_CONTROL_BYTES) {
            memcpy(&body, buf + c->at + sizeof f, sizeof body);
            c->lost = body;
            c->lack = hf_lack(&f);
        }
        struct hf_chain before = c->chain;
        if (!hf_chain_take(&c->chain, &f, &body, c->position)) {
            return STOP_BAD;
        }
        if (control ? f.fragment == HF_CONTROL_LOST : f.sequence_number >= c->void_from) {
            c->chain = before;
            return control ? STOP_LOST : STOP_END;
        }
        if (!control) {
            keep(c, buf, room);
        }
        step(c, room);
    }
    return STOP_NONE;
}

/* Reads `bytes` at c->position behind what is kept, and verifies the first frames of them. Zeros are what the disk does not
 * give: no frame begins with them. 0: none verifies, or c->failed. */
static uint64_t fetch(struct copying *c, const struct hf_seg *s, uint8_t *buf, uint64_t bytes)
{
    struct hf_bytes bad;
    c->at = c->have = c->out;
    c->failed = hf_read_all(s->fd, buf + c->at, bytes, s->header_bytes + (c->position - s->base), &bad);
    if (c->failed != HF_OK) {
        return 0;
    }
    c->have += bytes;
    return hf_frames_verified(buf + c->at, bytes, HF_COPY_CHUNK, c->position, s->seed);
}

/* The next frames, read a large piece at a time, and verified and taken over a small one at a time, while it is in L1. */
static enum stop copy_chunk(struct copying *c, const struct hf_seg *s, const struct hf_request *q)
{
    if (c->position >= c->upper) {
        return STOP_END;
    }
    uint64_t good = hf_frames_verified(q->buf + c->at, c->have - c->at, HF_COPY_CHUNK, c->position, s->seed);
    if (good == 0) { /* the next one is not there as a whole */
        uint64_t there = c->upper - c->position, free_bytes = q->capacity - c->out;
        uint64_t most = there < free_bytes ? there : free_bytes;
        uint64_t piece = most < HF_COPY_PIECE ? most : HF_COPY_PIECE;
        if (most < sizeof(struct hf_frame)) {
            return there < sizeof(struct hf_frame) ? STOP_BAD : STOP_FULL;
        }
        good = fetch(c, s, q->buf, piece);
        uint64_t claimed = good == 0 && c->failed == HF_OK ? hf_frame_claimed(q->buf + c->at, there, c->position) : 0;
        if (claimed > most) {
            return STOP_FULL;
        }
        if (claimed > piece) { /* one frame that is larger */
            good = fetch(c, s, q->buf, claimed);
        }
    }
    if (good == 0) {
        return c->failed == HF_OK ? STOP_BAD : STOP_FAILED;
    }
    return accept_frames(c, q->buf, good);
}

/* Bytes of the message at or behind `position`, for a caller whose buffer is too small; 0: it cannot be read. */
static uint64_t message_bytes(struct hf_seg *s, uint64_t position, uint64_t sqn, uint64_t upper)
{
    struct hf_walk w;
    struct hf_chain chain = {.next_sqn = sqn, .whole = position, .whole_sqn = sqn};
    uint64_t bytes = 0;
    hf_walk_start(&w, s, position, upper);
    while (hf_walk_frame(&w) && hf_chain_take(&chain, &w.frame, &w.body, w.position)) {
        if (!(w.frame.flags & HF_FRAME_CONTROL)) {
            bytes += hf_frame_room((uint32_t)w.frame.commit);
            if (chain.fragment == 0) {
                return bytes;
            }
        }
        hf_walk_step(&w);
    }
    return 0;
}

/* Nothing could be copied because of the bytes at c->position. HF_OK: no number was lost by them, c stands behind
 * them. */
static int64_t step_over(struct hf_logr *r, int64_t i, const struct hf_request *q, struct copying *c)
{
    struct hf_walk w;
    hf_walk_start(&w, &r->segs[i], c->position, c->upper);
    while (hf_walk_resync(&w)) {
        uint64_t sqn = w.frame.sequence_number;
        if (sqn > q->sqn) {
            *q->next = sqn;
            return HF_DAMAGED;
        }
        if (sqn == q->sqn) {
            c->chain = (struct hf_chain){.next_sqn = sqn, .whole = w.position, .whole_sqn = sqn};
            c->position = w.position;
            c->at = c->have = c->out = 0;
            return HF_OK;
        }
    }
    if (w.failed != HF_OK) {
        return w.failed;
    }
    *q->next = hf_logr_first_behind(r, i, q->published);
    return *q->next > q->sqn ? HF_DAMAGED : HF_AGAIN;
}

int64_t hf_logr_copy(struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position, uint64_t sqn)
{
    struct hf_seg *s = &r->segs[i];
    struct copying c = {.chain = {.next_sqn = sqn, .whole = position, .whole_sqn = sqn}, .position = position};
    c.upper = hf_logr_upper(r, i, q->end);
    c.void_from = hf_logr_void_from(r, i);
    if (c.void_from > q->published) { /* a store publishes `end` before next_sqn: what lies between is not given yet */
        c.void_from = q->published;
    }
    for (;;) {
        enum stop stop = STOP_NONE;
        while (stop == STOP_NONE) {
            stop = copy_chunk(&c, s, q);
        }
        if (c.done > 0) {
            memcpy(r->cursor_uuid, s->uuid, HF_UUID);
            r->cursor = c.chain.whole;
            r->cursor_sqn = c.chain.whole_sqn;
            r->incarnation = s->incarnation;
            *q->next = c.chain.whole_sqn;
            return (int64_t)c.done;
        }
        if (stop == STOP_FAILED) {
            return c.failed;
        }
        if (stop == STOP_LOST) {
            *q->next = c.lost.last + 1;
            return c.lack;
        }
        if (stop == STOP_FULL) {
            *q->next = message_bytes(s, position, sqn, c.upper);
            if (*q->next > q->capacity) {
                return HF_SMALL;
            }
        }
        if (stop == STOP_END && c.chain.fragment == 0) {
            return hf_logr_beyond(r, i, q, c.position);
        }
        if (!q->fresh || !hf_seg_same(r->dir, s, r->head->pre.uuid)) {
            return HF_LOGR_RETRY;
        }
        int64_t status = step_over(r, i, q, &c);
        if (status != HF_OK) {
            return status;
        }
        position = c.position;
    }
}
