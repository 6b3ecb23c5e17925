/* log_cases.c: appending to a log and reading it back, without a ring in front. */
#include <string.h>

#include "log_world.h"
#include "stream/stream.h"

enum { ENTRIES = 8192 };
static const char *const levels[] = {"memory", "disk"};
static const char *const clocks[] = {"time", "cpu"};

/* ---- append
 *
 *   core 0: [256 KiB block of frames] -> append (CRC-32C), publish or group commit -> segments
 *   core 1: the helper that prepares the next segment */

static void run_append(const struct bench *bench, const struct words *words, struct sample *out)
{
    static const char *const kinds[] = {"recycled", "fresh"};
    uint32_t level = bench_choice(words, 1, levels, 2) == 0 ? HF_LEVEL_MEMORY : HF_LEVEL_DISK;
    uint64_t bytes = bench_number(words, 2, 128);
    struct bench_log log;
    bench_log_open(&log, bench, "append", level, bytes, (enum bench_segments)bench_choice(words, 3, kinds, 2));
    uint64_t first = log.sqn;
    bench_log_append(&log, BENCH_LOG_BYTES);
    bench_log_settle(&log);
    out->count = log.sqn - first;
    out->bytes = bytes;
    if (level == HF_LEVEL_MEMORY) {
        out->value = (double)out->count * 1e9 / (double)log.spent_ns;
        out->unit = "msg/s";
    } else {
        out->value =
            (double)(out->count * log.frame) / (double)log.spent_ns; /* what reaches the disk, headers included */
        out->unit = "GB/s";
        out->flight = BENCH_UNSYNCED;
    }
    bench_log_close(&log);
}

/* ---- replay
 *
 *   core 0: segments -> verified copy of 256 KiB -> entries      no store takes part */

static void run_replay(const struct bench *bench, const struct words *words, struct sample *out)
{
    uint32_t level = bench_choice(words, 1, levels, 2) == 0 ? HF_LEVEL_MEMORY : HF_LEVEL_DISK;
    uint64_t bytes = bench_number(words, 2, 128);
    int64_t (*clock)(void) = bench_choice(words, 3, clocks, 2) == 0 ? bench_now : bench_cpu;
    if (bytes < sizeof(uint64_t)) {
        bench_usage("replay takes 8 bytes or more");
    }
    struct bench_log log;
    bench_log_open(&log, bench, "replay", level, bytes, SEGMENTS_FRESH);
    bench_log_append(&log, BENCH_LOG_BYTES);
    bench_log_settle(&log);
    uint8_t *buffer = bench_memory(HF_STAGING_MAX);
    struct hf_entry *entries = bench_memory(ENTRIES * sizeof *entries);
    struct hf_logr *reader = NULL;
    uint64_t next = 0;
    int64_t start = clock();
    bench_must(hf_logr_open(log.fd, &reader), "hf_logr_open");
    while (next < log.sqn) {
        uint64_t after = 0;
        int64_t got = bench_must(hf_logr_read(reader, next, buffer, HF_STAGING_MAX, &after), "hf_logr_read");
        for (uint64_t at = 0; at < (uint64_t)got;) {
            uint64_t consumed = 0;
            int64_t count =
                bench_must(hf_scan(buffer + at, (uint64_t)got - at, entries, ENTRIES, &consumed), "hf_scan");
            for (int64_t i = 0; i < count; i++, next++) {
                if (entries[i].sequence_number != next) {
                    bench_die("replay lost order", HF_DAMAGED);
                }
            }
            if (consumed == 0) {
                bench_die("hf_scan makes no progress", HF_DAMAGED);
            }
            at += consumed;
        }
        if (after != next) {
            bench_die("replay returned other numbers than it said", HF_DAMAGED);
        }
    }
    out->value = (double)next * 1e9 / (double)(clock() - start);
    out->unit = "msg/s";
    out->bytes = bytes;
    out->count = next;
    hf_logr_close(reader);
    free(entries);
    free(buffer);
    bench_log_close(&log);
}

const struct bench_case log_cases[] = {
    {"append", ":memory|disk:BYTES:recycled|fresh", run_append},
    {"replay", ":memory|disk:BYTES:time|cpu read a log back into batches, from opening it, its files in the page cache",
     run_replay},
    {NULL, NULL, NULL},
};
