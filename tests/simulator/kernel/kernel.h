/* kernel.h: what stands in for Linux below the compiled core and below the engine's Python, in one process that plays many.
 *
 * The linker's --wrap leads the core's system calls to calls.c; tests/simulator/system.py leads the engine's to the same functions.
 * Nothing here waits, and nothing here is decided by anything but the arguments, the seed, and what Python has set: a seed is a
 * schedule.
 *
 *   files.c    names and inodes
 *   calls.c    the core's calls, by name
 *   locks.c    locks of files
 *   maps.c     mappings: all simulated processes see the same bytes at the same address, so nothing is ever unmapped
 *   bytes.c    reading and writing by descriptor
 *   sync.c     what is durable, and what a power cut leaves
 *   process.c  who runs now, its descriptors, its clock; what /proc says
 *
 * A call may let another simulated thread run first (sim_tick): so a thread is interrupted, and a process is killed, between any
 * two calls, also inside the core. */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H
#include <stdint.h>

/* cffi: begin */
enum sim_sizes { SIM_DEVICES = 16, SIM_PROCESSES = 512, SIM_NAME_MAX = 96 };
enum sim_kind { SIM_FILE = 1, SIM_DIRECTORY = 2, SIM_LINK = 3 };

/* A file system. Device 0 holds the rest; memory: a power cut takes all of it. */
struct sim_device {
    int memory;
    int read_only;    /* EROFS for what would write */
    int error;        /* errno of every call on it: a disk that has gone */
    int read_error;   /* errno of reads of bytes */
    int sync_errors;  /* this number of syncs fail, and drop what they were to write */
    int write_errors; /* this number of writes and allocations fail with ENOSPC */
    int64_t syncs;
};
extern struct sim_device sim_devices[16];

/* A process. */
struct sim_process {
    uint32_t pid;
    uint64_t start;
    int alive;
    int stopped;     /* as /proc says: SIGSTOP */
    uint32_t hidden; /* a bit for each device whose files it does not find: another mount namespace */
    int descriptors; /* open now */
    int descriptors_max;
    void *self; /* the core's own state of a process (base/process.c) */
};
extern struct sim_process sim_processes[512];
extern int sim_running; /* index of the process that runs; -1: none, and nothing ticks */

extern int64_t sim_now_ns;  /* CLOCK_MONOTONIC */
extern int64_t sim_real_ns; /* CLOCK_REALTIME is so far ahead of it */
extern int64_t sim_budget;  /* calls until another thread runs */
extern int64_t sim_calls;   /* so far */
extern int sim_over;        /* the seed is over: whatever still runs gets errors, and no wait lasts */
extern int sim_held;        /* not 0: nobody else runs now (a finalizer, the judge) */

/* Everything as on a new machine. */
void sim_begin(uint64_t seed);
/* A random number, from the seed. */
uint64_t sim_random(void);
/* A process begins, and its index is returned; it runs when Python says so. */
int sim_process_begin(void);
void sim_process_enter(int process); /* -1: the world itself */
/* kill -9: its descriptors are closed, and its locks free. */
void sim_process_end(int process);

/* One more call: another thread may run first. */
void sim_tick(void);
/* A look at the clock, which takes this long; CLOCK_MONOTONIC after it. */
int64_t sim_look(int64_t ns);
/* A thread of this process goes on, for this number of calls; its turn begins `ns` later. Returns a digest of all turns so far. */
uint64_t sim_turn(int process, uint64_t thread, int64_t ns, int64_t budget);

/* All below: a value, or -errno. `dir` is a descriptor or -100 (AT_FDCWD), the root. */
int64_t sim_openat(int dir, const char *path, int flags, uint32_t mode);
int64_t sim_close(int fd);
int64_t sim_dup(int fd);
int64_t sim_pread(int fd, void *out, uint64_t bytes, int64_t at);
int64_t sim_pwrite(int fd, const void *data, uint64_t bytes, int64_t at);
int64_t sim_read(int fd, void *out, uint64_t bytes);
int64_t sim_write(int fd, const void *data, uint64_t bytes);
int64_t sim_truncate(int fd, int64_t size);
int64_t sim_allocate(int fd, int64_t at, int64_t bytes);
int64_t sim_punch(int fd, int64_t at, int64_t bytes);
int64_t sim_sync(int fd);
int64_t sim_mkdirat(int dir, const char *path, uint32_t mode);
int64_t sim_unlinkat(int dir, const char *path, int flags);
int64_t sim_renameat(int from_dir, const char *from, int to_dir, const char *to);
int64_t sim_symlinkat(const char *target, int dir, const char *path);
int64_t sim_readlinkat(int dir, const char *path, char *out, uint64_t room);
struct sim_stat {
    int64_t device, inode, mode, links, size, blocks, modified_ns, born_ns;
};
int64_t sim_stat(int dir, const char *path, int follow, struct sim_stat *out);
int64_t sim_fstat(int fd, struct sim_stat *out);
/* The name number `index` in an open directory, 1; or 0. */
int64_t sim_name(int fd, int index, char *out96);
int64_t sim_device_of(int fd);
/* fcntl and flock: `lock` is a struct flock. */
int64_t sim_lock(int fd, int command, void *lock);
int64_t sim_flock(int fd, int operation);
void sim_drop_process_locks(int process);

/* A mounted device at this path; made. */
int64_t sim_mount(const char *path, int device, uint32_t mode);
/* The kernel writes pages back by itself: each one with this chance of 1/256. */
void sim_write_back(int device, int chance);
/* Power: of what no sync has made durable each page and each change of a name stays with this chance of 1/256. Memory is empty.
 * Nobody runs any more. */
void sim_power_cut(int chance);
/* The next boot: another boot id. */
void sim_reboot(void);
/* 1: a file below `path` has these bytes; `how`: any of enum sim_how. For the judge: it looks at bytes, and knows no format. */
enum sim_how {
    SIM_DURABLE = 1 /* on its disk, not only in memory */,
    SIM_SHALLOW = 2 /* in no directory below `path` */
};
int sim_holds(const char *path, const char *bytes, uint64_t length, int how);
extern int sim_looking; /* not 0: the judge looks at a disk itself, so nothing of it fails */
/* What lies below `path` becomes what lies below `from`, as a restored backup; an empty `from`: nothing. */
int64_t sim_copy(const char *from, const char *path);
/* cffi: end */

struct inode;

/* The core's own state of a process: base/process.c, when it is built for this. */
void *hf_self_new(void);
void hf_self_enter(void *self);

struct inode *sim_inode(int fd); /* NULL: no descriptor of ours */
int sim_flags(int fd);
uint8_t *sim_bytes(struct inode *file);
uint64_t sim_size(const struct inode *file);
uint64_t sim_at(const struct inode *file); /* where its bytes lie in sim_arena */
void sim_mapped(struct inode *file);       /* for writing: what is written is not seen */
extern int sim_arena;                      /* a kernel's file with the bytes of all files */
void sim_files_begin(void);
void sim_locks_begin(void);
void sim_maps_begin(void);
void sim_drop_inode_locks(const struct inode *file, int process);
void sim_drop_open_locks(uint64_t opened);
uint64_t sim_opened(int fd);
#endif
