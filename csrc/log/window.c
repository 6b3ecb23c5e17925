/* window.c: the bytes of a segment or a fill, read into private memory.
 *
 * Nobody reads a log's file through a mapping: a bad sector under a mapped page is SIGBUS, which ends the process, and so
 * is a file that became shorter. A read says the same as a result, and it sees what the store writes through its own
 * mapping, since both are of one page cache. Bytes that the disk does not give are zeros here, which no frame and no
 * header consists of: so a bad sector is damage of its range, as wrong bytes are, and what lies around it is read. Where
 * they were is told, because at the end of a log it makes a difference (open.c). */
#include "log/window.h"
#include "log/segment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE UINT64_C(4096) /* what a read that failed is repeated behind */
#define WINDOW UINT64_C(131072)

int hf_unreadable(int error)
{
    return error == EIO || error == EUCLEAN || error == EBADMSG || error == ENODATA || error == EREMOTEIO ||
           error == EILSEQ;
}

int64_t hf_read_all(int fd, uint8_t *to, uint64_t bytes, uint64_t offset, struct hf_bytes *bad)
{
    const uint64_t end = offset + bytes;
    bad->from = bad->to = 0;
    for (uint64_t at = offset; at < end;) {
        uint8_t *here = to + (at - offset);
        ssize_t n = pread(fd, here, end - at, (off_t)at);
        if (n > 0) {
            at += (uint64_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && !hf_unreadable(errno)) {
            return hf_errno();
        }
        uint64_t next = n == 0 ? end : (at / PAGE + 1) * PAGE; /* 0: the file ends here */
        next = next < end ? next : end;
        memset(here, 0, next - at);
        if (n < 0) {
            bad->from = bad->from < bad->to ? bad->from : at;
            bad->to = next;
        }
        at = next;
    }
    return HF_OK;
}

const uint8_t *hf_seg_bytes(struct hf_seg *s, uint64_t offset, uint64_t bytes, int64_t *status)
{
    struct hf_window *w = &s->window;
    if (offset >= w->has.from && offset + bytes <= w->has.to) {
        return w->bytes + (offset - w->has.from);
    }
    uint64_t end = s->header_bytes + (s->limit - s->base), want = bytes > WINDOW ? bytes : WINDOW;
    want = offset < end && end - offset < want ? end - offset : want;
    want = want < bytes ? bytes : want;
    w->has = (struct hf_bytes){0, 0};
    if (want > w->room) {
        free(w->bytes);
        w->bytes = malloc(want);
        w->room = w->bytes == NULL ? 0 : want;
    }
    *status = w->bytes == NULL ? HF_ERRNO - ENOMEM : hf_read_all(s->fd, w->bytes, want, offset, &w->bad);
    if (*status != HF_OK) {
        return NULL;
    }
    w->has = (struct hf_bytes){offset, offset + want};
    return w->bytes;
}

int hf_seg_unread(const struct hf_seg *s, uint64_t offset, uint64_t bytes)
{
    return s->window.bad.from < offset + bytes && s->window.bad.to > offset;
}

void hf_seg_forget(struct hf_seg *s)
{
    s->window.has = (struct hf_bytes){0, 0};
}

void hf_seg_close(struct hf_seg *s)
{
    if (s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
    free(s->window.bytes);
    s->window = (struct hf_window){0};
}
