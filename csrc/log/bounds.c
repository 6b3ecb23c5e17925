/* bounds.c: what a reader may take from each segment of its list: up to which position, and up to which
 * number. See reader.c. */
#include "log/reader.h"
#include "log/head.h"

/* A table that is full has forgotten what came before. A BEGIN that this log has missed, too, may have made void what it has under
 * its own newest one: nobody knows from which number on. */
uint64_t hf_logr_forgotten_from(const struct hf_logr *r)
{
    const struct hf_begin *own = r->begin_count > 0 ? &r->begins[r->begin_count - 1] : NULL;
    int forgot = own != NULL && r->told_count == HF_INCARNATIONS && own->incarnation + 1 < r->told[0].incarnation;
    return forgot ? own->start_sqn : UINT64_MAX;
}

uint64_t hf_logr_holds_below(const struct hf_logr *r)
{
    uint64_t own = r->begin_count > 0 ? r->begins[r->begin_count - 1].incarnation : 0,
             first = hf_logr_forgotten_from(r);
    for (int64_t j = 0; r->begins_whole && j < r->told_count; j++) {
        if (r->told[j].incarnation > own && r->told[j].start_sqn < first) {
            first = r->told[j].start_sqn;
        }
    }
    return first;
}

uint64_t hf_logr_told_void(const struct hf_logr *r, const struct hf_seg *s, uint64_t own)
{
    uint64_t told = hf_void_tail(s, r->told, (uint64_t)r->told_count, own), forgotten = hf_logr_forgotten_from(r);
    return told < forgotten ? told : forgotten;
}

uint64_t hf_logr_void_from(const struct hf_logr *r, int64_t i)
{
    return hf_logr_told_void(r, &r->segs[i], hf_void_from(r->segs, r->count, i, r->begins, r->begin_count));
}

uint64_t hf_logr_upper(const struct hf_logr *r, int64_t i, uint64_t end)
{
    const struct hf_seg *s = &r->segs[i];
    uint64_t upper = s->limit;
    if (i + 1 < r->count && r->segs[i + 1].base < upper) {
        upper = r->segs[i + 1].base;
    }
    return end < upper ? end : upper;
}

uint64_t hf_logr_first_behind(const struct hf_logr *r, int64_t i, uint64_t published)
{
    uint64_t first = published;
    for (int64_t j = i + 1; j < r->count; j++) {
        if (r->segs[j].state == HF_SEG_GOOD && r->segs[j].first_sqn < first) {
            first = r->segs[j].first_sqn;
        }
    }
    return first;
}

int hf_logr_missing_behind(const struct hf_logr *r, int64_t i, uint64_t position, uint64_t end)
{
    if (i + 1 < r->count) {
        return r->segs[i + 1].state != HF_SEG_GOOD || r->segs[i + 1].base != position;
    }
    return position < end;
}

int64_t hf_logr_beyond(const struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position)
{
    if (!q->fresh) {
        return HF_LOGR_RETRY;
    }
    *q->next = hf_logr_first_behind(r, i, q->published);
    if (hf_logr_missing_behind(r, i, position, q->end)) {
        return HF_DAMAGED;
    }
    return *q->next < q->published || q->limited ? HF_GONE : HF_AGAIN;
}
