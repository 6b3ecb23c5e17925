/* log_world.h: a log as a store keeps it, for the cases that append, drain and replay. */
#ifndef HF_PERF_LOG_WORLD_H
#define HF_PERF_LOG_WORLD_H

#include "bench.h"
#include "files.h"
#include "log/log.h"

enum { BENCH_UUID = 7 }; /* first byte of the source's uuid, in the ring and in the log */

/* Segments of one size, so that a run is in the steady state: FRESH ones are made while it runs (ahead, by the helper thread, as
 * a store does it), RECYCLED ones were written before. */
enum bench_segments { SEGMENTS_RECYCLED = 0, SEGMENTS_FRESH = 1 };

struct bench_log {
    const struct bench *bench;
    const char *dir;
    const char *name;
    int fd;
    struct hf_log *log;
    uint32_t level;
    struct bench_thread helper; /* prepares the next segment, on core 1 */
    uint32_t stop;
    uint8_t *block; /* HF_STAGING_MAX bytes of frames */
    uint64_t bytes; /* payload of each */
    uint64_t frame;
    uint64_t sqn;      /* of the next frame */
    uint64_t position; /* of the next frame in the ring that it would come from */
    uint64_t unsynced;
    int64_t spent_ns; /* in append, roll and sync; making the frames is not counted */
};

void bench_log_open(struct bench_log *log, const struct bench *bench, const char *name, uint32_t level, uint64_t bytes,
                    enum bench_segments segments);
void bench_log_append(struct bench_log *log, uint64_t bytes); /* that many bytes of frames, synced as a store would */
void bench_log_settle(struct bench_log *log);                 /* group commit of what is left */
void bench_log_stop(struct bench_log *log);                   /* closes it; its files and its fd stay */
void bench_log_close(struct bench_log *log);                  /* closes it and removes its files */
/* A new log in memory without a helper, of segments of one size; uuid: 16 bytes, of the source. */
struct hf_log *bench_memory_log(int fd, const uint8_t *uuid, uint64_t segment_bytes, uint64_t retain_bytes);
#endif
