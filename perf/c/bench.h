/* bench.h: what the cases of the measuring program share. One program, many cases; `bench 6 line oneway:16:rows:batch:1` runs
 * line, oneway, line, oneway, ... six times each (interleaved: the host moves virtual cores about, so two figures compare only
 * when they were taken side by side), and prints one JSON object per run. Every run stands between two probes of the bare
 * cache-line round trip: rows compare at an equal probe only.
 *
 * Threads are pinned to the cores given by --cores: 0 is the measuring side (source), 1 the other side (reader, store). All
 * threads of a case live in this process, except where a case says that it forks. */
#ifndef HF_PERF_BENCH_H
#define HF_PERF_BENCH_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/status.h"

enum {
    BENCH_WORDS = 8, /* words of a case: name and arguments, separated by ':' */
    BENCH_SUB = 128, /* linear buckets per power of two: values are exact to 1/128 */
    BENCH_BUCKETS = 58 * BENCH_SUB,
    BENCH_BLOCKS = 512, /* round trips are timed in blocks, so that the clock costs nothing ... */
    BENCH_BLOCK = 64    /* ... of this many */
};

struct bench {
    const char *memory_dir; /* private, on tmpfs */
    const char *disk_dir;   /* private, on the disk to be measured */
    int cores[16];
    int core_count; /* 0: no pinning */
    int bare; /* 1: no probes around a run: two threads that spin take for ever where instructions are simulated */
};

/* HDR-style histogram of nanoseconds: bucket e * 128 + (v >> e), e = max(0, floor(log2 v) - 7). */
struct histogram {
    uint64_t total;
    uint64_t highest;
    uint32_t count[BENCH_BUCKETS];
};

/* The result of one run of one case. */
struct sample {
    double value;
    const char *unit; /* "msg/s", "ns", "GB/s" */
    uint64_t bytes;   /* payload bytes per message, 0 if that means nothing */
    uint64_t count;   /* messages, round trips, syncs: what was counted */
    uint64_t flight;  /* bytes that may be under way or unsynced, 0 if that means nothing */
    int latencies;    /* 1: `histogram` is filled */
    struct histogram histogram;
};

struct words {
    int count;
    const char *word[BENCH_WORDS];
};

struct bench_case {
    const char *name;
    const char *usage;
    void (*run)(const struct bench *bench, const struct words *words, struct sample *out);
};

void bench_die(const char *what, int64_t status) __attribute__((noreturn));
int64_t bench_must(int64_t status, const char *what); /* dies on a negative status */
void bench_usage(const char *why) __attribute__((noreturn));

uint64_t bench_number(const struct words *words, int index, uint64_t otherwise);
const char *bench_word(const struct words *words, int index, const char *otherwise);
int bench_choice(const struct words *words, int index, const char *const *names, int count); /* exits on another word */

int64_t bench_now(void);       /* CLOCK_MONOTONIC, ns */
int64_t bench_cpu(void);       /* of this thread, ns: a system call */
int64_t bench_cpu_share(void); /* what one reading of it puts between two */
void bench_pin(const struct bench *bench, int index);
int bench_alone(const struct bench *bench, int threads); /* 1: each of this many threads has a core of its own */
void *bench_memory(uint64_t bytes);                      /* page-aligned, touched; free with free() */
void histogram_record(struct histogram *histogram, uint64_t ns);
uint64_t histogram_quantile(const struct histogram *histogram, double q); /* lower edge of the bucket */
double bench_median(double *values, int count);                           /* sorts them */

/* A thread of a case, pinned before it says that it is ready; bench_start returns after that. */
struct bench_thread {
    const struct bench *bench;
    void (*body)(void *arg);
    void *arg;
    pthread_t thread;
    int core;
    uint32_t ready;
};
void bench_start(struct bench_thread *thread, const struct bench *bench, int core, void (*body)(void *), void *arg);
void bench_join(struct bench_thread *thread);

double line_round_trip(const struct bench *bench, uint64_t blocks, struct sample *out); /* the probe; out may be NULL */

/* The tables of cases, one per file. A NULL name ends each. */
extern const struct bench_case limit_cases[];
extern const struct bench_case disk_cases[];
extern const struct bench_case stream_cases[];
extern const struct bench_case log_cases[];
extern const struct bench_case store_cases[];
extern const struct bench_case fan_cases[];
extern const struct bench_case scale_cases[];
extern const struct bench_case path_cases[];
extern const struct bench_case tail_cases[];

/* One empty turn of a spinning loop. No pause instruction: it would add tens of ns to what is measured. Gives the core away
 * after some 50 us, because on a busy machine the partner may be waiting for this very core. */
static inline void bench_spin(uint32_t *turns)
{
    hf_compiler_barrier();
    if ((++*turns & 0x7fff) == 0) {
        (void)sched_yield();
    }
}

/* The same for throughput, where pausing helps: the idle side leaves the line to the busy one. */
static inline void bench_pause(uint32_t *turns)
{
    hf_cpu_relax();
    bench_spin(turns);
}

typedef void (*round_trip_fn)(void *pair);

/* Times `trip`: first in blocks without a clock inside (value: the median block's mean), then one by one (the histogram, where
 * each entry includes one reading of the clock). Inlined, so that the trip is inlined too. */
static inline __attribute__((always_inline)) void bench_round_trips(round_trip_fn trip, void *pair, uint64_t blocks,
                                                                    struct sample *out)
{
    double means[BENCH_BLOCKS];
    blocks = blocks < BENCH_BLOCKS ? blocks : BENCH_BLOCKS;
    for (uint64_t b = 0; b < blocks; b++) {
        int64_t start = bench_now();
        for (int i = 0; i < BENCH_BLOCK; i++) {
            trip(pair);
        }
        means[b] = (double)(bench_now() - start) / BENCH_BLOCK;
    }
    out->value = bench_median(means, (int)blocks);
    out->unit = "ns";
    out->count = blocks * BENCH_BLOCK;
    out->latencies = 1;
    int64_t before = bench_now();
    for (uint64_t i = 0; i < blocks * BENCH_BLOCK; i++) {
        trip(pair);
        int64_t after = bench_now();
        histogram_record(&out->histogram, (uint64_t)(after - before));
        before = after;
    }
}
#endif
