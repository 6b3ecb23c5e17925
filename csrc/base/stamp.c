/* stamp.c: looks at the clock, and how fast the counter goes beside it. See stamp.h. */
#include "base/stamp.h"

#include <time.h>

#include "base/proc.h"

#define LOOK_NS INT64_C(1000000)        /* from one look to the next */
#define BASE_MIN_NS INT64_C(10000000)   /* the rate is measured over so long: 0.4 us off at both ends are 80 ns */
#define BASE_MAX_NS INT64_C(1000000000) /* and no longer: a clock whose rate is corrected is followed */
#define STEP_NS INT64_C(20000)          /* farther off than this at a look, the clock was set */
#define LONG (UINT64_C(1) << 33)        /* counts: some seconds, in which nothing was sent */
#define NEAR 2048                       /* counts: two reads of the counter with nothing but the clock's between them */

enum { TRIES = 3, FAR_MAX = 16 };

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void hf_stamp_begin(struct hf_stamp *t)
{
    *t = (struct hf_stamp){.counts = (uint32_t)hf_proc_clock_counts()};
}

/* What would be said by now without a look: the rate is slowed down for one span only. */
static int64_t expected(const struct hf_stamp *t, uint64_t elapsed)
{
    uint64_t slow = elapsed < t->span ? elapsed : t->span;
    return t->ns + (int64_t)(slow * t->rate >> 32) + (int64_t)((elapsed - slow) * t->base_rate >> 32);
}

/* The clock said `ns` at `counter`. */
static void measure(struct hf_stamp *t, uint64_t counter, int64_t ns)
{
    uint64_t counted = counter - t->base_counter;
    int64_t passed = ns - t->base_ns;
    if (counted - 1 >= LONG || passed <= 0 || passed > BASE_MAX_NS) {
        t->base_counter = counter;
        t->base_ns = ns;
    } else if (passed >= BASE_MIN_NS) {
        t->base_rate = ((uint64_t)passed << 32) / counted;
    }
}

/* How far what is said by now is ahead of the clock. One that was set is measured anew. */
static int64_t ahead_of(struct hf_stamp *t, uint64_t counter, int64_t ns)
{
    uint64_t elapsed = counter - t->counter;
    if (t->base_rate == 0 || elapsed >= LONG) {
        return 0;
    }
    int64_t ahead = expected(t, elapsed) - ns;
    if (ahead > STEP_NS || ahead < -STEP_NS) {
        t->base_rate = t->base_counter = 0; /* counted from 0, the base is long ago */
        return 0;
    }
    return ahead > 0 ? ahead : 0;
}

/* What is said at this look. */
static int64_t said_at(struct hf_stamp *t, uint64_t counter, int64_t ns)
{
    int64_t ahead = ahead_of(t, counter, ns);
    measure(t, counter, ns);
    t->counter = counter;
    t->ns = ns + ahead;
    t->rate = t->base_rate - t->base_rate / (uint64_t)LOOK_NS * (uint64_t)ahead;
    t->span = t->base_rate != 0 ? ((uint64_t)LOOK_NS << 32) / t->base_rate : 0;
    return t->ns;
}

int64_t hf_stamp_look(struct hf_stamp *t)
{
    if (!t->counts) {
        return clock_ns();
    }
    uint64_t before = HF_COUNTER();
    for (int i = 1;; i++) {
        int64_t ns = clock_ns();
        uint64_t after = HF_COUNTER(), took = after - before;
        if (took < NEAR) {
            t->far = 0;
            return said_at(t, before + took / 2, ns);
        }
        if (i == TRIES) {
            t->counts = ++t->far < FAR_MAX; /* where the counter itself is slow, the clock is no slower */
            return ns + ahead_of(t, before, ns);
        }
        before = after;
    }
}
