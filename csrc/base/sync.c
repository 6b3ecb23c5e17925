/* sync.c: see sync.h. tests/test_architecture.py keeps every other file from doing this by itself. */
#include "base/sync.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { BOOT_BYTES = 16 };

int64_t hf_sync(int fd, uint32_t what)
{
    int64_t armed = what == HF_SYNC_NAMES ? HF_FAIL_STATUS("log.fsync") : HF_FAIL_STATUS("log.fdatasync");
    if (armed != 0) {
        return armed;
    }
    return (what == HF_SYNC_NAMES ? fsync(fd) : fdatasync(fd)) == 0 ? HF_OK : HF_ERRNO - errno;
}

/* An error stays with the file until hf_sync asks. */
void hf_sync_begin(int fd, uint64_t offset, uint64_t bytes)
{
    (void)sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

/* ---- doubts ---- */

uint64_t hf_doubt_word(void)
{
    uint64_t word = 0;
    uint8_t boot[BOOT_BYTES];
    if (hf_boot_id(boot) == HF_OK) {
        memcpy(&word, boot, sizeof word);
    }
    return word | 2;
}

int64_t hf_doubt_set(const char *path)
{
    uint8_t boot[BOOT_BYTES];
    int64_t status = hf_boot_id(boot);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return HF_ERRNO - errno;
    }
    if (status == HF_OK && write(fd, boot, sizeof boot) != (ssize_t)sizeof boot) {
        status = HF_ERRNO - EIO; /* a file that is too short is a doubt, too */
    }
    close(fd);
    return status;
}

int64_t hf_doubt_get(const char *path)
{
    uint8_t boot[BOOT_BYTES], found[BOOT_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT || errno == ENOTDIR ? 0 : HF_ERRNO - errno;
    }
    ssize_t n = read(fd, found, sizeof found);
    close(fd);
    return n != (ssize_t)sizeof found || hf_boot_id(boot) != HF_OK || memcmp(boot, found, sizeof boot) == 0;
}

void hf_doubt_clear(const char *path)
{
    (void)unlink(path);
}
