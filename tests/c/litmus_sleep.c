/* litmus_sleep.c [rounds [rounds with membarrier]]: the sleeping flags, two store-load races (Dekker's):
 *
 *     source    commit word = own    looks at board.sleepers          stream/send.c wake
 *     reader    sleeping, sleepers = 1    looks at the commit word    board/wait.c hf_line_sleeps
 *
 *     acker     ack = n              looks at board.source_waiting    board/board.c hf_board_ack
 *     source    source_waiting = 1   looks at the ack                 board/wait.c hf_board_source_waits
 *
 * Never: the waker rings nobody, and the sleeper sees nothing new: it would sleep beside a message. The fence is membarrier, issued by
 * the sleeper for both; the waker has a compiler barrier only. Without membarrier (fenced) each side has one of its own. The control
 * takes membarrier away from a waker that counts on it, and leaves the sleeper a fence of its own: its load is ordered then, the
 * waker's is not. */
#include "base/failpoint.h"
#include "litmus.h"

enum form { COMMITS, ACKS };

/* A round with membarrier interrupts the other core: unless they are counted, too, one for every hundred with fences. */
enum { MEMBARRIER_EVERY = 100 };

static int domain;
static uint32_t bell;
static struct hf_map *board, *bells;
static struct hf_source *source;
static struct hf_reader *reader;
static int64_t line;
static struct litmus meeting;

static struct hf_board *shared(void)
{
    return (struct hf_board *)(void *)board->base;
}

static void scene(void)
{
    struct hf_stream_config config = kit_config();
    board = kit_map(HF_KIND_BOARD, sizeof(struct hf_board));
    bells = kit_map(HF_KIND_BELLS, sizeof(struct hf_bells));
    bell = (uint32_t)hf_bell_claim(bells, domain);
    struct hf_identity who = {.uuid = {1}, .role = HF_ROLE_RECEIVER, .bell = bell};
    line = hf_board_claim(board, domain, &who, NULL);
    CHECK(line >= 0);
    int fd = check_memory();
    CHECK_EQ(hf_source_create(fd, &config, board, bells, &source), HF_OK);
    close(fd);
    CHECK_EQ(hf_reader_open(hf_source_map(source), board, bells, line, &reader), HF_OK);
}

static void end(void)
{
    hf_reader_close(reader);
    hf_source_destroy(source);
    hf_map_detach(board);
    hf_map_detach(bells);
}

/* ---- the waker: it changes something, and rings if it sees a sleeper ---- */

static void wake(enum form form, uint64_t round)
{
    if (form == ACKS) {
        hf_board_ack(board, bells, line, round + 1, round + 1);
        return;
    }
    uint64_t payload = round;
    CHECK_EQ(hf_source_send(source, (const uint8_t *)&payload, sizeof payload), round);
}

struct waker {
    enum form form;
};

static void *run_waker(void *argument)
{
    const struct waker *waker = argument;
    for (uint64_t round = 0; litmus_right(&meeting); round++) {
        litmus_jitter(round, 0);
        wake(waker->form, round);
        litmus_right(&meeting);
    }
    return NULL;
}

/* ---- the sleeper: says that it sleeps, and looks once more. 1: there is something new ---- */

static int lies_down(enum form form, uint64_t round)
{
    if (form == ACKS) {
        CHECK(hf_board_source_waits(board, bell) > 0);
        return hf_load_acquire_u64(&hf_board_line_at(board, line)->ack) > round;
    }
    CHECK(hf_line_sleeps(board, line, 1) > 0);
    return hf_reader_ready(reader) == 1;
}

static void gets_up(enum form form)
{
    struct hf_entry entry;
    uint64_t payload;
    if (form == ACKS) {
        hf_store_relaxed_u32(&shared()->source_waiting, 0);
        return;
    }
    hf_line_sleeps(board, line, 0);
    CHECK_EQ(hf_reader_receive(reader, &entry, (uint8_t *)&payload, sizeof payload), 1);
    CHECK_EQ(hf_source_release(source, hf_reader_next(reader)), 1);
    if (payload % 2 == 0) { /* else a hint is left over, as after every message that the reader found by itself */
        hf_store_relaxed_u32(&shared()->sleepers, 0);
    }
}

/* How often it was there already, how often the bell rang, and neither. */
struct seen {
    uint64_t rounds, found, rung, harm;
};

/* Linux forgets on a core that we have registered when one of our threads ends there, and learns it again when memory of another process
 * is loaded, not when the next thread of ours comes (seen on 6.18; base/process.c says what that costs). The thread of the round before ended
 * somewhere: another process runs on each core. */
static void let_everybody_in(void)
{
    cpu_set_t cores;
    CHECK_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &cores)) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(core, &one);
            pid_t other = fork();
            if (other == 0) {
                _exit(sched_setaffinity(0, sizeof one, &one) != 0);
            }
            int status = -1;
            CHECK(other > 0 && waitpid(other, &status, 0) == other);
            CHECK_EQ(status, 0);
        }
    }
}

static struct seen run(enum form form, uint64_t rounds, int control)
{
    struct seen seen = {0};
    struct waker waker = {form};
    pthread_t thread;
    scene();
    let_everybody_in();
    meeting = control ? litmus_begin_control() : litmus_begin(rounds);
    CHECK_EQ(pthread_create(&thread, NULL, run_waker, &waker), 0);
    for (; litmus_more(&meeting, seen.rounds) && (!control || seen.harm == 0); seen.rounds++) {
        uint32_t before = hf_bell_read(bells, bell);
        litmus_left(&meeting);
        litmus_jitter(seen.rounds, 1);
        int found = lies_down(form, seen.rounds);
        litmus_left(&meeting);
        int rung = hf_bell_read(bells, bell) != before;
        seen.found += found != 0;
        seen.rung += rung != 0;
        seen.harm += !found && !rung;
        gets_up(form);
    }
    hf_store_release_u32(&meeting.over, 1);
    litmus_left(&meeting);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    end();
    return seen;
}

static const char *const names[] = {"commits", "acks"};

static uint64_t holds(const char *barrier, enum form form, uint64_t rounds)
{
    struct seen seen = run(form, rounds, 0);
    printf("  %s, %s: %llu rounds, found %llu, rung %llu\n", names[form], barrier, (unsigned long long)seen.rounds,
           (unsigned long long)seen.found, (unsigned long long)seen.rung);
    CHECK_EQ(seen.harm, 0);
    return seen.rounds;
}

int main(int argc, char **argv)
{
    uint64_t rounds = litmus_rounds(argc, argv);
    domain = check_directory();
    /* First, because a process that has registered for membarrier stays so. */
    hf_failpoint_arm("wait.register=errno:EPERM;wait.barrier=errno:EPERM");
    CHECK_EQ(hf_wait_setup(), 0);
    uint64_t done = holds("fences", COMMITS, rounds) + holds("fences", ACKS, rounds);
    hf_failpoint_arm("");
    if (!hf_wait_setup()) {
        SKIP("no membarrier here: the fences held, what does without them was not tried");
    }
    uint64_t rare = argc > 2 ? strtoull(argv[2], NULL, 10) : (rounds + MEMBARRIER_EVERY - 1) / MEMBARRIER_EVERY;
    uint64_t interrupted = holds("membarrier", COMMITS, rare) + holds("membarrier", ACKS, rare);
    int n = litmus_controls() ? 2 : 0, caught = 0;
    hf_failpoint_arm("wait.barrier=errno:EPERM");
    for (int form = 0; form < n; form++) {
        struct seen seen = run((enum form)form, 0, 1);
        caught += litmus_caught(names[form], seen.harm, seen.rounds);
    }
    printf("{\"evidence\": \"litmus_sleep\", \"counts\": {\"rounds\": %llu, \"rounds with membarrier\": %llu}, "
           "\"findings\": 0, \"planted\": [%d, %d]}\n",
           (unsigned long long)done, (unsigned long long)interrupted, caught, n);
    close(domain);
    return 0;
}
