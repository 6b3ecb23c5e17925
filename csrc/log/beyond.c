/* beyond.c: readers: how far a log goes that nobody keeps.
 *
 * The published end in `head` is true while a process has the log open for writing. No group commit syncs the head, so
 * the one that a power cut leaves is as old as the kernel's last write-back; a snapshot, a remounted image or a volume
 * that is attached again do the same within one boot. Such a head is a lower bound, and the end is found by the walk
 * that hf_log_open would do (end.c).
 *
 * Who keeps a log is told by an open-file-description lock on its head, taken when hf_log_open has published what it
 * found and gone when that open file is closed, however its process ends. It is on the very file that a reader has
 * open: so it is right in every mount namespace and with all other files gone, a copied or reverted directory has
 * none, a store that holds its directory but could not open this log keeps nothing, and several stores in one process
 * are told apart. (The lock on the store's directory is a POSIX lock: who looks at it from the store's own process,
 * and closes what it opened for that, drops it.) A child of fork may hold it for longer than its store lived. That is
 * no harm: all that was called stable is below the head that the dead store left in the page cache.
 *
 * Without a lock there is a walk: it costs time beside a writer that takes none, and is never wrong. What changes
 * under it is seen afterwards, by the head and by the segments' uuids, and then it is done again. A log that was
 * poisoned in this boot ends where its head says: what lies beyond was never on disk. */
#include "log/reader.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/end.h"
#include "log/head.h"
#include "log/unsure.h"

#include <fcntl.h>
#include <string.h>

void hf_head_keep(int head_fd)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET}; /* shared: a forked child may still hold another */
    (void)fcntl(head_fd, F_OFD_SETLK, &lock);                      /* a file system without locks: readers walk */
}

/* 1: a process keeps the log whose head is open here. 0: none is known to. */
static int kept(const struct hf_logr *r)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(r->head_fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static int same(const struct hf_reach *a, const struct hf_reach *b)
{
    return a->head_end == b->head_end && a->head_sqn == b->head_sqn && a->version == b->version;
}

/* 1: what was found is still so. A head that was believed because of its lock is believed no longer than that. */
static int stands(const struct hf_logr *r, const struct hf_reach *now, int held)
{
    return r->reach.found && same(now, &r->reach) && (held || !r->reach.held);
}

/* What the head says now. HF_OK, or an error. */
static int64_t look(struct hf_logr *r, struct hf_reach *told, int by_name)
{
    int64_t status = hf_logr_look(r, by_name);
    *told = (struct hf_reach){.found = 1, .version = r->head->begin_version};
    told->next_sqn = told->head_sqn = r->head->next_sqn;
    told->end = told->head_end = r->head->end;
    return status;
}

/* ---- the walk ---- */

static int64_t without_leftovers(const struct hf_ending *e, struct hf_seg *segs, int64_t n)
{
    for (int64_t i = n - 1; i >= 0; i--) {
        if (hf_ending_leftover(e, segs, n, i)) {
            memmove(segs + i, segs + i + 1, (size_t)(n - i - 1) * sizeof *segs);
            n--;
        }
    }
    int64_t ghosts = hf_seg_ghosts(segs, n, e->kept_position, e->kept_sqn);
    memmove(segs, segs + ghosts, (size_t)(n - ghosts) * sizeof *segs);
    return n - ghosts;
}

/* The segments that were walked are still the same: so what was read in them was theirs. */
static int unchanged(const struct hf_logr *r, const struct hf_ending *e)
{
    for (int64_t i = e->first; i <= e->last; i++) {
        if (!hf_seg_same(r->dir, &e->segs[i], r->head->pre.uuid)) {
            return 0;
        }
    }
    return 1;
}

/* HF_AGAIN: the files changed meanwhile. */
static int64_t walk(struct hf_logr *r, struct hf_reach *reach)
{
    struct hf_head *head = r->head;
    struct hf_begins begins;
    struct hf_ending e = {.dir = r->dir, .from = &r->walked, .told_sqn = reach->head_sqn};
    int64_t got = hf_head_read(r->head_fd, head, &begins);
    if (got != HF_OK) {
        return got;
    }
    e.stable = hf_head_stable(head);
    e.kept_sqn = head->oldest_sqn;
    e.kept_position = head->oldest_position;
    int64_t n = hf_seg_list(r->dir, head->pre.uuid, &e.segs);
    if (n < 0) {
        return n;
    }
    hf_ending_stable(&e, e.segs, n);
    e.count = without_leftovers(&e, e.segs, n);
    int64_t status = hf_ending_walk(&e);
    if (status == HF_GONE || (status == HF_OK && !unchanged(r, &e))) {
        status = HF_AGAIN;
    }
    if (status == HF_OK) {
        reach->end = e.end;
        reach->next_sqn = hf_ending_number(&e, begins.at, begins.count);
        reach->status = e.lost_tail || e.unsure ? HF_DAMAGED : HF_OK;
        r->walked = e.walked;
    }
    hf_seg_list_free(e.segs, e.count);
    return status;
}

int64_t hf_logr_reach(struct hf_logr *r)
{
    struct hf_reach now, after;
    for (int tries = 0; tries < 8; tries++) {
        int head_fd = r->head_fd, held = kept(r);
        int64_t status = look(r, &now, !held); /* a head that nobody keeps may be an old one */
        if (status == HF_OK && r->head_fd != head_fd) {
            continue; /* the lock is on the new one */
        }
        if (status != HF_OK || stands(r, &now, held)) {
            return status;
        }
        uint64_t poisoned = r->head->poisoned; /* an earlier boot's word is over (poison.c) */
        int believed = poisoned == 1 || poisoned == hf_doubt_word() || HF_MUTANT("logr.believe_head");
        now.held = held; /* before we looked */
        if (believed || held) {
            status = HF_OK;
        } else if (!hf_head_speaks(r->head)) {
            now.status = HF_GONE;
        } else {
            status = walk(r, &now);
        }
        if (status == HF_OK) {
            status = look(r, &after, 0);
        }
        if (status == HF_OK && same(&now, &after)) {
            r->reach = now;
            return HF_OK;
        }
        if (status != HF_OK && status != HF_AGAIN) {
            return status;
        }
    }
    int64_t status = look(r, &r->reach, 0); /* it moves all the time: somebody writes, and holds no lock */
    r->reach.status = HF_AGAIN;
    r->reach.found = 0;
    return status;
}

/* ---- what readers ask ---- */

int64_t hf_logr_bounds(struct hf_logr *r, uint64_t sqn, uint64_t *next_sqn, uint64_t *end)
{
    struct hf_reach now;
    /* At its end the lock is asked for: a head that was replaced may still be open here, and a copy's link may keep it. */
    int alone = r->reach.found && sqn >= r->reach.next_sqn && !kept(r);
    int64_t status = look(r, &now, alone);
    if (status != HF_OK) {
        return status;
    }
    if (stands(r, &now, !alone)) {
        now = r->reach;
    } else if (sqn >= now.next_sqn) {
        status = hf_logr_reach(r);
        if (status != HF_OK) {
            return status;
        }
        now = r->reach;
    }
    *next_sqn = now.next_sqn;
    *end = now.end;
    return HF_OK;
}

int64_t hf_logr_end(struct hf_logr *r, uint64_t *next_sqn)
{
    HF_ENTER(r);
    int64_t status = hf_logr_reach(r);
    if (status != HF_OK) {
        return status;
    }
    *next_sqn = r->reach.next_sqn;
    return r->reach.status == HF_OK && hf_unsure_said(r->dir) ? HF_DAMAGED : r->reach.status;
}

void hf_logr_walked(const struct hf_logr *r, struct hf_log_walked *out)
{
    *out = r->walked;
}

void hf_logr_resume(struct hf_logr *r, const struct hf_log_walked *walked)
{
    r->walked = *walked;
}
