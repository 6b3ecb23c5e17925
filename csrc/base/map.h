/* map.h: named shared memory, created and attached. The name and the descriptor come from outside (posix_ipc); this file
 * sizes, maps, populates and checks. Created objects are fallocate'd and pre-faulted, so that running out of memory is an
 * errno here and never a SIGBUS later. MADV_DONTFORK on all of them.
 *
 * A mapping with a ring (stream) maps header + ring, and then the ring again behind it. */
#ifndef HF_BASE_MAP_H
#define HF_BASE_MAP_H
#include "base/layout.h"

/* cffi: begin */
struct hf_map {
    uint8_t *base;         /* the preamble */
    uint64_t mapped_bytes; /* of address space, second mapping of a ring included */
    uint64_t ring_bytes;   /* 0 = no ring */
    uint64_t token;        /* of the process that mapped it */
    uint32_t writable;
    uint32_t kind;
};

/* kind: stream, board or bells. `fd` must be empty (HF_EXISTS). Sizes it with fallocate (an error leaves it empty), maps and
 * populates it, writes the preamble except its magic (and a stream's ring_bytes). ring_bytes: power of two, multiple of the page
 * size, for a stream; else 0. header_bytes: rounded up to a page. The creator fills in the rest and calls hf_map_publish. */
int64_t hf_map_create(int fd, uint32_t kind, uint64_t header_bytes, uint64_t ring_bytes, const uint8_t *uuid,
                      uint64_t incarnation, struct hf_map **out);
void hf_map_publish(struct hf_map *map); /* stores the magic (release); pairs with hf_map_attach */
/* Checks owner and mode of the file, magic, layout version, struct hash, page size, kind, sizes against the file's size, and
 * every size that is used for addressing. writable=0 wants a descriptor that was opened read-only. populate: touch every page now.
 * HF_AGAIN: no magic yet. HF_LAYOUT (also: another kind), HF_FOREIGN, HF_DAMAGED: refused. HF_GONE: of another boot. */
int64_t hf_map_attach(int fd, uint32_t kind, int writable, int populate, struct hf_map **out);
void hf_map_detach(struct hf_map *map);  /* also in a forked child, where it only frees; NULL is fine */
/* cffi: end */
#endif
