/* head_kit.h: heads of logs as files, and a log whose head is of layout version 1. */
#ifndef HF_HEAD_KIT_H
#define HF_HEAD_KIT_H
#include "log/head.h"
#include "log_kit.h"

enum { EACH = 20, PAYLOAD = 50 };

static inline struct hf_log_config disk(void)
{
    return kit_config(HF_LEVEL_DISK, 16384, 16384, 0);
}

static inline uint64_t load(int dir, uint8_t file[HF_HEAD_BYTES])
{
    int fd = openat(dir, "head", O_RDONLY);
    memset(file, 0, HF_HEAD_BYTES);
    ssize_t n = read(fd, file, HF_HEAD_BYTES);
    CHECK(n > 0);
    close(fd);
    return (uint64_t)n;
}

/* As a disk has it after a power cut: a new file. */
static inline void put(int dir, const uint8_t *file, uint64_t bytes)
{
    CHECK(unlinkat(dir, "head", 0) == 0);
    int fd = openat(dir, "head", O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK_EQ(write(fd, file, bytes), bytes);
    close(fd);
}

static inline int64_t begins_of(int dir, struct hf_begin out[HF_INCARNATIONS])
{
    struct hf_logr *r = kit_reader(dir);
    int64_t n = hf_logr_begins(r, out);
    hf_logr_close(r);
    return n;
}

/* A head of version 1 with these BEGINs, written without any code of the product's head. */
static inline void make_old(int dir, const struct hf_begin *begins, uint64_t count)
{
    uint8_t file[HF_HEAD_BYTES], page[4096] = {0};
    struct hf_head_v1 old;
    load(dir, file);
    memcpy(&old, file, sizeof old);
    old.pre.layout_version = 1;
    old.pre.struct_hash = 0x897F273F;
    old.pre.total_bytes = 4096;
    old.begin_version = 2;
    old.begin_count = count;
    memset(old._pad0, 0, sizeof old._pad0);
    memset(old.begins, 0, sizeof old.begins);
    memcpy(old.begins, begins, count * sizeof *begins);
    old.begin_crc = hf_crc32c(0, (const uint8_t *)begins, count * sizeof *begins);
    memcpy(page, &old, sizeof old);
    put(dir, page, sizeof page);
}

/* A log of version 1: `count` BEGINs, of which the last one alone has records, 0..EACH. */
static inline int old_log(int root, uint64_t count, struct hf_begin *begins)
{
    int dir = kit_subdirectory(root, "old");
    struct hf_log *log = kit_open(dir, disk());
    for (uint64_t i = 0; i < count; i++) {
        begins[i] = (struct hf_begin){i + 1, 0};
    }
    CHECK_EQ(hf_log_begins(log, begins, count), HF_OK);
    kit_append(log, 0, EACH, PAYLOAD, 0);
    hf_log_close(log);
    make_old(dir, begins, count);
    return dir;
}
#endif
