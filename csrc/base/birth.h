/* birth.h: when a file was made. An inode's number is used again; with its birth it is one file's. A copy has another one, and so
 * has what a backup brings back as a new file. */
#ifndef HF_BASE_BIRTH_H
#define HF_BASE_BIRTH_H
#include <stdint.h>

/* cffi: begin */
/* CLOCK_REALTIME in ns, as the file system has it; 0: it keeps no births. HF_OK, HF_ERRNO - errno. */
int64_t hf_file_birth(int fd, int64_t *ns);
/* cffi: end */
#endif
