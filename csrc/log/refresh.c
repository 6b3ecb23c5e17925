/* refresh.c: what a reader knows of a log's directory, looked at again: the head that has the name now, and
 * the lists of segments and fills. See reader.c. */
#include "log/reader.h"
#include "base/failpoint.h"
#include "log/head.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void hf_logr_fill_close(struct hf_logr *r)
{
    struct hf_logr *fill = r->fill;
    if (fill != NULL) {
        hf_seg_list_free(fill->segs, fill->count);
        free(fill->index.entries);
        free(fill);
        r->fill = NULL;
    }
}

/* ---- the head ---- */

/* 1: the head that is open was replaced: the store has made it anew, in another layout perhaps (head_file.c). It says nothing
 * more, and nobody holds the lock on it. by_name: also where a copy of the directory has links to its files. */
static int64_t is_replaced(const struct hf_logr *r, int by_name)
{
    struct stat own, named;
    if (fstat(r->head_fd, &own) != 0) {
        return hf_errno();
    }
    if (own.st_nlink == 0 || !by_name) {
        return own.st_nlink == 0;
    }
    int fd = openat(r->dir, "head", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return errno == ENOENT ? 0 : hf_errno();
    }
    int64_t status = fstat(fd, &named) != 0 ? hf_errno() : named.st_ino != own.st_ino || named.st_dev != own.st_dev;
    close(fd);
    return status;
}

int64_t hf_logr_look(struct hf_logr *r, int by_name)
{
    struct hf_head copy;
    int fd;
    int64_t status = is_replaced(r, by_name);
    if (status > 0 && !HF_MUTANT("logr.old_head")) {
        status = hf_head_open(r->dir, &fd, &copy);
        if (status == HF_OK && memcmp(copy.pre.uuid, r->head->pre.uuid, HF_UUID) != 0) {
            close(fd);
            return HF_DAMAGED;
        }
        if (status == HF_OK) {
            hf_logr_fill_close(r); /* it reads through the same head */
            close(r->head_fd);
            r->head_fd = fd;
            r->begin_version = UINT64_MAX;
            r->reach.found = 0;
        }
        status = status == HF_AGAIN ? HF_OK : status; /* there is no other: what is open is the last one */
    }
    return status < 0 ? status : hf_head_look(r->head_fd, r->head);
}

/* ---- the list ---- */

/* Lists again; files that are still the same stay open. The incarnations first: whoever sees records of a new
 * one in the list sees its BEGIN too. */
int64_t hf_logr_refresh(struct hf_logr *r)
{
    struct hf_begins begins;
    int64_t status = hf_head_read(r->head_fd, r->head, &begins);
    if (status != HF_OK) {
        return status;
    }
    memcpy(r->begins, begins.at, sizeof r->begins);
    r->begins_whole = begins.whole;
    r->begin_count = begins.whole ? (int64_t)begins.count : 0; /* unreadable: the segments' headers say the rest */
    struct hf_seg *segs = NULL;
    int64_t n = hf_fill_list(r->dir, &r->fills);
    n = n == HF_OK ? hf_seg_list(r->dir, r->head->pre.uuid, &segs) : n;
    if (n < 0) {
        return n;
    }
    int64_t old = 0;
    for (int64_t i = 0; i < n; i++) {
        while (old < r->count && r->segs[old].base < segs[i].base) {
            old++;
        }
        if (old < r->count && r->segs[old].base == segs[i].base &&
            memcmp(r->segs[old].uuid, segs[i].uuid, HF_UUID) == 0) {
            segs[i].fd = r->segs[old].fd;
            segs[i].window = r->segs[old].window;
            r->segs[old].fd = -1;
            r->segs[old].window = (struct hf_window){0};
        }
    }
    hf_seg_list_free(r->segs, r->count);
    r->segs = segs;
    r->count = n;
    r->begin_version = begins.version;
    return HF_OK;
}
