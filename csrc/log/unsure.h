/* unsure.h: a log whose end nobody knows, because the disk does not give it (unsure.c). hf_log_sure is in
 * log.h. */
#ifndef HF_LOG_UNSURE_H
#define HF_LOG_UNSURE_H
#include "log/log.h"
#include "log/segment.h"

int64_t hf_unsure_load(struct hf_log *log); /* what an earlier open has found */
int hf_unsure_said(int dir); /* a reader's: 1: an open has found such a range, and nothing has settled it */
/* The disk does not give numbers from `first` on, below `next`, that may have been stable: for good when it returns HF_OK. */
int64_t hf_unsure_save(struct hf_log *log, uint64_t first, uint64_t next);
/* No valid frame lies at `position` of this open segment or behind: how many could, if the disk gave all. */
int64_t hf_unsure_frames(const struct hf_seg *s, uint64_t position, uint64_t *most);
#endif
