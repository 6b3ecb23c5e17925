/* fill_kit.h: what the tests of fills share: a log with damage in it, and fills as a good peer gives them. */
#ifndef HF_FILL_KIT_H
#define HF_FILL_KIT_H
#include "log_kit.h"

static int root;

enum { SEGMENT = 16384, FIRST = 40, NEXT = 60, END = 100, PAYLOAD = 100 };

static const char seg0[] = "seg-0000000000000000";

/* A log with `count` messages of one fragment each, in one segment; closed. */
static inline int build(const char *name, uint64_t count)
{
    int dir = kit_subdirectory(root, name);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT << 1, SEGMENT << 1, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, count, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_log_close(log);
    return dir;
}

static inline uint64_t frame_offset(int dir, const char *name, uint64_t sqn)
{
    static uint8_t file[SEGMENT << 1];
    int f = openat(dir, name, O_RDONLY);
    CHECK(f >= 0);
    CHECK(read(f, file, sizeof file) > 0);
    close(f);
    struct hf_frame frame;
    uint64_t at = 8192;
    for (memcpy(&frame, file + at, sizeof frame); frame.sequence_number != sqn || (frame.flags & HF_FRAME_CONTROL);) {
        at += ((uint32_t)frame.commit + UINT64_C(31)) & ~UINT64_C(31);
        CHECK(at < sizeof file);
        memcpy(&frame, file + at, sizeof frame);
    }
    return at;
}

static inline void flip(int dir, const char *name, uint64_t offset, uint8_t bits)
{
    uint8_t byte;
    int f = openat(dir, name, O_RDWR);
    CHECK(f >= 0);
    CHECK_EQ(pread(f, &byte, 1, (off_t)offset), 1);
    byte ^= bits;
    CHECK_EQ(pwrite(f, &byte, 1, (off_t)offset), 1);
    close(f);
}

/* Every message in [first, next) of segment 0 loses a bit. */
static inline void damage(int dir, uint64_t first, uint64_t next)
{
    for (uint64_t sqn = first; sqn < next; sqn++) {
        flip(dir, seg0, frame_offset(dir, seg0, first) + (sqn - first) * 160 + 40, 4);
    }
}

static inline struct hf_fill *begin_fill(int dir, uint64_t incarnation, uint64_t first, uint64_t limit)
{
    struct hf_fill *f = NULL;
    CHECK_EQ(hf_fill_create(dir, kit_uuid, incarnation, first, limit, &f), HF_OK);
    return f;
}

/* A fill with the messages [first, next), as a good peer has them. */
static inline void fill(int dir, uint64_t incarnation, uint64_t first, uint64_t next)
{
    static uint8_t block[KIT_BUFFER];
    struct hf_fill *f = begin_fill(dir, incarnation, first, next);
    uint64_t now = 0, bytes = kit_block(block, first, next - first, PAYLOAD, 0);
    CHECK_EQ(hf_fill_append(f, block, bytes, &now), bytes);
    CHECK_EQ(now, next);
    CHECK_EQ(hf_fill_commit(f), HF_OK);
}

static inline int64_t read_at(struct hf_logr *r, uint64_t sqn, uint64_t *next)
{
    static uint8_t buf[KIT_BUFFER];
    int64_t n = hf_logr_read(r, sqn, buf, sizeof buf, next);
    if (n > 0) {
        CHECK_EQ(kit_verify(buf, n, sqn, 0), *next);
    }
    return n;
}

static inline int64_t findings(int dir)
{
    struct hf_check_summary sum;
    return kit_findings(dir, &sum);
}

static inline void done(int dir, const char *name)
{
    close(dir);
    kit_empty(root, name);
}
#endif
