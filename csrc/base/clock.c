/* clock.c: the clock of waits, out of line. See clock.h. */
#include "base/clock.h"

int64_t hf_now_ns(void)
{
    return hf_clock_read();
}

int64_t hf_wait_end(int64_t now_ns, int64_t timeout_ns, int64_t longest_ns)
{
    int64_t timeout = timeout_ns < 0 ? 0 : timeout_ns > longest_ns ? longest_ns : timeout_ns;
    int64_t end = now_ns + timeout;
    return timeout < HF_WAIT_MAX_NS ? end : end - end % HF_WAIT_MAX_NS;
}
