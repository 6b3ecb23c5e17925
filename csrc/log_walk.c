/* log_walk.c: how far a log goes, when it is opened: what is whole, damaged, torn, or not given by the disk. See log_open.c. */
#include "log_recovery.h"

#include <unistd.h>

static void take_sync(struct recovery *r, const struct hf_walk *w)
{
    if ((w->frame.flags & HF_FRAME_CONTROL) && w->frame.fragment == HF_CONTROL_SYNC && w->body.first <= w->position &&
        w->body.first > r->stable) {
        r->stable = w->body.first;
    }
}

/* Looks behind `w` for SYNC frames that prove what lies there durable. *farthest: the end of the farthest valid frame. */
static int64_t look_behind(struct recovery *r, struct hf_walk *w, uint64_t *farthest)
{
    *farthest = w->position;
    while (hf_walk_resync(w)) {
        *farthest = w->position + hf_frame_room((uint32_t)w->frame.commit);
        take_sync(r, w);
    }
    return w->failed;
}

/* The same for all segments from i on, of which none begins at 0. */
static int64_t look_into(struct recovery *r, int64_t i)
{
    struct hf_log *log = r->log;
    uint64_t farthest;
    for (int64_t j = i; j < log->count; j++) {
        struct hf_seg *s = &log->segs[j];
        struct hf_walk later;
        int64_t status = s->state == HF_SEG_GOOD ? hf_seg_open(log->dir, s) : HF_OK;
        if (status != HF_OK) {
            return status;
        }
        if (s->fd >= 0) {
            hf_walk_start(&later, s, s->base - HF_GRANULE,
                          UINT64_MAX); /* its base is behind another segment's: not 0 */
            status = look_behind(r, &later, &farthest);
            hf_seg_close(s);
        }
        if (status != HF_OK) {
            return status;
        }
    }
    return HF_OK;
}

/* The same for all that follows a bad place in segment i, whose walk is `w`. The head may be much older than the
 * frames: it is not synced with each group commit. It looks as far as if the successor were not there: a cut removes that, and
 * must not find more to be stable the next time. */
static int64_t look_beyond(struct recovery *r, int64_t i, struct hf_walk w, uint64_t *farthest)
{
    const struct hf_seg *s = &r->log->segs[i];
    uint64_t own = s->seal.end_position != 0 && s->seal.end_position < s->limit ? s->seal.end_position : s->limit;
    w.limit = own > w.position ? own : w.position;
    int unread;
    uint64_t claimed = w.position + hf_walk_claimed(&w, &unread);
    int64_t status = look_behind(r, &w, farthest);
    *farthest = claimed > *farthest ? claimed : *farthest;
    return status == HF_OK ? look_into(r, i + 1) : status;
}

/* From number `next` on the disk does not give what may have been stable. */
static void begin_unsure(struct recovery *r, uint64_t next)
{
    r->first_unsure = r->unsure && r->first_unsure < next ? r->first_unsure : next;
    r->next_unsure = UINT64_MAX;
    r->unsure = 1;
}

/* What is found again behind it begins with this number. */
static void end_unsure(struct recovery *r, uint64_t next)
{
    r->next_unsure = r->unsure && r->next_unsure == UINT64_MAX ? next : r->next_unsure;
}

/* Walks the frames of segment i. Sets r->end and r->next_sqn to where it got; r->torn if that is a cut. */
static int64_t walk_segment(struct recovery *r, int64_t i)
{
    struct hf_log *log = r->log;
    struct hf_seg *s = &log->segs[i];
    /* Where it must end: where its successor begins, or at its seal; else nobody knows. */
    const uint64_t unknown = UINT64_MAX;
    uint64_t expected = i + 1 < log->count ? log->segs[i + 1].base : s->seal.end_position;
    expected = expected == 0 ? unknown : expected;
    struct hf_chain chain = {.next_sqn = s->first_sqn, .whole = s->base, .whole_sqn = s->first_sqn};
    struct hf_walk w;
    int64_t status = hf_index_reset(&log->index, s->file_bytes);
    if (status == HF_OK) {
        status = hf_seg_open(log->dir, s);
    }
    if (status != HF_OK) {
        return status;
    }
    hf_walk_start(&w, s, s->base, expected);
    end_unsure(r, s->first_sqn);
    r->hurt = 0;
    r->lost_tail = 0;
    for (;;) {
        if (hf_walk_frame(&w) && hf_chain_take(&chain, &w.frame, &w.body, w.position)) {
            if (w.frame.flags & HF_FRAME_FIRST) {
                hf_index_note(&log->index, s->header_bytes + (w.position - s->base), w.frame.sequence_number);
            }
            take_sync(r, &w);
            hf_walk_step(&w);
            continue;
        }
        status = w.failed;
        if (status != HF_OK) {
            break;
        }
        r->end = chain.whole;
        r->next_sqn = chain.whole_sqn;
        if (chain.fragment == 0 && w.position == expected) {
            break; /* as it must be */
        }
        if (r->stable <= chain.whole) {
            uint64_t farthest;
            int unread;
            uint64_t claimed = hf_walk_claimed(&w, &unread);
            status = look_beyond(r, i, w, &farthest);
            if (status != HF_OK) {
                break;
            }
            unread |= log->blind && claimed != 0; /* without the head nothing tells a torn frame from a damaged one */
            unread |= r->unsure && i + 1 < log->count; /* no cut there */
            if (r->stable <= chain.whole && unread) {
                begin_unsure(r, chain.whole_sqn);
            } else if (r->stable <= chain.whole) {
                log->cut_bytes += farthest - chain.whole;
                r->torn = 1;
                break;
            }
        }
        log->damaged++;
        r->hurt = 1;
        uint64_t stopped = w.position;
        if (!hf_walk_resync(&w)) {
            status = w.failed;
            if (status == HF_OK && expected == unknown && !r->unsure && r->stable >= s->base) {
                int unread;
                w.position = r->stable;
                hf_walk_claimed(&w, &unread);
                if (unread) { /* it begins before what is known to be stable, and goes on behind */
                    begin_unsure(r, chain.whole_sqn);
                }
            }
            r->lost_tail = 1;
            r->end = expected != unknown ? expected : (r->stable < s->limit && !r->unsure ? r->stable : s->limit);
            if (r->unsure && r->next_unsure == UINT64_MAX && status == HF_OK) {
                uint64_t most;
                status = hf_unsure_frames(s, stopped, &most);
                r->most_unsure = chain.next_sqn + most;
            }
            break;
        }
        end_unsure(r, w.frame.sequence_number);
        hf_chain_jump(&chain, w.position);
    }
    hf_seg_close(s);
    return status;
}

/* Segment i has no header: damage, or what a power cut left of a roll. */
static int64_t pass_over(struct recovery *r, int64_t i)
{
    struct hf_log *log = r->log;
    int64_t status = r->stable <= log->segs[i].base ? look_into(r, i + 1) : HF_OK;
    const struct hf_seg *s = &log->segs[i];
    int unsure = s->unreadable && (r->stable <= s->base || i + 1 == log->count);
    if (r->stable <= s->base && !unsure) {
        r->torn = 1;
        r->last = i - 1;
        return status;
    }
    log->damaged++;
    r->lost_tail = 1;
    r->last = i;
    uint64_t bytes = s->file_bytes != 0 ? s->file_bytes : log->config.max_segment_bytes;
    uint64_t behind = unsure ? s->base + (bytes & ~(uint64_t)(HF_GRANULE - 1)) : r->stable;
    r->end = i + 1 < log->count ? log->segs[i + 1].base : behind;
    if (unsure) {
        begin_unsure(r, r->next_sqn);
        r->most_unsure = (log->head->next_sqn > r->next_sqn ? log->head->next_sqn : r->next_sqn) + bytes / HF_GRANULE;
    }
    return status;
}

/* What the head says of the beginning counts where no segment is left from which to tell. */
static int64_t begin_walk(struct recovery *r)
{
    struct hf_log *log = r->log;
    int64_t status = HF_OK;
    if (log->kept_position > r->stable) {
        return status;
    }
    if (log->count > 0 && log->segs[0].base > r->stable) { /* a name that did not arrive, before one that did */
        status = look_into(r, 0);
        r->torn = log->segs[0].base > r->stable;
        r->last = -1;
    }
    if ((log->count == 0 || r->torn) && r->stable > 0 && log->kept_sqn <= log->head->next_sqn) {
        r->end = log->kept_position;
        r->next_sqn = log->kept_sqn;
    }
    return status;
}

int64_t hf_recovery_walk(struct recovery *r)
{
    struct hf_log *log = r->log;
    int64_t status = begin_walk(r);
    r->first = 0;
    for (int64_t i = 0; i < log->count; i++) {
        const struct hf_seg *s = &log->segs[i];
        r->first = s->base < r->stable || (s->base == r->stable && s->state == HF_SEG_GOOD) ? i : r->first;
    }
    for (int64_t i = r->first; i < log->count && !r->torn && status == HF_OK; i++) {
        if (log->segs[i].state == HF_SEG_GOOD) {
            status = walk_segment(r, i);
            r->last = i;
        } else {
            status = pass_over(r, i);
        }
    }
    end_unsure(r, r->most_unsure);
    if (status == HF_OK && r->stable > r->end) { /* a file is missing, or shorter than it was */
        log->damaged += !r->lost_tail;
        r->end = r->stable;
        r->lost_tail = 1;
    }
    return status;
}
