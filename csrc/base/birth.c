/* birth.c: see birth.h. */
#include "base/birth.h"
#include "base/status.h"

#include <fcntl.h>
#include <sys/stat.h>

int64_t hf_file_birth(int fd, int64_t *ns)
{
    struct statx found;
    *ns = 0;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &found) != 0) {
        return hf_errno();
    }
    if ((found.stx_mask & STATX_BTIME) != 0) {
        *ns = found.stx_btime.tv_sec * 1000000000 + found.stx_btime.tv_nsec;
    }
    return HF_OK;
}
