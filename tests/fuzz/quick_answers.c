/* quick_answers.c: what the kernel said of this machine's boot and of a process is what it still says (quick.h): the same question
 * is asked once. What is not known yet goes to the code under test. */
#include "fuzz.h"

#include <unistd.h>

#include "base/process.h"
#include "base/status.h"

enum { ANSWERS = 1 << 16, NONE = 0, SAME, OTHER, STARTS };

/* Of processes with this number: when the one that is there began, and what is said of those that are none of ours. */
struct answer {
    uint64_t start;
    uint32_t pid;
    int known[STARTS];
    int64_t said[STARTS];
};

int64_t __real_hf_boot_id(uint8_t *out16);
uint64_t __real_hf_process_start(uint32_t pid);
int64_t __real_hf_process_alive(int domain_fd, uint64_t owner, uint32_t pid, uint64_t start);
int64_t __wrap_hf_boot_id(uint8_t *out16);
uint64_t __wrap_hf_process_start(uint32_t pid);
int64_t __wrap_hf_process_alive(int domain_fd, uint64_t owner, uint32_t pid, uint64_t start);

int64_t __wrap_hf_boot_id(uint8_t *out16)
{
    static uint8_t boot[16];
    static int known;
    if (!known) {
        int64_t status = __real_hf_boot_id(boot);
        if (status != HF_OK) {
            return status;
        }
        known = 1;
    }
    memcpy(out16, boot, sizeof boot);
    return HF_OK;
}

/* Ours only: another process may end. */
uint64_t __wrap_hf_process_start(uint32_t pid)
{
    static uint32_t whose;
    static uint64_t start;
    if (pid == 0 || pid != whose) {
        uint64_t said = __real_hf_process_start(pid);
        if (said == 0 || pid != (uint32_t)getpid()) {
            return said;
        }
        whose = pid;
        start = said;
    }
    return start;
}

static struct answer *answer_of(uint32_t pid)
{
    static struct answer answers[ANSWERS];
    struct answer *a = &answers[pid * UINT32_C(0x9e3779b1) >> 16];
    if (a->pid != pid) {
        *a = (struct answer){.pid = pid, .start = __real_hf_process_start(pid)};
    }
    return a;
}

/* No process but ours is in the domain of a target, so an owner is nobody, this process, or one without a lock file; and a start
 * counts by whether it is the right one. Of a process that lives, the code under test is asked again: it may end. */
int64_t __wrap_hf_process_alive(int domain_fd, uint64_t owner, uint32_t pid, uint64_t start)
{
    if (owner >> 16 == 0 || !hf_process_forked(owner)) {
        return __real_hf_process_alive(domain_fd, owner, pid, start);
    }
    struct answer *a = answer_of(pid);
    int which = start == 0 ? NONE : start == a->start ? SAME : OTHER;
    if (!a->known[which]) {
        a->said[which] = __real_hf_process_alive(domain_fd, owner, pid, start);
        a->known[which] = a->said[which] <= 0;
    }
    return a->said[which];
}
