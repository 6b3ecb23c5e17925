/* log_fill.c: fills: what a log had lost or damaged, copied from another store's log. See hf_fill_header in layout.h.
 *
 * Nothing in a log is ever rewritten, so what is mended lies beside it, in a file of its own. It is written as
 * `fill-new`, synced, renamed, and the directory is synced: a crash before the rename leaves a `fill-new` that nobody
 * reads and that the next open removes; one after it leaves a fill that is whole. A file of the same range replaces the
 * earlier one. One writer per log directory: the store, or a tool that holds the store's lock.
 *
 * BEGINs later than the incarnation that its records had where they came from void them here as there, so it never
 * brings back what one of them has taken over. */
#include "log/private.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILL_CRC offsetof(struct hf_fill_header, crc)

static const char unfinished[] = "fill-new";

/* ---- names ---- */

void hf_fill_name(char name[HF_FILL_NAME], uint64_t first, uint64_t next)
{
    snprintf(name, HF_FILL_NAME, "fill-%016" PRIx64 "-%016" PRIx64, first, next);
}

static int name_range(const char *name, struct hf_range *range)
{
    if (strncmp(name, "fill-", 5) != 0 || strlen(name) != 38 || strspn(name + 5, "0123456789abcdef") != 16 ||
        name[21] != '-' || strspn(name + 22, "0123456789abcdef") != 16) {
        return 0;
    }
    range->first = strtoull(name + 5, NULL, 16);
    range->next = strtoull(name + 22, NULL, 16);
    return range->first < range->next;
}

int64_t hf_ranges_add(struct hf_ranges *ranges, uint64_t first, uint64_t next)
{
    if (ranges->count == ranges->room) {
        int64_t room = ranges->room == 0 ? 16 : 2 * ranges->room;
        struct hf_range *more = realloc(ranges->at, (size_t)room * sizeof *more);
        if (more == NULL) {
            return HF_ERRNO - ENOMEM;
        }
        ranges->at = more;
        ranges->room = room;
    }
    ranges->at[ranges->count++] = (struct hf_range){first, next};
    return HF_OK;
}

static int by_first(const void *a, const void *b)
{
    uint64_t x = ((const struct hf_range *)a)->first, y = ((const struct hf_range *)b)->first;
    return x < y ? -1 : x > y;
}

static int64_t take_name(void *ranges, const char *name)
{
    struct hf_range range;
    return name_range(name, &range) ? hf_ranges_add(ranges, range.first, range.next) : HF_OK;
}

int64_t hf_fill_list(int dir, struct hf_ranges *out)
{
    out->count = 0;
    int64_t status = hf_each_name(dir, take_name, out);
    if (status == HF_OK && out->count > 1) {
        qsort(out->at, (size_t)out->count, sizeof *out->at, by_first);
    }
    return status;
}

uint64_t hf_fill_expire(int dir, uint64_t oldest_sqn)
{
    struct hf_ranges fills = {0};
    uint64_t lowest = hf_fill_list(dir, &fills) == HF_OK ? UINT64_MAX : 0; /* 0: to be looked at again */
    for (int64_t i = 0; i < fills.count; i++) {
        if (fills.at[i].next <= oldest_sqn) {
            char name[HF_FILL_NAME];
            hf_fill_name(name, fills.at[i].first, fills.at[i].next);
            unlinkat(dir, name, 0);
        } else if (fills.at[i].next < lowest) {
            lowest = fills.at[i].next;
        }
    }
    free(fills.at);
    return lowest;
}

void hf_fill_drop_unfinished(int dir)
{
    unlinkat(dir, unfinished, 0);
}

/* ---- the file ---- */

static uint32_t page_crc(uint8_t page[HF_HEADER_PAGE])
{
    uint32_t stored, crc;
    memcpy(&stored, page + FILL_CRC, sizeof stored);
    memset(page + FILL_CRC, 0, sizeof stored);
    crc = hf_crc32c(0, page, HF_HEADER_PAGE);
    memcpy(page + FILL_CRC, &stored, sizeof stored);
    return crc;
}

/* Everything in the header is checked against the name, the log that it lies in and the file's size. */
static int64_t take_header(int fd, const uint8_t *source_uuid, struct hf_seg *s)
{
    struct stat st;
    struct hf_fill_header h;
    uint8_t page[HF_HEADER_PAGE];
    if (fstat(fd, &st) != 0) {
        return hf_errno();
    }
    struct hf_bytes bad;
    int64_t status = hf_read_all(fd, page, sizeof page, 0, &bad);
    if (status != HF_OK) {
        return status;
    }
    memcpy(&h, page, sizeof h);
    if (h.pre.magic != (HF_MAGIC | HF_KIND_FILL) || page_crc(page) != h.crc) {
        return HF_DAMAGED;
    }
    if (h.pre.layout_version != hf_layout_version(HF_KIND_FILL) || h.pre.struct_hash != hf_struct_hash(HF_KIND_FILL)) {
        return HF_LAYOUT;
    }
    if ((source_uuid != NULL && memcmp(h.source_uuid, source_uuid, HF_UUID) != 0) || h.first_sqn != s->first_sqn ||
        h.next_sqn != s->fill_next || h.pre.header_bytes != HF_HEADER_PAGE || h.end_position == 0 ||
        h.end_position % HF_GRANULE != 0 || h.end_position > HF_SEGMENT_SANE ||
        (uint64_t)st.st_size < HF_HEADER_PAGE + h.end_position) {
        return HF_DAMAGED;
    }
    memcpy(s->uuid, h.pre.uuid, HF_UUID);
    s->incarnation = h.pre.incarnation;
    s->header_bytes = HF_HEADER_PAGE;
    s->file_bytes = (uint64_t)st.st_size;
    s->limit = h.end_position;
    s->seed = hf_seed(s->uuid, s->incarnation);
    s->state = HF_SEG_GOOD;
    return HF_OK;
}

static int64_t open_fill(int dir, const uint8_t *source_uuid, struct hf_seg *s, int *fd)
{
    char name[HF_FILL_NAME];
    hf_fill_name(name, s->first_sqn, s->fill_next);
    *fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0) {
        return hf_unreadable(errno) ? HF_DAMAGED : hf_errno();
    }
    return take_header(*fd, source_uuid, s);
}

int64_t hf_fill_open(int dir, const uint8_t *source_uuid, struct hf_range range, struct hf_seg *s)
{
    *s = (struct hf_seg){.first_sqn = range.first, .fill_next = range.next, .state = HF_SEG_BAD, .fd = -1};
    int64_t status = open_fill(dir, source_uuid, s, &s->fd);
    if (status != HF_OK) {
        hf_seg_close(s);
    }
    return status;
}

int hf_fill_same(int dir, const struct hf_seg *s)
{
    int fd;
    struct hf_seg now = {.first_sqn = s->first_sqn, .fill_next = s->fill_next, .fd = -1};
    int64_t status = open_fill(dir, NULL, &now, &fd);
    if (fd >= 0) {
        close(fd);
    }
    return status == HF_OK && memcmp(now.uuid, s->uuid, HF_UUID) == 0;
}

uint64_t hf_fill_void_from(const struct hf_seg *fill, const struct hf_seg *segs, int64_t n,
                           const struct hf_begin *begins, int64_t count)
{
    return count > 0 ? hf_void_tail(fill, begins, (uint64_t)count, UINT64_MAX)
                     : hf_void_after(fill, segs, n, begins, 0);
}

/* ---- writing ---- */

struct hf_fill {
    uint64_t token;
    int dir;
    int fd;
    uint8_t uuid[HF_UUID]; /* of the fill */
    uint8_t source_uuid[HF_UUID];
    uint64_t incarnation;
    uint64_t first;
    uint64_t limit; /* numbers from here on are not taken */
    uint64_t end;   /* bytes of frames */
    uint64_t next;
    uint32_t seed;
};

int64_t hf_fill_create(int dir_fd, const uint8_t *source_uuid, uint64_t incarnation, uint64_t first_sqn,
                       uint64_t limit_sqn, struct hf_fill **out)
{
    if (first_sqn >= limit_sqn) {
        return HF_USAGE;
    }
    struct hf_fill *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    *f = (struct hf_fill){.token = hf_process_token(),
                          .fd = -1,
                          .incarnation = incarnation,
                          .first = first_sqn,
                          .limit = limit_sqn,
                          .next = first_sqn};
    memcpy(f->source_uuid, source_uuid, HF_UUID);
    f->dir = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
    int64_t status = f->dir < 0 ? hf_errno() : HF_OK;
    if (status == HF_OK && getrandom(f->uuid, HF_UUID, 0) != HF_UUID) {
        status = hf_errno();
    }
    if (status == HF_OK) {
        f->seed = hf_seed(f->uuid, incarnation);
        f->fd = openat(f->dir, unfinished, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        status = f->fd < 0 ? hf_errno() : HF_OK;
    }
    if (status != HF_OK) {
        hf_fill_abort(f);
        return status;
    }
    *out = f;
    return HF_OK;
}

/* Gives one frame its place here. Returns its room, 0: it is malformed or does not continue. */
static uint64_t stage(const struct hf_fill *f, uint8_t *at, uint64_t room, uint64_t position, struct hf_chain *chain)
{
    struct hf_frame frame;
    if (room < sizeof frame) {
        return 0;
    }
    memcpy(&frame, at, sizeof frame);
    uint32_t length = (uint32_t)frame.commit;
    uint64_t takes = hf_frame_room(length);
    if (length < sizeof frame || takes > room || (frame.flags & HF_FRAME_CONTROL) ||
        !hf_chain_take(chain, &frame, NULL, position)) {
        return 0;
    }
    memset(at + length, 0, takes - length);
    frame.commit = hf_commit_word(position, length);
    memcpy(at, &frame, sizeof frame);
    uint8_t *const one[3] = {at, NULL, NULL};
    hf_frames_stamp(one, 1, f->seed);
    return takes;
}

int64_t hf_fill_append(struct hf_fill *f, uint8_t *frames, uint64_t bytes, uint64_t *next)
{
    HF_ENTER(f);
    struct hf_chain chain = {.next_sqn = f->next, .whole = f->end, .whole_sqn = f->next};
    struct hf_chain taken = chain;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t room = stage(f, frames + at, bytes - at, f->end + at, &chain);
        if (room == 0) {
            return HF_DAMAGED;
        }
        at += room;
        if (chain.fragment == 0) { /* a message is whole: does it fit? */
            if (chain.whole_sqn > f->limit || (chain.whole > HF_FILL_MAX && taken.whole > 0)) {
                break;
            }
            taken = chain;
        } else if (at >= bytes) {
            return HF_DAMAGED;
        }
    }
    uint64_t kept = taken.whole - f->end;
    int64_t status = kept == 0 ? HF_OK : hf_write_all(f->fd, frames, kept, HF_HEADER_PAGE + f->end);
    if (status == HF_OK) {
        f->end = taken.whole;
        f->next = taken.whole_sqn;
        *next = f->next;
        HF_FAIL("fill.appended");
    }
    return status == HF_OK ? (int64_t)kept : status;
}

static int64_t write_header(const struct hf_fill *f)
{
    uint8_t page[HF_HEADER_PAGE];
    struct hf_fill_header h;
    memset(&h, 0, sizeof h);
    hf_fill_preamble(&h.pre, HF_KIND_FILL);
    memcpy(h.pre.uuid, f->uuid, HF_UUID);
    h.pre.header_bytes = (uint32_t)HF_HEADER_PAGE;
    h.pre.total_bytes = HF_HEADER_PAGE + f->end;
    h.pre.incarnation = f->incarnation;
    memcpy(h.source_uuid, f->source_uuid, HF_UUID);
    h.first_sqn = f->first;
    h.next_sqn = f->next;
    h.end_position = f->end;
    memset(page, 0, sizeof page);
    memcpy(page, &h, sizeof h);
    uint32_t crc = page_crc(page);
    memcpy(page + FILL_CRC, &crc, sizeof crc);
    return hf_write_all(f->fd, page, sizeof page, 0);
}

int64_t hf_fill_commit(struct hf_fill *f)
{
    HF_ENTER(f);
    char name[HF_FILL_NAME];
    hf_fill_name(name, f->first, f->next);
    int64_t status = f->end == 0 ? HF_USAGE : write_header(f);
    if (status == HF_OK) {
        HF_FAIL("fill.written");
        status = hf_sync(f->fd, HF_SYNC_DATA);
    }
    if (status == HF_OK) {
        HF_FAIL("fill.synced");
        status = renameat(f->dir, unfinished, f->dir, name) == 0 ? HF_OK : hf_errno();
    }
    if (status == HF_OK) {
        HF_FAIL("fill.renamed");
        status = hf_sync(f->dir, HF_SYNC_NAMES);
        if (status != HF_OK) {
            hf_log_distrust(f->dir); /* the log's own names may be in doubt, too; its next open copies this one */
        }
    }
    hf_fill_abort(f); /* what was renamed is not there any more under the old name */
    return status;
}

void hf_fill_abort(struct hf_fill *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    if (f->dir >= 0) {
        if (f->fd >= 0 && !hf_process_forked(f->token)) { /* it is the parent's */
            unlinkat(f->dir, unfinished, 0);
        }
        close(f->dir);
    }
    free(f);
}

/* ---- pruning ---- */

static int useless(const struct hf_logr *r, struct hf_range range)
{
    struct hf_seg s;
    if (range.next <= r->head->oldest_sqn) {
        return 1;
    }
    int64_t status = hf_fill_open(r->dir, r->head->pre.uuid, range, &s);
    hf_seg_close(&s);
    return status == HF_DAMAGED ||
           (status == HF_OK && hf_fill_void_from(&s, r->segs, r->count, r->begins, r->begin_count) < range.next);
}

int64_t hf_fill_prune(int dir_fd)
{
    struct hf_logr *r = NULL;
    int64_t status = hf_logr_open(dir_fd, &r), removed = 0;
    if (status != HF_OK) {
        return status;
    }
    status = hf_logr_refresh(r);
    for (int64_t i = 0; i < r->fills.count && status == HF_OK; i++) {
        if (useless(r, r->fills.at[i])) {
            char name[HF_FILL_NAME];
            hf_fill_name(name, r->fills.at[i].first, r->fills.at[i].next);
            removed += unlinkat(r->dir, name, 0) == 0;
        }
    }
    hf_logr_close(r);
    return status == HF_OK ? removed : status;
}
