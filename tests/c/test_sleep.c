/* test_sleep.c: who sleeps for nothing goes on with the same sleep: what stands on the line between two waits, and what
 * ends it. */
#include <pthread.h>

#include "base/failpoint.h"
#include "store/drain.h"
#include "stream_kit.h"

static int domain;
static struct hf_map *board, *bells;
static struct hf_source *source;
static struct hf_reader *reader;
static struct hf_board_line *line;

enum { LINE = 0, NOTHING_NS = 2000000 };

/* One source, and one reader with a line. */
static void scene(void)
{
    struct hf_stream_config config = kit_config();
    board = kit_board();
    bells = kit_map(HF_KIND_BELLS, sizeof(struct hf_bells));
    uint32_t bell = (uint32_t)hf_bell_claim(bells, domain);
    struct hf_identity who = {.uuid = {1}, .role = HF_ROLE_RECEIVER, .bell = bell};
    CHECK_EQ(hf_board_claim(board, domain, &who, NULL), LINE);
    line = hf_board_line_at(board, LINE);
    int fd = check_memory();
    CHECK_EQ(hf_source_create(fd, &config, board, bells, &source), HF_OK);
    close(fd);
    CHECK_EQ(hf_reader_open(hf_source_map(source), board, bells, LINE, &reader), HF_OK);
}

static void end(void)
{
    hf_reader_close(reader);
    hf_source_destroy(source);
    hf_map_detach(board);
    hf_map_detach(bells);
}

static uint32_t *hint(void)
{
    return &((struct hf_board *)(void *)board->base)->sleepers;
}

/* Until it has slept: on a busy machine the time may be over before a wait comes to that. */
static void wait_for_nothing(void)
{
    do {
        CHECK_EQ(hf_reader_wait(reader, HF_WAIT_BLOCK, NOTHING_NS), 0);
    } while (line->sleeping == 0 || *hint() == 0);
}

static void a_wait_for_nothing_leaves_the_line_asleep_and_what_is_found_wakes_it(void)
{
    static uint8_t buf[64];
    struct hf_entry entry;
    uint64_t from, to;
    scene();
    for (int way = 0; way < 4; way++) {
        wait_for_nothing();
        CHECK_EQ(line->sleeping, 1);
        CHECK_EQ(*hint(), 1);
        kit_send(source, 20, 1);
        switch (way) {
        case 0:
            CHECK_EQ(hf_reader_wait(reader, HF_WAIT_BLOCK, NOTHING_NS), 1);
            CHECK_EQ(line->sleeping, 0);
            CHECK_EQ(hf_reader_receive(reader, &entry, buf, sizeof buf), 1);
            break;
        case 1:
            CHECK_EQ(hf_reader_receive_wait(reader, &entry, buf, sizeof buf, HF_WAIT_BLOCK, NOTHING_NS), 1);
            break;
        case 2:
            CHECK_EQ(hf_reader_receive(reader, &entry, buf, sizeof buf), 1);
            break;
        default:
            CHECK_EQ(hf_reader_batch(reader, &entry, 1, sizeof buf, &from, &to), 1);
        }
        CHECK_EQ(line->sleeping, 0);
    }
    end();
}

static void a_commit_between_two_waits_rings_once(void)
{
    scene();
    wait_for_nothing();
    uint32_t before = hf_bell_read(bells, line->bell);
    kit_send(source, 20, 1);
    kit_send(source, 20, 2);
    CHECK_EQ(hf_bell_read(bells, line->bell), before + 1);
    kit_expect(reader, 20, 1);
    kit_expect(reader, 20, 2);
    wait_for_nothing(); /* and it says again that it sleeps */
    CHECK_EQ(*hint(), 1);
    kit_send(source, 20, 3);
    CHECK_EQ(hf_bell_read(bells, line->bell), before + 2);
    end();
}

/* Rung in vain, by a commit that was read before; or another thread of the process has woken up. */
static void who_was_rung_or_finds_the_flag_gone_says_again_that_it_sleeps(void)
{
    scene();
    wait_for_nothing();
    hf_board_wake_slow(board, bells);
    CHECK_EQ(*hint(), 0);
    wait_for_nothing();
    CHECK_EQ(*hint(), 1);
    CHECK_EQ(line->sleeping, 1);
    CHECK_EQ(hf_line_sleeps(board, LINE, 0), 0);
    wait_for_nothing();
    CHECK_EQ(line->sleeping, 1);
    end();
}

/* In processes of their own: a second barrier kills them. On a busy machine a wait may end before it sleeps, which takes none. */
static void wait_again_and_again(void *argument)
{
    const int *strategy = argument;
    scene();
    hf_failpoint_arm("wait.barrier=kill@2");
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(hf_reader_wait(reader, *strategy, NOTHING_NS), 0);
    }
}

static void drain_idly(void *unused)
{
    (void)unused;
    static uint8_t staging[HF_STAGING_MAX];
    static volatile uint32_t kick;
    scene();
    struct hf_drain_item item = {.reader = reader, .board = board, .bells = bells, .line_index = LINE};
    struct hf_drain_item *items[1] = {&item};
    int64_t begin;
    do { /* the time of its wait, up to the next tick, may be over before it sleeps; a call that lasts longer has slept on */
        hf_failpoint_arm("wait.barrier=kill@2");
        begin = hf_now_ns();
        CHECK_EQ(
            hf_drain(items, 1, staging, sizeof staging, 1, &kick, bells, line->bell, HF_WAIT_BACKOFF, 200000000, 0), 0);
        CHECK_EQ(line->sleeping, 0);
    } while (hf_now_ns() - begin <= 2 * HF_WAIT_MAX_NS);
}

static void a_sleep_for_nothing_goes_on_without_another_barrier(void)
{
    static int strategies[] = {HF_WAIT_BLOCK, HF_WAIT_BACKOFF};
    check_exited(check_fork(wait_again_and_again, &strategies[0]));
    check_exited(check_fork(wait_again_and_again, &strategies[1]));
    check_exited(check_fork(drain_idly, NULL));
}

enum { MESSAGES = 2000 };
static struct check_gate gate;
static uint64_t sent; /* messages whose send has returned */

static void *send_to_a_sleeper(void *unused)
{
    (void)unused;
    for (uint64_t i = 0; i < MESSAGES; i++) {
        check_pass(&gate);
        kit_send(source, 20, i);
        hf_source_release(source, hf_source_next(source));
        hf_store_release_u64(&sent, i + 1);
    }
    return NULL;
}

/* Waits end for nothing, shortly before the message comes or after. One that begins when its send has returned never does. */
static void a_reader_that_sleeps_on_is_woken_by_a_send(void)
{
    static uint8_t buf[64];
    struct hf_entry entry;
    pthread_t thread;
    scene();
    gate = check_gate();
    CHECK_EQ(pthread_create(&thread, NULL, send_to_a_sleeper, NULL), 0);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        CHECK_EQ(hf_reader_wait(reader, HF_WAIT_BLOCK, (int64_t)(i % 16) * 5000), 0);
        uint64_t there;
        int64_t got;
        check_open(&gate);
        do {
            there = hf_load_acquire_u64(&sent);
            got = hf_reader_receive_wait(reader, &entry, buf, sizeof buf, HF_WAIT_BLOCK, INT64_MAX);
        } while (got == 0 && there <= i);
        CHECK_EQ(got, 1);
        CHECK(kit_is(buf, 20, i));
    }
    pthread_join(thread, NULL);
    check_close(&gate);
    end();
}

int main(void)
{
    domain = check_directory();
    RUN(a_wait_for_nothing_leaves_the_line_asleep_and_what_is_found_wakes_it);
    RUN(a_commit_between_two_waits_rings_once);
    RUN(who_was_rung_or_finds_the_flag_gone_says_again_that_it_sleeps);
    RUN(a_sleep_for_nothing_goes_on_without_another_barrier);
    RUN(a_reader_that_sleeps_on_is_woken_by_a_send);
    return 0;
}
