/* log_copy.c: a reader's copy of frames: chunk by chunk, verified on the copy, whole messages only. See
 * log_reader.c. */
#include "log_private.h"

#include <string.h>

#define SLICE UINT64_C(1024) /* verified between two rounds of prefetching */
#define LINE UINT64_C(64)    /* of the cache; another size costs time, nothing else */

enum stop { STOP_NONE, STOP_END, STOP_FULL, STOP_BAD, STOP_LOST };

/* A copy under way. */
struct copying {
    struct hf_chain chain;
    uint64_t position;  /* of the next byte to copy */
    uint64_t upper;     /* published end of this segment */
    uint64_t void_from; /* first number that a later incarnation has taken over */
    uint64_t out;       /* bytes in the buffer */
    uint64_t done;      /* of these, whole messages */
    struct hf_control_body lost;
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

/* Closes the gap that control frames left before the frames at `at`, and counts what is whole. */
static void keep(struct copying *c, uint8_t *block, uint64_t *kept, uint64_t at, uint64_t bytes)
{
    if (*kept != at) {
        memmove(block + *kept, block + at, bytes);
    }
    *kept += bytes;
    c->done = c->chain.fragment == 0 ? c->out + *kept : c->done;
}

/* Takes over `bytes` of verified frames at buf + c->out: numbers must follow, control frames are squeezed out. */
static enum stop accept_frames(struct copying *c, uint8_t *buf, uint64_t bytes)
{
    uint8_t *block = buf + c->out;
    uint64_t kept = 0;
    enum stop stop = STOP_NONE;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t plain = take_plain(c, block + at, bytes - at, c->position + at);
        if (plain > 0) {
            keep(c, block, &kept, at, plain);
            at += plain;
            continue;
        }
        struct hf_frame f;
        struct hf_control_body body = {0, 0};
        memcpy(&f, block + at, sizeof f);
        uint64_t room = hf_frame_room((uint32_t)f.commit);
        int control = (f.flags & HF_FRAME_CONTROL) != 0;
        if (control && (uint32_t)f.commit == HF_CONTROL_BYTES) {
            memcpy(&body, block + at + sizeof f, sizeof body);
            c->lost = body;
        }
        struct hf_chain before = c->chain;
        if (!hf_chain_take(&c->chain, &f, &body, c->position + at)) {
            stop = STOP_BAD;
            c->position += at;
            break;
        }
        if (control ? f.fragment == HF_CONTROL_LOST : f.sequence_number >= c->void_from) {
            c->chain = before;
            stop = control ? STOP_LOST : STOP_END;
            break;
        }
        if (!control) {
            keep(c, block, &kept, at, room);
        }
        at += room;
    }
    c->out += kept;
    c->position += stop == STOP_NONE ? bytes : 0;
    return stop;
}

/* Verifies a copied chunk. `ahead` bytes lie behind the chunk's source: they are asked for while this one is summed,
 * or the next copy would spend its time waiting for memory. */
static uint64_t verify_chunk(const uint8_t *chunk, uint64_t bytes, uint64_t position, uint32_t seed,
                             const uint8_t *behind, uint64_t ahead)
{
    uint64_t good = 0, asked = 0;
    while (good < bytes) {
        for (; asked < good + SLICE && asked < ahead; asked += LINE) {
            __builtin_prefetch(behind + asked, 0, 2);
        }
        uint64_t more = hf_frames_verified(chunk + good, bytes - good, SLICE, position + good, seed);
        if (more == 0) {
            break;
        }
        good += more;
    }
    return good;
}

static enum stop copy_chunk(struct copying *c, const struct hf_seg *s, const struct hf_request *q)
{
    uint64_t there = c->upper - c->position, free_bytes = q->capacity - c->out;
    uint64_t most = there < free_bytes ? there : free_bytes;
    uint64_t chunk = most < HF_COPY_CHUNK ? most : HF_COPY_CHUNK;
    if (c->position >= c->upper) {
        return STOP_END;
    }
    if (chunk < sizeof(struct hf_frame)) {
        return there < sizeof(struct hf_frame) ? STOP_BAD : STOP_FULL;
    }
    const uint8_t *from = s->map + s->header_bytes + (c->position - s->base);
    uint8_t *to = q->buf + c->out;
    memcpy(to, from, chunk);
    uint64_t ahead = there - chunk < chunk ? there - chunk : chunk;
    uint64_t good = verify_chunk(to, chunk, c->position, s->seed, from + chunk, ahead);
    if (good == 0) {
        uint64_t claimed = hf_frame_claimed(to, there, c->position);
        if (claimed <= chunk) {
            return STOP_BAD;
        }
        if (claimed > most) {
            return STOP_FULL;
        }
        memcpy(to, from, claimed); /* one frame that is larger than a chunk */
        good = hf_frames_verified(to, claimed, claimed, c->position, s->seed);
        if (good == 0) {
            return STOP_BAD;
        }
    }
    return accept_frames(c, q->buf, good);
}

/* Bytes of the message at or behind `position`, for a caller whose buffer is too small; 0: it cannot be read. */
static uint64_t message_bytes(const struct hf_seg *s, uint64_t position, uint64_t sqn, uint64_t upper)
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
    const struct hf_seg *s = &r->segs[i];
    struct hf_walk w;
    hf_walk_start(&w, s, c->position, c->upper);
    while (hf_walk_resync(&w)) {
        uint64_t sqn = w.frame.sequence_number;
        if (sqn > q->sqn) {
            *q->next = sqn;
            return HF_DAMAGED;
        }
        if (sqn == q->sqn) {
            c->chain = (struct hf_chain){.next_sqn = sqn, .whole = w.position, .whole_sqn = sqn};
            c->position = w.position;
            c->out = 0;
            return HF_OK;
        }
    }
    *q->next = hf_logr_first_behind(r, i, q->published);
    return *q->next > q->sqn ? HF_DAMAGED : HF_AGAIN;
}

int64_t hf_logr_copy(struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position, uint64_t sqn)
{
    const struct hf_seg *s = &r->segs[i];
    struct copying c = {.chain = {.next_sqn = sqn, .whole = position, .whole_sqn = sqn}, .position = position};
    c.upper = hf_logr_upper(r, i, q->end);
    c.void_from = hf_logr_void_from(r, i);
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
        if (stop == STOP_LOST) {
            *q->next = c.lost.last + 1;
            return HF_LOST;
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
