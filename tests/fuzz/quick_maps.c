/* quick_maps.c: mappings that are kept when they are given back (quick.h). A mapping costs the kernel a microsecond for each page of
 * it, again and again; one of the same file, the same way, is there already. While nobody has it, it is poisoned. */
#include "fuzz.h"
#include "quick.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { REGIONS = 192, PARTS = 2, KNOWN = 64, PAGE = 4096 };
#define PAGES(bytes) (((bytes) + PAGE - 1) & ~(size_t)(PAGE - 1))

/* What lies at some place of a region. */
struct part {
    size_t at, length;
    int protection, flags;
    dev_t device;
    ino_t inode;
    off_t offset;
};

struct region {
    uint8_t *base; /* NULL: none */
    struct part whole;
    struct part parts[PARTS]; /* laid over it */
    struct quick_file *file;
    size_t asked; /* of a file, all is mapped, and poisoned behind what was asked for */
    int used;
    unsigned advised;
    uint64_t when; /* it was given back */
};

static struct region regions[REGIONS];
static uint64_t now;

void *__real_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t length);
int __real_madvise(void *at, size_t length, int advice);
int __real_fstat(int fd, struct stat *out);
void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t length);
int __wrap_madvise(void *at, size_t length, int advice);

static struct region *region_of(const uint8_t *at, size_t length)
{
    for (int i = 0; i < REGIONS; i++) {
        struct region *r = &regions[i];
        if (r->used && at >= r->base && at < r->base + r->asked) {
            FUZZ_CHECK(PAGES(length) <= r->asked - (size_t)(at - r->base));
            return r;
        }
    }
    return NULL;
}

static int same(const struct part *a, const struct part *b)
{
    return a->at == b->at && a->length == b->length && a->protection == b->protection && a->flags == b->flags &&
           a->device == b->device && a->inode == b->inode && a->offset == b->offset;
}

/* One like this that nobody has; else a place for one. */
static struct region *find(const struct part *whole)
{
    struct region *oldest = NULL;
    for (int i = 0; i < REGIONS; i++) {
        struct region *r = &regions[i];
        if (!r->used && r->base != NULL && same(&r->whole, whole)) {
            return r;
        }
        if (!r->used && (oldest == NULL || r->when < oldest->when)) {
            oldest = r;
        }
    }
    FUZZ_CHECK(oldest != NULL);
    if (oldest->base != NULL) {
        __asan_unpoison_memory_region(oldest->base, PAGES(oldest->whole.length));
        FUZZ_CHECK(__real_munmap(oldest->base, oldest->whole.length) == 0);
    }
    *oldest = (struct region){0};
    return oldest;
}

/* What one may touch: all that was asked for, as far as the file's last page goes. */
static void open_up(const struct region *r)
{
    size_t open = r->asked;
    if (r->file != NULL) {
        open = PAGES(r->file->size) < open ? PAGES(r->file->size) : open;
        __asan_poison_memory_region(r->base + open, r->asked - open);
    }
    __asan_unpoison_memory_region(r->base, open);
}

static void *take(const struct part *whole, size_t asked, int fd, struct quick_file *file)
{
    struct region *r = find(whole);
    if (r->base == NULL) {
        void *base = __real_mmap(NULL, whole->length, whole->protection, whole->flags, fd, whole->offset);
        if (base == MAP_FAILED) {
            return base;
        }
        r->base = base;
        r->whole = *whole;
        __asan_poison_memory_region(r->base, PAGES(whole->length));
    }
    r->file = file;
    r->asked = PAGES(asked);
    r->used = 1;
    if (whole->protection != PROT_NONE) { /* else it is poisoned until something is laid over it */
        open_up(r);
    }
    return r->base;
}

/* Over a part of a region of ours: it may lie there already. */
static void *lay_over(struct region *r, const struct part *part, int fd)
{
    uint8_t *at = r->base + part->at;
    struct part *known = &r->parts[part->at == 0 ? 0 : 1];
    if (!same(known, part)) {
        if (__real_mmap(at, part->length, part->protection, part->flags, fd, part->offset) == MAP_FAILED) {
            return MAP_FAILED;
        }
        *known = *part;
        r->advised = 0;
    }
    __asan_unpoison_memory_region(at, PAGES(part->length));
    return at;
}

/* Which file a descriptor is of, until it is closed. */
static struct stat known[KNOWN];

static const struct stat *stat_of(int fd)
{
    static struct stat other;
    struct stat *st = fd < KNOWN ? &known[fd] : &other;
    if (st == &other || st->st_ino == 0) {
        return __real_fstat(fd, st) == 0 ? st : NULL;
    }
    return st;
}

void quick_closed(int fd)
{
    if (fd >= 0 && fd < KNOWN) {
        known[fd].st_ino = 0;
    }
}

void *__wrap_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    struct part part = {.length = length, .protection = protection, .flags = flags, .offset = offset};
    struct quick_file *file = quick_file(fd);
    if (file != NULL) {
        return quick_map(file, length, protection);
    }
    if (fd >= 0) {
        const struct stat *st = stat_of(fd);
        if (st == NULL) {
            return MAP_FAILED;
        }
        part.device = st->st_dev;
        part.inode = st->st_ino;
    }
    struct region *below = at == NULL ? NULL : region_of(at, length);
    if (below != NULL && flags & MAP_FIXED) {
        part.at = (size_t)((uint8_t *)at - below->base);
        return lay_over(below, &part, fd);
    }
    /* Private pages that are written must be fresh ones. */
    int keeps = at == NULL && (flags & MAP_SHARED || protection == PROT_NONE) && (fd >= 0 || protection == PROT_NONE);
    return keeps ? take(&part, length, fd, NULL) : __real_mmap(at, length, protection, flags, fd, offset);
}

void *quick_map(struct quick_file *file, size_t length, int protection)
{
    size_t all = length > QUICK_ROOM || length == 0 ? length : QUICK_ROOM;
    struct part part = {.length = all, .protection = protection, .flags = MAP_SHARED, .inode = file->inode};
    void *base = take(&part, length, file->memory, file);
    file->mapped += base != MAP_FAILED;
    return base;
}

void quick_resized(const struct quick_file *file)
{
    for (int i = 0; file->mapped > 0 && i < REGIONS; i++) {
        if (regions[i].used && regions[i].file == file) {
            open_up(&regions[i]);
        }
    }
}

int __wrap_munmap(void *at, size_t length)
{
    struct region *r = region_of(at, length);
    if (r == NULL) {
        return __real_munmap(at, length);
    }
    FUZZ_CHECK(at == r->base && PAGES(length) == r->asked);
    __asan_poison_memory_region(r->base, r->asked);
    if (r->file != NULL) {
        r->file->mapped--;
    }
    r->used = 0;
    r->when = ++now;
    return 0;
}

/* Once is enough: what it asks for (MADV_DONTFORK, MADV_POPULATE) stays. */
int __wrap_madvise(void *at, size_t length, int advice)
{
    struct region *r = region_of(at, length);
    unsigned bit = 1u << ((unsigned)advice % 32);
    if (r == NULL) {
        return __real_madvise(at, length, advice);
    }
    if (r->file != NULL || (PAGES(length) == r->asked && r->advised & bit)) {
        return 0;
    }
    int status = __real_madvise(at, length, advice);
    if (status == 0 && PAGES(length) == r->asked) {
        r->advised |= bit;
    }
    return status;
}
