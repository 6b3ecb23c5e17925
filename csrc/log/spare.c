/* spare.c: the file that the next segment is made of: made and mapped ahead by a helper thread, or recycled
 * from a retired one. Its file is `spare`, while it is made `spare-new`.
 *
 * A retired file (retire.c) is renamed to `spare`. Its header is rewritten only after the directory is
 * synced; else a power cut could leave its old name on a new header. */
#include "log/writer.h"
#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/fill.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (UINT64_C(1) << 18)

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
int64_t hf_log_map_file(const struct hf_log *log, int fd, uint64_t bytes, int ahead, uint8_t **out)
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
int64_t hf_log_make_file(const struct hf_log *log, const char *name, uint64_t bytes, int ahead, int *out_fd)
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
        unlinkat(log->dir, HF_SPARE_NAME, 0);
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
int64_t hf_spare_finish(struct hf_log *log, int ahead)
{
    struct hf_spare *spare = &log->spare;
    if (hf_log_on_disk(log)) {
        return hf_log_durable(log, ahead ? spare->dir : log->dir, HF_SYNC_NAMES);
    }
    return spare->map != NULL ? HF_OK : hf_log_map_file(log, spare->fd, spare->bytes, ahead, &spare->map);
}

static int64_t make_spare(struct hf_log *log, uint64_t bytes)
{
    struct hf_spare *spare = &log->spare;
    int64_t status = hf_log_make_file(log, "spare-new", bytes, 1, &spare->fd);
    if (status != HF_OK) {
        return status;
    }
    spare->bytes = bytes;
    if (!hf_log_on_disk(log)) {
        status = hf_log_map_file(log, spare->fd, bytes, 1, &spare->map);
    }
    if (status == HF_OK && renameat(log->dir, "spare-new", log->dir, HF_SPARE_NAME) != 0) {
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
        status = hf_spare_finish(log, 1);
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
    spare->fd = openat(log->dir, HF_SPARE_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
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
