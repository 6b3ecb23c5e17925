/* bell.c: a process's doorbell, a futex word that lives in the domain's shared table. See bell.h. */
#include "board/bell.h"

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/status.h"

static struct hf_bell *bell_at(const struct hf_map *map, uint32_t bell)
{
    if (hf_process_forked(map->token) || map->kind != HF_KIND_BELLS || bell >= HF_BELLS) {
        return NULL;
    }
    return &((struct hf_bells *)map->base)->bells[bell];
}

/* The process's lock is held: no other thread of ours claims. Ours, else a never used one, else a dead process's. */
static int64_t claim_locked(struct hf_bells *bells, int domain_fd)
{
    for (int64_t i = 0; i < HF_BELLS; i++) {
        uint64_t owner = hf_load_relaxed_u64(&bells->bells[i].owner);
        if (owner != 0 && !hf_process_forked(owner)) {
            return i;
        }
    }
    HF_FAIL("bell.scanned");
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < HF_BELLS; i++) {
            uint64_t owner = hf_load_relaxed_u64(&bells->bells[i].owner);
            int takeable = pass == 0 ? owner == 0 : hf_process_alive(domain_fd, owner, 0, 0) == 0;
            if (takeable && hf_cas_u64(&bells->bells[i].owner, owner, hf_process_claim())) {
                return i;
            }
        }
    }
    return HF_FULL;
}

int64_t hf_bell_claim(struct hf_map *map, int domain_fd)
{
    HF_ENTER(map);
    if (map->kind != HF_KIND_BELLS || !map->writable) {
        return HF_USAGE;
    }
    int64_t status = hf_process_join(domain_fd); /* before the first shared store: our death must be provable */
    if (status != HF_OK) {
        return status;
    }
    hf_process_lock();
    status = claim_locked((struct hf_bells *)map->base, domain_fd);
    hf_process_unlock();
    return status;
}

/* Whoever claims such a bell meanwhile has it: one compare-and-swap of the dead owner's word wins. */
int64_t hf_bell_bury(struct hf_map *map, int domain_fd)
{
    HF_ENTER(map);
    if (map->kind != HF_KIND_BELLS || !map->writable) {
        return HF_USAGE;
    }
    struct hf_bells *bells = (struct hf_bells *)map->base;
    int64_t count = 0;
    for (int64_t i = 0; i < HF_BELLS; i++) {
        uint64_t owner = hf_load_relaxed_u64(&bells->bells[i].owner);
        if (owner != 0 && hf_process_alive(domain_fd, owner, 0, 0) == 0) {
            count += hf_cas_u64(&bells->bells[i].owner, owner, 0);
        }
    }
    return count;
}

uint32_t hf_bell_read(const struct hf_map *map, uint32_t bell)
{
    const struct hf_bell *at = bell_at(map, bell);
    return at == NULL ? 0 : hf_load_acquire_u32(&at->word); /* pairs with hf_bell_ring */
}

void hf_bell_ring(struct hf_map *map, uint32_t bell)
{
    struct hf_bell *at = bell_at(map, bell);
    if (at == NULL) {
        return;
    }
    (void)hf_add_u32(&at->word, 1); /* pairs with hf_bell_read; a sleeper that has not slept yet finds another value */
    (void)syscall(SYS_futex, &at->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void hf_bell_ring_all(struct hf_map *map)
{
    const struct hf_bell *first = bell_at(map, 0);
    for (uint32_t i = 0; first != NULL && i < HF_BELLS; i++) {
        if (hf_load_relaxed_u64(&first[i].owner) != 0) {
            hf_bell_ring(map, i);
        }
    }
}

int64_t hf_bell_wait(struct hf_map *map, uint32_t bell, uint32_t seen, int64_t timeout_ns)
{
    struct hf_bell *at = bell_at(map, bell);
    if (at == NULL || timeout_ns <= 0) {
        return hf_bell_read(map, bell) != seen;
    }
    int64_t now = hf_now_ns();
    struct timespec timeout = {0, hf_wait_end(now, timeout_ns, HF_BELL_MAX_NS) - now};
    /* Shared, not FUTEX_WAIT_PRIVATE: the one who rings is another process. Its result tells nothing that the word does
     * not. */
    (void)syscall(SYS_futex, &at->word, FUTEX_WAIT, seen, &timeout, NULL, 0);
    return hf_load_acquire_u32(&at->word) != seen;
}
