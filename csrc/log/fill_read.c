/* fill_read.c: a reader's way into fills, for numbers that the segments cannot give. See fill.c and reader.c.
 *
 * To a reader a fill is a log of one segment: the same walk, the same verification on the copy. The directory was
 * listed in this very call, so that a fill that has just appeared is found; and where a fill follows, no step over
 * what is missing is longer than up to it. */
#include "log/reader.h"
#include "log/head.h"

#include <stdlib.h>

/* r->fill becomes the fill of this range, as it is now. */
static int64_t turn_to(struct hf_logr *r, struct hf_range range)
{
    const struct hf_seg *open = r->fill == NULL ? NULL : r->fill->segs;
    if (open != NULL && open->first_sqn == range.first && open->fill_next == range.next &&
        hf_seg_same(r->dir, open, NULL)) {
        return HF_OK;
    }
    hf_logr_fill_close(r);
    struct hf_logr *fill = calloc(1, sizeof *fill);
    struct hf_seg *s = calloc(1, sizeof *s);
    int64_t status = fill == NULL || s == NULL ? HF_ERRNO - ENOMEM : hf_fill_open(r->dir, r->head->pre.uuid, range, s);
    if (status != HF_OK) {
        free(fill);
        free(s);
        return status;
    }
    fill->head = r->head;
    fill->head_fd = r->head_fd;
    fill->dir = r->dir;
    fill->segs = s;
    fill->count = 1;
    r->fill = fill;
    return HF_OK;
}

/* Reads from r->fill. > 0 or HF_SMALL: the answer. Else *next: where to go on, as far as this fill knows. */
static int64_t read_open(struct hf_logr *r, const struct hf_request *q, uint64_t *next)
{
    struct hf_logr *fill = r->fill;
    const struct hf_seg *s = &fill->segs[0];
    struct hf_request here = *q;
    /* Whatever voids it, as one BEGIN that is later than any. */
    fill->begins[0].incarnation = UINT64_MAX;
    fill->begins[0].start_sqn =
        hf_logr_told_void(r, s, hf_fill_void_from(s, r->segs, r->count, r->begins, r->begin_count));
    fill->begin_count = 1;
    here.published = s->fill_next;
    here.end = s->limit;
    here.fresh = 1;
    here.next = next;
    *next = s->fill_next;
    r->incarnation = s->incarnation;
    return hf_logr_here(fill, &here);
}

int hf_logr_fill_goes_on(const struct hf_logr *r, uint64_t sqn)
{
    return r->fill != NULL && r->fill->cursor != 0 && r->fill->cursor_sqn == sqn && sqn < r->fill->segs[0].fill_next;
}

int64_t hf_logr_fill_more(struct hf_logr *r, const struct hf_request *q)
{
    uint64_t next;
    int64_t got = read_open(r, q, &next);
    if (got > 0 || got == HF_SMALL) {
        *q->next = next;
        return got;
    }
    return HF_AGAIN;
}

int64_t hf_logr_fill(struct hf_logr *r, const struct hf_request *q, int64_t status)
{
    uint64_t stop = *q->next;
    for (int64_t i = 0; i < r->fills.count; i++) {
        struct hf_range range = r->fills.at[i];
        if (range.first > q->sqn) {
            stop = range.first < stop ? range.first : stop;
            break;
        }
        if (range.next <= q->sqn || turn_to(r, range) != HF_OK) {
            continue;
        }
        uint64_t next;
        int64_t got = read_open(r, q, &next);
        if (got > 0 || got == HF_SMALL) {
            *q->next = next;
            return got;
        }
        stop = next > q->sqn && next < stop ? next : stop;
    }
    *q->next = stop;
    return status;
}
