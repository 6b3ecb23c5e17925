/* fill_file.c: the files of fills: their names, their headers, and opening one as a segment. fill.c writes
 * them. See hf_fill_header in layout.h. */
#include "log/fill.h"
#include "base/crc32c.h"
#include "log/frame.h"
#include "log/head.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILL_CRC offsetof(struct hf_fill_header, crc)

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
    unlinkat(dir, HF_FILL_UNFINISHED, 0);
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

uint64_t hf_fill_void_from(const struct hf_seg *fill, const struct hf_seg *segs, int64_t n,
                           const struct hf_begin *begins, int64_t count)
{
    return count > 0 ? hf_void_tail(fill, begins, (uint64_t)count, UINT64_MAX)
                     : hf_void_after(fill, segs, n, begins, 0);
}

int64_t hf_fill_write_header(int fd, const struct hf_fill_header *header)
{
    uint8_t page[HF_HEADER_PAGE];
    memset(page, 0, sizeof page);
    memcpy(page, header, sizeof *header);
    uint32_t crc = page_crc(page);
    memcpy(page + FILL_CRC, &crc, sizeof crc);
    return hf_write_all(fd, page, sizeof page, 0);
}
