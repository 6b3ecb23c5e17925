/* proc.h: what /proc says of a process. */
#ifndef HF_BASE_PROC_H
#define HF_BASE_PROC_H
#include <stdint.h>

/* As hf_process_start (process.h), and why there is none. HF_OK; HF_ERRNO - ENOENT: there is no such process, or it is a zombie;
 * any other errno, or HF_DAMAGED: that is not known. */
int64_t hf_proc_start(uint32_t pid, uint64_t *start);
#endif
