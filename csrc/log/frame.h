/* frame.h: frames in a log (frame.c): made valid, verified, walked over, and what a walk has understood. */
#ifndef HF_LOG_FRAME_H
#define HF_LOG_FRAME_H
#include "log/segment.h"

#define HF_CRC_BYTES 28 /* of a frame's header: all before `crc` */
#define HF_CONTROL_BYTES (sizeof(struct hf_frame) + sizeof(struct hf_control_body))
#define HF_CONTROL_ROOM UINT64_C(64)  /* a control frame, rounded up to the granule */
#define HF_SCAN_CHUNK UINT64_C(65536) /* frames verified ahead while walking */

/* Bytes that a frame of this length takes: up to the next granule. 64-bit: a length near 2^32 must not wrap. */
static inline uint64_t hf_frame_room(uint32_t length)
{
    return ((uint64_t)length + HF_GRANULE - 1) & ~(uint64_t)(HF_GRANULE - 1);
}

static inline uint64_t hf_log_commit_word(uint64_t position, uint32_t length)
{
    return (((position / HF_GRANULE + 1) & UINT32_MAX) << 32) | length;
}

uint32_t hf_seed(const uint8_t *segment_uuid, uint64_t incarnation);
/* Writes the commit words' positions and the CRCs of up to three frames. */
void hf_frames_stamp(uint8_t *const frame[3], int n, uint32_t seed);
/* Verifies frames from `block` on, which lies at `position`, until one is wrong, `room` is used up, or at least
 * `want` bytes are verified. Returns the verified bytes. Zero padding is part of a valid frame. */
uint64_t hf_frames_verified(const uint8_t *block, uint64_t room, uint64_t want, uint64_t position, uint32_t seed);

/* Room that the commit word at `at` claims; 0 if it is not of this position, or claims more than `room`. */
uint64_t hf_frame_claimed(const uint8_t *at, uint64_t room, uint64_t position);

/* A walk over the frames of one open segment. */
struct hf_walk {
    struct hf_seg *s;
    uint64_t base;
    uint64_t limit;
    uint64_t position;
    uint64_t verified; /* frames below it are verified */
    uint32_t seed;
    struct hf_frame frame;       /* copy of the frame at `position`; valid after hf_walk_frame returned 1 */
    struct hf_control_body body; /* of a control frame */
    int64_t failed;              /* an errno: from there on it finds nothing, which says nothing of the segment */
};
void hf_walk_start(struct hf_walk *w, struct hf_seg *s, uint64_t position, uint64_t limit);
int hf_walk_frame(struct hf_walk *w); /* 1: a valid frame is here; 0: none (wrong bytes, the limit, or w->failed) */
/* No valid frame is here. Room that its commit word claims, if that is of this place; else 0. *unread: it may be that the
 * disk does not give it. */
uint64_t hf_walk_claimed(struct hf_walk *w, int *unread);
void hf_walk_step(struct hf_walk *w); /* behind the frame */
/* Moves to the next valid frame behind `position` that starts a message or is a control frame. 0: there is none,
 * position = limit. */
int hf_walk_resync(struct hf_walk *w);

/* What a walk has understood so far: messages are whole, numbers follow each other. */
struct hf_chain {
    uint64_t next_sqn;  /* expected */
    uint64_t whole;     /* position behind the last whole message or control frame */
    uint64_t whole_sqn; /* next number there */
    uint32_t fragment;  /* expected; 0 = between messages */
    int jump;           /* 1: behind a gap, the next number may be larger */
};
/* 1: this frame continues; 0: it does not. body: of a control frame, else not read. */
int hf_chain_take(struct hf_chain *c, const struct hf_frame *f, const struct hf_control_body *body, uint64_t position);
/* What a reader says of the numbers of this LOST record. */
static inline int64_t hf_lack(const struct hf_frame *f)
{
    return f->flags & HF_FRAME_HOLE ? HF_HOLE : HF_LOST;
}
/* Behind damage: the next frame starts a message or is a control frame, and its number may be larger. */
static inline void hf_chain_jump(struct hf_chain *c, uint64_t position)
{
    c->next_sqn = c->whole_sqn;
    c->whole = position;
    c->fragment = 0;
    c->jump = 1;
}
#endif
