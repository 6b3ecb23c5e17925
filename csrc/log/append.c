/* append.c: the store's hot side of a log: append, group commit, publish. See log.h for the rules.
 *
 * Publishing, and why a reader may trust it:
 *   1. the frames are in the segment (memcpy into the mapping, or pwrite and fdatasync);
 *   2. end_check, then end, both release (memory); or one write of both (disk);
 *   3. next_sqn, release (memory), or a write.
 * A reader of another process reads the head twice (head.c: hf_head_look), since one read copies words in no order
 * that is promised: the end that it takes covers every number below the next_sqn that it takes, and the frames below
 * that end are whole. A process that dies between 1 and 2 leaves frames that nobody was told about: open may keep or
 * cut them. One that dies between the two stores of step 2 leaves end != end_check; the smaller of the two was true,
 * and that is what open takes; so a flipped bit in one of them cannot invent data either. One that dies before 3
 * leaves a next_sqn that is too small: open counts again. */
#include "log/writer.h"
#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/frame.h"
#include "log/head.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- append ---- */

/* Whether `first` may come next: it follows, or the log holds nothing yet, or the incarnation began behind what is
 * here. */
static int follows(const struct hf_log *log, uint64_t first)
{
    if (first == log->appended_sqn) {
        return 1;
    }
    return first > log->appended_sqn && (log->empty || first == log->begin_sqn);
}

/* Room that the SYNC frame takes which leads a group commit. */
static uint64_t lead_bytes(const struct hf_log *log)
{
    return hf_log_on_disk(log) && !log->group_open ? HF_CONTROL_ROOM : 0;
}

/* Room for `bytes` that start with number `first` at the end of the active segment. HF_ROLL: not here. */
static int64_t place(struct hf_log *log, uint64_t first, uint64_t bytes)
{
    if (hf_log_poisoned(log)) {
        return HF_POISONED;
    }
    if (!follows(log, first)) {
        return HF_USAGE;
    }
    if (bytes > HF_SEGMENT_SANE / 4) {
        return HF_TOO_LARGE;
    }
    if (first != log->appended_sqn) { /* a hole lies between segments, so that a segment's numbers have none */
        log->appended_sqn = first;
        log->must_roll = 1;
    }
    uint64_t need = bytes + lead_bytes(log);
    if (!log->must_roll && log->segs[log->count - 1].limit - log->end < need) {
        log->must_roll = 1;
        log->filled = 1;
    }
    if (log->must_roll) {
        log->need = bytes + HF_CONTROL_ROOM;
        return HF_ROLL;
    }
    return HF_OK;
}

/* Asks for the lines of the segment that the copy in enter() will write, while the frames are summed. */
static void expect_stores(const uint8_t *to, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch(to + i, 1, 2);
    }
}

/* Turns the block's frames into the log's: commit words for `position` on, zero padding, CRCs three at a time. */
static int64_t stage(struct hf_log *log, uint8_t *frames, uint64_t bytes, uint64_t position, uint64_t *next_sqn)
{
    const struct hf_seg *s = &log->segs[log->count - 1];
    uint64_t sqn = *next_sqn, file_offset = s->header_bytes + (position - s->base);
    uint32_t fragment = 0;
    uint8_t *waiting[3] = {NULL, NULL, NULL};
    int n = 0;
    for (uint64_t at = 0; at < bytes;) {
        struct hf_frame *f = (void *)(frames + at);
        uint32_t length = (uint32_t)f->commit;
        uint64_t room = hf_frame_room(length);
        if (length < sizeof *f || room > bytes - at || f->fragment != fragment || sqn == UINT64_MAX ||
            (f->flags & ~(HF_FRAME_FIRST | HF_FRAME_LAST)) || ((f->flags & HF_FRAME_FIRST) != 0) != (fragment == 0)) {
            return HF_DAMAGED;
        }
        if (f->sequence_number != sqn++) {
            return HF_USAGE;
        }
        if (fragment == 0) {
            hf_index_note(&log->index, file_offset + at, f->sequence_number);
        }
        fragment = f->flags & HF_FRAME_LAST ? 0 : fragment + 1;
        if (room != length) {
            memset(frames + at + length, 0, room - length);
        }
        f->commit = hf_log_commit_word(position + at, length);
        if (s->map != NULL) {
            expect_stores(s->map + file_offset + at, room);
        }
        waiting[n++] = frames + at;
        if (n == 3) {
            hf_frames_stamp(waiting, 3, s->seed);
            n = 0;
        }
        at += room;
    }
    hf_frames_stamp(waiting, n, s->seed);
    *next_sqn = sqn;
    return fragment == 0 ? HF_OK : HF_DAMAGED;
}

static void control_frame(uint8_t out[HF_CONTROL_ROOM], enum hf_control kind, uint16_t flags, uint64_t sqn,
                          struct hf_control_body body, uint64_t position, uint32_t seed)
{
    struct hf_frame f = {.commit = hf_log_commit_word(position, HF_CONTROL_BYTES),
                         .sequence_number = sqn,
                         .flags = (uint16_t)(HF_FRAME_CONTROL | flags),
                         .fragment = (uint16_t)kind};
    memset(out, 0, HF_CONTROL_ROOM);
    memcpy(out, &f, sizeof f);
    memcpy(out + sizeof f, &body, sizeof body);
    uint8_t *const one[3] = {out, NULL, NULL};
    hf_frames_stamp(one, 1, seed);
}

/* Bytes that do not reach the file leave the segment in doubt: what lies behind `end` may be half of this block, so
 * nothing is ever written there again. No space is the caller's to mend; anything else is a broken disk. */
static int64_t write_failed(struct hf_log *log, int64_t status)
{
    log->must_roll = 1;
    log->filled = 0;
    return status == HF_ERRNO - ENOSPC || status == HF_ERRNO - EDQUOT ? status : hf_log_poison(log);
}

/* The disk begins with what is whole, while the rest of the group commit is copied: fdatasync finds less to do (perf:
 * store, from 0.8 of bare writes to more than 1). It promises nothing, so nobody cares whether it fails. */
static void write_ahead(struct hf_log *log, const struct hf_seg *s)
{
    uint64_t from = log->ahead > s->base ? log->ahead : s->base;
    if (log->end - from >= HF_WRITE_AHEAD) {
        hf_sync_begin(s->fd, s->header_bytes + from - s->base, log->end - from);
        log->ahead = log->end;
    }
}

/* A verified block enters the active segment, led by SYNC where a group commit begins. */
static int64_t enter(struct hf_log *log, const uint8_t *block, uint64_t bytes, uint64_t next_sqn)
{
    struct hf_seg *s = &log->segs[log->count - 1];
    uint64_t offset = s->header_bytes + (log->end - s->base);
    if (!hf_log_on_disk(log)) {
        HF_FAIL("log.staged");
        memcpy(s->map + offset, block, bytes);
        HF_FAIL("log.copied");
        log->end += bytes;
        log->appended_sqn = next_sqn;
        log->tail_sqn = next_sqn;
        log->empty = 0;
        hf_log_publish(log);
        HF_FAIL("log.published");
        return HF_OK;
    }
    uint64_t lead = lead_bytes(log);
    HF_FAIL("log.staged");
    if (lead != 0) {
        uint8_t sync[HF_CONTROL_ROOM];
        struct hf_control_body body = {.first = log->synced};
        control_frame(sync, HF_CONTROL_SYNC, 0, log->appended_sqn, body, log->end, s->seed);
        int64_t status = hf_write_all(s->fd, sync, sizeof sync, offset);
        if (status != HF_OK) {
            return write_failed(log, status);
        }
    }
    int64_t status = hf_write_all(s->fd, block, bytes, offset + lead);
    if (status != HF_OK) {
        return write_failed(log, status);
    }
    HF_FAIL("log.copied");
    log->group_open = 1;
    log->dirty_from = log->dirty_from < log->count ? log->dirty_from : log->count - 1;
    log->end += lead + bytes;
    log->appended_sqn = next_sqn;
    log->tail_sqn = next_sqn;
    log->empty = 0;
    write_ahead(log, s);
    return HF_OK;
}

int64_t hf_log_append(struct hf_log *log, uint8_t *frames, uint64_t bytes)
{
    HF_ENTER(log);
    if (bytes < sizeof(struct hf_frame) || bytes % HF_GRANULE != 0) {
        return HF_USAGE;
    }
    uint64_t next = ((const struct hf_frame *)(const void *)frames)->sequence_number;
    int64_t status = place(log, next, bytes);
    if (status != HF_OK) {
        return status;
    }
    uint32_t count = log->index.count;
    uint64_t due = log->index.next_offset;
    status = stage(log, frames, bytes, log->end + lead_bytes(log), &next);
    if (status == HF_OK) {
        status = enter(log, frames, bytes, next);
    }
    if (status != HF_OK) {
        log->index.count = count;
        log->index.next_offset = due;
    }
    return status;
}

/* A record that this log lacks first..last; flags: who may have them. */
static int64_t lack(struct hf_log *log, uint64_t first, uint64_t last, uint16_t flags)
{
    if (last < first || last == UINT64_MAX) {
        return HF_USAGE;
    }
    int64_t status = place(log, first, HF_CONTROL_ROOM);
    if (status != HF_OK) {
        return status;
    }
    uint8_t lost[HF_CONTROL_ROOM];
    uint32_t seed = log->segs[log->count - 1].seed;
    struct hf_control_body body = {first, last};
    control_frame(lost, HF_CONTROL_LOST, flags, first, body, log->end + lead_bytes(log), seed);
    return enter(log, lost, sizeof lost, last + 1);
}

int64_t hf_log_lost(struct hf_log *log, uint64_t first, uint64_t last)
{
    HF_ENTER(log);
    return lack(log, first, last, 0);
}

int64_t hf_log_hole(struct hf_log *log, uint64_t first, uint64_t last)
{
    HF_ENTER(log);
    return lack(log, first, last, HF_FRAME_HOLE);
}

/* ---- group commit ---- */

static int64_t sync_segments(struct hf_log *log)
{
    for (int64_t i = log->dirty_from; i < log->count; i++) {
        struct hf_seg *s = &log->segs[i];
        if (HF_MUTANT("log.skip_sync")) { /* what kills cannot show, and power cuts must */
            continue;
        }
        int64_t status = hf_log_durable(log, s->fd, HF_SYNC_DATA);
        if (status != HF_OK) {
            return status;
        }
    }
    return log->dir_dirty ? hf_log_durable(log, log->dir, HF_SYNC_NAMES) : HF_OK;
}

int64_t hf_log_sync(struct hf_log *log)
{
    HF_ENTER(log);
    if (hf_log_poisoned(log)) {
        return hf_log_poison(log); /* whoever noticed may not have noted the doubt */
    }
    if (!hf_log_on_disk(log) || (log->dirty_from == log->count && !log->dir_dirty)) {
        return HF_OK;
    }
    int64_t status = sync_segments(log);
    if (status != HF_OK || hf_log_poisoned(log)) { /* another thread's sync failed meanwhile, of the same names */
        return status != HF_OK ? status : hf_log_poison(log);
    }
    HF_FAIL("log.synced");
    for (int64_t i = log->dirty_from; i < log->count - 1; i++) { /* sealed: never written again */
        close(log->segs[i].fd);
        log->segs[i].fd = -1;
    }
    log->dirty_from = log->named = log->count;
    log->dir_dirty = 0;
    log->group_open = 0;
    log->syncs++;
    hf_log_publish(log);
    HF_FAIL("log.published");
    return hf_log_poisoned(log) ? HF_POISONED : HF_OK;
}

/* ---- BEGIN ---- */

static int ascending(const struct hf_begin *begins, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (begins[i].start_sqn == UINT64_MAX || (i > 0 && begins[i].incarnation <= begins[i - 1].incarnation)) {
            return 0;
        }
    }
    return count > 0;
}

/* Behind the last message that is valid by the table. */
static uint64_t valid_end(const struct hf_log *log)
{
    const struct hf_seg *last = log->count > 0 ? &log->segs[log->count - 1] : NULL;
    if (last != NULL && last->state == HF_SEG_GOOD) {
        return hf_void_tail(last, log->begins, log->begin_count, log->tail_sqn);
    }
    return log->begin_sqn < log->appended_sqn ? log->begin_sqn : log->appended_sqn;
}

int64_t hf_log_begins(struct hf_log *log, const struct hf_begin *begins, uint64_t count)
{
    HF_ENTER(log);
    if (count > HF_INCARNATIONS || !ascending(begins, count) || begins[count - 1].incarnation < log->incarnation) {
        return HF_USAGE;
    }
    if (count == log->begin_count && memcmp(begins, log->begins, count * sizeof *begins) == 0) {
        return hf_log_poisoned(log) ? HF_POISONED : HF_OK;
    }
    int64_t status = hf_log_sync(log); /* what the old incarnation appended counts, as far as it is not void */
    if (status != HF_OK) {
        return status;
    }
    uint64_t before = log->appended_sqn;
    memcpy(log->begins, begins, count * sizeof *begins);
    log->begin_count = count;
    log->incarnation = begins[count - 1].incarnation;
    log->begin_sqn = begins[count - 1].start_sqn;
    log->appended_sqn = valid_end(log);
    /* Whoever reads the new table, and next_sqn after it, sees no number that the table makes void. */
    hf_log_tell(log, &log->head->next_sqn, before < log->appended_sqn ? before : log->appended_sqn);
    HF_FAIL("begin.lowered");
    log->generation = hf_begins_next(log->generation, log->head->begin_version);
    hf_log_tell_begins(log);
    if (HF_MUTANT("head.tell_early")) {
        hf_log_tell(log, &log->head->begin_version, log->generation);
    }
    HF_FAIL("begin.placed");
    if (log->floor_sqn > log->appended_sqn) { /* numbers that were released come again */
        log->floor_sqn = log->appended_sqn;
        hf_log_oldest(log);
    }
    log->must_roll = 1;
    log->filled = 0;
    status = hf_log_on_disk(log) ? hf_log_durable(log, log->head_fd, HF_SYNC_DATA) : HF_OK;
    if (status != HF_OK || hf_log_poisoned(log)) {
        return status != HF_OK ? status : HF_POISONED;
    }
    HF_FAIL("begin.durable");
    hf_log_tell(log, &log->head->begin_version, log->generation);
    hf_log_tell(log, &log->head->next_sqn, log->appended_sqn);
    HF_FAIL("begin.stored");
    return hf_log_poisoned(log) ? HF_POISONED : HF_OK;
}

int64_t hf_log_begin(struct hf_log *log, uint64_t incarnation, uint64_t start_sqn)
{
    struct hf_begin table[HF_INCARNATIONS + 1];
    uint64_t count = log->begin_count;
    if (count > 0 && incarnation == log->incarnation && start_sqn != log->begin_sqn) {
        return HF_USAGE;
    }
    count -= count > 0 && incarnation == log->incarnation;
    memcpy(table, log->begins, count * sizeof *table);
    table[count++] = (struct hf_begin){incarnation, start_sqn};
    uint64_t old = count > HF_INCARNATIONS; /* the oldest entry makes room */
    return hf_log_begins(log, table + old, count - old);
}

/* ---- the rest ---- */

void hf_log_info(const struct hf_log *log, struct hf_log_info *out)
{
    memset(out, 0, sizeof *out);
    out->end = hf_load_acquire_u64(&log->head->end);
    out->next_sqn = hf_load_acquire_u64(&log->head->next_sqn);
    out->oldest_sqn = hf_load_acquire_u64(&log->head->oldest_sqn);
    out->appended_sqn = log->appended_sqn;
    out->incarnation = log->incarnation;
    out->begin_sqn = log->begin_sqn;
    for (int64_t i = 0; i < log->count; i++) {
        const struct hf_seg *s = &log->segs[i];
        uint64_t end = i + 1 < log->count ? log->segs[i + 1].base : log->end;
        out->bytes += s->allocated;
        out->used_bytes += s->header_bytes + (end - s->base);
    }
    out->segments = (uint64_t)log->count;
    out->cut_bytes = log->cut_bytes;
    out->damaged = log->damaged;
    out->syncs = log->syncs;
    out->dirty = log->end != log->synced;
    out->empty = log->empty;
    out->unsure = log->unsure;
    out->unsure_first = log->unsure_first;
    out->unsure_next = log->unsure_next;
}

int hf_log_files(struct hf_log *log)
{
    int files = (log->dir >= 0) + (log->head_fd >= 0) + (log->spare.dir >= 0);
    for (int64_t i = 0; i < log->count; i++) {
        files += log->segs[i].fd >= 0;
    }
    pthread_mutex_lock(&log->spare.lock);
    files +=
        log->spare.state == HF_SPARE_READY || log->spare.state == HF_SPARE_USED; /* BUSY: the fd is another thread's */
    pthread_mutex_unlock(&log->spare.lock);
    return files;
}

void hf_log_close(struct hf_log *log)
{
    if (log->opened && !hf_process_forked(log->token)) {
        hf_log_sync(log);
    }
    hf_spare_close(log);
    for (int64_t i = 0; i < log->count; i++) {
        if (log->segs[i].map != NULL && hf_process_forked(log->token)) {
            log->segs[i].map = NULL; /* MADV_DONTFORK: not mapped here */
        }
    }
    hf_seg_list_free(log->segs, log->count);
    if (log->head != NULL && !hf_process_forked(log->token)) {
        hf_head_unmap(log->head);
    }
    free(log->index.entries);
    free(log->next_index.entries);
    if (log->head_fd >= 0) {
        close(log->head_fd);
    }
    close(log->dir);
    free(log->doubt);
    free(log);
}
