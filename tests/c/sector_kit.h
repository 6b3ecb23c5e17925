/* sector_kit.h: files of which chosen pages cannot be read, or the n-th read of all fails. */
#ifndef HF_SECTOR_KIT_H
#define HF_SECTOR_KIT_H
#include <sys/stat.h>
#include <sys/syscall.h>

#include "log/segment.h"
#include "log_kit.h"

enum { PAGE = 4096, PAYLOAD = 1000, ROOM = 1056, BAD = 8 };

/* ---- the disk ---- */

static struct {
    ino_t ino;
    uint64_t from, to;
} bad[BAD];
static int bad_count;
static int nth, error_of_nth, struck; /* the n-th read of all */

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    struct stat st;
    uint64_t from = (uint64_t)offset, to = from + bytes;
    if (nth != 0 && --nth == 0) {
        struck = 1;
        errno = error_of_nth;
        return -1;
    }
    CHECK(syscall(SYS_fstat, fd, &st) == 0);
    for (int i = 0; i < bad_count; i++) {
        if (bad[i].ino == st.st_ino && bad[i].from < to && bad[i].to > from) {
            if (bad[i].from <= from) {
                errno = EIO;
                return -1;
            }
            to = bad[i].from; /* what lies before it, as the kernel does */
        }
    }
    return syscall(SYS_pread64, fd, data, to - from, offset);
}

static inline void spoil(int dir, const char *name, uint64_t from, uint64_t to)
{
    struct stat st;
    CHECK(fstatat(dir, name, &st, 0) == 0 && bad_count < BAD);
    bad[bad_count].ino = st.st_ino;
    bad[bad_count].from = from;
    bad[bad_count++].to = to;
}

static inline void all_reads_well(void)
{
    bad_count = 0;
    nth = 0;
}

/* ---- the log ---- */

static int parent;

static inline int fresh(void)
{
    return kit_subdirectory(parent, "log");
}

static inline void finish(int dir)
{
    close(dir);
    kit_empty(parent, "log");
}

static inline struct hf_log_config config(void)
{
    return kit_config(HF_LEVEL_DISK, 65536, 65536, 0);
}

static inline void grow(struct hf_log *log, uint64_t from, uint64_t to)
{
    kit_append(log, from, to - from, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
}

static inline void save_head(int dir, uint8_t page[PAGE])
{
    int fd = openat(dir, "head", O_RDONLY);
    CHECK(fd >= 0 && syscall(SYS_pread64, fd, page, PAGE, 0) == PAGE);
    close(fd);
}

/* As a power cut leaves it: as old as its last write-back. */
static inline void put_head(int dir, const uint8_t page[PAGE])
{
    int fd = openat(dir, "head", O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, page, PAGE, 0) == PAGE);
    close(fd);
}

/* The first segment's offset of the frame of number `sqn`, all of one group being behind one SYNC frame. */
static inline uint64_t place(int dir, uint64_t sqn)
{
    static uint8_t file[65536];
    int fd = openat(dir, "seg-0000000000000000", O_RDONLY);
    CHECK(fd >= 0 && syscall(SYS_pread64, fd, file, sizeof file, 0) > 0);
    close(fd);
    for (uint64_t at = hf_seg_header_bytes(sizeof file); at < sizeof file; at += 32) {
        struct hf_frame f;
        memcpy(&f, file + at, sizeof f);
        if (f.sequence_number == sqn && (uint32_t)f.commit == 32 + PAYLOAD) {
            return at;
        }
    }
    CHECK(0);
    return 0;
}

/* Reads everything that can be read below `to`; numbers that cannot are counted. */
static inline uint64_t read_around(int dir, uint64_t to)
{
    static uint8_t buf[KIT_BUFFER];
    struct hf_logr *r = kit_reader(dir);
    uint64_t next = 0, missing = 0;
    for (uint64_t at = 0; at < to; at = next) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        CHECK(n > 0 || n == HF_DAMAGED || n == HF_GONE);
        CHECK(next > at);
        if (n > 0) {
            CHECK_EQ(kit_verify(buf, n, at, 0), next);
        } else {
            missing += (next < to ? next : to) - at;
        }
    }
    hf_logr_close(r);
    return missing;
}

/* 0..9 are known to be stable; 10 .. end - 1 were, and the head on disk is from before. */
static inline int a_stale_log(uint64_t end)
{
    uint8_t head[PAGE];
    int dir = fresh();
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 10);
    save_head(dir, head);
    grow(log, 10, end);
    hf_log_close(log);
    put_head(dir, head);
    return dir;
}

/* What a reader is told of the end; its number. A walk that met what it could not read leaves no mark to go on from. */
static inline uint64_t end_as_told(int dir, int64_t expected)
{
    struct hf_logr *r = kit_reader(dir);
    struct hf_log_walked mark;
    uint64_t next = 0;
    CHECK_EQ(hf_logr_end(r, &next), expected);
    hf_logr_walked(r, &mark);
    CHECK(expected == HF_OK || mark.end == 0);
    hf_logr_close(r);
    return next;
}
#endif
