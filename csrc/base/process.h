/* process.h: who this process is, and whether another one is dead.
 *
 * A process is a random 48-bit token in the upper bits of a 64-bit word; the low 16 bits number its claims, so that no two
 * claims in the world share an owner word. In each domain directory that it joins it creates processes/<token as 12 hex digits>
 * (O_EXCL, 0600) and holds an fcntl write lock on its first byte, taken before its first shared store and never closed. Nobody
 * in that process may open and close the file again: any close would drop the lock (that is how POSIX has it). Where somebody does
 * (a backup of the domain directory that runs inside a process), the process finds it out by itself and is fenced: others may take
 * it for dead, drain what it has published and let another claimant in, so it must neither publish nor acknowledge any more.
 * Locking again would not help: nobody knows what has happened in between.
 * Dead <=> that lock is free. Nothing else declares death (docs/design.md 12): not a pid, not a timeout, not a closed socket.
 *
 * A file that was deleted by somebody proves nothing; then, and only then, pid and start time decide.
 *
 * One registry per process, in this file, guarded by a mutex. A page under MADV_WIPEONFORK holds the token: handles remember
 * the token that they were made under and compare it at every entry, one load; in a forked child it reads 0. The child may
 * join again and gets a token of its own. */
#ifndef HF_BASE_PROCESS_H
#define HF_BASE_PROCESS_H
#include "base/status.h"

#include <stdint.h>

/* cffi: begin */
/* Idempotent per directory (device, inode). HF_OK, HF_FULL, HF_FENCED (it was joined, and its lock is lost), HF_ERRNO - errno. */
int64_t hf_process_join(int domain_fd);
/* Is this process's lock in that directory there? HF_OK; HF_FENCED, from the first loss on for ever; HF_USAGE: not joined;
 * HF_ERRNO - errno. Two system calls. */
int64_t hf_process_check(int domain_fd);
/* Replaces what this process's lock file in that directory says behind its first line. For tools that look: nothing is decided by
 * it. HF_OK, HF_USAGE (not joined), HF_FENCED, HF_ERRNO - errno. */
int64_t hf_process_note(int domain_fd, const uint8_t *text, uint64_t bytes);
/* 1: a POSIX write lock of this process lies on the first byte of `fd`; 0: none does, or somebody else's; HF_ERRNO - errno. */
int64_t hf_lock_held(int fd);
uint64_t hf_process_token(void);           /* low 16 bits 0; minted on first call after start or fork; never 0 */
uint64_t hf_process_claim(void);           /* token | next claim number; wraps within 16 bits, never low bits 0 */
int hf_process_forked(uint64_t token);     /* 1: `token` (low bits ignored) is not this process's */
/* 1 alive, 0 proved dead, < 0 HF_ERRNO - errno when neither can be said. pid and start may be 0 (unknown). */
int64_t hf_process_alive(int domain_fd, uint64_t owner, uint32_t pid, uint64_t start);
int64_t hf_process_pid(int domain_fd, uint64_t owner); /* of the process that `owner` names, as its lock tells; 0: dead, or not known */
uint64_t hf_process_start(uint32_t pid);   /* start time in clock ticks since boot; 0 if there is no such process (or a zombie) */
int64_t hf_boot_id(uint8_t *out16);        /* HF_OK; HF_ERRNO - errno: /proc cannot be read now; HF_DAMAGED: it says something else */
/* Registers this process as a waker; once per process, again after fork. 1 membarrier works, 0 it does not: wakers fence. */
int hf_wait_setup(void);
/* cffi: end */

/* 0 in a forked child, else this process's token. Before the first hf_process_token() it points to a static zero. */
extern volatile const uint64_t *hf_process_page;

/* 1: this process registered, so a compiler barrier is enough between its store and its look for sleepers. 0: fence. */
int hf_wait_registered(void);

/* Serialises rare process-wide set-up (the registry here, a bell's claim); safe to fork under. Not recursive; nothing in this
 * file that may take it is called while it is held, except with a token already minted. */
void hf_process_lock(void);
void hf_process_unlock(void);

#define HF_ENTER(handle)                                   \
    do {                                                   \
        if (*hf_process_page != (handle)->token) {         \
            return HF_FORKED;                              \
        }                                                  \
    } while (0)
#endif
