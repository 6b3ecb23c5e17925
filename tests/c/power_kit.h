/* power_kit.h: a disk that loses its power. It has what was synced, and any of the sectors and names that came after; a sync
 * that failed has dropped what it should have written, and the next one says nothing of it: pages of a file, and of a
 * directory the names that came, went or changed since its last good one. Each is written if it changes once more.
 *
 * fdatasync and fsync are the program's own: they note what is durable from then on. */
#ifndef HF_POWER_KIT_H
#define HF_POWER_KIT_H
#include <sys/stat.h>
#include <sys/syscall.h>

#include "log_kit.h"

enum { FILES = 96, SEGMENT = 16384, FILE_BYTES = 2 * SEGMENT, SECTOR = 512, PAGE = 4096 };

/* ---- the disk ---- */

struct file {
    ino_t ino;
    uint32_t bytes; /* durable */
    uint8_t data[FILE_BYTES];
    uint32_t clean;              /* a bit per page: a sync that failed has marked it as written, and it was not */
    uint8_t dropped[FILE_BYTES]; /* what those pages held */
};

struct name {
    char name[40];
    ino_t ino;
};

struct names {
    int count;
    struct name at[FILES];
};

static struct file *files; /* every one that was ever synced */
static int file_count;
static struct names durable;
static struct names dropped;    /* as a directory's sync found them that failed; ino 0: gone */
static int (*sync_fails)(void); /* asked at each sync; errno is set */
static int elsewhere;           /* what is synced now lies on another disk, which keeps its power */

static inline void new_disk(void)
{
    file_count = durable.count = dropped.count = 0;
}

static inline struct file *find_file(ino_t ino)
{
    for (int i = 0; i < file_count; i++) {
        if (files[i].ino == ino) {
            return &files[i];
        }
    }
    return NULL;
}

static inline struct names take_names(int dir)
{
    struct names found = {0};
    DIR *d = fdopendir((int)syscall(SYS_openat, dir, ".", O_RDONLY | O_DIRECTORY));
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] != '.') {
            CHECK(found.count < FILES && strlen(e->d_name) < sizeof found.at[0].name);
            struct name *n = &found.at[found.count++];
            memcpy(n->name, e->d_name, strlen(e->d_name) + 1);
            n->ino = e->d_ino;
        }
    }
    closedir(d);
    return found;
}

static inline ino_t ino_of(const struct names *names, const char *name)
{
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->at[i].name, name) == 0) {
            return names->at[i].ino;
        }
    }
    return 0;
}

static inline void put_name(struct names *names, const char *name, ino_t ino)
{
    int i = 0;
    while (i < names->count && strcmp(names->at[i].name, name) != 0) {
        i++;
    }
    CHECK(i < FILES);
    names->count += i == names->count;
    memcpy(names->at[i].name, name, strlen(name) + 1);
    names->at[i].ino = ino;
}

/* Names that are here or there, and lead elsewhere: handed to `each` with what they are here (0: nothing). */
static inline void differences(const struct names *here, const struct names *there,
                               void (*each)(void *context, const char *name, ino_t ino), void *context)
{
    for (int i = 0; i < here->count; i++) {
        if (ino_of(there, here->at[i].name) != here->at[i].ino) {
            each(context, here->at[i].name, here->at[i].ino);
        }
    }
    for (int i = 0; i < there->count; i++) {
        if (there->at[i].ino != 0 && ino_of(here, there->at[i].name) == 0) {
            each(context, there->at[i].name, 0);
        }
    }
}

static inline void drop_name(void *nothing, const char *name, ino_t ino)
{
    (void)nothing;
    put_name(&dropped, name, ino);
}

/* A change that a failed sync has dropped is not made again by itself. */
static inline int name_is_dropped(const char *name, ino_t ino)
{
    for (int i = 0; i < dropped.count; i++) {
        if (strcmp(dropped.at[i].name, name) == 0) {
            return dropped.at[i].ino == ino;
        }
    }
    return 0;
}

static inline void keep_name(void *to, const char *name, ino_t ino)
{
    if (!name_is_dropped(name, ino)) {
        put_name(to, name, ino);
    }
}

/* The names that a good sync writes now. */
static inline struct names names_to_write(int dir)
{
    const struct names now = take_names(dir);
    struct names all = durable, out = {0};
    differences(&now, &durable, keep_name, &all);
    for (int i = 0; i < all.count; i++) {
        if (all.at[i].ino != 0) {
            put_name(&out, all.at[i].name, all.at[i].ino);
        }
    }
    return out;
}

/* What changed since a failed sync is written by now. */
static inline void forget_drops(int dir)
{
    const struct names now = take_names(dir), before = dropped;
    dropped.count = 0;
    for (int i = 0; i < before.count; i++) {
        if (ino_of(&now, before.at[i].name) == before.at[i].ino) {
            put_name(&dropped, before.at[i].name, before.at[i].ino);
        }
    }
}

/* A page that a failed sync has left behind as clean, and that nobody has changed since: it is written no more. */
static inline int page_is_dropped(const struct file *f, const uint8_t *now, uint32_t at)
{
    return f->clean >> (at / PAGE) & 1 && memcmp(f->dropped + at, now + at, PAGE) == 0;
}

int fdatasync(int fd)
{
    static uint8_t now[FILE_BYTES];
    struct stat st;
    if (elsewhere) {
        return 0;
    }
    CHECK_EQ(syscall(SYS_fstat, fd, &st), 0);
    struct file *f = find_file(st.st_ino);
    if (f == NULL) {
        CHECK(file_count < FILES);
        f = &files[file_count++];
        memset(f, 0, sizeof *f);
        f->ino = st.st_ino;
    }
    memset(now, 0, sizeof now);
    int64_t n = syscall(SYS_pread64, fd, now, FILE_BYTES, 0);
    CHECK(n >= 0 && st.st_size <= FILE_BYTES);
    if (sync_fails != NULL && sync_fails()) {
        for (uint32_t at = 0; at < FILE_BYTES; at += PAGE) {
            f->clean |= (memcmp(f->data + at, now + at, PAGE) != 0 ? 1u : 0u) << (at / PAGE);
        }
        memcpy(f->dropped, now, sizeof now);
        return -1;
    }
    for (uint32_t at = 0; at < FILE_BYTES; at += PAGE) {
        if (!page_is_dropped(f, now, at)) {
            memcpy(f->data + at, now + at, PAGE);
            f->clean &= ~(1u << (at / PAGE));
        }
    }
    f->bytes = (uint32_t)n;
    return 0;
}

int fsync(int fd)
{
    if (elsewhere) {
        return 0;
    }
    if (sync_fails != NULL && sync_fails()) {
        int error = errno;
        const struct names now = take_names(fd);
        differences(&now, &durable, drop_name, NULL);
        errno = error;
        return -1;
    }
    durable = names_to_write(fd);
    forget_drops(fd);
    return 0;
}

/* ---- the power goes ---- */

static uint64_t chance = 7;

static inline uint64_t roll_dice(uint64_t sides)
{
    chance = chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (chance >> 33) % sides;
}

/* The file of this inode with some of its new sectors, of four as many as `taste`, under this name in `to`. */
static inline void put_file(int from, int to, const struct names *now, const char *name, ino_t ino, uint64_t taste)
{
    static uint8_t mixed[FILE_BYTES], later[FILE_BYTES];
    const struct file *f = find_file(ino);
    uint32_t bytes = f == NULL ? 0 : f->bytes;
    memset(mixed, 0, sizeof mixed);
    if (f != NULL) {
        memcpy(mixed, f->data, f->bytes);
    }
    for (int i = 0; i < now->count; i++) {
        if (now->at[i].ino == ino) {
            int fd = openat(from, now->at[i].name, O_RDONLY);
            memset(later, 0, sizeof later);
            ssize_t n = read(fd, later, sizeof later);
            CHECK(n >= 0);
            close(fd);
            for (uint32_t at = 0; at < (uint32_t)n; at += SECTOR) {
                if (roll_dice(4) < taste && (f == NULL || !page_is_dropped(f, later, at & ~(PAGE - 1u)))) {
                    memcpy(mixed + at, later + at, SECTOR);
                }
            }
            bytes = (uint32_t)n;
        }
    }
    int fd = openat(to, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK_EQ(write(fd, mixed, bytes), bytes);
    close(fd);
}

static inline void cut_power(int from, int to)
{
    const struct names there = take_names(from), now = names_to_write(from), was = durable;
    uint64_t taste = roll_dice(5);
    for (int i = 0; i < was.count; i++) { /* some names are as they were, also those that are gone */
        ino_t later = ino_of(&now, was.at[i].name);
        ino_t ino = later == was.at[i].ino || roll_dice(2) == 0 ? was.at[i].ino : later;
        if (ino != 0) {
            put_file(from, to, &there, was.at[i].name, ino, taste);
        }
    }
    for (int i = 0; i < now.count; i++) {
        if (ino_of(&was, now.at[i].name) == 0 && roll_dice(2) == 0) {
            put_file(from, to, &there, now.at[i].name, now.at[i].ino, taste);
        }
    }
}
#endif
