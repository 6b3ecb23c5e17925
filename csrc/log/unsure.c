/* unsure.c: a log whose end nobody knows.
 *
 * Behind what is known to have been stable, a bad frame is a torn tail: no sync had returned, so nobody was told of it. A
 * frame that the disk does not give may have been stable all the same: what the head on disk says of the end is as old as
 * its last write-back. So nothing is cut there, and the store must not speak for these numbers before it has them again, or
 * a new incarnation has settled them.
 *
 * The file `unsure` says so: "<first> <next>", two decimal numbers: in [first, next) it may have acknowledged what it cannot
 * read. It is written, synced and named before the open publishes anything, because then the log looks whole. What a crash
 * leaves: no such file, and the next open finds the same; or the file, and the next open believes it. */
#include "log/unsure.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/writer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static const char note[] = "unsure", unfinished[] = "unsure-new";

enum { TEXT = 48 };

static void widen(struct hf_log *log, uint64_t first, uint64_t next)
{
    log->unsure_first = log->unsure && log->unsure_first < first ? log->unsure_first : first;
    log->unsure_next = log->unsure && log->unsure_next > next ? log->unsure_next : next;
    log->unsure = 1;
}

int64_t hf_unsure_load(struct hf_log *log)
{
    char text[TEXT] = {0};
    uint64_t first, next;
    struct hf_bytes bad = {0, 0};
    unlinkat(log->dir, unfinished, 0);
    int fd = openat(log->dir, note, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) {
        return HF_OK;
    }
    if (fd < 0 && !hf_unreadable(errno)) {
        return hf_errno();
    }
    int64_t status = fd < 0 ? HF_OK : hf_read_all(fd, (uint8_t *)text, TEXT - 1, 0, &bad);
    if (fd >= 0) {
        close(fd);
    }
    if (status != HF_OK) {
        return status;
    }
    int said = sscanf(text, "%" SCNu64 " %" SCNu64, &first, &next) == 2 && first <= next;
    widen(log, said ? first : 0, said ? next : 0); /* there, and not to be read: of no known numbers */
    return HF_OK;
}

int hf_unsure_said(int dir)
{
    return faccessat(dir, note, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

int64_t hf_unsure_save(struct hf_log *log, uint64_t first, uint64_t next)
{
    char text[TEXT];
    widen(log, first, next);
    int bytes = snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", log->unsure_first, log->unsure_next);
    int fd = openat(log->dir, unfinished, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return hf_errno();
    }
    int64_t status = hf_write_all(fd, text, (uint64_t)bytes, 0);
    if (status == HF_OK) {
        status = hf_log_durable(log, fd, HF_SYNC_DATA);
    }
    close(fd);
    if (status == HF_OK && renameat(log->dir, unfinished, log->dir, note) != 0) {
        status = hf_errno();
    }
    return status == HF_OK ? hf_log_durable(log, log->dir, HF_SYNC_NAMES) : status;
}

int64_t hf_log_sure(struct hf_log *log)
{
    HF_ENTER(log);
    if (!log->unsure) {
        return HF_OK;
    }
    int64_t status = hf_log_sync(log); /* what it was repaired with */
    if (status == HF_OK && unlinkat(log->dir, note, 0) != 0 && errno != ENOENT) {
        status = hf_errno();
    }
    if (status == HF_OK) {
        status = hf_log_durable(log, log->dir, HF_SYNC_NAMES);
    }
    log->unsure = status != HF_OK;
    return status;
}

/* Frames start at multiples of the granule, and one whose first byte the disk gives is found by its number. So no more
 * frames are lost here than granules, and one for each page where the next bytes begin to be missing. */
int64_t hf_unsure_frames(const struct hf_seg *s, uint64_t position, uint64_t *most)
{
    uint8_t page[HF_HEADER_PAGE];
    uint64_t at = s->header_bytes + (position - s->base), end = s->header_bytes + (s->limit - s->base);
    for (*most = 1; at < end;) {
        uint64_t next = (at / sizeof page + 1) * sizeof page;
        struct hf_bytes bad;
        int64_t status = hf_read_all(s->fd, page, next - at, at, &bad);
        if (status != HF_OK) {
            return status;
        }
        *most += bad.to == 0 ? 0 : 1 + (next - at) / HF_GRANULE;
        at = next;
    }
    return HF_OK;
}
