/* log_world.c: a log as a store keeps it (log_world.h). */
#include "log_world.h"

#include <string.h>
#include <time.h>

enum { FLAGS = HF_FRAME_FIRST | HF_FRAME_LAST };
#define SEGMENT_BYTES (UINT64_C(32) << 20)
#define RETAIN_BYTES (UINT64_C(96) << 20)
#define FILL_BYTES (UINT64_C(160) << 20) /* until every segment that is begun was used before */

static void prepare(void *arg)
{
    struct bench_log *log = arg;
    while (hf_load_acquire_u32(&log->stop) == 0) { /* pairs with bench_log_stop */
        if (bench_must(hf_log_prepare(log->log), "hf_log_prepare") == 0) {
            (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        }
    }
}

static void make_frames(struct bench_log *log, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++, log->sqn++, log->position += log->frame) {
        struct hf_frame *frame = (struct hf_frame *)(void *)(log->block + i * log->frame);
        frame->commit = (log->position / HF_GRANULE + 1) << 32 | (sizeof *frame + log->bytes);
        frame->sequence_number = log->sqn;
        frame->timestamp_ns = (int64_t)log->sqn;
        frame->flags = FLAGS;
        frame->fragment = 0;
        frame->crc = 0;
    }
}

static void append_block(struct bench_log *log, uint64_t bytes)
{
    int64_t start = bench_now();
    int64_t status = hf_log_append(log->log, log->block, bytes);
    if (status == HF_ROLL) {
        bench_must(hf_log_roll(log->log), "hf_log_roll");
        status = hf_log_append(log->log, log->block, bytes);
    }
    bench_must(status, "hf_log_append");
    log->unsynced += bytes;
    if (log->level == HF_LEVEL_MEMORY || log->unsynced >= BENCH_UNSYNCED) {
        bench_must(hf_log_sync(log->log), "hf_log_sync");
        log->unsynced = 0;
    }
    log->spent_ns += bench_now() - start;
}

void bench_log_append(struct bench_log *log, uint64_t bytes)
{
    uint64_t count = HF_STAGING_MAX / log->frame;
    for (uint64_t done = 0; done < bytes; done += count * log->frame) {
        make_frames(log, count);
        append_block(log, count * log->frame);
    }
}

void bench_log_settle(struct bench_log *log)
{
    int64_t start = bench_now();
    bench_must(hf_log_sync(log->log), "hf_log_sync");
    log->spent_ns += bench_now() - start;
    log->unsynced = 0;
}

void bench_log_open(struct bench_log *log, const struct bench *bench, const char *name, uint32_t level, uint64_t bytes,
                    enum bench_segments segments)
{
    *log = (struct bench_log){.bench = bench, .name = name, .level = level, .bytes = bytes};
    log->dir = level == HF_LEVEL_MEMORY ? bench->memory_dir : bench->disk_dir;
    log->frame = (sizeof(struct hf_frame) + bytes + HF_GRANULE - 1) / HF_GRANULE * HF_GRANULE;
    if (bytes == 0 || log->frame > HF_STAGING_MAX) {
        bench_usage("a message of a log case takes 1 byte to 256 KiB less 32");
    }
    log->fd = bench_directory(log->dir, name);
    log->block = bench_memory(HF_STAGING_MAX);
    struct hf_log_config config = {
        .uuid = {BENCH_UUID},
        .first_segment_bytes = SEGMENT_BYTES,
        .max_segment_bytes = SEGMENT_BYTES,
        .retain_bytes = segments == SEGMENTS_RECYCLED ? RETAIN_BYTES : 0,
        .level = level,
    };
    bench_must(hf_log_open(log->fd, &config, &log->log), "hf_log_open");
    bench_must(hf_log_begin(log->log, 1, 0), "hf_log_begin");
    bench_start(&log->helper, bench, 1, prepare, log);
    bench_log_append(log, segments == SEGMENTS_RECYCLED ? FILL_BYTES : HF_STAGING_MAX / 2);
    bench_log_settle(log);
    log->spent_ns = 0;
}

void bench_log_stop(struct bench_log *log)
{
    hf_store_release_u32(&log->stop, 1); /* pairs with prepare */
    bench_join(&log->helper);
    hf_log_close(log->log);
    free(log->block);
}

void bench_log_close(struct bench_log *log)
{
    bench_log_stop(log);
    bench_remove(log->dir, log->name, log->fd);
}

struct hf_log *bench_memory_log(int fd, const uint8_t *uuid, uint64_t segment_bytes, uint64_t retain_bytes)
{
    struct hf_log *log = NULL;
    struct hf_log_config config = {.first_segment_bytes = segment_bytes,
                                   .max_segment_bytes = segment_bytes,
                                   .retain_bytes = retain_bytes,
                                   .level = HF_LEVEL_MEMORY};
    memcpy(config.uuid, uuid, sizeof config.uuid);
    bench_must(hf_log_open(fd, &config, &log), "hf_log_open");
    bench_must(hf_log_begin(log, 1, 0), "hf_log_begin");
    return log;
}
