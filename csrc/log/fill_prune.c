/* fill_prune.c: removes the fills that nobody needs any more: damaged, let go, or void in this log. See
 * fill.c. */
#include "log/reader.h"

#include <unistd.h>

static int useless(const struct hf_logr *r, struct hf_range range)
{
    struct hf_seg s;
    if (range.next <= r->head->oldest_sqn) {
        return 1;
    }
    int64_t status = hf_fill_open(r->dir, r->head->pre.uuid, range, &s);
    hf_seg_close(&s);
    return status == HF_DAMAGED ||
           (status == HF_OK && hf_fill_void_from(&s, r->segs, r->count, r->begins, r->begin_count) < range.next);
}

int64_t hf_fill_prune(int dir_fd)
{
    struct hf_logr *r = NULL;
    int64_t status = hf_logr_open(dir_fd, &r), removed = 0;
    if (status != HF_OK) {
        return status;
    }
    status = hf_logr_refresh(r);
    for (int64_t i = 0; i < r->fills.count && status == HF_OK; i++) {
        if (useless(r, r->fills.at[i])) {
            char name[HF_FILL_NAME];
            hf_fill_name(name, r->fills.at[i].first, r->fills.at[i].next);
            removed += unlinkat(r->dir, name, 0) == 0;
        }
    }
    hf_logr_close(r);
    return status == HF_OK ? removed : status;
}
