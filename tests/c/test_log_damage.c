/* Damage: every bit of a small log flipped, files cut at every byte, forged frames. It is noticed, costs nothing else, and never cuts. */
#include "log/head.h"
#include "log_kit.h"

static int root;

enum { FILE_BYTES = 16384, DATA = 8192, RECORDS = 64 };
enum { INDEX = 4096, INDEX_END = INDEX + sizeof(struct hf_index_entry) }; /* all entries that such a file can have */

/* A log as bytes, to be put back before each experiment. */
struct snapshot {
    uint8_t head[HF_HEAD_BYTES];
    uint8_t seg[2][FILE_BYTES];
    char name[2][32];
    int count;
    uint64_t used; /* bytes of frames in segment 0 */
    uint64_t next_sqn;
};

/* What lies where in segment 0. */
static struct record {
    uint64_t at, end;     /* offsets from the first frame */
    uint64_t first, next; /* numbers of the message; equal for a control frame */
} records[RECORDS];
static int record_count;

static void load(int dir, const char *name, uint8_t *out, size_t bytes)
{
    int f = openat(dir, name, O_RDONLY);
    CHECK(f >= 0);
    CHECK_EQ(read(f, out, bytes), bytes);
    close(f);
}

static void store(int dir, const char *name, const uint8_t *data, size_t bytes)
{
    int f = openat(dir, name, O_RDWR | O_CREAT, 0600);
    CHECK(f >= 0);
    CHECK(ftruncate(f, (off_t)bytes) == 0);
    CHECK_EQ(pwrite(f, data, bytes, 0), bytes);
    close(f);
}

/* The message frames of segment 0, one record per message; everything else is a control frame. */
static void survey(const struct snapshot *s)
{
    record_count = 0;
    for (uint64_t at = 0; at < s->used;) {
        struct hf_frame f;
        memcpy(&f, s->seg[0] + DATA + at, sizeof f);
        uint64_t room = ((uint32_t)f.commit + 31) & ~UINT64_C(31);
        int control = f.flags & HF_FRAME_CONTROL;
        if (control || (f.flags & HF_FRAME_FIRST)) {
            CHECK(record_count < RECORDS);
            records[record_count++] = (struct record){at, at + room, f.sequence_number, f.sequence_number + !control};
        } else {
            records[record_count - 1].end = at + room;
            records[record_count - 1].next = f.sequence_number + 1;
        }
        at += room;
    }
}

/* About 40 records in the first segment; middle: a second segment follows, the first is sealed. */
static void build(struct snapshot *s, int middle)
{
    int dir = kit_subdirectory(root, "build");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    static uint8_t block[KIT_BUFFER];
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    for (uint64_t sqn = 0; sqn < 36;) {
        uint16_t fragments = sqn % 9 == 5 ? 3 : 1;
        CHECK_EQ(kit_put(log, block, kit_message(block, sqn, fragments, (uint32_t)(sqn * 7 % 40), 0)), HF_OK);
        sqn += fragments;
        if (sqn % 10 == 0) {
            CHECK_EQ(hf_log_sync(log), HF_OK);
        }
    }
    CHECK_EQ(hf_log_sync(log), HF_OK);
    struct hf_log_info info = kit_info(log);
    s->used = info.end;
    s->count = 1;
    strcpy(s->name[0], "seg-0000000000000000");
    if (middle) {
        CHECK_EQ(hf_log_roll(log), HF_OK);
        kit_append(log, info.appended_sqn, 4, 20, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        snprintf(s->name[1], sizeof s->name[1], "seg-%016llx", (unsigned long long)info.end);
        s->count = 2;
    }
    s->next_sqn = kit_info(log).next_sqn;
    load(dir, "head", s->head, sizeof s->head);
    for (int i = 0; i < s->count; i++) {
        load(dir, s->name[i], s->seg[i], FILE_BYTES);
    }
    hf_log_close(log);
    close(dir);
    kit_empty(root, "build");
    survey(s);
}

static void put_back(int dir, const struct snapshot *s)
{
    store(dir, "head", s->head, sizeof s->head);
    for (int i = 0; i < s->count; i++) {
        store(dir, s->name[i], s->seg[i], FILE_BYTES);
    }
}

/* Reads all of it; [lost, lost_next) must be reported as damage and everything else must be there. */
static void expect_all_but(int dir, uint64_t next_sqn, uint64_t lost, uint64_t lost_next)
{
    static uint8_t buf[FILE_BYTES];
    struct hf_logr *r = kit_reader(dir);
    uint64_t at = 0, next;
    while (at < next_sqn) {
        int64_t n = hf_logr_read(r, at, buf, sizeof buf, &next);
        if (n == HF_DAMAGED) {
            CHECK(at >= lost && at < lost_next);
            CHECK_EQ(next, lost_next);
        } else {
            CHECK(n > 0);
            CHECK_EQ(kit_verify(buf, n, at, 0), next);
            CHECK(next <= lost || at >= lost_next || lost == lost_next);
        }
        CHECK(next > at);
        at = next;
    }
    CHECK_EQ(at, next_sqn);
    if (lost < lost_next && lost < next_sqn) { /* the same for who asks for it first */
        hf_logr_close(r);
        r = kit_reader(dir);
        CHECK_EQ(hf_logr_read(r, lost_next - 1, buf, sizeof buf, &next), HF_DAMAGED);
        CHECK_EQ(next, lost_next);
    }
    hf_logr_close(r);
}

static void poke(int dir, const char *name, uint64_t offset, uint8_t byte)
{
    int f = openat(dir, name, O_RDWR);
    CHECK_EQ(pwrite(f, &byte, 1, (off_t)offset), 1);
    close(f);
}

/* The flip is seen by check, by readers and by open, which writes. */
static void one_flip(int dir, const struct snapshot *s, uint64_t offset, int bit, uint64_t lost, uint64_t lost_next)
{
    poke(dir, s->name[0], offset, (uint8_t)(s->seg[0][offset] ^ (1 << bit)));
    struct hf_finding found[4];
    struct hf_check_summary sum;
    int64_t n = hf_log_check(dir, found, 4, &sum);
    CHECK(n >= 1 && n <= 2);
    for (int64_t i = 0; i < n; i++) {
        CHECK(found[i].first_sqn == found[i].next_sqn ||
              (found[i].first_sqn == lost && found[i].next_sqn == lost_next));
        CHECK(offset >= DATA || found[i].kind == HF_FOUND_HEADER);
    }
    expect_all_but(dir, s->next_sqn, lost, lost_next);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    struct hf_log_info info = kit_info(log);
    CHECK_EQ(info.next_sqn, s->next_sqn);
    CHECK_EQ(info.cut_bytes, 0);
    CHECK_EQ(info.damaged, offset >= DATA && s->count == 1);
    hf_log_close(log);
    expect_all_but(dir, s->next_sqn, lost, lost_next);
    put_back(dir, s);
}

/* All eight bits; one under the thread sanitizer, which has nothing to find here and takes eight times as long. */
static void flip_byte(int dir, const struct snapshot *s, uint64_t offset, uint64_t lost, uint64_t lost_next)
{
#if defined(__SANITIZE_THREAD__)
    one_flip(dir, s, offset, (int)(offset % 8), lost, lost_next);
#else
    for (int bit = 0; bit < 8; bit++) {
        one_flip(dir, s, offset, bit, lost, lost_next);
    }
#endif
}

static void flip_every_bit(int middle)
{
    static struct snapshot s;
    build(&s, middle);
    int dir = kit_subdirectory(root, "flip");
    put_back(dir, &s);
    for (int i = 0; i < record_count; i++) {
        for (uint64_t at = records[i].at; at < records[i].end; at++) {
            flip_byte(dir, &s, DATA + at, records[i].first, records[i].next);
        }
    }
    for (uint64_t at = 0; at < DATA; at++) {
        if (middle || at < INDEX || at >= INDEX_END) {
            flip_byte(dir, &s, at, 0, 0);
        }
    }
    close(dir);
    kit_empty(root, "flip");
}

static void every_flipped_bit_of_the_last_segment_costs_one_record_at_most(void)
{
    flip_every_bit(0);
}

static void every_flipped_bit_of_a_middle_segment_costs_one_record_at_most(void)
{
    flip_every_bit(1);
}

static void a_flipped_bit_in_the_head_costs_nothing(void)
{
    static struct snapshot s;
    build(&s, 1);
    int dir = kit_subdirectory(root, "head");
    for (uint64_t at = 0; at < HF_HEAD_BYTES; at++) {
        int written = at % HF_HEADER_PAGE < sizeof(struct hf_head) || at % 512 == 0;
        for (int bit = 0; bit < 8 && written; bit++) {
            put_back(dir, &s);
            poke(dir, "head", at, (uint8_t)(s.head[at] ^ (1 << bit)));
            static uint8_t buf[FILE_BYTES];
            struct hf_logr *r;
            uint64_t next;
            if (hf_logr_open(dir, &r) == HF_OK) { /* a reader may be told less, never something wrong */
                for (uint64_t sqn = 0; sqn < s.next_sqn; sqn += 13) {
                    int64_t n = hf_logr_read(r, sqn, buf, sizeof buf, &next);
                    CHECK(n == HF_AGAIN || n == HF_GONE || n == HF_DAMAGED || n > 0);
                }
                hf_logr_close(r);
            }
            struct hf_log *log;
            struct hf_log_config config = kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0);
            int64_t status = hf_log_open(dir, &config, &log);
            CHECK(status == HF_OK || status == HF_DAMAGED || status == HF_LAYOUT || status == HF_POISONED);
            if (status == HF_OK) { /* else: refused, and nothing was touched */
                CHECK_EQ(kit_info(log).next_sqn, s.next_sqn);
                CHECK_EQ(kit_info(log).damaged, 0);
                CHECK_EQ(kit_info(log).incarnation, 1);
                hf_log_close(log);
                expect_all_but(dir, s.next_sqn, 0, 0);
            }
        }
    }
    close(dir);
    kit_empty(root, "head");
}

/* Numbers of segment 0 that a file of `bytes` still holds. */
static uint64_t held(uint64_t bytes)
{
    uint64_t next = 0;
    for (int i = 0; i < record_count && records[i].end + DATA <= bytes; i++) {
        next = records[i].next;
    }
    return next;
}

static void one_cut(int dir, const struct snapshot *s, uint64_t bytes)
{
    put_back(dir, s);
    int f = openat(dir, s->name[0], O_RDWR);
    CHECK(ftruncate(f, (off_t)bytes) == 0);
    close(f);
    int readable = bytes >= HF_SEGMENT_COPY + 184 || bytes >= sizeof(struct hf_segment_header);
    uint64_t kept = readable ? held(bytes) : 0, lost_next = s->next_sqn - (s->count == 2 ? 4 : 0);
    struct hf_finding found[4];
    struct hf_check_summary sum;
    CHECK(hf_log_check(dir, found, 4, &sum) >= 1);
    expect_all_but(dir, s->next_sqn, kept, lost_next);
    for (int again = 0; again < 2; again++) {
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
        struct hf_log_info info = kit_info(log);
        CHECK_EQ(info.damaged, s->count == 1);
        CHECK_EQ(info.cut_bytes, 0);
        CHECK_EQ(info.next_sqn, s->next_sqn);
        hf_log_close(log);
        expect_all_but(dir, s->next_sqn, kept, lost_next);
    }
}

static void a_file_cut_at_any_byte_keeps_its_beginning_and_reports_the_rest(void)
{
    static struct snapshot s;
    for (int middle = 0; middle < 2; middle++) {
        build(&s, middle);
        int dir = kit_subdirectory(root, "cut");
        for (uint64_t bytes = 0; bytes < DATA; bytes += bytes < 300 || bytes / 300 == 7 ? 1 : 61) {
            one_cut(dir, &s, bytes);
        }
        for (uint64_t bytes = DATA; bytes < DATA + s.used; bytes++) {
            one_cut(dir, &s, bytes);
        }
        close(dir);
        kit_empty(root, "cut");
    }
}

/* ---- forgeries: the right CRC over the wrong content ---- */

static uint32_t seed_of(const struct snapshot *s)
{
    uint32_t seed = hf_crc32c(0, s->seg[0] + offsetof(struct hf_preamble, uuid), 16);
    return hf_crc32c(seed, s->seg[0] + offsetof(struct hf_preamble, incarnation), 8);
}

static void forge(int dir, const struct snapshot *s, const struct record *r, const struct hf_frame *frame,
                  const struct hf_control_body *body)
{
    uint8_t bytes[48];
    struct hf_frame f = *frame;
    memcpy(bytes, &f, 32);
    memcpy(bytes + 32, body, 16);
    f.crc = hf_crc32c(hf_crc32c(seed_of(s), bytes, 28), bytes + 32, 16);
    memcpy(bytes, &f, 32);
    put_back(dir, s);
    int fd = openat(dir, s->name[0], O_RDWR);
    CHECK_EQ(pwrite(fd, bytes, sizeof bytes, (off_t)(DATA + r->at)), sizeof bytes);
    close(fd);
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    CHECK_EQ(kit_info(log).damaged, 1);
    CHECK_EQ(kit_info(log).next_sqn, s->next_sqn);
    hf_log_close(log);
    expect_all_but(dir, s->next_sqn, r->first, r->next);
}

static void forged_lengths_numbers_and_control_frames_cost_their_own_record_only(void)
{
    static struct snapshot s;
    build(&s, 0);
    int dir = kit_subdirectory(root, "forged");
    const struct record *r = NULL;
    for (int i = 2; i < record_count - 1 && r == NULL; i++) {
        r = records[i].end - records[i].at == 64 && records[i].next == records[i].first + 1 ? &records[i] : NULL;
    }
    CHECK(r != NULL);
    const uint64_t tag = (r->at / 32 + 1) << 32;
    const struct hf_control_body none = {0, 0};
    const uint32_t lengths[] = {0, 1, 31, FILE_BYTES, 1u << 31, UINT32_MAX - 31, UINT32_MAX - 30, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        forge(dir, &s, r, &(struct hf_frame){.commit = tag | lengths[i], .sequence_number = r->first, .flags = 3},
              &none);
    }
    const uint64_t numbers[] = {0, r->first + 1, UINT64_MAX, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        forge(dir, &s, r, &(struct hf_frame){.commit = tag | 48, .sequence_number = numbers[i], .flags = 3}, &none);
    }
    const struct hf_control_body bodies[] = {
        {r->first, UINT64_MAX}, {r->first + 1, r->first}, {r->first - 1, r->first}, {0, 0}, {UINT64_MAX, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        forge(dir, &s, r,
              &(struct hf_frame){.commit = tag | 48,
                                 .sequence_number = r->first,
                                 .flags = HF_FRAME_CONTROL,
                                 .fragment = HF_CONTROL_LOST},
              &bodies[i]);
    }
    struct hf_frame f = {.commit = tag | 48, .sequence_number = r->first, .flags = HF_FRAME_CONTROL, .fragment = 77};
    forge(dir, &s, r, &f, &none);
    f.flags = 0xFFFF;
    forge(dir, &s, r, &f, &none);
    f.flags = HF_FRAME_FIRST | HF_FRAME_LAST;
    f.fragment = 1;
    forge(dir, &s, r, &f, &none);
    close(dir);
    kit_empty(root, "forged");
}

static void a_missing_segment_is_reported_and_the_rest_is_served(void)
{
    int dir = kit_subdirectory(root, "missing");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    uint64_t base[3], sqn[3];
    for (int i = 0; i < 3; i++) {
        kit_append(log, (uint64_t)i * 20, 20, 100, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
        CHECK_EQ(hf_log_roll(log), HF_OK);
        base[i] = kit_info(log).end;
        sqn[i] = kit_info(log).next_sqn;
    }
    hf_log_close(log);
    char name[32];
    snprintf(name, sizeof name, "seg-%016llx", (unsigned long long)base[0]);
    CHECK(unlinkat(dir, name, 0) == 0);
    struct hf_finding found[4];
    struct hf_check_summary sum;
    CHECK_EQ(hf_log_check(dir, found, 4, &sum), 1);
    CHECK_EQ(found[0].kind, HF_FOUND_GAP);
    CHECK_EQ(found[0].position, base[0]);
    CHECK_EQ(found[0].bytes, base[1] - base[0]);
    CHECK_EQ(found[0].first_sqn, sqn[0]);
    CHECK_EQ(found[0].next_sqn, sqn[1]);
    expect_all_but(dir, sqn[2], sqn[0], sqn[1]);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    CHECK_EQ(kit_info(log).next_sqn, sqn[2]);
    kit_append(log, sqn[2], 5, 100, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    hf_log_close(log);
    expect_all_but(dir, sqn[2] + 5, sqn[0], sqn[1]);
    close(dir);
    kit_empty(root, "missing");
}

/* With the head lost only SYNC frames know what was stable. */
static void damage_below_a_sync_frame_is_never_taken_for_a_torn_tail(void)
{
    static struct snapshot s;
    build(&s, 0);
    int dir = kit_subdirectory(root, "sync");
    for (int i = 0; i < record_count; i++) {
        put_back(dir, &s);
        CHECK(unlinkat(dir, "head", 0) == 0);
        poke(dir, s.name[0], DATA + records[i].at + 9, (uint8_t)(s.seg[0][DATA + records[i].at + 9] ^ 4));
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
        struct hf_log_info info = kit_info(log);
        uint64_t known = 0; /* what the last SYNC frame behind it vouches for */
        for (int k = i + 1; k < record_count; k++) {
            struct hf_control_body body;
            memcpy(&body, s.seg[0] + DATA + records[k].at + 32, sizeof body);
            known = records[k].first == records[k].next ? body.first : known;
        }
        int damage = records[i].at < known;
        CHECK_EQ(info.damaged, damage);
        CHECK_EQ(info.next_sqn, damage ? s.next_sqn : records[i].first);
        CHECK_EQ(info.cut_bytes != 0, !damage);
        hf_log_close(log);
        expect_all_but(dir, info.next_sqn, records[i].first, records[i].next);
    }
    close(dir);
    kit_empty(root, "sync");
}

/* After a power cut the head may be old. The proof that segment 0 was stable lies in a SYNC frame of segment 1. */
static void a_sync_frame_vouches_for_the_segments_before_its_own(void)
{
    int dir = kit_subdirectory(root, "vouch");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    kit_append(log, 0, 10, 32, 0);
    CHECK_EQ(hf_log_roll(log), HF_OK);
    for (uint64_t sqn = 10; sqn < 14; sqn++) {
        kit_append(log, sqn, 1, 32, 0);
        CHECK_EQ(hf_log_sync(log), HF_OK);
    }
    hf_log_close(log);
    CHECK(unlinkat(dir, "head", 0) == 0);
    poke(dir, "seg-0000000000000000", DATA + 64 + 3 * 64 + 40, 0xFF);
    for (int again = 0; again < 2; again++) {
        log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
        CHECK_EQ(kit_info(log).damaged, again == 0); /* then it is a matter for readers and for check */
        CHECK_EQ(kit_info(log).next_sqn, 14);
        hf_log_close(log);
        expect_all_but(dir, 14, 3, 4);
    }
    close(dir);
    kit_empty(root, "vouch");
}

static void positions_near_two_to_the_63_work(void)
{
    int dir = kit_subdirectory(root, "far");
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    hf_log_close(log);
    struct hf_head head;
    int fd = openat(dir, "head", O_RDWR);
    CHECK_EQ(pread(fd, &head, sizeof head, 0), sizeof head);
    uint64_t mask;
    memcpy(&mask, head.pre.uuid, 8);
    head.end = (UINT64_C(1) << 63) - 128;
    head.end_check = head.end ^ mask;
    CHECK_EQ(pwrite(fd, &head, sizeof head, 0), sizeof head);
    close(fd);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    CHECK_EQ(kit_info(log).damaged, 1); /* whatever was below is missing */
    kit_append(log, 0, 100, 100, 0);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    expect_all_but(dir, 100, 0, 0);
    hf_log_close(log);
    log = kit_open(dir, kit_config(HF_LEVEL_DISK, FILE_BYTES, FILE_BYTES, 0));
    CHECK_EQ(kit_info(log).next_sqn, 100);
    CHECK_EQ(kit_info(log).damaged, 0);
    expect_all_but(dir, 100, 0, 0);
    hf_log_close(log);
    close(dir);
    kit_empty(root, "far");
}

int main(void)
{
    root = kit_directory();
    RUN(every_flipped_bit_of_the_last_segment_costs_one_record_at_most);
    RUN(every_flipped_bit_of_a_middle_segment_costs_one_record_at_most);
    RUN(a_flipped_bit_in_the_head_costs_nothing);
    RUN(a_file_cut_at_any_byte_keeps_its_beginning_and_reports_the_rest);
    RUN(forged_lengths_numbers_and_control_frames_cost_their_own_record_only);
    RUN(a_missing_segment_is_reported_and_the_rest_is_served);
    RUN(damage_below_a_sync_frame_is_never_taken_for_a_torn_tail);
    RUN(a_sync_frame_vouches_for_the_segments_before_its_own);
    RUN(positions_near_two_to_the_63_work);
    return 0;
}
