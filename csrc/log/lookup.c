/* lookup.c: finds the number that is asked for in the segments that a reader has listed, and has it copied.
 * See reader.c. */
#include "log/reader.h"
#include "log/frame.h"
#include "log/head.h"

#include <string.h>

/* One file at a time: a process may read many logs. */
static int64_t open_segment(struct hf_logr *r, int64_t i)
{
    for (int64_t j = 0; j < r->count; j++) {
        if (j != i) {
            hf_seg_close(&r->segs[j]);
        }
    }
    return hf_seg_open(r->dir, &r->segs[i]);
}

/* The segment that has `sqn`, if any has: the last one that starts at or below it, since later ones override. -1:
 * none. */
static int64_t segment_of(const struct hf_logr *r, uint64_t sqn)
{
    for (int64_t i = r->count - 1; i >= 0; i--) {
        if (r->segs[i].state == HF_SEG_GOOD && r->segs[i].first_sqn <= sqn) {
            return i;
        }
    }
    return -1;
}

/* No readable segment begins at or below q->sqn. The store says that a number goes before its file does, so what it says
 * now is not older than the list. */
static int64_t before_all(struct hf_logr *r, const struct hf_request *q)
{
    int64_t status = q->fresh ? hf_head_look(r->head_fd, r->head) : HF_LOGR_RETRY;
    if (status != HF_OK) {
        return status;
    }
    uint64_t position = r->head->oldest_position, oldest = r->head->oldest_sqn;
    *q->next = hf_logr_first_behind(r, -1, q->published);
    return q->sqn >= oldest && hf_logr_missing_behind(r, -1, position, q->end) ? HF_DAMAGED : HF_GONE;
}

/* ---- finding a number ---- */

static void load_index(struct hf_logr *r, struct hf_seg *s)
{
    if (memcmp(r->index_uuid, s->uuid, HF_UUID) == 0 || hf_index_reset(&r->index, s->file_bytes) != HF_OK) {
        return;
    }
    int64_t count = hf_seg_index(s, r->index.entries, r->index.max);
    memcpy(r->index_uuid, s->uuid, HF_UUID);
    r->index.count = count < 0 ? 0 : (uint32_t)count;
    if (r->index.count > 0) {
        r->index.next_offset = (r->index.entries[r->index.count - 1].offset / HF_INDEX_STEP + 1) * HF_INDEX_STEP;
    }
}

/* Where a walk towards `sqn` starts: the nearest known message start at or below it. */
static void nearest(struct hf_logr *r, struct hf_seg *s, uint64_t sqn, struct hf_chain *chain)
{
    *chain = (struct hf_chain){.next_sqn = s->first_sqn, .whole = s->base, .whole_sqn = s->first_sqn};
    load_index(r, s);
    uint32_t low = 0, high = memcmp(r->index_uuid, s->uuid, HF_UUID) == 0 ? r->index.count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->index.entries[middle].sqn <= sqn) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    uint64_t position = low > 0 ? s->base + (r->index.entries[low - 1].offset - s->header_bytes) : 0;
    if (low > 0 && r->index.entries[low - 1].offset >= s->header_bytes && position % HF_GRANULE == 0 &&
        position < s->limit) {
        uint64_t at = r->index.entries[low - 1].sqn;
        *chain = (struct hf_chain){.next_sqn = at, .whole = position, .whole_sqn = at};
    }
    /* Two damaged headers may bear one name: a cursor of the other segment is no place in this one. */
    int own = memcmp(r->cursor_uuid, s->uuid, HF_UUID) == 0 && r->cursor >= s->base && r->cursor <= s->limit;
    if (own && r->cursor_sqn <= sqn && r->cursor_sqn >= chain->next_sqn) {
        *chain = (struct hf_chain){.next_sqn = r->cursor_sqn, .whole = r->cursor, .whole_sqn = r->cursor_sqn};
    }
}

/* The walk met the message or record that carries q->sqn, or something behind it. */
static int64_t arrived(const struct hf_walk *w, const struct hf_request *q, uint64_t start_sqn)
{
    if (!(w->frame.flags & HF_FRAME_CONTROL)) {
        if (start_sqn <= q->sqn) {
            return HF_LOGR_FOUND;
        }
        *q->next = start_sqn;
        return HF_DAMAGED;
    }
    if (w->frame.fragment != HF_CONTROL_LOST) { /* a sync: all that it says is which number comes */
        *q->next = w->frame.sequence_number;
        return HF_DAMAGED;
    }
    if (w->body.first <= q->sqn) {
        *q->next = w->body.last + 1;
        return hf_lack(&w->frame);
    }
    *q->next = w->body.first;
    return HF_DAMAGED;
}

/* Finds the message that holds q->sqn in segment i. HF_LOGR_FOUND: *position, *sqn are its start. Else the answer to
 * the call. */
static int64_t seek(struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t *position, uint64_t *sqn)
{
    struct hf_seg *s = &r->segs[i];
    struct hf_chain chain;
    nearest(r, s, q->sqn, &chain);
    *position = chain.whole;
    *sqn = chain.next_sqn;
    if (chain.next_sqn == q->sqn) {
        return HF_LOGR_FOUND; /* the copy verifies it */
    }
    struct hf_walk w;
    hf_walk_start(&w, s, chain.whole, hf_logr_upper(r, i, q->end));
    int hurt = 0;
    for (;;) {
        int here = hf_walk_frame(&w) && hf_chain_take(&chain, &w.frame, &w.body, w.position);
        if (w.failed != HF_OK) {
            return w.failed;
        }
        if (!here) {
            int at_end = chain.fragment == 0 && w.position >= w.limit;
            if (!q->fresh) {
                return HF_LOGR_RETRY;
            }
            hurt |= !at_end;
            if (at_end || !hf_walk_resync(&w)) {
                if (w.failed != HF_OK) {
                    return w.failed;
                }
                *q->next = hf_logr_first_behind(r, i, q->published);
                return hurt || hf_logr_missing_behind(r, i, w.position, q->end) ? HF_DAMAGED : HF_GONE;
            }
            hf_chain_jump(&chain, w.position);
            continue;
        }
        if (w.frame.flags & HF_FRAME_FIRST) {
            *position = w.position;
            *sqn = w.frame.sequence_number;
            hf_index_note(&r->index, s->header_bytes + (w.position - s->base), *sqn);
        }
        if (chain.next_sqn > q->sqn) {
            return arrived(&w, q, *sqn);
        }
        hf_walk_step(&w);
    }
}

/* ---- one try ---- */

int64_t hf_logr_here(struct hf_logr *r, const struct hf_request *q)
{
    int64_t i = segment_of(r, q->sqn);
    if (i < 0) {
        return before_all(r, q);
    }
    uint64_t void_from = hf_logr_void_from(r, i);
    if (q->sqn >= void_from) {
        return hf_logr_beyond(r, i, q, i + 1 < r->count ? r->segs[i + 1].base : q->end);
    }
    int64_t status = open_segment(r, i);
    if (status != HF_OK) {
        return status == HF_GONE ? HF_LOGR_RETRY : status;
    }
    uint64_t position, sqn;
    status = seek(r, i, q, &position, &sqn);
    if (status == HF_DAMAGED && !hf_seg_same(r->dir, &r->segs[i], r->head->pre.uuid)) {
        return HF_LOGR_RETRY;
    }
    status = status == HF_LOGR_FOUND ? hf_logr_copy(r, i, q, position, sqn) : status;
    /* What follows in this segment is void from there on: a newer incarnation has those numbers. */
    if (hf_logr_lacks(status) && *q->next > void_from) {
        *q->next = void_from;
    }
    return status;
}
