/* atomic.h: the operations on shared words that order anything. Advisory words (heartbeats, counters, flags of a line) are plain
 * stores, some of them from Python: nothing is concluded from when they are seen. Plain fields, GNU __atomic builtins: cffi can
 * parse the structs, and gcc and clang agree on the code. Each use names its partner ("pairs with ...").
 *
 * All of them are lock-free on x86-64 and aarch64, so they work between processes. RMW operations are seq_cst: they are
 * rare (a claim, a wake), and a weaker order would buy nothing there. */
#ifndef HF_BASE_ATOMIC_H
#define HF_BASE_ATOMIC_H
#include <stdint.h>

static inline uint64_t hf_load_acquire_u64(const volatile uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint32_t hf_load_acquire_u32(const volatile uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline uint64_t hf_load_relaxed_u64(const volatile uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline uint32_t hf_load_relaxed_u32(const volatile uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static inline uint64_t hf_load_seq_cst_u64(const volatile uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline void hf_store_release_u64(volatile uint64_t *p, uint64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

static inline void hf_store_release_u32(volatile uint32_t *p, uint32_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

static inline void hf_store_relaxed_u64(volatile uint64_t *p, uint64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELAXED);
}

static inline void hf_store_relaxed_u32(volatile uint32_t *p, uint32_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELAXED);
}

static inline void hf_store_seq_cst_u64(volatile uint64_t *p, uint64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
}

/* The value before. */
static inline uint32_t hf_exchange_u32(volatile uint32_t *p, uint32_t value)
{
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);
}

/* The value before. */
static inline uint32_t hf_add_u32(volatile uint32_t *p, uint32_t value)
{
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}

/* The value before. */
static inline uint32_t hf_or_u32(volatile uint32_t *p, uint32_t bits)
{
    return __atomic_fetch_or(p, bits, __ATOMIC_SEQ_CST);
}

/* 1: *p was `expected` and is now `desired`. Never fails spuriously. */
static inline int hf_cas_u64(volatile uint64_t *p, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(p, &expected, desired, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ? 1 : 0;
}

/* The thread sanitizer does not model fences, and gcc says so at each of them. Nothing here gets its happens-before
 * from a fence: they order a store before a later load, or plain copies before a re-check; so the sanitizer misses
 * nothing but the warning. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#define HF_FENCE_POP 1
#endif

static inline void hf_fence_acquire(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static inline void hf_fence_release(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void hf_fence_seq_cst(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#ifdef HF_FENCE_POP
#pragma GCC diagnostic pop
#undef HF_FENCE_POP
#endif

/* Orders nothing in the processor. Where it stands between a store and a load, the other side issued membarrier
 * (board/wait.h). */
static inline void hf_compiler_barrier(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Asks for a line that will be written soon. A hint: touches no memory, cannot fault. By hand, because baseline x86-64 makes
 * gcc ask for a shared copy, and getting that for writing costs a second trip to the reader's core. */
static inline void hf_prefetch_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw (%0)" : : "r"(p));
#else
    __builtin_prefetch(p, 1);
#endif
}

/* One round of a spin loop: lets the sibling hyperthread run and saves power. */
static inline void hf_cpu_relax(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause" ::: "memory");
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* `yield` is a no-op on most cores */
#else
    hf_compiler_barrier();
#endif
}

#endif
