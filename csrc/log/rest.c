/* rest.c: a log that is closed for long gives back the room that it keeps for what comes next.
 *
 * A log whose source has ended may lie there for years. Its files become as small as what is in them:
 *   1. the active segment is sealed as a roll seals it, without its unused tail and a useless index (roll.c). It need not be on
 *      disk: an open that finds no seal walks to the end and writes it again.
 *   2. the spare goes.
 *   3. if it is to be on disk, and was acknowledged from memory: all of it is synced, then the head says so. A power cut before
 *      that leaves a log whose end nobody knows (hf_head_speaks), as it was; one after it leaves all of it.
 *   4. the head becomes one page (hf_head_rest): a new file, synced, then renamed over the old one, which says the same.
 * A crash leaves each of them done or not. No file is cut, and no hole is written into again: who has an old head or a segment open
 * reads on, what is appended later goes into a new segment, and the next open makes a new head, with its whole room. Where
 * step 4 fails (a full disk) the head stays as large as it was. */
#include "log/writer.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/head.h"
#include "log/poison.h"

#include <fcntl.h>
#include <unistd.h>

/* Of a level that syncs nothing. Its head has said nothing of BEGINs that a power cut would leave, nor have its names. */
static int64_t to_disk(struct hf_log *log)
{
    int64_t status = hf_log_settle(log, 0);
    if (status == HF_OK) {
        status = hf_log_durable(log, log->dir, HF_SYNC_NAMES);
    }
    HF_FAIL("rest.settled");
    if (status == HF_OK) {
        hf_log_tell_on_disk(log, &log->head->level, HF_LEVEL_DISK);
        status = hf_log_durable(log, log->head_fd, HF_SYNC_DATA);
    }
    return status;
}

int64_t hf_log_rest_begin(const struct hf_log *log)
{
    HF_ENTER(log);
    for (int64_t i = 0; i < log->count; i++) {
        char name[HF_SEGMENT_NAME];
        hf_seg_name(name, log->segs[i].base);
        int fd = openat(log->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0) {
            hf_sync_begin(fd, 0, 0); /* to its end; what fails there hf_log_rest is told */
            close(fd);
        }
    }
    return HF_OK;
}

static int64_t put_away(struct hf_log *log, int on_disk)
{
    HF_ENTER(log);
    int64_t status = hf_log_sync(log);
    if (status != HF_OK) {
        return status;
    }
    struct hf_seg *s = log->count > 0 ? &log->segs[log->count - 1] : NULL;
    if (s != NULL && s->fd >= 0 && log->end > s->base && s->seal.end_position != log->end) {
        status = hf_log_end_segment(s, log->end, log->tail_sqn, &log->index, 1);
        if (status != HF_OK) {
            return status;
        }
        HF_FAIL("rest.sealed");
    }
    int state = hf_spare_take(&log->spare);
    if (state == HF_SPARE_BUSY) {
        return HF_AGAIN;
    }
    hf_spare_drop(log);
    hf_spare_give(&log->spare, HF_SPARE_NONE);
    HF_FAIL("rest.unspared");
    status = on_disk && !hf_log_on_disk(log) ? to_disk(log) : HF_OK;
    if (status != HF_OK) {
        return status;
    }
    (void)hf_head_rest(log->dir, log->head_fd);
    return HF_OK;
}

int64_t hf_log_rest(struct hf_log *log, int on_disk)
{
    int64_t status = put_away(log, on_disk);
    hf_log_close(log);
    return status;
}
