/* segment.c: segment files: names, headers, seals, indexes. See segment.h.
 *
 * Headers, index and seal are written with pwrite at both levels (the page cache makes them visible to every
 * mapping), always before the name or the position that leads a reader to them. A reader checks a CRC over all of
 * it. */
#include "log/segment.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/sync.h"
#include "log/frame.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t hf_write_all(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    const uint8_t *p = data;
    while (bytes > 0) {
        int64_t failed = HF_FAIL_STATUS("log.pwrite");
        if (failed != 0) {
            return failed;
        }
        ssize_t n = pwrite(fd, p, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? hf_errno() : HF_ERRNO - EIO;
        }
        p += n;
        bytes -= (uint64_t)n;
        offset += (uint64_t)n;
    }
    return HF_OK;
}

/* ---- names ---- */

void hf_seg_name(char name[HF_SEGMENT_NAME], uint64_t base)
{
    snprintf(name, HF_SEGMENT_NAME, "seg-%016" PRIx64, base);
}

static int name_base(const char *name, uint64_t *base)
{
    if (strncmp(name, "seg-", 4) != 0 || strlen(name) != 20 || strspn(name + 4, "0123456789abcdef") != 16) {
        return 0;
    }
    *base = strtoull(name + 4, NULL, 16);
    return *base % HF_GRANULE == 0 && *base < HF_END_SANE;
}

static int by_base(const void *a, const void *b)
{
    uint64_t x = ((const struct hf_seg *)a)->base, y = ((const struct hf_seg *)b)->base;
    return x < y ? -1 : x > y;
}

int64_t hf_each_name(int dir, int64_t (*take)(void *argument, const char *name), void *argument)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (stream == NULL) {
        int64_t status = hf_errno();
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    const struct dirent *entry;
    int64_t status = HF_OK;
    while (status == HF_OK && (errno = 0, entry = readdir(stream)) != NULL) {
        status = take(argument, entry->d_name);
    }
    status = status == HF_OK && errno != 0 ? hf_errno() : status;
    closedir(stream);
    return status;
}

struct names {
    struct hf_seg *segs;
    int64_t count;
    int64_t room;
};

static int64_t take_name(void *argument, const char *name)
{
    struct names *names = argument;
    uint64_t base;
    if (!name_base(name, &base)) {
        return HF_OK;
    }
    if (names->count == names->room) {
        int64_t room = 2 * names->room;
        struct hf_seg *more = realloc(names->segs, (size_t)room * sizeof *more);
        if (more == NULL) {
            return HF_ERRNO - ENOMEM;
        }
        names->segs = more;
        names->room = room;
    }
    names->segs[names->count++] = (struct hf_seg){.base = base, .fd = -1};
    return HF_OK;
}

int64_t hf_seg_list_all(int dir, const uint8_t *source_uuid, struct hf_seg **out)
{
    struct names names = {.segs = calloc(32, sizeof *names.segs), .room = 32};
    int64_t status = names.segs == NULL ? HF_ERRNO - ENOMEM : hf_each_name(dir, take_name, &names), kept = 0;
    for (int64_t i = 0; i < names.count && status == HF_OK; i++) {
        status = hf_seg_load(dir, &names.segs[i], source_uuid);
        if (names.segs[i].state != HF_SEG_VANISHED) {
            names.segs[kept++] = names.segs[i];
        }
    }
    *out = names.segs;
    if (status != HF_OK) {
        free(names.segs);
        *out = NULL;
        return status;
    }
    qsort(names.segs, (size_t)kept, sizeof *names.segs, by_base);
    return kept;
}

int64_t hf_seg_list(int dir, const uint8_t *source_uuid, struct hf_seg **out)
{
    int64_t n = hf_seg_list_all(dir, source_uuid, out), kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if ((*out)[i].state != HF_SEG_ALIEN) {
            (*out)[kept++] = (*out)[i];
        }
    }
    return n < 0 ? n : kept;
}

/* ---- segment headers ---- */

uint64_t hf_seg_header_bytes(uint64_t file_bytes)
{
    uint64_t index = (file_bytes + HF_INDEX_STEP - 1) / HF_INDEX_STEP * sizeof(struct hf_index_entry);
    return HF_HEADER_PAGE + (index + HF_HEADER_PAGE - 1) / HF_HEADER_PAGE * HF_HEADER_PAGE;
}

int hf_zeros(const uint8_t *p, uint64_t bytes)
{
    uint64_t word = 0, at = 0;
    for (; bytes - at >= sizeof word && word == 0; at += sizeof word) {
        memcpy(&word, p + at, sizeof word);
    }
    for (; at < bytes && word == 0; at++) {
        word = p[at];
    }
    return word == 0;
}

/* No sum covers what lies between header, seal and copy: whoever began the segment wrote zeros there. */
static int unused_zeros(const uint8_t page[HF_HEADER_PAGE])
{
    const uint64_t covered = HF_HEADER_CRC + sizeof(uint32_t), seal = offsetof(struct hf_segment_header, seal);
    const uint64_t behind = seal + sizeof(struct hf_seal), behind_copy = HF_SEGMENT_COPY + covered;
    return hf_zeros(page + covered, seal - covered) && hf_zeros(page + behind, HF_SEGMENT_COPY - behind) &&
           hf_zeros(page + behind_copy, HF_HEADER_PAGE - behind_copy);
}

static int header_crc_good(const struct hf_segment_header *h)
{
    return h->pre.magic == (HF_MAGIC | HF_KIND_SEGMENT) && hf_crc32c(0, (const uint8_t *)h, HF_HEADER_CRC) == h->crc;
}

static uint32_t seal_crc(const struct hf_seal *seal, const uint8_t *uuid)
{
    return hf_crc32c(hf_crc32c(0, uuid, HF_UUID), (const uint8_t *)seal, offsetof(struct hf_seal, crc));
}

static void take_header(struct hf_seg *s, const struct hf_segment_header *h)
{
    uint64_t data = h->pre.total_bytes - h->pre.header_bytes;
    uint64_t there = s->file_bytes > h->pre.header_bytes ? s->file_bytes - h->pre.header_bytes : 0;
    memcpy(s->uuid, h->pre.uuid, HF_UUID);
    s->incarnation = h->pre.incarnation;
    s->first_sqn = h->first_sqn;
    s->synced_below = h->synced_below;
    s->header_bytes = h->pre.header_bytes;
    s->seed = hf_seed(s->uuid, s->incarnation);
    s->limit = s->base + ((there < data ? there : data) & ~(uint64_t)(HF_GRANULE - 1));
}

static int header_sane(const struct hf_segment_header *h)
{
    return h->pre.total_bytes >= HF_SEGMENT_MIN && h->pre.total_bytes <= HF_SEGMENT_SANE &&
           h->pre.header_bytes == hf_seg_header_bytes(h->pre.total_bytes) && h->base_position % HF_GRANULE == 0 &&
           h->base_position < HF_END_SANE;
}

/* A seal counts only if its CRC fits this very use of the file and it lies within what the file can hold. */
static void take_seal(struct hf_seg *s, const struct hf_seal *seal)
{
    if (hf_zeros((const uint8_t *)seal, sizeof *seal)) {
        return;
    }
    if (seal->crc == seal_crc(seal, s->uuid) && seal->end_position >= s->base && seal->end_position % HF_GRANULE == 0 &&
        seal->end_position < HF_END_SANE) {
        s->seal = *seal;
    } else {
        s->flaws = 1;
    }
}

static int64_t read_header(struct hf_seg *s, const uint8_t *source_uuid)
{
    struct hf_segment_header h, copy;
    uint8_t page[HF_HEADER_PAGE];
    s->state = HF_SEG_BAD;
    s->limit = s->base;
    memset(&s->seal, 0, sizeof s->seal);
    s->flaws = s->unreadable = 0;
    struct hf_bytes bad;
    int64_t status = hf_read_all(s->fd, page, sizeof page, 0, &bad); /* zeros for what a short file lacks */
    if (status != HF_OK || s->file_bytes < sizeof h) {
        return status;
    }
    s->unreadable = bad.to != 0;
    memcpy(&h, page, sizeof h);
    memcpy(&copy, page + HF_SEGMENT_COPY, sizeof copy);
    int first = header_crc_good(&h), second = header_crc_good(&copy);
    const struct hf_segment_header *good = first ? &h : &copy;
    s->flaws = !first || !second || !unused_zeros(page);
    if (!first && !second) {
        return HF_OK;
    }
    if (good->pre.layout_version != hf_layout_version(HF_KIND_SEGMENT) ||
        good->pre.struct_hash != hf_struct_hash(HF_KIND_SEGMENT)) {
        return HF_LAYOUT;
    }
    if (!header_sane(good)) {
        return HF_OK;
    }
    if (source_uuid != NULL && memcmp(good->source_uuid, source_uuid, HF_UUID) != 0) {
        return HF_OK;
    }
    s->state = good->base_position == s->base ? HF_SEG_GOOD : HF_SEG_ALIEN;
    if (s->state == HF_SEG_GOOD) {
        take_header(s, good);
        take_seal(s, &h.seal);
    }
    return HF_OK;
}

static int64_t open_segment(int dir, struct hf_seg *s, const uint8_t *source_uuid)
{
    char name[HF_SEGMENT_NAME];
    struct stat st;
    hf_seg_name(name, s->base);
    s->state = HF_SEG_VANISHED;
    s->fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* whoever made it */
    if (s->fd < 0 && hf_unreadable(errno)) { /* its name is there, and the disk has nothing behind it */
        s->state = HF_SEG_BAD;
        s->limit = s->base;
        s->unreadable = 1;
        return HF_OK;
    }
    if (s->fd < 0) {
        return errno == ENOENT ? HF_OK : hf_errno();
    }
    int64_t status = fstat(s->fd, &st) < 0 ? hf_errno() : HF_OK;
    if (status == HF_OK) {
        s->file_bytes = (uint64_t)st.st_size;
        s->allocated = (uint64_t)st.st_blocks * 512;
        status = read_header(s, source_uuid);
    }
    return status;
}

int64_t hf_seg_load(int dir, struct hf_seg *s, const uint8_t *source_uuid)
{
    int64_t status = open_segment(dir, s, source_uuid);
    hf_seg_close(s);
    return status;
}

int64_t hf_seg_open(int dir, struct hf_seg *s)
{
    if (s->fd >= 0) {
        return HF_OK;
    }
    struct hf_seg now = {.base = s->base, .fd = -1};
    int64_t status = open_segment(dir, &now, NULL);
    if (status == HF_OK && (now.state != HF_SEG_GOOD || memcmp(now.uuid, s->uuid, HF_UUID) != 0)) {
        status = HF_GONE;
    }
    if (status != HF_OK) {
        hf_seg_close(&now);
        return status;
    }
    s->fd = now.fd;
    s->limit = now.limit; /* within the file as it is now */
    s->seal = now.seal;
    return HF_OK;
}

void hf_seg_unmap(struct hf_seg *s)
{
    if (s->map != NULL) {
        munmap(s->map, s->mapped);
        s->map = NULL;
        s->mapped = 0;
    }
}

void hf_seg_list_free(struct hf_seg *segs, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        hf_seg_unmap(&segs[i]);
        hf_seg_close(&segs[i]);
    }
    free(segs);
}

void hf_fill_preamble(struct hf_preamble *pre, uint32_t kind)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(pre, 0, sizeof *pre);
    pre->magic = HF_MAGIC | kind;
    pre->layout_version = hf_layout_version(kind);
    pre->struct_hash = hf_struct_hash(kind);
    pre->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
    pre->owner = hf_process_token();
    pre->created_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    pre->owner_pid = (uint32_t)getpid();
    pre->owner_start = hf_process_start(pre->owner_pid);
    hf_boot_id(pre->boot_id);
}

int64_t hf_seg_begin(struct hf_seg *s, const uint8_t *source_uuid)
{
    struct hf_segment_header h;
    uint8_t page[HF_HEADER_PAGE];
    memset(&h, 0, sizeof h);
    hf_fill_preamble(&h.pre, HF_KIND_SEGMENT);
    if (getrandom(h.pre.uuid, HF_UUID, 0) != HF_UUID) {
        return hf_errno();
    }
    h.pre.header_bytes = (uint32_t)hf_seg_header_bytes(s->file_bytes);
    h.pre.total_bytes = s->file_bytes;
    h.pre.incarnation = s->incarnation;
    memcpy(h.source_uuid, source_uuid, HF_UUID);
    h.base_position = s->base;
    h.first_sqn = s->first_sqn;
    h.synced_below = s->synced_below;
    h.crc = hf_crc32c(0, (const uint8_t *)&h, HF_HEADER_CRC);
    memset(page, 0, sizeof page);
    memcpy(page, &h, sizeof h);
    memcpy(page + HF_SEGMENT_COPY, &h, HF_HEADER_CRC + sizeof h.crc);
    int64_t status = hf_write_all(s->fd, page, sizeof page, 0);
    if (status == HF_OK) {
        memset(&s->seal, 0, sizeof s->seal);
        s->state = HF_SEG_GOOD;
        take_header(s, &h);
    }
    return status;
}

int64_t hf_seg_void(int dir, const struct hf_seg *s, const uint8_t *source_uuid)
{
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, s->base);
    struct hf_seg nowhere = {.base = s->base + HF_GRANULE, .file_bytes = HF_SEGMENT_MIN};
    nowhere.fd = openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (nowhere.fd < 0) {
        return hf_errno();
    }
    int64_t status = hf_seg_begin(&nowhere, source_uuid);
    if (status == HF_OK) {
        status = hf_sync(nowhere.fd, HF_SYNC_DATA) == HF_OK ? HF_OK : HF_POISONED;
    }
    close(nowhere.fd);
    return status == HF_ERRNO - ENOSPC || status == HF_ERRNO - EDQUOT ? HF_OK : status; /* a full disk is no failure */
}

int64_t hf_seg_seal(struct hf_seg *s, uint64_t end, uint64_t next_sqn, const struct hf_index *index)
{
    struct hf_seal seal;
    /* All entries, used or not: the file may have had another index before. */
    uint64_t room = (s->header_bytes - HF_HEADER_PAGE) / sizeof *index->entries;
    uint64_t written = index->max < room ? index->max : room;
    memset(&seal, 0, sizeof seal);
    seal.end_position = end;
    seal.next_sqn = next_sqn;
    seal.index_count = index->count;
    seal.index_crc = hf_crc32c(0, (const uint8_t *)index->entries, index->count * sizeof *index->entries);
    seal.crc = seal_crc(&seal, s->uuid);
    int64_t status = hf_write_all(s->fd, index->entries, written * sizeof *index->entries, HF_HEADER_PAGE);
    if (status == HF_OK) {
        status = hf_write_all(s->fd, &seal, sizeof seal, offsetof(struct hf_segment_header, seal));
    }
    if (status == HF_OK) {
        s->seal = seal;
    }
    return status;
}

int64_t hf_seg_index(struct hf_seg *s, struct hf_index_entry *out, uint64_t max)
{
    uint64_t count = s->seal.index_count, bytes = count * sizeof *out;
    int64_t status = HF_OK;
    if (s->seal.end_position == 0 || count > max || HF_HEADER_PAGE + bytes > s->header_bytes) {
        return 0;
    }
    const uint8_t *in = hf_seg_bytes(s, HF_HEADER_PAGE, bytes, &status);
    if (in == NULL || hf_crc32c(0, in, bytes) != s->seal.index_crc) {
        return status;
    }
    memcpy(out, in, bytes);
    return (int64_t)count;
}

int64_t hf_index_reset(struct hf_index *x, uint64_t file_bytes)
{
    uint64_t max = (file_bytes + HF_INDEX_STEP - 1) / HF_INDEX_STEP;
    if (max > x->max) {
        struct hf_index_entry *more = realloc(x->entries, max * sizeof *more);
        if (more == NULL) {
            return HF_ERRNO - ENOMEM;
        }
        x->entries = more;
        x->max = (uint32_t)max;
    }
    memset(x->entries, 0, x->max * sizeof *x->entries); /* a seal writes the unused ones too */
    x->count = 0;
    x->next_offset = 0;
    return HF_OK;
}
