/* reader.h: the reader's side of a log, from above: reader.c answers the calls of log.h. It reads on in a
 * fill (fill_read.c) or finds a number in the segments (lookup.c) and copies from there (copy.c), within what
 * each segment has (bounds.c). How far the log goes the head tells, or a walk (beyond.c); head and list are
 * looked at again where something has changed (refresh.c). */
#ifndef HF_LOG_READER_H
#define HF_LOG_READER_H
#include "log/fill.h"
#include "log/log.h"

#define HF_COPY_CHUNK UINT64_C(8192)   /* verified, then understood while it is in L1 */
#define HF_COPY_PIECE UINT64_C(131072) /* read by one call */

#define HF_LOGR_RETRY 1 /* refresh the list and come again */
#define HF_LOGR_FOUND 2

/* How far the log goes, and what the head said when that was found. */
struct hf_reach {
    uint64_t end;
    uint64_t next_sqn;
    int64_t status; /* hf_logr_end */
    uint64_t head_end;
    uint64_t head_sqn;
    uint64_t version;
    int found;
    int held; /* a process kept the log then: the head was believed, and nothing was walked */
};

struct hf_logr {
    uint64_t token;
    int dir;
    int head_fd;
    struct hf_head *head; /* a copy, as of the last look */
    struct hf_seg *segs;
    int64_t count;
    struct hf_begin begins[HF_INCARNATIONS];
    int64_t begin_count;
    int begins_whole;                      /* 0: nobody knows what has begun: begin_count is 0 */
    uint64_t begin_version;                /* of `begins`, and of `segs` with them */
    struct hf_begin told[HF_INCARNATIONS]; /* hf_logr_learn */
    int64_t told_count;
    struct hf_index index; /* of the segment index_uuid: from its file, or from our own walks */
    uint8_t index_uuid[16];
    uint8_t cursor_uuid[16];     /* the segment of the last read */
    uint64_t cursor;             /* position behind it */
    uint64_t cursor_sqn;         /* number there */
    uint64_t incarnation;        /* of what the last read returned */
    struct hf_reach reach;       /* beyond.c */
    struct hf_log_walked walked; /* of the last walk to the end */
    struct hf_ranges fills;      /* as listed */
    struct hf_logr *fill;        /* the one that was read last, as a log of one segment; NULL: none */
};

/* One call of hf_logr_read. */
struct hf_request {
    uint64_t sqn;
    uint64_t end;       /* published position */
    uint64_t published; /* published next number, as far as this log holds */
    int limited;        /* it holds no farther, and more is published */
    int fresh;          /* the list was made during this call */
    uint8_t *buf;
    uint64_t capacity;
    uint64_t *next;
};

/* ---- refresh.c ---- */

/* Looks at the head: at the one that has the name now. by_name: also where the old one may have another name left. */
int64_t hf_logr_look(struct hf_logr *r, int by_name);
int64_t hf_logr_refresh(struct hf_logr *r); /* lists segments and fills again; HF_OK or an error */
void hf_logr_fill_close(struct hf_logr *r); /* r->fill, if there is one */

/* ---- beyond.c ---- */

/* Says of an open head that its log is kept: until this open file is closed, what the head says is all that there is. */
void hf_head_keep(int head_fd);
/* r->reach becomes true. HF_OK, or an error. */
int64_t hf_logr_reach(struct hf_logr *r);
/* What is published, to somebody who asks for number `sqn`: as the head says, where that is enough. HF_OK, or an
 * error. */
int64_t hf_logr_bounds(struct hf_logr *r, uint64_t sqn, uint64_t *next_sqn, uint64_t *end);

/* ---- bounds.c ---- */

/* From this number on nobody knows what of this log holds; UINT64_MAX: it is known. */
uint64_t hf_logr_forgotten_from(const struct hf_logr *r);
/* Below this number this log says what it has and lacks. From there on its own messages are void, by a BEGIN that was told and that
 * it has missed, or nobody knows: it may get the others' yet. UINT64_MAX: there is no such number, or its own table is damaged. */
uint64_t hf_logr_holds_below(const struct hf_logr *r);
/* `own`, or the first number of s that the table which was told makes void, if that is lower. */
uint64_t hf_logr_told_void(const struct hf_logr *r, const struct hf_seg *s, uint64_t own);
/* The first number that is void in segment i, by this log's table or by the one that was told. */
uint64_t hf_logr_void_from(const struct hf_logr *r, int64_t i);
/* Position behind the last published byte of segment i. */
uint64_t hf_logr_upper(const struct hf_logr *r, int64_t i, uint64_t end);
/* What follows segment i in numbers: the lowest first number of a readable one behind it, or what is published. */
uint64_t hf_logr_first_behind(const struct hf_logr *r, int64_t i, uint64_t published);
/* The frames of segment i end at `position`, before q->sqn: the answer to the call. */
int64_t hf_logr_beyond(const struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position);
/* 1: bytes are missing between segment i, whose frames end at `position`, and the next readable one. */
int hf_logr_missing_behind(const struct hf_logr *r, int64_t i, uint64_t position, uint64_t end);

/* ---- copy.c ---- */

/* Copies from the message at `position`, which has number `sqn`, in segment i, which is open. */
int64_t hf_logr_copy(struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position, uint64_t sqn);

/* ---- lookup.c ---- */

/* 1: this log does not have the number: a fill may. */
static inline int hf_logr_lacks(int64_t status)
{
    return status == HF_GONE || status == HF_DAMAGED || status == HF_LOST || status == HF_HOLE;
}
/* One try in the segments that are listed. */
int64_t hf_logr_here(struct hf_logr *r, const struct hf_request *q);

/* ---- fill_read.c ---- */

/* The segments do not have q->sqn, because of `status`: from a fill, or `status`, and *q->next passes over no fill. */
int64_t hf_logr_fill(struct hf_logr *r, const struct hf_request *q, int64_t status);
/* 1: q->sqn follows in the fill of the last read; then hf_logr_fill_more reads on there (> 0 or HF_SMALL; else no). */
int hf_logr_fill_goes_on(const struct hf_logr *r, uint64_t sqn);
int64_t hf_logr_fill_more(struct hf_logr *r, const struct hf_request *q);
#endif
