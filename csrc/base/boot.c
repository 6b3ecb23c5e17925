/* boot.c: see boot.h. */
#include "base/boot.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

size_t hf_read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got;
    do {
        got = read(fd, text, size - 1);
    } while (got < 0 && errno == EINTR);
    close(fd);
    if (got < 0) {
        got = 0;
    }
    text[got] = '\0';
    return (size_t)got;
}

int64_t hf_read_boot_id(uint8_t *out16)
{
    char text[64];
    if (hf_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text)) == 0) {
        return HF_ERRNO - ENOENT;
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
