/* source.c: a source's life (create, close, destroy) and what policy says to it: limits, what is settled, what is
 * released, the SRI; and, off the hot path, lines fetched ahead of a sender. Sending is send.c. */
#include <errno.h>
#include <stdlib.h>
#include "base/process.h"
#include "base/clock.h"
#include "stream/source.h"

#define HF_AHEAD_MAX UINT64_C(65536)   /* bytes: a part of the core's second cache */
#define HF_SQN_MAX (UINT64_C(1) << 62) /* of a start: every later number stays a positive int64 */

enum { STEP_SHIFT = 6, STEPS_MAX = 65536 }; /* a step per 64 numbers, wider in rings above 128 MiB */

static int config_valid(const struct hf_stream_config *c)
{
    return c->ring_bytes >= HF_RING_MIN && c->ring_bytes <= HF_RING_MAX && (c->ring_bytes & (c->ring_bytes - 1)) == 0 &&
           c->start_position % HF_GRANULE == 0 && c->start_sqn <= HF_SQN_MAX && c->fragment_bytes >= HF_GRANULE &&
           c->fragment_bytes <= c->ring_bytes / 4 - HF_GRANULE && memchr(c->topic, '\0', sizeof c->topic) != NULL;
}

static void header_fill(struct hf_stream_header *header, const struct hf_stream_config *c, uint32_t fenced)
{
    header->ring_bytes = c->ring_bytes;
    header->start_position = c->start_position;
    header->start_sqn = c->start_sqn;
    header->fragment_bytes = c->fragment_bytes;
    header->fenced = fenced;
    header->session_id = c->session_id;
    header->flags = c->flags;
    memcpy(header->topic, c->topic, sizeof c->topic);
    header->tail = c->start_position;
    header->trail = c->start_position;
    header->next_sqn = c->start_sqn;
    header->stable_sqn = c->start_sqn;
    header->heartbeat_ns = (uint64_t)hf_now_ns();
    header->state = HF_STREAM_OPEN;
}

int64_t hf_source_create(int fd, const struct hf_stream_config *config, struct hf_map *board, struct hf_map *bells,
                         struct hf_source **out)
{
    if (!config_valid(config) || (board != NULL && board->kind != HF_KIND_BOARD)) {
        return HF_USAGE;
    }
    struct hf_source *s = aligned_alloc(_Alignof(struct hf_source), sizeof *s);
    if (s == NULL) {
        return HF_ERRNO - ENOMEM;
    }
    uint32_t step_shift = STEP_SHIFT;
    while (config->ring_bytes / HF_GRANULE >> step_shift > STEPS_MAX) {
        step_shift++;
    }
    uint64_t steps = config->ring_bytes / HF_GRANULE >> step_shift;
    struct hf_step *step = calloc(2 * steps, sizeof *step); /* twice what the ring holds */
    if (step == NULL) {
        free(s);
        return HF_ERRNO - ENOMEM;
    }
    uint32_t fenced = hf_wait_setup() ? 0 : 1;
    struct hf_map *map;
    int64_t status = hf_map_create(fd, HF_KIND_STREAM, sizeof(struct hf_stream_header), config->ring_bytes,
                                   config->uuid, config->incarnation, &map);
    if (status < 0) {
        free(step);
        free(s);
        return status;
    }
    *s = (struct hf_source){.ring = map->base + (map->mapped_bytes - 2 * map->ring_bytes),
                            .header = (struct hf_stream_header *)(void *)map->base,
                            .mask = config->ring_bytes - 1,
                            .position = config->start_position,
                            .next_sqn = config->start_sqn,
                            .room_position = config->start_position, /* no room: the first send computes it */
                            .token = hf_process_token(),
                            .stripe = ~UINT64_C(0),
                            .stripe_shift = (uint32_t)__builtin_ctzll(config->ring_bytes / HF_MARKS),
                            .fragment_bytes = config->fragment_bytes,
                            .fenced = fenced,
                            .admit = config->start_position + config->ring_bytes,
                            .pin_timeout_ns = (int64_t)config->pin_timeout_ms * 1000000,
                            .steps = step,
                            .step_mask = 2 * steps - 1,
                            .step_shift = step_shift,
                            .incarnation = config->incarnation,
                            .map = map,
                            .board = board,
                            .bells = bells,
                            .flight_sqn = config->start_sqn,
                            .released_position = config->start_position,
                            .released_sqn = config->start_sqn,
                            .settled = {config->start_sqn, config->start_position, 0}};
    hf_stamp_begin(&s->stamp);
    s->sleepers = board != NULL && bells != NULL ? &((struct hf_board *)(void *)board->base)->sleepers : &s->nobody;
    header_fill(s->header, config, fenced);
    hf_map_publish(map);
    *out = s;
    return HF_OK;
}

/* Serialised with sends by the caller: a reader that sees CLOSED and then no frame has seen everything. An open claim is over: its
 * commit fails. */
void hf_source_close(struct hf_source *s)
{
    if (hf_process_forked(s->token) || hf_load_relaxed_u32(&s->closed) != 0) {
        return;
    }
    s->claimed = 0;
    hf_store_relaxed_u32(&s->closed, 1);
    hf_add_u32(&s->changes, 1);
    hf_store_release_u64(&s->header->state, HF_STREAM_CLOSED); /* pairs with reader.c: idle */
    hf_store_relaxed_u32(&s->busy, 0);
    hf_fence_seq_cst();
    if (s->sleepers != &s->nobody) {
        hf_board_wake_slow(s->board, s->bells);
    }
}

void hf_source_abandon(struct hf_source *s)
{
    s->abandoned = 1;
}

void hf_source_destroy(struct hf_source *s)
{
    if (!s->abandoned) {
        hf_source_close(s);
    }
    hf_map_detach(s->map);
    free(s->steps);
    free(s);
}

struct hf_map *hf_source_map(struct hf_source *s)
{
    return s->map;
}

/* ---- policy ---- */

uint64_t hf_source_next(const struct hf_source *s)
{
    /* The header is not mapped in a forked child; the private copy is. Pairs with publish. */
    return hf_process_forked(s->token) ? s->next_sqn : hf_load_acquire_u64(&s->header->next_sqn);
}

void hf_source_limits(struct hf_source *s, uint64_t flight_messages, uint64_t flight_bytes, uint64_t retained_bytes)
{
    hf_store_relaxed_u64(&s->flight_messages, flight_messages);
    hf_store_relaxed_u64(&s->flight_bytes, flight_bytes);
    hf_store_relaxed_u64(&s->retained_bytes, retained_bytes);
    hf_add_u32(&s->changes, 1); /* pairs with admit, which every send enters that sees the change */
}

/* Length of the committed frame at `position`, 0 if there is none: somebody in this process wrote into the ring. */
static uint64_t frame_length(const struct hf_source *s, uint64_t position)
{
    uint64_t word = hf_load_relaxed_u64(hf_word(s->ring + (position & s->mask), HF_WORD_COMMIT));
    uint64_t length = (uint32_t)word;
    int own =
        hf_commit_own(word, position) && length >= HF_GRANULE && length <= s->fragment_bytes + (uint64_t)HF_GRANULE;
    return own ? length : 0;
}

/* Moves *at to number `end`, over committed frames that are not released. A step stands where the first message behind its
 * multiple begins, which may be behind `end`; then the one before it is the nearest. */
static int64_t walk(const struct hf_source *s, struct hf_step *at, uint64_t end)
{
    for (uint64_t back = 0; back < 2; back++) {
        const struct hf_step *step = &s->steps[((end >> s->step_shift) - back) & s->step_mask];
        if (step->sqn > at->sqn && step->sqn <= end) {
            *at = *step;
        }
    }
    while (at->sqn < end) {
        uint64_t length = frame_length(s, at->position);
        if (length == 0) {
            return HF_DAMAGED;
        }
        *at = (struct hf_step){at->sqn + 1, at->position + hf_frame_span(length), at->payload + length - HF_GRANULE};
    }
    return HF_OK;
}

static uint64_t committed_below(const struct hf_source *s, uint64_t sqn)
{
    uint64_t committed = hf_load_acquire_u64(&s->header->next_sqn); /* pairs with publish: those frames are complete */
    return sqn < committed ? sqn : committed;
}

/* Sums up the holes. Each but the first is looked for from the end of the one before it. */
static int64_t holes_sum(const struct hf_source *s, const uint64_t *bounds, uint32_t count, uint64_t end,
                         uint64_t *fragments, uint64_t *payload)
{
    struct hf_step at = {s->released_sqn, s->released_position, s->released_payload};
    *fragments = *payload = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t low = bounds[2 * i];
        uint64_t high = bounds[2 * i + 1];
        if (low < at.sqn || high < low || high > end) {
            return HF_USAGE;
        }
        struct hf_step begin = at;
        int64_t status = walk(s, &begin, low);
        at = begin;
        status = status == HF_OK ? walk(s, &at, high) : status;
        if (status != HF_OK) {
            return status;
        }
        *fragments += high - low;
        *payload += at.payload - begin.payload;
    }
    return HF_OK;
}

int64_t hf_source_settle(struct hf_source *s, uint64_t sqn)
{
    HF_ENTER(s);
    struct hf_step at = s->settled;
    uint64_t begin = at.sqn;
    uint64_t end = committed_below(s, sqn);
    end = end > begin ? end : begin;
    int64_t status = walk(s, &at, end);
    if (status != HF_OK) {
        return status;
    }
    s->settled = at;
    hf_store_relaxed_u64(&s->flight_payload, at.payload - s->holes_payload);
    hf_store_release_u64(&s->flight_sqn, end - s->holes_sqn); /* pairs with admit: never ahead of the payload */
    return (int64_t)(end - begin);
}

int64_t hf_source_settle_around(struct hf_source *s, uint64_t sqn, const uint64_t *bounds, uint32_t count)
{
    HF_ENTER(s);
    uint64_t fragments;
    uint64_t payload;
    uint64_t end = committed_below(s, sqn);
    int64_t status = holes_sum(s, bounds, count, end > s->settled.sqn ? end : s->settled.sqn, &fragments, &payload);
    if (status != HF_OK) {
        return status;
    }
    s->holes_sqn = fragments;
    s->holes_payload = payload;
    return hf_source_settle(s, sqn);
}

int64_t hf_source_release(struct hf_source *s, uint64_t sqn)
{
    int64_t settled = hf_source_settle(s, sqn);
    uint64_t begin = s->released_sqn;
    uint64_t end = settled < 0 ? begin : committed_below(s, sqn);
    if (end <= begin) {
        return settled < 0 ? settled : 0;
    }
    struct hf_step at = s->settled; /* most often, all that is settled goes */
    if (end != at.sqn) {
        at = (struct hf_step){begin, s->released_position, s->released_payload};
        int64_t status = walk(s, &at, end);
        if (status != HF_OK) {
            return status;
        }
    }
    s->released_payload = at.payload;
    hf_store_release_u64(&s->released_position,
                         at.position);           /* both pair with admit: what lies below may be overwritten now, */
    hf_store_release_u64(&s->released_sqn, end); /* and the number never runs ahead of the position */
    return (int64_t)(end - begin);
}

int64_t hf_source_oldest(const struct hf_source *s, uint64_t below_sqn, uint64_t keep_bytes)
{
    HF_ENTER(s);
    uint64_t end = committed_below(s, below_sqn);
    uint64_t tail = hf_load_relaxed_u64(&s->header->tail);
    uint64_t stays = s->released_sqn; /* the first number of the message at `begin` */
    uint64_t begin = s->released_position;
    uint64_t position = begin;
    for (uint64_t at = stays; at < end && tail - begin > keep_bytes; at++) {
        uint64_t length = frame_length(s, position);
        if (length == 0) {
            return HF_DAMAGED;
        }
        const uint8_t *frame = s->ring + (position & s->mask);
        position += hf_frame_span(length);
        if (hf_load_relaxed_u64(hf_word_at(frame, HF_WORD_KIND)) & HF_FRAME_LAST) {
            stays = at + 1;
            begin = position;
        }
    }
    return (int64_t)stays;
}

uint64_t hf_source_wanted(const struct hf_source *s)
{
    return hf_load_relaxed_u64(&s->wanted);
}

void hf_source_in_flight(const struct hf_source *s, uint64_t *fragments, uint64_t *bytes, uint64_t *retained_bytes)
{
    *fragments = *bytes = *retained_bytes = 0;
    if (hf_process_forked(s->token)) {
        return;
    }
    *fragments = hf_load_acquire_u64(&s->header->next_sqn) - hf_load_relaxed_u64(&s->flight_sqn);
    *bytes = hf_load_relaxed_u64(&s->header->payload_bytes) - hf_load_relaxed_u64(&s->flight_payload);
    *retained_bytes = hf_load_relaxed_u64(&s->header->tail) - hf_load_relaxed_u64(&s->released_position);
}

void hf_source_stable(struct hf_source *s, uint64_t sqn)
{
    if (hf_process_forked(s->token)) {
        return;
    }
    hf_store_relaxed_u64(&s->header->stable_sqn, sqn);
    hf_store_relaxed_u64(&s->header->heartbeat_ns, (uint64_t)hf_now_ns());
}

void hf_source_sri(struct hf_source *s, const struct hf_sri_store *stores, uint32_t count,
                   const struct hf_sri_groups *groups)
{
    if (hf_process_forked(s->token)) {
        return;
    }
    struct hf_stream_header *header = s->header;
    uint64_t version = header->sri_version;
    uint32_t kept = count < HF_STORES_MAX ? count : HF_STORES_MAX;
    hf_store_relaxed_u64(&header->sri_version, version + 1);
    hf_fence_seq_cst(); /* odd before the first change; pairs with the acquire fence in hf_stream_sri */
    hf_store_relaxed_u32(&header->sri_count, kept);
    uint64_t grouped;
    memcpy(&grouped, groups, sizeof grouped);
    hf_store_relaxed_u64(hf_word((uint8_t *)&header->sri_groups, 0), grouped);
    for (uint32_t i = 0; i < kept; i++) {
        struct hf_sri_store store = stores[i];
        for (uint32_t at = 0; at < sizeof store; at += 8) {
            uint64_t word;
            memcpy(&word, (const uint8_t *)&store + at, sizeof word);
            hf_store_relaxed_u64(hf_word((uint8_t *)&header->sri[i], at), word);
        }
    }
    hf_store_release_u64(&header->sri_version, version + 2); /* pairs with hf_stream_sri */
}

void hf_source_fetch_ahead(struct hf_source *s, uint64_t length, int64_t begin_ns)
{
    int64_t idle_ns = begin_ns - s->sent_ns;
    s->sent_ns = hf_now_ns();
    if (idle_ns > s->sent_ns - begin_ns) {
        const uint8_t *next = s->ring + (s->position & s->mask); /* the second mapping follows the ring */
        for (uint64_t i = 0; i < hf_lesser(length, HF_AHEAD_MAX); i += 64) {
            hf_prefetch_write(next + i);
        }
    }
}
