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
#include "log_recovery.h"
#include "atomic.h"
#include "process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_SEGMENT (UINT64_C(1) << 20)
#define LARGEST_SEGMENT (UINT64_C(64) << 20)

/* ---- what is known before any frame is read ---- */

static int64_t remove_segment(struct hf_log *log, int64_t i)
{
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, log->segs[i].base);
    if (unlinkat(log->dir, name, 0) != 0) {
        return hf_errno();
    }
    hf_seg_close(&log->segs[i]);
    memmove(log->segs + i, log->segs + i + 1, (size_t)(log->count - i - 1) * sizeof *log->segs);
    log->count--;
    log->dir_dirty = 1;
    return HF_OK;
}

/* Leftovers of a recycling whose rename was lost, of a roll whose header was lost, and of a retirement. */
static int64_t remove_leftovers(struct recovery *r)
{
    struct hf_log *log = r->log;
    for (int64_t i = log->count - 1; i >= 0; i--) {
        const struct hf_seg *s = &log->segs[i];
        int half_made = s->state == HF_SEG_BAD && !s->unreadable && i == log->count - 1 && r->stable <= s->base;
        if (log->segs[i].state == HF_SEG_ALIEN || half_made) {
            int64_t status = remove_segment(log, i);
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
    if (log->dir_dirty && hf_log_on_disk(log) && fsync(log->dir) != 0) {
        return hf_log_poison(log);
    }
    log->dir_dirty = 0;
    return HF_OK;
}

/* What lies behind a cut was never stable: newest first, so that a kill leaves a log with a shorter tail. */
static int64_t cut(struct recovery *r)
{
    struct hf_log *log = r->log;
    int64_t status = HF_OK;
    while (r->torn && log->count - 1 > r->last && status == HF_OK) {
        log->cut_bytes += log->segs[log->count - 1].limit - log->segs[log->count - 1].base;
        status = remove_segment(log, log->count - 1);
    }
    if (status == HF_OK) {
        status = sync_directory(log);
    }
    HF_FAIL("open.cut");
    return status;
}

/* What open found must be stable before it is published: a killed store leaves frames in the page cache only. A sync that
 * fails poisons here as anywhere: the next opening's would say nothing of what this one dropped. */
static int64_t sync_found(struct recovery *r)
{
    struct hf_log *log = r->log;
    int64_t status = HF_OK;
    for (int64_t i = log->head->level == HF_LEVEL_DISK ? r->first : 0; i < log->count && status == HF_OK; i++) {
        char name[HF_SEGMENT_NAME];
        hf_seg_name(name, log->segs[i].base);
        int fd = openat(log->dir, name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            return hf_errno();
        }
        if (HF_FAIL_STATUS("log.fdatasync") != 0 || fdatasync(fd) != 0) {
            status = hf_log_poison(log);
        }
        close(fd);
    }
    return status;
}

/* The last segment takes nothing more. An empty one stays as it is: the next roll replaces it. */
static int64_t seal_last(struct recovery *r)
{
    struct hf_log *log = r->log;
    struct hf_seg *s = log->count > 0 ? &log->segs[log->count - 1] : NULL;
    if (s == NULL || s->state != HF_SEG_GOOD || r->end == s->base || r->unsure) { /* that one stays as it is */
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
    int synced =
        hf_log_on_disk(log) || log->head->level == HF_LEVEL_DISK; /* else the old head could outlive a power cut */
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
    if (status == HF_OK && synced && fdatasync(log->head_fd) != 0) {
        status = hf_log_poison(log);
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
        status = hf_recovery_walk(&r);
    }
    if (status == HF_OK) {
        status = cut(&r);
    }
    if (status == HF_OK) {
        status = seal_last(&r);
    }
    if (status == HF_OK && hf_log_on_disk(log)) {
        status = sync_found(&r);
    }
    if (status == HF_OK && (r.unsure || log->blind)) { /* a head that was not read: of no known numbers */
        uint64_t next = number_at_end(&r);
        status = r.unsure ? hf_unsure_save(log, r.first_unsure, r.next_unsure) : hf_unsure_save(log, next, next);
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
    struct hf_head copy;
    int fd;
    int64_t status = hf_head_open(log->dir, &fd, &copy); /* never a first look through a map */
    if (status == HF_OK) {
        close(fd);
        status = hf_head_map(log->dir, 1, &log->head);
    } else if (status <= HF_ERRNO && hf_unreadable((int)(HF_ERRNO - status))) {
        log->blind = 1;
        status = HF_DAMAGED;
    }
    if (status == HF_AGAIN ||
        status == HF_DAMAGED) { /* none, or one that nobody can read: the segments know all of it */
        status = hf_head_create(log->dir, log->config.uuid);
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
    (void)mlock(
        log->head,
        HF_HEADER_PAGE); /* it is read through this map for as long as the store runs, and so not again from the disk */
    log->head_fd = openat(log->dir, "head", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (log->head_fd < 0) {
        return hf_errno();
    }
    /* What a failed sync dropped stays in the page cache as if it were clean, so even what reads well proves
     * nothing. */
    return log->head->poisoned ? HF_POISONED : HF_OK;
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
    log->spare.fd = -1;
    pthread_mutex_init(&log->spare.lock, NULL);
    log->dir = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
    int64_t status = log->dir < 0 ? hf_errno() : HF_OK;
    if (status == HF_OK && config->level != HF_LEVEL_MEMORY && config->level != HF_LEVEL_DISK) {
        status = HF_USAGE;
    }
    if (status == HF_OK) {
        hf_spare_adopt(log);
        status = open_head(log);
    }
    if (status == HF_OK) {
        status = hf_unsure_load(log);
    }
    if (status == HF_OK) {
        int64_t n = hf_seg_list(log->dir, config->uuid, &log->segs);
        log->count = n < 0 ? 0 : n;
        log->room = log->count;
        status = n < 0 ? n : recover(log);
    }
    if (status != HF_OK) {
        log->poisoned = 1; /* nothing may be published by the closing */
        hf_log_close(log);
        return status;
    }
    *out = log;
    return HF_OK;
}
