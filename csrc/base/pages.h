/* pages.h: the pages of mapped shared memory: mapped with the ring twice, and touched before anybody needs them. */
#ifndef HF_BASE_PAGES_H
#define HF_BASE_PAGES_H
#include <stdint.h>

uint64_t hf_page_bytes(void);

/* header + ring of the file, and the ring again behind it; ring = 0: there is none. The address space is reserved first, so that
 * nothing else can come between. Not inherited by a forked child. HF_OK, HF_ERRNO - errno. */
int64_t hf_pages_map(int fd, uint64_t header, uint64_t ring, int writable, uint8_t **out);
int64_t hf_pages_populate(uint8_t *at, uint64_t bytes, int writable);
void hf_pages_unmap(uint8_t *base, uint64_t bytes);
#endif
