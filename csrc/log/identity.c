/* identity.c: whether a segment's file, or a fill's, is still the one that was listed. A name alone says
 * nothing of that: files are recycled, and a fill may be replaced by one of the same range. */
#include "log/fill.h"

#include <string.h>

static int same_fill(int dir, const struct hf_seg *s)
{
    struct hf_seg now;
    int64_t status = hf_fill_open(dir, NULL, (struct hf_range){s->first_sqn, s->fill_next}, &now);
    hf_seg_close(&now);
    return status == HF_OK && memcmp(now.uuid, s->uuid, HF_UUID) == 0;
}

int hf_seg_same(int dir, const struct hf_seg *s, const uint8_t *source_uuid)
{
    if (s->fill_next != 0) {
        return same_fill(dir, s);
    }
    struct hf_seg now = {.base = s->base, .fd = -1};
    return hf_seg_load(dir, &now, source_uuid) == HF_OK && now.state == s->state &&
           memcmp(now.uuid, s->uuid, HF_UUID) == 0;
}
