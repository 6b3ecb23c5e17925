/* roll.c: the store's cold side of a log: the active segment is sealed, and the next one begins in the file
 * that spare.c made.
 *
 * Roll, and what a crash leaves after each step:
 *   1. the next file is there, under `spare` or `roll-new`, with its whole size      -> open adopts or removes it
 *   2. the old segment is sealed                                                     -> it has no successor yet; fine
 *   3. the new header is written into the file                                       -> as 1
 *   4. the file gets its name, seg-<position>                                        -> an empty last segment
 * On disk nothing of it is synced here: the next group commit syncs both files and the directory before it publishes. */
#include "log/writer.h"
#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char spare_name[] = HF_SPARE_NAME;

int64_t hf_log_reserve(struct hf_log *log, int64_t count)
{
    if (count > log->room) {
        int64_t room = count < 32 ? 32 : 2 * count;
        struct hf_seg *more = realloc(log->segs, (size_t)room * sizeof *more);
        if (more == NULL) {
            return HF_ERRNO - ENOMEM;
        }
        log->segs = more;
        log->room = room;
    }
    return HF_OK;
}

/* Gives back [from, to) of the file, which is zero from then on. 0: a file system that cannot punch keeps it. */
static int give_back(const struct hf_seg *s, uint64_t from, uint64_t to)
{
    return from >= to ||
           fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) == 0;
}

int64_t hf_log_end_segment(struct hf_seg *s, uint64_t end, uint64_t next_sqn, const struct hf_index *index, int punch)
{
    const struct hf_index none = {0};
    /* An only entry says where the segment begins. A file that was used before has another index there: it goes before the seal
     * says that there is none. Without a seal nobody looks at it. */
    int bare = punch && index->count <= 1 && give_back(s, HF_HEADER_PAGE, s->header_bytes);
    int64_t status = hf_seg_seal(s, end, next_sqn, bare ? &none : index);
    if (status != HF_OK || !punch) {
        return status;
    }
    struct stat st;
    (void)give_back(s, (s->header_bytes + (end - s->base) + HF_HEADER_PAGE - 1) & ~(HF_HEADER_PAGE - 1), s->file_bytes);
    if (fstat(s->fd, &st) == 0) {
        s->allocated = (uint64_t)st.st_blocks * 512;
    }
    return HF_OK;
}

/* File size of the next segment: doubles when the last one was filled, always takes the block that is waiting. */
static uint64_t wanted_bytes(const struct hf_log *log)
{
    uint64_t bytes = log->config.first_segment_bytes;
    if (log->count > 0) {
        bytes = log->segs[log->count - 1].file_bytes;
        bytes = log->filled ? 2 * bytes : bytes;
    }
    bytes = bytes < log->config.max_segment_bytes ? bytes : log->config.max_segment_bytes;
    bytes = bytes > HF_SEGMENT_MIN ? bytes : HF_SEGMENT_MIN;
    while (bytes - hf_seg_header_bytes(bytes) < log->need) { /* no more than that: it counts in full in what is kept */
        bytes = (log->need + hf_seg_header_bytes(bytes) + HF_HEADER_PAGE - 1) & ~(HF_HEADER_PAGE - 1);
    }
    return bytes;
}

/* The file of the next segment, opened (memory: mapped) in *s: the spare if it has the right size, else a new one.
 * `name` says where it lies. */
static int64_t open_next(struct hf_log *log, int spare_state, struct hf_seg *s, const char **name)
{
    struct hf_spare *spare = &log->spare;
    if ((spare_state == HF_SPARE_READY || spare_state == HF_SPARE_USED) && spare->bytes == s->file_bytes) {
        int64_t status = spare_state == HF_SPARE_USED ? hf_spare_finish(log, 0) : HF_OK;
        *name = spare_name;
        s->fd = spare->fd;
        s->map = spare->map;
        return status;
    }
    *name = "roll-new";
    int64_t status = hf_log_make_file(log, *name, s->file_bytes, 0, &s->fd);
    if (status == HF_OK && !hf_log_on_disk(log)) {
        status = hf_log_map_file(log, s->fd, s->file_bytes, 0, &s->map);
    }
    return status;
}

/* A roll that failed: what was made for it goes, the spare stays. */
static void forget_next(const struct hf_log *log, struct hf_seg *s, const char *name)
{
    if (name != spare_name && s->fd >= 0) {
        hf_seg_unmap(s);
        close(s->fd);
        unlinkat(log->dir, name, 0);
    }
}

/* Seals what was active and gives the new file its header and its name. Repeatable after a failure. */
static int64_t switch_over(struct hf_log *log, struct hf_seg *s, const char *from)
{
    struct hf_seg *old = log->count > 0 ? &log->segs[log->count - 1] : NULL;
    int64_t status = hf_index_reset(&log->next_index, s->file_bytes);
    if (status == HF_OK && old != NULL && old->fd >= 0 && old->base != s->base && old->seal.end_position != log->end) {
        int much = old->limit - log->end > old->file_bytes / 8; /* left over, before a large message: it would count */
        status = hf_log_end_segment(old, log->end, log->tail_sqn, &log->index, !log->filled || much);
        HF_FAIL("roll.sealed");
    }
    if (status == HF_OK) {
        status = hf_seg_begin(s, log->config.uuid);
    }
    if (status == HF_OK) {
        char name[HF_SEGMENT_NAME];
        hf_seg_name(name, s->base);
        HF_FAIL("roll.header");
        status = renameat(log->dir, from, log->dir, name) == 0 ? HF_OK : hf_errno();
    }
    return status;
}

/* The new segment is the last one of the list. An empty one of the same position was replaced by the rename. */
static void take_over(struct hf_log *log, const struct hf_seg *s)
{
    struct hf_index done = log->index;
    int64_t dirty = log->count;
    if (log->count > 0) {
        struct hf_seg *old = &log->segs[log->count - 1];
        int replaced = old->base == s->base;
        if (replaced || log->config.retain_bytes == 0) { /* else it stays mapped, for the roll that writes it again */
            hf_seg_unmap(old);
        }
        if (old->fd >= 0 && (replaced || !hf_log_on_disk(log))) {
            close(old->fd);
            old->fd = -1;
        }
        log->count -= replaced;
        dirty = replaced || old->fd < 0 ? log->count : log->count - 1;
    }
    log->segs[log->count++] = *s;
    log->dirty_from = dirty < log->dirty_from ? dirty : log->dirty_from;
    if (!hf_log_on_disk(log)) {
        log->dirty_from = log->count;
    }
    log->dir_dirty = 1;
    log->index = log->next_index;
    log->next_index = done;
    log->must_roll = 0;
    log->filled = 0;
    log->need = 0;
    log->tail_sqn = log->appended_sqn;
    hf_log_oldest(log); /* an empty log may begin with any number */
}

int64_t hf_log_roll(struct hf_log *log)
{
    HF_ENTER(log);
    if (hf_log_poisoned(log)) {
        return HF_POISONED;
    }
    int64_t status = hf_log_reserve(log, log->count + 1);
    if (status != HF_OK) {
        return status;
    }
    struct hf_spare *spare = &log->spare;
    struct hf_seg s = {.base = log->end, .first_sqn = log->appended_sqn, .incarnation = log->incarnation, .fd = -1};
    s.file_bytes = s.allocated = s.mapped = wanted_bytes(log);
    s.synced_below = hf_log_on_disk(log) ? log->synced : 0; /* the memory level has nothing that outlives a power cut */
    int state = hf_spare_take(spare);
    const char *from = NULL;
    status = open_next(log, state, &s, &from);
    if (status == HF_OK) {
        status = switch_over(log, &s, from);
    }
    if (status != HF_OK) {
        forget_next(log, &s, from);
    } else {
        HF_FAIL("roll.renamed");
        if (from == spare_name) {
            spare->fd = -1;
            spare->map = NULL;
            state = HF_SPARE_NONE;
        }
        take_over(log, &s);
        uint64_t next =
            2 * s.file_bytes < log->config.max_segment_bytes ? 2 * s.file_bytes : log->config.max_segment_bytes;
        hf_store_relaxed_u64(&log->rolled_at, s.base);
        hf_store_release_u64(&log->next_bytes, next);                       /* pairs with hf_log_prepare */
        log->named = log->named < log->count ? log->named : log->count - 1; /* the new one's is not */
        state = hf_log_retain(log, state);
    }
    hf_spare_give(spare, state);
    return status;
}
