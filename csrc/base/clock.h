/* clock.h: the clock of waits, and where on it they end.
 *
 * Waits of 50 ms and more end at ticks, the multiples of 50 ms of the clock: all that idle on a core wake at
 * the same moment, the core once, and what they share is in its caches (measured: two thirds of the CPU time
 * of the same number of wakes). */
#ifndef HF_BASE_CLOCK_H
#define HF_BASE_CLOCK_H
#include <stdint.h>
#include <time.h>

/* Of one wait for a stream; then the caller looks at signals and at dead peers. Also a tick. */
enum { HF_WAIT_MAX_NS = 50000000 };

/* CLOCK_MONOTONIC. Out of line, because the place that the kernel fills gives a caller a guard of its stack:
 * hf_source_send, which hardly ever looks at the clock, would be longer by 7 instructions of 84. */
int64_t hf_now_ns(void);

/* The same in line, for a wait that looks at the clock in each round. */
static inline int64_t hf_clock_read(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* When a wait that begins now ends: after timeout_ns, in [0, longest_ns]; one that may last 50 ms, at the
 * last tick by then. */
int64_t hf_wait_end(int64_t now_ns, int64_t timeout_ns, int64_t longest_ns);
#endif
