/* sync.h: making bytes and names durable. The only place that asks the kernel for it.
 *
 * After a sync that failed the kernel may have dropped what it should have written, and still shows it: the next call
 * returns 0, and speaks only of what changed since. So who is told of a failure never asks again for the same: log or
 * state is poisoned, within this boot (after a reboot everybody reads what is on the disk). It ends when all that came
 * since the last good sync was written once more, into new files, and synced.
 *
 * A doubt is a file that remembers this for the processes that come later. It lies in the domain's directory, so that
 * it does not depend on the device that failed, and holds the boot's id. It is not synced: it ends with the boot.
 * A crash between the failure and the doubt leaves the flag in the log's head, in the page cache. */
#ifndef HF_BASE_SYNC_H
#define HF_BASE_SYNC_H
#include <stdint.h>

/* cffi: begin */
enum hf_sync_what {
    HF_SYNC_DATA = 0, /* of a file: its bytes, and what it takes to find them */
    HF_SYNC_NAMES = 1 /* of a directory. A description of its own for each thread: an error is told once to each */
};
int64_t hf_sync(int fd, uint32_t what); /* HF_OK, or an errno: also EINTR is a failure */
int64_t hf_doubt_set(const char *path); /* HF_OK, or an errno: nothing is remembered there */
int64_t hf_doubt_get(const char *path); /* 1: a sync failed in this boot; 0: none did. An errno: nobody knows */
void hf_doubt_clear(const char *path);
/* This boot's: what stands in a log's head (poisoned) while it lasts. Never 0 or 1. */
uint64_t hf_doubt_word(void);
/* cffi: end */

/* The disk begins with these bytes now. It promises nothing. */
void hf_sync_begin(int fd, uint64_t offset, uint64_t bytes);
#endif
