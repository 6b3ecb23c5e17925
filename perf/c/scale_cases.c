/* scale_cases.c: what a store pays per message as its sources grow in number, and what a log costs as it grows. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "log_world.h"
#include "store/drain.h"
#include "world.h"

enum { BYTES = 128, FRAME = sizeof(struct hf_frame) + BYTES, STAGING = 2 * HF_STAGING_MAX, ROWS = 64 };

/* ---- drain: one store, many sources
 *
 *   core 0: the same number of messages, spread over all sources | from one of them, the others silent
 *           -> streams -> one drain -> a log each                              only the drain is timed
 *
 * One thread: send, then drain, round by round. Rings and retained logs have the same bytes together, however many they are. */

enum { DRAIN_MAX = 256, DRAIN_ROUND = 16384, DRAIN_ROUNDS = 40, FILES_EACH = 16 };
#define DRAIN_RING (UINT64_C(4) << 20)
#define DRAIN_SEGMENT (UINT64_C(1) << 20)
#define DRAIN_RETAIN (UINT64_C(64) << 20)

struct drained {
    struct world world;
    struct seat seat;
    struct hf_log *log;
    struct hf_drain_item item;
    char name[32];
    int fd;
};

static void drained_open(struct drained *one, const struct bench *bench, uint64_t index, uint64_t ring, uint64_t retain)
{
    struct world_config config = {.ring_bytes = ring, .uuid = {BENCH_UUID, (uint8_t)index}};
    (void)snprintf(one->name, sizeof one->name, "drain-%u", (unsigned)index);
    world_open(&one->world, bench, &config);
    world_sit(&one->world, &one->seat, HF_ROLE_STORE, 0, 0);
    one->fd = bench_directory(bench->memory_dir, one->name);
    one->log = bench_memory_log(one->fd, config.uuid, DRAIN_SEGMENT, retain);
    one->item = (struct hf_drain_item){.reader = one->seat.reader,
                                       .log = one->log,
                                       .board = one->seat.board,
                                       .bells = one->seat.bells,
                                       .line_index = one->seat.line,
                                       .level = HF_LEVEL_MEMORY};
}

static void drained_close(struct drained *one, const struct bench *bench)
{
    world_rise(&one->seat);
    world_close(&one->world);
    hf_log_close(one->log);
    bench_remove(bench->memory_dir, one->name, one->fd);
}

static void drained_fill(struct drained *one, const uint8_t *rows, uint64_t count)
{
    for (uint64_t sent = 0; sent < count;) {
        uint64_t most = count - sent < ROWS ? count - sent : ROWS;
        int64_t status = hf_source_send_rows(one->world.source, rows, BYTES, BYTES, most);
        sent += (uint64_t)bench_must(status, "hf_source_send_rows");
    }
}

/* Sends `count` messages from each of the first `active` sources and drains them. CPU time that the drain took. */
static int64_t drained_round(struct drained *all, struct hf_drain_item **items, uint64_t sources, uint64_t active,
                             uint64_t count, const uint8_t *rows, uint8_t *staging)
{
    uint32_t kick = 0;
    for (uint64_t i = 0; i < active; i++) {
        drained_fill(&all[i], rows, count);
    }
    int64_t start = bench_cpu();
    int64_t stopped = hf_drain(items, (int64_t)sources, staging, STAGING, BENCH_UNSYNCED, &kick, all[0].seat.bells,
                               all[0].seat.bell, HF_WAIT_BUSY_SPIN, 0, 0);
    int64_t spent = bench_cpu() - start;
    for (uint64_t i = 0; i < active; i++) {
        if (stopped != 0 || hf_load_acquire_u64(&all[i].world.line[0]->ack) != hf_source_next(all[i].world.source)) {
            bench_die("a drain left messages behind", items[i]->status);
        }
        world_release(&all[i].world);
    }
    return spent;
}

static void run_drain(const struct bench *bench, const struct words *words, struct sample *out)
{
    uint64_t sources = bench_number(words, 1, 1);
    uint64_t active = bench_number(words, 2, sources);
    if (sources < 1 || sources > DRAIN_MAX || active < 1 || active > sources) {
        bench_usage("drain takes 1 to 256 sources, and how many of them send");
    }
    struct rlimit files = {.rlim_cur = DRAIN_MAX * FILES_EACH, .rlim_max = DRAIN_MAX * FILES_EACH};
    (void)setrlimit(RLIMIT_NOFILE, &files); /* where it is refused and too low, opening says so */
    struct drained *all = calloc(sources, sizeof *all);
    struct hf_drain_item **items = calloc(sources, sizeof *items);
    uint64_t retain = DRAIN_RETAIN / active > 2 * DRAIN_SEGMENT ? DRAIN_RETAIN / active : 2 * DRAIN_SEGMENT;
    uint64_t ring = DRAIN_RING / active > 65536 ? DRAIN_RING / active : 65536;
    for (uint64_t i = 0; i < sources; i++) {
        drained_open(&all[i], bench, i, i < active ? ring : 65536, retain);
        items[i] = &all[i].item;
    }
    uint8_t *rows = bench_memory(ROWS * BYTES);
    uint8_t *staging = bench_memory(STAGING);
    uint64_t each = DRAIN_ROUND / active;
    uint64_t warm = (retain + 3 * DRAIN_SEGMENT) / (each * FRAME) + 1; /* until every segment was used before */
    int64_t spent = 0;
    for (uint64_t round = 0; round < warm + DRAIN_ROUNDS; round++) {
        int64_t ns = drained_round(all, items, sources, active, each, rows, staging);
        spent += round < warm ? 0 : ns;
    }
    out->count = DRAIN_ROUNDS * each * active;
    out->value = (double)spent / (double)out->count;
    out->unit = "ns";
    out->bytes = BYTES;
    out->flight = DRAIN_ROUND * FRAME;
    for (uint64_t i = 0; i < sources; i++) {
        drained_close(&all[i], bench);
    }
    free(all);
    free(items);
    free(rows);
    free(staging);
}

/* ---- logopen, logseek: does a large log cost more to open, or to find a number in?
 *
 *   log on disk, segments of 32 MiB, all in memory -> hf_log_open | hf_logr_read of a number anywhere in it */

enum { LOG_BYTES = 1024, OPENS = 40, SEEKS = 4000, LOGS_MAX = 8, BLOCK = 4096 };

/* Made once, kept for all runs of this process: the directory's owner removes it. */
struct kept_log {
    uint64_t mib;
    uint64_t messages;
    int fd;
};

static const struct kept_log *kept_log(const struct bench *bench, uint64_t mib)
{
    static struct kept_log kept[LOGS_MAX];
    int at = 0;
    while (at < LOGS_MAX && kept[at].mib != 0 && kept[at].mib != mib) {
        at++;
    }
    if (mib == 0 || mib > 65536 || at == LOGS_MAX) {
        bench_usage("logopen and logseek take 1 to 65536 MiB, of at most 8 sizes");
    }
    if (kept[at].mib == 0) {
        struct bench_log log;
        char name[32];
        (void)snprintf(name, sizeof name, "kept-%u", (unsigned)mib);
        bench_log_open(&log, bench, name, HF_LEVEL_DISK, LOG_BYTES, SEGMENTS_FRESH);
        bench_log_append(&log, mib << 20);
        bench_log_settle(&log);
        bench_log_stop(&log);
        kept[at] = (struct kept_log){.mib = mib, .messages = log.sqn, .fd = log.fd};
    }
    return &kept[at];
}

static void run_logopen(const struct bench *bench, const struct words *words, struct sample *out)
{
    const struct kept_log *kept = kept_log(bench, bench_number(words, 1, 64));
    struct hf_log_config config = {.uuid = {BENCH_UUID}, .level = HF_LEVEL_DISK};
    double taken[OPENS];
    for (int i = 0; i < OPENS; i++) {
        struct hf_log *log = NULL;
        int64_t start = bench_now();
        bench_must(hf_log_open(kept->fd, &config, &log), "hf_log_open");
        taken[i] = (double)(bench_now() - start);
        hf_log_close(log);
    }
    out->value = bench_median(taken, OPENS);
    out->unit = "ns";
    out->bytes = LOG_BYTES;
    out->count = OPENS;
}

static void run_logseek(const struct bench *bench, const struct words *words, struct sample *out)
{
    const struct kept_log *kept = kept_log(bench, bench_number(words, 1, 64));
    struct hf_logr *reader = NULL;
    uint8_t block[BLOCK];
    double taken[SEEKS];
    bench_must(hf_logr_open(kept->fd, &reader), "hf_logr_open");
    uint64_t random = 1;
    for (int i = -SEEKS; i < SEEKS; i++) { /* the first half maps the segments */
        uint64_t next = 0;
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t sqn = (random >> 20) % kept->messages;
        int64_t start = bench_now();
        bench_must(hf_logr_read(reader, sqn, block, sizeof block, &next), "hf_logr_read");
        taken[i < 0 ? 0 : i] = (double)(bench_now() - start);
        if (next <= sqn) {
            bench_die("logseek read another number", HF_DAMAGED);
        }
    }
    hf_logr_close(reader);
    out->value = bench_median(taken, SEEKS);
    out->unit = "ns";
    out->bytes = LOG_BYTES;
    out->count = SEEKS;
}

const struct bench_case scale_cases[] = {
    {"drain", ":SOURCES[:ACTIVE]   a store's drain per message, the same messages from more sources", run_drain},
    {"logopen", ":MIB              opening a log of that size", run_logopen},
    {"logseek", ":MIB              reading one message anywhere in it", run_logseek},
    {NULL, NULL, NULL},
};
