/* planted_reader.c: csrc/stream/reader.c with the pin's barrier under a switch (planted.h). */
#define hf_reader_open planted_reader_open
#define hf_reader_close planted_reader_close
#define hf_reader_next planted_reader_next
#define hf_reader_position planted_reader_position
#define hf_reader_base planted_reader_base
#define hf_reader_seek planted_reader_seek
#define hf_reader_seek_oldest planted_reader_seek_oldest
#define hf_reader_ready planted_reader_ready
#define hf_reader_receive planted_reader_receive
#define hf_reader_wait planted_reader_wait
#define hf_reader_receive_soon planted_reader_receive_soon
#define hf_reader_receive_wait planted_reader_receive_wait
#define hf_reader_batch planted_reader_batch
#define hf_reader_unpin planted_reader_unpin
#define hf_reader_copy planted_reader_copy
#include "base/atomic.h"
#include "planted.h"

static inline void store_seq_cst_u64(volatile uint64_t *p, uint64_t value)
{
    if (planted == PLANTED_READER_UNFENCED) {
        hf_store_release_u64(p, value);
    } else {
        hf_store_seq_cst_u64(p, value);
    }
}

#define hf_store_seq_cst_u64 store_seq_cst_u64
#include "stream/reader.c"
