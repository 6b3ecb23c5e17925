/* planted.h: the hot paths of source and reader once more, from the same text (planted_source.c, planted_reader.c), with a switch that
 * takes an ordering out. The litmus tests must see what that ordering is there for: a test that cannot fail says nothing. */
#ifndef HF_PLANTED_H
#define HF_PLANTED_H
#include "stream/stream.h"

enum planted {
    PLANTED_NOTHING = 0,
    PLANTED_SOURCE_UNFENCED = 1, /* trail_raise: no barrier between the trail's store and the look at the pins */
    PLANTED_READER_UNFENCED = 2, /* pin_take: none between the pin's store and the look at the trail */
    PLANTED_LATE_PAYLOAD = 3     /* a frame's payload is stored behind its commit word */
};

/* Set before the threads start. */
extern int planted;

int64_t planted_source_send(struct hf_source *s, const uint8_t *data, uint64_t length);
uint8_t *planted_source_claim(struct hf_source *s, uint64_t length, int64_t *status);
int64_t planted_reader_batch(struct hf_reader *r, struct hf_entry *entries, int64_t max, uint64_t max_bytes,
                             uint64_t *from, uint64_t *to);
#endif
