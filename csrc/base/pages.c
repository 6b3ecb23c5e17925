/* pages.c: the pages of mapped shared memory. See pages.h. */
#include "base/pages.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/status.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

uint64_t hf_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* For kernels without MADV_POPULATE. Adding 0 makes a page writable and changes nothing, whoever else writes there. */
static void touch(uint8_t *at, uint64_t bytes, int writable)
{
    uint64_t page = hf_page_bytes();
    for (uint64_t i = 0; i < bytes; i += page) {
        if (writable) {
            (void)hf_add_u32((uint32_t *)(void *)(at + i), 0);
        } else {
            (void)hf_load_relaxed_u32((uint32_t *)(void *)(at + i));
        }
    }
}

int64_t hf_pages_populate(uint8_t *at, uint64_t bytes, int writable)
{
    int64_t status;
    do {
        status = HF_FAIL_STATUS("segment.populate");
        if (status == 0 && madvise(at, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0) {
            status = HF_ERRNO - errno;
        }
    } while (status == HF_ERRNO - EINTR);
    if (status == HF_ERRNO - EINVAL) {
        touch(at, bytes, writable);
        return HF_OK;
    }
    return status;
}

int64_t hf_pages_map(int fd, uint64_t header, uint64_t ring, int writable, uint8_t **out)
{
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    uint64_t once = header + ring, twice = once + ring;
    uint8_t *base = mmap(NULL, twice, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        return HF_ERRNO - errno;
    }
    if (mmap(base, once, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
        (ring != 0 && mmap(base + once, ring, protection, MAP_SHARED | MAP_FIXED, fd, (off_t)header) == MAP_FAILED) ||
        madvise(base, twice, MADV_DONTFORK) != 0) {
        int64_t status = HF_ERRNO - errno;
        munmap(base, twice);
        return status;
    }
    *out = base;
    return HF_OK;
}

void hf_pages_unmap(uint8_t *base, uint64_t bytes)
{
    munmap(base, bytes);
}
