/* retire.c: what a log lets go, told apart from what it has lost.
 *
 * A file that is not there was either let go, by retention or because nobody wanted its numbers, or it is lost. The
 * head tells which: below oldest_sqn and oldest_position all was let go; from there on all was kept, so what is missing
 * is damage, as in the middle of the log: readers and check say so, and it is filled from the other stores. The head
 * must be right about it in every life that may read it:
 *   1. it says that a segment goes before its file does. At the level disk it is synced in between: a power cut may
 *      leave a file that was let go, and never takes one that the head on disk still counts on.
 *   2. at the level disk the log begins only with a segment whose name is on disk: a power cut never takes that either.
 *   3. an open believes the head where it begins lower than the segments, in number and in position (one flipped bit
 *      makes no damage), and where it speaks of the files as they are (hf_head_speaks). A head that is new says nothing.
 *
 * What a crash leaves after each step:
 *   1. the head begins higher, and the file is there: open offers it again, and the next retention takes it
 *   2. the file is renamed to `spare`, or unlinked: nothing is left to do
 * A power cut after several of them may bring back any of their names: what is separated from the beginning by a gap
 * is a ghost, and open removes it. */
#include "log/writer.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/fill.h"
#include "log/head.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- where the log begins ---- */

void hf_log_kept(struct hf_log *log)
{
    log->kept_sqn = log->head->oldest_sqn;
    log->kept_position = hf_head_speaks(log->head) ? log->head->oldest_position : UINT64_MAX;
}

/* Tells readers where the log begins when segs[first] is the first one left. A number is kept if some segment that is not
 * void for it starts at or below it, or if it was never let go. */
static void tell(struct hf_log *log, int64_t first)
{
    uint64_t kept = log->kept_sqn > log->floor_sqn ? log->kept_sqn : log->floor_sqn;
    uint64_t sqn = log->appended_sqn, position = first < log->count ? log->segs[first].base : log->end;
    int unreadable = first < log->count && log->segs[first].state != HF_SEG_GOOD;
    for (int64_t i = first; i < log->count; i++) {
        const struct hf_seg *s = &log->segs[i];
        if (s->state == HF_SEG_GOOD && s->first_sqn < sqn) {
            sqn = s->first_sqn;
        }
    }
    if (kept < sqn && (log->kept_position < position || unreadable)) {
        sqn = kept;
        position = log->kept_position < position ? log->kept_position : position;
    }
    sqn = sqn < log->floor_sqn ? log->floor_sqn : sqn;
    hf_log_tell(log, &log->head->oldest_sqn, sqn);
    hf_log_tell(log, &log->head->oldest_position, position);
}

void hf_log_oldest(struct hf_log *log)
{
    tell(log, 0);
}

/* ---- letting go ---- */

/* Whether the first n segments may go: not the active one, not what is to be synced yet, and what follows has its name. */
static int may_go(const struct hf_log *log, int64_t n)
{
    return n < log->count && n <= log->dirty_from && (!hf_log_on_disk(log) || n < log->named);
}

/* The head says that the first n segments are let go, for good. HF_POISONED: they stay. */
static int64_t let_go(struct hf_log *log, int64_t n)
{
    const struct hf_seg *last = &log->segs[n - 1];
    if (hf_log_poisoned(log)) {
        return HF_POISONED;
    }
    if (last->state == HF_SEG_GOOD) { /* the next one may be unreadable: then only this one tells where it begins */
        uint64_t behind = last->seal.end_position != 0 ? last->seal.next_sqn : last->first_sqn;
        log->kept_sqn = hf_void_tail(last, log->begins, log->begin_count, behind);
    }
    log->kept_position = log->segs[n].base;
    tell(log, n);
    HF_FAIL("retire.told");
    int64_t status = hf_log_on_disk(log) ? hf_log_durable(log, log->head_fd, HF_SYNC_DATA) : HF_OK;
    HF_FAIL("retire.synced");
    return status == HF_OK && hf_log_poisoned(log) ? HF_POISONED : status;
}

/* Takes segs[0] out. state: the spare's; if we hold it and it is empty, this file becomes it if it is what the next roll
 * wants. Returns the spare's state. A file of the memory level comes with its mapping: it is ready at once. */
static int remove_oldest(struct hf_log *log, int state)
{
    struct hf_seg old = log->segs[0];
    struct hf_spare *spare = &log->spare;
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, old.base);
    memmove(log->segs, log->segs + 1, (size_t)(log->count - 1) * sizeof *log->segs);
    log->count--;
    log->dirty_from--;
    log->named -= log->named > 0;
    log->dir_dirty = 1;
    if (state == HF_SPARE_NONE && old.state == HF_SEG_GOOD && old.file_bytes == log->next_bytes &&
        old.allocated >= old.file_bytes) {
        spare->fd = openat(log->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (spare->fd >= 0 && renameat(log->dir, name, log->dir, HF_SPARE_NAME) == 0) {
            HF_FAIL("retire.renamed");
            spare->bytes = old.file_bytes;
            spare->map = old.map;
            return spare->map != NULL ? HF_SPARE_READY : HF_SPARE_USED;
        }
        if (spare->fd >= 0) {
            close(spare->fd);
            spare->fd = -1;
        }
    }
    hf_seg_unmap(&old);
    unlinkat(log->dir, name, 0);
    return state;
}

/* The first n segments go, and the fills that nothing is left of. What came since the last look is met when a segment
 * goes, or by hf_fill_prune. */
static int retire(struct hf_log *log, int64_t n, int state)
{
    int gone = n > 0 && let_go(log, n) == HF_OK;
    for (; gone && n > 0; n--) {
        state = remove_oldest(log, state);
    }
    if (gone || log->head->oldest_sqn >= log->fill_next) {
        log->fill_next = hf_fill_expire(log->dir, log->head->oldest_sqn);
    }
    return state;
}

int hf_log_retain(struct hf_log *log, int spare_state)
{
    uint64_t total = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < log->count; i++) {
        total += log->segs[i].allocated;
    }
    while (log->config.retain_bytes != 0 && total > log->config.retain_bytes && may_go(log, n + 1)) {
        total -= log->segs[n++].allocated;
    }
    return retire(log, n, spare_state);
}

/* How many segments at the beginning hold nothing that is still wanted. Of an unreadable successor nobody knows where it
 * begins. */
static int64_t unwanted(const struct hf_log *log)
{
    int64_t n = 0;
    while (may_go(log, n + 1) && log->segs[n + 1].state == HF_SEG_GOOD &&
           log->segs[n + 1].first_sqn <= log->floor_sqn) {
        n++;
    }
    return n;
}

int64_t hf_log_release(struct hf_log *log, uint64_t below_sqn)
{
    HF_ENTER(log);
    uint64_t below = below_sqn < log->appended_sqn ? below_sqn : log->appended_sqn;
    if (below <= log->floor_sqn) {
        return HF_OK;
    }
    log->floor_sqn = below;
    hf_log_oldest(log);
    int state = hf_spare_take(&log->spare);
    hf_spare_give(&log->spare, retire(log, unwanted(log), state));
    return hf_log_poisoned(log) ? HF_POISONED : HF_OK;
}
