/* fan_cases.c: what a message costs a source, and each participant behind it, as they grow in number. CPU time of a thread while
 * it had work to do, so that a figure means the same where processes outnumber the cores: waiting and being preempted are free. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "log_world.h"
#include "store/drain.h"
#include "world.h"

enum { BYTES = 128, STAGING = 2 * HF_STAGING_MAX };

static void nap(int64_t ns)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- fan: one source, many receivers or stores
 *
 *   core 0: rows of 64 -> [stream] -> process 1: batches in place | copies | drain and append :core 1
 *                                  -> process 2, ...                                          :core 2, 3, ..., 1, ...
 *
 * Forked processes with a bell and a line each. Whoever finds nothing to do yields (sched_yield); a sleeper, which else is a
 * receiver, blocks on its bell, and the source pays for waking it. Full: the source naps for 0.1 ms, so that the ring is given
 * back in large pieces, as it is to a source that sleeps. */

enum { FAN_MAX = 64, FAN_RING = 4 << 20, FAN_ROWS = 64, FAN_BATCH = 256, FAN_COUNT = 800000, FAN_TOTAL = 1 << 30 };
enum fan_role { FAN_RECEIVER = 0, FAN_COPIER = 1, FAN_STORE = 2, FAN_SLEEPER = 3 };
enum { FAN_NAP_NS = 100000, FAN_WAIT_NS = 10000000, READY_NAP_NS = 1000000 };
#define FAN_SEGMENT (UINT64_C(4) << 20)
#define FAN_RETAIN (UINT64_C(16) << 20)

struct fan_shared { /* between the parent and its children */
    uint32_t ready;
    int64_t line[FAN_MAX];
    double cost_ns[FAN_MAX]; /* of a message, behind the warm-up */
};

struct fan {
    struct world world;
    struct fan_shared *shared;
    uint64_t bytes;
    uint64_t ring;
    uint64_t warm;
    uint64_t count;
    enum fan_role role;
};

/* One child's work: `step` takes what is there, `next` is the number behind the last message taken. */
struct fan_child {
    const struct fan *fan;
    struct seat seat;
    struct hf_drain_item item;
    uint8_t *staging;
    uint64_t next;
    uint32_t kick;
};

static void take_batch(struct fan_child *child)
{
    struct hf_entry entries[FAN_BATCH];
    uint64_t from = 0;
    uint64_t to = 0;
    int64_t got = hf_reader_batch(child->seat.reader, entries, FAN_BATCH, child->fan->ring / 8, &from, &to);
    if (bench_must(got, "hf_reader_batch") > 0) {
        uint64_t acked = entries[got - 1].sequence_number + 1;
        child->next += (uint64_t)got;
        bench_must(hf_reader_unpin(child->seat.reader, from, UINT64_MAX), "hf_reader_unpin");
        hf_board_ack(child->seat.board, child->seat.bells, child->seat.line, acked, acked);
    }
}

static void take_copies(struct fan_child *child)
{
    for (int i = 0; i < FAN_BATCH; i++) {
        struct hf_entry entry;
        int64_t got = hf_reader_receive(child->seat.reader, &entry, child->staging, child->fan->bytes);
        if (bench_must(got, "hf_reader_receive") == 0) {
            break;
        }
        child->next++;
        child->seat.acked = entry.sequence_number + 1;
    }
    hf_board_ack(child->seat.board, child->seat.bells, child->seat.line, child->seat.acked, child->seat.acked);
}

static void take_drain(struct fan_child *child)
{
    struct hf_drain_item *item = &child->item;
    (void)hf_drain(&item, 1, child->staging, STAGING, BENCH_UNSYNCED, &child->kick, child->seat.bells, child->seat.bell,
                   HF_WAIT_YIELD, 0, 0);
    bench_must(item->status, "hf_drain");
    child->next = item->messages;
}

static void fan_sit(struct fan_child *child, struct world *world, int index, const char *name, int *fd)
{
    static const uint8_t uuid[16] = {BENCH_UUID};
    world_sit(world, &child->seat, child->fan->role == FAN_STORE ? HF_ROLE_STORE : HF_ROLE_RECEIVER, index, 1);
    child->staging = bench_memory(child->fan->bytes > STAGING ? child->fan->bytes : STAGING);
    if (child->fan->role == FAN_STORE) {
        *fd = bench_directory(world->bench->memory_dir, name);
        child->item = (struct hf_drain_item){.reader = child->seat.reader,
                                             .log = bench_memory_log(*fd, uuid, FAN_SEGMENT, FAN_RETAIN),
                                             .board = child->seat.board,
                                             .bells = child->seat.bells,
                                             .line_index = child->seat.line,
                                             .level = HF_LEVEL_MEMORY};
    }
}

static void fan_idle(struct fan_child *child)
{
    if (child->fan->role == FAN_SLEEPER) {
        bench_must(hf_reader_wait(child->seat.reader, HF_WAIT_BLOCK, FAN_WAIT_NS), "hf_reader_wait");
    } else {
        (void)sched_yield();
    }
}

/* Takes everything. The clock is read when something was taken and when nothing was: what lies before is work, or is not. */
static double fan_take(struct fan_child *child)
{
    static void (*const takes[])(struct fan_child *) = {take_batch, take_copies, take_drain, take_batch};
    const struct fan *fan = child->fan;
    int64_t share = bench_cpu_share();
    int64_t cpu = 0;
    int64_t mark = 0;
    uint64_t from = 0;
    while (child->next < fan->warm + fan->count) {
        uint64_t before = child->next;
        takes[fan->role](child);
        int64_t now = bench_cpu();
        if (child->next == before) {
            fan_idle(child);
            now = bench_cpu();
        } else if (before >= fan->warm) {
            cpu += now - mark - share;
            from = from == 0 ? before : from;
        }
        mark = now;
    }
    return (double)cpu / (double)(child->next - from);
}

static void fan_child(struct fan *fan, int index)
{
    struct fan_child child = {.fan = fan};
    const struct bench *bench = fan->world.bench;
    char name[32];
    int fd = -1;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(bench, bench->core_count > 1 ? 1 + index % (bench->core_count - 1) : 0);
    (void)snprintf(name, sizeof name, "fan-%d", index);
    fan_sit(&child, &fan->world, index, name, &fd);
    fan->shared->line[index] = child.seat.line;
    (void)hf_add_u32(&fan->shared->ready, 1); /* pairs with fan_fork: ready */
    fan->shared->cost_ns[index] = fan_take(&child);
    world_rise(&child.seat);
    if (fd >= 0) {
        hf_log_close(child.item.log);
        bench_remove(bench->memory_dir, name, fd);
    }
    _exit(0);
}

static void fan_fork(struct fan *fan, uint64_t count, pid_t *child)
{
    for (uint64_t i = 0; i < count; i++) {
        child[i] = fork();
        if (child[i] < 0) {
            bench_die("fork", HF_ERRNO - errno);
        }
        if (child[i] == 0) {
            fan_child(fan, (int)i);
        }
        while (hf_load_acquire_u32(&fan->shared->ready) <= i) { /* pairs with fan_child */
            if (waitpid(child[i], NULL, WNOHANG) != 0) {
                bench_die("a process of fan ended early", HF_GONE);
            }
            nap(READY_NAP_NS);
        }
        fan->world.line[fan->world.joined++] = hf_board_line_at(fan->world.board, fan->shared->line[i]);
    }
}

/* Sends this many messages, the same bytes each time. The CPU time of the sends and the releases that made room for them, in ns. */
static int64_t fan_send(struct fan *fan, const uint8_t *row, uint64_t count, int64_t share)
{
    int64_t cpu = 0;
    int64_t mark = bench_cpu();
    for (uint64_t sent = 0; sent < count;) {
        uint64_t most = count - sent < FAN_ROWS ? count - sent : FAN_ROWS;
        int64_t status = hf_source_send_rows(fan->world.source, row, fan->bytes, 0, most);
        if (status > 0) {
            sent += (uint64_t)status;
            continue;
        }
        if (status != HF_RETENTION && status != HF_PINNED) {
            bench_die("hf_source_send_rows", status);
        }
        cpu += bench_cpu() - mark - share;
        nap(FAN_NAP_NS);
        mark = bench_cpu();
        world_release(&fan->world);
    }
    return cpu + bench_cpu() - mark - share;
}

static void fan_open(struct fan *fan, const struct bench *bench, const struct words *words)
{
    static const char *const roles[] = {"receiver", "copier", "store", "sleeper"};
    fan->role = (enum fan_role)bench_choice(words, 2, roles, 4);
    fan->bytes = bench_number(words, 4, BYTES);
    fan->ring = bench_number(words, 5, FAN_RING);
    if (fan->bytes == 0 || fan->bytes > fan->ring / 8) {
        bench_usage("a message of fan takes 1 byte to an eighth of the ring");
    }
    fan->count = fan->bytes < FAN_TOTAL / FAN_COUNT ? FAN_COUNT : FAN_TOTAL / fan->bytes;
    fan->warm = fan->count / 2;
    world_open(&fan->world, bench, &(struct world_config){.ring_bytes = fan->ring, .uuid = {BENCH_UUID}});
    fan->shared = mmap(NULL, sizeof *fan->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fan->shared == MAP_FAILED) {
        bench_die("mmap", HF_ERRNO - errno);
    }
}

static void run_fan(const struct bench *bench, const struct words *words, struct sample *out)
{
    static const char *const sides[] = {"source", "far"};
    struct fan fan = {.count = 0};
    int far = bench_choice(words, 1, sides, 2);
    uint64_t count = bench_number(words, 3, 1);
    if (count < 1 || count > FAN_MAX) {
        bench_usage("fan takes 1 to 64 receivers or stores");
    }
    fan_open(&fan, bench, words);
    pid_t child[FAN_MAX];
    fan_fork(&fan, count, child);
    uint8_t *row = bench_memory(fan.bytes);
    int64_t share = bench_cpu_share();
    (void)fan_send(&fan, row, fan.warm, share);
    out->value = (double)fan_send(&fan, row, fan.count, share) / (double)fan.count;
    double far_ns = 0;
    for (uint64_t i = 0; i < count; i++) {
        int status = 0;
        (void)waitpid(child[i], &status, 0);
        if (status != 0) {
            bench_die("a process of fan failed", HF_GONE);
        }
        far_ns += fan.shared->cost_ns[i] / (double)count;
    }
    out->value = far != 0 ? far_ns : out->value;
    out->unit = "ns";
    out->bytes = fan.bytes;
    out->count = fan.count;
    out->flight = fan.ring;
    (void)munmap(fan.shared, sizeof *fan.shared);
    free(row);
    world_close(&fan.world);
}

const struct bench_case fan_cases[] = {
    {"fan",
     ":source|far:receiver|copier|store|sleeper:N[:BYTES[:RING]]  CPU per message of the source, or of each behind it",
     run_fan},
    {NULL, NULL, NULL},
};
