/* poison.h: what a log does about a sync that failed (poison.c). hf_log_distrust is in log.h. */
#ifndef HF_LOG_POISON_H
#define HF_LOG_POISON_H
#include "log/writer.h"

/* 1: a sync failed in an earlier life and in this boot; 0: none did. An error: nobody knows. */
int64_t hf_log_doubted(const struct hf_log *log, const struct hf_head *head);
/* What open found in the segments from `first` on is stable when it returns HF_OK: synced, or with a doubt written once more. */
int64_t hf_log_settle(struct hf_log *log, int64_t first);
#endif
