/* store_cases.c: a source with stores behind it: how long until a message is stable, and what the stores cost the source. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "log_world.h"
#include "store/drain.h"
#include "world.h"

enum { BYTES = 128, RING = 4 << 20, DISK_TRIPS = 100, STAGING = 2 * HF_STAGING_MAX, DRAIN_NS = 50000000 };

/* A store: one ring into one log, until *kick. */
struct store {
    struct seat *seat;
    struct hf_log *log;
    uint32_t level;
    int strategy;
    volatile uint32_t *kick;
};

static void drain(void *arg)
{
    struct store *store = arg;
    struct hf_drain_item item = {
        .reader = store->seat->reader,
        .log = store->log,
        .board = store->seat->board,
        .bells = store->seat->bells,
        .line_index = store->seat->line,
        .level = store->level,
    };
    struct hf_drain_item *items = &item;
    uint8_t *staging = bench_memory(STAGING);
    while (hf_load_acquire_u32(store->kick) == 0) { /* pairs with the case that ends: kick */
        int64_t stopped = hf_drain(&items, 1, staging, STAGING, BENCH_UNSYNCED, store->kick, store->seat->bells,
                                   store->seat->bell, store->strategy, DRAIN_NS, 0);
        if (bench_must(stopped, "hf_drain") > 0) {
            if (item.status == HF_ROLL) {
                bench_must(hf_log_roll(store->log), "hf_log_roll");
                item.status = HF_OK;
            } else {
                bench_die("a store stopped draining", item.status);
            }
        }
    }
    free(staging);
}

/* ---- stable
 *
 *   core 0: send -> [stream] -> drain, append, publish :core 1
 *        ack <------ board line <------/                          the source spins on the line */

struct stable {
    struct world world;
    struct seat seat;
    uint8_t payload[BYTES];
};

static void stable_trip(void *arg)
{
    struct stable *stable = arg;
    uint32_t turns = 0;
    int64_t sqn;
    while ((sqn = hf_source_send(stable->world.source, stable->payload, BYTES)) < 0) {
        if (sqn != HF_RETENTION && sqn != HF_PINNED) {
            bench_die("hf_source_send", sqn);
        }
        world_release(&stable->world);
    }
    while (hf_load_acquire_u64(&stable->world.line[0]->ack) <= (uint64_t)sqn) { /* pairs with hf_board_ack: ack */
        bench_spin(&turns);
    }
}

static void stable_on_disk(struct stable *stable, struct sample *out)
{
    for (int i = 0; i < DISK_TRIPS; i++) {
        int64_t start = bench_now();
        stable_trip(stable);
        histogram_record(&out->histogram, (uint64_t)(bench_now() - start));
    }
    out->value = (double)histogram_quantile(&out->histogram, 0.5);
    out->unit = "ns";
    out->count = DISK_TRIPS;
    out->latencies = 1;
}

static void run_stable(const struct bench *bench, const struct words *words, struct sample *out)
{
    static const char *const levels[] = {"memory", "disk"};
    uint32_t level = bench_choice(words, 1, levels, 2) == 0 ? HF_LEVEL_MEMORY : HF_LEVEL_DISK;
    struct bench_log log;
    bench_log_open(&log, bench, "stable", level, BYTES, SEGMENTS_RECYCLED);
    struct world_config config = {.ring_bytes = RING, .start_sqn = log.sqn, .uuid = {BENCH_UUID}};
    struct stable stable = {.payload = {1}};
    world_open(&stable.world, bench, &config);
    world_sit(&stable.world, &stable.seat, HF_ROLE_STORE, 0, 0);
    uint32_t kick = 0;
    struct store store = {
        .seat = &stable.seat, .log = log.log, .level = level, .strategy = HF_WAIT_BUSY_SPIN, .kick = &kick};
    struct bench_thread thread;
    bench_start(&thread, bench, 1, drain, &store);
    for (int i = 0; i < 2; i++) {
        stable_trip(&stable);
    }
    if (level == HF_LEVEL_MEMORY) {
        bench_round_trips(stable_trip, &stable, BENCH_BLOCKS, out);
    } else {
        stable_on_disk(&stable, out);
    }
    out->bytes = BYTES;
    out->flight = sizeof(struct hf_frame) + BYTES; /* one message at a time */
    hf_store_release_u32(&kick, 1);                /* pairs with drain */
    bench_join(&thread);
    world_rise(&stable.seat);
    world_close(&stable.world);
    bench_log_close(&log);
}

/* ---- paced: the source's thread CPU time per message, with 1 and with 3 stores
 *
 *   core 0: 8 sends, release; every 16 us (500 k msg/s) -> [stream] -> store process 1, core 1
 *                                                                  -> store process 2, core 1 (2 if there is one)
 *                                                                  -> store process 3, ...
 *
 * The stores are forked processes with a bell each, as real ones are: a wake costs as much as it does there. The pace is even,
 * within the time that a store spins before it sleeps; reading the CPU clock is a system call, so its own share is taken off. */

enum { BURST = 8, BURSTS = 16000, BURST_NS = 16000, STORES_MAX = 4 };

struct paced_shared { /* between the parent and its children */
    uint32_t kick;
    uint32_t ready;
    int64_t line[STORES_MAX];
};

static void store_process(struct world *world, int index, int strategy, struct paced_shared *shared)
{
    static const uint8_t uuid[16] = {BENCH_UUID};
    char name[32];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(world->bench, world->bench->core_count > 1 ? 1 + index % (world->bench->core_count - 1) : 0);
    (void)snprintf(name, sizeof name, "store-%d", index);
    struct seat seat;
    world_sit(world, &seat, HF_ROLE_STORE, index, 1);
    int fd = bench_directory(world->bench->memory_dir, name);
    struct hf_log_config config = {.retain_bytes = UINT64_C(64) << 20, .level = HF_LEVEL_MEMORY};
    memcpy(config.uuid, uuid, sizeof uuid);
    struct hf_log *log = NULL;
    bench_must(hf_log_open(fd, &config, &log), "hf_log_open");
    bench_must(hf_log_begin(log, 1, 0), "hf_log_begin");
    shared->line[index] = seat.line;
    (void)hf_add_u32(&shared->ready, 1); /* pairs with run_paced: ready */
    struct store store = {
        .seat = &seat, .log = log, .level = HF_LEVEL_MEMORY, .strategy = strategy, .kick = &shared->kick};
    drain(&store);
    world_rise(&seat);
    hf_log_close(log);
    bench_remove(world->bench->memory_dir, name, fd);
    _exit(0);
}

static int64_t burst(struct world *world, const uint8_t *payload)
{
    int64_t start = bench_cpu();
    for (int i = 0; i < BURST; i++) {
        int64_t sqn = hf_source_send(world->source, payload, BYTES);
        if (sqn == HF_RETENTION || sqn == HF_PINNED) {
            i--;
            world_release(world);
            continue;
        }
        bench_must(sqn, "hf_source_send");
    }
    world_release(world);
    return bench_cpu() - start;
}

static void run_paced(const struct bench *bench, const struct words *words, struct sample *out)
{
    static const char *const strategies[] = {"backoff", "block", "yield", "busy_spin"};
    static const int strategy_of[] = {HF_WAIT_BACKOFF, HF_WAIT_BLOCK, HF_WAIT_YIELD, HF_WAIT_BUSY_SPIN};
    uint64_t stores = bench_number(words, 1, 1);
    int strategy = strategy_of[bench_choice(words, 2, strategies, 4)];
    if (stores < 1 || stores > STORES_MAX) {
        bench_usage("paced takes 1 to 4 stores");
    }
    struct world world;
    world_open(&world, bench, &(struct world_config){.ring_bytes = RING, .uuid = {BENCH_UUID}});
    struct paced_shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        bench_die("mmap", HF_ERRNO - errno);
    }
    pid_t child[STORES_MAX];
    for (uint64_t i = 0; i < stores; i++) {
        child[i] = fork();
        if (child[i] < 0) {
            bench_die("fork", HF_ERRNO - errno);
        }
        if (child[i] == 0) {
            store_process(&world, (int)i, strategy, shared);
        }
        while (hf_load_acquire_u32(&shared->ready) <= i) { /* pairs with store_process; a dead child is seen below */
            if (waitpid(child[i], NULL, WNOHANG) != 0) {
                bench_die("a store process ended early", HF_GONE);
            }
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        world.line[world.joined++] = hf_board_line_at(world.board, shared->line[i]);
    }
    uint8_t payload[BYTES] = {1};
    int64_t share = bench_cpu_share();
    int64_t cpu = 0;
    int64_t next = bench_now();
    for (int i = 0; i < BURSTS; i++, next += BURST_NS) {
        uint32_t turns = 0;
        while (bench_now() < next) {
            bench_pause(&turns);
        }
        cpu += burst(&world, payload);
    }
    out->value = (double)(cpu - share * BURSTS) / (BURST * BURSTS);
    out->unit = "ns";
    out->bytes = BYTES;
    out->count = BURST * BURSTS;
    out->flight = RING;
    hf_store_release_u32(&shared->kick, 1); /* pairs with drain */
    for (uint64_t i = 0; i < stores; i++) {
        (void)waitpid(child[i], NULL, 0);
    }
    (void)munmap(shared, 4096);
    world_close(&world);
}

const struct bench_case store_cases[] = {
    {"stable", ":memory|disk       send until the store's line says stable, 128 B, spinning", run_stable},
    {"paced", ":STORES[:backoff|block|yield|busy_spin]  thread CPU of the source per message at 500 k msg/s",
     run_paced},
    {NULL, NULL, NULL},
};
