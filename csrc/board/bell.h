/* bell.h: the domain's doorbells (base/layout.h: hf_bells), one for each process. Whoever sleeps on his own is
 * woken by anybody. */
#ifndef HF_BOARD_BELL_H
#define HF_BOARD_BELL_H
#include "base/map.h"

/* cffi: begin */
/* Joins the domain if need be. Index of this process's bell, the same one each time; HF_FULL, HF_FORKED,
 * HF_ERRNO - errno. */
int64_t hf_bell_claim(struct hf_map *bells, int domain_fd);
/* Takes the bells of processes that are proved dead from them: nothing names their lock files any more. Their number, or HF_USAGE,
 * HF_FORKED. */
int64_t hf_bell_bury(struct hf_map *bells, int domain_fd);
uint32_t hf_bell_read(const struct hf_map *bells, uint32_t bell); /* acquire; pass to hf_bell_wait */
void hf_bell_ring(struct hf_map *bells, uint32_t bell);        /* a bell out of range is ignored */
void hf_bell_ring_all(struct hf_map *bells);                  /* every process: a stream or a store has appeared */
/* Sleeps until the word differs from `seen`, a signal comes, or timeout_ns (capped at 500 ms: threads that wait for no message;
 * who waits for one asks for 50 ms; from 50 ms on to a tick, clock.h) passes. 1 rung, 0 not. */
int64_t hf_bell_wait(struct hf_map *bells, uint32_t bell, uint32_t seen, int64_t timeout_ns);
/* cffi: end */

enum {
    HF_BELL_MAX_NS = 500000000 /* of one sleep on a bell, for a thread that waits for nothing else */
};
#endif
