/* disk.c: what the disk and the page cache can do at best, without holdfast. The files are written once before the clock
 * starts, so that their extents are converted: a recycled log segment is in the same state. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/layout.h"
#include "bench.h"
#include "files.h"

enum { PAGE = 4096, SYNCS = 100, SYNC_FILE = 4 << 20, WRITERS_MAX = 4 };

static int prewritten(const char *dir, const char *name, uint64_t bytes)
{
    int fd = bench_file(dir, name);
    uint8_t *block = bench_memory(HF_STAGING_MAX);
    for (uint64_t at = 0; at < bytes; at += HF_STAGING_MAX) {
        bench_write(fd, block, HF_STAGING_MAX, at);
    }
    bench_sync(fd);
    free(block);
    return fd;
}

/* 4 KiB written over and fdatasync'd, at another place each time. */
static void run_fdatasync(const struct bench *bench, const struct words *words, struct sample *out)
{
    (void)words;
    int fd = prewritten(bench->disk_dir, "raw", SYNC_FILE);
    uint8_t *page = bench_memory(PAGE);
    for (uint64_t i = 0; i < SYNCS; i++) {
        memcpy(page, &i, sizeof i);
        int64_t start = bench_now();
        bench_write(fd, page, PAGE, (i * 37 % (SYNC_FILE / PAGE)) * PAGE);
        bench_sync(fd);
        histogram_record(&out->histogram, (uint64_t)(bench_now() - start));
    }
    out->value = (double)histogram_quantile(&out->histogram, 0.5);
    out->unit = "ns";
    out->count = SYNCS;
    out->latencies = 1;
    free(page);
    bench_unlink(bench->disk_dir, "raw", fd);
}

/* The disk stores' pattern without the stores: each writes blocks of 256 KiB over a file of its own that was written before,
 * fdatasync after each `unsynced` bytes. */
struct writer {
    char name[16];
    int fd;
    uint64_t unsynced;
    struct bench_thread thread;
};

static void overwrite(void *arg)
{
    const struct writer *writer = arg;
    uint8_t *block = bench_memory(HF_STAGING_MAX);
    uint64_t waiting = 0;
    for (uint64_t at = 0; at < BENCH_LOG_BYTES; at += HF_STAGING_MAX) {
        bench_write(writer->fd, block, HF_STAGING_MAX, at);
        waiting += HF_STAGING_MAX;
        if (waiting >= writer->unsynced) {
            bench_sync(writer->fd);
            waiting = 0;
        }
    }
    bench_sync(writer->fd);
    free(block);
}

static void run_overwrite(const struct bench *bench, const struct words *words, struct sample *out)
{
    struct writer writers[WRITERS_MAX];
    uint64_t count = bench_number(words, 1, 1);
    uint64_t unsynced = bench_number(words, 2, BENCH_UNSYNCED);
    if (count < 1 || count > WRITERS_MAX || unsynced < HF_STAGING_MAX || unsynced > BENCH_LOG_BYTES) {
        bench_usage("overwrite takes the number of files, 1 to 4, and the bytes between two syncs, 256 KiB to 128 MiB");
    }
    for (uint64_t i = 0; i < count; i++) {
        struct writer *writer = &writers[i];
        snprintf(writer->name, sizeof writer->name, "raw-%u", (unsigned)i);
        writer->fd = prewritten(bench->disk_dir, writer->name, BENCH_LOG_BYTES);
        writer->unsynced = unsynced;
    }
    int64_t start = bench_now();
    for (uint64_t i = 0; i < count; i++) {
        bench_start(&writers[i].thread, bench, (int)i, overwrite, &writers[i]);
    }
    for (uint64_t i = 0; i < count; i++) {
        bench_join(&writers[i].thread);
    }
    out->value = (double)(count * BENCH_LOG_BYTES) / (double)(bench_now() - start);
    out->unit = "GB/s";
    out->count = count * BENCH_LOG_BYTES / HF_STAGING_MAX;
    out->flight = unsynced;
    for (uint64_t i = 0; i < count; i++) {
        bench_unlink(bench->disk_dir, writers[i].name, writers[i].fd);
    }
}

/* ---- copy + CRC-32C into a mapping, the least that a checked memory log can cost. Its own loop, not the product's: a slow
 * checksum there must show here. */

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_plain(const uint8_t *data, uint64_t bytes)
{
    uint64_t crc = 0xffffffff;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    uint32_t low = (uint32_t)crc;
    for (; bytes > 0; bytes--, data++) {
        low = __builtin_ia32_crc32qi(low, *data);
    }
    return ~low;
}
#else
static uint32_t crc_plain(const uint8_t *data, uint64_t bytes)
{
    return hf_crc32c(0, data, bytes);
}
#endif

static uint64_t copy_frames(uint8_t *to, uint8_t *from, uint64_t frames, uint64_t frame, uint64_t used)
{
    for (uint64_t i = 0; i < frames; i++, from += frame, to += frame) {
        struct hf_frame *header = (struct hf_frame *)(void *)from;
        header->sequence_number++;
        header->crc = crc_plain(from, offsetof(struct hf_frame, crc)) ^ crc_plain(from + sizeof *header, used);
        memcpy(to, from, frame);
    }
    return frames;
}

static void run_mapped(const struct bench *bench, const struct words *words, struct sample *out)
{
    uint64_t bytes = bench_number(words, 1, 128);
    uint64_t frame = (sizeof(struct hf_frame) + bytes + HF_GRANULE - 1) / HF_GRANULE * HF_GRANULE;
    if (bytes == 0 || frame > HF_STAGING_MAX) {
        bench_usage("mapped takes 1 byte to 256 KiB less 32");
    }
    int fd = prewritten(bench->memory_dir, "raw", BENCH_LOG_BYTES);
    uint8_t *log = mmap(NULL, BENCH_LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (log == MAP_FAILED) {
        bench_die("mmap", HF_ERRNO - errno);
    }
    uint8_t *block = bench_memory(HF_STAGING_MAX);
    uint64_t frames = HF_STAGING_MAX / frame;
    uint64_t done = 0;
    int64_t start = bench_now();
    for (uint64_t at = 0; at + HF_STAGING_MAX <= BENCH_LOG_BYTES; at += HF_STAGING_MAX) {
        done += copy_frames(log + at, block, frames, frame, bytes);
    }
    out->value = (double)done * 1e9 / (double)(bench_now() - start);
    out->unit = "msg/s";
    out->bytes = bytes;
    out->count = done;
    free(block);
    (void)munmap(log, BENCH_LOG_BYTES);
    bench_unlink(bench->memory_dir, "raw", fd);
}

/* The same file read again: CRC-32C of each message in place, the least that a checked replay can cost. */
static void run_checksum(const struct bench *bench, const struct words *words, struct sample *out)
{
    uint64_t bytes = bench_number(words, 1, 128);
    uint64_t frame = (sizeof(struct hf_frame) + bytes + HF_GRANULE - 1) / HF_GRANULE * HF_GRANULE;
    if (bytes == 0 || frame > HF_STAGING_MAX) {
        bench_usage("checksum takes 1 byte to 256 KiB less 32");
    }
    int fd = prewritten(bench->memory_dir, "raw", BENCH_LOG_BYTES);
    int64_t start = bench_now();
    const uint8_t *log = mmap(NULL, BENCH_LOG_BYTES, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (log == MAP_FAILED) {
        bench_die("mmap", HF_ERRNO - errno);
    }
    volatile uint32_t sink = 0;
    uint64_t done = 0;
    for (uint64_t at = 0; at + frame <= BENCH_LOG_BYTES; at += frame, done++) {
        sink = sink ^ crc_plain(log + at, sizeof(struct hf_frame) + bytes);
    }
    out->value = (double)done * 1e9 / (double)(bench_now() - start);
    out->unit = "msg/s";
    out->bytes = bytes;
    out->count = done;
    (void)munmap((void *)(uintptr_t)log, BENCH_LOG_BYTES);
    bench_unlink(bench->memory_dir, "raw", fd);
}

const struct bench_case disk_cases[] = {
    {"fdatasync", "                4 KiB written over + fdatasync", run_fdatasync},
    {"overwrite", "[:FILES[:UNSYNCED]] 256 KiB blocks over written files, fdatasync per UNSYNCED bytes", run_overwrite},
    {"mapped", ":BYTES             copy + CRC-32C of each message into a mapped memory file", run_mapped},
    {"checksum", ":BYTES           CRC-32C of each message of a mapped memory file, in place, mapping included",
     run_checksum},
    {NULL, NULL, NULL},
};
