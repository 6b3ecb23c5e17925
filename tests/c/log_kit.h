/* log_kit.h: what the tests of the log share: blocks of frames with known content, and a reader that checks it. */
#ifndef HF_LOG_KIT_H
#define HF_LOG_KIT_H
#include <dirent.h>

#include "base/crc32c.h"
#include "base/status.h"
#include "check.h"
#include "log/log.h"
#include "stream/stream.h"

enum { KIT_BUFFER = 1 << 20 };

static const uint8_t kit_uuid[16] = "source of a test";

/* Logs of tests live in memory, also those at disk level: fdatasync works there, and is free. */
static inline int kit_directory(void)
{
    setenv("TMPDIR", "/dev/shm", 1);
    return check_directory();
}

/* A fresh, empty sub-directory. */
static inline int kit_subdirectory(int parent, const char *name)
{
    CHECK(mkdirat(parent, name, 0700) == 0);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static inline void kit_empty(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY);
    DIR *d = fdopendir(fd);
    CHECK(d != NULL);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        CHECK(e->d_name[0] == '.' || unlinkat(fd, e->d_name, 0) == 0);
    }
    closedir(d);
    CHECK(unlinkat(parent, name, AT_REMOVEDIR) == 0);
}

static inline struct hf_log_config kit_config(uint32_t level, uint64_t first, uint64_t max, uint64_t retain)
{
    struct hf_log_config c = {
        .first_segment_bytes = first, .max_segment_bytes = max, .retain_bytes = retain, .level = level};
    memcpy(c.uuid, kit_uuid, sizeof c.uuid);
    return c;
}

static inline struct hf_log *kit_open(int dir, struct hf_log_config config)
{
    struct hf_log *log = NULL;
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_OK);
    return log;
}

static inline struct hf_log_info kit_info(const struct hf_log *log)
{
    struct hf_log_info info;
    hf_log_info(log, &info);
    return info;
}

/* Content follows from number and salt (an incarnation, say). */
static inline uint8_t kit_byte(uint64_t sqn, uint64_t salt, uint64_t i)
{
    return (uint8_t)(sqn * 31 + salt * 101 + i * 7 + (sqn >> 8));
}

/* One frame as the ring has it; returns its room. */
static inline uint64_t kit_frame(uint8_t *at, uint64_t sqn, uint32_t payload, uint16_t flags, uint16_t fragment,
                                 uint64_t salt)
{
    struct hf_frame f = {.commit = (UINT64_C(77) << 32) | (32 + payload),
                         .sequence_number = sqn,
                         .timestamp_ns = (int64_t)sqn * 1000,
                         .flags = flags,
                         .fragment = fragment};
    memcpy(at, &f, sizeof f);
    for (uint64_t i = 0; i < payload; i++) {
        at[32 + i] = kit_byte(sqn, salt, i);
    }
    uint64_t room = (32 + (uint64_t)payload + 31) & ~UINT64_C(31);
    memset(at + 32 + payload, 0xA5, room - 32 - payload); /* rings leave garbage in the padding */
    return room;
}

/* count messages of one fragment each. */
static inline uint64_t kit_block(uint8_t *buf, uint64_t sqn, uint64_t count, uint32_t payload, uint64_t salt)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        at += kit_frame(buf + at, sqn + i, payload, HF_FRAME_FIRST | HF_FRAME_LAST, 0, salt);
    }
    CHECK(at <= KIT_BUFFER);
    return at;
}

/* One message of `fragments` frames. */
static inline uint64_t kit_message(uint8_t *buf, uint64_t sqn, uint16_t fragments, uint32_t payload, uint64_t salt)
{
    uint64_t at = 0;
    for (uint16_t i = 0; i < fragments; i++) {
        uint16_t flags = (uint16_t)((i == 0 ? HF_FRAME_FIRST : 0) | (i + 1 == fragments ? HF_FRAME_LAST : 0));
        at += kit_frame(buf + at, sqn + i, payload, flags, i, salt);
    }
    CHECK(at <= KIT_BUFFER);
    return at;
}

static inline int64_t kit_put(struct hf_log *log, uint8_t *block, uint64_t bytes)
{
    int64_t status = hf_log_append(log, block, bytes);
    if (status == HF_ROLL) {
        status = hf_log_roll(log);
        status = status == HF_OK ? hf_log_append(log, block, bytes) : status;
    }
    return status;
}

/* Appends numbers [sqn, sqn + count) one block each, rolling where needed. */
static inline void kit_append(struct hf_log *log, uint64_t sqn, uint64_t count, uint32_t payload, uint64_t salt)
{
    static uint8_t block[KIT_BUFFER];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bytes = kit_block(block, sqn + i, 1, payload, salt);
        CHECK_EQ(kit_put(log, block, bytes), HF_OK);
    }
}

static inline struct hf_logr *kit_reader(int dir)
{
    struct hf_logr *r = NULL;
    CHECK_EQ(hf_logr_open(dir, &r), HF_OK);
    return r;
}

/* Every frame in the block has the content that its number and salt ask for. Returns the number behind the last. */
static inline uint64_t kit_verify(const uint8_t *block, int64_t bytes, uint64_t sqn, uint64_t salt)
{
    for (int64_t at = 0; at < bytes;) {
        struct hf_frame f;
        memcpy(&f, block + at, sizeof f);
        CHECK_EQ(f.sequence_number, sqn);
        CHECK_EQ(f.timestamp_ns, sqn * 1000);
        uint32_t payload = (uint32_t)f.commit - 32;
        for (uint64_t i = 0; i < payload; i++) {
            CHECK_EQ(block[at + 32 + (int64_t)i], kit_byte(sqn, salt, i));
        }
        at += (32 + (int64_t)payload + 31) & ~INT64_C(31);
        sqn++;
    }
    return sqn;
}

/* Reads [from, to) and verifies it. Ends at `to` exactly. */
static inline void kit_expect(struct hf_logr *r, uint64_t from, uint64_t to, uint64_t salt)
{
    static uint8_t buf[KIT_BUFFER];
    uint64_t at = from, next = 0;
    while (at < to) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        if (n <= 0) {
            fprintf(stderr, "read of %llu: %s, next %llu\n", (unsigned long long)at, hf_status_name(n),
                    (unsigned long long)next);
        }
        CHECK(n > 0);
        CHECK_EQ(kit_verify(buf, n, at, salt), next);
        CHECK(next > at);
        at = next;
    }
    CHECK_EQ(at, to);
}

static inline int64_t kit_findings(int dir, struct hf_check_summary *sum)
{
    struct hf_finding f[16];
    return hf_log_check(dir, f, 16, sum);
}

/* How many names in `dir` begin with `prefix`. */
static inline int kit_names(int dir, const char *prefix)
{
    int n = 0, fd = openat(dir, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = fdopendir(fd);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    }
    closedir(d);
    return n;
}
#endif
