/* stamp.h: the time that a message carries: CLOCK_REALTIME, to within a microsecond.
 *
 * To read that clock costs more than the rest of a short send. Where the kernel keeps it by the CPU's counter, this reads the counter, and the
 * clock once in a millisecond. So a clock that is set is followed within a millisecond; and while the clock's rate is changed, this is off by
 * what that makes in a millisecond. Elsewhere it reads the clock each time.
 *
 * What is said does not go back, unless the clock is set back by more than a millisecond: else the last time is said again until the clock has
 * passed it. So the counter need not be read in order, which would cost as much as the clock. */
#ifndef HF_BASE_STAMP_H
#define HF_BASE_STAMP_H
#include <stdint.h>

struct hf_stamp {     /* private memory; writer: whoever sends, one at a time */
    uint64_t counter; /* at the last look at the clock, */
    int64_t ns;       /* which said this */
    uint64_t span;    /* counts until the next look; 0: each time */
    uint64_t rate;    /* ns in 2^32 counts; 0: it is not known */
    int64_t last;     /* what was said last */
    /* Only a look uses these. */
    uint64_t base_counter; /* the rate is measured from here, */
    int64_t base_ns;       /* where the clock said this */
    uint64_t tried;        /* a rate that was measured once */
    uint32_t counts;       /* the kernel keeps its clock by the counter */
    uint32_t far;          /* looks in a row that somebody interrupted */
};

void hf_stamp_begin(struct hf_stamp *t);
int64_t hf_stamp_look(struct hf_stamp *t);

#ifndef HF_COUNTER /* a test has its own */
#if defined(__x86_64__)
#define HF_COUNTER() __builtin_ia32_rdtsc()
#else
#define HF_COUNTER() UINT64_C(0)
#endif
#endif

static inline int64_t hf_stamp_read(struct hf_stamp *t)
{
    uint64_t since = HF_COUNTER() - t->counter;
    int64_t ns = __builtin_expect(since < t->span, 1) ? t->ns + (int64_t)(since * t->rate >> 32) : hf_stamp_look(t);
    t->last = ns > t->last ? ns : t->last;
    return t->last;
}
#endif
