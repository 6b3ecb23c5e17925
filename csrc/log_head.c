/* log_head.c: the file `head` of a log: what readers need with the store dead. See hf_head in layout.h. */
#include "log_private.h"
#include "atomic.h"
#include "crc32c.h"
#include "process.h"
#include "segment.h"
#include "sync.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t hf_head_create(int dir, const uint8_t *uuid)
{
    union {
        struct hf_head head;
        uint8_t page[HF_HEADER_PAGE];
    } file;
    memset(&file, 0, sizeof file);
    hf_fill_preamble(&file.head.pre, HF_KIND_HEAD);
    file.head.pre.header_bytes = (uint32_t)HF_HEADER_PAGE;
    file.head.pre.total_bytes = HF_HEADER_PAGE;
    memcpy(file.head.pre.uuid, uuid, HF_UUID);
    file.head.end_check = hf_head_mask(&file.head);
    file.head.oldest_position = UINT64_MAX; /* the segments know better; see log_retire.c */
    file.head.begin_crc = hf_crc32c(0, NULL, 0);
    int fd = openat(dir, "head-new", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return hf_errno();
    }
    int64_t status = HF_FAIL_STATUS("log.fallocate");
    if (status == HF_OK) { /* mapped stores must never meet a full disk */
        int failed = posix_fallocate(fd, 0, (off_t)HF_HEADER_PAGE);
        status = failed != 0 ? HF_ERRNO - failed : HF_OK;
    }
    if (status == HF_OK) {
        status = hf_write_all(fd, &file, sizeof file, 0);
    }
    if (status == HF_OK) {
        status = hf_sync(fd, HF_SYNC_DATA);
    }
    close(fd);
    if (status == HF_OK && renameat(dir, "head-new", dir, "head") != 0) {
        status = hf_errno();
    }
    if (status == HF_OK && hf_sync(dir, HF_SYNC_NAMES) != HF_OK) {
        unlinkat(dir, "head", 0); /* the next one is another file */
        return HF_POISONED;
    }
    if (status != HF_OK) {
        unlinkat(dir, "head-new", 0);
    }
    return status;
}

static int64_t acceptable(const struct hf_head *head)
{
    if (hf_load_acquire_u64(&head->pre.magic) != (HF_MAGIC | HF_KIND_HEAD)) {
        return HF_DAMAGED;
    }
    int own = head->pre.layout_version == HF_LAYOUT_VERSION && head->pre.struct_hash == hf_struct_hash(HF_KIND_HEAD);
    return own ? HF_OK : HF_LAYOUT;
}

static int64_t open_head(int dir, int access, int *fd, struct hf_head *copy)
{
    struct stat st;
    *fd = openat(dir, "head", access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0) {
        return errno == ENOENT ? HF_AGAIN : hf_errno();
    }
    int64_t status = fstat(*fd, &st) != 0 ? hf_errno() : HF_OK;
    if (status == HF_OK) {
        status = st.st_size < (off_t)HF_HEADER_PAGE ? HF_DAMAGED : hf_head_look(*fd, copy);
    }
    status = status == HF_OK ? acceptable(copy) : status;
    if (status != HF_OK) {
        close(*fd);
        *fd = -1;
    }
    return status;
}

int64_t hf_head_open(int dir, int *fd, struct hf_head *copy)
{
    return open_head(dir, O_RDONLY, fd, copy);
}

/* The store stores end_check, end, next_sqn in this order, and one read copies words in no order that is promised. So the
 * words that must not be older than the rest are read again, and the rest again if its version moved meanwhile. */
int64_t hf_head_look(int fd, struct hf_head *copy)
{
    enum { FROM = offsetof(struct hf_head, end), TO = offsetof(struct hf_head, begin_count), TRIES = 8 };
    union {
        struct hf_head head;
        uint8_t bytes[TO];
    } later;
    struct hf_bytes bad = {0, 0};
    int64_t status = HF_AGAIN;
    for (int tries = 0; tries < TRIES && status == HF_AGAIN; tries++) {
        status = hf_read_all(fd, (uint8_t *)copy, sizeof *copy, 0, &bad);
        if (status == HF_OK && bad.to == 0) {
            status = hf_read_all(fd, later.bytes + FROM, TO - FROM, FROM, &bad);
        }
        if (status != HF_OK || bad.to != 0) {
            return status != HF_OK ? status : HF_ERRNO - EIO;
        }
        uint64_t end = later.head.end, check = later.head.end_check ^ hf_head_mask(copy);
        int whole = later.head.begin_version == copy->begin_version && end == check;
        status = whole || tries == TRIES - 1 ? HF_OK : HF_AGAIN; /* its writer died inside, or one word is wrong */
        copy->end = end;
        copy->end_check = later.head.end_check;
    }
    return status;
}

int64_t hf_head_map(int dir, struct hf_head **out)
{
    struct hf_head copy;
    int fd;
    int64_t status = open_head(dir, O_RDWR, &fd, &copy); /* never a first look through a map */
    if (status != HF_OK) {
        return status;
    }
    void *map = mmap(NULL, HF_HEADER_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    status = map == MAP_FAILED ? hf_errno() : HF_OK;
    close(fd);
    if (status == HF_OK) {
        madvise(map, HF_HEADER_PAGE, MADV_DONTFORK);
        *out = map;
    }
    return status;
}

void hf_head_unmap(struct hf_head *head)
{
    munmap(head, HF_HEADER_PAGE);
}

uint64_t hf_head_mask(const struct hf_head *head)
{
    uint64_t mask;
    memcpy(&mask, head->pre.uuid, sizeof mask);
    return mask;
}

int hf_head_speaks(const struct hf_head *head)
{
    uint8_t boot[HF_UUID];
    return hf_load_relaxed_u64(&head->level) == HF_LEVEL_DISK ||
           (hf_boot_id(boot) == HF_OK && memcmp(boot, head->pre.boot_id, sizeof boot) == 0);
}

uint64_t hf_head_stable(const struct hf_head *head)
{
    if (!hf_head_speaks(head)) {
        return 0;
    }
    uint64_t end = hf_load_acquire_u64(&head->end);
    uint64_t check = hf_load_acquire_u64(&head->end_check) ^ hf_head_mask(head);
    end = end < check ? end : check; /* the smaller one was published; see log.c */
    if (end >= HF_END_SANE) {        /* garbage that fits its check */
        return 0;
    }
    return end & ~(uint64_t)(HF_GRANULE - 1);
}

/* ---- incarnations ---- */

int64_t hf_head_begins(const struct hf_head *head, struct hf_begin out[HF_INCARNATIONS], uint64_t *version)
{
    *version = hf_load_acquire_u64(&head->begin_version); /* pairs with hf_head_store_begins */
    if (*version & 1) {
        return HF_AGAIN;
    }
    uint64_t count = hf_load_relaxed_u64(&head->begin_count);
    uint32_t crc = hf_load_relaxed_u32(&head->begin_crc);
    for (uint64_t i = 0; i < count && i < HF_INCARNATIONS; i++) {
        out[i].incarnation = hf_load_relaxed_u64(&head->begins[i].incarnation);
        out[i].start_sqn = hf_load_relaxed_u64(&head->begins[i].start_sqn);
    }
    hf_fence_acquire();
    if (hf_load_relaxed_u64(&head->begin_version) != *version) {
        return HF_AGAIN;
    }
    if (count > HF_INCARNATIONS || hf_crc32c(0, (const uint8_t *)out, count * sizeof *out) != crc) {
        return HF_DAMAGED;
    }
    for (uint64_t i = 1; i < count; i++) { /* whoever wrote it may have got the sum right */
        if (out[i].incarnation <= out[i - 1].incarnation) {
            return HF_DAMAGED;
        }
    }
    return (int64_t)count;
}

/* A crash inside leaves an odd version; the next open rewrites the table from what the segments and its own caller
 * know. */
void hf_head_store_begins(struct hf_head *head, const struct hf_begin *begins, uint64_t count)
{
    uint64_t version = hf_load_relaxed_u64(&head->begin_version) | 1;
    hf_store_relaxed_u64(&head->begin_version, version);
    hf_fence_release(); /* the odd version is seen before any of the new table; pairs with hf_head_begins' fence */
    for (uint64_t i = 0; i < count; i++) {
        hf_store_relaxed_u64(&head->begins[i].incarnation, begins[i].incarnation);
        hf_store_relaxed_u64(&head->begins[i].start_sqn, begins[i].start_sqn);
    }
    hf_store_relaxed_u64(&head->begin_count, count);
    hf_store_relaxed_u32(&head->begin_crc, hf_crc32c(0, (const uint8_t *)begins, count * sizeof *begins));
    hf_store_release_u64(&head->begin_version, version + 1);
}

uint64_t hf_void_after(const struct hf_seg *s, const struct hf_seg *later, int64_t n, const struct hf_begin *begins,
                       int64_t count)
{
    uint64_t from = UINT64_MAX;
    for (int64_t j = 0; j < n; j++) {
        if (later[j].state == HF_SEG_GOOD && later[j].incarnation > s->incarnation && later[j].first_sqn < from) {
            from = later[j].first_sqn;
        }
    }
    return hf_void_tail(s, begins, (uint64_t)count, from);
}

uint64_t hf_void_from(const struct hf_seg *segs, int64_t n, int64_t i, const struct hf_begin *begins, int64_t count)
{
    return hf_void_after(&segs[i], segs + i + 1, n - i - 1, begins, count);
}

uint64_t hf_void_tail(const struct hf_seg *last, const struct hf_begin *begins, uint64_t count, uint64_t next)
{
    for (uint64_t i = 0; i < count; i++) {
        if (begins[i].incarnation > last->incarnation && begins[i].start_sqn < next) {
            next = begins[i].start_sqn;
        }
    }
    return next;
}
