/* fuzz_stream.c: a ring that anybody may have written, its header and its frames, as readers, stores and tools see it. */
#include "fuzz.h"
#include "stream_kit.h"

#include "base/map.h"
#include "base/status.h"

enum { HEADER, RING, OBJECTS, HEADER_BYTES = 4096, RING_BYTES = 1 << 16, STEPS = 4096, ENTRIES = 256 };
/* What the flags of an input ask for. */
enum {
    MEND_PREAMBLE = 1,
    MEND_SIZES = 2,   /* ring and fragment sizes, the start */
    MEND_TAGS = 4,    /* positions in commit words, as far as lengths chain from the start */
    MEND_NUMBERS = 8, /* sequence numbers too */
    MEND_MARKS = 16,
    FROM_OLDEST = 32, /* readers begin at the oldest mark; else at the start */
    SMALL = 64        /* with small buffers */
};

static int file_fd = -1, read_fd = -1;
static uint8_t *file;
static struct hf_map *board;
static uint8_t *wide, *page, *narrow;

static struct fuzz_image stream_image(void)
{
    struct fuzz_image image = {0};
    fuzz_object(&image, HEADER_BYTES);
    fuzz_object(&image, RING_BYTES);
    return image;
}

/* The image is the file. */
static struct fuzz_image prepare(void)
{
    struct fuzz_image image = {0};
    char path[32];
    file_fd = check_memory();
    FUZZ_CHECK(ftruncate(file_fd, HEADER_BYTES + RING_BYTES) == 0);
    file = mmap(NULL, HEADER_BYTES + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file_fd, 0);
    FUZZ_CHECK(file != MAP_FAILED);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file_fd);
    read_fd = open(path, O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(read_fd >= 0);
    board = kit_board();
    kit_line(board, 0);
    wide = malloc(RING_BYTES); /* exactly that many: the sanitizer sees a byte too many */
    page = malloc(HEADER_BYTES);
    narrow = malloc(100);
    fuzz_object_at(&image, file, HEADER_BYTES);
    fuzz_object_at(&image, file + HEADER_BYTES, RING_BYTES);
    return image;
}

/* ---- mending ---- */

static void mend_frames(struct hf_stream_header *h, uint8_t *ring, unsigned flags)
{
    uint64_t position = h->start_position, sqn = h->start_sqn;
    for (uint64_t gone = 0; gone + sizeof(struct hf_frame) <= RING_BYTES;) {
        struct hf_frame f;
        uint64_t at = position % RING_BYTES & ~(uint64_t)(HF_GRANULE - 1);
        memcpy(&f, ring + at, sizeof f);
        uint32_t length = (uint32_t)f.commit;
        if (length < sizeof f || length > RING_BYTES / 4) {
            return;
        }
        f.commit = hf_ring_commit_word(position, length);
        f.sequence_number = flags & MEND_NUMBERS ? sqn : f.sequence_number;
        memcpy(ring + at, &f, sizeof f);
        position += hf_frame_span(length);
        gone += hf_frame_span(length);
        sqn++;
    }
}

static void mend(struct fuzz_image *image, unsigned flags)
{
    struct hf_stream_header *h = (struct hf_stream_header *)(void *)image->bytes[HEADER];
    if (flags & MEND_PREAMBLE) {
        h->pre.magic = HF_MAGIC | HF_KIND_STREAM;
        h->pre.layout_version = HF_LAYOUT_VERSION;
        h->pre.struct_hash = hf_struct_hash(HF_KIND_STREAM);
        h->pre.page_size = h->pre.header_bytes = HEADER_BYTES;
        h->pre.total_bytes = HEADER_BYTES + RING_BYTES;
        FUZZ_CHECK(hf_boot_id(h->pre.boot_id) == HF_OK);
    }
    if (flags & MEND_SIZES) {
        h->ring_bytes = RING_BYTES;
        h->fragment_bytes = h->fragment_bytes % (RING_BYTES / 4 - 64) + 32;
        h->start_position &= ~(uint64_t)(HF_GRANULE - 1);
    }
    if (flags & (MEND_TAGS | MEND_NUMBERS)) {
        mend_frames(h, image->bytes[RING], flags);
    }
    if (flags & MEND_MARKS) {
        h->marks[0] = (struct hf_mark){h->start_position, h->start_sqn};
        h->trail = h->trail > h->start_position ? h->trail : h->start_position;
    }
}

/* ---- what is done to it ---- */

static struct hf_reader *open_reader(const struct hf_map *map, unsigned flags)
{
    struct hf_reader *r = NULL;
    if (hf_reader_open(map, board, NULL, 0, &r) != HF_OK) {
        return NULL;
    }
    if (flags & FROM_OLDEST && hf_reader_seek_oldest(r) != HF_OK) {
        hf_reader_close(r);
        return NULL;
    }
    return r;
}

/* Message by message: numbers follow each other, and after at most a ring's worth of them there is an end. */
static void receive_all(const struct hf_map *map, unsigned flags)
{
    struct hf_reader *r = open_reader(map, flags);
    for (int steps = 0; r != NULL; steps++) {
        struct hf_entry entry = {0};
        uint64_t next = hf_reader_next(r), capacity = flags & SMALL ? 100 : RING_BYTES;
        int64_t status = hf_reader_receive(r, &entry, flags & SMALL ? narrow : wide, capacity);
        FUZZ_CHECK(steps < STEPS);
        if (status == HF_SMALL) {
            FUZZ_CHECK(entry.length > capacity && entry.length <= RING_BYTES / 4);
            status = hf_reader_receive(r, &entry, wide, RING_BYTES);
        }
        if (status != 1) {
            FUZZ_CHECK(status <= 0);
            break;
        }
        FUZZ_CHECK(entry.first_sequence_number == next && entry.length <= RING_BYTES / 4);
        FUZZ_CHECK(hf_reader_next(r) == entry.sequence_number + 1 && entry.sequence_number - next < HF_FRAGMENTS_MAX);
    }
    if (r != NULL) {
        hf_reader_close(r);
    }
}

/* As a store: what was copied is whole messages in order, at the positions where they were. */
static void copy_all(const struct hf_map *map, unsigned flags)
{
    static struct hf_entry entries[STEPS];
    struct hf_reader *r = open_reader(map, flags);
    uint64_t capacity = flags & SMALL ? HEADER_BYTES : RING_BYTES;
    uint8_t *block = flags & SMALL ? page : wide;
    for (int steps = 0; r != NULL; steps++) {
        uint64_t first = 0, next = 0, consumed = 0, before = hf_reader_next(r);
        int64_t bytes = hf_reader_copy(r, block, capacity, &first, &next);
        FUZZ_CHECK(steps < STEPS);
        if (bytes <= 0) {
            FUZZ_CHECK(first == next && next == hf_reader_next(r));
            break;
        }
        FUZZ_CHECK((uint64_t)bytes <= capacity && first == before && next == hf_reader_next(r));
        int64_t n = hf_scan(block, (uint64_t)bytes, entries, STEPS, &consumed);
        FUZZ_CHECK(n > 0 && consumed == (uint64_t)bytes);
        FUZZ_CHECK(entries[0].first_sequence_number == first && entries[n - 1].sequence_number + 1 == next);
    }
    if (r != NULL) {
        hf_reader_close(r);
    }
}

/* In place: no entry reaches beyond the two mappings. */
static void batch_all(const struct hf_map *map, unsigned flags)
{
    static struct hf_entry entries[ENTRIES];
    struct hf_reader *r = open_reader(map, flags);
    for (int steps = 0; r != NULL; steps++) {
        uint64_t from = 0, to = 0, next = hf_reader_next(r);
        int64_t n = hf_reader_batch(r, entries, flags & SMALL ? 3 : ENTRIES, RING_BYTES / 8, &from, &to);
        FUZZ_CHECK(steps < STEPS && n <= ENTRIES);
        if (n <= 0) {
            break;
        }
        for (int64_t i = 0; i < n; i++) {
            FUZZ_CHECK(entries[i].first_sequence_number == next && entries[i].offset >= HF_GRANULE);
            FUZZ_CHECK(entries[i].offset <= RING_BYTES && entries[i].offset + entries[i].length <= 2 * RING_BYTES);
            FUZZ_CHECK(hf_gather(hf_reader_base(r), RING_BYTES, &entries[i], wide) == entries[i].length);
            next = entries[i].sequence_number + 1;
        }
        FUZZ_CHECK(next == hf_reader_next(r) && to == hf_reader_position(r));
        int64_t status = hf_reader_unpin(r, from, UINT64_MAX);
        FUZZ_CHECK(status == HF_OK || status == HF_EVICTED);
    }
    if (r != NULL) {
        hf_reader_close(r);
    }
}

static void seek_some(const struct hf_map *map, uint64_t start)
{
    struct hf_reader *r = NULL;
    if (hf_reader_open(map, NULL, NULL, -1, &r) != HF_OK) {
        return;
    }
    const uint64_t numbers[] = {0, start, start + 3, start + 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (hf_reader_seek(r, numbers[i]) == HF_OK) {
            FUZZ_CHECK(hf_reader_next(r) <= numbers[i]);
        }
    }
    hf_reader_close(r);
}

static void look(const struct hf_map *map)
{
    static struct hf_sri_store stores[HF_STORES_MAX];
    struct hf_sri_groups groups;
    uint64_t tail = 0, next = 0, at = 0, version = 0;
    FUZZ_CHECK(hf_stream_end(map, &tail, &next) <= 0 && hf_stream_valid(map, &at) <= 0);
    int64_t count = hf_stream_sri(map, stores, &version, &groups);
    FUZZ_CHECK(count <= HF_STORES_MAX);
    for (int64_t i = 0; i < count; i++) {
        FUZZ_CHECK(memchr(stores[i].name, 0, sizeof stores[i].name) != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_image image;
    if (image.objects == 0) {
        image = prepare();
    }
    unsigned flags = fuzz_read(&image, data, size);
    mend(&image, flags);
    fuzz_only_edited(&image, RING);
    struct hf_map *map = NULL;
    if (hf_map_attach(read_fd, HF_KIND_STREAM, 0, 0, &map) != HF_OK) {
        return 0;
    }
    look(map);
    seek_some(map, ((const struct hf_stream_header *)(const void *)file)->start_sqn);
    receive_all(map, flags);
    copy_all(map, flags);
    batch_all(map, flags);
    hf_map_detach(map);
    return 0;
}

/* ---- valid ones ---- */

/* 0: a fresh ring; 1: one that has gone round, its positions near the end of 2^63; 2: large messages of several fragments. */
size_t fuzz_seed(unsigned number, uint8_t *out, size_t room)
{
    if (number > 2) {
        return 0;
    }
    struct fuzz_image image = stream_image();
    struct hf_stream_config config = kit_config();
    config.start_position = number == 1 ? UINT64_C(0x7fffffffffff0000) : 0;
    config.start_sqn = number * 1000;
    config.fragment_bytes = number == 2 ? 96 : 1024;
    struct hf_source *s = kit_source(&config, NULL);
    if (number == 1) {
        kit_run(s, 500, RING_BYTES + 4096);
        memset(kit_ring(s), 0, RING_BYTES); /* old payload of no interest: it only makes the input large */
        kit_run(s, 20, 64 * 52);
    }
    const struct hf_sri_store store = {.name = "a", .registration_id = 7};
    const struct hf_sri_groups groups = {.sizes = {1}};
    hf_source_sri(s, &store, 1, &groups);
    for (uint64_t i = 0; i < 12; i++) {
        FUZZ_CHECK(kit_send(s, i == 5 ? 300 : i * 11 % 70, i) >= 0);
    }
    memcpy(image.bytes[HEADER], kit_header(s), HEADER_BYTES);
    memcpy(image.bytes[RING], kit_ring(s), RING_BYTES);
    struct hf_stream_header *h = (struct hf_stream_header *)(void *)image.bytes[HEADER];
    h->pre.owner = h->pre.created_ns = h->pre.owner_start = h->heartbeat_ns = 0;
    h->pre.owner_pid = 0;
    for (uint32_t at = 0; at < RING_BYTES; at += HF_GRANULE) { /* clocks */
        struct hf_frame *f = (struct hf_frame *)(void *)(image.bytes[RING] + at);
        f->timestamp_ns = f->timestamp_ns > INT64_C(1) << 60 ? INT64_C(1) << 60 : f->timestamp_ns;
    }
    hf_source_destroy(s);
    size_t size = fuzz_write(&image, MEND_PREAMBLE | (number == 1 ? FROM_OLDEST : 0), out, room);
    free(image.bytes[HEADER]);
    free(image.bytes[RING]);
    return size;
}
