/* failpoint.h: places where a test may kill, stop, delay or fail a process. They exist only in the test build
 * (-DHF_FAILPOINTS). */
#ifndef HF_BASE_FAILPOINT_H
#define HF_BASE_FAILPOINT_H
#include <stdint.h>

/* cffi: begin */
void hf_failpoint_arm(const char *spec); /* test build only: "name=kill@17;name2=stop"; else does nothing */
/* cffi: end */

/* HF_FAIL("stream.copied") can kill, stop or delay there; HF_FAIL_STATUS(name) evaluates to 0 or to an armed
 * errno status; HF_MUTANT(name) to 1 while a planted bug is switched on. */
#ifdef HF_FAILPOINTS
int64_t hf_failpoint(const char *name);
#define HF_FAIL(name) ((void)hf_failpoint(name))
#define HF_FAIL_STATUS(name) hf_failpoint(name)
#define HF_MUTANT(name) (hf_failpoint(name) != 0)
#else
#define HF_FAIL(name) ((void)0)
#define HF_FAIL_STATUS(name) ((int64_t)0)
#define HF_MUTANT(name) 0
#endif
#endif
