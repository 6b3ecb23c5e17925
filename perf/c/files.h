/* files.h: scratch files and directories of the cases that write. All of them lie in the two private directories that the caller
 * of the program made and removes; a case removes its own as soon as it ends. Any failure ends the program. */
#ifndef HF_PERF_FILES_H
#define HF_PERF_FILES_H

#include <stdint.h>

#define BENCH_LOG_BYTES (UINT64_C(128) << 20) /* what a log case writes, and what the raw case beside it writes */
#define BENCH_UNSYNCED (UINT64_C(8) << 20)    /* bytes between two syncs, in both */

int bench_file(const char *dir, const char *name); /* new, empty, read-write, mode 0600 */
void bench_unlink(const char *dir, const char *name, int fd);
int bench_shared(void); /* descriptor of an unnamed shared memory object, mode 0600 */
int bench_read_only(int fd);
int bench_directory(const char *dir, const char *name);       /* new; its descriptor */
void bench_remove(const char *dir, const char *name, int fd); /* the directory and the files in it, two levels deep */
void bench_write(int fd, const void *data, uint64_t bytes, uint64_t at);
void bench_sync(int fd);
#endif
