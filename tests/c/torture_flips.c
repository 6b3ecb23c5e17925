/* torture_flips.c [all]: bits of a full segment of 64 KiB flip, one at a time; with `all`, every one of them. Check tells each
 * flip, it costs the record that it lies in and no other, and a reader is never given the bit.
 *
 * The planted bug is a checksum that fits whatever the payload has become: then check says nothing, and readers are given the bit. */
#include "log/frame.h"
#include "log_kit.h"

enum { FILE_BYTES = 65536, DATA = 8192, GRANULES = (FILE_BYTES - DATA) / HF_GRANULE, PAYLOAD = 100, READ_EVERY = 41 };

static int root;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static uint64_t step = 1999; /* bits from one flip to the next */
#else
static uint64_t step = 211;
#endif
static uint64_t flips, read_back;
static uint64_t given; /* readings that had the record with the bit in it */
static uint64_t planted, caught;

/* The numbers that the record at each granule of the data has; a control frame has none: first = next. */
struct numbers {
    uint64_t first, next;
};

static struct numbers at_granule[GRANULES];
static uint64_t used; /* bytes of frames */
static uint8_t *segment;

static const char name[] = "seg-0000000000000000";

static void survey(void)
{
    uint64_t at = 0, last = 0;
    while (at < used) {
        struct hf_frame f;
        memcpy(&f, segment + DATA + at, sizeof f);
        uint64_t room = ((uint32_t)f.commit + 31) & ~UINT64_C(31), control = (f.flags & HF_FRAME_CONTROL) != 0;
        CHECK(room > 0 && at + room <= used);
        last = control ? last : f.sequence_number + 1;
        for (uint64_t g = at / HF_GRANULE; g < (at + room) / HF_GRANULE; g++) {
            at_granule[g] = control ? (struct numbers){0, 0} : (struct numbers){last - 1, last};
        }
        at += room;
    }
}

/* A sealed segment, full except for less than a record, and one behind it. Returns the number behind the last message. */
static uint64_t build(int dir)
{
    static uint8_t block[KIT_BUFFER];
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    uint64_t next = 0;
    while (kit_info(log).segments < 2) {
        uint64_t bytes = kit_block(block, next, 1, PAYLOAD, 0), before = kit_info(log).segments;
        CHECK_EQ(hf_log_sync(log), HF_OK);
        used = before == 1 ? kit_info(log).end : used;
        CHECK_EQ(kit_put(log, block, bytes), HF_OK);
        next++;
    }
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_log_close(log);
    int fd = openat(dir, name, O_RDWR);
    segment = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(segment != MAP_FAILED);
    close(fd);
    survey();
    return next;
}

/* Everything but what the record at `lost` has is read, as it was; where that is read, too, it is counted. */
static void expect_all_but(int dir, uint64_t next, struct numbers lost)
{
    static uint8_t buf[KIT_BUFFER];
    struct hf_logr *r = kit_reader(dir);
    for (uint64_t at = 0, behind; at < next; at = behind) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &behind);
        if (n == HF_DAMAGED) {
            CHECK_EQ(at, lost.first);
            CHECK_EQ(behind, lost.next);
        } else {
            CHECK(n > 0);
            int hit = behind > lost.first && at < lost.next;
            given += hit != 0;
            CHECK(hit || kit_verify(buf, n, at, 0) == behind);
        }
    }
    hf_logr_close(r);
}

/* Whether check tells that this record is hurt, and of nothing else. `reads`: a reader looks, too. */
static int is_told(int dir, uint64_t next, struct numbers lost, int reads)
{
    struct hf_finding found[4];
    struct hf_check_summary sum;
    int64_t n = hf_log_check(dir, found, 4, &sum);
    CHECK(n >= 0 && n <= 2);
    for (int64_t i = 0; i < n; i++) {
        CHECK(found[i].first_sqn == found[i].next_sqn ||
              (found[i].first_sqn == lost.first && found[i].next_sqn == lost.next));
    }
    if (reads) {
        expect_all_but(dir, next, lost);
    }
    return n > 0;
}

static void flip(uint64_t bit)
{
    segment[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

/* The same judge must report each: nothing is told, and the reader is given the bit. */
static void plant_in_every_record(int dir, uint64_t next)
{
    struct hf_segment_header h;
    memcpy(&h, segment, sizeof h);
    for (uint64_t at = 0; at < used; at += HF_GRANULE) {
        struct numbers lost = at_granule[at / HF_GRANULE];
        if (lost.first == lost.next || (at > 0 && at_granule[at / HF_GRANULE - 1].next == lost.next)) {
            continue;
        }
        struct hf_frame kept;
        memcpy(&kept, segment + DATA + at, sizeof kept);
        uint64_t bit = (DATA + at + sizeof kept + planted % PAYLOAD) * 8 + planted % 8, before = given;
        flip(bit);
        hf_frames_stamp((uint8_t *const[3]){segment + DATA + at}, 1, hf_seed(h.pre.uuid, h.pre.incarnation));
        caught += !is_told(dir, next, lost, 1) && given > before;
        planted++;
        flip(bit);
        memcpy(segment + DATA + at, &kept, sizeof kept);
    }
    CHECK(planted > 0);
    CHECK_EQ(caught, planted);
}

static void every_flip_is_told_and_costs_one_record(void)
{
    int dir = kit_subdirectory(root, "flips");
    uint64_t next = build(dir);
    CHECK(FILE_BYTES - DATA - used < 2 * (32 + PAYLOAD + 32));
    for (uint64_t bit = 0; bit < (DATA + used) * 8; bit += step) {
        struct numbers lost = bit / 8 < DATA ? (struct numbers){0, 0} : at_granule[(bit / 8 - DATA) / HF_GRANULE];
        int reads = ++flips % READ_EVERY == 0, told;
        flip(bit);
        told = is_told(dir, next, lost, reads);
        flip(bit);
        read_back += reads != 0;
        if (!told) {
            fprintf(stderr, "bit %llu of byte %llu\n", (unsigned long long)bit % 8, (unsigned long long)bit / 8);
            CHECK(!"a flip that nobody notices");
        }
    }
    CHECK(read_back > 0);
    CHECK_EQ(given, 0);
    plant_in_every_record(dir, next);
    CHECK(munmap(segment, FILE_BYTES) == 0);
    close(dir);
    kit_empty(root, "flips");
}

int main(int argc, char **argv)
{
    root = kit_directory();
    if (argc > 1 && strcmp(argv[1], "all") == 0) { /* takes as long as it takes */
        step = 1;
        every_flip_is_told_and_costs_one_record();
    } else {
        RUN(every_flip_is_told_and_costs_one_record);
    }
    printf("{\"evidence\": \"bit_flips\", \"counts\": {\"flips\": %llu, \"read_back\": %llu}, \"findings\": 0, "
           "\"planted\": [%llu, %llu]}\n",
           (unsigned long long)flips, (unsigned long long)read_back, (unsigned long long)caught,
           (unsigned long long)planted);
    return 0;
}
