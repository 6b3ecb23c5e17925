/* world.c: one source with its ring, board and bells (world.h). */
#include "world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "board/bell.h"
#include "files.h"

enum { FRAGMENT_BYTES = 65536, PIN_TIMEOUT_MS = 100 };

static struct hf_map *create(int fd, uint32_t kind, uint64_t bytes, const uint8_t *uuid)
{
    struct hf_map *map = NULL;
    bench_must(hf_map_create(fd, kind, bytes, 0, uuid, 0, &map), "hf_map_create");
    hf_map_publish(map);
    return map;
}

/* One domain directory for all worlds of this process: a process stays in a domain as long as it lives. */
static int domain(const struct bench *bench)
{
    static int fd = -1;
    char name[32];
    if (fd < 0) {
        (void)snprintf(name, sizeof name, "domain-%d", (int)getpid());
        fd = bench_directory(bench->memory_dir, name);
        bench_must(hf_process_join(fd), "hf_process_join");
    }
    return fd;
}

void world_open(struct world *world, const struct bench *bench, const struct world_config *config)
{
    static const uint8_t no_uuid[16];
    *world = (struct world){.bench = bench, .domain_fd = domain(bench)};
    (void)hf_wait_setup();
    world->board_fd = bench_shared();
    world->bells_fd = bench_shared();
    world->stream_fd = bench_shared();
    world->board = create(world->board_fd, HF_KIND_BOARD, sizeof(struct hf_board), config->uuid);
    world->bells = create(world->bells_fd, HF_KIND_BELLS, sizeof(struct hf_bells), no_uuid);
    struct hf_stream_config stream = {
        .incarnation = 1,
        .start_sqn = config->start_sqn,
        .ring_bytes = config->ring_bytes,
        .fragment_bytes = FRAGMENT_BYTES,
        .pin_timeout_ms = PIN_TIMEOUT_MS,
        .topic = "bench",
    };
    memcpy(stream.uuid, config->uuid, sizeof stream.uuid);
    if (config->ring_bytes / 8 < FRAGMENT_BYTES) {
        stream.fragment_bytes = (uint32_t)(config->ring_bytes / 8);
    }
    bench_must(hf_source_create(world->stream_fd, &stream, world->board, world->bells, &world->source),
               "hf_source_create");
}

void world_close(struct world *world)
{
    hf_source_destroy(world->source);
    hf_map_detach(world->board);
    hf_map_detach(world->bells);
    (void)close(world->stream_fd);
    (void)close(world->board_fd);
    (void)close(world->bells_fd);
}

void world_sit(struct world *world, struct seat *seat, int role, int index, int forked)
{
    *seat = (struct seat){.board = world->board, .bells = world->bells};
    if (forked) {
        bench_must(hf_process_join(world->domain_fd), "hf_process_join");
        bench_must(hf_map_attach(world->board_fd, HF_KIND_BOARD, 1, 1, &seat->board), "attach board");
        bench_must(hf_map_attach(world->bells_fd, HF_KIND_BELLS, 1, 1, &seat->bells), "attach bells");
    }
    int fd = bench_read_only(world->stream_fd);
    bench_must(hf_map_attach(fd, HF_KIND_STREAM, 0, 1, &seat->stream), "attach stream");
    (void)close(fd);
    seat->bell = (uint32_t)bench_must(hf_bell_claim(seat->bells, world->domain_fd), "hf_bell_claim");
    struct hf_identity who = {
        .uuid = {(uint8_t)(index + 1)},
        .incarnation = 1,
        .registration_id = (uint32_t)index + 1,
        .role = (uint32_t)role,
        .level = HF_LEVEL_MEMORY,
        .bell = seat->bell,
    };
    (void)snprintf(who.name, sizeof who.name, "bench-%d", index);
    struct hf_line_view holder;
    seat->line = bench_must(hf_board_claim(seat->board, world->domain_fd, &who, &holder), "hf_board_claim");
    struct hf_board_line *line = hf_board_line_at(seat->board, seat->line);
    uint64_t next = hf_source_next(world->source);
    hf_line_range(line, next, UINT64_MAX);
    hf_board_ack(seat->board, seat->bells, seat->line, next, next);
    bench_must(hf_reader_open(seat->stream, seat->board, seat->bells, seat->line, &seat->reader), "hf_reader_open");
    bench_must(hf_reader_seek(seat->reader, next), "hf_reader_seek");
    seat->acked = next;
    if (!forked) {
        world->line[world->joined++] = line;
    }
}

void world_rise(struct seat *seat)
{
    hf_reader_close(seat->reader);
    bench_must(hf_board_release(seat->board, seat->line), "hf_board_release");
    hf_map_detach(seat->stream);
}

void world_release(struct world *world)
{
    uint64_t lowest = UINT64_MAX;
    for (int i = 0; i < world->joined; i++) {
        uint64_t ack = hf_load_acquire_u64(&world->line[i]->ack); /* pairs with hf_board_ack: ack */
        lowest = ack < lowest ? ack : lowest;
    }
    bench_must(hf_source_release(world->source, lowest), "hf_source_release");
}

uint64_t world_ring(uint64_t messages, uint64_t bytes)
{
    uint64_t needed = messages * (sizeof(struct hf_frame) + bytes);
    uint64_t ring = 65536;
    while (ring < needed && ring < UINT64_C(1) << 30) {
        ring *= 2;
    }
    return ring;
}
