/* delays_shim.c: preloaded, it lets threads come late: now and then a call rests before or behind what it does, as on a machine whose
 * cores somebody else has. Python and C alike; what is waited for in between goes on. HF_DELAYS_MS: the longest one (500). A test that
 * fails beside it takes something for done that is only likely to be. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t longest_us = 500000;

__attribute__((constructor)) static void begin(void)
{
    const char *ms = getenv("HF_DELAYS_MS");
    if (ms != NULL && atoll(ms) > 0) {
        longest_us = 1000 * (uint64_t)atoll(ms);
    }
}

static uint64_t chance(void)
{
    static __thread uint64_t state;
    if (state == 0) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        state = ((uint64_t)t.tv_nsec * UINT64_C(2654435761)) ^ ((uint64_t)gettid() << 32) ^ 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 16;
}

/* In `of_1000` of 1,000 calls; most rests are short. */
static void rest(uint64_t of_1000)
{
    if (chance() % 1000 >= of_1000) {
        return;
    }
    uint64_t us = chance() % (chance() % 8 == 0 ? longest_us : longest_us / 8);
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    int error = errno;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
    errno = error;
}

#define REAL(name)                                                                                                     \
    static __typeof__(name) *real;                                                                                     \
    if (real == NULL) {                                                                                                \
        *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                     \
    }

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    REAL(send)
    rest(40);
    ssize_t sent = real(fd, data, bytes, flags);
    rest(30);
    return sent;
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    REAL(recv)
    ssize_t got = real(fd, data, bytes, flags);
    rest(40);
    return got;
}

int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    REAL(connect)
    rest(60);
    return real(fd, address, bytes);
}

int accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    REAL(accept4)
    int got = real(fd, address, bytes, flags);
    rest(60);
    return got;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    REAL(epoll_wait)
    int got = real(fd, events, most, timeout);
    rest(15);
    return got;
}

int fdatasync(int fd)
{
    REAL(fdatasync)
    rest(20);
    int status = real(fd);
    rest(20);
    return status;
}

int fsync(int fd)
{
    REAL(fsync)
    rest(20);
    int status = real(fd);
    rest(20);
    return status;
}

int ftruncate(int fd, off_t bytes)
{
    REAL(ftruncate)
    rest(15);
    return real(fd, bytes);
}

int unlink(const char *path)
{
    REAL(unlink)
    rest(10);
    return real(path);
}

int rename(const char *from, const char *to)
{
    REAL(rename)
    rest(10);
    int status = real(from, to);
    rest(10);
    return status;
}

int close(int fd)
{
    REAL(close)
    rest(2);
    return real(fd);
}

/* Whoever was woken comes late. */
long syscall(long number, ...)
{
    REAL(syscall)
    long given[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        given[i] = va_arg(list, long);
    }
    va_end(list);
    long result = real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    if (number == SYS_futex && (given[1] & FUTEX_CMD_MASK) == FUTEX_WAIT) {
        rest(8);
    }
    return result;
}
