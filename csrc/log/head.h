/* head.h: the file `head` of a log: its words and its BEGINs (head.c), made and made anew (head_file.c). */
#ifndef HF_LOG_HEAD_H
#define HF_LOG_HEAD_H
#include "log/segment.h"

#define HF_HEAD_BYTES (3 * HF_HEADER_PAGE)     /* of the file: its words, and two tables of BEGINs */
#define HF_GENERATION_SANE (UINT64_C(1) << 62) /* no table of BEGINs has this generation or a higher one */

/* The BEGINs of a head. */
struct hf_begins {
    struct hf_begin at[HF_INCARNATIONS];
    uint64_t count;
    uint64_t generation; /* of this table; 0: none is whole, or it is of layout version 1 */
    uint64_t version;    /* hf_head.begin_version when it was read */
    int whole;           /* 0: a newer table, or the only one, is not whole: more may have begun than stands here */
};

/* A store's: all of it, to be read, or written, too (PROT_). HF_AGAIN: there is none; HF_LAYOUT; HF_DAMAGED; EIO: the disk does
 * not give it. */
int64_t hf_head_map(int dir, int protection, struct hf_head **out);
void hf_head_unmap(struct hf_head *head);
/* A reader's: opens it, of either layout version, and copies its words; as hf_head_map. */
int64_t hf_head_open(int dir, int *fd, struct hf_head *copy);
/* What its words say now. Where next_sqn says that a number is published, end covers it. */
int64_t hf_head_look(int fd, struct hf_head *copy);
/* Words and BEGINs, of one moment. HF_OK, also where the table is not whole; or an error. */
int64_t hf_head_read(int fd, struct hf_head *copy, struct hf_begins *out);
uint64_t hf_head_mask(const struct hf_head *head); /* what end_check is XORed with */
/* 1: what it says of end and beginning is true of the files as they are. After a reboot the pages and names of a memory
 * log on a disk may be older than its head, or newer. */
int hf_head_speaks(const struct hf_head *head);
uint64_t hf_head_stable(const struct hf_head *head); /* the published end, if it speaks; else 0 */
/* The generation of the table that follows this one, in a head with this begin_version. */
uint64_t hf_begins_next(uint64_t generation, uint64_t told);
void hf_head_begins_page(uint64_t generation, const struct hf_begin *begins, uint64_t count,
                         struct hf_begin_table *out);

/* ---- which numbers are void, because a later incarnation has begun ---- */

/* The first number that is void in segment i, because a later incarnation began at or below it; UINT64_MAX if none. */
uint64_t hf_void_from(const struct hf_seg *segs, int64_t n, int64_t i, const struct hf_begin *begins, int64_t count);
/* The same for s, which the n segments from `later` on may have overridden. */
uint64_t hf_void_after(const struct hf_seg *s, const struct hf_seg *later, int64_t n, const struct hf_begin *begins,
                       int64_t count);
/* `next`, behind the last message of the log, whose last segment is `last`; or the start of a later incarnation that
 * is lower. */
uint64_t hf_void_tail(const struct hf_seg *last, const struct hf_begin *begins, uint64_t count, uint64_t next);

/* ---- head_file.c ---- */

/* lost: in place of one that nobody can read. Then the new one says that what has begun is not known, until a recovery has said so
 * for good (unsure.c). HF_POISONED: a sync failed; there is none. */
int64_t hf_head_create(int dir, const uint8_t *uuid, int lost);
/* A new file of the layout that this build writes, which says what the old one said: words and BEGINs. HF_POISONED: a sync
 * failed; the old one is there, or nobody knows which of them the disk has, and the new one says that it is in doubt. */
int64_t hf_head_remake(int dir, const struct hf_head *old, struct hf_begins *begins);
/* A new file of one page, of layout version 1, which says the same as `own`, the open head: for a log that nobody is to write
 * before the next open. An error: the head is as it was. HF_USAGE: poisoned, or what has begun is not known, or `own` is not
 * what the name leads to any more. */
int64_t hf_head_rest(int dir, int own);
#endif
