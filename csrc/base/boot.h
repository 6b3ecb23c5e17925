/* boot.h: what /proc says, read at once: small texts, and which boot of the machine this is. */
#ifndef HF_BASE_BOOT_H
#define HF_BASE_BOOT_H
#include <stddef.h>
#include <stdint.h>

/* The beginning of a file, up to size - 1 bytes, and a zero behind it. How many; 0: it is empty, or cannot be read. */
size_t hf_read_text(const char *path, char *text, size_t size);
/* 16 bytes. HF_ERRNO - ENOENT; HF_DAMAGED: the kernel says something else. hf_boot_id (process.h) asks once per process. */
int64_t hf_read_boot_id(uint8_t *out16);

#endif
