/* end.h: the walk to the end of a log (end.c), for who opens it (open.c) and for its readers (beyond.c). */
#ifndef HF_LOG_END_H
#define HF_LOG_END_H
#include "log/log.h"
#include "log/segment.h"

/* The walk to the end of a log. Who asks sets the first part. */
struct hf_ending {
    int dir;
    struct hf_seg *segs; /* without what hf_ending_leftover and hf_seg_ghosts name */
    int64_t count;
    struct hf_index *index; /* of the last segment that is walked; NULL: not wanted */
    uint64_t told_sqn;      /* the head's next_sqn, */
    uint64_t kept_sqn;      /* and what hf_log_kept takes from it */
    uint64_t kept_position;
    uint64_t stable; /* S: what is known (hf_head_stable, then hf_ending_stable), and what the walk learns */
    const struct hf_log_walked *from; /* of an earlier walk; NULL: none */
    int blind;                        /* the disk does not give the head */
    uint64_t segment_bytes; /* how large a segment is whose file does not tell; 0: nobody asks for next_unsure */

    uint64_t end;      /* of the log, as far as it was walked */
    uint64_t next_sqn; /* there */
    int64_t first;     /* index of the segment where the walk starts */
    int64_t last;      /* and of the last one that is the log's; -1: none */
    int torn;          /* the walk ended at a cut */
    int hurt;          /* the last segment has damage: it is kept as it is, not punched */
    int lost_tail;     /* the end of the log is damaged: its numbers are not known from frames */
    int unsure;        /* the disk does not give what may have been stable: numbers from first_unsure on */
    uint64_t first_unsure;
    uint64_t next_unsure; /* UINT64_MAX: the next frame that is found tells */
    uint64_t most_unsure; /* if none is: no number from here on was ever in the log */
    uint64_t cut_bytes;
    uint64_t damaged; /* ranges */
    struct hf_log_walked walked;
    struct hf_log_walked begun; /* where the message under way begins */
};
void hf_ending_stable(struct hf_ending *e, const struct hf_seg *segs, int64_t n); /* by the headers of all segments */
/* 1: segs[i] of n is left over from a recycling whose rename was lost, or from a roll whose header was. To be asked of
 * the last one first. */
int hf_ending_leftover(const struct hf_ending *e, const struct hf_seg *segs, int64_t n, int64_t i);
int64_t hf_ending_walk(struct hf_ending *e);
/* The number behind the last message. After a lost tail it is the head's, if the lost bytes can have held this many
 * frames. */
uint64_t hf_ending_number(const struct hf_ending *e, const struct hf_begin *begins, uint64_t count);
/* This many segments at the beginning were let go before, and a power cut brought their names back without those of their
 * successors: they end before `position`, where the log begins with number `sqn`. */
int64_t hf_seg_ghosts(const struct hf_seg *segs, int64_t n, uint64_t position, uint64_t sqn);
#endif
