/* maps.c: mappings. See kernel.h. A ring's second half is a real mapping, made once for each file. */
#include "inode.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/pages.h"
#include "base/status.h"

enum { RINGS = 512 };

/* Address space of rings, used again in the next seed. */
struct ring {
    uint8_t *base;
    uint64_t header, ring, at;
};

static struct ring rings[RINGS];
static int ring_count, ring_used;

void sim_maps_begin(void)
{
    ring_used = 0;
}

static uint8_t *map_twice(const struct inode *file, uint64_t header, uint64_t ring)
{
    if (ring_used == RINGS) {
        return NULL;
    }
    struct ring *r = &rings[ring_used];
    uint64_t once = header + ring, all = once + ring, at = file_at(file);
    if (ring_used < ring_count && (r->header != header || r->ring != ring || r->at != at)) {
        __real_munmap(r->base, r->header + 2 * r->ring);
        r->base = NULL;
    }
    if (ring_used == ring_count) {
        ring_count++;
        r->base = NULL;
    }
    if (r->base == NULL) {
        uint8_t *base = __real_mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        int both = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_FIXED;
        if (base == MAP_FAILED || __real_mmap(base, once, both, how, sim_arena, (off_t)at) == MAP_FAILED ||
            __real_mmap(base + once, ring, both, how, sim_arena, (off_t)(at + header)) == MAP_FAILED) {
            return NULL;
        }
        *r = (struct ring){base, header, ring, at};
    }
    ring_used++;
    return r->base;
}

int64_t __wrap_hf_pages_map(int fd, uint64_t header, uint64_t ring, int writable, uint8_t **out);
int64_t __wrap_hf_pages_map(int fd, uint64_t header, uint64_t ring, int writable, uint8_t **out)
{
    struct inode *file = sim_inode(fd);
    sim_tick();
    if (file == NULL || sim_over) {
        return HF_ERRNO - EBADF;
    }
    file->mapped |= writable;
    if (ring == 0) {
        *out = sim_bytes(file);
        return HF_OK;
    }
    if (file->twice == NULL) {
        file->twice = map_twice(file, header, ring);
        file->twice_header = header;
        file->twice_ring = ring;
    }
    if (file->twice == NULL || file->twice_header != header || file->twice_ring != ring) {
        return HF_ERRNO - ENOMEM;
    }
    *out = file->twice;
    return HF_OK;
}

void __wrap_hf_pages_unmap(uint8_t *base, uint64_t bytes);
void __wrap_hf_pages_unmap(uint8_t *base, uint64_t bytes)
{
    (void)base;
    (void)bytes;
}

int64_t __wrap_hf_pages_populate(uint8_t *at, uint64_t bytes, int writable);
int64_t __wrap_hf_pages_populate(uint8_t *at, uint64_t bytes, int writable)
{
    (void)at;
    (void)bytes;
    (void)writable;
    return HF_OK;
}

void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    struct inode *file = sim_inode(fd);
    if (file == NULL) {
        return __real_mmap(at, length, protection, flags, fd, offset);
    }
    if ((flags & MAP_FIXED) != 0 || (uint64_t)offset + length > ROOM) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    file->mapped |= (protection & PROT_WRITE) != 0;
    return sim_bytes(file) + offset;
}

static int is_simulated(const void *at)
{
    const uint8_t *byte = at;
    return sim_memory != NULL && byte >= sim_memory && byte < sim_memory + (uint64_t)INODES * ROOM;
}

int __wrap_munmap(void *at, size_t length);
int __wrap_munmap(void *at, size_t length)
{
    return is_simulated(at) ? 0 : __real_munmap(at, length);
}

int __wrap_madvise(void *at, size_t length, int advice);
int __wrap_madvise(void *at, size_t length, int advice)
{
    return is_simulated(at) ? 0 : __real_madvise(at, length, advice);
}

int __wrap_mlock(const void *at, size_t length);
int __wrap_mlock(const void *at, size_t length)
{
    (void)at;
    (void)length;
    return 0;
}
