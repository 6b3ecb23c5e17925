/* check.c: verifies every published frame of a log, read-only, beside a live store.
 *
 * The published end, or the one behind a head that nobody keeps (beyond.c), is found before the directory is listed,
 * so that all below it must be in the list. A segment that was recycled while we read it is recognised afterwards (its
 * name or uuid is gone) and what was found in it is taken back.
 *
 * The fills are verified first: what they have is no finding later on. */
#include "log/log.h"
#include "base/status.h"
#include "log/end.h"
#include "log/fill.h"
#include "log/frame.h"
#include "log/head.h"
#include "log/reader.h"
#include "log/segment.h"
#include "log/window.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct check {
    int dir;
    const uint8_t *source_uuid;
    struct hf_finding *out;
    int64_t room;
    int64_t found;
    uint64_t end;       /* published */
    uint64_t published; /* next number */
    struct hf_seg *segs;
    int64_t count;
    int64_t first; /* of segs that is not a ghost (hf_seg_ghosts) */
    struct hf_begin begins[HF_INCARNATIONS];
    int64_t begin_count;
    uint64_t behind;          /* number behind the last segment whose frames were checked */
    struct hf_ranges covered; /* by fills that verify */
    int64_t failed;           /* an errno, which ends the check */
    struct hf_check_summary sum;
};

static void report(struct check *k, const struct hf_finding *f)
{
    if (k->found < k->room) {
        k->out[k->found] = *f;
    }
    k->found++;
}

/* Where the fills' cover of `sqn` ends; `sqn` itself if there is none, and then *gap_end is where one begins. */
static uint64_t covered_to(const struct check *k, uint64_t sqn, uint64_t *gap_end)
{
    uint64_t to = sqn;
    for (int64_t i = 0; i < k->covered.count; i++) {
        const struct hf_range *c = &k->covered.at[i];
        if (c->first <= sqn && c->next > to) {
            to = c->next;
        } else if (c->first > sqn && c->first < *gap_end) {
            *gap_end = c->first;
        }
    }
    return to;
}

/* Numbers that no fill has: one finding for each stretch of them; none if that is nothing. One that costs no number to
 * begin with is reported as it is. */
static void report_uncovered(struct check *k, const struct hf_finding *f)
{
    if (f->first_sqn == f->next_sqn) {
        report(k, f);
    }
    for (uint64_t sqn = f->first_sqn; sqn < f->next_sqn;) {
        uint64_t stop = f->next_sqn, to = covered_to(k, sqn, &stop);
        if (to == sqn) {
            struct hf_finding part = *f;
            part.first_sqn = sqn;
            part.next_sqn = to = stop;
            report(k, &part);
        } else {
            to = to < f->next_sqn ? to : f->next_sqn;
            k->sum.filled += to - sqn;
        }
        sqn = to;
    }
}

/* First number behind segment i that a header tells. */
static uint64_t number_behind(const struct check *k, int64_t i)
{
    uint64_t first = k->published;
    for (int64_t j = i + 1; j < k->count; j++) {
        if (k->segs[j].state == HF_SEG_GOOD && k->segs[j].first_sqn < first) {
            first = k->segs[j].first_sqn;
        }
    }
    return first;
}

static uint64_t upper_end(const struct check *k, int64_t i)
{
    uint64_t upper = i + 1 < k->count && k->segs[i + 1].base < k->end ? k->segs[i + 1].base : k->end;
    return upper > k->segs[i].base ? upper : k->segs[i].base;
}

/* A bad range in segment i begins where the chain stands. Moves the walk behind it. Numbers from `void_from` on are no
 * loss. */
static void report_damage(struct check *k, int64_t i, struct hf_walk *w, struct hf_chain *chain, uint64_t void_from)
{
    struct hf_finding f = {.position = chain->whole, .first_sqn = chain->whole_sqn, .segment = w->base};
    uint64_t upper = upper_end(k, i);
    int unread;
    hf_walk_claimed(w, &unread);
    f.kind = unread ? HF_FOUND_UNREADABLE : HF_FOUND_DAMAGE;
    if (w->position >= w->limit || !hf_walk_resync(w)) {
        f.bytes = upper - f.position;
        f.next_sqn = number_behind(k, i);
        f.kind = w->limit < upper && f.position == w->limit ? HF_FOUND_GAP : f.kind;
    } else {
        f.bytes = w->position - f.position;
        f.next_sqn = w->frame.sequence_number;
        hf_chain_jump(chain, w->position);
    }
    f.next_sqn = f.next_sqn < void_from ? f.next_sqn : void_from;
    f.next_sqn = f.next_sqn > f.first_sqn ? f.next_sqn : f.first_sqn;
    report_uncovered(k, &f);
}

static void check_frames(struct check *k, int64_t i)
{
    struct hf_seg *s = &k->segs[i];
    struct hf_chain chain = {.next_sqn = s->first_sqn, .whole = s->base, .whole_sqn = s->first_sqn};
    uint64_t void_from = hf_void_from(k->segs, k->count, i, k->begins, k->begin_count), upper = upper_end(k, i);
    struct hf_walk w;
    uint64_t sealed = s->seal.end_position;
    hf_walk_start(&w, s, s->base, sealed != 0 && sealed < upper ? sealed : upper);
    while (chain.fragment != 0 || w.position < upper) {
        if (!hf_walk_frame(&w) || !hf_chain_take(&chain, &w.frame, &w.body, w.position)) {
            report_damage(k, i, &w, &chain, void_from);
            k->failed = w.failed;
            if (w.position >= w.limit) {
                break;
            }
            continue;
        }
        k->sum.frames++;
        k->sum.bytes += hf_frame_room((uint32_t)w.frame.commit);
        k->sum.messages += (w.frame.flags & HF_FRAME_LAST) && w.frame.sequence_number < void_from;
        hf_walk_step(&w);
    }
    k->behind = chain.whole_sqn;
}

static void check_header(struct check *k, int64_t i)
{
    const struct hf_seg *s = &k->segs[i];
    struct hf_finding f = {.position = s->base, .segment = s->base};
    f.kind = s->unreadable ? HF_FOUND_UNREADABLE : HF_FOUND_HEADER;
    if (s->state == HF_SEG_GOOD) { /* a copy, the seal or an unused byte is wrong: nothing is lost by it */
        f.first_sqn = f.next_sqn = s->first_sqn;
        report(k, &f);
        return;
    }
    f.bytes = upper_end(k, i) - s->base;
    f.next_sqn = number_behind(k, i);
    f.first_sqn = k->behind;
    for (int64_t j = i - 1; j >= 0; j--) {
        if (k->segs[j].state == HF_SEG_GOOD) {
            f.first_sqn = k->segs[j].seal.end_position != 0 ? k->segs[j].seal.next_sqn : k->behind;
            break;
        }
    }
    f.first_sqn = f.first_sqn < f.next_sqn ? f.first_sqn : f.next_sqn;
    if (f.bytes == 0 && !s->unreadable) { /* nothing published in it: a roll that a crash cut short */
        f.kind = HF_FOUND_TORN;
    }
    report_uncovered(k, &f);
}

/* 1: no index entry where none can be. The seal writes all that a segment can have; until then what a recycled file had
 * is there. The rest of the area is never written. */
static int index_rest_zeros(struct check *k, struct hf_seg *s)
{
    uint64_t most = (s->file_bytes + HF_INDEX_STEP - 1) / HF_INDEX_STEP;
    uint64_t count = s->seal.end_position != 0 ? s->seal.index_count : most;
    uint64_t from = HF_HEADER_PAGE + count * sizeof(struct hf_index_entry);
    int64_t status = HF_OK;
    const uint8_t *rest = from < s->header_bytes ? hf_seg_bytes(s, from, s->header_bytes - from, &status) : NULL;
    uint64_t bytes = rest == NULL ? 0 : s->header_bytes - from;
    k->failed = status != HF_OK ? status : k->failed;
    return status == HF_OK && (rest == NULL || (hf_zeros(rest, bytes) && !hf_seg_unread(s, from, bytes)));
}

/* The index is a cache that readers rebuild: wrong, but nothing is lost by it. */
static void check_index(struct check *k, int64_t i)
{
    struct hf_seg *s = &k->segs[i];
    struct hf_index index = {0};
    if (hf_index_reset(&index, s->file_bytes) != HF_OK) {
        return;
    }
    int wanted = s->seal.end_position != 0 && s->seal.index_count != 0;
    int64_t count = wanted ? hf_seg_index(s, index.entries, index.max) : 1;
    int whole = index_rest_zeros(k, s);
    k->failed = count < 0 ? count : k->failed;
    if (count == 0 || !whole) {
        struct hf_finding f = {.position = s->base, .segment = s->base, .kind = HF_FOUND_HEADER};
        f.first_sqn = f.next_sqn = s->first_sqn;
        report(k, &f);
    }
    free(index.entries);
}

static int64_t check_segment(struct check *k, int64_t i)
{
    const struct hf_check_summary before = k->sum;
    int64_t found = k->found, status = HF_OK;
    struct hf_seg *s = &k->segs[i];
    if (s->state != HF_SEG_GOOD || s->flaws) {
        check_header(k, i);
    }
    if (s->state == HF_SEG_GOOD) {
        status = hf_seg_open(k->dir, s);
        if (status == HF_OK) {
            check_frames(k, i);
            check_index(k, i);
            hf_seg_close(s);
            status = k->failed;
        }
    }
    k->sum.segments++;
    if (status == HF_GONE || (k->found > found && !hf_seg_same(k->dir, s, k->source_uuid))) {
        k->sum = before;
        k->found = found;
        status = HF_OK;
    }
    return status;
}

/* The first file must begin at or below where the head says that the log begins. */
static void check_front(struct check *k, const struct hf_head *head)
{
    uint64_t oldest = head->oldest_position, oldest_sqn = head->oldest_sqn;
    k->behind = oldest_sqn;
    k->first = hf_seg_ghosts(k->segs, k->count, oldest, oldest_sqn);
    uint64_t first = k->first < k->count ? k->segs[k->first].base : k->end;
    if (first > oldest && hf_head_speaks(head)) {
        struct hf_finding f = {.position = oldest, .bytes = first - oldest, .segment = first, .kind = HF_FOUND_GAP};
        f.next_sqn = number_behind(k, k->first - 1);
        f.first_sqn = oldest_sqn < f.next_sqn ? oldest_sqn : f.next_sqn;
        report_uncovered(k, &f);
    }
}

/* ---- fills ---- */

/* Verifies one fill. What it has below `stop` is covered; what it should have and has not goes into `hurt`. */
static int64_t walk_fill(struct check *k, struct hf_seg *s, uint64_t stop, struct hf_ranges *hurt)
{
    struct hf_chain chain = {.next_sqn = s->first_sqn, .whole_sqn = s->first_sqn};
    struct hf_walk w;
    uint64_t from = s->first_sqn;
    int64_t status = HF_OK;
    hf_walk_start(&w, s, 0, s->limit);
    while (status == HF_OK) {
        int good = hf_walk_frame(&w) && hf_chain_take(&chain, &w.frame, &w.body, w.position);
        if (good) {
            hf_walk_step(&w);
            continue;
        }
        uint64_t to = chain.whole_sqn < stop ? chain.whole_sqn : stop;
        status = from < to ? hf_ranges_add(&k->covered, from, to) : HF_OK;
        int more = w.position < w.limit && hf_walk_resync(&w);
        status = w.failed != HF_OK ? w.failed : status;
        from = more ? w.frame.sequence_number : s->fill_next;
        from = from < stop ? from : stop;
        if (status == HF_OK && to < from) {
            status = hf_ranges_add(hurt, to, from);
        }
        if (!more) {
            break;
        }
        hf_chain_jump(&chain, w.position);
    }
    return status;
}

static int64_t check_fills(struct check *k, const struct hf_head *head)
{
    struct hf_ranges fills = {0}, hurt = {0};
    uint64_t oldest = head->oldest_sqn;
    int64_t status = hf_fill_list(k->dir, &fills);
    for (int64_t i = 0; i < fills.count && status == HF_OK; i++) {
        struct hf_seg s;
        struct hf_range range = fills.at[i];
        int64_t opened = range.next > oldest ? hf_fill_open(k->dir, head->pre.uuid, range, &s) : HF_GONE;
        if (opened == HF_OK) {
            status = walk_fill(k, &s, hf_fill_void_from(&s, k->segs, k->count, k->begins, k->begin_count), &hurt);
            hf_seg_close(&s);
        } else if (opened > HF_ERRNO && opened != HF_GONE) {
            status = hf_ranges_add(&hurt, range.first, range.next);
        } else if (opened <= HF_ERRNO && opened != HF_ERRNO - ENOENT) { /* not there: expired by now */
            status = opened; /* a call failed, which says nothing of the file */
        }
        k->sum.fills++;
    }
    for (int64_t i = 0; i < hurt.count && status == HF_OK; i++) {
        struct hf_finding f = {.first_sqn = hurt.at[i].first, .next_sqn = hurt.at[i].next, .kind = HF_FOUND_FILL};
        report_uncovered(k, &f);
    }
    k->sum.filled = 0;
    free(fills.at);
    free(hurt.at);
    return status;
}

static int64_t check_log(struct check *k, int head_fd, struct hf_head *head)
{
    struct hf_begins begins;
    k->source_uuid = head->pre.uuid;
    int64_t status = hf_head_read(head_fd, head, &begins);
    if (status != HF_OK) {
        return status;
    }
    memcpy(k->begins, begins.at, sizeof k->begins);
    k->begin_count = begins.whole ? (int64_t)begins.count : 0;
    k->count = hf_seg_list(k->dir, head->pre.uuid, &k->segs);
    if (k->count < 0) {
        return k->count;
    }
    status = hf_head_look(head_fd, head); /* what has gone by now: the head says so before its file goes */
    if (status == HF_OK) {
        status = check_fills(k, head);
    }
    if (status == HF_OK) {
        check_front(k, head);
    }
    for (int64_t i = k->first; i < k->count && status == HF_OK; i++) {
        status = check_segment(k, i);
    }
    k->sum.oldest_sqn = head->oldest_sqn;
    k->sum.next_sqn = k->published;
    hf_seg_list_free(k->segs, k->count);
    return status == HF_OK ? k->found : status;
}

/* As readers find it: with the store dead, the head may be older than the frames. */
static int64_t find_end(struct check *k)
{
    struct hf_logr *r = NULL;
    int64_t status = hf_logr_open(k->dir, &r);
    if (status == HF_OK) {
        status = hf_logr_reach(r);
        k->published = r->reach.next_sqn;
        k->end = r->reach.end;
        hf_logr_close(r);
    }
    return status;
}

int64_t hf_log_check(int dir_fd, struct hf_finding *out, int64_t n, struct hf_check_summary *summary)
{
    struct check *k = calloc(1, sizeof *k);
    struct hf_head head;
    int head_fd = -1;
    if (k == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    k->out = out;
    k->room = n;
    k->dir = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
    int64_t status = k->dir < 0 ? hf_errno() : hf_head_open(k->dir, &head_fd, &head);
    if (status == HF_OK) {
        status = find_end(k);
    }
    if (status == HF_OK) {
        status = check_log(k, head_fd, &head);
        *summary = k->sum;
    }
    if (head_fd >= 0) {
        close(head_fd);
    }
    if (k->dir >= 0) {
        close(k->dir);
    }
    free(k->covered.at);
    free(k);
    return status;
}
