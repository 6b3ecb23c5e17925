/* fuzz_frames.c: a private block of frames, and a ring that changed after its frames were found: scanning, gathering, columns,
 * appending to a log. */
#include "fuzz.h"
#include "stream_kit.h"

#include "base/crc32c.h"
#include "log/log.h"
#include "log_object.h"

enum { BLOCK, AFTER, OBJECTS, BLOCK_BYTES = 1 << 14, RING_BYTES = 1 << 16, ENTRIES = 1024 };
/* What the flags of an input ask for. The second object is laid over the ring after its frames were found. */
enum { MEND_FRAMES = 1, FEW = 2, APPEND = 4 };

static uint8_t *ring; /* mapped twice, back to back */
static int directory = -1;

static struct fuzz_image frames_image(void)
{
    struct fuzz_image image = {0};
    fuzz_object(&image, BLOCK_BYTES);
    fuzz_object(&image, BLOCK_BYTES);
    return image;
}

static void prepare(void)
{
    int fd = check_memory();
    FUZZ_CHECK(ftruncate(fd, RING_BYTES) == 0);
    ring = mmap(NULL, 2 * RING_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++) {
        FUZZ_CHECK(mmap(ring + i * RING_BYTES, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
                   MAP_FAILED);
    }
    close(fd);
    directory = log_directory();
}

/* Flags and numbers as a source writes them, as far as lengths chain. */
static void mend(uint8_t *block, uint32_t size)
{
    uint64_t sqn = 0;
    uint16_t fragment = 0;
    for (uint64_t at = 0; size - at >= sizeof(struct hf_frame);) {
        struct hf_frame f;
        memcpy(&f, block + at, sizeof f);
        uint64_t span = hf_frame_span((uint32_t)f.commit);
        if ((uint32_t)f.commit < sizeof f || span > size - at) {
            return;
        }
        sqn = at == 0 ? f.sequence_number : sqn + 1;
        f.sequence_number = sqn;
        f.fragment = fragment;
        f.flags = (uint16_t)((f.flags & HF_FRAME_LAST) | (fragment == 0 ? HF_FRAME_FIRST : 0));
        fragment = (uint16_t)(f.flags & HF_FRAME_LAST ? 0 : fragment + 1);
        memcpy(block + at, &f, sizeof f);
        at += span;
    }
}

/* ---- what is done to it ---- */

/* Columns of exactly this many rows and bytes, and what they hold. */
static void columns(const uint8_t *base, uint64_t wrap, const struct hf_entry *entries, int64_t count, int quiet)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        bytes += entries[i].length;
    }
    uint64_t rows = (uint64_t)count;
    struct hf_columns to = {.sequence_number = calloc(rows + 1, 8),
                            .first_sequence_number = calloc(rows + 1, 8),
                            .timestamp_ns = calloc(rows + 1, 8),
                            .flags = calloc(rows + 1, 4),
                            .offsets = calloc(rows + 1, 4),
                            .values = malloc(bytes == 0 ? 1 : bytes),
                            .crc = calloc(rows + 1, 8),
                            .rows_max = count,
                            .bytes_max = bytes};
    int64_t took = hf_columns(base, wrap, entries, count, &to);
    FUZZ_CHECK(quiet ? took == count : took == count || took == HF_DAMAGED);
    for (int64_t i = 0; quiet && i < count; i++) {
        uint64_t from = (uint64_t)to.offsets[i], length = (uint64_t)to.offsets[i + 1] - from;
        FUZZ_CHECK(length == entries[i].length && to.crc[i] == hf_crc32c_table(0, to.values + from, length));
        FUZZ_CHECK(to.sequence_number[i] == (int64_t)entries[i].sequence_number);
    }
    void *all[] = {
        to.sequence_number, to.first_sequence_number, to.timestamp_ns, to.flags, to.offsets, to.values, to.crc};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

static void gather(const uint8_t *block, const struct hf_entry *entry)
{
    uint32_t length = entry->length;
    uint8_t *payload = malloc(length == 0 ? 1 : length);
    struct hf_entry taken;
    FUZZ_CHECK(hf_gather(block, 0, entry, payload) == length);
    FUZZ_CHECK(length == 0 || hf_take(block, entry, &taken, payload, length - 1) == HF_SMALL);
    FUZZ_CHECK(hf_take(block, entry, &taken, payload, length) == 1 && taken.length == length);
    FUZZ_CHECK(taken.flags & HF_ENTRY_RETRANSMIT);
    free(payload);
}

static int64_t scan(const uint8_t *block, uint32_t size, unsigned flags, struct hf_entry entries[ENTRIES])
{
    int64_t max =
        flags & FEW ? 3 : size / HF_GRANULE + 1; /* each takes a granule, so that is one more than there can be */
    struct hf_entry *exact = malloc((size_t)max * sizeof *exact); /* the sanitizer sees one too many */
    uint64_t consumed = 0;
    int64_t n = hf_scan(block, size, exact, max, &consumed);
    FUZZ_CHECK(n <= max && consumed <= size && consumed % HF_GRANULE == 0);
    FUZZ_CHECK(n >= 0 || (n == HF_DAMAGED && consumed == 0));
    n = n < 0 ? 0 : n;
    for (int64_t i = 0; i < n; i++) {
        FUZZ_CHECK(exact[i].offset >= HF_GRANULE && exact[i].offset + exact[i].length <= consumed);
        FUZZ_CHECK(exact[i].sequence_number - exact[i].first_sequence_number + 1 == exact[i].fragments);
    }
    memcpy(entries, exact, (size_t)n * sizeof *exact);
    free(exact);
    return n;
}

/* The source goes on writing while a reader gathers what it found. */
static void overtaken(const struct fuzz_image *image, const struct hf_entry *entries, int64_t n)
{
    static struct hf_entry there[ENTRIES];
    memset(ring, 0, BLOCK_BYTES); /* nothing else is ever written */
    memcpy(ring, image->bytes[BLOCK], image->size[BLOCK]);
    for (uint32_t at = 0; at < image->end[AFTER]; at += 8) {
        uint64_t word;
        memcpy(&word, image->bytes[AFTER] + at, sizeof word);
        for (uint32_t i = at; word != 0 && i < at + 8; i++) {
            ring[i] = image->bytes[AFTER][i] != 0 ? image->bytes[AFTER][i] : ring[i];
        }
    }
    memcpy(there, entries, (size_t)n * sizeof *there);
    columns(ring, RING_BYTES, there, n, 0);
}

static void append(const uint8_t *block, uint32_t size)
{
    struct hf_log_config config = {
        .first_segment_bytes = 1 << 16, .max_segment_bytes = 1 << 16, .level = HF_LEVEL_MEMORY};
    struct hf_log *log = NULL;
    log_empty(directory);
    FUZZ_CHECK(hf_log_open(directory, &config, &log) == HF_OK);
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    memcpy(copy, block, size);
    int64_t status = hf_log_append(log, copy, size);
    if (status == HF_ROLL) {
        FUZZ_CHECK(hf_log_roll(log) == HF_OK);
        memcpy(copy, block, size);
        status = hf_log_append(log, copy, size);
    }
    FUZZ_CHECK(status == HF_OK || status == HF_USAGE || status == HF_DAMAGED || status == HF_TOO_LARGE);
    FUZZ_CHECK(hf_log_sync(log) == HF_OK);
    hf_log_close(log);
    struct hf_finding finding;
    struct hf_check_summary summary;
    FUZZ_CHECK(hf_log_check(directory, &finding, 1, &summary) == 0); /* whatever it took, its log is right */
    FUZZ_CHECK(status != HF_OK || size == 0 || summary.messages > 0);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_image image;
    static struct hf_entry entries[ENTRIES];
    if (image.objects == 0) {
        image = frames_image();
        prepare();
    }
    unsigned flags = fuzz_read(&image, data, size);
    uint32_t bytes = image.size[BLOCK];
    uint8_t *block = malloc(bytes == 0 ? 1 : bytes);
    if (flags & MEND_FRAMES) {
        mend(image.bytes[BLOCK], bytes);
    }
    fuzz_only_edited(&image, BLOCK);
    fuzz_only_edited(&image, AFTER);
    memcpy(block, image.bytes[BLOCK], bytes);
    int64_t n = scan(block, bytes, flags, entries);
    for (int64_t i = 0; i < n; i++) {
        gather(block, &entries[i]);
    }
    columns(block, 0, entries, n, 1);
    overtaken(&image, entries, n);
    if (flags & APPEND) {
        append(block, bytes);
    }
    free(block);
    return 0;
}

/* ---- valid ones ---- */

/* 0: messages of one fragment; 1: of several; 2: both, and the ring is overwritten. */
size_t fuzz_seed(unsigned number, uint8_t *out, size_t room)
{
    if (number > 2) {
        return 0;
    }
    struct fuzz_image image = frames_image();
    uint32_t at = 0;
    for (uint32_t i = 0; i < 10; i++) {
        int last = number == 0 || i % 3 == 2 || i == 9, first = number == 0 || i % 3 == 0;
        uint32_t payload = i * 17 % 90;
        struct hf_frame f = {.commit = hf_ring_commit_word(at, sizeof f + payload),
                             .sequence_number = 5 + i,
                             .timestamp_ns = i,
                             .flags = (uint16_t)((first ? HF_FRAME_FIRST : 0) | (last ? HF_FRAME_LAST : 0)),
                             .fragment = (uint16_t)(number == 0 ? 0 : i % 3)};
        memcpy(image.bytes[BLOCK] + at, &f, sizeof f);
        memset(image.bytes[BLOCK] + at + sizeof f, 'a' + (int)i, payload);
        at += (uint32_t)hf_frame_span(sizeof f + payload);
    }
    image.size[BLOCK] = at;
    if (number == 2) {
        memset(image.bytes[AFTER] + 64, 0xff, 100);
    }
    size_t size = fuzz_write(&image, APPEND, out, room);
    free(image.bytes[BLOCK]);
    free(image.bytes[AFTER]);
    return size;
}
