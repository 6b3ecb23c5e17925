/* tally.h: are these numbers stable? What a source that waits for each message asks of the stores' lines alone.
 *
 * A tally says whose line counts, and how many of them are needed. Policy (engine/source/tally.py) makes one of what it knows now, and
 * changes nothing in it: before it learns something else, it ends this one, and then it makes another.
 *
 *  - What a tally finds stable, policy would have found stable at the same moment: the line is still the participant's for which it was
 *    taken, it acknowledges this incarnation, and its range has all of the numbers.
 *  - What it does not find stable may be stable: a number that the program has marked, a store whose line is another one by now, what a
 *    store has lost since it counted. So 0 says nothing, and policy looks for itself.
 *  - It settles nothing: what is stable stays in flight and retained until policy looks.
 *
 * Any number of threads may wait with one tally. It is private memory of the source's process. */
#ifndef HF_BOARD_TALLY_H
#define HF_BOARD_TALLY_H
#include "board/board.h"

/* cffi: begin */
enum { HF_TALLY_LINES = 64, HF_TALLY_RULES = 64, HF_TALLY_GROUPS = 32 }; /* at most, in one tally: bits of its words */

/* Bit i of `lines` is line i of the tally. */
struct hf_tally_rule {
    uint64_t lines;
    uint32_t needed; /* this many of them must have a number */
    uint32_t group;
};

struct hf_tally {
    uint64_t incarnation; /* of the source: acknowledgements of another one count for nothing */
    uint32_t lines;
    uint32_t rules;
    uint32_t groups;
    uint32_t needed;      /* this many groups, all of whose rules hold, make a number stable */
    uint32_t ended;       /* writer: hf_tally_end */
    uint32_t at_once;     /* the answer before came within 5 us. A hint. writer: any waiter */
    uint32_t index[HF_TALLY_LINES]; /* of a line on the board, */
    uint64_t owner[HF_TALLY_LINES]; /* and its owner's word */
    struct hf_tally_rule rule[HF_TALLY_RULES];
};

/* What it was made of is about to change: from now on it finds nothing stable, and who waits with it returns. */
void hf_tally_end(struct hf_tally *t);
/* Are all numbers first .. last stable? One look; where the answer before came at once, looks for up to 5 us. Python keeps the GIL: giving
 * it away and taking it back costs as much. 1, 0, HF_FORKED, or HF_USAGE: not a board. */
int64_t hf_tally_soon(struct hf_tally *t, const struct hf_map *board, uint64_t first, uint64_t last);
/* Same, after waiting with `strategy` (board/wait.h) for at most timeout_ns (capped at 50 ms). Acks wake it, and it goes on as long as they
 * are too few. It returns 0 early when the bell is rung and no store has come to have the numbers, or when the tally has ended. */
int64_t hf_tally_wait(struct hf_tally *t, struct hf_map *board, struct hf_map *bells, uint32_t bell, uint64_t first, uint64_t last,
                      int strategy, int64_t timeout_ns);
/* cffi: end */
#endif
