/* litmus_pin.c [rounds]: the handshake of pin and trail (stream/stream.h rule 3), a store-load race on both sides:
 *
 *     source  trail = t   fence (seq_cst store, hf_fence_seq_cst)   looks at the pins     stream/send.c trail_raise
 *     reader  pin = p     fence (seq_cst store)                     looks at the trail    stream/reader.c pin_take
 *
 * With p < t, never: the source saw no pin, and the reader saw no trail beyond it. The ring holds three messages; in each round the
 * source claims room that the oldest stands in, and the reader takes a view of that one. Each side without its fence is a control:
 * every x86 lets a load overtake an older store. */
#include "litmus.h"

enum { SPAN = KIT_RING / 4, PAYLOAD = SPAN - HF_GRANULE };

static struct hf_map *board;
static struct hf_source *source;
static struct litmus meeting;
static int64_t taken; /* the reader's answer in this round */

static uint8_t *claim(int64_t *status)
{
    return planted == PLANTED_SOURCE_UNFENCED ? planted_source_claim(source, PAYLOAD, status)
                                              : hf_source_claim(source, PAYLOAD, status);
}

static void commit(uint8_t *view)
{
    uint64_t sqn = hf_source_next(source);
    hf_copy_in(view, (const uint8_t *)&sqn, sizeof sqn);
    CHECK_EQ(hf_source_commit(source), sqn);
    CHECK_EQ(hf_source_release(source, sqn + 1), 1);
}

/* Until the pin is gone, the claim gets no room: so the view's bytes are still those of its message. */
static void *run_reader(void *unused)
{
    struct hf_reader *r = kit_reader(source, board, 0);
    struct hf_entry entry;
    uint64_t from, to, sqn;
    (void)unused;
    CHECK_EQ(hf_reader_seek(r, 0), HF_OK);
    for (uint64_t round = 0; litmus_right(&meeting); round++) {
        litmus_jitter(round, 0);
        taken = planted == PLANTED_READER_UNFENCED ? planted_reader_batch(r, &entry, 1, UINT64_MAX, &from, &to)
                                                   : hf_reader_batch(r, &entry, 1, UINT64_MAX, &from, &to);
        litmus_right(&meeting);
        if (taken == 1) {
            hf_copy_out((uint8_t *)&sqn, hf_reader_base(r) + entry.offset, sizeof sqn);
            CHECK(planted != PLANTED_NOTHING || sqn == round);
            hf_reader_unpin(r, from, UINT64_MAX);
        }
        CHECK_EQ(hf_reader_seek(r, round + 1), HF_OK);
    }
    hf_reader_close(r);
    return NULL;
}

/* How often each answer came. */
struct seen {
    uint64_t rounds, pinned, lapped, both, harm;
};

static void count(struct seen *seen, int64_t status)
{
    CHECK(status == HF_OK || status == HF_PINNED);
    CHECK(taken == 1 || taken == HF_LAPPED);
    CHECK(hf_after(kit_header(source)->trail, seen->rounds * SPAN)); /* beyond the message that this round is about */
    seen->rounds++;
    seen->pinned += status == HF_PINNED && taken == 1;
    seen->lapped += status == HF_OK && taken != 1;
    seen->both += status == HF_PINNED && taken != 1;
    seen->harm += status == HF_OK && taken == 1;
}

static struct seen race(int which)
{
    struct seen seen = {0};
    int64_t status;
    while (litmus_more(&meeting, seen.rounds) && (which == PLANTED_NOTHING || seen.harm == 0)) {
        litmus_left(&meeting);
        litmus_jitter(seen.rounds, 1);
        uint8_t *view = claim(&status);
        litmus_left(&meeting);
        count(&seen, status);
        while (view == NULL) { /* until the reader lets go */
            view = hf_source_claim(source, PAYLOAD, &status);
            CHECK(view != NULL || status == HF_PINNED);
        }
        commit(view);
    }
    hf_store_release_u32(&meeting.over, 1);
    litmus_left(&meeting);
    return seen;
}

static struct seen run(int which, uint64_t rounds)
{
    struct hf_stream_config config = kit_config();
    pthread_t reader;
    int64_t status;
    config.fragment_bytes = PAYLOAD;
    planted = which;
    board = kit_board();
    kit_line(board, 0);
    source = kit_source(&config, board);
    for (int i = 0; i < 3; i++) {
        commit(hf_source_claim(source, PAYLOAD, &status));
    }
    meeting = which == PLANTED_NOTHING ? litmus_begin(rounds) : litmus_begin_control();
    CHECK_EQ(pthread_create(&reader, NULL, run_reader, NULL), 0);
    struct seen seen = race(which);
    CHECK_EQ(pthread_join(reader, NULL), 0);
    hf_source_destroy(source);
    hf_map_detach(board);
    return seen;
}

int main(int argc, char **argv)
{
    struct seen seen = run(PLANTED_NOTHING, litmus_rounds(argc, argv));
    printf("  %llu rounds: pinned %llu, lapped %llu, both %llu\n", (unsigned long long)seen.rounds,
           (unsigned long long)seen.pinned, (unsigned long long)seen.lapped, (unsigned long long)seen.both);
    CHECK_EQ(seen.harm, 0);
    static const char *const controls[] = {"source unfenced", "reader unfenced"};
    int n = litmus_controls() ? 2 : 0, caught = 0;
    for (int i = 0; i < n; i++) {
        struct seen control = run(PLANTED_SOURCE_UNFENCED + i, 0);
        caught += litmus_caught(controls[i], control.harm, control.rounds);
    }
    litmus_evidence("litmus_pin", seen.rounds, caught, n);
    return 0;
}
