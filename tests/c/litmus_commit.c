/* litmus_commit.c [rounds]: message passing by the commit word (stream/stream.h rules 1 and 2):
 *
 *     source  number, time, kind, payload   word = own position (release)     stream/send.c frame_put, message_put
 *     reader  word (acquire)                number, time, kind, payload       stream/reader.c receive, receive_slow
 *
 * Never: the word is there, and something before it is not; for a message of several frames, never a part of it. The reader stands
 * at the tail, where the two meet. x86 keeps stores in their order and loads in theirs, so what is left to go wrong on it is the
 * compiler; on aarch64 release and acquire do the work. The control therefore swaps the program's order: payload behind the word. */
#include "litmus.h"

enum { FRAGMENT = 64, LONGEST = 3 * FRAGMENT, AHEAD = 2 };

static struct hf_source *source;
static uint64_t reached; /* the reader's next number; all ones: it ends */
static uint64_t harm;
static uint32_t over;

static uint64_t length_of(uint64_t message)
{
    return kit_mix(message) % 8 == 0 ? FRAGMENT + 1 + message % (LONGEST - FRAGMENT) : 8 + message % (FRAGMENT - 7);
}

static void *run_reader(void *unused)
{
    static uint8_t buf[LONGEST];
    struct hf_reader *r = kit_reader(source, NULL, -1);
    struct hf_entry entry;
    (void)unused;
    for (uint64_t message = 0;;) {
        int64_t status = hf_reader_receive(r, &entry, buf, sizeof buf);
        if (status == 0) {
            if (hf_load_acquire_u32(&over) != 0 && hf_reader_ready(r) == 0) {
                break;
            }
            continue;
        }
        CHECK_EQ(status, 1);
        CHECK_EQ(entry.length, length_of(message));
        harm += kit_is(buf, entry.length, message) ? 0 : 1;
        message++;
        hf_store_release_u64(&reached, hf_reader_next(r));
    }
    hf_reader_close(r);
    return NULL;
}

static void send(uint64_t message, int which)
{
    static uint8_t data[LONGEST];
    uint64_t length = length_of(message);
    kit_fill(data, length, message);
    int64_t status =
        which == PLANTED_NOTHING ? hf_source_send(source, data, length) : planted_source_send(source, data, length);
    CHECK(status >= 0);
    /* The reader is never far behind: the next word is one that it looks at already. */
    for (int spins = 0; hf_source_next(source) - hf_load_acquire_u64(&reached) > AHEAD; spins++) {
        if (spins < LITMUS_SPINS) {
            hf_cpu_relax();
        } else {
            sched_yield();
        }
    }
    CHECK(hf_source_release(source, hf_load_acquire_u64(&reached)) >= 0);
}

/* Messages sent. */
static uint64_t run(int which, uint64_t rounds)
{
    struct hf_stream_config config = kit_config();
    pthread_t reader;
    config.fragment_bytes = FRAGMENT;
    planted = which;
    reached = 0;
    harm = 0;
    over = 0;
    source = kit_source(&config, NULL);
    CHECK_EQ(pthread_create(&reader, NULL, run_reader, NULL), 0);
    struct litmus effort = which == PLANTED_NOTHING ? litmus_begin(rounds) : litmus_begin_control();
    uint64_t done = 0;
    while (litmus_more(&effort, done) && (which == PLANTED_NOTHING || hf_load_relaxed_u64(&harm) == 0)) {
        send(done++, which);
    }
    hf_store_release_u32(&over, 1);
    CHECK_EQ(pthread_join(reader, NULL), 0);
    hf_source_destroy(source);
    return done;
}

int main(int argc, char **argv)
{
    uint64_t rounds = run(PLANTED_NOTHING, litmus_rounds(argc, argv));
    CHECK_EQ(harm, 0);
    printf("  %llu messages\n", (unsigned long long)rounds);
    int n = litmus_controls(), caught = 0;
    if (n > 0) {
        uint64_t needed = run(PLANTED_LATE_PAYLOAD, 0);
        caught = litmus_caught("payload behind its word", harm, needed);
    }
    litmus_evidence("litmus_commit", rounds, caught, n);
    return 0;
}
