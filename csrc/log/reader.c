/* reader.c: reading a log from any process, with or without its store. See log.h rule 7.
 *
 * A reader reads a block into its own memory and verifies it there; so it does with the head, each time it
 * looks. What it cannot verify has one of three causes, told apart by listing the directory again: the segment was sealed here and another one follows; the file
 * was recycled under us (its name or uuid is gone: the bytes were rewritten after that, so a name that is still
 * there proves the bytes were its own); or it is damage. So a call that meets trouble refreshes its list once and
 * tries again before it says so. */
#include "log/reader.h"
#include "base/process.h"
#include "log/head.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

/* ---- reading ---- */

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
        if (sqn < oldest && r->told_count == 0) {
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
        uint64_t holds = hf_logr_holds_below(r);
        /* Behind, there is no answer for good, whatever follows in this log; but a fill may be of what is valid there. */
        int behind = sqn >= holds;
        if (sqn < oldest && !behind) {
            *next = oldest < holds ? oldest : holds;
            return HF_GONE;
        }
        q.limited = holds < q.published;
        q.published = q.limited ? holds : q.published;
        if (hf_logr_fill_goes_on(r, sqn)) {
            int64_t got = hf_logr_fill_more(r, &q);
            if (got != HF_AGAIN) {
                return got;
            }
        }
        status = behind ? HF_AGAIN : hf_logr_here(r, &q);
        if (behind || hf_logr_lacks(status)) {
            status = q.fresh ? hf_logr_fill(r, &q, status) : HF_LOGR_RETRY;
        }
        if (status != HF_LOGR_RETRY) {
            return status;
        }
    }
    return HF_AGAIN; /* segments are recycled faster than we can list them */
}

int64_t hf_logr_range(struct hf_logr *r, uint64_t *oldest_sqn, uint64_t *next_sqn)
{
    HF_ENTER(r);
    int64_t status = hf_logr_reach(r);
    *next_sqn = r->reach.next_sqn;
    *oldest_sqn = r->head->oldest_sqn;
    return status;
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

/* The table first: a BEGIN lowers the end before it is in the table. One that has come meanwhile is seen by the head's version. */
int64_t hf_logr_view(struct hf_logr *r, struct hf_begin *out, uint64_t *next_sqn)
{
    HF_ENTER(r);
    int64_t status = renew_begins(r, 1);
    for (int tries = 0; status == HF_OK && tries < 8; tries++) {
        uint64_t version = r->begin_version;
        int64_t reached = hf_logr_reach(r);
        *next_sqn = reached == HF_OK ? r->reach.next_sqn : 0;
        status = renew_begins(r, 0);
        if (status == HF_OK && version == r->begin_version) {
            memcpy(out, r->begins, (size_t)r->begin_count * sizeof *out);
            return r->begin_count;
        }
    }
    return status == HF_OK ? HF_AGAIN : status; /* a store that begins anew all the time: ask again */
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
