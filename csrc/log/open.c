/* open.c: opening a log, and mending what a crash or a power cut left (log.h rule 6). Where it ends, and what of it
 * is damage, end.c finds.
 *
 * Every step can be killed and repeated: segments behind a cut are unlinked newest first, then the cut one is
 * sealed, then the head is written. The next append always goes to a new segment with a new uuid, so nothing beyond
 * a cut can ever be taken for a later write at the same place. */
#include "log/writer.h"
#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/end.h"
#include "log/head.h"
#include "log/poison.h"
#include "log/reader.h"
#include "log/unsure.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_SEGMENT (UINT64_C(1) << 20)
#define LARGEST_SEGMENT (UINT64_C(64) << 20)

struct recovery {
    struct hf_log *log;
    struct hf_ending e; /* its segments are the log's */
};

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
        if (hf_ending_leftover(&r->e, log->segs, log->count, i)) {
            int alien = log->segs[i].state == HF_SEG_ALIEN;
            int64_t status = alien ? remove_segment(log, i) : discard(log, i);
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

/* The head's table, and what only the segments know: where it is not whole, that is all that is left. */
static void find_begins(struct hf_log *log)
{
    for (int64_t i = 0; i < log->count; i++) {
        const struct hf_seg *s = &log->segs[i];
        uint64_t newest = log->begin_count > 0 ? log->begins[log->begin_count - 1].incarnation : 0;
        if (s->state == HF_SEG_GOOD && s->incarnation > newest) {
            if (log->begin_count == HF_INCARNATIONS) {
                memmove(log->begins, log->begins + 1, (HF_INCARNATIONS - 1) * sizeof log->begins[0]);
                log->begin_count--;
            }
            log->begins[log->begin_count++] = (struct hf_begin){s->incarnation, s->first_sqn};
            log->begins_found = 1;
        }
    }
    if (log->begin_count > 0) {
        log->incarnation = log->begins[log->begin_count - 1].incarnation;
        log->begin_sqn = log->begins[log->begin_count - 1].start_sqn;
    }
}

/* ---- mending ---- */

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
    while (r->e.torn && log->count - 1 > r->e.last && status == HF_OK) {
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
    if (s == NULL || s->state != HF_SEG_GOOD || r->e.end == s->base || r->e.unsure) { /* that one stays as it is */
        return HF_OK;
    }
    uint64_t end = r->e.end < s->limit ? r->e.end : s->limit;
    if (s->seal.end_position == end) {
        return HF_OK;
    }
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, s->base);
    s->fd = openat(log->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0) {
        return hf_errno();
    }
    int64_t status = hf_log_end_segment(s, end, r->e.next_sqn, &log->index, !r->e.hurt);
    close(s->fd);
    s->fd = -1;
    return status;
}

static int64_t publish(struct recovery *r)
{
    struct hf_log *log = r->log;
    int synced = hf_log_on_disk(log) || log->renewing ||
                 log->head->level == HF_LEVEL_DISK; /* else the old head could outlive a power cut */
    log->end = r->e.end;
    log->tail_sqn = r->e.next_sqn;
    log->appended_sqn = hf_ending_number(&r->e, log->begins, log->begin_count);
    log->empty = log->end == 0;
    log->dirty_from = log->named = log->count;
    log->must_roll = 1;
    log->rolled_at = log->count > 0 ? log->segs[log->count - 1].base : log->end;
    log->next_bytes = log->count > 0 ? log->segs[log->count - 1].file_bytes : log->config.first_segment_bytes;
    if (log->next_bytes < HF_SEGMENT_MIN || log->next_bytes > log->config.max_segment_bytes) {
        log->next_bytes = log->config.max_segment_bytes;
    }
    if (log->begins_found || log->unbegun) {
        log->generation = hf_begins_next(log->generation, log->head->begin_version);
        hf_log_tell_begins(log);
    }
    hf_log_oldest(log);
    log->damaged += log->count > 0 && log->head->oldest_position < log->segs[0].base;
    hf_log_tell(log, &log->head->level, log->config.level);
    hf_log_publish(log);
    uint8_t boot[HF_UUID];
    int64_t status = hf_boot_id(boot);
    if (status == HF_OK) { /* after `end`: it says which boot's pages `end` speaks of */
        hf_log_tell_bytes(log, log->head->pre.boot_id, boot, sizeof boot);
    }
    hf_log_tell(log, &log->head->poisoned, 0);
    if (status == HF_OK && synced) {
        status = hf_log_durable(log, log->head_fd, HF_SYNC_DATA);
    }
    if (status == HF_OK) {
        hf_log_tell(log, &log->head->begin_version, log->generation);
        status = hf_load_relaxed_u32(&log->poisoned) ? HF_POISONED : HF_OK;
    }
    if (status == HF_OK && log->config.doubt != NULL) {
        hf_doubt_clear(log->config.doubt);
    }
    if (status == HF_OK) {
        log->renewing = 0;
    }
    return status;
}

static int64_t recover(struct hf_log *log)
{
    struct recovery r = {.log = log, .e = {.dir = log->dir, .index = &log->index}};
    log->dir_dirty = 1; /* what a killed store renamed may not be on disk */
    r.e.stable = hf_head_stable(log->head);
    r.e.told_sqn = log->head->next_sqn;
    hf_ending_stable(&r.e, log->segs, log->count);
    hf_log_kept(log);
    int64_t status = remove_leftovers(&r);
    find_begins(log);
    if (status == HF_OK) {
        r.e.segs = log->segs;
        r.e.count = log->count;
        r.e.kept_sqn = log->kept_sqn;
        r.e.kept_position = log->kept_position;
        r.e.blind = (int)log->blind;
        r.e.segment_bytes = log->config.max_segment_bytes;
        status = hf_ending_walk(&r.e);
        log->cut_bytes = r.e.cut_bytes;
        log->damaged = r.e.damaged;
    }
    if (status == HF_OK) {
        status = cut(&r);
    }
    if (status == HF_OK) {
        status = seal_last(&r);
    }
    if (status == HF_OK &&
        (r.e.unsure || log->blind || log->unbegun)) { /* what the head has lost: of no known numbers */
        uint64_t next = hf_ending_number(&r.e, log->begins, log->begin_count);
        status = r.e.unsure ? hf_unsure_save(log, r.e.first_unsure, r.e.next_unsure) : hf_unsure_save(log, next, next);
    }
    if (status == HF_OK &&
        (hf_log_on_disk(log) || log->renewing)) { /* behind it: a copy has zeros for what is not read */
        status = hf_log_settle(log, log->head->level == HF_LEVEL_DISK ? r.e.first : 0);
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

/* There is a head of this source, of the layout that this build writes, and it is no older than this open where an earlier
 * life may have lost it. What it says of BEGINs is taken. */
static int64_t have_head(struct hf_log *log)
{
    struct hf_head head;
    struct hf_begins begins = {.generation = 1, .whole = 1};
    int fd;
    int64_t status = hf_head_open(log->dir, &fd, &head);
    int lost = status == HF_DAMAGED || (status <= HF_ERRNO && hf_unreadable((int)(HF_ERRNO - status)));
    if (status == HF_AGAIN || lost) { /* none, or one that nobody can read: the segments know the rest */
        log->blind = log->unbegun = (uint32_t)lost;
        status = hf_head_create(log->dir, log->config.uuid, lost);
        log->generation = begins.generation;
        return status == HF_POISONED ? hf_log_poison(log) : status;
    }
    if (status != HF_OK) {
        return status;
    }
    int64_t doubted = 0;
    if (memcmp(head.pre.uuid, log->config.uuid, HF_UUID) != 0) {
        status = HF_DAMAGED;
    } else {
        doubted = hf_log_doubted(log, &head); /* then even what reads well proves nothing */
        status = doubted < 0 ? doubted : hf_head_read(fd, &head, &begins);
    }
    close(fd);
    log->renewing = doubted > 0;
    log->unbegun = !begins.whole;
    log->blind = log->unbegun &&
                 head.oldest_position == UINT64_MAX; /* killed behind a hf_head_create, before it was published */
    if (status == HF_OK && (head.pre.layout_version != hf_layout_version(HF_KIND_HEAD) || log->renewing)) {
        status = hf_head_remake(log->dir, &head, &begins);
    }
    log->generation = begins.generation;
    log->begin_count = begins.count;
    memcpy(log->begins, begins.at, sizeof log->begins);
    return status == HF_POISONED ? hf_log_poison(log) : status;
}

static int64_t open_head(struct hf_log *log)
{
    int64_t status = have_head(log);
    if (status == HF_OK) {
        status = hf_head_map(log->dir, hf_log_on_disk(log) ? PROT_READ : PROT_READ | PROT_WRITE, &log->head);
    }
    if (status != HF_OK) {
        return status;
    }
    (void)mlock(
        log->head,
        HF_HEAD_BYTES); /* it is read through this map for as long as the store runs, and so not again from the disk */
    log->head_fd = openat(log->dir, "head", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return log->head_fd < 0 ? hf_errno() : HF_OK;
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
        status = open_head(log); /* first: a directory of another layout is left as it is */
    }
    if (status == HF_OK) {
        hf_spare_adopt(log);
        status = hf_unsure_load(log);
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
    hf_head_keep(log->head_fd); /* it was published: from now on the head is the end */
    *out = log;
    return HF_OK;
}
