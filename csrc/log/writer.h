/* writer.h: the store's side of a log: append.c, spare.c, roll.c and retire.c work on one struct hf_log, and
 * tell.c says in the head what they did. See log.h for the rules. */
#ifndef HF_LOG_WRITER_H
#define HF_LOG_WRITER_H
#include "log/log.h"
#include "log/segment.h"

#include <pthread.h>

enum hf_spare_state {
    HF_SPARE_NONE = 0,
    HF_SPARE_BUSY = 1, /* the helper makes it, or a roll decides about it */
    HF_SPARE_USED = 2, /* a retired segment, renamed; the directory is not synced yet */
    HF_SPARE_READY = 3
};

#define HF_SPARE_NAME "spare"
#define HF_COPY_NAME "copy-new"

/* The next segment's file. `lock` guards `state`; whoever set BUSY owns the rest. */
struct hf_spare {
    pthread_mutex_t lock;
    int state;
    int fd;
    int dir;      /* the log's directory, for the helper's syncs */
    uint8_t *map; /* memory level: populated; else NULL */
    uint64_t bytes;
};

enum { HF_WRITE_AHEAD = 1 << 20 }; /* bytes that are worth a call */

/* A process that dies leaves nothing of this; what a crash leaves in the files, hf_log_open mends. */
struct hf_log {
    struct hf_log_config config;
    uint64_t token; /* of the process that opened it */
    int dir;
    int head_fd;
    struct hf_head *head;
    struct hf_seg *segs; /* ascending; the last one is active unless must_roll */
    int64_t count;
    int64_t room;               /* of segs */
    struct hf_index index;      /* of the active segment */
    struct hf_index next_index; /* of the one that a roll prepares */
    uint64_t end;               /* appended position */
    uint64_t appended_sqn;
    uint64_t tail_sqn; /* behind the last message in the active segment; BEGIN may put appended_sqn below it */
    uint64_t synced;   /* position below which all is published */
    uint64_t ahead;    /* disk: position below which the disk was asked to begin */
    uint64_t incarnation;
    uint64_t begin_sqn;
    struct hf_begin begins[HF_INCARNATIONS];
    uint64_t begin_count;
    uint64_t generation;   /* of the head's newest table */
    uint64_t floor_sqn;    /* hf_log_release: numbers below are wanted by nobody */
    uint64_t need;         /* bytes that the append which met HF_ROLL wants */
    uint64_t next_bytes;   /* file size that hf_log_prepare makes; atomic */
    uint64_t rolled_at;    /* where the active segment begins; atomic, a hint for hf_log_prepare */
    uint32_t group_open;   /* disk: a SYNC frame leads this group commit already */
    uint32_t must_roll;    /* the active segment takes nothing more */
    uint32_t filled;       /* it must roll because it is full: sizes double */
    uint32_t dir_dirty;    /* a name changed since the last directory sync */
    uint32_t poisoned;     /* a sync failed in this life; atomic: the helper's may have */
    uint32_t renewing;     /* an open that writes once more what an earlier life could not sync */
    uint32_t opened;       /* there is something to sync at the end */
    uint32_t blind;        /* its head could not be read when it was opened */
    uint32_t unbegun;      /* its BEGINs were not all readable then */
    uint32_t begins_found; /* a segment knew one that the head did not */
    uint32_t empty;        /* no message or LOST record in any segment */
    int64_t dirty_from;    /* index into segs of the oldest segment that may be unsynced; == count: none */
    int64_t named;         /* this many of segs, from the first on, have their names on disk */
    uint64_t kept_sqn; /* from this number and this position on nothing was ever let go: what is not there is lost */
    uint64_t kept_position;
    uint64_t fill_next; /* the lowest end of a fill, as of the last look */
    uint64_t cut_bytes;
    uint64_t damaged;
    uint64_t syncs;
    uint64_t unsure; /* 1: in [unsure_first, unsure_next) it may have acknowledged what it cannot read (unsure.c) */
    uint64_t unsure_first;
    uint64_t unsure_next;
    char *doubt; /* what config.doubt points to */
    struct hf_spare spare;
};

static inline int hf_log_on_disk(const struct hf_log *log)
{
    return log->config.level == HF_LEVEL_DISK;
}

/* ---- tell.c: into the head, and onto the disk. Where that fails the log is poisoned ---- */

void hf_log_tell(struct hf_log *log, uint64_t *word, uint64_t value);         /* word: of log->head */
void hf_log_tell_on_disk(struct hf_log *log, uint64_t *word, uint64_t value); /* the same by pwrite, at each level */
void hf_log_tell_bytes(struct hf_log *log, void *place, const void *bytes, uint64_t n);
/* In the place of the table before the newest; a crash inside leaves that one. Readers look when begin_version says so: once it
 * is durable, if the log is. */
void hf_log_tell_begins(struct hf_log *log);
void hf_log_publish(struct hf_log *log);

int hf_log_poisoned(const struct hf_log *log); /* any thread */
int64_t hf_log_poison(struct hf_log *log);     /* HF_POISONED */
/* hf_sync of a file or a directory of the log; HF_POISONED from the first error on. */
int64_t hf_log_durable(struct hf_log *log, int fd, uint32_t what);

/* ---- spare.c ---- */

void hf_spare_adopt(struct hf_log *log); /* open: takes over a `spare` of an earlier process, removes half-made files */
void hf_spare_close(struct hf_log *log);
void hf_spare_drop(struct hf_log *log);    /* whoever holds it; its file goes */
int hf_spare_take(struct hf_spare *spare); /* BUSY holds the other thread off; the state before it is returned */
void hf_spare_give(struct hf_spare *spare, int state);
/* A file of full size under `name`. ahead: by the helper, which gives way to others. */
int64_t hf_log_make_file(const struct hf_log *log, const char *name, uint64_t bytes, int ahead, int *out_fd);
/* The memory level writes through this mapping. */
int64_t hf_log_map_file(const struct hf_log *log, int fd, uint64_t bytes, int ahead, uint8_t **out);
int64_t hf_spare_finish(struct hf_log *log, int ahead); /* from a retired file to one that a roll can take */

/* ---- roll.c ---- */

int64_t hf_log_reserve(struct hf_log *log, int64_t count); /* room for this many in segs */
/* Seals s, open at s->fd for writing. punch: gives the unused tail back to the file system, and the index's pages where it
 * would have one entry; such a file is not recycled. */
int64_t hf_log_end_segment(struct hf_seg *s, uint64_t end, uint64_t next_sqn, const struct hf_index *index, int punch);

/* ---- retire.c ---- */

/* Takes over what the head said of the log's beginning before this open. */
void hf_log_kept(struct hf_log *log);
void hf_log_oldest(struct hf_log *log); /* tells readers where the log begins: head.oldest_* */
/* The oldest segments go while there is too much. We hold the spare, in this state; returns the new one. */
int hf_log_retain(struct hf_log *log, int spare_state);
#endif
