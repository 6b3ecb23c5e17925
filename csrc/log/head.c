/* head.c: the file `head` of a log: what readers need with the store dead. See hf_head in base/layout.h.
 *
 * The words of its first page are stored one by one. The table of BEGINs is more than one sector, so a crash may leave any part
 * of a new one: each goes where the one before the newest lies, with its own sum, and a reader takes the newest that is whole.
 * begin_version is told when that table is durable: a table that is older than it is not the newest, and then nobody knows what
 * has begun. So it is with a table of layout version 1 that is not whole: that had one place. */
#include "log/head.h"
#include "base/atomic.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_v1(const struct hf_head *head)
{
    return head->pre.layout_version == 1;
}

static int64_t acceptable(const struct hf_head *head, off_t bytes)
{
    if (head->pre.magic != (HF_MAGIC | HF_KIND_HEAD)) {
        return HF_DAMAGED;
    }
    uint32_t version = head->pre.layout_version, hash = head->pre.struct_hash;
    if (is_v1(head)) {
        return hash == hf_head_v1_hash() || hash == hf_head_rest_hash() ? HF_OK : HF_LAYOUT;
    }
    if (version != hf_layout_version(HF_KIND_HEAD) || hash != hf_struct_hash(HF_KIND_HEAD)) {
        return HF_LAYOUT;
    }
    return bytes < (off_t)HF_HEAD_BYTES ? HF_DAMAGED : HF_OK;
}

static int64_t open_head(int dir, int access, int *fd, struct hf_head *copy)
{
    struct stat st = {0};
    *fd = openat(dir, "head", access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0) {
        return errno == ENOENT ? HF_AGAIN : hf_errno();
    }
    int64_t status = fstat(*fd, &st) != 0 ? hf_errno() : HF_OK;
    if (status == HF_OK) {
        status = st.st_size < (off_t)HF_HEADER_PAGE ? HF_DAMAGED : hf_head_look(*fd, copy);
    }
    status = status == HF_OK ? acceptable(copy, st.st_size) : status;
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
    enum { FROM = offsetof(struct hf_head, end), TO = offsetof(struct hf_head, _pad1), TRIES = 8 };
    union {
        struct hf_head head;
        uint8_t bytes[TO];
    } later;
    struct hf_bytes bad = {0, 0};
    int64_t status = HF_AGAIN;
    for (int tries = 0; tries < TRIES && status == HF_AGAIN; tries++) {
        status = hf_read_all(fd, (uint8_t *)copy, sizeof *copy, 0, &bad);
        hf_fence_acquire(); /* the kernel copies by plain loads; pairs with the release stores of hf_log_publish (memory) */
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
    hf_fence_acquire(); /* what is read of segments from here on is no older than this head */
    return status;
}

int64_t hf_head_map(int dir, int protection, struct hf_head **out)
{
    struct hf_head copy;
    int fd;
    int64_t status = open_head(dir, O_RDWR, &fd, &copy); /* never a first look through a map */
    if (status != HF_OK) {
        return status;
    }
    if (is_v1(&copy)) {
        close(fd);
        return HF_LAYOUT;
    }
    void *map = mmap(NULL, HF_HEAD_BYTES, protection, MAP_SHARED, fd, 0);
    status = map == MAP_FAILED ? hf_errno() : HF_OK;
    close(fd);
    if (status == HF_OK) {
        madvise(map, HF_HEAD_BYTES, MADV_DONTFORK);
        *out = map;
    }
    return status;
}

void hf_head_unmap(struct hf_head *head)
{
    munmap(head, HF_HEAD_BYTES);
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
    end = end < check ? end : check; /* the smaller one was published; see append.c */
    if (end >= HF_END_SANE) {        /* garbage that fits its check */
        return 0;
    }
    return end & ~(uint64_t)(HF_GRANULE - 1);
}

/* ---- incarnations ---- */

/* 1: the sum is right, and so is the order: whoever wrote it may have got the sum right. */
static int is_table(const struct hf_begin *begins, uint64_t count, uint32_t seed, uint32_t crc)
{
    if (count > HF_INCARNATIONS || hf_crc32c(seed, (const uint8_t *)begins, count * sizeof *begins) != crc) {
        return 0;
    }
    for (uint64_t i = 1; i < count; i++) {
        if (begins[i].incarnation <= begins[i - 1].incarnation) {
            return 0;
        }
    }
    return 1;
}

static void take(struct hf_begins *out, uint64_t generation, const struct hf_begin *begins, uint64_t count)
{
    memcpy(out->at, begins, count * sizeof *begins);
    out->count = count;
    out->generation = generation;
}

static int64_t read_v1(int fd, struct hf_begins *out)
{
    struct hf_head_v1 head;
    struct hf_bytes bad;
    int64_t status = hf_read_all(fd, (uint8_t *)&head, sizeof head, 0, &bad);
    out->whole = status == HF_OK && bad.to == 0 && is_table(head.begins, head.begin_count, 0, head.begin_crc);
    if (out->whole) {
        take(out, 0, head.begins, head.begin_count);
    }
    out->whole |= HF_MUTANT("head.v1_empty");
    return status;
}

static uint32_t table_seed(const struct hf_begin_table *t)
{
    return hf_crc32c(0, (const uint8_t *)t, offsetof(struct hf_begin_table, _pad0));
}

static int64_t read_tables(int fd, uint64_t told, struct hf_begins *out)
{
    for (uint64_t slot = 0; slot < 2; slot++) {
        struct hf_begin_table t;
        struct hf_bytes bad;
        int64_t status = hf_read_all(fd, (uint8_t *)&t, sizeof t, HF_HEADER_PAGE * (1 + slot), &bad);
        if (status != HF_OK) {
            return status;
        }
        int own = t.generation % 2 == slot && t.generation != 0 && t.generation < HF_GENERATION_SANE;
        if (own && t.generation > out->generation && is_table(t.begins, t.count, table_seed(&t), t.crc)) {
            take(out, t.generation, t.begins, t.count);
        }
    }
    out->whole = out->generation != 0 && (out->generation >= told || HF_MUTANT("head.older_table"));
    return HF_OK;
}

int64_t hf_head_read(int fd, struct hf_head *copy, struct hf_begins *out)
{
    enum { TRIES = 100 };
    struct hf_head after;
    for (int tries = 0; tries < TRIES; tries++) {
        memset(out, 0, sizeof *out);
        int64_t status = hf_head_look(fd, copy);
        if (status == HF_OK) {
            status = is_v1(copy) ? read_v1(fd, out) : read_tables(fd, copy->begin_version, out);
        }
        if (status == HF_OK) {
            status = hf_head_look(fd, &after);
        }
        if (status != HF_OK) {
            return status;
        }
        out->version = copy->begin_version;
        int written = is_v1(copy) && (copy->begin_version & 1); /* or its writer died inside: then the sum decides */
        if (after.begin_version == copy->begin_version && !written) {
            return HF_OK;
        }
        out->whole &= after.begin_version == copy->begin_version;
    }
    return HF_OK;
}

uint64_t hf_begins_next(uint64_t generation, uint64_t told)
{
    uint64_t next = generation + (HF_MUTANT("head.one_slot") ? 2 : 1); /* in place, as version 1 did */
    if (told >= next &&
        told < HF_GENERATION_SANE) { /* readers must see it change; and it replaces no table that is whole */
        next = told + 1 + ((told ^ generation) & 1);
    }
    return next;
}

void hf_head_begins_page(uint64_t generation, const struct hf_begin *begins, uint64_t count, struct hf_begin_table *out)
{
    memset(out, 0, sizeof *out);
    out->generation = generation;
    out->count = count;
    memcpy(out->begins, begins, count * sizeof *begins);
    out->crc = hf_crc32c(table_seed(out), (const uint8_t *)begins, count * sizeof *begins);
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
