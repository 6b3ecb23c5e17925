/* stream_kit.h: what the stream's tests share: rings and boards in anonymous memory, payloads that prove themselves. */
#ifndef HF_STREAM_KIT_H
#define HF_STREAM_KIT_H
#include "base/clock.h"
#include "base/process.h"
#include "board/bell.h"
#include "board/wait.h"
#include "check.h"
#include "stream/frame.h"
#include "stream/source.h"

#define KIT_RING (UINT64_C(1) << 16)

static inline struct hf_stream_config kit_config(void)
{
    return (struct hf_stream_config){.uuid = {7},
                                     .incarnation = 3,
                                     .ring_bytes = KIT_RING,
                                     .session_id = 42,
                                     .fragment_bytes = 1024,
                                     .pin_timeout_ms = 3600 * 1000,
                                     .topic = "topic"};
}

static inline struct hf_source *kit_source_on(int fd, const struct hf_stream_config *config, struct hf_map *board)
{
    struct hf_source *s = NULL;
    CHECK_EQ(hf_source_create(fd, config, board, NULL, &s), HF_OK);
    return s;
}

static inline struct hf_source *kit_source(const struct hf_stream_config *config, struct hf_map *board)
{
    int fd = check_memory();
    struct hf_source *s = kit_source_on(fd, config, board);
    close(fd);
    return s;
}

/* A new board, or new bells, of the source of kit_config. */
static inline struct hf_map *kit_map(uint32_t kind, uint64_t bytes)
{
    static const uint8_t uuid[16] = {7};
    struct hf_map *map = NULL;
    int fd = check_memory();
    CHECK_EQ(hf_map_create(fd, kind, bytes, 0, uuid, 0, &map), HF_OK);
    hf_map_publish(map);
    close(fd);
    return map;
}

/* A board with nobody on it; tests write its lines by hand. */
static inline struct hf_map *kit_board(void)
{
    struct hf_map *map = kit_map(HF_KIND_BOARD, sizeof(struct hf_board));
    struct hf_board *board = (struct hf_board *)(void *)map->base;
    for (int i = 0; i < HF_BOARD_LINES; i++) {
        board->lines[i].pin = UINT64_MAX;
    }
    return map;
}

static inline struct hf_board_line *kit_line(struct hf_map *board, int index)
{
    struct hf_board_line *line = &((struct hf_board *)(void *)board->base)->lines[index];
    line->state = HF_LINE_ACTIVE;
    return line;
}

static inline struct hf_reader *kit_reader(struct hf_source *s, struct hf_map *board, int64_t line)
{
    struct hf_reader *r = NULL;
    CHECK_EQ(hf_reader_open(hf_source_map(s), board, NULL, line, &r), HF_OK);
    return r;
}

static inline struct hf_stream_header *kit_header(struct hf_source *s)
{
    return (struct hf_stream_header *)(void *)hf_source_map(s)->base;
}

static inline uint8_t *kit_ring(struct hf_source *s)
{
    return s->ring;
}

static inline struct hf_frame *kit_frame(struct hf_source *s, uint64_t position)
{
    return (struct hf_frame *)(void *)(s->ring + (position & s->mask));
}

static inline uint64_t kit_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Bytes that only (seed, length) gives; each byte counts. */
static inline void kit_fill(uint8_t *out, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        out[i] = (uint8_t)(kit_mix(seed * 1000003 + i / 8 + length) >> (8 * (i % 8)));
    }
}

static inline int kit_is(const uint8_t *data, uint64_t length, uint64_t seed)
{
    for (uint64_t i = 0; i < length; i++) {
        if (data[i] != (uint8_t)(kit_mix(seed * 1000003 + i / 8 + length) >> (8 * (i % 8)))) {
            return 0;
        }
    }
    return 1;
}

/* Sends kit_fill(length, seed). */
static inline int64_t kit_send(struct hf_source *s, uint64_t length, uint64_t seed)
{
    static uint8_t data[1 << 20];
    CHECK(length <= sizeof data);
    kit_fill(data, length, seed);
    return hf_source_send(s, data, length);
}

/* Sends messages of `length` bytes, releasing all, until the position has gone `bytes` further. */
static inline void kit_run(struct hf_source *s, uint64_t length, uint64_t bytes)
{
    for (uint64_t begin = s->position; s->position - begin < bytes;) {
        CHECK(kit_send(s, length, s->next_sqn) >= 0);
        CHECK(hf_source_release(s, hf_source_next(s)) > 0);
    }
}

/* The next message must be kit_fill(length, seed). */
static inline void kit_expect(struct hf_reader *r, uint64_t length, uint64_t seed)
{
    static uint8_t buf[1 << 20];
    struct hf_entry entry;
    CHECK_EQ(hf_reader_receive(r, &entry, buf, sizeof buf), 1);
    CHECK_EQ(entry.length, length);
    CHECK(kit_is(buf, length, seed));
}
#endif
