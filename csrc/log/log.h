/* log.h: the append-only log of one source at one store (docs/design.md 18-23).
 *
 * A directory with `head` (struct hf_head), segments `seg-<base position, 16 hex digits>` and at most one `spare`.
 * Frames lie back to back at log positions; a frame's crc is CRC-32C over its 28 header bytes without crc and its
 * payload, seeded with crc32c(segment uuid | source incarnation); its position is in its commit word.
 *
 * Rules:
 *  1. Nothing unverified enters: blocks come from private memory, whole messages, consecutive numbers. Append
 *     rewrites commit words to log positions and computes the CRCs there, before the block touches the segment.
 *  2. HF_LEVEL_MEMORY: appended through the mapping, published at once. HF_LEVEL_DISK: pwrite of the block;
 *     hf_log_sync does the group commit (every segment touched, oldest first, then the directory if a name changed),
 *     then publishes. The first append of each group commit is preceded by a SYNC frame that carries what was
 *     durable then.
 *  3. After any sync error the log is poisoned (base/sync.h): it publishes nothing any more. The next open copies what
 *     was written since the last good sync into new files, and syncs those; a reboot ends it, too.
 *  4. A segment is full -> HF_ROLL; hf_log_roll takes the spare (hf_log_prepare makes it, from a helper thread) or
 *     makes one on the spot. A new incarnation and a cut always roll. Segment sizes: 1 MiB, doubling to 64 MiB.
 *  5. Retention: while the segments together exceed retain_bytes the oldest sealed one goes: renamed to `spare`
 *     (directory synced) or unlinked. Never the active one. hf_head.oldest_* moves first, and is synced (disk): what
 *     lies there or beyond and is not in a file is lost, which is damage, and not let go (retire.c).
 *  6. Open repairs: scan from S, the highest position known to be synced (end.c); the first bad frame with durable data beyond it is
 *     damage (kept, reported, stepped over); else it is a torn tail: cut there, and the next append goes to a new
 *     segment with a new uuid. A tail that the disk does not give is not cut: its end is unknown (unsure.c).
 *     Recovery is idempotent and may be killed anywhere. Nothing is ever truncated.
 *  7. Readers are other processes: they read a block into private memory, verify crc, uuid, position and number there,
 *     and never need the store. A bad sector is damage of its range (window.c).
 *  8. Nothing is ever rewritten. Numbers that are damaged, lost or in a hole are copied from another store's log into a
 *     fill beside the segments (fill.c); readers look there for what the segments cannot give. */
#ifndef HF_LOG_LOG_H
#define HF_LOG_LOG_H
#include "base/layout.h"

/* cffi: begin */
/* The store's side. One thread at a time: the drain thread, or one of its pool that syncs while it waits; hf_log_prepare on another. */
struct hf_log;

struct hf_log_config {
    uint8_t uuid[16];          /* of the source */
    uint64_t first_segment_bytes; /* file size; 0 = 1 MiB */
    uint64_t max_segment_bytes;   /* 0 = 64 MiB; a larger block gets a file of its own size. Blocks of a quarter waste little */
    uint64_t retain_bytes;     /* 0 = no limit */
    uint32_t level;            /* enum hf_level */
    uint32_t _reserved;
    const char *doubt;         /* path, off the log's device, of the file that remembers a failed sync (base/sync.h); NULL: none */
};

struct hf_log_info {
    uint64_t end;              /* published position */
    uint64_t next_sqn;         /* behind the last published message; UINT64_MAX-free: 0 for an empty new log */
    uint64_t oldest_sqn;
    uint64_t appended_sqn;     /* behind the last appended message */
    uint64_t incarnation;      /* newest BEGIN */
    uint64_t begin_sqn;        /* its start */
    uint64_t bytes;            /* of all segment files */
    uint64_t used_bytes;
    uint64_t segments;
    uint64_t cut_bytes;        /* torn tail that the last open cut */
    uint64_t damaged;          /* ranges found damaged by the last open */
    uint64_t syncs;
    uint64_t dirty;            /* 1: appended, not yet published */
    uint64_t empty;            /* 1: there was never a message or LOST record in it: it may begin with any number */
    uint64_t unsure;           /* 1: the disk does not give numbers that it may have acknowledged: [unsure_first, unsure_next) */
    uint64_t unsure_first;
    uint64_t unsure_next;
};

/* Opens (and repairs) or creates the log in directory `dir_fd` (duplicated). HF_LAYOUT, HF_DAMAGED (head of another
 * source), HF_POISONED (a sync failed, in this open or in an earlier life, and what was not on disk then could not be
 * copied now: the next open tries again; readers still serve what was published). */
int64_t hf_log_open(int dir_fd, const struct hf_log_config *config, struct hf_log **out);
void hf_log_close(struct hf_log *log);     /* syncs (disk), seals nothing, frees; also after poison */
void hf_log_info(const struct hf_log *log, struct hf_log_info *out);
/* Descriptors that it has open. One that takes messages has HF_LOG_FILES: directory twice, head, segment, spare; one more while it
 * rolls. A spare that is being made is not counted. */
enum { HF_LOG_FILES = 5 };
int hf_log_files(struct hf_log *log);
/* BEGIN(incarnation, start): durable before it returns. Voids records >= start of older incarnations; the next
 * append rolls. */
int64_t hf_log_begin(struct hf_log *log, uint64_t incarnation, uint64_t start_sqn);
/* The same with a whole table, ascending, at most HF_INCARNATIONS: it replaces the log's own, at once. HF_USAGE: its
 * newest incarnation is older than the log's. */
int64_t hf_log_begins(struct hf_log *log, const struct hf_begin *begins, uint64_t count);
/* frames: whole messages as hf_reader_copy or hf_logr_read gave them, consecutive from appended_sqn (an empty log
 * starts at any number; the first of a new incarnation may leave a hole before its start; what comes before that
 * start is appended under the newest incarnation); rewritten in place. HF_ROLL: nothing
 * appended, roll and call again. HF_USAGE: not consecutive. HF_DAMAGED: a frame is malformed. Numbers below
 * appended_sqn are refused. */
int64_t hf_log_append(struct hf_log *log, uint8_t *frames, uint64_t bytes);
int64_t hf_log_lost(struct hf_log *log, uint64_t first, uint64_t last); /* appends LOST(first, last); appended_sqn becomes last + 1 */
int64_t hf_log_hole(struct hf_log *log, uint64_t first, uint64_t last); /* the same, of numbers that another store may have */
int64_t hf_log_roll(struct hf_log *log);   /* seals the active segment and begins the next; retention; HF_ERRNO - ENOSPC: nothing changed */
/* Group commit and publish (memory: nothing to do, append has published). HF_POISONED from the first error on. */
int64_t hf_log_sync(struct hf_log *log);
/* Numbers below are wanted by nobody: readers find them gone (HF_GONE), and synced segments that hold nothing else are
 * removed. Until the log is opened again: then it offers what the segments still hold, unless it is said again. A BEGIN
 * that starts below takes it back to its start. HF_POISONED: readers find them gone, and nothing is removed. */
int64_t hf_log_release(struct hf_log *log, uint64_t below_sqn);
/* It has again what it may have acknowledged, or a later incarnation has settled it: hf_log_info.unsure becomes 0, for good. */
int64_t hf_log_sure(struct hf_log *log);
/* The disk begins with what hf_log_rest will sync: so that takes less time, later. */
int64_t hf_log_rest_begin(const struct hf_log *log);
/* Closes it, in any case, and for long: its files become as small as what is in them (rest.c). `on_disk`: all of it outlives a
 * power cut from then on, whatever its level. HF_AGAIN: a helper is at the spare, which stays. HF_POISONED, an errno: as
 * hf_log_sync and hf_log_roll; they stay as they are. */
int64_t hf_log_rest(struct hf_log *log, int on_disk);
int64_t hf_log_prepare(struct hf_log *log);/* helper thread: makes the spare if there is none. 1 made, 0 nothing to do */

/* A sync of the names in this log's directory failed, and it was not the log's: it is poisoned, as if it were. */
void hf_log_distrust(int dir_fd);

struct hf_logr; /* a reader: receivers, tools, Spark; any process; one thread at a time */
int64_t hf_logr_open(int dir_fd, struct hf_logr **out); /* HF_AGAIN: no head yet */
void hf_logr_close(struct hf_logr *r);
/* oldest and next published number: the next one as hf_logr_end says, at least; incarnation that `sqn` belongs to is found
 * inside. */
int64_t hf_logr_range(struct hf_logr *r, uint64_t *oldest_sqn, uint64_t *next_sqn);
/* Where the log ends. While somebody has it open for writing (hf_log_open), its head says it. Else the head is a lower bound,
 * in every boot: no group commit syncs it, so a power cut leaves an older one, as do a snapshot and a volume that is attached
 * again. Then the frames behind it are verified to their end, as hf_log_open will; hf_logr_read reads up to there, too.
 * HF_OK: *next_sqn is the number behind the last one. HF_DAMAGED: it is at least that, and what is damaged or missing there may
 * have held more; or the disk does not give it, or did not give it to the store that opened it (unsure.c), which may have
 * acknowledged more. An errno: the head, or a call, could not be had. HF_GONE: so it is, and the log was in memory before a reboot: it may have held more. HF_AGAIN: so it is, and
 * the log changes while it is looked at. */
int64_t hf_logr_end(struct hf_logr *r, uint64_t *next_sqn);
/* The last message that a walk to the end has verified, and where the frames behind it end; another reader of the same log, in
 * the same process, may begin there. end 0: none. */
struct hf_log_walked {
    uint8_t segment[16];
    uint64_t position;
    uint64_t sqn;
    uint64_t end;
};
void hf_logr_walked(const struct hf_logr *r, struct hf_log_walked *out);
void hf_logr_resume(struct hf_logr *r, const struct hf_log_walked *walked);
/* Copies verified frames from number `sqn` on into buf (whole messages; control frames left out), up to capacity and
 * only published ones. Starts at the first fragment of the message that holds sqn. Returns bytes > 0 and *next =
 * number behind the last frame copied; HF_AGAIN: nothing published at or beyond sqn; HF_GONE: not here (*next =
 * first number that is: below the oldest, or in a hole); HF_DAMAGED: sqn is inside a damaged range (*next = first
 * readable number behind it); HF_LOST: a LOST record (*next = last + 1); HF_HOLE: the same, and another store may have it;
 * HF_SMALL: one message needs more (*next = bytes). */
int64_t hf_logr_read(struct hf_logr *r, uint64_t sqn, uint8_t *buf, uint64_t capacity, uint64_t *next);
/* The newest BEGIN of the log, now. 1; 0: it has none. */
int64_t hf_logr_begin(struct hf_logr *r, uint64_t *incarnation, uint64_t *start_sqn);
/* All that it knows, ascending, into out[HF_INCARNATIONS]. Returns the count. */
int64_t hf_logr_begins(struct hf_logr *r, struct hf_begin *out);
/* The same, and the number behind the last message, of one moment. *next_sqn 0: hf_logr_range gives none. HF_AGAIN: a BEGIN
 * came at each of its looks. */
int64_t hf_logr_view(struct hf_logr *r, struct hf_begin *out, uint64_t *next_sqn);
/* What other logs of the same source know: from now on no record is read that this table makes void. It replaces what
 * was told before; HF_USAGE: more than HF_INCARNATIONS. */
int64_t hf_logr_learn(struct hf_logr *r, const struct hf_begin *begins, uint64_t count);

/* 1: the log had this number and let it go, or would have let it go. 0: it never had it, or has not let anything go. */
int64_t hf_logr_let_go(const struct hf_logr *r, uint64_t sqn);
void hf_logr_uuid(const struct hf_logr *r, uint8_t *out); /* 16 bytes: of the source, as the head says */
uint64_t hf_logr_incarnation(const struct hf_logr *r); /* under which the store wrote what the last read returned */

/* Takes position and checksum out of frames that hf_logr_read gave, so that of two logs equal messages are equal bytes. */
void hf_frames_plain(uint8_t *frames, uint64_t bytes);

struct hf_fill; /* messages of another store's log on their way into this one's; one writer per log, one thread */
/* A fill for numbers in [first_sqn, limit_sqn) of the log in `dir_fd` (duplicated). incarnation: as hf_logr_incarnation
 * says of each block that goes in. */
int64_t hf_fill_create(int dir_fd, const uint8_t *source_uuid, uint64_t incarnation, uint64_t first_sqn, uint64_t limit_sqn,
                       struct hf_fill **out);
/* frames: whole messages as hf_logr_read gave them; rewritten in place. Takes those below limit_sqn that fit (HF_FILL_MAX).
 * Returns their bytes; *next = the number that must follow. 0: nothing more goes in. HF_DAMAGED: they do not follow. */
int64_t hf_fill_append(struct hf_fill *f, uint8_t *frames, uint64_t bytes, uint64_t *next);
int64_t hf_fill_commit(struct hf_fill *f); /* durable and visible when it returns HF_OK; frees in any case. HF_USAGE: empty */
void hf_fill_abort(struct hf_fill *f);
/* Removes fills that nobody should or can read: void in part or below the oldest number, or without a readable header. Returns
 * how many. What was valid in one of them is filled again. */
int64_t hf_fill_prune(int dir_fd);

/* One finding of a check: a damaged or missing range. */
struct hf_finding {
    uint64_t position;  /* log position of the first bad byte */
    uint64_t bytes;
    uint64_t first_sqn; /* numbers that it cost: [first_sqn, next_sqn) */
    uint64_t next_sqn;
    uint64_t segment;   /* base position of the segment; HF_FOUND_FILL: 0 */
    uint32_t kind;      /* enum hf_finding_kind */
    uint32_t _reserved;
};
enum hf_finding_kind { HF_FOUND_DAMAGE = 1, HF_FOUND_TORN = 2, HF_FOUND_GAP = 3, HF_FOUND_HEADER = 4, HF_FOUND_FILL = 5,
                       HF_FOUND_UNREADABLE = 6 /* the disk does not give the bytes */ };
struct hf_check_summary {
    uint64_t segments; uint64_t frames; uint64_t messages; uint64_t bytes; uint64_t oldest_sqn; uint64_t next_sqn;
    uint64_t fills;  /* files */
    uint64_t filled; /* numbers that the segments lack and a fill has; no finding */
};
/* Verifies every published frame and every fill, read-only, safe beside a live store. Returns the number of findings (the
 * first n are stored): what a valid fill has is none, and numbers that a later incarnation took over cost nothing. */
int64_t hf_log_check(int dir_fd, struct hf_finding *out, int64_t n, struct hf_check_summary *summary);
/* cffi: end */
#endif
