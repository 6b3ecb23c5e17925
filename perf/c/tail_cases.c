/* tail_cases.c: one message at a time at a fixed rate, whatever became of the one before: how late is each where it is received?
 *
 *   core 0: the schedule: message i is due at start + i * period; it is sent then, or as soon as the one before it is
 *   core 1: receive; late by now - due, which the message says itself
 *
 * So a stall is felt by all that were due during it (no coordinated omission). "line": the same schedule over slots of bare memory,
 * as many bytes as the ring has, each a line of the cache with its number and then the payload: what this machine does at best. */
#include <string.h>

#include "world.h"

enum { TAIL_RING = 1 << 24, BYTES_MAX = 1024, LINE = 64, WARM_NS = 200000000, ACK_EVERY = 256 };

struct tail {
    const struct bench *bench;
    struct sample *out;
    uint64_t bytes; /* payload */
    uint64_t count; /* messages that count; `warm` come before them */
    uint64_t warm;
    int64_t period_ns;
    int64_t start_ns; /* 0: the receiver is not ready */
    uint8_t *slots;   /* of the bare line */
    uint64_t slot_bytes, slot_count;
    uint64_t room_below; /* the sender's: slots of lower numbers are free */
    struct world world;
    struct seat seat;
    uint64_t bad;
    _Alignas(LINE) uint64_t read_below; /* the receiver's alone: behind the last that it has read */
};

static uint8_t *slot_of(struct tail *tail, uint64_t number)
{
    return tail->slots + (number & (tail->slot_count - 1)) * tail->slot_bytes;
}

static void line_send(struct tail *tail, uint64_t number, const uint8_t *payload)
{
    uint8_t *slot = slot_of(tail, number);
    uint32_t turns = 0;
    while (number >= tail->room_below) {
        tail->room_below = hf_load_acquire_u64(&tail->read_below) + tail->slot_count; /* pairs with line_receive */
        bench_spin(&turns);
    }
    memcpy(slot + LINE, payload, tail->bytes);
    hf_store_release_u64((uint64_t *)slot, number + 1); /* pairs with line_receive */
}

static void line_receive(struct tail *tail, uint64_t number, uint8_t *payload)
{
    uint8_t *slot = slot_of(tail, number);
    uint32_t turns = 0;
    while (hf_load_acquire_u64((const uint64_t *)slot) != number + 1) { /* pairs with line_send */
        bench_spin(&turns);
    }
    memcpy(payload, slot + LINE, tail->bytes);
    if (number % ACK_EVERY == ACK_EVERY - 1) {
        hf_store_release_u64(&tail->read_below, number + 1); /* pairs with line_send */
    }
}

static void stream_send(struct tail *tail, uint64_t number, const uint8_t *payload)
{
    (void)number;
    uint32_t turns = 0;
    int64_t sqn;
    while ((sqn = hf_source_send(tail->world.source, payload, tail->bytes)) < 0) {
        if (sqn != HF_RETENTION && sqn != HF_PINNED) {
            bench_die("hf_source_send", sqn);
        }
        world_release(&tail->world);
        bench_spin(&turns);
    }
}

static void stream_receive(struct tail *tail, uint64_t number, uint8_t *payload)
{
    struct hf_entry entry;
    int64_t got = 0;
    while (got == 0) {
        got = hf_reader_receive_wait(tail->seat.reader, &entry, payload, BYTES_MAX, HF_WAIT_BUSY_SPIN, 50000000);
    }
    bench_must(got, "hf_reader_receive_wait");
    tail->bad += entry.sequence_number != number || entry.length != tail->bytes;
    if (number % ACK_EVERY == ACK_EVERY - 1) {
        tail->seat.acked = number + 1;
        hf_board_ack(tail->seat.board, tail->seat.bells, tail->seat.line, number + 1, number + 1);
    }
}

static void tail_receiver(void *arg)
{
    struct tail *tail = arg;
    uint8_t payload[BYTES_MAX];
    hf_store_release_u64((uint64_t *)&tail->start_ns, (uint64_t)bench_now() + 1000000); /* pairs with tail_sender */
    for (uint64_t i = 0; i < tail->warm + tail->count; i++) {
        int64_t due;
        (tail->slots != NULL ? line_receive : stream_receive)(tail, i, payload);
        int64_t now = bench_now();
        memcpy(&due, payload, sizeof due);
        if (i >= tail->warm) {
            histogram_record(&tail->out->histogram, (uint64_t)(now > due ? now - due : 0));
        }
    }
}

static void tail_sender(struct tail *tail)
{
    uint8_t payload[BYTES_MAX] = {0};
    uint32_t turns = 0;
    int64_t start;
    while ((start = (int64_t)hf_load_acquire_u64((const uint64_t *)&tail->start_ns)) ==
           0) { /* pairs with tail_receiver */
        bench_spin(&turns);
    }
    for (uint64_t i = 0; i < tail->warm + tail->count; i++) {
        int64_t due = start + (int64_t)i * tail->period_ns;
        while (bench_now() < due) {
            hf_compiler_barrier();
        }
        memcpy(payload, &due, sizeof due);
        (tail->slots != NULL ? line_send : stream_send)(tail, i, payload);
    }
}

/* tail:<line|stream>:<bytes>:<messages per second>:<milliseconds> */
static void run_tail(const struct bench *bench, const struct words *words, struct sample *out)
{
    static const char *const ways[] = {"line", "stream"};
    struct tail tail = {.bench = bench, .out = out};
    int way = bench_choice(words, 1, ways, 2);
    uint64_t rate = bench_number(words, 3, 100000), milliseconds = bench_number(words, 4, 1000);
    tail.bytes = bench_number(words, 2, 40);
    if (tail.bytes < sizeof(int64_t) || tail.bytes > BYTES_MAX || rate < 1 || rate > 100000000) {
        bench_usage("tail: 8 to 1024 bytes, 1 to 100,000,000 messages per second");
    }
    tail.period_ns = (int64_t)(1000000000 / rate);
    tail.warm = WARM_NS / (uint64_t)tail.period_ns;
    tail.count = milliseconds * 1000000 / (uint64_t)tail.period_ns;
    if (way == 0) {
        tail.slot_bytes = LINE + (tail.bytes + LINE - 1) / LINE * LINE;
        for (tail.slot_count = 1; 2 * tail.slot_count * tail.slot_bytes <= TAIL_RING;) {
            tail.slot_count *= 2;
        }
        tail.slots = bench_memory(tail.slot_count * tail.slot_bytes);
        memset(tail.slots, 0, (size_t)(tail.slot_count * tail.slot_bytes));
    } else {
        world_open(&tail.world, bench, &(struct world_config){.ring_bytes = TAIL_RING, .uuid = {1}});
        world_sit(&tail.world, &tail.seat, HF_ROLE_RECEIVER, 0, 0);
    }
    struct bench_thread receiver;
    bench_start(&receiver, bench, 1, tail_receiver, &tail);
    tail_sender(&tail);
    bench_join(&receiver);
    if (tail.bad != 0) {
        bench_die("tail got another message than was sent", HF_DAMAGED);
    }
    if (way == 0) {
        free(tail.slots);
    } else {
        world_rise(&tail.seat);
        world_close(&tail.world);
    }
    out->value = (double)histogram_quantile(&out->histogram, 0.99);
    out->unit = "ns";
    out->bytes = tail.bytes;
    out->count = tail.count;
    out->latencies = 1;
}

const struct bench_case tail_cases[] = {
    {"tail", ":<line|stream>:<bytes>:<rate>:<ms>  lateness of each message at a fixed rate", run_tail},
    {NULL, NULL, NULL},
};
