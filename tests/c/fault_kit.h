/* fault_kit.h: a chosen call into the kernel or the allocator fails once: the n-th of its kind while a test says so. The
 * calls are the program's own, as in torture_syscalls.c; here any part of the core meets them, and each kind by itself.
 *
 * each_call_fails does so for every call of an action, and sees that nothing stays behind: no descriptor, no map of a
 * file (and no memory: the address sanitizer looks at the end). */
#ifndef HF_FAULT_KIT_H
#define HF_FAULT_KIT_H
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include "check.h"

enum call {
    CALLOC,
    REALLOC,
    ALIGNED_ALLOC,
    OPEN,
    OPENAT,
    FCNTL,
    FSTAT,
    READ,
    PREAD,
    PWRITE,
    GETRANDOM,
    FDOPENDIR,
    READDIR,
    MMAP,
    MADVISE,
    RENAMEAT,
    UNLINKAT,
    MKDIRAT,
    FSYNC,
    FDATASYNC,
    FALLOCATE,
    FTRUNCATE,
    CALLS
};

static struct {
    enum call call;
    int nth; /* 0: nothing fails */
    int error;
    int struck;
    int paused;
    const char *text; /* what read() gives instead of failing */
} fault;

/* From now on the nth call of this kind fails, once. Error 0: it does nothing and says so (a write of 0 bytes). */
static inline void fault_at(enum call call, int nth, int error)
{
    fault.struck = 0;
    fault.text = NULL;
    fault.call = call;
    fault.error = error;
    fault.nth = nth;
}

/* Nothing fails any more. 1: the call came, and failed. */
static inline int fault_over(void)
{
    fault.nth = 0;
    return fault.struck;
}

/* 1: the calls that follow are the test's own. */
static inline void fault_pause(int on)
{
    fault.paused = on;
}

static inline int strikes(enum call call)
{
    if (fault.nth == 0 || fault.call != call || fault.paused || --fault.nth != 0) {
        return 0;
    }
    fault.struck = 1;
    errno = fault.error;
    return 1;
}

/* ---- the calls ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOCATOR(name) __interceptor_##name
#else
#define ALLOCATOR(name) __libc_##name
#endif
extern void *ALLOCATOR(calloc)(size_t count, size_t bytes);
extern void *ALLOCATOR(realloc)(void *old, size_t bytes);
extern void *ALLOCATOR(memalign)(size_t alignment, size_t bytes);

void *calloc(size_t count, size_t bytes)
{
    return strikes(CALLOC) ? NULL : ALLOCATOR(calloc)(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return strikes(REALLOC) ? NULL : ALLOCATOR(realloc)(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return strikes(ALIGNED_ALLOC) ? NULL : ALLOCATOR(memalign)(alignment, bytes);
}

static inline int mode_of(va_list more, int flags)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = mode_of(more, flags);
    va_end(more);
    return strikes(OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = mode_of(more, flags);
    va_end(more);
    return strikes(OPENAT) ? -1 : (int)syscall(SYS_openat, dir, name, flags, mode);
}

int fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return strikes(FCNTL) ? -1 : (int)syscall(SYS_fcntl, fd, command, argument);
}

int fstat(int fd, struct stat *out)
{
    return strikes(FSTAT) ? -1 : (int)syscall(SYS_fstat, fd, out);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    if (!strikes(READ)) {
        return syscall(SYS_read, fd, data, bytes);
    }
    if (fault.text == NULL) {
        return -1;
    }
    size_t length = strlen(fault.text);
    memcpy(data, fault.text, length < bytes ? length : bytes);
    return (ssize_t)(length < bytes ? length : bytes);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    return strikes(PREAD) ? (fault.error == 0 ? 0 : -1) : syscall(SYS_pread64, fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return strikes(PWRITE) ? (fault.error == 0 ? 0 : -1) : syscall(SYS_pwrite64, fd, data, bytes, offset);
}

ssize_t getrandom(void *data, size_t bytes, unsigned flags)
{
    return strikes(GETRANDOM) ? -1 : syscall(SYS_getrandom, data, bytes, flags);
}

DIR *fdopendir(int fd)
{
    DIR *(*next)(int);
    *(void **)&next = dlsym(RTLD_NEXT, "fdopendir");
    return strikes(FDOPENDIR) ? NULL : next(fd);
}

struct dirent *readdir(DIR *dir)
{
    struct dirent *(*next)(DIR *);
    *(void **)&next = dlsym(RTLD_NEXT, "readdir");
    return strikes(READDIR) ? NULL : next(dir);
}

#if !defined(__SANITIZE_THREAD__) /* it needs its own before anything else is there */
void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return strikes(MMAP) ? MAP_FAILED : (void *)syscall(SYS_mmap, where, bytes, protection, flags, fd, offset);
}
#endif

int madvise(void *at, size_t bytes, int advice)
{
    return strikes(MADVISE) ? -1 : (int)syscall(SYS_madvise, at, bytes, advice);
}

int renameat(int from, const char *old, int to, const char *new)
{
    return strikes(RENAMEAT) ? -1 : (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int unlinkat(int dir, const char *name, int flags)
{
    return strikes(UNLINKAT) ? -1 : (int)syscall(SYS_unlinkat, dir, name, flags);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
    return strikes(MKDIRAT) ? -1 : (int)syscall(SYS_mkdirat, dir, name, mode);
}

int fsync(int fd)
{
    return strikes(FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return strikes(FDATASYNC) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return strikes(FALLOCATE) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    if (strikes(FALLOCATE)) {
        return fault.error;
    }
    return syscall(SYS_fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;
}

int ftruncate(int fd, off_t bytes)
{
    return strikes(FTRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, fd, bytes);
}

/* ---- what stays behind ---- */

/* Descriptors of this process, and its maps of files that tests make. */
static inline int held(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d != NULL);
    while (readdir(d) != NULL) {
        count++;
    }
    closedir(d);
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, "hf-test") != NULL;
    }
    fclose(maps);
    return count;
}

/* Every call of this kind that action() makes fails once, each in an action of its own. `judge` is told what the action
 * returned; when nothing fails that must be `good`, before and after all. Returns how many calls there were. */
static inline int each_call_fails(enum call call, int error, int64_t (*action)(void), int64_t good,
                                  void (*judge)(int64_t status, int error))
{
    int calls = 0;
    CHECK_EQ(action(), good);
    for (int before = held();; calls++) {
        fault_at(call, calls + 1, error);
        int64_t status = action();
        int struck = fault_over();
        CHECK_EQ(held(), before);
        if (!struck) {
            CHECK_EQ(status, good);
            return calls;
        }
        if (status != good) {
            judge(status, error);
        }
    }
}
#endif
