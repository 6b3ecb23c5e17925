/* crc32c.h: CRC-32C (Castagnoli), the checksum of everything on disk. Chosen at run time: SSE4.2 or ARMv8
 * instructions, else a table (slicing by 8). One lane is latency-bound at ~10 GB/s; long inputs use three lanes and
 * combine them; hf_crc32c_frames does three frames at once. hf_crc32c(0, p, n) is the standard CRC; pass a previous
 * result to continue. */
#ifndef HF_BASE_CRC32C_H
#define HF_BASE_CRC32C_H
#include <stdint.h>
/* cffi: begin */
uint32_t hf_crc32c(uint32_t crc, const uint8_t *data, uint64_t bytes);
uint32_t hf_crc32c_table(uint32_t crc, const uint8_t *data, uint64_t bytes); /* the portable one, for tests */
const char *hf_crc32c_name(void); /* "sse4.2", "armv8", "table" */
/* cffi: end */
/* Of three frames of length[i] >= 32 bytes: bytes 0 to 27 and 32 on, that is all but the header's own crc. */
void hf_crc32c_frames(uint32_t seed, const uint8_t *const frame[3], const uint32_t length[3], uint32_t out[3]);
#endif
