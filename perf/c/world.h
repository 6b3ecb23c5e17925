/* world.h: one source with its ring, board and bells, as the engine would set them up, all of it in unnamed shared memory that
 * goes with the process (the domain directory below --memory stays, for the caller to remove). Readers attach through a descriptor of their own, read-only, like another process would. */
#ifndef HF_PERF_WORLD_H
#define HF_PERF_WORLD_H

#include "bench.h"
#include "board/board.h"
#include "board/wait.h"
#include "stream/stream.h"

enum { WORLD_PARTICIPANTS = 64, WORLD_LENGTH_MIN = 8 };

struct world {
    const struct bench *bench;
    int domain_fd;
    int board_fd;
    int bells_fd;
    int stream_fd;
    struct hf_map *board;
    struct hf_map *bells;
    struct hf_source *source;
    struct hf_board_line *line[WORLD_PARTICIPANTS]; /* of those who joined in this process */
    int joined;
};

/* One participant: its mappings, its reader and its line. */
struct seat {
    struct hf_map *board;
    struct hf_map *bells;
    struct hf_map *stream;
    struct hf_reader *reader;
    int64_t line;
    uint32_t bell;
    uint64_t acked; /* next number not yet acknowledged; written by its thread */
};

struct world_config {
    uint64_t ring_bytes;
    uint64_t start_sqn;
    uint8_t uuid[16]; /* of the source */
};

void world_open(struct world *world, const struct bench *bench, const struct world_config *config);
void world_close(struct world *world);
/* Takes a line on the board and opens a reader there. forked: this process is a child of the one that opened the world. */
void world_sit(struct world *world, struct seat *seat, int role, int index, int forked);
void world_rise(struct seat *seat);
/* Releases what every participant of this process has acknowledged. */
void world_release(struct world *world);
/* Bytes of ring that `messages` frames of `bytes` payload need, as a power of two of at least 64 KiB. */
uint64_t world_ring(uint64_t messages, uint64_t bytes);
#endif
