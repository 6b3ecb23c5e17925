/* log_open.c: opening a log, and mending what a crash or a power cut left (log.h rule 6).
 *
 * S is the highest position below which all is known to have been stable: the head's published end, every segment
 * header's synced_below, every valid SYNC frame. A bad frame below S is damage: kept, counted, stepped over. A bad
 * frame at or above S is a torn tail, whatever lies beyond: pages reach the disk in any order. Whole messages only:
 * a message whose last fragment is missing is torn as a whole.
 *
 * Every step can be killed and repeated: segments behind a cut are unlinked newest first, then the cut one is
 * sealed, then the head is written. The next append always goes to a new segment with a new uuid, so nothing beyond
 * a cut can ever be taken for a later write at the same place. */
#include "log_private.h"
#include "atomic.h"
#include "process.h"
#include "sync.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_SEGMENT (UINT64_C(1) << 20)
#define LARGEST_SEGMENT (UINT64_C(64) << 20)

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
};

/* ---- what is known before any frame is read ---- */

static int64_t remove_segment(struct hf_log *log, int64_t i)
{
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, log->segs[i].base);
    if (unlinkat(log->dir, name, 0) != 0) {
        return hf_errno();
    }
    hf_seg_unmap(&log->segs[i]);
    memmove(log->segs + i, log->segs + i + 1, (size_t)(log->count - i - 1) * sizeof *log->segs);
    log->count--;
    log->dir_dirty = 1;
    return HF_OK;
}

/* Segment i was never stable. A power cut may bring back its name, if the directory's next sync fails: not its frames. */
static int64_t discard(struct hf_log *log, int64_t i)
{
    int64_t status = hf_log_on_disk(log) ? hf_seg_void(log->dir, &log->segs[i], log->config.uuid) : HF_OK;
    return status == HF_OK ? remove_segment(log, i) : status == HF_POISONED ? hf_log_poison(log) : status;
}

/* Leftovers of a recycling whose rename was lost, of a roll whose header was lost, and of a retirement. */
static int64_t remove_leftovers(struct recovery *r)
{
    struct hf_log *log = r->log;
    for (int64_t i = log->count - 1; i >= 0; i--) {
        int half_made = log->segs[i].state == HF_SEG_BAD && i == log->count - 1 && r->stable <= log->segs[i].base;
        if (log->segs[i].state == HF_SEG_ALIEN || half_made) {
            int64_t status = half_made ? discard(log, i) : remove_segment(log, i);
            if (status != HF_OK) {
                return status;
            }
        }
    }
    int64_t status = HF_OK;
    for (int64_t n = hf_seg_ghosts(log->segs, log->count, log->kept_position, log->kept_sqn); n > 0 && status == HF_OK;
         n--) {
        status = remove_segment(log, 0);
    }
    return status;
}

static void find_stable(struct recovery *r)
{
    const struct hf_log *log = r->log;
    r->stable = hf_head_stable(log->head);
    for (int64_t i = 0; i < log->count; i++) {
        const struct hf_seg *s = &log->segs[i];
        if (s->state == HF_SEG_GOOD && s->synced_below > r->stable && s->synced_below <= s->base) {
            r->stable = s->synced_below;
        }
    }
}

/* The head's table, and what only the segments know (the head's page may be torn). */
static void find_begins(struct hf_log *log)
{
    uint64_t version = log->head->begin_version;
    if (version & 1) { /* its writer died inside: the crc decides */
        hf_store_release_u64(&log->head->begin_version, version + 1);
    }
    int64_t n = hf_head_begins(log->head, log->begins, &version);
    log->begin_count = n > 0 ? (uint64_t)n : 0;
    for (int64_t i = 0; i < log->count; i++) {
        const struct hf_seg *s = &log->segs[i];
        uint64_t newest = log->begin_count > 0 ? log->begins[log->begin_count - 1].incarnation : 0;
        if (s->state == HF_SEG_GOOD && s->incarnation > newest) {
            if (log->begin_count == HF_INCARNATIONS) {
                memmove(log->begins, log->begins + 1, (HF_INCARNATIONS - 1) * sizeof log->begins[0]);
                log->begin_count--;
            }
            log->begins[log->begin_count++] = (struct hf_begin){s->incarnation, s->first_sqn};
        }
    }
    if (log->begin_count > 0) {
        log->incarnation = log->begins[log->begin_count - 1].incarnation;
        log->begin_sqn = log->begins[log->begin_count - 1].start_sqn;
    }
}

/* ---- the walk ---- */

static void take_sync(struct recovery *r, const struct hf_walk *w)
{
    if ((w->frame.flags & HF_FRAME_CONTROL) && w->frame.fragment == HF_CONTROL_SYNC && w->body.first <= w->position &&
        w->body.first > r->stable) {
        r->stable = w->body.first;
    }
}

/* Looks behind `w` for SYNC frames that prove what lies there durable. Returns the end of the farthest valid frame. */
static uint64_t look_behind(struct recovery *r, struct hf_walk w)
{
    uint64_t farthest = w.position;
    while (hf_walk_resync(&w)) {
        farthest = w.position + hf_frame_room((uint32_t)w.frame.commit);
        take_sync(r, &w);
    }
    return farthest;
}

/* The same for all segments from i on, of which none begins at 0. */
static int64_t look_into(struct recovery *r, int64_t i)
{
    struct hf_log *log = r->log;
    for (int64_t j = i; j < log->count; j++) {
        struct hf_seg *s = &log->segs[j];
        struct hf_walk later;
        int64_t status = s->state == HF_SEG_GOOD ? hf_seg_map(log->dir, s) : HF_OK;
        if (status != HF_OK) {
            return status;
        }
        if (s->map != NULL) {
            hf_walk_start(&later, s, s->base - HF_GRANULE,
                          UINT64_MAX); /* its base is behind another segment's: not 0 */
            look_behind(r, later);
            hf_seg_unmap(s);
        }
    }
    return HF_OK;
}

/* The same for all that follows a bad place in segment i, whose walk is `w`. The head may be much older than the
 * frames: it is not synced with each group commit. It looks as far as if the successor were not there: a cut removes that, and
 * must not find more to be stable the next time. */
static int64_t look_beyond(struct recovery *r, int64_t i, struct hf_walk w, uint64_t *farthest)
{
    const struct hf_seg *s = &r->log->segs[i];
    uint64_t own = s->seal.end_position != 0 && s->seal.end_position < s->limit ? s->seal.end_position : s->limit;
    w.limit = own > w.position ? own : w.position;
    uint64_t claimed = w.position;
    if (w.position < w.limit) {
        claimed += hf_frame_claimed(w.data + (w.position - w.base), w.limit - w.position, w.position);
    }
    *farthest = look_behind(r, w);
    *farthest = claimed > *farthest ? claimed : *farthest;
    return look_into(r, i + 1);
}

/* Walks the frames of segment i. Sets r->end and r->next_sqn to where it got; r->torn if that is a cut. */
static int64_t walk_segment(struct recovery *r, int64_t i)
{
    struct hf_log *log = r->log;
    struct hf_seg *s = &log->segs[i];
    /* Where it must end: where its successor begins, or at its seal; else nobody knows. */
    const uint64_t unknown = UINT64_MAX;
    uint64_t expected = i + 1 < log->count ? log->segs[i + 1].base : s->seal.end_position;
    expected = expected == 0 ? unknown : expected;
    struct hf_chain chain = {.next_sqn = s->first_sqn, .whole = s->base, .whole_sqn = s->first_sqn};
    struct hf_walk w;
    int64_t status = hf_index_reset(&log->index, s->file_bytes);
    if (status == HF_OK) {
        status = hf_seg_map(log->dir, s);
    }
    if (status != HF_OK) {
        return status;
    }
    hf_walk_start(&w, s, s->base, expected);
    r->hurt = 0;
    r->lost_tail = 0;
    for (;;) {
        if (hf_walk_frame(&w) && hf_chain_take(&chain, &w.frame, &w.body, w.position)) {
            if (w.frame.flags & HF_FRAME_FIRST) {
                hf_index_note(&log->index, s->header_bytes + (w.position - s->base), w.frame.sequence_number);
            }
            take_sync(r, &w);
            hf_walk_step(&w);
            continue;
        }
        r->end = chain.whole;
        r->next_sqn = chain.whole_sqn;
        if (chain.fragment == 0 && w.position == expected) {
            break; /* as it must be */
        }
        if (r->stable <= chain.whole) {
            uint64_t farthest;
            status = look_beyond(r, i, w, &farthest);
            if (status != HF_OK) {
                break;
            }
            if (r->stable <= chain.whole) {
                log->cut_bytes += farthest - chain.whole;
                r->torn = 1;
                break;
            }
        }
        log->damaged++;
        r->hurt = 1;
        if (!hf_walk_resync(&w)) {
            r->lost_tail = 1;
            r->end = expected != unknown ? expected : (r->stable < s->limit ? r->stable : s->limit);
            break;
        }
        hf_chain_jump(&chain, w.position);
    }
    hf_seg_unmap(s);
    return status;
}

/* Segment i has no header: damage, or what a power cut left of a roll. */
static int64_t pass_over(struct recovery *r, int64_t i)
{
    struct hf_log *log = r->log;
    int64_t status = r->stable <= log->segs[i].base ? look_into(r, i + 1) : HF_OK;
    if (r->stable <= log->segs[i].base) {
        r->torn = 1;
        r->last = i - 1;
    } else {
        log->damaged++;
        r->lost_tail = 1;
        r->end = i + 1 < log->count ? log->segs[i + 1].base : r->stable;
        r->last = i;
    }
    return status;
}

/* What the head says of the beginning counts where no segment is left from which to tell. */
static int64_t begin_walk(struct recovery *r)
{
    struct hf_log *log = r->log;
    int64_t status = HF_OK;
    if (log->kept_position > r->stable) {
        return status;
    }
    if (log->count > 0 && log->segs[0].base > r->stable) { /* a name that did not arrive, before one that did */
        status = look_into(r, 0);
        r->torn = log->segs[0].base > r->stable;
        r->last = -1;
    }
    if ((log->count == 0 || r->torn) && r->stable > 0 && log->kept_sqn <= log->head->next_sqn) {
        r->end = log->kept_position;
        r->next_sqn = log->kept_sqn;
    }
    return status;
}

static int64_t walk(struct recovery *r)
{
    struct hf_log *log = r->log;
    int64_t status = begin_walk(r);
    r->first = 0;
    for (int64_t i = 0; i < log->count; i++) {
        const struct hf_seg *s = &log->segs[i];
        r->first = s->base < r->stable || (s->base == r->stable && s->state == HF_SEG_GOOD) ? i : r->first;
    }
    for (int64_t i = r->first; i < log->count && !r->torn && status == HF_OK; i++) {
        if (log->segs[i].state == HF_SEG_GOOD) {
            status = walk_segment(r, i);
            r->last = i;
        } else {
            status = pass_over(r, i);
        }
    }
    if (status == HF_OK && r->stable > r->end) { /* a file is missing, or shorter than it was */
        log->damaged += !r->lost_tail;
        r->end = r->stable;
        r->lost_tail = 1;
    }
    return status;
}

/* ---- mending ---- */

/* The number after a lost tail is the head's, if the lost bytes can have held so many frames. */
static uint64_t number_at_end(const struct recovery *r)
{
    const struct hf_log *log = r->log;
    uint64_t next = r->next_sqn, head = log->head->next_sqn;
    if (r->lost_tail && head > next && head - next <= r->end / HF_GRANULE) {
        next = head;
    }
    /* Begun, but nothing appended since. An unreadable last segment may be the newest incarnation's own. */
    const struct hf_seg *last = log->count > 0 ? &log->segs[log->count - 1] : NULL;
    int readable = last != NULL && last->state == HF_SEG_GOOD;
    return readable ? hf_void_tail(last, log->begins, log->begin_count, next) : next;
}

static int64_t sync_directory(struct hf_log *log)
{
    int due = log->dir_dirty && hf_log_on_disk(log);
    int64_t status = due ? hf_log_durable(log, log->dir, HF_SYNC_NAMES) : HF_OK;
    log->dir_dirty = status != HF_OK;
    return status;
}

/* What lies behind a cut was never stable: newest first, so that a kill leaves a log with a shorter tail. */
static int64_t cut(struct recovery *r)
{
    struct hf_log *log = r->log;
    int64_t status = HF_OK;
    while (r->torn && log->count - 1 > r->last && status == HF_OK) {
        log->cut_bytes += log->segs[log->count - 1].limit - log->segs[log->count - 1].base;
        status = discard(log, log->count - 1);
    }
    if (status == HF_OK) {
        status = sync_directory(log);
    }
    HF_FAIL("open.cut");
    return status;
}

/* The last segment takes nothing more. An empty one stays as it is: the next roll replaces it. */
static int64_t seal_last(struct recovery *r)
{
    struct hf_log *log = r->log;
    struct hf_seg *s = log->count > 0 ? &log->segs[log->count - 1] : NULL;
    if (s == NULL || s->state != HF_SEG_GOOD || r->end == s->base) {
        return HF_OK;
    }
    uint64_t end = r->end < s->limit ? r->end : s->limit;
    if (s->seal.end_position == end) {
        return HF_OK;
    }
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, s->base);
    s->fd = openat(log->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0) {
        return hf_errno();
    }
    int64_t status = hf_log_end_segment(s, end, r->next_sqn, &log->index, !r->hurt);
    close(s->fd);
    s->fd = -1;
    return status;
}

static int64_t publish(struct recovery *r)
{
    struct hf_log *log = r->log;
    int synced = hf_log_on_disk(log) || log->renewing ||
                 log->head->level == HF_LEVEL_DISK; /* else the old head could outlive a power cut */
    log->end = r->end;
    log->tail_sqn = r->next_sqn;
    log->appended_sqn = number_at_end(r);
    log->empty = log->end == 0;
    log->dirty_from = log->named = log->count;
    log->must_roll = 1;
    log->rolled_at = log->count > 0 ? log->segs[log->count - 1].base : log->end;
    log->next_bytes = log->count > 0 ? log->segs[log->count - 1].file_bytes : log->config.first_segment_bytes;
    if (log->next_bytes < HF_SEGMENT_MIN || log->next_bytes > log->config.max_segment_bytes) {
        log->next_bytes = log->config.max_segment_bytes;
    }
    hf_head_store_begins(log->head, log->begins, log->begin_count);
    hf_log_oldest(log);
    log->damaged += log->count > 0 && log->head->oldest_position < log->segs[0].base;
    hf_store_release_u64(&log->head->level, log->config.level);
    hf_log_publish(log);
    int64_t status = hf_boot_id(log->head->pre.boot_id); /* after `end`: it says which boot's pages `end` speaks of */
    hf_store_release_u64(&log->head->poisoned, 0);
    if (status == HF_OK && synced) {
        status = hf_log_durable(log, log->head_fd, HF_SYNC_DATA);
    }
    if (status == HF_OK && log->config.doubt != NULL) {
        hf_doubt_clear(log->config.doubt);
    }
    return status;
}

static int64_t recover(struct hf_log *log)
{
    struct recovery r = {.log = log, .last = log->count - 1};
    log->dir_dirty = 1; /* what a killed store renamed may not be on disk */
    find_stable(&r);
    hf_log_kept(log);
    int64_t status = remove_leftovers(&r);
    find_begins(log);
    if (status == HF_OK) {
        status = walk(&r);
    }
    if (status == HF_OK) {
        status = cut(&r);
    }
    if (status == HF_OK) {
        status = seal_last(&r);
    }
    if (status == HF_OK && (hf_log_on_disk(log) || log->renewing)) {
        status = hf_log_settle(log, log->head->level == HF_LEVEL_DISK ? r.first : 0);
    }
    return status == HF_OK ? publish(&r) : status;
}

/* ---- open ---- */

static uint64_t file_size(uint64_t bytes, uint64_t fallback)
{
    bytes = bytes == 0 ? fallback : bytes;
    bytes = bytes < HF_SEGMENT_MIN ? HF_SEGMENT_MIN : bytes;
    bytes = bytes > HF_SEGMENT_SANE ? HF_SEGMENT_SANE : bytes;
    return (bytes + HF_HEADER_PAGE - 1) & ~(HF_HEADER_PAGE - 1);
}

static int64_t open_head(struct hf_log *log)
{
    int64_t status = hf_head_map(log->dir, 1, &log->head);
    if (status == HF_AGAIN ||
        status == HF_DAMAGED) { /* none, or one that nobody can read: the segments know all of it */
        status = hf_head_create(log->dir, log->config.uuid);
        if (status == HF_POISONED) {
            return hf_log_poison(log);
        }
        if (status == HF_OK) {
            status = hf_head_map(log->dir, 1, &log->head);
        }
    }
    if (status != HF_OK) {
        return status;
    }
    if (memcmp(log->head->pre.uuid, log->config.uuid, HF_UUID) != 0) {
        return HF_DAMAGED;
    }
    log->head_fd = openat(log->dir, "head", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (log->head_fd < 0) {
        return hf_errno();
    }
    int64_t doubted = hf_log_doubted(log); /* then even what reads well proves nothing */
    log->renewing = doubted > 0;
    return doubted < 0 ? doubted : HF_OK;
}

int64_t hf_log_open(int dir_fd, const struct hf_log_config *config, struct hf_log **out)
{
    struct hf_log *log = calloc(1, sizeof *log);
    if (log == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    log->token = hf_process_token();
    log->config = *config;
    log->config.first_segment_bytes = file_size(config->first_segment_bytes, FIRST_SEGMENT);
    log->config.max_segment_bytes = file_size(config->max_segment_bytes, LARGEST_SEGMENT);
    log->head_fd = -1;
    log->spare.fd = log->spare.dir = -1;
    log->doubt = config->doubt != NULL ? strdup(config->doubt) : NULL;
    log->config.doubt = log->doubt;
    pthread_mutex_init(&log->spare.lock, NULL);
    log->dir = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
    int64_t status = log->dir < 0 ? hf_errno() : HF_OK;
    if (status == HF_OK) {
        log->spare.dir = openat(log->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status = log->spare.dir < 0 || (config->doubt != NULL && log->doubt == NULL) ? hf_errno() : HF_OK;
    }
    if (status == HF_OK && config->level != HF_LEVEL_MEMORY && config->level != HF_LEVEL_DISK) {
        status = HF_USAGE;
    }
    if (status == HF_OK) {
        hf_spare_adopt(log);
        status = open_head(log);
    }
    if (status == HF_OK) {
        int64_t n = hf_seg_list_all(log->dir, config->uuid, &log->segs);
        log->count = n < 0 ? 0 : n;
        log->room = log->count;
        status = n < 0 ? n : recover(log);
    }
    if (status != HF_OK) {
        hf_log_close(log);
        return status;
    }
    log->opened = 1;
    *out = log;
    return HF_OK;
}
