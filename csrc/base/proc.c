/* proc.c: what /proc says: when a process started, and which boot this is. See proc.h and process.h. */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/status.h"

enum { PATH_BYTES = 32 };

/* The first `size - 1` bytes of a small file, NUL-terminated. Returns their number, HF_ERRNO - errno on failure. */
static int64_t read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return HF_ERRNO - errno;
    }
    ssize_t got;
    do {
        got = read(fd, text, size - 1);
    } while (got < 0 && errno == EINTR);
    int64_t status = got < 0 ? HF_ERRNO - errno : got;
    close(fd);
    text[got < 0 ? 0 : got] = '\0';
    return status;
}

int64_t hf_proc_start(uint32_t pid, uint64_t *start)
{
    char path[PATH_BYTES];
    char text[1024];
    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    int64_t got = pid == 0 ? HF_ERRNO - ENOENT : read_text(path, text, sizeof(text));
    if (got < 0) {
        return got == HF_ERRNO - ESRCH ? HF_ERRNO - ENOENT : got; /* it ended after the open */
    }
    char *rest = strrchr(text, ')'); /* the command's name, field 2, may itself hold spaces and parentheses */
    if (rest == NULL) {
        return HF_DAMAGED;
    }
    char state = '\0';
    long long threads = 0;
    unsigned long long ticks = 0;
    /* Fields 3, 20 and 22 of proc_pid_stat(5). */
    if (sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lld %*s %llu", &state,
               &threads, &ticks) != 3) {
        return HF_DAMAGED;
    }
    /* A main thread that left by pthread_exit shows as a zombie while its other threads run on. */
    int dead = state == 'X' || (state == 'Z' && threads <= 1);
    *start = ticks;
    return dead ? HF_ERRNO - ENOENT : HF_OK;
}

int hf_proc_clock_counts(void)
{
#if defined(__x86_64__) && !defined(HF_SIMULATION)
    char text[PATH_BYTES];
    int64_t got = read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", text, sizeof(text));
    return got > 0 && strcmp(text, "tsc\n") == 0;
#else
    return 0;
#endif
}

uint64_t hf_process_start(uint32_t pid)
{
    uint64_t start;
    return hf_proc_start(pid, &start) == HF_OK ? start : 0;
}

int64_t hf_boot_id(uint8_t *out16)
{
    char text[64];
    int64_t got = read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    if (got <= 0) {
        return got < 0 ? got : HF_ERRNO - ENOENT; /* a container may hide it behind an empty file */
    }
    memset(out16, 0, 16);
    int digits = 0;
    for (const char *at = text; *at != '\0' && *at != '\n'; at++) {
        const char *hex = "0123456789abcdef";
        const char *digit = strchr(hex, *at);
        if (*at == '-') {
            continue;
        }
        if (digit == NULL || digits == 32) {
            return HF_DAMAGED;
        }
        out16[digits / 2] = (uint8_t)(out16[digits / 2] << 4 | (digit - hex));
        digits++;
    }
    return digits == 32 ? HF_OK : HF_DAMAGED;
}
