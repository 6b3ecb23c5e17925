/* stamp.c: looks at the clock, and how fast the counter goes beside it. See stamp.h. */
#include "base/stamp.h"

#include <time.h>

#include "base/proc.h"

#define LOOK_NS INT64_C(1000000)        /* from one look to the next */
#define BASE_MIN_NS INT64_C(10000000)   /* the rate is measured over so long: 0.4 us off at both ends are 80 ns */
#define BASE_MAX_NS INT64_C(1000000000) /* and no longer: a clock whose rate is corrected is followed */
#define OFF_NS INT64_C(1000)     /* farther off than this at a look, the rate is another one, or the clock was set */
#define BACK_NS INT64_C(1000000) /* farther back than this, the clock was set */
#define LONG (UINT64_C(1) << 33) /* counts: some seconds, in which nothing was sent */
#define NEAR 2048                /* counts: two reads of the counter with nothing but the clock's between them */
#define ALIKE 1024               /* two measured rates differ by less than one part of that */

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

static void rebase(struct hf_stamp *t, uint64_t counter, int64_t ns)
{
    t->base_counter = counter;
    t->base_ns = ns;
}

/* The clock said `ns` at `counter`. The first rate is believed when a second one is like it: the clock may have been set in between. */
static void measure(struct hf_stamp *t, uint64_t counter, int64_t ns)
{
    uint64_t counted = counter - t->base_counter;
    int64_t passed = ns - t->base_ns;
    if (counted - 1 >= LONG || passed <= 0 || passed > BASE_MAX_NS) {
        rebase(t, counter, ns);
    } else if (passed >= BASE_MIN_NS) {
        uint64_t rate = ((uint64_t)passed << 32) / counted;
        uint64_t apart = rate > t->tried ? rate - t->tried : t->tried - rate;
        if (t->rate != 0 || apart < t->tried / ALIKE) {
            t->rate = rate;
        } else {
            t->tried = rate;
            rebase(t, counter, ns);
        }
    }
}

/* What was said by the rate is not what the clock says. Then it is not known any more, and perhaps nor is the counter the kernel's clock. */
static void check(struct hf_stamp *t, uint64_t counter, int64_t ns)
{
    uint64_t elapsed = counter - t->counter;
    if (t->rate == 0 || elapsed >= LONG) {
        return;
    }
    int64_t off = t->ns + (int64_t)(elapsed * t->rate >> 32) - ns;
    if (off > OFF_NS + (ns - t->ns) / ALIKE || off < -OFF_NS - (ns - t->ns) / ALIKE) {
        t->rate = t->tried = 0;
        t->base_ns = 0; /* long ago */
        t->counts = (uint32_t)hf_proc_clock_counts();
    }
}

/* The clock says `ns`: what was said before may be taken back, or not. */
static int64_t tell(struct hf_stamp *t, int64_t ns)
{
    if (t->last - ns > BACK_NS) {
        t->last = ns;
    }
    return ns;
}

int64_t hf_stamp_look(struct hf_stamp *t)
{
    t->span = 0;
    if (!t->counts) {
        return tell(t, clock_ns());
    }
    uint64_t before = HF_COUNTER();
    for (int i = 1;; i++) {
        int64_t ns = clock_ns();
        uint64_t after = HF_COUNTER(), took = after - before;
        if (took < NEAR) {
            uint64_t counter = before + took / 2;
            t->far = 0;
            check(t, counter, ns);
            measure(t, counter, ns);
            t->counter = counter;
            t->ns = ns;
            t->span = t->rate != 0 ? ((uint64_t)LOOK_NS << 32) / t->rate : 0;
            return tell(t, ns);
        }
        if (i == TRIES) {
            t->counts = ++t->far < FAR_MAX; /* where the counter itself is slow, the clock is no slower */
            return tell(t, ns);
        }
        before = after;
    }
}
