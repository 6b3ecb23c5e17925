/* path_cases.c: the hot paths one by one, on one thread: what each costs by itself, without the wait for another core's cache line.
 * The phases of a round follow each other as in life; only the one that is asked for runs inside path_measured, which is what a
 * simulator that counts instructions is told to look at. Beside them what each path cannot do without, as bare code. */
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "log_world.h"
#include "world.h"

enum { CHUNK = 1024, ROWS = 64, BATCH = 256, BYTES = 128, BARE_SLOTS = 8192, WARM = 48, ROUNDS = 400 };
enum { RING = 1 << 20 };
#define SEGMENT (UINT64_C(1) << 20)

struct path {
    struct world world;
    struct seat seat;
    struct hf_log *log;
    uint64_t bytes;
    uint8_t *row;
    uint8_t *out;
    uint8_t *staging; /* frames of one chunk, as hf_reader_copy gave them */
    uint64_t staged;
    uint64_t next;  /* number behind the last one read */
    uint64_t acked; /* and acknowledged */
    uint8_t *slots; /* of the bare ring */
    uint64_t tail;
    uint64_t head;
    uint32_t sum;
    int full; /* 1: the segment is full, nothing was appended */
};

static void do_nothing(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        __asm__ volatile("" ::"r"(path) : "memory");
    }
}

static void do_clock(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        struct timespec now;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        path->sum += (uint32_t)now.tv_nsec;
    }
}

static void do_send(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        bench_must(hf_source_send(path->world.source, path->row, path->bytes), "hf_source_send");
    }
}

static void do_rows(struct path *path)
{
    for (int64_t sent = 0; sent < CHUNK;) {
        int64_t status = hf_source_send_rows(path->world.source, path->row, path->bytes, 0, ROWS);
        sent += bench_must(status, "hf_source_send_rows");
    }
}

static void do_receive(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        struct hf_entry entry;
        bench_must(hf_reader_receive(path->seat.reader, &entry, path->out, path->bytes) - 1, "hf_reader_receive");
    }
    path->next += CHUNK;
}

static void do_poll(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        struct hf_entry entry;
        bench_must(hf_reader_receive(path->seat.reader, &entry, path->out, path->bytes), "hf_reader_receive");
    }
}

static void do_batch(struct path *path)
{
    struct hf_entry entries[BATCH];
    for (uint64_t end = path->next + CHUNK; path->next < end;) {
        uint64_t from = 0;
        uint64_t to = 0;
        int64_t got = hf_reader_batch(path->seat.reader, entries, BATCH, RING / 8, &from, &to);
        path->next += (uint64_t)bench_must(got - 1, "hf_reader_batch") + 1;
        bench_must(hf_reader_unpin(path->seat.reader, from, UINT64_MAX), "hf_reader_unpin");
    }
}

static void do_copy(struct path *path)
{
    uint64_t first = 0;
    for (uint64_t end = path->next + CHUNK; path->next < end;) {
        uint8_t *at = path->staging + path->staged;
        int64_t got = hf_reader_copy(path->seat.reader, at, HF_STAGING_MAX, &first, &path->next);
        path->staged += (uint64_t)bench_must(got - 1, "hf_reader_copy") + 1;
    }
}

static void do_append(struct path *path)
{
    int64_t status = hf_log_append(path->log, path->staging, path->staged);
    path->full = status == HF_ROLL;
    bench_must(path->full != 0 ? HF_OK : status, "hf_log_append");
}

static void do_ack(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        path->acked++;
        hf_board_ack(path->seat.board, path->seat.bells, path->seat.line, path->acked, path->acked);
    }
}

static void do_release(struct path *path)
{
    world_release(&path->world);
}

static void bare_send(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        memcpy(path->slots + path->tail % BARE_SLOTS * path->bytes, path->row, path->bytes);
        hf_store_release_u64(&path->tail, path->tail + 1); /* pairs with bare_receive */
    }
}

static void bare_receive(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        if (hf_load_acquire_u64(&path->tail) != path->head) { /* pairs with bare_send */
            memcpy(path->out, path->slots + path->head++ % BARE_SLOTS * path->bytes, path->bytes);
            __asm__ volatile("" ::"r"(path->out) : "memory"); /* or the compiler drops the copy */
        }
    }
}

static void bare_append(struct path *path)
{
    for (int i = 0; i < CHUNK; i++) {
        uint8_t *slot = path->slots + path->tail++ % BARE_SLOTS * path->bytes;
        memcpy(slot, path->row, path->bytes);
        path->sum = hf_crc32c(path->sum, slot, path->bytes);
    }
    path->head = path->tail;
}

typedef void (*phase_fn)(struct path *path);

/* What is inside is counted: callgrind's --toggle-collect takes this name. */
static __attribute__((noinline, noclone)) void path_measured(phase_fn phase, struct path *path)
{
    phase(path);
    __asm__ volatile("" ::: "memory");
}

static void path_open(struct path *path, const struct bench *bench, const uint8_t *uuid, int fd)
{
    struct world_config config = {.ring_bytes = RING};
    memcpy(config.uuid, uuid, sizeof config.uuid);
    world_open(&path->world, bench, &config);
    world_sit(&path->world, &path->seat, HF_ROLE_RECEIVER, 0, 0);
    path->log = bench_memory_log(fd, uuid, SEGMENT, 2 * SEGMENT);
    path->row = bench_memory(path->bytes);
    path->out = bench_memory(path->bytes);
    path->staging = bench_memory(2 * HF_STAGING_MAX);
    path->slots = bench_memory(BARE_SLOTS * path->bytes);
}

static void path_close(struct path *path)
{
    world_rise(&path->seat);
    world_close(&path->world);
    hf_log_close(path->log);
    free(path->row);
    free(path->out);
    free(path->staging);
    free(path->slots);
}

static void run_path(const struct bench *bench, const struct words *words, struct sample *out)
{
    static const char *const names[] = {"nothing",      "clock",       "send", "rows",   "poll",
                                        "receive",      "batch",       "copy", "append", "bare-send",
                                        "bare-receive", "bare-append", "ack",  "release"};
    static const phase_fn phases[] = {do_nothing,   do_clock,    do_send, do_rows,   do_poll,
                                      do_receive,   do_batch,    do_copy, do_append, bare_send,
                                      bare_receive, bare_append, do_ack,  do_release};
    static const uint8_t uuid[16] = {BENCH_UUID};
    phase_fn wanted = phases[bench_choice(words, 1, names, sizeof names / sizeof names[0])];
    struct path path = {.bytes = bench_number(words, 2, BYTES)};
    uint64_t rounds = bench_number(words, 3, ROUNDS);
    if (path.bytes == 0 || path.bytes > HF_STAGING_MAX / CHUNK || rounds == 0) {
        bench_usage("path takes 1 to 256 bytes, and 1 round or more");
    }
    int fd = bench_directory(bench->memory_dir, "path");
    path_open(&path, bench, uuid, fd);
    phase_fn send = wanted == do_send ? do_send : do_rows;
    phase_fn read = wanted == do_receive || wanted == do_batch ? wanted : do_copy;
    phase_fn order[] = {send,       read,     do_append, do_ack,       do_release, do_poll,
                        do_nothing, do_clock, bare_send, bare_receive, bare_append};
    double *means = bench_memory(rounds * sizeof *means);
    int measured = 0;
    for (uint64_t round = 0; round < WARM + rounds; round++) {
        path.staged = 0;
        for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
            if (order[i] == do_append && path.staged == 0) {
                continue;
            }
            int64_t start = bench_now();
            if (order[i] == wanted && round >= WARM) {
                path_measured(wanted, &path);
                means[measured++] = (double)(bench_now() - start) / CHUNK;
            } else {
                order[i](&path);
            }
            if (path.full != 0) { /* a roll is a store's business once in 64 MiB: not counted */
                bench_must(hf_log_roll(path.log), "hf_log_roll");
                path.full = 0;
                measured -= order[i] == wanted && round >= WARM;
                i--;
            }
        }
    }
    out->count = rounds * CHUNK;
    out->value = bench_median(means, measured);
    out->unit = "ns";
    out->bytes = path.bytes;
    free(means);
    path_close(&path);
    bench_remove(bench->memory_dir, "path", fd);
}

const struct bench_case path_cases[] = {
    {"path",
     ":nothing|clock|send|rows|poll|receive|batch|copy|append|ack|release|bare-...[:BYTES[:ROUNDS]]  one hot path, on "
     "one "
     "core",
     run_path},
    {NULL, NULL, NULL},
};
