/* fill.c: fills: what a log had lost or damaged, copied from another store's log. See hf_fill_header in base/layout.h.
 *
 * Nothing in a log is ever rewritten, so what is mended lies beside it, in a file of its own. It is written as
 * `fill-new`, synced, renamed, and the directory is synced: a crash before the rename leaves a `fill-new` that nobody
 * reads and that the next open removes; one after it leaves a fill that is whole. A file of the same range replaces the
 * earlier one. One writer per log directory: the store, or a tool that holds the store's lock.
 *
 * BEGINs later than the incarnation that its records had where they came from void them here as there, so it never
 * brings back what one of them has taken over. */
#include "log/fill.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/frame.h"
#include "log/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct hf_fill {
    uint64_t token;
    int dir;
    int fd;
    uint8_t uuid[HF_UUID]; /* of the fill */
    uint8_t source_uuid[HF_UUID];
    uint64_t incarnation;
    uint64_t first;
    uint64_t limit; /* numbers from here on are not taken */
    uint64_t end;   /* bytes of frames */
    uint64_t next;
    uint32_t seed;
};

int64_t hf_fill_create(int dir_fd, const uint8_t *source_uuid, uint64_t incarnation, uint64_t first_sqn,
                       uint64_t limit_sqn, struct hf_fill **out)
{
    if (first_sqn >= limit_sqn) {
        return HF_USAGE;
    }
    struct hf_fill *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    *f = (struct hf_fill){.token = hf_process_token(),
                          .fd = -1,
                          .incarnation = incarnation,
                          .first = first_sqn,
                          .limit = limit_sqn,
                          .next = first_sqn};
    memcpy(f->source_uuid, source_uuid, HF_UUID);
    f->dir = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
    int64_t status = f->dir < 0 ? hf_errno() : HF_OK;
    if (status == HF_OK && getrandom(f->uuid, HF_UUID, 0) != HF_UUID) {
        status = hf_errno();
    }
    if (status == HF_OK) {
        f->seed = hf_seed(f->uuid, incarnation);
        f->fd = openat(f->dir, HF_FILL_UNFINISHED, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        status = f->fd < 0 ? hf_errno() : HF_OK;
    }
    if (status != HF_OK) {
        hf_fill_abort(f);
        return status;
    }
    *out = f;
    return HF_OK;
}

/* Gives one frame its place here. Returns its room, 0: it is malformed or does not continue. */
static uint64_t stage(const struct hf_fill *f, uint8_t *at, uint64_t room, uint64_t position, struct hf_chain *chain)
{
    struct hf_frame frame;
    if (room < sizeof frame) {
        return 0;
    }
    memcpy(&frame, at, sizeof frame);
    uint32_t length = (uint32_t)frame.commit;
    uint64_t takes = hf_frame_room(length);
    if (length < sizeof frame || takes > room || (frame.flags & HF_FRAME_CONTROL) ||
        !hf_chain_take(chain, &frame, NULL, position)) {
        return 0;
    }
    memset(at + length, 0, takes - length);
    frame.commit = hf_log_commit_word(position, length);
    memcpy(at, &frame, sizeof frame);
    uint8_t *const one[3] = {at, NULL, NULL};
    hf_frames_stamp(one, 1, f->seed);
    return takes;
}

int64_t hf_fill_append(struct hf_fill *f, uint8_t *frames, uint64_t bytes, uint64_t *next)
{
    HF_ENTER(f);
    struct hf_chain chain = {.next_sqn = f->next, .whole = f->end, .whole_sqn = f->next};
    struct hf_chain taken = chain;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t room = stage(f, frames + at, bytes - at, f->end + at, &chain);
        if (room == 0) {
            return HF_DAMAGED;
        }
        at += room;
        if (chain.fragment == 0) { /* a message is whole: does it fit? */
            if (chain.whole_sqn > f->limit || (chain.whole > HF_FILL_MAX && taken.whole > 0)) {
                break;
            }
            taken = chain;
        } else if (at >= bytes) {
            return HF_DAMAGED;
        }
    }
    uint64_t kept = taken.whole - f->end;
    int64_t status = kept == 0 ? HF_OK : hf_write_all(f->fd, frames, kept, HF_HEADER_PAGE + f->end);
    if (status == HF_OK) {
        f->end = taken.whole;
        f->next = taken.whole_sqn;
        *next = f->next;
        HF_FAIL("fill.appended");
    }
    return status == HF_OK ? (int64_t)kept : status;
}

static int64_t write_header(const struct hf_fill *f)
{
    struct hf_fill_header h;
    memset(&h, 0, sizeof h);
    hf_fill_preamble(&h.pre, HF_KIND_FILL);
    memcpy(h.pre.uuid, f->uuid, HF_UUID);
    h.pre.header_bytes = (uint32_t)HF_HEADER_PAGE;
    h.pre.total_bytes = HF_HEADER_PAGE + f->end;
    h.pre.incarnation = f->incarnation;
    memcpy(h.source_uuid, f->source_uuid, HF_UUID);
    h.first_sqn = f->first;
    h.next_sqn = f->next;
    h.end_position = f->end;
    return hf_fill_write_header(f->fd, &h);
}

int64_t hf_fill_commit(struct hf_fill *f)
{
    HF_ENTER(f);
    char name[HF_FILL_NAME];
    hf_fill_name(name, f->first, f->next);
    int64_t status = f->end == 0 ? HF_USAGE : write_header(f);
    if (status == HF_OK) {
        HF_FAIL("fill.written");
        status = hf_sync(f->fd, HF_SYNC_DATA);
    }
    if (status == HF_OK) {
        HF_FAIL("fill.synced");
        status = renameat(f->dir, HF_FILL_UNFINISHED, f->dir, name) == 0 ? HF_OK : hf_errno();
    }
    if (status == HF_OK) {
        HF_FAIL("fill.renamed");
        status = hf_sync(f->dir, HF_SYNC_NAMES);
        if (status != HF_OK) {
            hf_log_distrust(f->dir); /* the log's own names may be in doubt, too; its next open copies this one */
        }
    }
    hf_fill_abort(f); /* what was renamed is not there any more under the old name */
    return status;
}

void hf_fill_abort(struct hf_fill *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->dir >= 0) {
        if (f->fd >= 0 && !hf_process_forked(f->token)) { /* it is the parent's */
            unlinkat(f->dir, HF_FILL_UNFINISHED, 0);
        }
        close(f->dir);
    }
    free(f);
}
