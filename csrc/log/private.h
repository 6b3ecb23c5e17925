/* log_private.h: what the files of the log share. See log.h for the rules.
 *
 *   log_file.c    segment files: names, headers, seals, maps
 *   log_head.c    the head, and the incarnations that it remembers
 *   log_head_file.c  the head's file: made, and made anew
 *   log_window.c  the bytes of such files, read into private memory: a bad sector is damage, and no signal
 *   log_frame.c   frames: CRC, verification, walking, resynchronisation
 *   log.c         the store's hot side: append, sync, publish
 *   log_roll.c    the store's cold side: roll, the spare
 *   log_poison.c  what it does about a sync that failed
 *   log_retire.c  what the log lets go, and what it must not take for that
 *   log_end.c     where a log ends, as its files tell it
 *   log_open.c    recovery
 *   log_unsure.c  a log whose end nobody knows, because the disk does not give it
 *   log_reader.c  readers: list the segments, find a number
 *   log_copy.c    readers: copy and verify
 *   log_fill.c    fills: files beside the segments with what those had lost
 *   log_fill_read.c  readers: numbers that only a fill has
 *   log_beyond.c  readers: the end of a log that nobody keeps
 *   log_check.c   verification of everything, beside a live store */
#ifndef HF_LOG_PRIVATE_H
#define HF_LOG_PRIVATE_H
#include "base/status.h"
#include "log/head.h"
#include "log/log.h"

#include <errno.h>
#include <pthread.h>

#define HF_SEGMENT_MIN UINT64_C(16384)                 /* smallest segment file */
#define HF_SEGMENT_SANE (UINT64_C(1) << 40)            /* no segment file is larger */
#define HF_END_SANE (UINT64_MAX - 2 * HF_SEGMENT_SANE) /* no log ends there or behind: what came next would wrap */
#define HF_CRC_BYTES 28                                /* of a frame's header: all before `crc` */
#define HF_HEADER_CRC offsetof(struct hf_segment_header, crc)
#define HF_CONTROL_BYTES (sizeof(struct hf_frame) + sizeof(struct hf_control_body))
#define HF_CONTROL_ROOM UINT64_C(64)   /* a control frame, rounded up to the granule */
#define HF_SCAN_CHUNK UINT64_C(65536)  /* frames verified ahead while walking */
#define HF_COPY_CHUNK UINT64_C(8192)   /* verified, then understood while it is in L1 */
#define HF_COPY_PIECE UINT64_C(131072) /* read by one call */
#define HF_SEGMENT_NAME 24             /* "seg-" + 16 hex digits + NUL */

/* The errno of a failed system call as a status. */
static inline int64_t hf_errno(void)
{
    return HF_ERRNO - errno;
}

/* Bytes that a frame of this length takes: up to the next granule. 64-bit: a length near 2^32 must not wrap. */
static inline uint64_t hf_frame_room(uint32_t length)
{
    return ((uint64_t)length + HF_GRANULE - 1) & ~(uint64_t)(HF_GRANULE - 1);
}

static inline uint64_t hf_commit_word(uint64_t position, uint32_t length)
{
    return (((position / HF_GRANULE + 1) & UINT32_MAX) << 32) | length;
}

/* ---- log_file.c ---- */

enum hf_seg_state {
    HF_SEG_GOOD = 0,
    HF_SEG_BAD = 1,   /* no readable header of this source: its frames cannot be verified */
    HF_SEG_ALIEN = 2, /* a good header, but of another position: a recycled file under its old name */
    HF_SEG_VANISHED = 3
};

/* Part of a file: offsets from <= x < to. */
struct hf_bytes {
    uint64_t from;
    uint64_t to;
};

/* A copy of part of a segment's file (log_window.c). */
struct hf_window {
    uint8_t *bytes; /* malloc'ed */
    uint64_t room;
    struct hf_bytes has;
    struct hf_bytes bad; /* from the first byte of it to the last that the disk did not give; empty: it gave all */
};

/* One segment file as its name and header describe it; everything checked, nothing trusted beyond the file's size. */
struct hf_seg {
    uint64_t base;  /* log position of its first frame, from the name */
    uint64_t limit; /* log position behind the last byte that can hold a frame */
    uint64_t first_sqn;
    uint64_t incarnation;
    uint64_t synced_below;
    uint64_t header_bytes;
    uint64_t file_bytes; /* as stat says */
    uint64_t allocated;  /* bytes of disk */
    struct hf_seal seal; /* end_position 0: not sealed, or the seal is wrong */
    uint8_t uuid[16];
    uint32_t seed;      /* of its frames' CRCs */
    uint32_t state;     /* enum hf_seg_state */
    uint64_t fill_next; /* not 0: a fill, and the number behind its last message; its positions begin at 0 */
    uint32_t flaws; /* a copy of the header, the seal or an unused byte of the page is wrong: harmless, but reported */
    uint32_t unreadable; /* the disk does not give its header's page, or not the file itself */
    int fd;              /* -1: not open. A log has only open what it may write: open leaves none, a roll makes them */
    uint8_t *map;        /* NULL: not mapped; the memory level's own, to write. Nobody reads through it */
    uint64_t mapped;
    struct hf_window window;
};

void hf_seg_name(char name[HF_SEGMENT_NAME], uint64_t base);
/* The segments of a directory, ascending, their headers read. Returns the count; *out is malloc'ed (also when it is
 * 0). */
int64_t hf_seg_list(int dir, const uint8_t *source_uuid, struct hf_seg **out);
int64_t hf_seg_list_all(int dir, const uint8_t *source_uuid,
                        struct hf_seg **out);                               /* HF_SEG_ALIEN, too: open removes them */
int64_t hf_seg_load(int dir, struct hf_seg *s, const uint8_t *source_uuid); /* HF_OK or an errno; s->state says more */
/* Makes this file that of no position, on disk: its name is about to go, and a power cut may bring that back. */
int64_t hf_seg_void(int dir, const struct hf_seg *s, const uint8_t *source_uuid);
/* Opens it to read, unless it is open. HF_GONE: the file is another one by now. */
int64_t hf_seg_open(int dir, struct hf_seg *s);
/* 1: the file under this name is still the one that was listed, of this source. To be asked before anything in it is called
 * damage. */
int hf_seg_same(int dir, const struct hf_seg *s, const uint8_t *source_uuid);
void hf_seg_unmap(struct hf_seg *s); /* what the store had mapped to write */
void hf_seg_list_free(struct hf_seg *segs, int64_t n);
uint64_t hf_seg_header_bytes(uint64_t file_bytes);
/* Writes a header (both copies, seal cleared) for a file of s->file_bytes, open at s->fd; mints its uuid and fills
 * in *s. */
int64_t hf_seg_begin(struct hf_seg *s, const uint8_t *source_uuid);
/* Index, then seal. */
struct hf_index;
int64_t hf_seg_seal(struct hf_seg *s, uint64_t end, uint64_t next_sqn, const struct hf_index *index);
int64_t hf_seg_index(struct hf_seg *s, struct hf_index_entry *out,
                     uint64_t max); /* of an open one; 0: none, or wrong; or an errno */
/* Calls take(argument, name) for every name in the directory, until it returns an error; that is returned. */
int64_t hf_each_name(int dir, int64_t (*take)(void *argument, const char *name), void *argument);
void hf_fill_preamble(struct hf_preamble *pre, uint32_t kind);
int64_t hf_write_all(int fd, const void *data, uint64_t bytes, uint64_t offset);
int hf_zeros(const uint8_t *p, uint64_t bytes); /* 1: nothing else */

/* ---- log_window.c ---- */

int hf_unreadable(
    int error); /* 1: the disk does not give what was asked for. Else the call failed, and says nothing of it */
/* Reads `bytes` of the file; zeros for what it does not have and for what the disk does not give, which *bad tells. Else an
 * errno: the call failed, and says nothing of the bytes. */
int64_t hf_read_all(int fd, uint8_t *to, uint64_t bytes, uint64_t offset, struct hf_bytes *bad);
/* `bytes` from `offset` on of an open segment, and in s->window what lies behind them; valid until the next call for it.
 * NULL: *status is an errno. */
const uint8_t *hf_seg_bytes(struct hf_seg *s, uint64_t offset, uint64_t bytes, int64_t *status);
/* 1: the disk did not give some of these bytes, which the window has; or of bytes beside them. */
int hf_seg_unread(const struct hf_seg *s, uint64_t offset, uint64_t bytes);
void hf_seg_forget(struct hf_seg *s); /* what the window has may be old: it is read again */
void hf_seg_close(struct hf_seg *s);  /* file and window; not the map */

/* ---- log_head.c; more is in log_head.h ---- */

/* The first number that is void in segment i, because a later incarnation began at or below it; UINT64_MAX if none. */
uint64_t hf_void_from(const struct hf_seg *segs, int64_t n, int64_t i, const struct hf_begin *begins, int64_t count);
/* The same for s, which the n segments from `later` on may have overridden. */
uint64_t hf_void_after(const struct hf_seg *s, const struct hf_seg *later, int64_t n, const struct hf_begin *begins,
                       int64_t count);
/* `next`, behind the last message of the log, whose last segment is `last`; or the start of a later incarnation that
 * is lower. */
uint64_t hf_void_tail(const struct hf_seg *last, const struct hf_begin *begins, uint64_t count, uint64_t next);

/* ---- log_frame.c ---- */

uint32_t hf_seed(const uint8_t *segment_uuid, uint64_t incarnation);
/* Writes the commit words' positions and the CRCs of up to three frames. */
void hf_frames_stamp(uint8_t *const frame[3], int n, uint32_t seed);
/* Verifies frames from `block` on, which lies at `position`, until one is wrong, `room` is used up, or at least
 * `want` bytes are verified. Returns the verified bytes. Zero padding is part of a valid frame. */
uint64_t hf_frames_verified(const uint8_t *block, uint64_t room, uint64_t want, uint64_t position, uint32_t seed);

/* Room that the commit word at `at` claims; 0 if it is not of this position, or claims more than `room`. */
uint64_t hf_frame_claimed(const uint8_t *at, uint64_t room, uint64_t position);

/* A walk over the frames of one open segment. */
struct hf_walk {
    struct hf_seg *s;
    uint64_t base;
    uint64_t limit;
    uint64_t position;
    uint64_t verified; /* frames below it are verified */
    uint32_t seed;
    struct hf_frame frame;       /* copy of the frame at `position`; valid after hf_walk_frame returned 1 */
    struct hf_control_body body; /* of a control frame */
    int64_t failed;              /* an errno: from there on it finds nothing, which says nothing of the segment */
};
void hf_walk_start(struct hf_walk *w, struct hf_seg *s, uint64_t position, uint64_t limit);
int hf_walk_frame(struct hf_walk *w); /* 1: a valid frame is here; 0: none (wrong bytes, the limit, or w->failed) */
/* No valid frame is here. Room that its commit word claims, if that is of this place; else 0. *unread: it may be that the
 * disk does not give it. */
uint64_t hf_walk_claimed(struct hf_walk *w, int *unread);
void hf_walk_step(struct hf_walk *w); /* behind the frame */
/* Moves to the next valid frame behind `position` that starts a message or is a control frame. 0: there is none,
 * position = limit. */
int hf_walk_resync(struct hf_walk *w);

/* What a walk has understood so far: messages are whole, numbers follow each other. */
struct hf_chain {
    uint64_t next_sqn;  /* expected */
    uint64_t whole;     /* position behind the last whole message or control frame */
    uint64_t whole_sqn; /* next number there */
    uint32_t fragment;  /* expected; 0 = between messages */
    int jump;           /* 1: behind a gap, the next number may be larger */
};
/* 1: this frame continues; 0: it does not. body: of a control frame, else not read. */
int hf_chain_take(struct hf_chain *c, const struct hf_frame *f, const struct hf_control_body *body, uint64_t position);
/* What a reader says of the numbers of this LOST record. */
static inline int64_t hf_lack(const struct hf_frame *f)
{
    return f->flags & HF_FRAME_HOLE ? HF_HOLE : HF_LOST;
}
/* Behind damage: the next frame starts a message or is a control frame, and its number may be larger. */
static inline void hf_chain_jump(struct hf_chain *c, uint64_t position)
{
    c->next_sqn = c->whole_sqn;
    c->whole = position;
    c->fragment = 0;
    c->jump = 1;
}

/* The sparse index of one segment while it is walked or written. */
struct hf_index {
    struct hf_index_entry *entries;
    uint32_t count;
    uint32_t max;
    uint64_t next_offset; /* file offset from which on the next entry is due */
};
static inline void hf_index_note(struct hf_index *x, uint64_t offset, uint64_t sqn)
{
    if (offset >= x->next_offset && x->count < x->max) {
        x->entries[x->count].sqn = sqn;
        x->entries[x->count].offset = offset;
        x->count++;
        x->next_offset = (offset / HF_INDEX_STEP + 1) * HF_INDEX_STEP;
    }
}
int64_t hf_index_reset(struct hf_index *x, uint64_t file_bytes); /* HF_OK, or no memory */

/* ---- log_fill.c ---- */

struct hf_range {
    uint64_t first;
    uint64_t next;
};

/* Ranges of numbers; `at` is malloc'ed. */
struct hf_ranges {
    struct hf_range *at;
    int64_t count;
    int64_t room;
};
int64_t hf_ranges_add(struct hf_ranges *ranges, uint64_t first, uint64_t next); /* HF_OK, or no memory */

#define HF_FILL_NAME 40 /* "fill-" + 16 hex digits + "-" + 16 hex digits + NUL */
void hf_fill_name(char name[HF_FILL_NAME], uint64_t first, uint64_t next);
int64_t hf_fill_list(int dir, struct hf_ranges *out); /* as their names say, ascending; HF_OK or an errno */
/* Verifies the header of the fill of this range and opens it, as a segment whose positions begin at 0. */
int64_t hf_fill_open(int dir, const uint8_t *source_uuid, struct hf_range range, struct hf_seg *s);
int hf_fill_same(int dir, const struct hf_seg *s); /* as hf_seg_same */
/* The first number that is void in a fill: by the table alone, since a segment of a later incarnation may hold numbers
 * from before that began. Without a readable table (count 0), by the segments. */
uint64_t hf_fill_void_from(const struct hf_seg *fill, const struct hf_seg *segs, int64_t n,
                           const struct hf_begin *begins, int64_t count);
/* Removes those that end at or below it. Returns the lowest end that is left; UINT64_MAX: none. */
uint64_t hf_fill_expire(int dir, uint64_t oldest_sqn);
void hf_fill_drop_unfinished(int dir);

/* ---- the store's side ---- */

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
    int64_t named;         /* so many of segs, from the first on, have their names on disk */
    uint64_t kept_sqn; /* from this number and this position on nothing was ever let go: what is not there is lost */
    uint64_t kept_position;
    uint64_t fill_next; /* the lowest end of a fill, as of the last look */
    uint64_t cut_bytes;
    uint64_t damaged;
    uint64_t syncs;
    uint64_t unsure; /* 1: in [unsure_first, unsure_next) it may have acknowledged what it cannot read (log_unsure.c) */
    uint64_t unsure_first;
    uint64_t unsure_next;
    char *doubt; /* what config.doubt points to */
    struct hf_spare spare;
};

/* ---- log_tell.c: into the head. Where that fails the log is poisoned ---- */
void hf_log_tell(struct hf_log *log, uint64_t *word, uint64_t value); /* word: of log->head */
void hf_log_tell_bytes(struct hf_log *log, void *place, const void *bytes, uint64_t n);
void hf_log_tell_begins(
    struct hf_log *log); /* in the place of the table before the newest; a crash inside leaves that one.
                                                Readers look when begin_version says so: once it is durable, if the log is */
void hf_log_tell_poison(struct hf_log *log, uint64_t word);
void hf_log_publish(struct hf_log *log);
static inline int hf_log_on_disk(const struct hf_log *log)
{
    return log->config.level == HF_LEVEL_DISK;
}
int64_t hf_log_reserve(struct hf_log *log, int64_t count); /* room for so many in segs */
/* Seals s, open at s->fd for writing. punch: gives the unused tail back to the file system; such a file is not
 * recycled. */
int64_t hf_log_end_segment(struct hf_seg *s, uint64_t end, uint64_t next_sqn, const struct hf_index *index, int punch);
void hf_spare_adopt(struct hf_log *log); /* open: takes over a `spare` of an earlier process, removes half-made files */
void hf_spare_close(struct hf_log *log);
void hf_spare_drop(struct hf_log *log);    /* whoever holds it; its file goes */
int hf_spare_take(struct hf_spare *spare); /* BUSY holds the other thread off; the state before it is returned */
void hf_spare_give(struct hf_spare *spare, int state);

/* ---- log_unsure.c ---- */

int64_t hf_unsure_load(struct hf_log *log); /* what an earlier open has found */
int hf_unsure_said(int dir); /* a reader's: 1: an open has found such a range, and nothing has settled it */
/* The disk does not give numbers from `first` on, below `next`, that may have been stable: for good when it returns HF_OK. */
int64_t hf_unsure_save(struct hf_log *log, uint64_t first, uint64_t next);
/* No valid frame lies at `position` of this open segment or behind: how many could, if the disk gave all. */
int64_t hf_unsure_frames(const struct hf_seg *s, uint64_t position, uint64_t *most);

/* ---- log_poison.c ---- */

int hf_log_poisoned(const struct hf_log *log); /* any thread */
int64_t hf_log_poison(struct hf_log *log);     /* HF_POISONED */
/* hf_sync of a file or a directory of the log; HF_POISONED from the first error on. */
int64_t hf_log_durable(struct hf_log *log, int fd, uint32_t what);
/* 1: a sync failed in an earlier life and in this boot; 0: none did. An error: nobody knows. */
int64_t hf_log_doubted(const struct hf_log *log, const struct hf_head *head);
/* What open found in the segments from `first` on is stable when it returns HF_OK: synced, or with a doubt written once more. */
int64_t hf_log_settle(struct hf_log *log, int64_t first);

/* ---- log_retire.c ---- */

/* Takes over what the head said of the log's beginning before this open. */
void hf_log_kept(struct hf_log *log);
void hf_log_oldest(struct hf_log *log); /* tells readers where the log begins: head.oldest_* */
/* The oldest segments go while there is too much. We hold the spare, in this state; returns the new one. */
int hf_log_retain(struct hf_log *log, int spare_state);
/* So many segments at the beginning were let go before, and a power cut brought their names back without those of their
 * successors: they end before `position`, where the log begins with number `sqn`. */
int64_t hf_seg_ghosts(const struct hf_seg *segs, int64_t n, uint64_t position, uint64_t sqn);

/* ---- a reader: log_reader.c, log_copy.c, log_beyond.c ---- */

/* Says of an open head that its log is kept: until this open file is closed, what the head says is all that there is. */
void hf_head_keep(int head_fd);
/* r->reach becomes true. HF_OK, or an error. */
int64_t hf_logr_reach(struct hf_logr *r);
/* What is published, to somebody who asks for number `sqn`: as the head says, where that is enough. HF_OK, or an
 * error. */
int64_t hf_logr_bounds(struct hf_logr *r, uint64_t sqn, uint64_t *next_sqn, uint64_t *end);

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
    uint8_t cursor_uuid[16]; /* the segment of the last read */
    uint64_t cursor;         /* position behind it */
    uint64_t cursor_sqn;     /* number there */
    uint64_t incarnation;    /* of what the last read returned */
    struct hf_reach reach;   /* log_beyond.c */
    struct hf_log_mark mark; /* of the last walk to the end */
    struct hf_ranges fills;  /* as listed */
    struct hf_logr *fill;    /* the one that was read last, as a log of one segment; NULL: none */
};

/* One call of hf_logr_read. */
struct hf_request {
    uint64_t sqn;
    uint64_t end;       /* published position */
    uint64_t published; /* published next number */
    int fresh;          /* the list was made during this call */
    uint8_t *buf;
    uint64_t capacity;
    uint64_t *next;
};

/* The first number that is void in segment i, by this log's table or by the one that was told. */
uint64_t hf_logr_void_from(const struct hf_logr *r, int64_t i);
/* Position behind the last published byte of segment i. */
uint64_t hf_logr_upper(const struct hf_logr *r, int64_t i, uint64_t end);
/* What follows segment i in numbers: the lowest first number of a readable one behind it, or what is published. */
uint64_t hf_logr_first_behind(const struct hf_logr *r, int64_t i, uint64_t published);
/* The frames of segment i end at `position`, before q->sqn: the answer to the call. */
int64_t hf_logr_beyond(const struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position);
/* Copies from the message at `position`, which has number `sqn`, in segment i, which is open. */
int64_t hf_logr_copy(struct hf_logr *r, int64_t i, const struct hf_request *q, uint64_t position, uint64_t sqn);
/* Looks at the head: at the one that has the name now. by_name: also where the old one may have another name left. */
int64_t hf_logr_look(struct hf_logr *r, int by_name);
int64_t hf_logr_refresh(struct hf_logr *r); /* lists segments and fills again; HF_OK or an error */
/* One try in the segments that are listed. */
int64_t hf_logr_here(struct hf_logr *r, const struct hf_request *q);

/* ---- log_fill_read.c ---- */

/* The segments do not have q->sqn, because of `status`: from a fill, or `status`, and *q->next passes over no fill. */
int64_t hf_logr_fill(struct hf_logr *r, const struct hf_request *q, int64_t status);
/* 1: q->sqn follows in the fill of the last read; then hf_logr_fill_more reads on there (> 0 or HF_SMALL; else no). */
int hf_logr_fill_goes_on(const struct hf_logr *r, uint64_t sqn);
int64_t hf_logr_fill_more(struct hf_logr *r, const struct hf_request *q);
void hf_logr_fill_close(struct hf_logr *r);
#endif
