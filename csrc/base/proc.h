/* proc.h: what /proc says of a process, and /sys of the clock. */
#ifndef HF_BASE_PROC_H
#define HF_BASE_PROC_H
#include <stdint.h>

/* As hf_process_start (process.h), and why there is none. HF_OK; HF_ERRNO - ENOENT: there is no such process, or it is a zombie;
 * any other errno, or HF_DAMAGED: that is not known. */
int64_t hf_proc_start(uint32_t pid, uint64_t *start);
/* 1: the kernel keeps its clock by the CPU's counter (TSC), and the counters of all cores go alike; 0: it does not, or that is not known. */
int hf_proc_clock_counts(void);
#endif
