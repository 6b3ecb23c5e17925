/* quick_files.c: the files of one directory, in memory (quick.h). What the log asks of a file system is here, and answers as tmpfs
 * does; whatever else it would ask for goes to the kernel, which knows no such descriptor. */
#include "fuzz.h"
#include "quick.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 32, NAMES = 32, OPENED = 64, FIRST = 1 << 20, ROOM = QUICK_ROOM, PAGE = 4096 };

struct name {
    char text[64]; /* "": none */
    uint64_t hash; /* of it: comparing text costs much under a sanitizer */
    struct quick_file *file;
};

struct opened {
    int used, directory, flags;
    struct quick_file *file;
    off_t at;
    int listed;
    struct dirent entry;
};

static struct quick_file files[FILES];
static struct name names[NAMES];
static struct opened opened[OPENED];
static int root = -1, open_count;

int quick_open(void)
{
    int mapped = 0;
    for (int i = 0; i < FILES; i++) {
        mapped += files[i].mapped;
    }
    return open_count + mapped;
}

void quick_directory(int directory)
{
    root = directory;
    for (int i = 0; i < FILES; i++) {
        struct quick_file *f = &files[i];
        struct stat st;
        f->memory = memfd_create("quick", MFD_CLOEXEC);
        FUZZ_CHECK(f->memory >= 0 && ftruncate(f->memory, ROOM) == 0 && fstat(f->memory, &st) == 0);
        f->inode = st.st_ino;
        f->bytes = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, f->memory, 0);
        FUZZ_CHECK(f->bytes != MAP_FAILED);
    }
}

static struct opened *opened_as(int fd)
{
    return fd >= FIRST && fd < FIRST + OPENED && opened[fd - FIRST].used ? &opened[fd - FIRST] : NULL;
}

struct quick_file *quick_file(int fd)
{
    const struct opened *o = opened_as(fd);
    return o == NULL ? NULL : o->file;
}

static int is_root(int fd)
{
    const struct opened *o = opened_as(fd);
    return fd >= 0 && (fd == root || (o != NULL && o->directory));
}

static int fails(int error)
{
    errno = error;
    return -1;
}

/* ---- files ---- */

static uint64_t page_bits(uint64_t from, uint64_t to)
{
    uint64_t bits = 0;
    for (uint64_t page = from / PAGE; page * PAGE < to; page++) {
        bits |= UINT64_C(1) << page;
    }
    return bits;
}

static void resize(struct quick_file *f, uint64_t size)
{
    FUZZ_CHECK(size <= ROOM);
    if (size < f->size) {
        memset(f->bytes + size, 0, ((f->size + PAGE - 1) & ~(uint64_t)(PAGE - 1)) - size);
        f->pages &= page_bits(0, size);
    }
    if (size != f->size) {
        f->size = size;
        quick_resized(f);
    }
}

static struct quick_file *new_file(void)
{
    for (int i = 0; i < FILES; i++) {
        struct quick_file *f = &files[i];
        if (f->names == 0 && f->opened == 0 && f->mapped == 0) {
            resize(f, 0);
            return f;
        }
    }
    fprintf(stderr, "more than %d files\n", FILES);
    abort();
}

static uint64_t hash(const char *text)
{
    uint64_t h = 0;
    for (; *text != 0; text++) {
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    }
    return h;
}

static struct name *find(const char *text)
{
    uint64_t h = hash(text);
    for (int i = 0; i < NAMES; i++) {
        if (names[i].hash == h && strcmp(names[i].text, text) == 0) {
            return &names[i];
        }
    }
    return NULL;
}

static void rename_to(struct name *name, const char *text)
{
    FUZZ_CHECK(strlen(text) < sizeof name->text);
    strcpy(name->text, text);
    name->hash = hash(text);
}

static void forget(struct name *name)
{
    name->file->names--;
    rename_to(name, "");
}

static int open_as(struct quick_file *file, int directory, int flags)
{
    for (int i = 0; i < OPENED; i++) {
        if (!opened[i].used) {
            opened[i] = (struct opened){.used = 1, .directory = directory, .flags = flags, .file = file};
            if (file != NULL) {
                file->opened++;
            }
            open_count++;
            return FIRST + i;
        }
    }
    return fails(EMFILE);
}

static int open_name(const char *text, int flags)
{
    if (strcmp(text, ".") == 0) {
        return open_as(NULL, 1, flags);
    }
    FUZZ_CHECK(strchr(text, '/') == NULL && text[0] != 0);
    struct name *name = find(text);
    if (name == NULL && !(flags & O_CREAT)) {
        return fails(ENOENT);
    }
    if (name == NULL) {
        name = find("");
        FUZZ_CHECK(name != NULL);
        name->file = new_file();
        name->file->names = 1;
        rename_to(name, text);
    } else if (flags & O_CREAT && flags & O_EXCL) {
        return fails(EEXIST);
    } else if (flags & O_TRUNC) {
        resize(name->file, 0);
    }
    return open_as(name->file, 0, flags);
}

/* ---- calls ---- */

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    return is_root(dir) ? open_name(path, flags) : __real_openat(dir, path, flags, mode);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct opened *o = opened_as(fd);
    if (o == NULL) {
        quick_closed(fd);
        return __real_close(fd);
    }
    if (o->file != NULL) {
        o->file->opened--;
    }
    o->used = 0;
    open_count--;
    return 0;
}

int __real_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...);
int __wrap_fcntl(int fd, int what, ...)
{
    va_list more;
    va_start(more, what);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (is_root(fd) && what == F_DUPFD_CLOEXEC) {
        return open_as(NULL, 1, 0);
    }
    return __real_fcntl(fd, what, argument);
}

int __real_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out)
{
    const struct quick_file *f = quick_file(fd);
    if (f == NULL) {
        return __real_fstat(fd, out);
    }
    *out = (struct stat){.st_mode = S_IFREG | 0600,
                         .st_uid = geteuid(),
                         .st_ino = f->inode,
                         .st_nlink = (nlink_t)f->names,
                         .st_size = (off_t)f->size,
                         .st_blksize = PAGE,
                         .st_blocks = __builtin_popcountll(f->pages) * (PAGE / 512)};
    return 0;
}

int __real_faccessat(int dir, const char *path, int mode, int flags);
int __wrap_faccessat(int dir, const char *path, int mode, int flags);
int __wrap_faccessat(int dir, const char *path, int mode, int flags)
{
    if (!is_root(dir)) {
        return __real_faccessat(dir, path, mode, flags);
    }
    return find(path) != NULL ? 0 : fails(ENOENT);
}

ssize_t __real_pread(int fd, void *out, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *out, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *out, size_t size, off_t at)
{
    const struct quick_file *f = quick_file(fd);
    if (f == NULL) {
        return __real_pread(fd, out, size, at);
    }
    if (at < 0) {
        return fails(EINVAL);
    }
    uint64_t left = (uint64_t)at < f->size ? f->size - (uint64_t)at : 0;
    size = size < left ? size : left;
    if (size > 0) {
        memcpy(out, f->bytes + at, size);
    }
    return (ssize_t)size;
}

ssize_t __real_read(int fd, void *out, size_t size);
ssize_t __wrap_read(int fd, void *out, size_t size);
ssize_t __wrap_read(int fd, void *out, size_t size)
{
    struct opened *o = opened_as(fd);
    if (o == NULL || o->file == NULL) {
        return __real_read(fd, out, size);
    }
    ssize_t got = __wrap_pread(fd, out, size, o->at);
    o->at += got > 0 ? got : 0;
    return got;
}

ssize_t __real_pwrite(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t size, off_t at)
{
    struct quick_file *f = quick_file(fd);
    if (f == NULL) {
        return __real_pwrite(fd, from, size, at);
    }
    if ((opened_as(fd)->flags & O_ACCMODE) == O_RDONLY) {
        return fails(EBADF);
    }
    FUZZ_CHECK(at >= 0 && size <= ROOM && (uint64_t)at <= ROOM - size);
    uint64_t end = (uint64_t)at + size;
    if (end > f->size) {
        resize(f, end);
    }
    memcpy(f->bytes + at, from, size);
    f->pages |= page_bits((uint64_t)at, end);
    return (ssize_t)size;
}

int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
    struct quick_file *f = quick_file(fd);
    if (f == NULL) {
        return __real_ftruncate(fd, size);
    }
    resize(f, (uint64_t)size);
    return 0;
}

int __real_posix_fallocate(int fd, off_t at, off_t length);
int __wrap_posix_fallocate(int fd, off_t at, off_t length);
int __wrap_posix_fallocate(int fd, off_t at, off_t length)
{
    struct quick_file *f = quick_file(fd);
    if (f == NULL) {
        return __real_posix_fallocate(fd, at, length);
    }
    uint64_t end = (uint64_t)at + (uint64_t)length;
    if (end > ROOM) {
        return ENOSPC;
    }
    if (end > f->size) {
        resize(f, end);
    }
    f->pages |= page_bits((uint64_t)at, end);
    return 0;
}

int __real_fallocate(int fd, int mode, off_t at, off_t length);
int __wrap_fallocate(int fd, int mode, off_t at, off_t length);
int __wrap_fallocate(int fd, int mode, off_t at, off_t length)
{
    struct quick_file *f = quick_file(fd);
    if (f == NULL) {
        return __real_fallocate(fd, mode, at, length);
    }
    FUZZ_CHECK(mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) && at >= 0 && length > 0);
    uint64_t from = (uint64_t)at, end = from + (uint64_t)length;
    end = end < f->size ? end : f->size;
    if (from < end) {
        memset(f->bytes + from, 0, end - from);
        f->pages &= ~page_bits((from + PAGE - 1) & ~(uint64_t)(PAGE - 1), end & ~(uint64_t)(PAGE - 1));
    }
    return 0;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return opened_as(fd) != NULL || fd == root ? 0 : __real_fsync(fd);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return opened_as(fd) != NULL ? 0 : __real_fdatasync(fd);
}

int __real_sync_file_range(int fd, off_t at, off_t length, unsigned flags);
int __wrap_sync_file_range(int fd, off_t at, off_t length, unsigned flags);
int __wrap_sync_file_range(int fd, off_t at, off_t length, unsigned flags)
{
    return opened_as(fd) != NULL ? 0 : __real_sync_file_range(fd, at, length, flags);
}

int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    if (!is_root(from_dir)) {
        return __real_renameat(from_dir, from, to_dir, to);
    }
    struct name *was = find(from), *over = find(to);
    FUZZ_CHECK(is_root(to_dir));
    if (was == NULL) {
        return fails(ENOENT);
    }
    if (over != NULL && over->file != was->file) {
        forget(over);
    }
    if (over != was) {
        rename_to(was, to);
    }
    return 0;
}

int __real_unlinkat(int dir, const char *path, int flags);
int __wrap_unlinkat(int dir, const char *path, int flags);
int __wrap_unlinkat(int dir, const char *path, int flags)
{
    if (!is_root(dir)) {
        return __real_unlinkat(dir, path, flags);
    }
    struct name *name = find(path);
    if (name == NULL) {
        return fails(ENOENT);
    }
    forget(name);
    return 0;
}

DIR *__real_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd)
{
    struct opened *o = opened_as(fd);
    return o == NULL ? __real_fdopendir(fd) : (DIR *)(void *)o;
}

static struct opened *listing_of(const void *listing)
{
    uintptr_t at = (uintptr_t)listing - (uintptr_t)opened;
    return at < sizeof opened ? &opened[at / sizeof opened[0]] : NULL;
}

struct dirent *__real_readdir(DIR *listing);
struct dirent *__wrap_readdir(DIR *listing);
struct dirent *__wrap_readdir(DIR *listing)
{
    struct opened *o = listing_of(listing);
    if (o == NULL) {
        return __real_readdir(listing);
    }
    while (o->listed < NAMES) {
        const struct name *name = &names[o->listed++];
        if (name->text[0] != 0) {
            strcpy(o->entry.d_name, name->text);
            o->entry.d_ino = name->file->inode;
            return &o->entry;
        }
    }
    return NULL;
}

int __real_closedir(DIR *listing);
int __wrap_closedir(DIR *listing);
int __wrap_closedir(DIR *listing)
{
    const struct opened *o = listing_of(listing);
    return o == NULL ? __real_closedir(listing) : __wrap_close(FIRST + (int)(o - opened));
}
