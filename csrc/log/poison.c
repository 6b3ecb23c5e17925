/* poison.c: what a log does about a sync that failed (base/sync.h).
 *
 * What was published before is on the disk. What came after may be in the page cache alone, clean, and no later sync
 * says so. So nothing is published any more, and the next open writes it once more:
 *   1. each segment from the last published position on, and each fill, is copied into a new file, which is synced and
 *      renamed over it; the spare goes. What lies below was synced with its name before the position was published.
 *   2. the directory is synced: every name that was in doubt leads to a new file by now. A name that was removed may
 *      come back: the beginning's ghosts are known (retire.c), and what a cut removed has no frames (hf_seg_void).
 *   3. the head, which is a new file since the open began (head_file.c), is synced; then the doubt goes.
 * A crash anywhere leaves the head's flag or the doubt, and the next open begins again. */
#include "log/poison.h"
#include "base/failpoint.h"
#include "base/sync.h"
#include "log/fill.h"
#include "log/head.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (UINT64_C(1) << 18)

void hf_log_distrust(int dir_fd)
{
    struct hf_head copy;
    int fd;
    if (hf_head_open(dir_fd, &fd, &copy) == HF_OK) { /* of either layout version: both have the word there */
        close(fd);
        fd = openat(dir_fd, "head", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
        uint64_t word = hf_doubt_word();
        if (fd >= 0) {
            (void)hf_write_all(fd, &word, sizeof word,
                               offsetof(struct hf_head, poisoned)); /* hf_log_poisoned reads it */
            close(fd);
        }
    }
}

/* The head's word counts while the boot lasts in which it was written. 1 is older than that word: nobody knows when. */
int64_t hf_log_doubted(const struct hf_log *log, const struct hf_head *head)
{
    uint64_t word = head->poisoned;
    if (word == 1 || word == hf_doubt_word()) {
        return 1;
    }
    return log->config.doubt != NULL ? hf_doubt_get(log->config.doubt) : 0;
}

/* ---- once more ---- */

static int blank(const uint8_t *bytes, uint64_t n)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

/* What holds nothing stays a hole, and so does what the disk does not give: open has told of it before (unsure.c). */
static int64_t copy_bytes(int in, int out, uint64_t bytes)
{
    uint8_t *piece = malloc(PIECE_BYTES);
    int64_t status = piece == NULL ? HF_ERRNO - ENOMEM : HF_OK;
    for (uint64_t at = 0; at < bytes && status == HF_OK;) {
        struct hf_bytes bad;
        uint64_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        status = hf_read_all(in, piece, n, at, &bad);
        if (status == HF_OK && !blank(piece, n)) {
            status = hf_write_all(out, piece, n, at);
        }
        at += n;
    }
    free(piece);
    return status;
}

/* A new file with the same bytes, under this name. Nobody appends to it. */
static int64_t copy_file(struct hf_log *log, const char *name, struct stat *st)
{
    int in = openat(log->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (in < 0) {
        return hf_errno();
    }
    unlinkat(log->dir, HF_COPY_NAME, 0); /* a new file, also behind a copy that failed */
    int out = openat(log->dir, HF_COPY_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int64_t status = out < 0 || fstat(in, st) != 0 || ftruncate(out, st->st_size) != 0 ? hf_errno() : HF_OK;
    if (status == HF_OK) {
        status = copy_bytes(in, out, (uint64_t)st->st_size);
    }
    if (status == HF_OK) {
        HF_FAIL("renew.copied");
        status = hf_log_durable(log, out, HF_SYNC_DATA);
    }
    if (status == HF_OK && (renameat(log->dir, HF_COPY_NAME, log->dir, name) != 0 || fstat(out, st) != 0)) {
        status = hf_errno();
    }
    close(in);
    if (out >= 0) {
        close(out);
    }
    return status;
}

static int64_t copy_segments(struct hf_log *log, int64_t first)
{
    int64_t status = HF_OK;
    for (int64_t i = first; i < log->count && status == HF_OK; i++) {
        char name[HF_SEGMENT_NAME];
        struct stat st;
        hf_seg_name(name, log->segs[i].base);
        status = copy_file(log, name, &st);
        if (status == HF_OK) {
            log->segs[i].allocated = (uint64_t)st.st_blocks * 512;
        }
    }
    return status;
}

/* Of a fill nobody knows when it came. */
static int64_t copy_fills(struct hf_log *log)
{
    struct hf_ranges fills = {0};
    int64_t status = hf_fill_list(log->dir, &fills);
    for (int64_t i = 0; i < fills.count && status == HF_OK; i++) {
        char name[HF_FILL_NAME];
        struct stat st;
        hf_fill_name(name, fills.at[i].first, fills.at[i].next);
        status = copy_file(log, name, &st);
    }
    free(fills.at);
    return status;
}

static int64_t renew(struct hf_log *log, int64_t first)
{
    hf_spare_drop(log);
    log->spare.state = HF_SPARE_NONE; /* there is no helper yet */
    int64_t status = copy_segments(log, first);
    if (status == HF_OK) {
        status = copy_fills(log);
    }
    HF_FAIL("renew.renamed");
    if (status == HF_OK) {
        status = hf_log_durable(log, log->dir, HF_SYNC_NAMES);
    }
    HF_FAIL("renew.synced");
    return status;
}

static int64_t sync_segment(struct hf_log *log, const struct hf_seg *s)
{
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, s->base);
    int fd = openat(log->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { /* what the disk does not give was not written by us, either */
        return s->unreadable && hf_unreadable(errno) ? HF_OK : hf_errno();
    }
    int64_t status = hf_log_durable(log, fd, HF_SYNC_DATA);
    close(fd);
    return status;
}

/* A killed store leaves frames in the page cache only. */
int64_t hf_log_settle(struct hf_log *log, int64_t first)
{
    if (log->renewing) {
        return renew(log, first);
    }
    int64_t status = HF_OK;
    for (int64_t i = first; i < log->count && status == HF_OK; i++) {
        status = sync_segment(log, &log->segs[i]);
    }
    return status;
}
