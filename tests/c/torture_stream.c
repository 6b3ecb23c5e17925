/* torture_stream.c [messages | overrun | undefined | race]: one source that laps its readers whenever it can, a policy thread that releases
 * behind it, and four readers: copying, copying asleep (block), batches under a pin, bulk copies. Every payload
 * proves its number and itself. A reader may lose messages to a lap, and it is told; it never sees a wrong, torn,
 * repeated or misordered one. The words plant what a sanitizer is there to see; without it they mean nothing. */
#include <pthread.h>
#include <sched.h>
#include "stream_kit.h"

#if defined(__SANITIZE_THREAD__)
#define MESSAGES 400000
#else
#define MESSAGES 6000000
#endif

enum { COPYING, SLEEPING, BATCHES, BULK, READERS };
enum { WORDS = 600, PAYLOAD_MAX = WORDS * 8, LAP = 50000, NAP_EVERY = 1024 };

static struct hf_source *source;
static struct hf_map *board;
static struct hf_map *bells;
static uint32_t stopped; /* the policy thread ends */
static enum { NOTHING, OVERRUN, UNDEFINED, RACE } planted;
static uint64_t reached[READERS]; /* next number of each reader; the source waits for them once per LAP messages */

struct report {
    int kind;
    int64_t line;
    uint64_t calls;
    uint64_t messages;
    uint64_t lapped;
    uint64_t evicted;
};

/* ---- payloads: a whole number of words; the first is the first sequence number, the others follow from it ---- */

static uint64_t size_of(uint64_t sqn)
{
    uint64_t dice = kit_mix(sqn) % 64;
    return 8 * (dice == 0 ? WORDS - sqn % 8 : 1 + dice % 20);
}

static void compose(uint8_t *out, uint64_t bytes, uint64_t sqn)
{
    for (uint64_t i = 0; i < bytes / 8; i++) {
        uint64_t word = i == 0 ? sqn : kit_mix(sqn + i * bytes);
        memcpy(out + 8 * i, &word, 8);
    }
}

static int proves(const uint8_t *data, uint64_t bytes, uint64_t sqn)
{
    int good = bytes >= 8 && bytes % 8 == 0;
    for (uint64_t i = 0; good && i < bytes / 8; i++) {
        uint64_t word;
        memcpy(&word, data + 8 * i, 8);
        good = word == (i == 0 ? sqn : kit_mix(sqn + i * bytes));
    }
    return good;
}

/* ---- the source ---- */

static int64_t send_one(uint64_t sqn, uint8_t *data)
{
    uint64_t bytes = size_of(sqn);
    int64_t status;
    if (bytes <= 160 && sqn % 5 == 0) {
        uint8_t *view = hf_source_claim(source, bytes, &status);
        if (view == NULL) {
            return status;
        }
        compose(data, bytes, sqn);
        hf_copy_in(view, data, bytes);
        return sqn % 15 == 0 && hf_source_abort(source) == HF_OK ? hf_source_send(source, data, bytes)
                                                                 : hf_source_commit(source);
    }
    compose(data, bytes, sqn);
    return hf_source_send(source, data, bytes);
}

/* Up to 30 messages at once, each with the number that it will get. */
static int64_t send_many(uint64_t sqn, uint8_t *data)
{
    uint64_t width = 8 * (1 + sqn % 9);
    int32_t offsets[31] = {0};
    for (uint64_t i = 0; i < 30; i++) {
        uint64_t bytes = sqn % 2 == 0 ? width : 8 * (1 + i);
        compose(data + offsets[i], bytes, sqn + i);
        offsets[i + 1] = offsets[i] + (int32_t)bytes;
    }
    return sqn % 2 == 0 ? hf_source_send_rows(source, data, width, width, 30)
                        : hf_source_send_binary(source, data, offsets, 0, 0, 30);
}

static uint64_t reached_by(int reader)
{
    return planted == RACE ? reached[reader] : hf_load_acquire_u64(&reached[reader]);
}

static void wait_for_readers(void)
{
    for (int i = 0; i < READERS; i++) {
        while (reached_by(i) < hf_source_next(source)) {
            sched_yield();
        }
    }
}

static void run_source(uint64_t messages)
{
    static uint8_t data[PAYLOAD_MAX + 30 * 240];
    uint64_t waited = 0;
    while (kit_header(source)->messages < messages) {
        uint64_t sqn = hf_source_next(source);
        int64_t status = kit_mix(sqn ^ 99) % 8 == 0 ? send_many(sqn, data) : send_one(sqn, data);
        CHECK(status >= 0 || status == HF_PINNED || status == HF_RETENTION);
        if (status < 0) {
            sched_yield();
        }
        if (sqn / LAP != waited) {
            waited = sqn / LAP;
            wait_for_readers();
        }
    }
}

static void *run_policy(void *unused)
{
    (void)unused;
    uint64_t fragments, bytes, retained;
    for (uint32_t round = 0; hf_load_acquire_u32(&stopped) == 0; round++) {
        CHECK(hf_source_release(source, hf_source_next(source)) >= 0);
        hf_source_in_flight(source, &fragments, &bytes, &retained);
        CHECK(retained <= KIT_RING * 4);
        hf_source_limits(source, round % 2 == 0 ? 0 : 100000, 0, 0);
        sched_yield();
    }
    return NULL;
}

/* ---- readers ---- */

/* Now and then a reader dawdles, so that it is lapped and its views are evicted. */
static void dawdle(struct report *report)
{
    if (++report->calls % NAP_EVERY == 0) {
        usleep(7000);
    }
}

static int64_t take_batch(struct hf_reader *r, struct report *report)
{
    static struct hf_entry entries[64];
    static uint8_t data[PAYLOAD_MAX];
    uint64_t from, to, first = hf_reader_next(r);
    int good = 1;
    int64_t n = hf_reader_batch(r, entries, 64, 16384, &from, &to);
    if (n <= 0) {
        return n;
    }
    dawdle(report);
    for (int64_t i = 0; i < n; i++) {
        good &= hf_gather(hf_reader_base(r), KIT_RING * 4, &entries[i], data) == (int64_t)entries[i].length &&
                proves(data, entries[i].length, entries[i].first_sequence_number);
    }
    if (hf_reader_unpin(r, from, UINT64_MAX) == HF_EVICTED) {
        report->evicted++;
        CHECK_EQ(hf_reader_seek(r, first), HF_LAPPED);
        return HF_LAPPED;
    }
    CHECK(good);
    CHECK_EQ(entries[0].first_sequence_number, first);
    CHECK_EQ(entries[n - 1].sequence_number + 1, hf_reader_next(r));
    report->messages += (uint64_t)n;
    return 1;
}

static int64_t take_bulk(struct hf_reader *r, struct report *report)
{
    static _Alignas(64) uint8_t block[16384];
    static uint8_t data[PAYLOAD_MAX];
    static struct hf_entry entries[512];
    uint64_t first, next, consumed, expected = hf_reader_next(r);
    uint64_t room = sizeof block + (planted == OVERRUN ? KIT_RING : 0);
    int64_t bytes = hf_reader_copy(r, block, room, &first, &next);
    if (bytes <= 0) {
        return bytes;
    }
    int64_t n = hf_scan(block, (uint64_t)bytes, entries, 512, &consumed);
    CHECK(n > 0 && consumed == (uint64_t)bytes && first == expected && next == hf_reader_next(r));
    for (int64_t i = 0; i < n; i++) {
        CHECK_EQ(hf_gather(block, 0, &entries[i], data), entries[i].length);
        CHECK_EQ(entries[i].first_sequence_number, expected);
        CHECK(proves(data, entries[i].length, expected));
        expected = entries[i].sequence_number + 1;
    }
    CHECK_EQ(expected, next);
    report->messages += (uint64_t)n;
    return 1;
}

static int64_t take_copy(struct hf_reader *r, struct report *report, uint8_t *data)
{
    struct hf_entry entry;
    uint64_t expected = hf_reader_next(r);
    int64_t status = report->kind == SLEEPING
                         ? hf_reader_receive_wait(r, &entry, data, PAYLOAD_MAX, HF_WAIT_BLOCK, 10000000)
                         : hf_reader_receive(r, &entry, data, PAYLOAD_MAX);
    if (status == 1) {
        CHECK_EQ(entry.first_sequence_number, expected);
        CHECK_EQ(entry.sequence_number + 1, hf_reader_next(r));
        CHECK(proves(data, entry.length, expected));
        report->messages++;
    }
    return status;
}

static void *run_reader(void *argument)
{
    struct report *report = argument;
    struct hf_reader *r;
    uint8_t data[PAYLOAD_MAX];
    CHECK_EQ(hf_reader_open(hf_source_map(source), board, bells, report->line, &r), HF_OK);
    for (;;) {
        uint64_t before = hf_reader_next(r);
        if (report->kind != BATCHES) { /* that one dawdles with a view in its hands */
            dawdle(report);
        }
        int64_t status = report->kind == BATCHES ? take_batch(r, report)
                         : report->kind == BULK  ? take_bulk(r, report)
                                                 : take_copy(r, report, data);
        if (status == HF_LAPPED) {
            report->lapped++;
            while ((status = hf_reader_seek_oldest(r)) == HF_LAPPED) {
                sched_yield();
            }
            CHECK_EQ(status, HF_OK);
            CHECK(hf_reader_next(r) > before);
        } else if (status == 0) {
            sched_yield();
        } else if (status == HF_CLOSED) {
            break;
        } else {
            CHECK_EQ(status, 1);
        }
        hf_store_release_u64(&reached[report->kind], hf_reader_next(r));
    }
    CHECK_EQ(hf_reader_next(r), hf_source_next(source));
    hf_reader_close(r);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    planted = strcmp(word, "overrun") == 0     ? OVERRUN
              : strcmp(word, "undefined") == 0 ? UNDEFINED
              : strcmp(word, "race") == 0      ? RACE
                                               : NOTHING;
    uint64_t messages = argc > 1 && planted == NOTHING ? strtoull(word, NULL, 10) : MESSAGES;
    volatile int32_t most = INT32_MAX;
    most += planted == UNDEFINED;
    int domain = check_directory();
    board = kit_map(HF_KIND_BOARD, sizeof(struct hf_board));
    bells = kit_map(HF_KIND_BELLS, sizeof(struct hf_bells));
    struct hf_stream_config config = kit_config();
    config.ring_bytes = KIT_RING * 4;
    config.start_position = UINT64_C(0) - (UINT64_C(1) << 21);
    config.start_sqn = (UINT64_C(1) << 32) - 5000;
    config.pin_timeout_ms = 5; /* so that some views are evicted */
    int fd = check_memory();
    CHECK_EQ(hf_source_create(fd, &config, board, bells, &source), HF_OK);
    close(fd);
    int64_t bell = hf_bell_claim(bells, domain);
    CHECK(bell >= 0);
    struct report reports[READERS] = {0};
    pthread_t threads[READERS], policy;
    for (int i = 0; i < READERS; i++) {
        struct hf_identity who = {.uuid = {(uint8_t)(i + 1)}, .role = HF_ROLE_RECEIVER, .bell = (uint32_t)bell};
        struct hf_line_view holder;
        reports[i] = (struct report){.kind = i, .line = hf_board_claim(board, domain, &who, &holder)};
        CHECK(reports[i].line >= 0);
        CHECK_EQ(pthread_create(&threads[i], NULL, run_reader, &reports[i]), 0);
    }
    CHECK_EQ(pthread_create(&policy, NULL, run_policy, NULL), 0);
    run_source(messages);
    hf_source_close(source);
    for (int i = 0; i < READERS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK(reports[i].messages > 0);
        printf("  reader %d: %llu messages, %llu laps, %llu evictions\n", i, (unsigned long long)reports[i].messages,
               (unsigned long long)reports[i].lapped, (unsigned long long)reports[i].evicted);
    }
    hf_store_release_u32(&stopped, 1);
    CHECK_EQ(pthread_join(policy, NULL), 0);
    uint64_t at;
    CHECK_EQ(hf_stream_valid(hf_source_map(source), &at), HF_OK);
    printf("  %llu messages sent\n", (unsigned long long)kit_header(source)->messages);
    hf_source_destroy(source);
    hf_map_detach(board);
    hf_map_detach(bells);
    close(domain);
    return 0;
}
