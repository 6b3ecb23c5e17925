/* stamp.h: the time that a message carries: CLOCK_REALTIME, to within a microsecond.
 *
 * To read that clock costs more than the rest of a short send. Where the kernel keeps it by the CPU's counter, this reads the counter, and the
 * clock once in a millisecond: so a clock that somebody sets is followed within that time. Elsewhere it reads the clock each time.
 *
 * What is said does not go back, unless the clock is set back: where it is found ahead of the clock, it goes slower for a millisecond. */
#ifndef HF_BASE_STAMP_H
#define HF_BASE_STAMP_H
#include <stdint.h>

struct hf_stamp {     /* private memory; writer: whoever sends */
    uint64_t counter; /* at the last look at the clock */
    int64_t ns;       /* what is said for that */
    uint64_t span;    /* counts until the next look; 0: each time */
    uint64_t rate;    /* until then: ns in 2^32 counts */
    /* Only a look uses these. */
    uint64_t base_counter; /* the rate is measured from here, */
    int64_t base_ns;       /* where the clock said this */
    uint64_t base_rate;    /* the clock's, as last measured; 0: it is not known yet */
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
    return __builtin_expect(since < t->span, 1) ? t->ns + (int64_t)(since * t->rate >> 32) : hf_stamp_look(t);
}
#endif
