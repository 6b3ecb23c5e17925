/* stream_cases.c: the ring between threads. Both sides run in this process, on two cores; the bytes and the code are those of two
 * processes, since the reader has a mapping of its own. */
#include <string.h>

#include "files.h"
#include "world.h"

enum { ROWS = 64, BATCH = 256, ACK_EVERY = 256, PING_BYTES = 16, PING_RING = 1 << 20, WAIT_NS = 50000000 };

/* Sends one message; while the ring is full, releases what the readers have acknowledged. */
static void send_one(struct world *world, const uint8_t *data, uint64_t bytes)
{
    uint32_t turns = 0;
    for (;;) {
        int64_t sqn = hf_source_send(world->source, data, bytes);
        if (sqn >= 0) {
            return;
        }
        if (sqn != HF_RETENTION && sqn != HF_PINNED) {
            bench_die("hf_source_send", sqn);
        }
        world_release(world);
        bench_pause(&turns);
    }
}

static void acknowledge(struct seat *seat, uint64_t next)
{
    seat->acked = next;
    hf_board_ack(seat->board, seat->bells, seat->line, next, next);
}

/* ---- cping: the round trip over two streams
 *
 *   core 0: send -> [stream 1] -> receive, send :core 1
 *        receive <- [stream 2] <-                           16 bytes, busy_spin, copied out on both sides */

struct cping {
    struct world out;
    struct world back;
    struct seat far;  /* reads `out` on core 1 */
    struct seat near; /* reads `back` on core 0 */
    uint64_t turn;
    uint64_t bad;
};

static inline uint64_t receive_number(struct seat *seat)
{
    uint8_t buffer[PING_BYTES];
    struct hf_entry entry;
    int64_t got = 0;
    while (got == 0) {
        got = hf_reader_receive_wait(seat->reader, &entry, buffer, sizeof buffer, HF_WAIT_BUSY_SPIN, WAIT_NS);
    }
    bench_must(got, "hf_reader_receive_wait");
    uint64_t number;
    memcpy(&number, buffer, sizeof number);
    if (entry.sequence_number + 1 - seat->acked >= ACK_EVERY) {
        acknowledge(seat, entry.sequence_number + 1);
    }
    return number;
}

static inline void send_number(struct world *world, uint64_t number)
{
    uint8_t buffer[PING_BYTES] = {0};
    memcpy(buffer, &number, sizeof number);
    send_one(world, buffer, sizeof buffer);
}

static void cping_partner(void *arg)
{
    struct cping *ping = arg;
    for (uint64_t number = 0; number != UINT64_MAX;) {
        number = receive_number(&ping->far);
        send_number(&ping->back, number);
    }
}

static void cping_trip(void *arg)
{
    struct cping *ping = arg;
    send_number(&ping->out, ++ping->turn);
    ping->bad += receive_number(&ping->near) != ping->turn;
}

static void run_cping(const struct bench *bench, const struct words *words, struct sample *out)
{
    (void)words;
    struct cping ping = {.turn = 0};
    world_open(&ping.out, bench, &(struct world_config){.ring_bytes = PING_RING, .uuid = {1}});
    world_open(&ping.back, bench, &(struct world_config){.ring_bytes = PING_RING, .uuid = {2}});
    world_sit(&ping.out, &ping.far, HF_ROLE_RECEIVER, 0, 0);
    world_sit(&ping.back, &ping.near, HF_ROLE_RECEIVER, 0, 0);
    struct bench_thread partner;
    bench_start(&partner, bench, 1, cping_partner, &ping);
    for (int i = 0; i < BENCH_BLOCK * 4; i++) {
        cping_trip(&ping);
    }
    bench_round_trips(cping_trip, &ping, BENCH_BLOCKS, out);
    send_number(&ping.out, UINT64_MAX);
    bench_join(&partner);
    out->bytes = PING_BYTES;
    out->flight = PING_RING;
    if (ping.bad != 0) {
        bench_die("cping got another number than it sent", HF_DAMAGED);
    }
    world_rise(&ping.far);
    world_rise(&ping.near);
    world_close(&ping.out);
    world_close(&ping.back);
}

/* ---- oneway: throughput
 *
 *   core 0: rows of 64, or single sends -> [stream] -> core 1..: batches in place, or one copy per message
 *                   \-- released when every reader has acknowledged (that is the flow control; nothing is lost)
 *
 * The whole payload is written; readers check the number in its first 8 bytes. */

struct oneway {
    struct world world;
    struct seat seat[WORLD_PARTICIPANTS];
    uint64_t bytes;
    uint64_t messages;
    uint64_t batch_bytes;
    int copies;
    int crowded; /* 1: not every thread has a core of its own */
};

struct oneway_reader {
    struct oneway *shared;
    struct seat *seat;
    uint64_t bad;
    int64_t end_ns;
};

/* Readers that share a core let each other run. */
static void idle(const struct oneway *shared, uint32_t *turns)
{
    if (shared->crowded != 0) {
        (void)sched_yield();
    } else {
        bench_pause(turns);
    }
}

static uint64_t read_batches(struct oneway *shared, struct seat *seat)
{
    struct hf_entry entries[BATCH];
    const uint8_t *base = hf_reader_base(seat->reader);
    uint64_t bad = 0;
    uint32_t turns = 0;
    for (uint64_t next = 0; next < shared->messages;) {
        uint64_t from = 0;
        uint64_t to = 0;
        int64_t got = hf_reader_batch(seat->reader, entries, BATCH, shared->batch_bytes, &from, &to);
        if (got == 0) {
            idle(shared, &turns);
            continue;
        }
        bench_must(got, "hf_reader_batch");
        for (int64_t i = 0; i < got; i++, next++) {
            uint64_t number;
            memcpy(&number, base + entries[i].offset, sizeof number);
            bad += number != next;
        }
        bench_must(hf_reader_unpin(seat->reader, from, UINT64_MAX), "hf_reader_unpin");
        acknowledge(seat, next);
    }
    return bad;
}

static uint64_t read_copies(struct oneway *shared, struct seat *seat)
{
    uint8_t *buffer = bench_memory(shared->bytes);
    uint64_t bad = 0;
    uint32_t turns = 0;
    for (uint64_t next = 0; next < shared->messages;) {
        struct hf_entry entry;
        int64_t got = hf_reader_receive(seat->reader, &entry, buffer, shared->bytes);
        if (got == 1) {
            uint64_t number;
            memcpy(&number, buffer, sizeof number);
            bad += number != next++;
        } else {
            bench_must(got, "hf_reader_receive");
            idle(shared, &turns);
        }
        if (next - seat->acked >= ACK_EVERY || (got == 0 && next != seat->acked)) {
            acknowledge(seat, next);
        }
    }
    acknowledge(seat, shared->messages);
    free(buffer);
    return bad;
}

static void oneway_reader(void *arg)
{
    struct oneway_reader *reader = arg;
    reader->bad = (reader->shared->copies != 0 ? read_copies : read_batches)(reader->shared, reader->seat);
    reader->end_ns = bench_now();
}

static void send_rows(struct oneway *shared, uint8_t *rows)
{
    uint32_t turns = 0;
    for (uint64_t next = 0; next < shared->messages;) {
        uint64_t count = shared->messages - next < ROWS ? shared->messages - next : ROWS;
        for (uint64_t i = 0; i < count; i++, next++) {
            memcpy(rows + i * shared->bytes, &next, sizeof next);
        }
        for (uint64_t sent = 0; sent < count;) {
            int64_t status = hf_source_send_rows(shared->world.source, rows + sent * shared->bytes, shared->bytes,
                                                 shared->bytes, count - sent);
            if (status > 0) {
                sent += (uint64_t)status;
                continue;
            }
            if (status != HF_RETENTION && status != HF_PINNED) {
                bench_die("hf_source_send_rows", status);
            }
            world_release(&shared->world);
            bench_pause(&turns);
        }
    }
}

static void send_singles(struct oneway *shared, uint8_t *row)
{
    for (uint64_t next = 0; next < shared->messages; next++) {
        memcpy(row, &next, sizeof next);
        send_one(&shared->world, row, shared->bytes);
    }
}

static void run_oneway(const struct bench *bench, const struct words *words, struct sample *out)
{
    static const char *const sends[] = {"rows", "single"};
    static const char *const receives[] = {"batch", "copy"};
    struct oneway shared = {.bytes = bench_number(words, 1, 16)};
    int single = bench_choice(words, 2, sends, 2);
    shared.copies = bench_choice(words, 3, receives, 2);
    uint64_t readers = bench_number(words, 4, 1);
    uint64_t ring = bench_number(words, 5, world_ring(shared.bytes <= 1024 ? 4096 : 64, shared.bytes));
    if (shared.bytes < WORLD_LENGTH_MIN || shared.bytes > ring / 8 || readers < 1 || readers > WORLD_PARTICIPANTS) {
        bench_usage("oneway takes 8 bytes to an eighth of the ring, and 1 to 64 receivers");
    }
    shared.messages = shared.bytes <= 128 ? 4000000 : shared.bytes <= 1024 ? 1000000 : 20000;
    shared.batch_bytes = ring / 8;
    shared.crowded = !bench_alone(bench, (int)readers + 1);
    world_open(&shared.world, bench, &(struct world_config){.ring_bytes = ring, .uuid = {3}});
    struct oneway_reader reader[WORLD_PARTICIPANTS];
    struct bench_thread thread[WORLD_PARTICIPANTS];
    for (uint64_t i = 0; i < readers; i++) {
        world_sit(&shared.world, &shared.seat[i], HF_ROLE_RECEIVER, (int)i, 0);
    }
    for (uint64_t i = 0; i < readers; i++) {
        int core = shared.crowded != 0 ? 1 : (int)i + 1; /* never the source's core */
        reader[i] = (struct oneway_reader){.shared = &shared, .seat = &shared.seat[i]};
        bench_start(&thread[i], bench, core, oneway_reader, &reader[i]);
    }
    uint8_t *rows = bench_memory(ROWS * shared.bytes);
    int64_t start = bench_now();
    (single != 0 ? send_singles : send_rows)(&shared, rows);
    int64_t end = start;
    uint64_t bad = 0;
    for (uint64_t i = 0; i < readers; i++) {
        bench_join(&thread[i]);
        end = reader[i].end_ns > end ? reader[i].end_ns : end;
        bad += reader[i].bad;
        world_rise(&shared.seat[i]);
    }
    if (bad != 0) {
        bench_die("oneway lost order", HF_DAMAGED);
    }
    out->value = (double)shared.messages * 1e9 / (double)(end - start);
    out->unit = "msg/s";
    out->bytes = shared.bytes;
    out->count = shared.messages;
    out->flight = ring;
    free(rows);
    world_close(&shared.world);
}

const struct bench_case stream_cases[] = {
    {"cping", "                    C round trip over two streams, 16 B", run_cping},
    {"oneway", ":BYTES:rows|single:batch|copy:RECEIVERS[:RING]", run_oneway},
    {NULL, NULL, NULL},
};
