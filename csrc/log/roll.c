/* log_roll.c: the store's cold side of a log: the next segment, and the spare file that it is made of.
 *
 * Roll, and what a crash leaves after each step:
 *   1. the next file is there, under `spare` or `roll-new`, with its whole size      -> open adopts or removes it
 *   2. the old segment is sealed                                                     -> it has no successor yet; fine
 *   3. the new header is written into the file                                       -> as 1
 *   4. the file gets its name, seg-<position>                                        -> an empty last segment
 * On disk nothing of it is synced here: the next group commit syncs both files and the directory before it publishes.
 *
 * A retired file (log_retire.c) is renamed to `spare`. Its header is rewritten only after the directory is synced; else
 * a power cut could leave its old name on a new header. */
#include "log/private.h"
#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (UINT64_C(1) << 18)

static const char spare_name[] = HF_SPARE_NAME;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The helper gives its core to whoever wants it, as long as it has done twice as much as the active segment has filled. A store
 * that shares the core, and waits by sched_yield, has it back after some 100 us and not after a time slice of ours (4 ms). */
static void give_way(const struct hf_log *log, uint64_t done)
{
    int64_t filled = (int64_t)(hf_load_relaxed_u64(&log->head->end) - hf_load_relaxed_u64(&log->rolled_at));
    if (filled <= (int64_t)(done / 2)) { /* below 0: what was appended before the roll is not yet published */
        sched_yield();
    }
}

/* How much of `bytes` is done next, with `done` of them done. `ahead`: by the helper, in pieces, before each of which it gives
 * way; else all at once. */
static uint64_t next_piece(const struct hf_log *log, uint64_t done, uint64_t bytes, int ahead)
{
    if (!ahead) {
        return bytes;
    }
    give_way(log, done);
    return bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
}

static int64_t allocate(const struct hf_log *log, int fd, uint64_t bytes, int ahead)
{
    int64_t armed = HF_FAIL_STATUS("log.fallocate");
    int failed = 0;
    for (uint64_t at = 0, part; armed == 0 && failed == 0 && at < bytes; at += part) {
        part = next_piece(log, at, bytes, ahead);
        do {
            failed = posix_fallocate(fd, (off_t)at, (off_t)part);
        } while (failed == EINTR);
    }
    return failed == 0 ? armed : HF_ERRNO - failed;
}

/* The memory level writes through this mapping. Populating it here keeps first-touch faults (3 us per page) out of
 * append. */
static int64_t map_writable(const struct hf_log *log, int fd, uint64_t bytes, int ahead, uint8_t **out)
{
    uint8_t *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return hf_errno();
    }
    madvise(map, bytes, MADV_DONTFORK);
    for (uint64_t at = 0, part; at < bytes; at += part) {
        part = next_piece(log, at, bytes, ahead);
        madvise(map + at, part, MADV_POPULATE_WRITE); /* before Linux 5.14: append faults */
    }
    *out = map;
    return HF_OK;
}

/* Converts the extents now, so that a later sync of an append writes data only. */
static int64_t write_zeros(const struct hf_log *log, int fd, uint64_t bytes)
{
    uint8_t *blank = calloc(1, PIECE_BYTES);
    int64_t status = blank == NULL ? HF_ERRNO - ENOMEM : HF_OK;
    for (uint64_t at = 0, part; at < bytes && status == HF_OK; at += part) {
        part = next_piece(log, at, bytes, 1);
        status = hf_write_all(fd, blank, part, at);
    }
    free(blank);
    return status == HF_OK ? hf_sync(fd, HF_SYNC_DATA) : status; /* after an error the file goes: nobody believes it */
}

/* A file of full size under `name`. */
static int64_t make_file(const struct hf_log *log, const char *name, uint64_t bytes, int ahead, int *out_fd)
{
    int fd = openat(log->dir, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return hf_errno();
    }
    int disk = hf_log_on_disk(log);
    int64_t status =
        allocate(log, fd, bytes, ahead && !disk); /* a disk's blocks at once: they lie together, and none is touched */
    if (status == HF_OK && ahead && disk) {
        status = write_zeros(log, fd, bytes);
    }
    if (status != HF_OK) {
        close(fd);
        unlinkat(log->dir, name, 0);
        return status;
    }
    *out_fd = fd;
    return HF_OK;
}

/* ---- the spare ---- */

void hf_spare_drop(struct hf_log *log)
{
    struct hf_spare *spare = &log->spare;
    if (spare->map != NULL) {
        munmap(spare->map, spare->bytes);
        spare->map = NULL;
    }
    if (spare->fd >= 0) {
        close(spare->fd);
        spare->fd = -1;
        unlinkat(log->dir, spare_name, 0);
    }
}

int hf_spare_take(struct hf_spare *spare)
{
    pthread_mutex_lock(&spare->lock);
    int state = spare->state;
    spare->state = HF_SPARE_BUSY;
    pthread_mutex_unlock(&spare->lock);
    return state;
}

void hf_spare_give(struct hf_spare *spare, int state)
{
    if (state == HF_SPARE_BUSY) { /* it is the helper's */
        return;
    }
    pthread_mutex_lock(&spare->lock);
    spare->state = state;
    pthread_mutex_unlock(&spare->lock);
}

/* From a retired file to one that a roll can take. The two threads have a description of the directory each: a shared
 * one would tell an error to only one of two that sync at the same time. */
static int64_t finish_used(struct hf_log *log, int ahead)
{
    struct hf_spare *spare = &log->spare;
    if (hf_log_on_disk(log)) {
        return hf_log_durable(log, ahead ? spare->dir : log->dir, HF_SYNC_NAMES);
    }
    return spare->map != NULL ? HF_OK : map_writable(log, spare->fd, spare->bytes, ahead, &spare->map);
}

static int64_t make_spare(struct hf_log *log, uint64_t bytes)
{
    struct hf_spare *spare = &log->spare;
    int64_t status = make_file(log, "spare-new", bytes, 1, &spare->fd);
    if (status != HF_OK) {
        return status;
    }
    spare->bytes = bytes;
    if (!hf_log_on_disk(log)) {
        status = map_writable(log, spare->fd, bytes, 1, &spare->map);
    }
    if (status == HF_OK && renameat(log->dir, "spare-new", log->dir, spare_name) != 0) {
        status = hf_errno();
    }
    if (status != HF_OK) {
        unlinkat(log->dir, "spare-new", 0);
        hf_spare_drop(log);
    }
    return status;
}

int64_t hf_log_prepare(struct hf_log *log)
{
    HF_ENTER(log);
    struct hf_spare *spare = &log->spare;
    uint64_t want = hf_load_acquire_u64(&log->next_bytes); /* pairs with hf_log_roll */
    if (hf_log_poisoned(log)) {
        return HF_POISONED;
    }
    pthread_mutex_lock(&spare->lock);
    int state = spare->state,
        due = state == HF_SPARE_NONE || state == HF_SPARE_USED || (state == HF_SPARE_READY && spare->bytes != want);
    spare->state = due ? HF_SPARE_BUSY : state;
    pthread_mutex_unlock(&spare->lock);
    if (!due) {
        return 0;
    }
    int64_t status = HF_OK;
    if (state == HF_SPARE_USED && spare->bytes == want) {
        status = finish_used(log, 1);
        hf_spare_give(spare, status == HF_OK ? HF_SPARE_READY : HF_SPARE_USED);
    } else {
        hf_spare_drop(log);
        status = make_spare(log, want);
        hf_spare_give(spare, status == HF_OK ? HF_SPARE_READY : HF_SPARE_NONE);
    }
    return status == HF_OK ? 1 : status;
}

void hf_spare_adopt(struct hf_log *log)
{
    struct stat st;
    struct hf_spare *spare = &log->spare;
    unlinkat(log->dir, "spare-new", 0);
    unlinkat(log->dir, "roll-new", 0);
    unlinkat(log->dir, "head-new", 0);
    unlinkat(log->dir, HF_COPY_NAME, 0);
    hf_fill_drop_unfinished(log->dir);
    spare->fd = openat(log->dir, spare_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (spare->fd < 0) {
        return;
    }
    if (fstat(spare->fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < HF_SEGMENT_MIN ||
        (uint64_t)st.st_size > HF_SEGMENT_SANE || (uint64_t)st.st_blocks * 512 < (uint64_t)st.st_size) {
        hf_spare_drop(log);
        return;
    }
    spare->bytes = (uint64_t)st.st_size;
    spare->state = HF_SPARE_USED;
}

/* The file stays for the next open. */
void hf_spare_close(struct hf_log *log)
{
    struct hf_spare *spare = &log->spare;
    if (spare->map != NULL && !hf_process_forked(log->token)) {
        munmap(spare->map, spare->bytes);
    }
    if (spare->fd >= 0) {
        close(spare->fd);
    }
    if (spare->dir >= 0) {
        close(spare->dir);
    }
    pthread_mutex_destroy(&spare->lock);
}

/* ---- roll ---- */

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

int64_t hf_log_end_segment(struct hf_seg *s, uint64_t end, uint64_t next_sqn, const struct hf_index *index, int punch)
{
    int64_t status = hf_seg_seal(s, end, next_sqn, index);
    if (status != HF_OK || !punch) {
        return status;
    }
    uint64_t used = (s->header_bytes + (end - s->base) + HF_HEADER_PAGE - 1) & ~(HF_HEADER_PAGE - 1);
    struct stat st;
    /* A file system that cannot punch keeps the room: no harm. */
    if (used < s->file_bytes &&
        fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)used, (off_t)(s->file_bytes - used)) == 0 &&
        fstat(s->fd, &st) == 0) {
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
    while (bytes - hf_seg_header_bytes(bytes) < log->need) {
        bytes *= 2;
    }
    return bytes;
}

/* The file of the next segment, opened (memory: mapped) in *s: the spare if it has the right size, else a new one.
 * `name` says where it lies. */
static int64_t open_next(struct hf_log *log, int spare_state, struct hf_seg *s, const char **name)
{
    struct hf_spare *spare = &log->spare;
    if ((spare_state == HF_SPARE_READY || spare_state == HF_SPARE_USED) && spare->bytes == s->file_bytes) {
        int64_t status = spare_state == HF_SPARE_USED ? finish_used(log, 0) : HF_OK;
        *name = spare_name;
        s->fd = spare->fd;
        s->map = spare->map;
        return status;
    }
    *name = "roll-new";
    int64_t status = make_file(log, *name, s->file_bytes, 0, &s->fd);
    if (status == HF_OK && !hf_log_on_disk(log)) {
        status = map_writable(log, s->fd, s->file_bytes, 0, &s->map);
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
        status = hf_log_end_segment(old, log->end, log->tail_sqn, &log->index, !log->filled);
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
