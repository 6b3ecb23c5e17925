/* limits.c: what this machine can do at best, without holdfast: a cache line there and back, a copy, the smallest ring. */
#include <string.h>

#include "bench.h"

enum { LINE = 128, RING_SLOTS = 4096, RING_SLOTS_LARGE = 64, ROWS = 64 };

/* ---- the bare cache-line ping-pong, also the probe that stands around every run
 *
 *   core 0: ping -----> core 1
 *        <----- pong                one line each way, nothing else shared */

struct line_pair {
    _Alignas(LINE) uint64_t ping;
    _Alignas(LINE) uint64_t pong;
    _Alignas(LINE) uint64_t turn;
};

static void line_partner(void *arg)
{
    struct line_pair *pair = arg;
    uint32_t turns = 0;
    for (uint64_t seen = 0; seen != UINT64_MAX;) {
        uint64_t ping = hf_load_acquire_u64(&pair->ping);
        if (ping == seen) {
            bench_spin(&turns);
            continue;
        }
        seen = ping;
        hf_store_release_u64(&pair->pong, ping);
    }
}

static inline void line_trip(void *arg)
{
    struct line_pair *pair = arg;
    uint64_t turn = ++pair->turn;
    uint32_t turns = 0;
    hf_store_release_u64(&pair->ping, turn);
    while (hf_load_acquire_u64(&pair->pong) != turn) {
        bench_spin(&turns);
    }
}

double line_round_trip(const struct bench *bench, uint64_t blocks, struct sample *out)
{
    static struct sample scratch; /* too large for a stack */
    struct line_pair pair = {.ping = 0};
    struct bench_thread partner;
    bench_start(&partner, bench, 1, line_partner, &pair);
    for (int i = 0; i < BENCH_BLOCK * 4; i++) {
        line_trip(&pair);
    }
    out = out == NULL ? &scratch : out;
    bench_round_trips(line_trip, &pair, blocks, out);
    hf_store_release_u64(&pair.ping, UINT64_MAX);
    bench_join(&partner);
    return out->value;
}

static void run_line(const struct bench *bench, const struct words *words, struct sample *out)
{
    (void)words;
    (void)line_round_trip(bench, BENCH_BLOCKS, out);
}

/* ---- memcpy */

static void run_memcpy(const struct bench *bench, const struct words *words, struct sample *out)
{
    (void)bench;
    uint64_t bytes = bench_number(words, 1, 512 << 10);
    if (bytes == 0 || bytes > UINT64_C(1) << 32) {
        bench_usage("memcpy takes 1 byte to 4 GiB");
    }
    uint64_t rounds = (UINT64_C(4) << 30) / bytes;
    rounds = rounds > 200000 ? 200000 : rounds + 1;
    uint8_t *from = bench_memory(bytes);
    uint8_t *to = bench_memory(bytes);
    int64_t start = bench_now();
    for (uint64_t i = 0; i < rounds; i++) {
        memcpy(to, from, bytes);
        __asm__ volatile("" ::"r"(to) : "memory"); /* or the compiler drops all copies but the last */
    }
    out->value = (double)(rounds * bytes) / (double)(bench_now() - start);
    out->unit = "GB/s";
    out->bytes = bytes;
    out->count = rounds;
    free(from);
    free(to);
}

/* ---- the bare ring: one producer, one consumer, no header, no number, no checks
 *
 *   core 0: row -> slot, tail += 1 (published one by one) -----> core 1: reads 8 bytes of each, head = tail
 *
 * Both sides keep a copy of the other's index and look again only when it says full or empty; they pause between looks, because
 * a ring whose idle side hammers the other's index is half as fast. */

struct ring {
    _Alignas(LINE) uint64_t tail;
    _Alignas(LINE) uint64_t head;
    _Alignas(LINE) uint8_t *slots;
    uint64_t mask;
    uint64_t bytes;
    uint64_t messages;
    uint64_t bad;
    int64_t end_ns; /* when the consumer had the last one */
};

static inline __attribute__((always_inline)) void produce(struct ring *ring, uint8_t *rows, const uint64_t bytes)
{
    uint64_t head = 0;
    uint32_t turns = 0;
    uint8_t *slots = ring->slots;
    uint64_t mask = ring->mask;
    for (uint64_t i = 0, n = ring->messages; i < n; i++) {
        uint8_t *row = rows + (i & (ROWS - 1)) * bytes;
        memcpy(row, &i, sizeof i);
        while (i - head > mask) {
            head = hf_load_acquire_u64(&ring->head); /* pairs with consume: head */
            bench_pause(&turns);
        }
        memcpy(slots + (i & mask) * bytes, row, bytes);
        hf_store_release_u64(&ring->tail, i + 1); /* pairs with consume: tail */
    }
}

static inline __attribute__((always_inline)) uint64_t consume(struct ring *ring, const uint64_t bytes)
{
    uint64_t tail = 0;
    uint64_t bad = 0;
    uint32_t turns = 0;
    for (uint64_t i = 0, n = ring->messages; i < n;) {
        if (i == tail) {
            tail = hf_load_acquire_u64(&ring->tail); /* pairs with produce: tail */
            bench_pause(&turns);
            continue;
        }
        for (; i != tail; i++) {
            uint64_t number;
            memcpy(&number, ring->slots + (i & ring->mask) * bytes, sizeof number);
            bad += number != i;
        }
        hf_store_release_u64(&ring->head, i); /* pairs with produce: head */
    }
    return bad;
}

/* A constant size lets the compiler inline the copy, which is what a program made for one size would have. */
static void ring_produce(struct ring *ring, uint8_t *rows)
{
    switch (ring->bytes) {
    case 16:
        produce(ring, rows, 16);
        break;
    case 128:
        produce(ring, rows, 128);
        break;
    case 1024:
        produce(ring, rows, 1024);
        break;
    default:
        produce(ring, rows, ring->bytes);
    }
}

static void ring_consume(void *arg)
{
    struct ring *ring = arg;
    switch (ring->bytes) {
    case 16:
        ring->bad = consume(ring, 16);
        break;
    case 128:
        ring->bad = consume(ring, 128);
        break;
    case 1024:
        ring->bad = consume(ring, 1024);
        break;
    default:
        ring->bad = consume(ring, ring->bytes);
    }
    ring->end_ns = bench_now();
}

static void run_ring(const struct bench *bench, const struct words *words, struct sample *out)
{
    uint64_t bytes = bench_number(words, 1, 16);
    if (bytes < 8 || bytes > 1 << 20) {
        bench_usage("ring takes 8 bytes to 1 MiB");
    }
    uint64_t slots = bytes <= 1024 ? RING_SLOTS : RING_SLOTS_LARGE;
    struct ring ring = {.mask = slots - 1, .bytes = bytes};
    ring.messages = bytes <= 128 ? 6000000 : bytes <= 1024 ? 2000000 : 30000;
    ring.slots = bench_memory(slots * bytes);
    uint8_t *rows = bench_memory(ROWS * bytes);
    struct bench_thread consumer;
    bench_start(&consumer, bench, 1, ring_consume, &ring);
    int64_t start = bench_now();
    ring_produce(&ring, rows);
    bench_join(&consumer);
    out->value = (double)ring.messages * 1e9 / (double)(ring.end_ns - start);
    out->unit = "msg/s";
    out->bytes = bytes;
    out->count = ring.messages;
    out->flight = slots * bytes;
    if (ring.bad != 0) {
        bench_die("the bare ring lost order", HF_DAMAGED);
    }
    free(ring.slots);
    free(rows);
}

/* ---- the clock, since it stands in every histogram */

static void run_clock(const struct bench *bench, const struct words *words, struct sample *out)
{
    (void)bench;
    (void)words;
    enum { READS = 1000000 };
    int64_t start = bench_now();
    for (int i = 0; i < READS; i++) {
        (void)bench_now();
    }
    out->value = (double)(bench_now() - start) / READS;
    out->unit = "ns";
    out->count = READS;
}

const struct bench_case limit_cases[] = {
    {"line", "                     bare cache-line round trip", run_line},
    {"memcpy", ":BYTES             one copy, again and again", run_memcpy},
    {"ring", ":BYTES               bare header-less ring, 4096 slots, published one by one", run_ring},
    {"clock", "                    one clock_gettime", run_clock},
    {NULL, NULL, NULL},
};
