/* frame.h: private to csrc. The arithmetic of frames, and how bytes of a ring are read and written, for send.c,
 * source.c, reader.c and ring_walk.c. Nothing here knows who reads or why.
 *
 * A frame's header is four 64-bit words: commit, number, timestamp, kind (flags, fragment and crc together). A
 * lapped reader may look at words while the source writes the next lap's over them; so ring words are only touched
 * as relaxed (the commit word: release, acquire) atomics, and what was read counts only after hf_ring_passed said
 * no. */
#ifndef HF_STREAM_FRAME_H
#define HF_STREAM_FRAME_H
#include <string.h>
#include "base/atomic.h"
#include "base/status.h"
#include "stream/stream.h"

enum { HF_WORD_COMMIT = 0, HF_WORD_SQN = 8, HF_WORD_TIME = 16, HF_WORD_KIND = 24 };
#define HF_RING_MIN (UINT64_C(1) << 16)
#define HF_RING_MAX                                                                                                    \
    (UINT64_C(1) << 34) /* so that every message's length fits hf_entry.length, and no tag repeats in a ring */
#define HF_LIKELY(x) __builtin_expect(!!(x), 1)

_Static_assert(offsetof(struct hf_frame, commit) == HF_WORD_COMMIT, "frame");
_Static_assert(offsetof(struct hf_frame, sequence_number) == HF_WORD_SQN, "frame");
_Static_assert(offsetof(struct hf_frame, timestamp_ns) == HF_WORD_TIME, "frame");
_Static_assert(offsetof(struct hf_frame, flags) == HF_WORD_KIND &&
                   offsetof(struct hf_frame, fragment) == HF_WORD_KIND + 2 &&
                   offsetof(struct hf_frame, crc) == HF_WORD_KIND + 4,
               "frame");

/* Bytes that a frame of `length` (header + payload) takes. No overflow: lengths come from 32 bits or are checked
 * before. */
static inline uint64_t hf_frame_span(uint64_t length)
{
    return (length + (HF_GRANULE - 1)) & ~(uint64_t)(HF_GRANULE - 1);
}

static inline uint64_t hf_ring_commit_word(uint64_t position, uint64_t length)
{
    return (position / HF_GRANULE + 1) << 32 | length;
}

/* 1: `word` commits a frame at this very position; 0 for the word 0 and for any other lap's. */
static inline int hf_commit_own(uint64_t word, uint64_t position)
{
    return word != 0 && (uint32_t)(word >> 32) == (uint32_t)(position / HF_GRANULE + 1);
}

/* The lower half of the kind word that fragment `index` must have, LAST aside. */
static inline uint32_t hf_kind(uint32_t index)
{
    return index << 16 | (index == 0 ? (uint32_t)HF_FRAME_FIRST : 0);
}

/* Positions run freely and wrap at 2^64: they are compared by difference only. */
static inline int hf_after(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) > 0;
}

static inline volatile uint64_t *hf_word(uint8_t *frame, uint32_t offset)
{
    return (volatile uint64_t *)(void *)(frame + offset);
}

static inline const volatile uint64_t *hf_word_at(const uint8_t *frame, uint32_t offset)
{
    return (const volatile uint64_t *)(const void *)(frame + offset);
}

#if defined(__SANITIZE_THREAD__)
/* Payload copies race by design: the reader finds out afterwards, by the trail, that it was overtaken. The thread
 * sanitizer would report each such memcpy; copies made of relaxed atomics say what is meant and leave every other
 * race visible. The ring side is always whole words: frames are aligned to the granule and padded up to it. */
static inline void hf_copy_in(uint8_t *ring, const uint8_t *from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, from + i, n - i < 8 ? n - i : 8);
        hf_store_relaxed_u64(hf_word(ring + i, 0), word);
    }
}

static inline void hf_copy_out(uint8_t *to, const uint8_t *ring, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t word = hf_load_relaxed_u64(hf_word_at(ring + i, 0));
        memcpy(to + i, &word, n - i < 8 ? n - i : 8);
    }
}
#else
static inline void hf_copy_16(uint8_t *to, const uint8_t *from)
{
    __builtin_memcpy(to, from, 16);
}

#define HF_COPY_PIECE 65536 /* bytes of one memcpy */

/* memcpy for payloads: inline up to 128 bytes by overlapping moves, because the call costs as much as the rest of a send; and
 * large ones in pieces, because libc goes past the caches where it is asked for much, and the reader wants it from there. */
static inline void hf_copy_bytes(uint8_t *restrict to, const uint8_t *restrict from, uint64_t n)
{
    for (; n > HF_COPY_PIECE; n -= HF_COPY_PIECE) {
        memcpy(to, from, HF_COPY_PIECE);
        to += HF_COPY_PIECE;
        from += HF_COPY_PIECE;
    }
    if (n > 128) {
        memcpy(to, from, n);
    } else if (n >= 16) {
        if (n > 32) {
            if (n > 64) {
                hf_copy_16(to + 32, from + 32);
                hf_copy_16(to + 48, from + 48);
                hf_copy_16(to + n - 64, from + n - 64);
                hf_copy_16(to + n - 48, from + n - 48);
            }
            hf_copy_16(to + 16, from + 16);
            hf_copy_16(to + n - 32, from + n - 32);
        }
        hf_copy_16(to, from);
        hf_copy_16(to + n - 16, from + n - 16);
    } else if (n >= 8) {
        __builtin_memcpy(to, from, 8);
        __builtin_memcpy(to + n - 8, from + n - 8, 8);
    } else if (n >= 4) {
        __builtin_memcpy(to, from, 4);
        __builtin_memcpy(to + n - 4, from + n - 4, 4);
    } else if (n > 0) {
        to[0] = from[0];
        to[n / 2] = from[n / 2];
        to[n - 1] = from[n - 1];
    }
}

static inline void hf_copy_in(uint8_t *ring, const uint8_t *from, uint64_t n)
{
    hf_copy_bytes(ring, from, n);
}

static inline void hf_copy_out(uint8_t *to, const uint8_t *ring, uint64_t n)
{
    hf_copy_bytes(to, ring, n);
}
#endif

/* A reader's private view of a ring: what the header says once and for all, checked at open and never read again. */
struct hf_ring {
    const uint8_t *bytes; /* of the first of the two mappings */
    const struct hf_stream_header *header;
    uint64_t mask;
    uint64_t frame_max; /* header + payload of the largest frame */
    uint64_t start_position;
    uint64_t start_sqn;
    uint64_t incarnation;
};

/* One message as a walk finds it. */
struct hf_message {
    uint64_t sqn;   /* of its first frame */
    uint64_t next;  /* number behind its last frame */
    uint64_t bytes; /* of its frames, in the ring or block */
    uint64_t payload;
    int64_t timestamp_ns;
    uint32_t fragments;
    uint32_t control; /* 1: a log's control frame, no message */
};

static inline const uint8_t *hf_ring_frame(const struct hf_ring *ring, uint64_t position)
{
    return ring->bytes + (position & ring->mask);
}

/* 1: the source may have overwritten bytes from `position` on before they were read. Pairs with trail_raise
 * (send.c): the new trail is stored and fenced before the first overwriting store. */
static inline int hf_ring_passed(const struct hf_ring *ring, uint64_t position)
{
    hf_fence_acquire();
    return hf_after(hf_load_relaxed_u64(&ring->header->trail), position);
}

static inline void hf_entry_fill(struct hf_entry *entry, const struct hf_message *m, uint64_t offset)
{
    *entry = (struct hf_entry){.sequence_number = m->next - 1,
                               .first_sequence_number = m->sqn,
                               .timestamp_ns = m->timestamp_ns,
                               .offset = offset,
                               .length = (uint32_t)m->payload,
                               .fragments = (uint16_t)m->fragments};
}

/* HF_DAMAGED: not a stream that this code could have made. */
int64_t hf_ring_open(const struct hf_map *stream, struct hf_ring *out);
/* The message at `position` whose first frame must carry `sqn`. 1: all its frames are there, as far as was read; 0:
 * nothing yet; HF_DAMAGED: neither. The caller then asks hf_ring_passed: if so, none of this counts. */
int64_t hf_ring_message(const struct hf_ring *ring, uint64_t position, uint64_t sqn, struct hf_message *out);
/* The committed mark with the largest number <= sqn, or, oldest, with the smallest; the start counts as a mark
 * while it is there. 1, or 0: none. */
int64_t hf_ring_mark(const struct hf_ring *ring, uint64_t sqn, int oldest, uint64_t *position, uint64_t *number);
/* From a message's start towards the message that carries `sqn`, within one ring's length. 1: stands before it; 0:
 * stands at the committed end (or has gone a whole ring); HF_LAPPED, HF_DAMAGED: at *position. */
int64_t hf_ring_walk(const struct hf_ring *ring, uint64_t sqn, uint64_t *position, uint64_t *number);
/* One whole message (or a log's control frame) at the start of a private block. ring: where the block was copied
 * from, at `position`, whose commit words it must carry; NULL: a log. 1; 0: the block ends within it; HF_DAMAGED. */
int64_t hf_block_message(const uint8_t *block, uint64_t bytes, const struct hf_ring *ring, uint64_t position,
                         struct hf_message *out);
#endif
