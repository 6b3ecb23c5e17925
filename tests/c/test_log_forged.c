/* Files that carry the right sums over what no store writes: headers, seals, indexes, frames, fills. Each costs what it
 * spoils and nothing else, and nobody reads beyond a file because of it. */
#include "fill_kit.h"
#include "log/frame.h"
#include "log/segment.h"

enum { DATA = 8192, COUNT = 100, IN_FIRST = 50, VICTIM = 30, ROOM = 160 };

static int dir;
static uint64_t second_base;
static char second[32];

/* 0..49 in the first segment, 50..99 in the second one; both are sealed. */
static void build_two(void)
{
    dir = kit_subdirectory(root, "two");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    kit_append(log, 0, IN_FIRST, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    second_base = kit_info(log).end;
    snprintf(second, sizeof second, "seg-%016llx", (unsigned long long)second_base);
    kit_append(log, IN_FIRST, COUNT - IN_FIRST, PAYLOAD, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    CHECK_EQ(kit_info(log).segments, 2);
    hf_log_close(log);
    hf_log_close(kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0)));
}

static void get(const char *name, uint64_t offset, void *out, size_t bytes)
{
    int f = openat(dir, name, O_RDONLY);
    CHECK_EQ(pread(f, out, bytes, (off_t)offset), bytes);
    close(f);
}

static void put(const char *name, uint64_t offset, const void *data, size_t bytes)
{
    int f = openat(dir, name, O_WRONLY);
    CHECK_EQ(pwrite(f, data, bytes, (off_t)offset), bytes);
    close(f);
}

/* Everything but [lost, behind) is read, on the way up and, each by itself, on the way down. */
static void expect_all_but(uint64_t lost, uint64_t behind)
{
    struct hf_logr *r = kit_reader(dir);
    for (uint64_t at = 0, next = 0; at < COUNT; at = next) {
        int64_t n = read_at(r, at, &next);
        if (at >= lost && at < behind) {
            CHECK_EQ(n, HF_DAMAGED);
            CHECK(next > at && next <= behind);
        } else {
            CHECK(n > 0 && (next <= lost || at >= behind));
        }
    }
    hf_logr_close(r);
    r = kit_reader(dir);
    for (uint64_t sqn = COUNT; sqn-- > 0;) {
        uint64_t next = 0;
        int64_t n = read_at(r, sqn, &next);
        CHECK_EQ(n > 0 ? HF_OK : n, sqn < lost || sqn >= behind ? HF_OK : HF_DAMAGED);
        CHECK(n > 0 || (next > sqn && next <= behind));
    }
    hf_logr_close(r);
}

/* A store that starts on it goes on behind the last number. */
static void expect_store(uint64_t damaged)
{
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    CHECK_EQ(kit_info(log).damaged, damaged);
    CHECK_EQ(kit_info(log).appended_sqn, COUNT);
    hf_log_close(log);
}

struct field {
    size_t offset, bytes;
    uint64_t value;
};
#define FIELD(type, name, value) {offsetof(struct type, name), sizeof(((struct type *)NULL)->name), value}

/* ---- segment headers ---- */

static void forge_header(const char *name, const struct field *field)
{
    struct hf_segment_header h;
    get(name, 0, &h, sizeof h);
    memcpy((uint8_t *)&h + field->offset, &field->value, field->bytes);
    h.crc = hf_crc32c(0, (const uint8_t *)&h, HF_HEADER_CRC);
    put(name, 0, &h, HF_HEADER_CRC + sizeof h.crc);
    put(name, HF_SEGMENT_COPY, &h, HF_HEADER_CRC + sizeof h.crc);
}

static void a_header_that_cannot_be_costs_its_segment(void)
{
    static const struct field fields[] = {FIELD(hf_segment_header, pre.total_bytes, SEGMENT / 2),
                                          FIELD(hf_segment_header, pre.total_bytes, HF_SEGMENT_SANE * 2),
                                          FIELD(hf_segment_header, pre.total_bytes, UINT64_MAX),
                                          FIELD(hf_segment_header, pre.header_bytes, DATA / 2),
                                          FIELD(hf_segment_header, pre.header_bytes, 0),
                                          FIELD(hf_segment_header, base_position, 16),
                                          FIELD(hf_segment_header, base_position, UINT64_MAX - 31)};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        build_two();
        forge_header(seg0, &fields[i]);
        expect_all_but(0, IN_FIRST);
        CHECK_EQ(findings(dir), 1);
        fill(dir, 1, 0, IN_FIRST);
        expect_all_but(0, 0);
        expect_store(0); /* what is stable is not walked again */
        expect_all_but(0, 0);
        done(dir, "two");
    }
}

static void a_segment_of_another_layout_is_refused_by_everyone(void)
{
    static const struct field fields[] = {FIELD(hf_segment_header, pre.layout_version, HF_LAYOUT_VERSION + 1),
                                          FIELD(hf_segment_header, pre.struct_hash, 1)};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        build_two();
        forge_header(second, &fields[i]);
        struct hf_logr *r = kit_reader(dir);
        uint64_t next;
        CHECK_EQ(read_at(r, 0, &next), HF_LAYOUT);
        CHECK_EQ(hf_fill_prune(dir), HF_LAYOUT);
        CHECK_EQ(findings(dir), HF_LAYOUT);
        struct hf_log_config config = kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0);
        struct hf_log *log;
        CHECK_EQ(hf_log_open(dir, &config, &log), HF_LAYOUT);
        hf_logr_close(r);
        done(dir, "two");
    }
}

/* A check took its finding back: to it such a file looked as if it had just come. */
static void a_segment_of_another_source_is_none_of_ours(void)
{
    build_two();
    forge_header(seg0, &(struct field)FIELD(hf_segment_header, source_uuid[5], 'X'));
    expect_all_but(0, IN_FIRST);
    CHECK_EQ(findings(dir), 1);
    done(dir, "two");
}

/* The index area lies behind the end of such a file: nobody looks there. */
static void a_file_that_ends_in_its_header_has_no_frames(void)
{
    static const int64_t ends[] = {4096, 5000, DATA - 1, DATA};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        build_two();
        int f = openat(dir, seg0, O_WRONLY);
        CHECK_EQ(ftruncate(f, ends[i]), 0);
        close(f);
        expect_all_but(0, IN_FIRST);
        CHECK(findings(dir) >= 1);
        done(dir, "two");
    }
}

static void only_names_that_the_log_makes_are_its_files(void)
{
    static const char *const names[] = {
        "seg-000000000000000",
        "seg-00000000000000zz",
        "seg-0000000000000010", /* no position */
        "seg-ffffffe3000002e0", /* what came next would wrap: a log that began there again
                                                                   could not be read */
        "seg-00000000000000000",
        "fill-zz",
        "fill-000000000000001z-0000000000000020",
        "fill-0000000000000010x0000000000000020",
        "fill-0000000000000010-000000000000002z",
        "fill-0000000000000020-0000000000000010"};
    build_two();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        close(openat(dir, names[i], O_CREAT | O_WRONLY, 0600));
    }
    expect_all_but(0, 0);
    struct hf_check_summary sum;
    CHECK_EQ(kit_findings(dir, &sum), 0);
    CHECK_EQ(sum.segments, 2);
    CHECK_EQ(sum.fills, 0);
    CHECK_EQ(hf_fill_prune(dir), 0);
    expect_store(0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        CHECK_EQ(faccessat(dir, names[i], F_OK, 0), 0); /* and nobody removes what is not his */
    }
    done(dir, "two");
}

/* ---- seals and indexes ---- */

static void forge_seal(const char *name, const struct field *field)
{
    struct hf_segment_header h;
    get(name, 0, &h, sizeof h);
    memcpy((uint8_t *)&h + field->offset, &field->value, field->bytes);
    h.seal.crc = hf_crc32c(hf_crc32c(0, h.pre.uuid, HF_UUID), (const uint8_t *)&h.seal, offsetof(struct hf_seal, crc));
    put(name, 0, &h, sizeof h);
}

static void a_seal_that_cannot_be_is_reported_and_costs_nothing(void)
{
    static const struct field fields[] = {FIELD(hf_segment_header, seal.end_position, 32),
                                          FIELD(hf_segment_header, seal.end_position, (1 << 20) + 1),
                                          FIELD(hf_segment_header, seal.end_position, UINT64_MAX - 31)};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        build_two();
        forge_seal(second, &fields[i]);
        CHECK_EQ(findings(dir), 1);
        expect_all_but(0, 0);
        expect_store(0);
        expect_all_but(0, 0);
        done(dir, "two");
    }
}

/* An index is a hint where a walk may start; where it points nowhere the walk starts at the beginning. */
static void an_index_that_points_nowhere_costs_nothing(void)
{
    static const uint64_t offsets[] = {0, DATA - 32, DATA + 16, SEGMENT, UINT64_C(1) << 40, UINT64_MAX - 31};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        build_two();
        struct hf_index_entry entry = {.sqn = 0, .offset = offsets[i]};
        put(seg0, HF_HEADER_PAGE, &entry, sizeof entry);
        uint32_t crc = hf_crc32c(0, (const uint8_t *)&entry, sizeof entry);
        forge_seal(seg0, &(struct field)FIELD(hf_segment_header, seal.index_crc, crc));
        expect_all_but(0, 0);
        done(dir, "two");
    }
}

static void an_index_of_more_entries_than_its_segment_can_have_is_none(void)
{
    static const uint32_t counts[] = {2, 256, 257, UINT32_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        build_two();
        forge_seal(seg0, &(struct field)FIELD(hf_segment_header, seal.index_count, counts[i]));
        CHECK_EQ(findings(dir), 1);
        expect_all_but(0, 0);
        done(dir, "two");
    }
}

/* ---- frames ---- */

/* In place of message `sqn` of the first segment lies this frame, of that length, its sum right. */
static void forge_frame(uint64_t sqn, struct hf_frame f, uint32_t length, struct hf_control_body body)
{
    struct hf_segment_header h;
    uint8_t bytes[ROOM] = {0};
    uint64_t at = frame_offset(dir, seg0, sqn);
    get(seg0, 0, &h, sizeof h);
    f.commit = hf_log_commit_word(at - DATA, length);
    memcpy(bytes, &f, sizeof f);
    memcpy(bytes + sizeof f, &body, sizeof body);
    uint8_t *const one[3] = {bytes, NULL, NULL};
    hf_frames_stamp(one, 1, hf_seed(h.pre.uuid, h.pre.incarnation));
    put(seg0, at, bytes, sizeof bytes);
}

#define MESSAGE(number, bits, part)                                                                                    \
    {{.sequence_number = (number), .flags = (bits), .fragment = (part)}, 32 + PAYLOAD, {0, 0}}
#define CONTROL(number, kind, length, from, to)                                                                        \
    {                                                                                                                  \
        {.sequence_number = (number), .flags = HF_FRAME_CONTROL, .fragment = (kind)}, (length),                        \
        {                                                                                                              \
            (from), (to)                                                                                               \
        }                                                                                                              \
    }

struct forgery {
    struct hf_frame frame;
    uint32_t length;
    struct hf_control_body body;
};

/* Of message `sqn`; those before it from `lost` on are lost already. */
static void expect_forgeries_refused(const struct forgery *forged, size_t count, uint64_t sqn, uint64_t lost)
{
    for (size_t i = 0; i < count; i++) {
        build_two();
        forge_frame(sqn, forged[i].frame, forged[i].length, forged[i].body);
        if (lost < sqn) {
            damage(dir, lost, sqn);
        }
        expect_all_but(lost, sqn + 1);
        struct hf_finding found[4];
        struct hf_check_summary sum;
        int64_t n = hf_log_check(dir, found, 4, &sum);
        CHECK(n == 1 || (n == 2 && lost < sqn)); /* up to the forged frame, and from it on */
        CHECK_EQ(found[0].first_sqn, lost);
        CHECK_EQ(found[n - 1].next_sqn, sqn + 1);
        fill(dir, 1, lost, sqn + 1);
        expect_all_but(0, 0);
        done(dir, "two");
    }
}

static void a_forged_frame_costs_its_own_message(void)
{
    static const struct forgery forged[] = {
        MESSAGE(VICTIM, 3, 1),
        MESSAGE(VICTIM, 3 | 8, 0),
        MESSAGE(VICTIM, HF_FRAME_LAST, 0),
        MESSAGE(VICTIM + 1, 3, 0),
        MESSAGE(UINT64_MAX, 3, 0),
        CONTROL(VICTIM, HF_CONTROL_SYNC, 52, 0, 0),
        CONTROL(VICTIM, HF_CONTROL_LOST, 32, 0, 0),
        CONTROL(VICTIM, 77, 48, 0, 0),
        CONTROL(VICTIM + 1, HF_CONTROL_SYNC, 48, 0, 0),
        CONTROL(VICTIM, HF_CONTROL_LOST, 48, VICTIM + 1, VICTIM + 1),
        CONTROL(VICTIM, HF_CONTROL_LOST, 48, VICTIM, VICTIM - 1),
        CONTROL(VICTIM, HF_CONTROL_LOST, 48, VICTIM, UINT64_MAX),
    };
    expect_forgeries_refused(forged, sizeof forged / sizeof forged[0], VICTIM, VICTIM);
}

/* Behind damage numbers may be larger than expected, but not smaller. */
static void behind_damage_a_forged_frame_costs_no_more(void)
{
    static const struct forgery forged[] = {
        MESSAGE(5, 3, 0),
        CONTROL(5, HF_CONTROL_LOST, 48, 5, 9),
        CONTROL(5, HF_CONTROL_SYNC, 48, 0, 0),
        CONTROL(VICTIM, HF_CONTROL_LOST, 48, VICTIM, UINT64_MAX),
    };
    expect_forgeries_refused(forged, sizeof forged / sizeof forged[0], VICTIM, VICTIM - 2);
}

static void a_lost_record_behind_damage_is_told_apart_from_it(void)
{
    build_two();
    struct forgery lost = CONTROL(VICTIM, HF_CONTROL_LOST, 48, VICTIM, VICTIM);
    forge_frame(VICTIM, lost.frame, lost.length, lost.body);
    damage(dir, VICTIM - 1, VICTIM);
    uint64_t next;
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(read_at(r, VICTIM - 1, &next), HF_DAMAGED);
    CHECK_EQ(next, VICTIM);
    CHECK_EQ(read_at(r, VICTIM, &next), HF_LOST);
    CHECK_EQ(next, VICTIM + 1);
    hf_logr_close(r);
    done(dir, "two");
}

static void a_control_frame_inside_a_message_costs_the_message(void)
{
    static uint8_t block[KIT_BUFFER];
    dir = kit_subdirectory(root, "two");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, SEGMENT, SEGMENT, 0));
    for (uint64_t sqn = 0; sqn < 30; sqn += 3) {
        CHECK_EQ(kit_put(log, block, kit_message(block, sqn, 3, PAYLOAD, 0)), HF_OK);
    }
    hf_log_close(log);
    forge_frame(13, (struct hf_frame){.sequence_number = 13, .flags = HF_FRAME_CONTROL, .fragment = HF_CONTROL_SYNC},
                HF_CONTROL_BYTES, (struct hf_control_body){0, 0});
    struct hf_logr *r = kit_reader(dir);
    kit_expect(r, 0, 12, 0);
    for (uint64_t sqn = 14; sqn >= 12; sqn--) {
        uint64_t next;
        CHECK_EQ(hf_logr_read(r, sqn, block, sizeof block, &next), HF_DAMAGED);
        CHECK_EQ(next, 15);
    }
    kit_expect(r, 15, 30, 0);
    hf_logr_close(r);
    CHECK_EQ(findings(dir), 1);
    done(dir, "two");
}

/* ---- fills ---- */

static void forge_fill(const char *name, const struct field *field)
{
    uint8_t page[HF_HEADER_PAGE];
    get(name, 0, page, sizeof page);
    memcpy(page + field->offset, &field->value, field->bytes);
    memset(page + offsetof(struct hf_fill_header, crc), 0, sizeof(uint32_t));
    uint32_t crc = hf_crc32c(0, page, sizeof page);
    memcpy(page + offsetof(struct hf_fill_header, crc), &crc, sizeof crc);
    put(name, 0, page, sizeof page);
}

static void a_fill_whose_header_cannot_be_is_not_read_and_goes(void)
{
    static const struct field fields[] = {FIELD(hf_fill_header, pre.layout_version, HF_LAYOUT_VERSION + 1),
                                          FIELD(hf_fill_header, pre.struct_hash, 1),
                                          FIELD(hf_fill_header, pre.header_bytes, DATA),
                                          FIELD(hf_fill_header, next_sqn, VICTIM + 2),
                                          FIELD(hf_fill_header, end_position, 0),
                                          FIELD(hf_fill_header, end_position, ROOM - 16),
                                          FIELD(hf_fill_header, end_position, ROOM + 32),
                                          FIELD(hf_fill_header, end_position, HF_SEGMENT_SANE + 32)};
    char name[64];
    snprintf(name, sizeof name, "fill-%016x-%016x", VICTIM, VICTIM + 1);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        build_two();
        damage(dir, VICTIM, VICTIM + 1);
        fill(dir, 1, VICTIM, VICTIM + 1);
        expect_all_but(0, 0);
        forge_fill(name, &fields[i]);
        expect_all_but(VICTIM, VICTIM + 1);
        CHECK_EQ(findings(dir), 2);           /* the segment is damaged, and so is the fill */
        CHECK_EQ(hf_fill_prune(dir), i >= 2); /* what another version wrote is not ours to remove */
        fill(dir, 1, VICTIM, VICTIM + 1);
        expect_all_but(0, 0);
        done(dir, "two");
    }
}

int main(void)
{
    root = kit_directory();
    RUN(a_header_that_cannot_be_costs_its_segment);
    RUN(a_segment_of_another_layout_is_refused_by_everyone);
    RUN(a_segment_of_another_source_is_none_of_ours);
    RUN(a_file_that_ends_in_its_header_has_no_frames);
    RUN(only_names_that_the_log_makes_are_its_files);
    RUN(a_seal_that_cannot_be_is_reported_and_costs_nothing);
    RUN(an_index_that_points_nowhere_costs_nothing);
    RUN(an_index_of_more_entries_than_its_segment_can_have_is_none);
    RUN(a_forged_frame_costs_its_own_message);
    RUN(behind_damage_a_forged_frame_costs_no_more);
    RUN(a_lost_record_behind_damage_is_told_apart_from_it);
    RUN(a_control_frame_inside_a_message_costs_the_message);
    RUN(a_fill_whose_header_cannot_be_is_not_read_and_goes);
    return 0;
}
