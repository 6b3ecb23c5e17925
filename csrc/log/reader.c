/* log_reader.c: reading a log from any process, with or without its store. See log.h rule 7.
 *
 * A reader reads a block into its own memory and verifies it there; so it does with the head, each time it looks. What it cannot verify has one of three
 * causes, told apart by listing the directory again: the segment was sealed here and another one follows; the file
 * was recycled under us (its name or uuid is gone: the bytes were rewritten after that, so a name that is still
 * there proves the bytes were its own); or it is damage. So a call that meets trouble refreshes its list once and
 * tries again before it says so. */
#include "log/private.h"
#include "base/failpoint.h"
#include "base/process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t hf_logr_open(int dir_fd, struct hf_logr **out)
{
    struct hf_logr *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    r->token = hf_process_token();
    r->head_fd = -1;
    r->head = calloc(1, sizeof *r->head);
    r->dir = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
    int64_t status = r->dir < 0 ? hf_errno() : HF_OK;
    status = r->head == NULL ? HF_ERRNO - ENOMEM : status;
    if (status == HF_OK) {
        status = hf_head_open(r->dir, &r->head_fd, r->head);
    }
    r->begin_version = UINT64_MAX; /* odd: never a version that was read */
    if (status != HF_OK) {
        hf_logr_close(r);
        return status;
    }
    *out = r;
    return HF_OK;
}

void hf_logr_close(struct hf_logr *r)
{
    hf_logr_fill_close(r);
    hf_seg_list_free(r->segs, r->count);
    free(r->fills.at);
    free(r->index.entries);
    free(r->head);
    if (r->head_fd >= 0) {
        close(r->head_fd);
    }
    if (r->dir >= 0) {
        close(r->dir);
    }
    free(r);
}

/* ---- the head ---- */

/* 1: the head that is open was replaced: the store has made it anew, in another layout perhaps (log_head_file.c). It says nothing
 * more, and nobody holds the lock on it. by_name: also where a copy of the directory has links to its files. */
static int64_t is_replaced(const struct hf_logr *r, int by_name)
{
    struct stat own, named;
    if (fstat(r->head_fd, &own) != 0) {
        return hf_errno();
    }
    if (own.st_nlink == 0 || !by_name) {
        return own.st_nlink == 0;
    }
    int fd = openat(r->dir, "head", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT ? 0 : hf_errno();
    }
    int64_t status = fstat(fd, &named) != 0 ? hf_errno() : named.st_ino != own.st_ino || named.st_dev != own.st_dev;
    close(fd);
    return status;
}

int64_t hf_logr_look(struct hf_logr *r, int by_name)
{
    struct hf_head copy;
    int fd;
    int64_t status = is_replaced(r, by_name);
    if (status > 0 && !HF_MUTANT("logr.old_head")) {
        status = hf_head_open(r->dir, &fd, &copy);
        if (status == HF_OK && memcmp(copy.pre.uuid, r->head->pre.uuid, HF_UUID) != 0) {
            close(fd);
            return HF_DAMAGED;
        }
        if (status == HF_OK) {
            hf_logr_fill_close(r); /* it reads through the same head */
            close(r->head_fd);
            r->head_fd = fd;
            r->begin_version = UINT64_MAX;
            r->reach.found = 0;
        }
        status = status == HF_AGAIN ? HF_OK : status; /* there is no other: what is open is the last one */
    }
    return status < 0 ? status : hf_head_look(r->head_fd, r->head);
}

int64_t hf_logr_range(struct hf_logr *r, uint64_t *oldest_sqn, uint64_t *next_sqn)
{
    HF_ENTER(r);
    int64_t status = hf_logr_reach(r);
    *next_sqn = r->reach.next_sqn;
    *oldest_sqn = r->head->oldest_sqn;
    return status;
}

/* ---- the list ---- */

/* Lists again; files that are still the same stay open. The incarnations first: whoever sees records of a new
 * one in the list sees its BEGIN too. */
int64_t hf_logr_refresh(struct hf_logr *r)
{
    struct hf_begins begins;
    int64_t status = hf_head_read(r->head_fd, r->head, &begins);
    if (status != HF_OK) {
        return status;
    }
    memcpy(r->begins, begins.at, sizeof r->begins);
    r->begins_whole = begins.whole;
    r->begin_count = begins.whole ? (int64_t)begins.count : 0; /* unreadable: the segments' headers say the rest */
    struct hf_seg *segs = NULL;
    int64_t n = hf_fill_list(r->dir, &r->fills);
    n = n == HF_OK ? hf_seg_list(r->dir, r->head->pre.uuid, &segs) : n;
    if (n < 0) {
        return n;
    }
    int64_t old = 0;
    for (int64_t i = 0; i < n; i++) {
        while (old < r->count && r->segs[old].base < segs[i].base) {
            old++;
        }
        if (old < r->count && r->segs[old].base == segs[i].base &&
            memcmp(r->segs[old].uuid, segs[i].uuid, HF_UUID) == 0) {
            segs[i].fd = r->segs[old].fd;
            segs[i].window = r->segs[old].window;
            r->segs[old].fd = -1;
            r->segs[old].window = (struct hf_window){0};
        }
    }
    hf_seg_list_free(r->segs, r->count);
    r->segs = segs;
    r->count = n;
    r->begin_version = begins.version;
    return HF_OK;
}

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

uint64_t hf_logr_void_from(const struct hf_logr *r, int64_t i)
{
    uint64_t own = hf_void_from(r->segs, r->count, i, r->begins, r->begin_count);
    return hf_void_tail(&r->segs[i], r->told, (uint64_t)r->told_count, own);
}

/* Position behind the last published byte of segment i. */
uint64_t hf_logr_upper(const struct hf_logr *r, int64_t i, uint64_t end)
{
    const struct hf_seg *s = &r->segs[i];
    uint64_t upper = s->limit;
    if (i + 1 < r->count && r->segs[i + 1].base < upper) {
        upper = r->segs[i + 1].base;
    }
    return end < upper ? end : upper;
}

/* What follows segment i in numbers: the next readable one's first, or what is published. */
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

/* Bytes are missing between segment i, whose frames end at `position`, and the next readable one. */
int hf_logr_missing_behind(const struct hf_logr *r, int64_t i, uint64_t position, uint64_t end)
{
    if (i + 1 < r->count) {
        return r->segs[i + 1].state != HF_SEG_GOOD || r->segs[i + 1].base != position;
    }
    return position < end;
}

/* The frames of segment i end before q->sqn. */
int64_t hf_logr_beyond(const struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position)
{
    if (!q->fresh) {
        return HF_LOGR_RETRY;
    }
    *q->next = hf_logr_first_behind(r, i, q->published);
    if (hf_logr_missing_behind(r, i, position, q->end)) {
        return HF_DAMAGED;
    }
    return *q->next < q->published ? HF_GONE : HF_AGAIN;
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

/* ---- reading ---- */

/* This log does not have the number: a fill may. */
static int is_lacking(int64_t status)
{
    return status == HF_GONE || status == HF_DAMAGED || status == HF_LOST || status == HF_HOLE;
}

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
    if (is_lacking(status) && *q->next > void_from) {
        *q->next = void_from;
    }
    return status;
}

int64_t hf_logr_read(struct hf_logr *r, uint64_t sqn, uint8_t *buf, uint64_t capacity, uint64_t *next)
{
    HF_ENTER(r);
    struct hf_request q = {.sqn = sqn, .buf = buf, .capacity = capacity, .next = next};
    for (int tries = 0; tries < 8; tries++) {
        *next = sqn;
        int64_t status = hf_logr_bounds(r, sqn, &q.published, &q.end);
        if (status != HF_OK) {
            return status;
        }
        uint64_t oldest = r->head->oldest_sqn;
        if (sqn >= q.published) {
            return HF_AGAIN;
        }
        if (sqn < oldest) {
            *next = oldest;
            return HF_GONE;
        }
        if (tries > 0 || r->head->begin_version != r->begin_version) {
            status = hf_logr_refresh(r);
            if (status < 0) {
                return status;
            }
            q.fresh = 1;
        }
        if (hf_logr_fill_goes_on(r, sqn)) {
            int64_t got = hf_logr_fill_more(r, &q);
            if (got != HF_AGAIN) {
                return got;
            }
        }
        status = hf_logr_here(r, &q);
        if (is_lacking(status)) {
            status = q.fresh ? hf_logr_fill(r, &q, status) : HF_LOGR_RETRY;
        }
        if (status != HF_LOGR_RETRY) {
            return status;
        }
    }
    return HF_AGAIN; /* segments are recycled faster than we can list them */
}

/* A log that began with a later number, and has let nothing go since, stands at position 0. */
int64_t hf_logr_let_go(const struct hf_logr *r, uint64_t sqn)
{
    uint64_t position = r->head->oldest_position; /* UINT64_MAX: a new head, which says nothing */
    return sqn < r->head->oldest_sqn && position > 0 && position < UINT64_MAX;
}

void hf_logr_uuid(const struct hf_logr *r, uint8_t *out)
{
    memcpy(out, r->head->pre.uuid, HF_UUID);
}

/* ---- incarnations ---- */

uint64_t hf_logr_incarnation(const struct hf_logr *r)
{
    return r->incarnation;
}

/* The head's table may have changed since the last read. HF_DAMAGED: it is not whole, so nobody knows what has begun. */
static int64_t renew_begins(struct hf_logr *r, int by_name)
{
    int64_t status = hf_logr_look(r, by_name);
    status = status == HF_OK && r->head->begin_version != r->begin_version ? hf_logr_refresh(r) : status;
    return status == HF_OK && !r->begins_whole ? HF_DAMAGED : status;
}

int64_t hf_logr_begin(struct hf_logr *r, uint64_t *incarnation, uint64_t *start_sqn)
{
    HF_ENTER(r);
    int64_t status = renew_begins(r, 0); /* asked for each block that is read */
    if (status < 0 || r->begin_count == 0) {
        return status;
    }
    *incarnation = r->begins[r->begin_count - 1].incarnation;
    *start_sqn = r->begins[r->begin_count - 1].start_sqn;
    return 1;
}

int64_t hf_logr_begins(struct hf_logr *r, struct hf_begin *out)
{
    HF_ENTER(r);
    int64_t status = renew_begins(r, 1);
    if (status < 0) {
        return status;
    }
    memcpy(out, r->begins, (size_t)r->begin_count * sizeof *out);
    return r->begin_count;
}

int64_t hf_logr_learn(struct hf_logr *r, const struct hf_begin *begins, uint64_t count)
{
    HF_ENTER(r);
    if (count > HF_INCARNATIONS) {
        return HF_USAGE;
    }
    memcpy(r->told, begins, count * sizeof *begins);
    r->told_count = (int64_t)count;
    return HF_OK;
}
