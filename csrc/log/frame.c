/* frame.c: frames in a log: their CRC, their verification, and walking over them.
 *
 * A frame is valid at a position if its commit word carries that position, its length is possible, its padding is
 * zero and its CRC, seeded with the segment's uuid and incarnation, fits. Old frames of a recycled file fail twice:
 * by position and by uuid. */
#include "log/frame.h"
#include "base/crc32c.h"
#include "log/log.h"

#include <string.h>

uint32_t hf_seed(const uint8_t *segment_uuid, uint64_t incarnation)
{
    uint8_t text[HF_UUID + 8];
    memcpy(text, segment_uuid, HF_UUID);
    memcpy(text + HF_UUID, &incarnation, sizeof incarnation);
    return hf_crc32c(0, text, sizeof text);
}

/* CRCs of n <= 3 frames whose lengths were checked. */
static void frame_crcs(const uint8_t *const frame[3], const uint32_t length[3], int n, uint32_t seed, uint32_t out[3])
{
    if (n == 3) {
        hf_crc32c_frames(seed, frame, length, out);
        return;
    }
    for (int i = 0; i < n; i++) {
        uint32_t crc = hf_crc32c(seed, frame[i], HF_CRC_BYTES);
        out[i] = hf_crc32c(crc, frame[i] + sizeof(struct hf_frame), length[i] - sizeof(struct hf_frame));
    }
}

void hf_frames_stamp(uint8_t *const frame[3], int n, uint32_t seed)
{
    const uint8_t *const view[3] = {frame[0], frame[n > 1 ? 1 : 0], frame[n > 2 ? 2 : 0]};
    uint32_t length[3] = {0, 0, 0}, crc[3];
    for (int i = 0; i < n; i++) {
        length[i] = (uint32_t)((struct hf_frame *)(void *)frame[i])->commit;
    }
    frame_crcs(view, length, n, seed, crc);
    for (int i = 0; i < n; i++) {
        ((struct hf_frame *)(void *)frame[i])->crc = crc[i];
    }
}

static int padding_is_zero(const uint8_t *frame, uint32_t length)
{
    uint64_t room = hf_frame_room(length), at = length;
    uint8_t any = 0;
    for (; at % 8 != 0; at++) {
        any |= frame[at];
    }
    uint64_t words = 0;
    for (; at < room; at += 8) {
        uint64_t word;
        memcpy(&word, frame + at, sizeof word);
        words |= word;
    }
    return any == 0 && words == 0;
}

/* The frame's length if its commit word fits its place, else 0. */
static uint32_t plausible(const uint8_t *at, uint64_t room, uint64_t position)
{
    uint64_t commit;
    memcpy(&commit, at, sizeof commit);
    uint32_t length = (uint32_t)commit;
    if (commit != hf_log_commit_word(position, length) || length < sizeof(struct hf_frame) ||
        hf_frame_room(length) > room) {
        return 0;
    }
    return length;
}

uint64_t hf_frame_claimed(const uint8_t *at, uint64_t room, uint64_t position)
{
    return room < sizeof(struct hf_frame) ? 0 : hf_frame_room(plausible(at, room, position));
}

static uint32_t stored_crc(const uint8_t *frame)
{
    uint32_t crc;
    memcpy(&crc, frame + HF_CRC_BYTES, sizeof crc);
    return crc;
}

uint64_t hf_frames_verified(const uint8_t *block, uint64_t room, uint64_t want, uint64_t position, uint32_t seed)
{
    uint64_t done = 0;
    while (done < want && room - done >= sizeof(struct hf_frame)) {
        const uint8_t *frame[3];
        uint32_t length[3], crc[3];
        uint64_t at = done;
        int n = 0;
        while (n < 3 && room - at >= sizeof(struct hf_frame)) {
            frame[n] = block + at;
            length[n] = plausible(block + at, room - at, position + at);
            if (length[n] == 0) {
                break;
            }
            at += hf_frame_room(length[n]);
            n++;
        }
        frame_crcs(frame, length, n, seed, crc);
        for (int i = 0; i < n; i++) {
            if (crc[i] != stored_crc(frame[i]) || !padding_is_zero(frame[i], length[i])) {
                return done;
            }
            done += hf_frame_room(length[i]);
        }
        if (n < 3) {
            return done;
        }
    }
    return done;
}

/* ---- walking ---- */

void hf_walk_start(struct hf_walk *w, struct hf_seg *s, uint64_t position, uint64_t limit)
{
    memset(w, 0, sizeof *w);
    w->s = s;
    w->base = s->base;
    w->limit = limit < s->limit ? limit : s->limit;
    w->position = position;
    w->verified = position;
    w->seed = s->seed;
    hf_seg_forget(s); /* the store may have gone on since */
}

static uint64_t offset_of(const struct hf_walk *w, uint64_t position)
{
    return w->s->header_bytes + (position - w->base);
}

/* At least `bytes` at the walk's position, which has this many before its limit. *there: how many there are, up to the limit. */
static const uint8_t *look(struct hf_walk *w, uint64_t bytes, uint64_t *there)
{
    uint64_t left = w->limit - w->position, offset = offset_of(w, w->position);
    const uint8_t *at = w->failed == HF_OK ? hf_seg_bytes(w->s, offset, bytes, &w->failed) : NULL;
    *there = at == NULL ? 0 : w->s->window.has.to - offset;
    *there = *there < left ? *there : left;
    return at;
}

/* Verifies frames from the walk's position on, as far as the window goes. */
static void verify(struct hf_walk *w)
{
    uint64_t left = w->limit - w->position, there;
    w->verified = w->position;
    const uint8_t *at = left < sizeof w->frame ? NULL : look(w, sizeof w->frame, &there);
    if (at == NULL) {
        return;
    }
    uint64_t good = hf_frames_verified(at, there, HF_SCAN_CHUNK, w->position, w->seed);
    uint64_t claimed = good == 0 ? hf_frame_claimed(at, left, w->position) : 0;
    if (claimed > there && (at = look(w, claimed, &there)) != NULL) { /* it does not end in this window */
        good = hf_frames_verified(at, claimed, claimed, w->position, w->seed);
    }
    w->verified += good;
}

int hf_walk_frame(struct hf_walk *w)
{
    uint64_t there;
    if (w->position >= w->limit) {
        return 0;
    }
    if (w->position >= w->verified || w->s->window.has.from > offset_of(w, w->position) ||
        w->s->window.has.to < offset_of(w, w->verified)) { /* what is read again may be something else */
        verify(w);
        if (w->verified == w->position) {
            return 0;
        }
    }
    const uint8_t *at = look(w, sizeof w->frame, &there);
    memcpy(&w->frame, at, sizeof w->frame);
    /* A resynchronisation may stand where a verified frame does not begin. */
    uint32_t length = (uint32_t)w->frame.commit;
    if (w->frame.commit != hf_log_commit_word(w->position, length) || length < sizeof w->frame ||
        hf_frame_room(length) > w->verified - w->position) {
        return 0;
    }
    if (w->frame.flags & HF_FRAME_CONTROL) {
        if (length != HF_CONTROL_BYTES) {
            return 0;
        }
        memcpy(&w->body, at + sizeof w->frame, sizeof w->body);
    }
    return 1;
}

uint64_t hf_walk_claimed(struct hf_walk *w, int *unread)
{
    uint64_t left = w->limit - w->position, there;
    *unread = 0;
    const uint8_t *at = w->position >= w->limit || left < sizeof w->frame ? NULL : look(w, sizeof w->frame, &there);
    if (at == NULL) {
        return 0;
    }
    uint64_t claimed = hf_frame_claimed(at, left, w->position);
    uint64_t from = offset_of(w, w->position), bytes = claimed > sizeof w->frame ? claimed : sizeof w->frame;
    *unread = look(w, bytes, &there) != NULL && hf_seg_unread(w->s, from, bytes);
    return claimed;
}

void hf_walk_step(struct hf_walk *w)
{
    w->position += hf_frame_room((uint32_t)w->frame.commit);
}

int hf_walk_resync(struct hf_walk *w)
{
    uint64_t there;
    w->verified = w->position;
    while (w->position < w->limit && w->failed == HF_OK) {
        w->position += HF_GRANULE;
        w->verified = w->verified < w->position ? w->position : w->verified;
        uint64_t left = w->position < w->limit ? w->limit - w->position : 0;
        const uint8_t *at = left < sizeof(struct hf_frame) ? NULL : look(w, sizeof(struct hf_frame), &there);
        if (at != NULL && plausible(at, left, w->position) != 0 && hf_walk_frame(w)) {
            if (w->frame.flags & (HF_FRAME_FIRST | HF_FRAME_CONTROL)) {
                return 1;
            }
            w->position += hf_frame_room((uint32_t)w->frame.commit) - HF_GRANULE;
        }
    }
    w->position = w->limit;
    w->verified = w->limit;
    return 0;
}

static int take_control(struct hf_chain *c, const struct hf_frame *f, const struct hf_control_body *body)
{
    uint64_t sqn = f->sequence_number;
    if (c->fragment != 0 || (c->jump ? sqn < c->next_sqn : sqn != c->next_sqn)) {
        return 0;
    }
    if (f->fragment == HF_CONTROL_LOST) {
        if (body->first != sqn || body->last < sqn || body->last == UINT64_MAX) {
            return 0;
        }
        c->next_sqn = body->last + 1;
    } else if (f->fragment == HF_CONTROL_SYNC) {
        c->next_sqn = sqn;
    } else {
        return 0;
    }
    return 1;
}

static int take_fragment(struct hf_chain *c, const struct hf_frame *f)
{
    int first = (f->flags & HF_FRAME_FIRST) != 0;
    if (first != (c->fragment == 0) || f->fragment != c->fragment ||
        (f->flags & ~(HF_FRAME_FIRST | HF_FRAME_LAST)) != 0) {
        return 0;
    }
    if (first && c->jump ? f->sequence_number < c->next_sqn : f->sequence_number != c->next_sqn) {
        return 0;
    }
    if (f->sequence_number == UINT64_MAX) {
        return 0;
    }
    c->next_sqn = f->sequence_number + 1;
    c->fragment = f->flags & HF_FRAME_LAST ? 0 : c->fragment + 1;
    return 1;
}

int hf_chain_take(struct hf_chain *c, const struct hf_frame *f, const struct hf_control_body *body, uint64_t position)
{
    if (!(f->flags & HF_FRAME_CONTROL ? take_control(c, f, body) : take_fragment(c, f))) {
        return 0;
    }
    c->jump = 0;
    if (c->fragment == 0) {
        c->whole = position + hf_frame_room((uint32_t)f->commit);
        c->whole_sqn = c->next_sqn;
    }
    return 1;
}

void hf_frames_plain(uint8_t *frames, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        struct hf_frame frame;
        memcpy(&frame, frames + at, sizeof frame);
        frame.commit = (uint32_t)frame.commit;
        frame.crc = 0;
        memcpy(frames + at, &frame, sizeof frame);
        at += hf_frame_room((uint32_t)frame.commit);
    }
}
