/* quick_answers.c: what the kernel said of this machine's boot and of a process is what it still says (quick.h): the same question
 * is asked once. What is not known yet goes to the code under test. */
#include "fuzz.h"

#include <unistd.h>

#include "process.h"
#include "status.h"

enum { ANSWERS = 1 << 12 };

struct answer {
    uint64_t owner, start;
    uint32_t pid;
    int known, domain;
    int64_t said;
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

static struct answer *place_of(uint64_t owner, uint32_t pid, uint64_t start)
{
    static struct answer answers[ANSWERS];
    uint64_t mixed = (owner ^ start * 31 ^ (uint64_t)pid << 17) * UINT64_C(0x9e3779b97f4a7c15);
    return &answers[mixed >> 32 & (ANSWERS - 1)];
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

/* A process may end; that nobody has such a token, pid and start does not change. */
int64_t __wrap_hf_process_alive(int domain_fd, uint64_t owner, uint32_t pid, uint64_t start)
{
    struct answer *a = place_of(owner, pid, start);
    if (!a->known || a->owner != owner || a->pid != pid || a->start != start || a->domain != domain_fd) {
        int64_t said = __real_hf_process_alive(domain_fd, owner, pid, start);
        *a = (struct answer){owner, start, pid, said <= 0, domain_fd, said};
    }
    return a->said;
}
