/* log_recovery.h: what an open knows while it works: log_open.c and log_walk.c. */
#ifndef HF_LOG_RECOVERY_H
#define HF_LOG_RECOVERY_H
#include "log_private.h"

struct recovery {
    struct hf_log *log;
    uint64_t stable;   /* S */
    uint64_t end;      /* of the log, as far as it was walked */
    uint64_t next_sqn; /* there */
    int64_t first;     /* index of the segment where the walk starts */
    int64_t last;      /* and of the last one that it met */
    int torn;          /* the walk ended at a cut */
    int hurt;          /* the last segment has damage: it is kept as it is, not punched */
    int lost_tail;     /* the end of the log is damaged: its numbers are not known from frames */
    int unsure;        /* from here on the disk does not give what may have been stable */
    uint64_t first_unsure;
    uint64_t next_unsure; /* UINT64_MAX: the next frame that is found tells */
    uint64_t most_unsure; /* if none is: no number from here on was ever in the log */
};

/* Walks the segments from where all is known to be stable: r->end, r->next_sqn and what was found on the way. */
int64_t hf_recovery_walk(struct recovery *r);
#endif
