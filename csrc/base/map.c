/* map.c: mapping of named shared memory, and the checks before anybody trusts it. See map.h. */
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"

#define KIND_MASK UINT64_C(0xff)
#define RING_MAX (UINT64_C(1) << 40) /* keeps every sum below far from overflow */
#define HEADER_MAX (UINT64_C(1) << 30)
#define SIZING_STEP (UINT64_C(16) << 20) /* a step of fallocate starts again after a signal: it must fit between two */

/* Smallest header of a kind; 0 = not a kind that is mapped here (segments and heads of logs belong to log/append.c). */
static uint64_t header_least(uint32_t kind)
{
    switch (kind) {
    case HF_KIND_STREAM:
        return sizeof(struct hf_stream_header);
    case HF_KIND_BOARD:
        return sizeof(struct hf_board);
    case HF_KIND_BELLS:
        return sizeof(struct hf_bells);
    default:
        return 0;
    }
}

/* A stream has a ring, a power of two of whole pages; nothing else has one. */
static int ring_fits(uint32_t kind, uint64_t ring)
{
    if (kind != HF_KIND_STREAM) {
        return ring == 0;
    }
    return ring >= hf_page_bytes() && ring <= RING_MAX && (ring & (ring - 1)) == 0;
}

static int64_t allocate(int fd, uint64_t total)
{
    for (uint64_t at = 0; at < total;) {
        uint64_t step = total - at < SIZING_STEP ? total - at : SIZING_STEP;
        int64_t status = HF_FAIL_STATUS("segment.allocate");
        if (status == 0 && fallocate(fd, 0, (off_t)at, (off_t)step) != 0) {
            status = HF_ERRNO - errno;
        }
        if (status == 0) {
            at += step;
        } else if (status != HF_ERRNO - EINTR) {
            return ftruncate(fd, 0) == 0 ? status : HF_ERRNO - errno;
        }
    }
    return HF_OK;
}

static int64_t map_new(int fd, uint32_t kind, uint64_t header, uint64_t ring, int writable, int populate,
                       struct hf_map **out)
{
    struct hf_map *map = calloc(1, sizeof(*map));
    if (map == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    map->ring_bytes = ring;
    map->token = hf_process_token();
    map->writable = writable ? 1 : 0;
    map->kind = kind;
    map->mapped_bytes = header + 2 * ring;
    int64_t status = hf_pages_map(fd, header, ring, writable, &map->base);
    if (status == HF_OK && populate) {
        status = hf_pages_populate(map->base, map->mapped_bytes, writable);
    }
    if (status != HF_OK) {
        hf_map_detach(map);
        return status;
    }
    *out = map;
    return HF_OK;
}

static uint64_t realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Everything but the magic, which stays 0 until hf_map_publish. */
static void write_preamble(struct hf_map *map, uint64_t header, const uint8_t *uuid, uint64_t incarnation,
                           const uint8_t *boot)
{
    struct hf_preamble *pre = (struct hf_preamble *)map->base;
    pre->layout_version = hf_layout_version(map->kind);
    pre->struct_hash = hf_struct_hash(map->kind);
    pre->page_size = (uint32_t)hf_page_bytes();
    pre->header_bytes = (uint32_t)header;
    pre->total_bytes = header + map->ring_bytes;
    pre->incarnation = incarnation;
    pre->owner = map->token;
    pre->created_ns = realtime_ns();
    pre->owner_pid = (uint32_t)getpid();
    pre->owner_start = hf_process_start(pre->owner_pid);
    memcpy(pre->uuid, uuid, sizeof(pre->uuid));
    memcpy(pre->boot_id, boot, sizeof(pre->boot_id));
    if (map->kind == HF_KIND_STREAM) {
        ((struct hf_stream_header *)map->base)->ring_bytes = map->ring_bytes;
    }
}

int64_t hf_map_create(int fd, uint32_t kind, uint64_t header_bytes, uint64_t ring_bytes, const uint8_t *uuid,
                      uint64_t incarnation, struct hf_map **out)
{
    *out = NULL;
    uint64_t least = header_least(kind);
    if (least == 0 || header_bytes < least || header_bytes > HEADER_MAX || !ring_fits(kind, ring_bytes)) {
        return ring_bytes > RING_MAX ? HF_TOO_LARGE : HF_USAGE;
    }
    struct stat file;
    uint8_t boot[16];
    int64_t status = hf_boot_id(boot);
    if (status != HF_OK) {
        return status;
    }
    if (fstat(fd, &file) != 0) {
        return HF_ERRNO - errno;
    }
    if (file.st_size != 0) {
        return HF_EXISTS;
    }
    uint64_t header = (header_bytes + hf_page_bytes() - 1) & ~(hf_page_bytes() - 1);
    status = allocate(fd, header + ring_bytes);
    if (status != HF_OK) {
        return status;
    }
    status = map_new(fd, kind, header, ring_bytes, 1, 1, out);
    if (status != HF_OK) {
        return ftruncate(fd, 0) == 0 ? status : HF_ERRNO - errno;
    }
    write_preamble(*out, header, uuid, incarnation, boot);
    return HF_OK;
}

void hf_map_publish(struct hf_map *map)
{
    HF_FAIL("segment.publish"); /* a crash here leaves an object without magic: nobody attaches, anybody may unlink */
    struct hf_preamble *pre = (struct hf_preamble *)map->base;
    hf_store_release_u64(&pre->magic, HF_MAGIC | map->kind); /* pairs with read_header: magic */
}

/* A private copy of the preamble and of a stream's ring size: what is checked is what is used. HF_AGAIN: not published
 * yet. */
static int64_t read_header(int fd, struct hf_preamble *pre, uint64_t *ring_bytes)
{
    uint64_t page = hf_page_bytes();
    uint8_t *first = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
    if (first == MAP_FAILED) {
        return HF_ERRNO - errno;
    }
    const struct hf_stream_header *header = (const struct hf_stream_header *)first;
    uint64_t magic = hf_load_acquire_u64(&header->pre.magic); /* pairs with hf_map_publish */
    memcpy(pre, &header->pre, sizeof(*pre));
    pre->magic = magic;
    *ring_bytes = hf_load_relaxed_u64(&header->ring_bytes);
    munmap(first, page);
    return magic == 0 ? HF_AGAIN : HF_OK;
}

/* What belongs to another user could be truncated under us by its owner, and says what that one likes: it is refused, by
 * root too. Of our own objects each has one name, or none by now: a second name is one that another user may have given
 * it, in a domain where it does not belong. */
static int64_t check_file(const struct stat *file)
{
    if (!S_ISREG(file->st_mode) || file->st_uid != geteuid() || (file->st_mode & 077) != 0 || file->st_nlink > 1) {
        return HF_FOREIGN;
    }
    if (file->st_size == 0) {
        return HF_AGAIN; /* its creator has not sized it yet */
    }
    return file->st_size < (off_t)hf_page_bytes() ? HF_DAMAGED : HF_OK;
}

static int64_t check_preamble(const struct hf_preamble *pre, uint64_t ring_bytes, uint32_t kind, uint64_t file_bytes)
{
    if ((pre->magic & ~KIND_MASK) != HF_MAGIC) {
        return HF_DAMAGED;
    }
    if (pre->layout_version != hf_layout_version(kind) || pre->struct_hash != hf_struct_hash(kind) ||
        pre->page_size != hf_page_bytes() || (pre->magic & KIND_MASK) != kind) {
        return HF_LAYOUT;
    }
    uint64_t header = pre->header_bytes;
    uint64_t ring = kind == HF_KIND_STREAM ? ring_bytes : 0;
    if (header < header_least(kind) || header > HEADER_MAX || header % hf_page_bytes() != 0 || !ring_fits(kind, ring) ||
        header + ring != pre->total_bytes || pre->total_bytes != file_bytes) {
        return HF_DAMAGED;
    }
    uint8_t boot[16];
    int64_t status = hf_boot_id(boot);
    if (status != HF_OK) {
        return status;
    }
    return memcmp(boot, pre->boot_id, sizeof(boot)) == 0 ? HF_OK : HF_GONE;
}

int64_t hf_map_attach(int fd, uint32_t kind, int writable, int populate, struct hf_map **out)
{
    *out = NULL;
    if (header_least(kind) == 0) {
        return HF_USAGE;
    }
    struct stat file;
    if (fstat(fd, &file) != 0) {
        return HF_ERRNO - errno;
    }
    struct hf_preamble pre;
    uint64_t ring_bytes = 0;
    int64_t status = check_file(&file);
    if (status == HF_OK) {
        status = read_header(fd, &pre, &ring_bytes);
    }
    if (status == HF_OK) {
        status = check_preamble(&pre, ring_bytes, kind, (uint64_t)file.st_size);
    }
    if (status != HF_OK) {
        return status;
    }
    return map_new(fd, kind, pre.header_bytes, kind == HF_KIND_STREAM ? ring_bytes : 0, writable, populate, out);
}

void hf_map_detach(struct hf_map *map)
{
    if (map == NULL) {
        return;
    }
    /* In a forked child the pages are not there (MADV_DONTFORK), and something else may be. */
    if (map->base != NULL && !hf_process_forked(map->token)) {
        hf_pages_unmap(map->base, map->mapped_bytes);
    }
    free(map);
}
