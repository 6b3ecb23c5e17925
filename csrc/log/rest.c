/* rest.c: before a log is closed for long: it gives back the room that it keeps for what comes next.
 *
 * A log whose source has ended may lie there for years. Its active segment is sealed as a roll seals it, without its unused
 * tail, and the spare goes. What is written here need not be on disk: an open that finds no seal walks to the end and writes
 * it again. A crash leaves the seal or not, and the spare or not. */
#include "log/writer.h"
#include "base/failpoint.h"
#include "base/process.h"

int64_t hf_log_rest(struct hf_log *log)
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
    log->must_roll = 1; /* as after an open */
    log->filled = 0;
    int state = hf_spare_take(&log->spare);
    if (state == HF_SPARE_BUSY) {
        return HF_AGAIN;
    }
    hf_spare_drop(log);
    hf_spare_give(&log->spare, HF_SPARE_NONE);
    return HF_OK;
}
