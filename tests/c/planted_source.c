/* planted_source.c: csrc/stream/send.c with two of its orderings under a switch (planted.h). */
#define hf_source_send planted_source_send
#define hf_source_send_rows planted_source_send_rows
#define hf_source_send_binary planted_source_send_binary
#define hf_source_claim planted_source_claim
#define hf_source_commit planted_source_commit
#define hf_source_abort planted_source_abort
#include "planted.h"
#include "stream/frame.h"

int planted;

static inline void store_seq_cst_u64(volatile uint64_t *p, uint64_t value)
{
    if (planted == PLANTED_SOURCE_UNFENCED) {
        hf_store_release_u64(p, value);
    } else {
        hf_store_seq_cst_u64(p, value);
    }
}

static inline void fence_seq_cst(void)
{
    if (planted == PLANTED_SOURCE_UNFENCED) {
        hf_compiler_barrier();
    } else {
        hf_fence_seq_cst();
    }
}

/* One thread sends. */
static uint8_t *late_ring;
static const uint8_t *late_from;
static uint64_t late_bytes;

static inline void copy_in(uint8_t *ring, const uint8_t *from, uint64_t n)
{
    if (planted == PLANTED_LATE_PAYLOAD) {
        late_ring = ring;
        late_from = from;
        late_bytes = n;
    } else {
        hf_copy_in(ring, from, n);
    }
}

static inline void store_release_u64(volatile uint64_t *p, uint64_t value)
{
    hf_store_release_u64(p, value);
    if (late_bytes > 0) {
        hf_copy_in(late_ring, late_from, late_bytes);
        late_bytes = 0;
    }
}

#define hf_store_seq_cst_u64 store_seq_cst_u64
#define hf_fence_seq_cst fence_seq_cst
#define hf_copy_in copy_in
#define hf_store_release_u64 store_release_u64
#include "stream/send.c"
