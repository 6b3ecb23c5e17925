/* log_object.c: see log_object.h. The rules that are checked are log/log.h's: whoever reads on gets on, what is read is whole messages
 * in order, an open mends for good, and what is appended after it is there. */
#include "log_object.h"
#include "log_kit.h"
#include "quick.h"

#include "base/process.h"
#include "log/frame.h"
#include "log/head.h"
#include "log/segment.h"

enum { STEPS = 4096, BUFFER = 1 << 17, WORD = 64 };
#define NUMBER_MAX (UINT64_C(1) << 50) /* times 1000 it is a timestamp of log_kit.h */
static const uint32_t rooms[LOG_OBJECTS] = {LOG_HEAD_BYTES, LOG_SEGMENT_BYTES, LOG_SEGMENT_BYTES, LOG_DATA, 24};
static int directory = -1;

struct fuzz_image log_image(void)
{
    struct fuzz_image image = {0};
    for (int i = 0; i < LOG_OBJECTS; i++) {
        fuzz_object(&image, rooms[i]);
    }
    return image;
}

static uint64_t word(const struct fuzz_image *image, int object, uint64_t offset)
{
    uint64_t value;
    memcpy(&value, image->bytes[object] + offset, sizeof value);
    return value;
}

static void name_of(const struct fuzz_image *image, int object, char name[64])
{
    switch (object) {
    case LOG_HEAD:
        strcpy(name, "head");
        break;
    case LOG_FILL:
        snprintf(name, 64, "fill-%016llx-%016llx", (unsigned long long)word(image, LOG_NAMES, 8),
                 (unsigned long long)word(image, LOG_NAMES, 16));
        break;
    default:
        snprintf(name, 64, "seg-%016llx", object == LOG_FIRST ? 0 : (unsigned long long)word(image, LOG_NAMES, 0));
        break;
    }
}

/* ---- mending ---- */

static void mend_preamble(struct hf_preamble *pre, uint32_t kind)
{
    pre->magic = HF_MAGIC | kind;
    int old = kind == HF_KIND_HEAD && pre->layout_version == 1;
    pre->layout_version = old ? 1 : hf_layout_version(kind);
    pre->struct_hash = old ? hf_head_v1_hash() : hf_struct_hash(kind);
    FUZZ_CHECK(hf_boot_id(pre->boot_id) == HF_OK);
}

static void mend_segment(uint8_t *file, unsigned flags)
{
    struct hf_segment_header *h = (struct hf_segment_header *)(void *)file;
    if (flags & LOG_MEND_HEADERS) {
        mend_preamble(&h->pre, HF_KIND_SEGMENT);
        h->crc = hf_crc32c(0, file, HF_HEADER_CRC);
        memcpy(file + HF_SEGMENT_COPY, file, HF_HEADER_CRC + sizeof h->crc);
    }
    if (flags & LOG_MEND_SEALS && h->seal.end_position != 0) {
        uint64_t count = h->seal.index_count < 4 ? h->seal.index_count : 4;
        h->seal.index_crc = hf_crc32c(0, file + HF_HEADER_PAGE, count * sizeof(struct hf_index_entry));
        h->seal.crc =
            hf_crc32c(hf_crc32c(0, h->pre.uuid, HF_UUID), (const uint8_t *)&h->seal, offsetof(struct hf_seal, crc));
    }
}

/* As far as lengths lead from frame to frame. */
static void mend_frames(uint8_t *frames, uint64_t bytes, uint64_t position, uint32_t seed)
{
    for (uint64_t at = 0; bytes - at >= sizeof(struct hf_frame);) {
        struct hf_frame f;
        memcpy(&f, frames + at, sizeof f);
        uint32_t length = (uint32_t)f.commit;
        uint64_t room = hf_frame_room(length);
        if (length < sizeof f || room > bytes - at) {
            return;
        }
        f.commit = hf_log_commit_word(position + at, length);
        memcpy(frames + at, &f, sizeof f);
        memset(frames + at + length, 0, room - length);
        f.crc = hf_crc32c(hf_crc32c(seed, frames + at, HF_CRC_BYTES), frames + at + sizeof f, length - sizeof f);
        memcpy(frames + at, &f, sizeof f);
        at += room;
    }
}

static uint64_t entries(uint64_t count)
{
    return (count < HF_INCARNATIONS ? count : HF_INCARNATIONS) * sizeof(struct hf_begin);
}

/* Of both layout versions of a head. */
static void mend_tables(uint8_t *file)
{
    struct hf_head_v1 *old = (struct hf_head_v1 *)(void *)file;
    if (old->pre.layout_version == 1) {
        old->begin_crc = hf_crc32c(0, (const uint8_t *)old->begins, entries(old->begin_count));
        return;
    }
    for (uint64_t slot = 1; slot < 3; slot++) {
        struct hf_begin_table *t = (struct hf_begin_table *)(void *)(file + HF_HEADER_PAGE * slot);
        uint32_t seed = hf_crc32c(0, (const uint8_t *)t, offsetof(struct hf_begin_table, _pad0));
        t->crc = hf_crc32c(seed, (const uint8_t *)t->begins, entries(t->count));
    }
}

/* The same words and BEGINs in layout version 1. */
void log_head_v1(uint8_t *file)
{
    struct hf_head_v1 old;
    memcpy(&old, file, sizeof old);
    struct hf_begin_table t;
    memcpy(&t, file + HF_HEADER_PAGE * (1 + old.begin_version % 2), sizeof t);
    old.pre.layout_version = 1;
    old.pre.struct_hash = hf_head_v1_hash();
    old.pre.total_bytes = HF_HEADER_PAGE;
    old.begin_version = 2;
    old.begin_count = t.count;
    memcpy(old.begins, t.begins, sizeof old.begins);
    memset(file, 0, LOG_HEAD_BYTES);
    memcpy(file, &old, sizeof old);
    mend_tables(file);
}

void log_mend(struct fuzz_image *image, unsigned flags)
{
    for (int i = LOG_FIRST; i <= LOG_SECOND; i++) {
        struct hf_segment_header *h = (struct hf_segment_header *)(void *)image->bytes[i];
        mend_segment(image->bytes[i], flags);
        if (flags & LOG_MEND_FRAMES) {
            mend_frames(image->bytes[i] + LOG_DATA, LOG_SEGMENT_BYTES - LOG_DATA, h->base_position,
                        hf_seed(h->pre.uuid, h->pre.incarnation));
        }
    }
    struct hf_fill_header *fill = (struct hf_fill_header *)(void *)image->bytes[LOG_FILL];
    if (flags & LOG_MEND_HEADERS && fill->pre.magic != 0) {
        mend_preamble(&fill->pre, HF_KIND_FILL);
        fill->crc = 0;
        fill->crc = hf_crc32c(0, image->bytes[LOG_FILL], HF_HEADER_PAGE);
    }
    if (flags & LOG_MEND_FRAMES) {
        mend_frames(image->bytes[LOG_FILL] + HF_HEADER_PAGE, LOG_DATA - HF_HEADER_PAGE, 0,
                    hf_seed(fill->pre.uuid, fill->pre.incarnation));
    }
    struct hf_head *head = (struct hf_head *)(void *)image->bytes[LOG_HEAD];
    if (flags & LOG_MEND_HEADERS) {
        mend_preamble(&head->pre, HF_KIND_HEAD);
    }
    if (flags & LOG_MEND_HEAD) {
        head->end_check = head->end ^ hf_head_mask(head);
        mend_tables(image->bytes[LOG_HEAD]);
    }
}

/* ---- the directory ---- */

static void write_object(const struct fuzz_image *image, int object)
{
    char name[64];
    uint32_t used = image->size[object];
    name_of(image, object, name);
    while (used >= WORD && hf_zeros(image->bytes[object] + used - WORD, WORD)) {
        used -= WORD;
    }
    while (used > 0 && image->bytes[object][used - 1] == 0) {
        used--;
    }
    if (used == 0) {
        return; /* all zeros: no such file */
    }
    int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, (off_t)image->size[object]) == 0);
    FUZZ_CHECK(pwrite(fd, image->bytes[object], used, 0) == (ssize_t)used);
    close(fd);
}

void log_empty(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fdopendir(fd);
    FUZZ_CHECK(listing != NULL);
    for (const struct dirent *e = readdir(listing); e != NULL; e = readdir(listing)) {
        if (e->d_name[0] != '.') {
            FUZZ_CHECK(unlinkat(dir, e->d_name, 0) == 0);
        }
    }
    closedir(listing);
}

int log_directory(void)
{
    setenv("TMPDIR", "/dev/shm", 0);
    int dir = check_directory();
    if (quick_directory != NULL) {
        quick_directory(dir);
    }
    return dir;
}

static void prepare(void)
{
    directory = directory < 0 ? log_directory() : directory;
    log_empty(directory);
}

/* ---- what is done to it ---- */

/* Whole messages with numbers in order, the first of them the one that was asked for. */
static void check_block(const uint8_t *block, int64_t bytes, uint64_t sqn, uint64_t next)
{
    static struct hf_entry entries[STEPS];
    uint64_t consumed, expected = 0;
    int64_t n = hf_scan(block, (uint64_t)bytes, entries, STEPS, &consumed);
    FUZZ_CHECK(n > 0 && consumed == (uint64_t)bytes);
    FUZZ_CHECK(entries[0].first_sequence_number <= sqn && entries[0].sequence_number >= sqn);
    for (int64_t i = 0; i < n; i++) {
        FUZZ_CHECK(i == 0 || entries[i].first_sequence_number == expected);
        expected = entries[i].sequence_number + 1;
    }
    FUZZ_CHECK(expected == next);
}

static int known(int64_t status)
{
    return status >= 0 || status <= HF_ERRNO || strcmp(hf_status_name(status), hf_status_name(-999)) != 0;
}

/* Reads on and on from `sqn`: every answer leads further, so a reader never asks for ever. */
static void read_on(struct hf_logr *r, uint64_t sqn, uint64_t capacity)
{
    uint8_t *buf = malloc(capacity); /* exactly that many: the sanitizer sees a byte too many */
    FUZZ_CHECK(buf != NULL);
    for (int steps = 0;; steps++) {
        uint64_t next = sqn;
        int64_t n = hf_logr_read(r, sqn, buf, capacity, &next);
        FUZZ_CHECK(steps < STEPS && known(n));
        if (n > 0) {
            FUZZ_CHECK((uint64_t)n <= capacity);
            check_block(buf, n, sqn, next);
        } else if (n == HF_SMALL) {
            FUZZ_CHECK(next > capacity);
            break;
        } else if (n != HF_GONE && n != HF_DAMAGED && n != HF_LOST && n != HF_HOLE) {
            break;
        }
        FUZZ_CHECK(next > sqn);
        sqn = next;
    }
    free(buf);
}

static void read_all(void)
{
    struct hf_logr *r = NULL;
    if (hf_logr_open(directory, &r) != HF_OK) {
        return;
    }
    uint64_t oldest = 0, next = 0;
    struct hf_begin begins[HF_INCARNATIONS];
    FUZZ_CHECK(hf_logr_range(r, &oldest, &next) == HF_OK);
    FUZZ_CHECK(hf_logr_begins(r, begins) <= HF_INCARNATIONS);
    read_on(r, 0, BUFFER);
    read_on(r, oldest, BUFFER);
    for (uint64_t sqn = 1; sqn < 24; sqn += 3) { /* a reader with a cursor, and one that seeks */
        read_on(r, sqn, 160);
    }
    hf_logr_close(r);
}

static void check_all(void)
{
    struct hf_finding findings[8];
    struct hf_check_summary summary;
    memset(findings, 0, sizeof findings);
    int64_t n = hf_log_check(directory, findings, 8, &summary);
    FUZZ_CHECK(known(n));
    for (int64_t i = 0; i < n && i < 8; i++) {
        FUZZ_CHECK(findings[i].first_sqn <= findings[i].next_sqn && findings[i].kind >= HF_FOUND_DAMAGE &&
                   findings[i].kind <= HF_FOUND_FILL);
    }
}

static struct hf_log_config config(unsigned flags)
{
    return kit_config(flags & LOG_MEMORY ? HF_LEVEL_MEMORY : HF_LEVEL_DISK, LOG_SEGMENT_BYTES, LOG_SEGMENT_BYTES,
                      flags & LOG_BUSY ? 2 * LOG_SEGMENT_BYTES : 0);
}

/* Appends a few messages and publishes them; `from`: the number of the first, which must be readable then. Returns how many. */
static int append_some(struct hf_log *log, uint64_t *from)
{
    static uint8_t block[KIT_BUFFER];
    int appended = 0;
    *from = kit_info(log).appended_sqn;
    for (int i = 0; i < 3 && *from < NUMBER_MAX; i++) {
        int64_t status = kit_put(log, block, kit_message(block, *from + (uint64_t)i, 1, 40, 0));
        FUZZ_CHECK(known(status));
        if (status != HF_OK) {
            break;
        }
        appended++;
    }
    return hf_log_sync(log) == HF_OK ? appended : 0;
}

static void busy(struct hf_log *log)
{
    struct hf_log_info info = kit_info(log);
    FUZZ_CHECK(known(hf_log_prepare(log)));
    FUZZ_CHECK(known(hf_log_begin(log, info.incarnation + 1, info.appended_sqn)));
    FUZZ_CHECK(known(hf_log_lost(log, info.appended_sqn, info.appended_sqn + 2)));
    FUZZ_CHECK(known(hf_log_roll(log)));
    FUZZ_CHECK(known(hf_log_sync(log)));
    FUZZ_CHECK(known(hf_log_release(log, info.oldest_sqn + 5)));
    FUZZ_CHECK(known(hf_fill_prune(directory)));
}

static void expect_appended(uint64_t from, int count)
{
    static uint8_t buf[KIT_BUFFER];
    struct hf_logr *r = NULL;
    FUZZ_CHECK(hf_logr_open(directory, &r) == HF_OK);
    for (uint64_t at = from, next = 0; at < from + (uint64_t)count; at = next) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        FUZZ_CHECK(n > 0 && next > at);
        FUZZ_CHECK(kit_verify(buf, n, at, 0) == next);
    }
    hf_logr_close(r);
}

/* A segment does: of the last one, nothing is left. */
static int begins_at(uint64_t position)
{
    char name[HF_SEGMENT_NAME];
    hf_seg_name(name, position);
    return faccessat(directory, name, F_OK, 0) == 0;
}

/* An open mends or refuses. What it mended stays so, and what is appended then is read by everybody. */
static void write_all(unsigned flags)
{
    struct hf_log_config c = config(flags);
    struct hf_log *log = NULL;
    int segments = kit_names(directory, "seg-");
    int64_t status = hf_log_open(directory, &c, &log);
    FUZZ_CHECK(known(status));
    if (status != HF_OK) {
        return;
    }
    uint64_t from = 0;
    int appended = append_some(log, &from);
    struct hf_log_info was = kit_info(log);
    hf_log_close(log);
    int left = kit_names(directory, "seg-");
    if (appended > 0) {
        expect_appended(from, appended);
    }
    status = hf_log_open(directory, &c, &log);
    FUZZ_CHECK(status == HF_OK);
    struct hf_log_info is = kit_info(log);
    /* A last segment of which nothing is left stays until the next append replaces it, and is counted again. */
    int again = appended == 0 && (is.end == 0 || (is.cut_bytes > 0 && begins_at(is.end)));
    int unsealed = appended == 0 && was.unsure; /* the open that finds a log unsure does not say where it ends */
    if (again && left < segments) {             /* what lay behind it was removed and counted, and said where it ends */
        was = is;
        hf_log_close(log);
        FUZZ_CHECK(hf_log_open(directory, &c, &log) == HF_OK);
        is = kit_info(log);
    }
    FUZZ_CHECK(is.cut_bytes == (again ? was.cut_bytes : 0) || (unsealed && is.cut_bytes == was.cut_bytes));
    FUZZ_CHECK(appended == 0 || is.next_sqn == was.next_sqn);
    if (flags & LOG_BUSY) {
        busy(log);
    }
    hf_log_close(log);
}

void log_exercise(const struct fuzz_image *image, unsigned flags)
{
    prepare();
    for (int i = 0; i < LOG_NAMES; i++) {
        write_object(image, i);
    }
    check_all();
    read_all();
    if (flags & LOG_READ_ONLY) {
        return;
    }
    write_all(flags);
    check_all();
    read_all();
}

/* ---- valid ones ---- */

/* What the product wrote, except for what differs from run to run: uuids, clocks, processes. */
static void take_file(struct fuzz_image *out, int object, uint8_t mark)
{
    char name[64];
    name_of(out, object, name);
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && read(fd, out->bytes[object], out->room[object]) > 0);
    close(fd);
    struct hf_preamble *pre = (struct hf_preamble *)(void *)out->bytes[object];
    pre->owner = pre->created_ns = pre->owner_start = 0;
    pre->owner_pid = 0;
    if (object != LOG_HEAD) {
        memset(pre->uuid, mark, sizeof pre->uuid);
    }
}

/* The numbers that the second incarnation has lost come back in a fill. */
static void make_fill(uint64_t first, uint64_t next)
{
    static uint8_t block[KIT_BUFFER];
    struct hf_fill *fill = NULL;
    uint64_t taken = 0;
    FUZZ_CHECK(hf_fill_create(directory, kit_uuid, 1, first, next, &fill) == HF_OK);
    FUZZ_CHECK(hf_fill_append(fill, block, kit_block(block, first, next - first, 30, 0), &taken) > 0 && taken == next);
    FUZZ_CHECK(hf_fill_commit(fill) == HF_OK);
}

/* 0: one incarnation, two segments; 1: the second segment is another incarnation's, that takes numbers over; 2: numbers lost, and
 * in a fill. */
int log_valid(unsigned number, struct fuzz_image *out)
{
    static uint8_t block[KIT_BUFFER];
    if (number > 2) {
        return 0;
    }
    prepare();
    struct hf_log_config c = config(number == 1 ? LOG_MEMORY : 0);
    struct hf_log *log = kit_open(directory, c);
    FUZZ_CHECK(hf_log_begin(log, 1, 0) == HF_OK);
    kit_append(log, 0, 3, 17, 0);
    FUZZ_CHECK(kit_put(log, block, kit_message(block, 3, 3, 40, 0)) == HF_OK && hf_log_sync(log) == HF_OK);
    kit_append(log, 6, 2, 0, 0);
    if (number == 2) {
        FUZZ_CHECK(hf_log_lost(log, 8, 9) == HF_OK);
    }
    FUZZ_CHECK(hf_log_sync(log) == HF_OK);
    struct hf_log_info info = kit_info(log);
    FUZZ_CHECK((number == 1 ? hf_log_begin(log, 2, 7) : HF_OK) == HF_OK && hf_log_roll(log) == HF_OK);
    memcpy(out->bytes[LOG_NAMES], &info.end, sizeof info.end);
    kit_append(log, kit_info(log).appended_sqn, 4, 33, 0);
    hf_log_close(log);
    take_file(out, LOG_HEAD, 0);
    take_file(out, LOG_FIRST, 1);
    take_file(out, LOG_SECOND, 2);
    if (number == 2) {
        const uint64_t range[2] = {8, 10};
        memcpy(out->bytes[LOG_NAMES] + 8, range, sizeof range);
        make_fill(range[0], range[1]);
        take_file(out, LOG_FILL, 3);
    }
    log_mend(out, LOG_MEND_ALL);
    return 1;
}
