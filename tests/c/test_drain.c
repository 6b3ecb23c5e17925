/* The store's inner loop: ring to log to board line, for several sources, asleep and awake, when things fail, when
 * it dies. */
#include <pthread.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/status.h"
#include "board/bell.h"
#include "board/wait.h"
#include "check.h"
#include "store/drain.h"

enum { SOURCES = 3, STAGING = 2 << 20, RING = 1 << 20 };

/* One source, its store's side, and where the log lives. */
struct kept {
    int stream_fd, board_fd, dir;
    struct hf_source *source;
    struct hf_map *board;
    struct hf_drain_item item;
    uint8_t uuid[16];
    uint32_t level;
};

static int domain, root, bells_fd;
static struct hf_map *bells;
static uint32_t bell;
static uint8_t *staging;
static volatile uint32_t kick;
static int made;

static void store_side(struct kept *k, struct hf_map *stream, uint64_t from)
{
    struct hf_identity who = {.uuid = {42}, .role = HF_ROLE_STORE, .level = k->level, .bell = bell, .name = "store"};
    struct hf_log_config config = {.first_segment_bytes = 65536, .max_segment_bytes = 1 << 20, .level = k->level};
    memcpy(config.uuid, k->uuid, 16);
    k->item = (struct hf_drain_item){.board = k->board, .bells = bells, .level = k->level};
    k->item.line_index = hf_board_claim(k->board, domain, &who, NULL);
    CHECK(k->item.line_index >= 0);
    CHECK_EQ(hf_log_open(k->dir, &config, &k->item.log), HF_OK);
    CHECK_EQ(hf_reader_open(stream, k->board, bells, k->item.line_index, &k->item.reader), HF_OK);
    CHECK_EQ(hf_reader_seek(k->item.reader, from), HF_OK);
}

static void make_source(struct kept *k, uint32_t level)
{
    char name[32];
    memset(k, 0, sizeof *k);
    snprintf(name, sizeof name, "log-%d", made++);
    CHECK(mkdirat(root, name, 0700) == 0);
    k->dir = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    k->level = level;
    memset(k->uuid, made, 16);
    k->board_fd = check_memory();
    k->stream_fd = check_memory();
    CHECK_EQ(hf_map_create(k->board_fd, HF_KIND_BOARD, sizeof(struct hf_board), 0, k->uuid, 0, &k->board), HF_OK);
    hf_map_publish(k->board);
    struct hf_stream_config config = {.incarnation = 1, .ring_bytes = RING, .fragment_bytes = 65536, .topic = "t"};
    memcpy(config.uuid, k->uuid, 16);
    CHECK_EQ(hf_source_create(k->stream_fd, &config, k->board, bells, &k->source), HF_OK);
}

static void make(struct kept *k, uint32_t level)
{
    make_source(k, level);
    store_side(k, hf_source_map(k->source), 0);
    CHECK_EQ(hf_log_begin(k->item.log, 1, 0), HF_OK);
}

static void unmake(struct kept *k)
{
    if (k->item.log != NULL) {
        hf_reader_close(k->item.reader);
        hf_log_close(k->item.log);
    }
    hf_source_destroy(k->source);
    hf_map_detach(k->board);
    close(k->stream_fd);
    close(k->board_fd);
    close(k->dir);
}

static uint8_t content(uint64_t sqn, uint64_t i)
{
    return (uint8_t)(sqn * 13 + i * 7 + (sqn >> 7));
}

static void send(struct kept *k, uint64_t count, uint64_t bytes)
{
    static uint8_t data[1 << 19];
    for (uint64_t n = 0; n < count; n++) {
        uint64_t sqn = hf_source_next(k->source);
        for (uint64_t i = 0; i < bytes; i++) {
            data[i] = content(sqn, i);
        }
        CHECK(hf_source_send(k->source, data, bytes) >= 0);
    }
}

static uint64_t acked(struct kept *k)
{
    return hf_load_acquire_u64(&hf_board_line_at(k->board, k->item.line_index)->ack);
}

static int64_t drain_with(struct hf_drain_item **items, int64_t n, int strategy, int64_t timeout_ns, int parallel)
{
    return hf_drain(items, n, staging, STAGING, 1 << 20, &kick, bells, bell, strategy, timeout_ns, parallel);
}

static int64_t drain(struct kept *k)
{
    struct hf_drain_item *items[1] = {&k->item};
    return drain_with(items, 1, HF_WAIT_YIELD, 0, 0);
}

/* The log holds numbers [0, next), with the content that was sent. */
static void expect_log(struct kept *k, uint64_t next_sqn)
{
    static uint8_t buf[1 << 20];
    static struct hf_entry entries[4096];
    struct hf_logr *r;
    CHECK_EQ(hf_logr_open(k->dir, &r), HF_OK);
    uint64_t at = 0, next;
    while (at < next_sqn) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        CHECK(n > 0);
        uint64_t used = 0, consumed;
        while (used < (uint64_t)n) {
            int64_t got = hf_scan(buf + used, (uint64_t)n - used, entries, 4096, &consumed);
            CHECK(got > 0);
            for (int64_t i = 0; i < got; i++) {
                CHECK_EQ(entries[i].first_sequence_number, at);
                if (entries[i].fragments == 1) {
                    const uint8_t *payload = buf + used + entries[i].offset;
                    for (uint64_t b = 0; b < entries[i].length; b++) {
                        CHECK_EQ(payload[b], content(at, b));
                    }
                }
                at = entries[i].sequence_number + 1;
            }
            used += consumed;
        }
        CHECK_EQ(at, next);
    }
    CHECK_EQ(at, next_sqn);
    CHECK_EQ(hf_logr_read(r, at, buf, sizeof buf, &next), HF_AGAIN);
    hf_logr_close(r);
}

static void everything_sent_is_in_the_log_and_acknowledged(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        struct kept k;
        make(&k, level);
        for (int round = 0; round < 20; round++) {
            send(&k, 200, 300);
            CHECK_EQ(drain(&k), 0);
            CHECK_EQ(acked(&k), hf_source_next(k.source));
            CHECK_EQ(k.item.pending_bytes, 0);
            hf_source_release(k.source, acked(&k));
        }
        CHECK_EQ(k.item.messages, 4000);
        CHECK(k.item.rolls > 1);
        expect_log(&k, 4000);
        unmake(&k);
    }
}

static void the_ack_of_a_paced_item_stops_at_the_message_that_is_too_much(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        struct kept k;
        make(&k, level);
        struct hf_drain_sample samples[3];
        k.item.paced = 1;
        k.item.ack_payload = 7 * 300;
        k.item.samples = samples;
        k.item.samples_max = 3;
        k.item.sample_bytes = 500;
        send(&k, 5, 300);
        CHECK_EQ(drain(&k), 0); /* a call ends with a roll */
        CHECK_EQ(drain(&k), 0);
        CHECK_EQ(acked(&k), 5);
        send(&k, 5, 300); /* one block: numbers 5 and 6 of it still fit */
        CHECK_EQ(drain(&k), 0);
        CHECK_EQ(acked(&k), 7);
        send(&k, 1, 1);
        CHECK_EQ(drain(&k), 0);
        CHECK_EQ(acked(&k), 7); /* small, but behind what does not fit */
        CHECK_EQ(k.item.payload, 3001);
        CHECK_EQ(k.item.sample_count, 3); /* behind 600, 1200 and 1800 bytes; then the owner is slow */
        CHECK_EQ(samples[2].payload, 1800);
        CHECK_EQ(samples[2].sqn, 6);
        expect_log(&k, 11); /* it is stored all the same */
        k.item.ack_payload = 1 << 20;
        k.item.ack_sqn = 11; /* the owner has freed room, and says so */
        send(&k, 1, 300);
        CHECK_EQ(drain(&k), 0);
        CHECK_EQ(acked(&k), 12);
        unmake(&k);
    }
}

static void messages_larger_than_a_block_pass_whole(void)
{
    struct kept k;
    struct hf_drain_item *items[1] = {&k.item};
    make(&k, HF_LEVEL_MEMORY);
    hf_source_limits(k.source, 0, 0, 0);
    static uint8_t big[200000];
    send(&k, 3, 100);
    CHECK(hf_source_send(k.source, big, sizeof big) >= 0); /* four fragments */
    send(&k, 3, 100);
    uint64_t next = hf_source_next(k.source);
    k.item.status = HF_OK;
    CHECK_EQ(hf_drain(items, 1, staging, 65536, 1 << 20, &kick, bells, bell, HF_WAIT_YIELD, 0, 0), 1);
    CHECK_EQ(k.item.status, HF_SMALL); /* the caller brings a larger staging block */
    CHECK_EQ(acked(&k), 3);
    k.item.status = HF_OK;
    CHECK_EQ(drain(&k), 0);
    CHECK_EQ(acked(&k), next);
    expect_log(&k, next);
    unmake(&k);
}

static void a_source_with_a_backlog_does_not_starve_the_others(void)
{
    struct kept k[SOURCES];
    struct hf_drain_item *items[SOURCES];
    for (int i = 0; i < SOURCES; i++) {
        make(&k[i], HF_LEVEL_MEMORY);
        items[i] = &k[i].item;
    }
    send(&k[0], 2000, 300);
    send(&k[1], 1, 300);
    send(&k[2], 5, 300);
    kick = 1; /* one round */
    CHECK_EQ(drain_with(items, SOURCES, HF_WAIT_BLOCK, INT64_MAX, 0), 0);
    kick = 0;
    CHECK(k[0].item.bytes <= HF_STAGING_MAX && acked(&k[0]) > 0);
    CHECK_EQ(acked(&k[1]), 1);
    CHECK_EQ(acked(&k[2]), 5);
    CHECK_EQ(drain_with(items, SOURCES, HF_WAIT_YIELD, 0, 0), 0);
    CHECK_EQ(acked(&k[0]), 2000);
    for (int i = 0; i < SOURCES; i++) {
        unmake(&k[i]);
    }
}

static void a_closed_stream_is_drained_to_its_end(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        struct kept k;
        make(&k, level);
        send(&k, 100, 300);
        hf_source_close(k.source);
        CHECK_EQ(drain(&k), 1);
        CHECK_EQ(k.item.status, HF_CLOSED);
        CHECK_EQ(acked(&k), 100);
        CHECK_EQ(drain(&k), 1); /* a stopped item is counted, not served */
        expect_log(&k, 100);
        unmake(&k);
    }
}

static void a_lapped_store_says_so_and_keeps_what_it_had(void)
{
    struct kept k;
    make(&k, HF_LEVEL_MEMORY);
    send(&k, 10, 300);
    CHECK_EQ(drain(&k), 0);
    for (int i = 0; i < 40; i++) {
        send(&k, 100, 1000);
        hf_source_release(k.source, hf_source_next(k.source));
    }
    CHECK_EQ(drain(&k), 1);
    CHECK_EQ(k.item.status, HF_LAPPED);
    CHECK_EQ(acked(&k), 10);
    expect_log(&k, 10);
    unmake(&k);
}

static void nothing_is_acknowledged_when_the_sync_fails(void)
{
    struct kept k;
    make(&k, HF_LEVEL_DISK);
    send(&k, 10, 300);
    CHECK_EQ(drain(&k), 0);
    send(&k, 10, 300);
    hf_failpoint_arm("log.fdatasync=errno:EIO@1");
    CHECK_EQ(drain(&k), 1);
    hf_failpoint_arm(NULL);
    CHECK_EQ(k.item.status, HF_POISONED);
    CHECK_EQ(acked(&k), 10);
    k.item.status = HF_OK;
    CHECK_EQ(drain(&k), 1);
    CHECK_EQ(k.item.status, HF_POISONED);
    CHECK_EQ(acked(&k), 10);
    unmake(&k);
}

static void a_full_disk_stops_an_item_and_it_resumes_without_a_gap(void)
{
    struct kept k;
    make(&k, HF_LEVEL_DISK);
    send(&k, 100, 300);
    hf_failpoint_arm("log.fallocate=errno:ENOSPC");
    CHECK_EQ(drain(&k), 1);
    CHECK_EQ(k.item.status, HF_ERRNO - ENOSPC);
    CHECK_EQ(acked(&k), 0);
    hf_failpoint_arm("log.pwrite=errno:ENOSPC@4"); /* header, then SYNC, then the block: some of it fails */
    send(&k, 100, 300);
    for (int i = 0; i < 5 && acked(&k) != 200; i++) {
        k.item.status = HF_OK;
        drain(&k);
    }
    hf_failpoint_arm(NULL);
    CHECK_EQ(k.item.status, HF_OK);
    CHECK_EQ(acked(&k), 200);
    expect_log(&k, 200);
    unmake(&k);
}

static void syncing_may_be_left_to_other_threads(void)
{
    struct kept k;
    struct hf_drain_item *items[1] = {&k.item};
    make(&k, HF_LEVEL_DISK);
    send(&k, 50, 300);
    CHECK_EQ(drain_with(items, 1, HF_WAIT_YIELD, 0, 1), 1);
    CHECK_EQ(k.item.status, HF_AGAIN);
    CHECK(k.item.pending_bytes > 0);
    CHECK_EQ(acked(&k), 0);
    CHECK_EQ(hf_drain_commit(&k.item), HF_OK);
    CHECK_EQ(k.item.status, HF_OK);
    CHECK_EQ(acked(&k), 50);
    hf_source_close(k.source);
    CHECK_EQ(drain_with(items, 1, HF_WAIT_YIELD, 0, 1), 1);
    CHECK_EQ(k.item.status, HF_CLOSED);
    expect_log(&k, 50);
    unmake(&k);
}

struct sender {
    struct kept *k;
    struct check_gate gate;
};

static void *send_one_by_one(void *argument)
{
    struct sender *s = argument;
    for (int i = 0; i < 300; i++) {
        check_pass(&s->gate);
        send(s->k, 1, 64);
    }
    return NULL;
}

/* The drain sleeps before each message is sent; a lost wake would cost 50 ms each time, a missing one hangs. */
static void a_sleeping_drain_is_woken_by_a_send(void)
{
    struct kept k[2];
    struct hf_drain_item *items[2] = {&k[0].item, &k[1].item};
    static const int strategies[] = {HF_WAIT_BLOCK, HF_WAIT_BACKOFF, HF_WAIT_YIELD, HF_WAIT_BUSY_SPIN};
    make(&k[0], HF_LEVEL_MEMORY);
    make(&k[1], HF_LEVEL_DISK);
    struct sender s = {&k[1], check_gate()};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, send_one_by_one, &s), 0);
    for (uint64_t i = 0; i < 300; i++) {
        check_open(&s.gate);
        while (acked(&k[1]) <= i) {
            CHECK_EQ(drain_with(items, 2, strategies[i % 4], 2000000, 0), 0);
        }
    }
    pthread_join(thread, NULL);
    CHECK_EQ(hf_board_line_at(k[1].board, k[1].item.line_index)->sleeping, 0);
    expect_log(&k[1], 300);
    check_close(&s.gate);
    unmake(&k[0]);
    unmake(&k[1]);
}

static void *kick_it(void *unused)
{
    (void)unused;
    hf_store_release_u32(&kick, 1);
    hf_bell_ring(bells, bell);
    return NULL;
}

static void a_kick_ends_the_call(void)
{
    struct kept k;
    struct hf_drain_item *items[1] = {&k.item};
    pthread_t thread;
    make(&k, HF_LEVEL_MEMORY);
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(pthread_create(&thread, NULL, kick_it, NULL), 0);
        while (hf_load_acquire_u32(&kick) == 0) {
            CHECK_EQ(drain_with(items, 1, i % 2 ? HF_WAIT_BLOCK : HF_WAIT_BUSY_SPIN, INT64_MAX, 0), 0);
        }
        pthread_join(thread, NULL);
        CHECK_EQ(drain_with(items, 1, HF_WAIT_BLOCK, INT64_MAX, 0), 0);
        hf_store_release_u32(&kick, 0);
    }
    CHECK_EQ(drain_with(items, 0, HF_WAIT_BLOCK, 1000, 0), 0); /* nothing to serve: the bell and the timeout remain */
    unmake(&k);
}

struct death {
    struct kept *k;
    const char *failpoint;
};

/* A store in a process of its own. */
static void drain_until_killed(void *argument)
{
    struct death *d = argument;
    struct kept *k = d->k;
    struct hf_map *stream;
    CHECK_EQ(hf_process_join(domain), HF_OK);
    CHECK_EQ(hf_map_attach(bells_fd, HF_KIND_BELLS, 1, 1, &bells), HF_OK);
    CHECK_EQ(hf_map_attach(k->board_fd, HF_KIND_BOARD, 1, 1, &k->board), HF_OK);
    CHECK_EQ(hf_map_attach(k->stream_fd, HF_KIND_STREAM, 1, 1, &stream), HF_OK);
    bell = (uint32_t)hf_bell_claim(bells, domain);
    hf_failpoint_arm(d->failpoint);
    store_side(k, stream, 0);
    struct hf_log_info info;
    hf_log_info(k->item.log, &info);
    CHECK_EQ(hf_reader_seek(k->item.reader, info.appended_sqn), HF_OK);
    struct hf_drain_item *items[1] = {&k->item};
    CHECK_EQ(hf_drain(items, 1, staging, 4096, 8192, &kick, bells, bell, HF_WAIT_YIELD, 0, 0), 0);
}

static void a_killed_store_never_acknowledged_more_than_its_log_holds(void)
{
    static const char *const points[] = {"drain.appended=kill@5", "drain.synced=kill@2",  "log.copied=kill@7",
                                         "log.synced=kill@2",     "reader.copied=kill@9", "roll.renamed=kill@2"};
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
            struct kept k;
            make_source(&k, level);
            send(&k, 600, 300);
            struct death d = {&k, points[p]};
            int status = check_wait(check_fork(drain_until_killed, &d));
            CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                  (WIFEXITED(status) && WEXITSTATUS(status) == 0));
            struct hf_line_view view;
            uint64_t ack = hf_board_read(k.board, domain, 0, &view, 1) == 1 ? view.line.ack : 0;
            d.failpoint = NULL;
            check_exited(check_fork(drain_until_killed, &d)); /* the next one takes the line and drains the rest */
            CHECK_EQ(hf_board_read(k.board, domain, 0, &view, 1), 1);
            CHECK(view.line.ack >= ack);
            CHECK_EQ(view.line.ack, 600);
            expect_log(&k, 600);
            unmake(&k);
        }
    }
}

int main(void)
{
    setenv("TMPDIR", "/dev/shm", 1);
    root = domain = check_directory();
    CHECK_EQ(hf_process_join(domain), HF_OK);
    hf_wait_setup();
    static const uint8_t nobody[16] = {1};
    bells_fd = check_memory();
    CHECK_EQ(hf_map_create(bells_fd, HF_KIND_BELLS, sizeof(struct hf_bells), 0, nobody, 0, &bells), HF_OK);
    hf_map_publish(bells);
    bell = (uint32_t)hf_bell_claim(bells, domain);
    staging = malloc(STAGING);
    CHECK(staging != NULL);
    RUN(everything_sent_is_in_the_log_and_acknowledged);
    RUN(the_ack_of_a_paced_item_stops_at_the_message_that_is_too_much);
    RUN(messages_larger_than_a_block_pass_whole);
    RUN(a_source_with_a_backlog_does_not_starve_the_others);
    RUN(a_closed_stream_is_drained_to_its_end);
    RUN(a_lapped_store_says_so_and_keeps_what_it_had);
    RUN(nothing_is_acknowledged_when_the_sync_fails);
    RUN(a_full_disk_stops_an_item_and_it_resumes_without_a_gap);
    RUN(syncing_may_be_left_to_other_threads);
    RUN(a_sleeping_drain_is_woken_by_a_send);
    RUN(a_kick_ends_the_call);
    RUN(a_killed_store_never_acknowledged_more_than_its_log_holds);
    free(staging);
    hf_map_detach(bells);
    return 0;
}
