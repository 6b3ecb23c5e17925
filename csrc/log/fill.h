/* fill.h: fills: files beside the segments with what those had lost; found and opened (fill_file.c), written
 * (fill.c), pruned (fill_prune.c). */
#ifndef HF_LOG_FILL_H
#define HF_LOG_FILL_H
#include "log/segment.h"

struct hf_range {
    uint64_t first;
    uint64_t next;
};

/* Ranges of numbers; `at` is malloc'ed. */
struct hf_ranges {
    struct hf_range *at;
    int64_t count;
    int64_t room;
};
int64_t hf_ranges_add(struct hf_ranges *ranges, uint64_t first, uint64_t next); /* HF_OK, or no memory */

#define HF_FILL_NAME 40 /* "fill-" + 16 hex digits + "-" + 16 hex digits + NUL */
void hf_fill_name(char name[HF_FILL_NAME], uint64_t first, uint64_t next);
int64_t hf_fill_list(int dir, struct hf_ranges *out); /* as their names say, ascending; HF_OK or an errno */
/* Verifies the header of the fill of this range and opens it, as a segment whose positions begin at 0. */
int64_t hf_fill_open(int dir, const uint8_t *source_uuid, struct hf_range range, struct hf_seg *s);
/* The first number that is void in a fill: by the table alone, since a segment of a later incarnation may hold numbers
 * from before that began. Without a readable table (count 0), by the segments. */
uint64_t hf_fill_void_from(const struct hf_seg *fill, const struct hf_seg *segs, int64_t n,
                           const struct hf_begin *begins, int64_t count);
/* Removes those that end at or below it. Returns the lowest end that is left; UINT64_MAX: none. */
uint64_t hf_fill_expire(int dir, uint64_t oldest_sqn);
void hf_fill_drop_unfinished(int dir);
/* What is not yet a fill: fill.c renames it. */
#define HF_FILL_UNFINISHED "fill-new"
/* Writes the header's page, with its sum. */
int64_t hf_fill_write_header(int fd, const struct hf_fill_header *header);
#endif
