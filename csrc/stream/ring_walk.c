/* ring_walk.c: walks over frames, in a ring that lives, in a ring whose source died, and in private blocks. All of it
 * reads bytes that somebody else wrote: each word is loaded once, checked, and every loop is bounded by the ring or
 * the block. */
#include "base/crc32c.h"
#include "stream/frame.h"

#define HF_WALK_TRIES 64 /* restarts of a walk that the source keeps overtaking */

int64_t hf_ring_open(const struct hf_map *stream, struct hf_ring *out)
{
    const struct hf_stream_header *header = (const struct hf_stream_header *)(const void *)stream->base;
    uint64_t ring_bytes = stream->ring_bytes;
    if (stream->kind != HF_KIND_STREAM || ring_bytes < HF_RING_MIN || ring_bytes > HF_RING_MAX ||
        (ring_bytes & (ring_bytes - 1)) != 0 || stream->mapped_bytes < sizeof *header + 2 * ring_bytes) {
        return HF_DAMAGED;
    }
    *out = (struct hf_ring){.bytes = stream->base + (stream->mapped_bytes - 2 * ring_bytes),
                            .header = header,
                            .mask = ring_bytes - 1,
                            .frame_max = (uint64_t)header->fragment_bytes + HF_GRANULE,
                            .start_position = header->start_position,
                            .start_sqn = header->start_sqn,
                            .incarnation = header->pre.incarnation};
    if (header->ring_bytes != ring_bytes || out->start_position % HF_GRANULE != 0 || out->frame_max < 2 * HF_GRANULE ||
        out->frame_max > ring_bytes / 4) {
        return HF_DAMAGED;
    }
    return HF_OK;
}

int64_t hf_ring_message(const struct hf_ring *ring, uint64_t position, uint64_t sqn, struct hf_message *out)
{
    struct hf_message m = {.sqn = sqn};
    for (uint32_t index = 0; index < HF_FRAGMENTS_MAX; index++) {
        const uint8_t *frame = hf_ring_frame(ring, position + m.bytes);
        uint64_t word = hf_load_acquire_u64(hf_word_at(frame, HF_WORD_COMMIT)); /* pairs with frame_commit, send.c */
        if (word == 0 && index == 0) {
            return 0;
        }
        uint64_t length = (uint32_t)word;
        uint32_t kind = (uint32_t)hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_KIND));
        if (!hf_commit_own(word, position + m.bytes) || length < HF_GRANULE || length > ring->frame_max ||
            hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_SQN)) != sqn + index ||
            (kind & ~(uint32_t)HF_FRAME_LAST) != hf_kind(index)) {
            return HF_DAMAGED;
        }
        if (index == 0) {
            m.timestamp_ns = (int64_t)hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_TIME));
        }
        m.bytes += hf_frame_span(length);
        m.payload += length - HF_GRANULE;
        if (m.bytes > (ring->mask + 1) / 4) {
            return HF_DAMAGED;
        }
        if ((kind & HF_FRAME_LAST) != 0) {
            m.fragments = index + 1;
            m.next = sqn + m.fragments;
            *out = m;
            return m.next > sqn ? 1 : HF_DAMAGED; /* numbers do not begin anew */
        }
    }
    return HF_DAMAGED;
}

/* A torn mark, or a forged one, is harmless: it must point to a committed first frame of its own position that
 * carries its number, inside [trail, trail + ring). */
static int mark_valid(const struct hf_ring *ring, uint64_t position, uint64_t sqn)
{
    uint64_t trail = hf_load_acquire_u64(&ring->header->trail);
    if (position % HF_GRANULE != 0 || position - trail > ring->mask) {
        return 0;
    }
    const uint8_t *frame = hf_ring_frame(ring, position);
    uint64_t word = hf_load_acquire_u64(hf_word_at(frame, HF_WORD_COMMIT)); /* pairs with frame_commit, send.c */
    uint64_t kind = hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_KIND));
    return hf_commit_own(word, position) && hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_SQN)) == sqn &&
           ((uint32_t)kind & ~(uint32_t)HF_FRAME_LAST) == hf_kind(0) && !hf_ring_passed(ring, position);
}

int64_t hf_ring_mark(const struct hf_ring *ring, uint64_t sqn, int oldest, uint64_t *position, uint64_t *number)
{
    int64_t found = 0;
    if (!hf_ring_passed(ring, ring->start_position) && ring->start_sqn <= sqn) {
        *position = ring->start_position;
        *number = ring->start_sqn;
        found = 1;
    }
    for (size_t i = 0; i < sizeof ring->header->marks / sizeof ring->header->marks[0]; i++) {
        const struct hf_mark *mark = &ring->header->marks[i];
        uint64_t mark_sqn = hf_load_relaxed_u64(&mark->sqn);
        uint64_t mark_position = hf_load_relaxed_u64(&mark->position);
        int better = found == 0 || (oldest ? mark_sqn < *number : mark_sqn > *number);
        if (mark_sqn <= sqn && better && mark_valid(ring, mark_position, mark_sqn)) {
            *position = mark_position;
            *number = mark_sqn;
            found = 1;
        }
    }
    return found;
}

int64_t hf_ring_walk(const struct hf_ring *ring, uint64_t sqn, uint64_t *position, uint64_t *number)
{
    uint64_t begin = *position;
    while (*number != sqn && *position - begin <= ring->mask) {
        struct hf_message m;
        int64_t found = hf_ring_message(ring, *position, *number, &m);
        if (hf_ring_passed(ring, *position)) {
            return HF_LAPPED;
        }
        if (found != 1) {
            return found;
        }
        if (sqn < m.next) {
            return 1;
        }
        *position += m.bytes;
        *number = m.next;
    }
    return *number == sqn;
}

/* The committed end is found from a mark, not from `tail`: tail and next_sqn are two words, and a source that died
 * between the two stores leaves a pair that does not belong together. A mark proves itself. */
static int64_t ring_end(const struct hf_ring *ring, int oldest, uint64_t *position, uint64_t *number)
{
    uint64_t published = hf_load_acquire_u64(&ring->header->tail); /* pairs with publish, send.c */
    for (int i = 0; i < HF_WALK_TRIES; i++) {
        uint64_t trail = hf_load_acquire_u64(&ring->header->trail);
        if (!hf_ring_mark(ring, UINT64_MAX, oldest, position, number)) {
            if (hf_load_relaxed_u64(&ring->header->trail) == trail) {
                *position = trail;
                return HF_DAMAGED; /* the trail stood still, and yet nothing behind it is marked */
            }
            continue;
        }
        int64_t status = hf_ring_walk(ring, UINT64_MAX, position, number);
        if (status == 0) {
            return hf_after(published, *position) ? HF_DAMAGED : HF_OK; /* a hole in what was published */
        }
        if (status != HF_LAPPED) {
            return status > 0 ? HF_DAMAGED : status; /* UINT64_MAX is no message's number */
        }
    }
    return HF_AGAIN;
}

int64_t hf_stream_end(const struct hf_map *stream, uint64_t *tail, uint64_t *next_sqn)
{
    struct hf_ring ring;
    int64_t status = hf_ring_open(stream, &ring);
    return status == HF_OK ? ring_end(&ring, 0, tail, next_sqn) : status;
}

int64_t hf_stream_valid(const struct hf_map *stream, uint64_t *at)
{
    struct hf_ring ring;
    uint64_t next_sqn = 0;
    *at = 0;
    int64_t status = hf_ring_open(stream, &ring);
    return status == HF_OK ? ring_end(&ring, 1, at, &next_sqn) : status;
}

int64_t hf_stream_sri(const struct hf_map *stream, struct hf_sri_store *out25, uint64_t *version,
                      struct hf_sri_groups *groups)
{
    const struct hf_stream_header *header = (const struct hf_stream_header *)(const void *)stream->base;
    for (int i = 0; i < HF_WALK_TRIES; i++) {
        uint64_t before = hf_load_acquire_u64(&header->sri_version); /* pairs with hf_source_sri, both stores */
        uint32_t count = hf_load_relaxed_u32(&header->sri_count);
        uint64_t grouped = hf_load_relaxed_u64(hf_word_at((const uint8_t *)&header->sri_groups, 0));
        for (uint64_t at = 0; at < sizeof header->sri; at += 8) {
            uint64_t word = hf_load_relaxed_u64(hf_word_at((const uint8_t *)header->sri, (uint32_t)at));
            memcpy((uint8_t *)out25 + at, &word, 8);
        }
        hf_fence_acquire();
        if (before % 2 == 1 || hf_load_relaxed_u64(&header->sri_version) != before) {
            hf_cpu_relax();
            continue;
        }
        if (count > HF_STORES_MAX) {
            return HF_DAMAGED;
        }
        for (uint32_t k = 0; k < HF_STORES_MAX; k++) {
            out25[k].name[HF_NAME_MAX - 1] = '\0';
        }
        *version = before;
        memcpy(groups, &grouped, sizeof *groups);
        return count;
    }
    return HF_AGAIN;
}

int64_t hf_block_message(const uint8_t *block, uint64_t bytes, const struct hf_ring *ring, uint64_t position,
                         struct hf_message *out)
{
    struct hf_message m = {0};
    for (uint32_t index = 0; index < HF_FRAGMENTS_MAX; index++) {
        struct hf_frame frame;
        if (bytes - m.bytes < sizeof frame) {
            return 0;
        }
        memcpy(&frame, block + m.bytes, sizeof frame);
        uint64_t length = (uint32_t)frame.commit;
        if (length < HF_GRANULE ||
            (ring != NULL && (!hf_commit_own(frame.commit, position + m.bytes) || length > ring->frame_max))) {
            return HF_DAMAGED;
        }
        if (hf_frame_span(length) > bytes - m.bytes) {
            return 0;
        }
        int control = ring == NULL && index == 0 && (frame.flags & HF_FRAME_CONTROL) != 0;
        if (index == 0) {
            m.sqn = frame.sequence_number;
            m.timestamp_ns = frame.timestamp_ns;
        }
        m.bytes += hf_frame_span(length);
        m.payload += length - HF_GRANULE;
        if (!control &&
            (frame.sequence_number != m.sqn + index ||
             ((uint32_t)(frame.flags & ~HF_FRAME_LAST) | (uint32_t)frame.fragment << 16) != hf_kind(index))) {
            return HF_DAMAGED;
        }
        if (control || (frame.flags & HF_FRAME_LAST) != 0) {
            m.fragments = index + 1;
            m.next = m.sqn + m.fragments;
            m.control = (uint32_t)control;
            *out = m;
            return m.payload <= UINT32_MAX ? 1 : HF_DAMAGED;
        }
    }
    return HF_DAMAGED;
}

/* A message of one fragment, as nearly all are: the bytes of its frame; 0: anything else, which hf_block_message tells
 * apart. */
static inline uint64_t plain_message(const uint8_t *block, uint64_t bytes, uint64_t offset, struct hf_entry *entry)
{
    struct hf_frame f;
    if (bytes < sizeof f) {
        return 0;
    }
    memcpy(&f, block, sizeof f);
    uint64_t length = (uint32_t)f.commit, span = hf_frame_span(length);
    if (length < HF_GRANULE || span > bytes || f.flags != (HF_FRAME_FIRST | HF_FRAME_LAST) || f.fragment != 0) {
        return 0;
    }
    struct hf_message m = {.sqn = f.sequence_number,
                           .next = f.sequence_number + 1,
                           .payload = length - HF_GRANULE,
                           .timestamp_ns = f.timestamp_ns,
                           .fragments = 1};
    hf_entry_fill(entry, &m, offset);
    return span;
}

int64_t hf_scan(const uint8_t *block, uint64_t bytes, struct hf_entry *entries, int64_t max, uint64_t *consumed)
{
    uint64_t at = 0;
    int64_t count = 0;
    int64_t found = 1;
    struct hf_message m;
    while (count < max) {
        uint64_t plain = plain_message(block + at, bytes - at, at + HF_GRANULE, &entries[count]);
        if (plain != 0) {
            count++;
            at += plain;
            continue;
        }
        found = hf_block_message(block + at, bytes - at, NULL, 0, &m);
        if (found != 1) {
            break;
        }
        if (!m.control) {
            hf_entry_fill(&entries[count++], &m, at + HF_GRANULE);
        }
        at += m.bytes;
    }
    *consumed = at;
    return at == 0 && found < 0 ? found : count; /* what is good before the damage is delivered first */
}

int64_t hf_mark_retransmitted(struct hf_entry *entries, int64_t count, uint64_t live_from)
{
    int64_t marked = 0;
    for (int64_t i = 0; i < count; i++) {
        uint16_t flag = entries[i].sequence_number < live_from ? HF_ENTRY_RETRANSMIT : 0;
        entries[i].flags |= flag;
        marked += (entries[i].flags & HF_ENTRY_RETRANSMIT) != 0;
    }
    return marked;
}

/* The payload of the fragment whose frame lies at *at, which goes behind it; NULL: it is longer than what is left of its
 * message. */
static const uint8_t *fragment(const uint8_t *base, uint64_t wrap, uint64_t left, uint64_t *at, uint64_t *bytes)
{
    const uint8_t *frame = base + (wrap != 0 ? *at & (wrap - 1) : *at); /* header words lie in the first mapping */
    uint64_t word;
    if (wrap != 0) {
        word = hf_load_acquire_u64(hf_word_at(frame, HF_WORD_COMMIT)); /* pairs with frame_commit, send.c */
    } else {
        memcpy(&word, frame, sizeof word); /* private, and aligned as its owner likes */
    }
    uint64_t length = (uint32_t)word;
    if (length < HF_GRANULE || length - HF_GRANULE > left) {
        return NULL;
    }
    *at += hf_frame_span(length);
    *bytes = length - HF_GRANULE;
    return frame + HF_GRANULE;
}

int64_t hf_gather(const uint8_t *base, uint64_t wrap, const struct hf_entry *entry, uint8_t *out)
{
    uint64_t at = entry->offset - HF_GRANULE, copied = 0, bytes = 0;
    for (uint32_t i = 0; i < entry->fragments; i++) {
        const uint8_t *from = fragment(base, wrap, entry->length - copied, &at, &bytes);
        if (from == NULL) {
            return HF_DAMAGED;
        }
        if (wrap != 0) {
            hf_copy_out(out + copied, from, bytes);
        } else {
            memcpy(out + copied, from, bytes);
        }
        copied += bytes;
    }
    return copied == entry->length ? (int64_t)copied : HF_DAMAGED;
}

/* CRC-32C of a message's payload, wherever its fragments lie. */
static int64_t payload_crc(const uint8_t *base, uint64_t wrap, const struct hf_entry *entry)
{
    uint64_t at = entry->offset - HF_GRANULE, summed = 0, bytes = 0;
    uint32_t crc = 0;
    for (uint32_t i = 0; i < entry->fragments; i++) {
        const uint8_t *from = fragment(base, wrap, entry->length - summed, &at, &bytes);
        if (from == NULL) {
            return HF_DAMAGED;
        }
        crc = hf_crc32c(crc, from, bytes);
        summed += bytes;
    }
    return summed == entry->length ? (int64_t)crc : HF_DAMAGED;
}

int64_t hf_columns(const uint8_t *base, uint64_t wrap, const struct hf_entry *entries, int64_t count,
                   struct hf_columns *to)
{
    int64_t i = 0;
    if (to->offsets != NULL && to->bytes_max > INT32_MAX) {
        return HF_USAGE;
    }
    for (; i < count && to->rows < to->rows_max; i++) {
        const struct hf_entry *e = &entries[i];
        int64_t row = to->rows;
        if (to->values != NULL) {
            if (e->length > to->bytes_max - to->bytes) {
                break;
            }
            if (e->fragments == 1) {
                hf_copy_out(to->values + to->bytes, base + e->offset, e->length);
            } else if (hf_gather(base, wrap, e, to->values + to->bytes) < 0) {
                return HF_DAMAGED;
            }
            to->bytes += e->length;
        }
        if (to->crc != NULL && (to->crc[row] = payload_crc(base, wrap, e)) < 0) {
            return HF_DAMAGED;
        }
        if (to->sequence_number != NULL) {
            to->sequence_number[row] = (int64_t)e->sequence_number;
        }
        if (to->first_sequence_number != NULL) {
            to->first_sequence_number[row] = (int64_t)e->first_sequence_number;
        }
        if (to->timestamp_ns != NULL) {
            to->timestamp_ns[row] = e->timestamp_ns;
        }
        if (to->flags != NULL) {
            to->flags[row] = (int32_t)(e->flags | (e->fragments > 1 ? HF_ENTRY_FRAGMENTED : 0));
        }
        if (to->offsets != NULL) {
            to->offsets[row + 1] = (int32_t)to->bytes;
        }
        to->rows = row + 1;
    }
    return i;
}

int64_t hf_take(const uint8_t *block, const struct hf_entry *from, struct hf_entry *entry, uint8_t *buf,
                uint64_t capacity)
{
    *entry = *from;
    entry->offset = 0;
    entry->flags |= HF_ENTRY_RETRANSMIT;
    if (from->length > capacity) {
        return HF_SMALL;
    }
    int64_t copied = hf_gather(block, 0, from, buf);
    return copied < 0 ? copied : 1;
}
