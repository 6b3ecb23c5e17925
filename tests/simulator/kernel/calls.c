/* calls.c: the calls of the core, by their names in C. See kernel.h. */
#include "kernel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* To Python (tests/simulator/threads.py). */
int sim_switch(int why);
int sim_sleep(uint64_t word, int64_t until_ns); /* a futex, at this address; 0: none, only time passes */
void sim_wake(uint64_t word);

enum { LOOK_NS = 1000, YIELD_NS = 5000, YIELD_CALLS = 20, SPIN = 1, OVER_NS = 1000000000 };

static int64_t told(int64_t status)
{
    if (status < 0) {
        errno = (int)-status;
        return -1;
    }
    return status;
}

int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    uint32_t mode = (flags & O_CREAT) != 0 ? va_arg(more, uint32_t) : 0;
    va_end(more);
    return (int)told(sim_openat(dir, path, flags, mode));
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    uint32_t mode = (flags & O_CREAT) != 0 ? va_arg(more, uint32_t) : 0;
    va_end(more);
    return (int)told(sim_openat(AT_FDCWD, path, flags, mode));
}

int __wrap_close(int fd);
int __wrap_close(int fd)
{
    return (int)told(sim_close(fd));
}

int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return (int)told(command == F_DUPFD_CLOEXEC ? sim_dup(fd) : sim_lock(fd, command, argument));
}

static void fill(const struct sim_stat *said, struct stat *out)
{
    *out = (struct stat){.st_dev = (dev_t)said->device,
                         .st_ino = (ino_t)said->inode,
                         .st_mode = (mode_t)said->mode,
                         .st_uid = geteuid(),
                         .st_nlink = (nlink_t)said->links,
                         .st_size = said->size,
                         .st_blocks = said->blocks,
                         .st_blksize = 4096};
}

int __wrap_fstat(int fd, struct stat *out);
int __wrap_fstat(int fd, struct stat *out)
{
    struct sim_stat said;
    int64_t status = sim_fstat(fd, &said);
    if (status == 0) {
        fill(&said, out);
    }
    return (int)told(status);
}

/* Of a file that is open: when it was made. */
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *out);
int __wrap_statx(int fd, const char *path, int flags, unsigned mask, struct statx *out)
{
    struct sim_stat said = {0};
    (void)path;
    (void)flags;
    int64_t status = sim_fstat(fd, &said);
    *out = (struct statx){.stx_mask = status == 0 ? mask & STATX_BTIME : 0};
    out->stx_btime.tv_sec = said.born_ns / 1000000000;
    out->stx_btime.tv_nsec = (uint32_t)(said.born_ns % 1000000000);
    return (int)told(status);
}

int __wrap_faccessat(int dir, const char *path, int mode, int flags);
int __wrap_faccessat(int dir, const char *path, int mode, int flags)
{
    struct sim_stat said;
    (void)mode;
    return (int)told(sim_stat(dir, path, (flags & AT_SYMLINK_NOFOLLOW) == 0, &said));
}

ssize_t __wrap_pread(int fd, void *out, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *out, size_t bytes, off_t at)
{
    return told(sim_pread(fd, out, bytes, at));
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return told(sim_pwrite(fd, data, bytes, at));
}

ssize_t __wrap_read(int fd, void *out, size_t bytes);
ssize_t __wrap_read(int fd, void *out, size_t bytes)
{
    return told(sim_read(fd, out, bytes));
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    return told(sim_write(fd, data, bytes));
}

int __wrap_dprintf(int fd, const char *format, ...);
int __wrap_dprintf(int fd, const char *format, ...)
{
    char text[256];
    va_list more;
    va_start(more, format);
    int length = vsnprintf(text, sizeof text, format, more);
    va_end(more);
    return (int)told(sim_write(fd, text, (uint64_t)length));
}

int __wrap_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size)
{
    return (int)told(sim_truncate(fd, size));
}

int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
    return (int)-sim_allocate(fd, at, bytes);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t at, off_t bytes)
{
    return (int)told((mode & FALLOC_FL_PUNCH_HOLE) != 0 ? sim_punch(fd, at, bytes) : sim_allocate(fd, at, bytes));
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return (int)told(sim_sync(fd));
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return (int)told(sim_sync(fd));
}

int __wrap_sync_file_range(int fd, off_t at, off_t bytes, unsigned flags);
int __wrap_sync_file_range(int fd, off_t at, off_t bytes, unsigned flags)
{
    (void)fd;
    (void)at;
    (void)bytes;
    (void)flags;
    return 0; /* it makes nothing durable */
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return (int)told(sim_renameat(from_dir, from, to_dir, to));
}

int __wrap_unlinkat(int dir, const char *path, int flags);
int __wrap_unlinkat(int dir, const char *path, int flags)
{
    return (int)told(sim_unlinkat(dir, path, flags));
}

int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    return (int)told(sim_unlinkat(AT_FDCWD, path, 0));
}

int __wrap_mkdirat(int dir, const char *path, mode_t mode);
int __wrap_mkdirat(int dir, const char *path, mode_t mode)
{
    return (int)told(sim_mkdirat(dir, path, mode));
}

/* ---- listings: what is there when one is opened ---- */

struct listing {
    int fd, index;
    struct dirent entry;
};

DIR *__wrap_fdopendir(int fd);
DIR *__wrap_fdopendir(int fd)
{
    struct listing *made = calloc(1, sizeof *made);
    made->fd = fd;
    return (DIR *)(void *)made;
}

struct dirent *__wrap_readdir(DIR *stream);
struct dirent *__wrap_readdir(DIR *stream)
{
    struct listing *listing = (struct listing *)(void *)stream;
    char name[SIM_NAME_MAX];
    int64_t found = sim_name(listing->fd, listing->index++, name);
    if (found <= 0) {
        errno = (int)-found;
        return NULL;
    }
    memcpy(listing->entry.d_name, name, sizeof name);
    return &listing->entry;
}

int __wrap_closedir(DIR *stream);
int __wrap_closedir(DIR *stream)
{
    struct listing *listing = (struct listing *)(void *)stream;
    sim_close(listing->fd);
    free(listing);
    return 0;
}

/* ---- time, chance, who runs ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    sim_tick();
    sim_now_ns += sim_over ? OVER_NS : LOOK_NS;
    int64_t now = sim_now_ns + (clock == CLOCK_REALTIME ? sim_real_ns : 0);
    *out = (struct timespec){now / 1000000000, now % 1000000000};
    return 0;
}

int __wrap_nanosleep(const struct timespec *length, struct timespec *left);
int __wrap_nanosleep(const struct timespec *length, struct timespec *left)
{
    (void)left;
    if (!sim_over && sim_running >= 0 && sim_held == 0) {
        sim_sleep(0, sim_now_ns + length->tv_sec * 1000000000 + length->tv_nsec);
    }
    return 0;
}

int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
    sim_now_ns += YIELD_NS;
    sim_budget -= YIELD_CALLS; /* not each of them lets others run: who backs off yields several times in a row */
    sim_tick();
    return 0;
}

static int64_t futex(void *word, int operation, uint32_t value, const struct timespec *timeout)
{
    if (operation == FUTEX_WAKE) {
        sim_wake((uint64_t)(uintptr_t)word);
        return 0;
    }
    if (sim_over || sim_running < 0 || sim_held != 0 || *(volatile uint32_t *)word != value) {
        errno = EAGAIN;
        return -1;
    }
    return sim_sleep((uint64_t)(uintptr_t)word, sim_now_ns + timeout->tv_sec * 1000000000 + timeout->tv_nsec);
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
    if (number != SYS_futex) {
        return 0; /* membarrier: there is one thread */
    }
    va_list more;
    va_start(more, number);
    void *word = va_arg(more, void *);
    int operation = va_arg(more, int);
    uint32_t value = va_arg(more, uint32_t);
    const struct timespec *timeout = va_arg(more, const struct timespec *);
    va_end(more);
    return (long)futex(word, operation, value, timeout);
}

ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags)
{
    (void)flags;
    for (size_t i = 0; i < bytes; i++) {
        ((uint8_t *)out)[i] = (uint8_t)sim_random();
    }
    return (ssize_t)bytes;
}

pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return sim_running >= 0 ? (pid_t)sim_processes[sim_running].pid : __real_getpid();
}

/* A mutex of a simulated process: its holder may be a thread that does not run now. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    while (pthread_mutex_trylock(mutex) != 0 && !sim_over) {
        sim_switch(SPIN);
    }
    return 0;
}
