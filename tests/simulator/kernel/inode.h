/* inode.h: what files.c, sync.c, calls.c and maps.c share of a file system. */
#ifndef SIM_INODE_H
#define SIM_INODE_H
#include "kernel.h"

#include <sys/types.h>

enum {
    INODES = 4096,
    PAGE = 4096,
    ROOM = 4 << 20, /* bytes of a file, at most; each has that much of the arena for itself */
    PAGES = ROOM / PAGE,
    WORDS = PAGES / 64,
    PATH_MAX_SIM = 512
};

struct entry {
    char name[SIM_NAME_MAX];
    uint32_t inode;
};

struct names {
    struct entry *entries;
    int count, room;
};

/* A change of names that no sync has made durable: `from` away (if it is said), `to` there (if it is said). */
struct change {
    struct entry from, to;
};

struct inode {
    uint32_t number; /* 0: not used */
    uint32_t kind, mode;
    int device;
    uint64_t size, synced_size;
    int64_t modified_ns, born_ns;
    uint32_t links;
    int opened;
    int mapped;                            /* for writing: any page may have changed */
    uint64_t dirty[WORDS], touched[WORDS]; /* a bit for each page: written since a sync; ever */
    uint64_t dropped[WORDS];               /* a sync failed, and the kernel takes it for clean */
    struct names names, synced;            /* of a directory: now, and on the disk */
    struct change *changes;
    int change_count, change_room;
    char target[PATH_MAX_SIM]; /* of a link */
    void *twice;               /* maps.c: the ring of this file, mapped twice */
    uint64_t twice_header, twice_ring;
};

/* An open file, and how many descriptors lead to it. */
struct opened {
    int descriptors, flags;
    struct inode *inode; /* NULL: `text` is read, a file of /proc */
    int64_t at;
    char text[128];
};

struct opened *opened_as(int fd); /* NULL: none */

extern struct inode sim_inodes[INODES];
extern uint32_t sim_inode_count;
extern uint8_t *sim_memory, *sim_platter; /* the bytes of all files: now, and on the disk */

struct inode *inode_new(int device, uint32_t kind, uint32_t mode);
int64_t walk(int dir, const char *path, int follow, struct inode **found, struct inode **parent,
             char last[SIM_NAME_MAX]);
uint32_t name_find(const struct names *names, const char *name);
void name_set(struct names *names, const char *name, uint32_t inode);
void name_remove(struct names *names, const char *name);
void name_changed(struct inode *directory, const char *from, const char *to, uint32_t inode);
int64_t device_fails(int device, int writes);
void resize(struct inode *file, uint64_t size);
void page_written(struct inode *file, uint64_t from, uint64_t to);
int64_t fits(struct inode *file, uint64_t end);

/* The kernel's own calls, which are led nowhere. */
void *__real_mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t length);
int __real_madvise(void *at, size_t length, int advice);
int __real_ftruncate(int fd, off_t size);
int __real_fallocate(int fd, int mode, off_t at, off_t bytes);

static inline uint64_t file_at(const struct inode *file)
{
    return (uint64_t)file->number * ROOM;
}
#endif
