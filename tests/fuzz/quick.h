/* quick.h: what stands in for the kernel where a target runs against the clock (build/fuzz/reach and quick): mappings that are
 * kept, files in memory, answers that are remembered. The linker's --wrap leads the calls here. Nothing that a sanitizer sees with
 * the kernel goes unseen: a page is as writable as it was asked to be, what is not mapped or lies behind the end of a file is
 * poisoned, and what is written into the ring or a file is there for everybody who maps it. The other builds have the kernel
 * itself. */
#ifndef HF_FUZZ_QUICK_H
#define HF_FUZZ_QUICK_H
#include <stdint.h>
#include <sys/types.h>

enum { QUICK_ROOM = 1 << 18 };

/* A file of quick_files.c: `memory` is a kernel's file, large enough for any, that lives on when this one is gone. */
struct quick_file {
    int memory;
    ino_t inode;    /* of `memory` */
    uint8_t *bytes; /* all of it, for quick_files.c alone */
    uint64_t size;  /* what lies behind it is zeros */
    uint64_t pages; /* a bit for each that takes room */
    int names, opened, mapped;
};

/* The file behind a descriptor, NULL: the kernel's. */
struct quick_file *quick_file(int fd);
void *quick_map(struct quick_file *file, size_t length, int protection);
void quick_resized(const struct quick_file *file);
void quick_closed(int fd);

/* Descriptors and mappings that are open. A target that has not got these has the kernel's only. */
__attribute__((weak)) int quick_open(void);
/* From now on, what `directory` holds is files in memory. It is empty. */
__attribute__((weak)) void quick_directory(int directory);
#endif
