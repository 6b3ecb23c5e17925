/* litmus.h: what the litmus tests share: two threads that act at the same moment, over and over.
 *
 *     litmus_pin [rounds]    the rounds of each form that must hold; without it, as many as 0.3 s have
 *
 * A control, where an ordering is taken out, runs until the harm has been seen: if it never is, the test could not see it in the
 * right form either, and fails. (On a crowded machine the two hardly ever run at the same moment: then it says so. The rarest harm
 * mostly comes within 2.5 M rounds, at a million a second; 4 of 190 runs did not see it in 30 M. LITMUS_ENOUGH are no accident.) */
#ifndef HF_LITMUS_H
#define HF_LITMUS_H
#include <pthread.h>
#include <sched.h>

#include "planted.h"
#include "stream_kit.h"

enum { LITMUS_SPINS = 2000, LITMUS_JITTERS = 13, LITMUS_ENOUGH = 100000000 };
#define LITMUS_SHORT_NS INT64_C(300000000)
#define LITMUS_CONTROL_NS INT64_C(150000000000)

/* Both sides of a round: each counts its own arrivals. */
struct litmus {
    _Alignas(128) uint64_t left;
    _Alignas(128) uint64_t right;
    _Alignas(128) uint32_t over; /* the right side ends at its next arrival */
    uint64_t rounds;             /* to do; 0: until then */
    int64_t until_ns;
};

static inline struct litmus litmus_begin(uint64_t rounds)
{
    return (struct litmus){.rounds = rounds, .until_ns = hf_now_ns() + LITMUS_SHORT_NS};
}

static inline struct litmus litmus_begin_control(void)
{
    return (struct litmus){.until_ns = hf_now_ns() + LITMUS_CONTROL_NS};
}

static inline int litmus_more(const struct litmus *l, uint64_t done)
{
    return l->rounds > 0 ? done < l->rounds : done % 64 != 0 || hf_now_ns() < l->until_ns;
}

/* Arrives, and waits for the other side. */
static inline void litmus_meet(uint64_t *mine, const uint64_t *other)
{
    uint64_t round = *mine + 1;
    hf_store_release_u64(mine, round);
    for (int spins = 0; hf_load_acquire_u64(other) < round; spins++) {
        if (spins < LITMUS_SPINS) {
            hf_cpu_relax();
        } else {
            sched_yield(); /* the other side has no core just now */
        }
    }
}

static inline void litmus_left(struct litmus *l)
{
    litmus_meet(&l->left, &l->right);
}

/* 0: it is over. */
static inline int litmus_right(struct litmus *l)
{
    litmus_meet(&l->right, &l->left);
    return hf_load_acquire_u32(&l->over) == 0;
}

/* Who comes first must not be always the same one, whatever the two have to do: nothing to a microsecond. Touches no shared word. */
static inline void litmus_jitter(uint64_t round, uint64_t side)
{
    uint64_t dice = kit_mix(2 * round + side);
    for (uint64_t i = (dice >> 8) & ((UINT64_C(1) << dice % LITMUS_JITTERS) - 1); i > 0; i--) {
        hf_compiler_barrier();
    }
}

/* 1: two threads can act at the same moment, and nothing but the processor stands between two accesses: a control has something to
 * show. The sanitizers put calls and looks of their own there, coverage its locked counters. */
static inline int litmus_controls(void)
{
    cpu_set_t cores;
    CHECK_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(HF_COVERAGE_H)
    return 0;
#else
    return CPU_COUNT(&cores) > 1;
#endif
}

static inline uint64_t litmus_rounds(int argc, char **argv)
{
    return argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
}

/* A control's end. 1: the harm was seen. */
static inline int litmus_caught(const char *what, uint64_t harm, uint64_t rounds)
{
    const char *verdict = harm > 0 ? "seen after" : "not seen in";
    printf("  control, %s: %s %llu rounds\n", what, verdict, (unsigned long long)rounds);
    CHECK(harm > 0 || rounds < LITMUS_ENOUGH);
    return harm > 0;
}

/* The last line of a program: what it has to show (tests/evidence.py). */
static inline void litmus_evidence(const char *name, uint64_t rounds, int caught, int controls)
{
    printf("{\"evidence\": \"%s\", \"counts\": {\"rounds\": %llu}, \"findings\": 0, \"planted\": [%d, %d]}\n", name,
           (unsigned long long)rounds, caught, controls);
}
#endif
