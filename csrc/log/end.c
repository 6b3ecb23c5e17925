/* end.c: where a log ends, as its files tell it: for whoever opens it, and for readers of a log that nobody keeps
 * (beyond.c). Read-only.
 *
 * S is the highest position below which all is known to have been stable: the head's published end, every segment
 * header's synced_below, every valid SYNC frame. A bad frame below S is damage: kept, counted, stepped over. A bad
 * frame at or above S is a torn tail, whatever lies beyond: pages reach the disk in any order. Whole messages only:
 * a message whose last fragment is missing is torn as a whole. What the disk does not give at or above S may have been
 * stable: nothing is torn there, and the end is not known (unsure.c). */
#include "log/end.h"
#include "base/failpoint.h"
#include "log/frame.h"
#include "log/head.h"
#include "log/unsure.h"

#include <string.h>

/* ---- what is known before any frame is read ---- */

int64_t hf_seg_ghosts(const struct hf_seg *segs, int64_t n, uint64_t position, uint64_t sqn)
{
    int64_t i = 0;
    while (i < n && segs[i].base < position) {
        i++;
    }
    if (i == n || segs[i].base != position || segs[i].state != HF_SEG_GOOD || segs[i].first_sqn > sqn) {
        return 0;
    }
    while (i > 0 && segs[i - 1].state == HF_SEG_GOOD && segs[i - 1].seal.end_position == segs[i].base) {
        i--;
    }
    return i;
}

/* Where a frame can begin, at or below: what is appended elsewhere nobody finds. No position on disk is trusted to be one. */
static uint64_t granule(uint64_t position)
{
    return position & ~(uint64_t)(HF_GRANULE - 1);
}

void hf_ending_stable(struct hf_ending *e, const struct hf_seg *segs, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const struct hf_seg *s = &segs[i];
        if (s->state == HF_SEG_GOOD && s->synced_below > e->stable && s->synced_below <= s->base) {
            e->stable = granule(s->synced_below);
        }
    }
}

int hf_ending_leftover(const struct hf_ending *e, const struct hf_seg *segs, int64_t n, int64_t i)
{
    int half_made = segs[i].state == HF_SEG_BAD && !segs[i].unreadable && i == n - 1 && e->stable <= segs[i].base;
    return segs[i].state == HF_SEG_ALIEN || half_made;
}

/* ---- the walk ---- */

static void take_sync(struct hf_ending *e, const struct hf_walk *w)
{
    if ((w->frame.flags & HF_FRAME_CONTROL) && w->frame.fragment == HF_CONTROL_SYNC && w->body.first <= w->position &&
        w->body.first > e->stable) {
        e->stable = granule(w->body.first);
    }
}

/* Looks behind `w` for SYNC frames that prove what lies there durable. *farthest: the end of the farthest valid frame. */
static int64_t look_behind(struct hf_ending *e, struct hf_walk *w, uint64_t *farthest)
{
    *farthest = w->position;
    while (hf_walk_resync(w)) {
        *farthest = w->position + hf_frame_room((uint32_t)w->frame.commit);
        take_sync(e, w);
    }
    return w->failed;
}

/* The same for all segments from i on, of which none begins at 0. */
static int64_t look_into(struct hf_ending *e, int64_t i)
{
    uint64_t farthest;
    for (int64_t j = i; j < e->count; j++) {
        struct hf_seg *s = &e->segs[j];
        struct hf_walk later;
        int64_t status = s->state == HF_SEG_GOOD ? hf_seg_open(e->dir, s) : HF_OK;
        if (status == HF_OK && s->fd >= 0) {
            hf_walk_start(&later, s, s->base - HF_GRANULE,
                          UINT64_MAX); /* its base is behind another segment's: not 0 */
            status = look_behind(e, &later, &farthest);
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
static int64_t look_beyond(struct hf_ending *e, int64_t i, struct hf_walk w, uint64_t *farthest)
{
    const struct hf_seg *s = &e->segs[i];
    uint64_t own = s->seal.end_position != 0 && s->seal.end_position < s->limit ? s->seal.end_position : s->limit;
    w.limit = own > w.position ? own : w.position;
    int unread;
    uint64_t claimed = w.position + hf_walk_claimed(&w, &unread);
    int64_t status = look_behind(e, &w, farthest);
    *farthest = claimed > *farthest ? claimed : *farthest;
    return status == HF_OK ? look_into(e, i + 1) : status;
}

/* ---- what the disk does not give ---- */

/* From number `next` on it may have been stable. */
static void begin_unsure(struct hf_ending *e, uint64_t next)
{
    e->first_unsure = e->unsure && e->first_unsure < next ? e->first_unsure : next;
    e->next_unsure = UINT64_MAX;
    e->unsure = 1;
}

/* What is found again behind it begins with this number. */
static void end_unsure(struct hf_ending *e, uint64_t next)
{
    e->next_unsure = e->unsure && e->next_unsure == UINT64_MAX ? next : e->next_unsure;
}

/* The walk stands at a bad frame at or above S, behind the whole messages below `next`. 1: it ends there, torn. */
static int is_torn(struct hf_ending *e, int64_t i, struct hf_walk *w, uint64_t next)
{
    int unread;
    uint64_t claimed = hf_walk_claimed(w, &unread);
    unread |= e->blind && claimed != 0;      /* without the head nothing tells a torn frame from a damaged one */
    unread |= e->unsure && i + 1 < e->count; /* no cut there */
    if (unread && !HF_MUTANT("log.unread_is_torn")) {
        begin_unsure(e, next);
        return 0;
    }
    return 1;
}

/* No frame is found from position `stopped` on, where `chain` waited for the next one, to where segment i should end. */
static int64_t lose_tail(struct hf_ending *e, struct hf_seg *s, struct hf_walk *w, uint64_t expected, uint64_t stopped,
                         const struct hf_chain *chain)
{
    int64_t status = w->failed;
    if (status == HF_OK && expected == UINT64_MAX && !e->unsure && e->stable >= s->base) {
        int unread;
        w->position = e->stable;
        hf_walk_claimed(w, &unread);
        status = w->failed;
        if (unread) { /* it begins before what is known to be stable, and goes on behind */
            begin_unsure(e, chain->whole_sqn);
        }
    }
    e->lost_tail = 1;
    e->end = expected != UINT64_MAX ? expected : (e->stable < s->limit && !e->unsure ? e->stable : s->limit);
    if (status == HF_OK && e->unsure && e->next_unsure == UINT64_MAX && e->segment_bytes != 0) {
        uint64_t most;
        status = hf_unsure_frames(s, stopped, &most);
        e->most_unsure = chain->next_sqn + most;
    }
    return status;
}

/* ---- a segment ---- */

/* 1: the walk begins with the last message that an earlier one verified; it is still there. */
static int resume(const struct hf_ending *e, const struct hf_seg *s, struct hf_walk *w, struct hf_chain *chain)
{
    const struct hf_log_walked *from = e->from;
    if (from == NULL || from->end == 0 || memcmp(from->segment, s->uuid, HF_UUID) != 0 ||
        from->position % HF_GRANULE != 0 || from->position < s->base || from->position >= w->limit) {
        return 0;
    }
    struct hf_chain known = {.next_sqn = from->sqn, .whole = from->position, .whole_sqn = from->sqn}, there = known;
    struct hf_walk at = *w;
    at.position = at.verified = from->position;
    if (!hf_walk_frame(&at) || !hf_chain_take(&there, &at.frame, &at.body, at.position)) {
        return 0;
    }
    *w = at;
    *chain = known;
    return 1;
}

/* A frame was taken in; it begins the message (or is the record) that `fragment` 0 was expected for. */
static void note(struct hf_ending *e, const struct hf_seg *s, const struct hf_walk *w, uint32_t fragment)
{
    if (e->index != NULL && (w->frame.flags & HF_FRAME_FIRST)) {
        hf_index_note(e->index, s->header_bytes + (w->position - s->base), w->frame.sequence_number);
    }
    if (fragment == 0) {
        e->begun.position = w->position;
        e->begun.sqn = w->frame.sequence_number;
    }
    take_sync(e, w);
}

/* Walks the frames of segment i. Sets e->end and e->next_sqn to where it got; e->torn if that is a cut. */
static int64_t walk_segment(struct hf_ending *e, int64_t i)
{
    struct hf_seg *s = &e->segs[i];
    /* Where it must end: where its successor begins, or at its seal; else nobody knows. */
    const uint64_t unknown = UINT64_MAX;
    uint64_t expected = i + 1 < e->count ? e->segs[i + 1].base : s->seal.end_position;
    expected = expected == 0 ? unknown : expected;
    struct hf_chain chain = {.next_sqn = s->first_sqn, .whole = s->base, .whole_sqn = s->first_sqn};
    struct hf_walk w;
    int64_t status = e->index != NULL ? hf_index_reset(e->index, s->file_bytes) : HF_OK;
    if (status == HF_OK) {
        status = hf_seg_open(e->dir, s);
    }
    if (status != HF_OK) {
        return status;
    }
    hf_walk_start(&w, s, s->base, expected);
    end_unsure(e, s->first_sqn);
    int resumed = resume(e, s, &w, &chain);
    e->hurt = 0;
    e->lost_tail = 0;
    e->walked.end = 0;
    for (;;) {
        uint32_t fragment = chain.fragment;
        if (hf_walk_frame(&w) && hf_chain_take(&chain, &w.frame, &w.body, w.position)) {
            note(e, s, &w, fragment);
            if (chain.fragment == 0) {
                e->walked.position = e->begun.position;
                e->walked.sqn = e->begun.sqn;
                e->walked.end = chain.whole;
            }
            hf_walk_step(&w);
            continue;
        }
        status = w.failed;
        if (status != HF_OK) {
            break;
        }
        e->end = chain.whole;
        e->next_sqn = chain.whole_sqn;
        if (chain.fragment == 0 && w.position == expected) {
            break; /* as it must be */
        }
        if (e->stable <= chain.whole) {
            uint64_t farthest = chain.whole;
            if (!resumed || e->from->end != chain.whole || i + 1 < e->count) { /* else it was looked at then */
                status = look_beyond(e, i, w, &farthest);
            }
            if (status != HF_OK) {
                break;
            }
            if (e->stable <= chain.whole && is_torn(e, i, &w, chain.whole_sqn)) {
                e->cut_bytes += farthest - chain.whole;
                e->torn = 1;
                status = w.failed;
                break;
            }
        }
        e->damaged++;
        e->hurt = 1;
        uint64_t stopped = w.position;
        if (!hf_walk_resync(&w)) {
            status = lose_tail(e, s, &w, expected, stopped, &chain);
            break;
        }
        end_unsure(e, w.frame.sequence_number);
        hf_chain_jump(&chain, w.position);
    }
    hf_seg_close(s);
    return status;
}

/* Segment i has no header: damage, or what a power cut left of a roll. */
static int64_t pass_over(struct hf_ending *e, int64_t i)
{
    const struct hf_seg *s = &e->segs[i];
    int64_t status = e->stable <= s->base ? look_into(e, i + 1) : HF_OK;
    int unsure = s->unreadable && (e->stable <= s->base || i + 1 == e->count);
    if (e->stable <= s->base && !unsure) {
        e->torn = 1;
        e->last = i - 1;
        return status;
    }
    e->damaged++;
    e->lost_tail = 1;
    e->last = i;
    uint64_t bytes = s->file_bytes != 0 ? s->file_bytes : e->segment_bytes;
    uint64_t behind = unsure ? s->base + granule(bytes) : e->stable;
    e->end = i + 1 < e->count ? e->segs[i + 1].base : behind;
    if (unsure) {
        begin_unsure(e, e->next_sqn);
        e->most_unsure = (e->told_sqn > e->next_sqn ? e->told_sqn : e->next_sqn) + bytes / HF_GRANULE;
    }
    return status;
}

/* What the head says of the beginning counts where no segment is left from which to tell. */
static int64_t begin_walk(struct hf_ending *e)
{
    int64_t status = HF_OK;
    if (e->kept_position > e->stable) {
        return status;
    }
    if (e->count > 0 && e->segs[0].base > e->stable) { /* a name that did not arrive, before one that did */
        status = look_into(e, 0);
        e->torn = e->segs[0].base > e->stable;
        e->last = -1;
    }
    if ((e->count == 0 || e->torn) && e->stable > 0 && e->kept_sqn <= e->told_sqn) {
        e->end = granule(e->kept_position);
        e->next_sqn = e->kept_sqn;
    }
    return status;
}

int64_t hf_ending_walk(struct hf_ending *e)
{
    e->last = e->count - 1;
    int64_t status = begin_walk(e);
    e->first = 0;
    for (int64_t i = 0; i < e->count; i++) {
        const struct hf_seg *s = &e->segs[i];
        int there = s->base < e->stable || (s->base == e->stable && s->state == HF_SEG_GOOD);
        int known = e->from != NULL && e->from->end > s->base && memcmp(e->from->segment, s->uuid, HF_UUID) == 0;
        e->first = there || known ? i : e->first;
    }
    for (int64_t i = e->first; i < e->count && !e->torn && status == HF_OK; i++) {
        if (e->segs[i].state == HF_SEG_GOOD) {
            status = walk_segment(e, i);
            e->last = i;
        } else {
            status = pass_over(e, i);
        }
    }
    end_unsure(e, e->most_unsure);
    if (status == HF_OK && e->stable > e->end) { /* a file is missing, or shorter than it was */
        e->damaged += !e->lost_tail;
        e->end = e->stable;
        e->lost_tail = 1;
    }
    if (status != HF_OK || e->lost_tail || e->unsure || e->walked.end == 0 || e->last != e->count - 1) {
        e->walked.end = 0;
    } else {
        memcpy(e->walked.segment, e->segs[e->last].uuid, HF_UUID);
    }
    return status;
}

uint64_t hf_ending_number(const struct hf_ending *e, const struct hf_begin *begins, uint64_t count)
{
    uint64_t next = e->next_sqn, told = e->told_sqn;
    if (e->lost_tail && told > next && told - next <= e->end / HF_GRANULE) {
        next = told;
    }
    /* Begun, but nothing appended since. An unreadable last segment may be the newest incarnation's own. */
    const struct hf_seg *last = e->last >= 0 ? &e->segs[e->last] : NULL;
    int readable = last != NULL && last->state == HF_SEG_GOOD;
    return readable ? hf_void_tail(last, begins, count, next) : next;
}
