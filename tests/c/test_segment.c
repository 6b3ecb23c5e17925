/* test_segment.c: sizing, mapping and what attaching refuses. */
#include <stddef.h>
#include <sys/resource.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/map.h"
#include "base/process.h"
#include "base/status.h"
#include "check.h"

enum { RING = 1 << 16, HEADER = sizeof(struct hf_stream_header) };
static const uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static uint64_t page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static struct hf_map *made(int fd)
{
    struct hf_map *map = NULL;
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, RING, uuid, 7, &map), HF_OK);
    CHECK(map != NULL);
    return map;
}

static int64_t attach_status(int fd, uint32_t kind)
{
    struct hf_map *map = (struct hf_map *)(void *)&fd;
    int64_t status = hf_map_attach(fd, kind, 0, 1, &map);
    CHECK((status == HF_OK) == (map != NULL));
    hf_map_detach(map);
    return status;
}

static uint64_t file_bytes(int fd)
{
    struct stat file;
    CHECK_EQ(fstat(fd, &file), 0);
    return (uint64_t)file.st_size;
}

static void object_does_not_exist_until_it_is_published(void)
{
    int fd = check_memory();
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_AGAIN); /* not sized */
    struct hf_map *map = made(fd);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_AGAIN);
    hf_map_publish(map);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_OK);
    CHECK_EQ(attach_status(fd, HF_KIND_BOARD), HF_LAYOUT);
    CHECK_EQ(attach_status(fd, HF_KIND_SEGMENT), HF_USAGE);
    hf_map_detach(map);
    close(fd);
}

static void preamble_names_object_and_creator(void)
{
    int fd = check_memory();
    struct hf_map *map = made(fd);
    hf_map_publish(map);
    const struct hf_stream_header *header = (const struct hf_stream_header *)map->base;
    uint8_t boot[16];
    CHECK_EQ(hf_boot_id(boot), HF_OK);
    CHECK_EQ(header->pre.magic, HF_MAGIC | HF_KIND_STREAM);
    CHECK_EQ(memcmp((const char *)map->base + 1, "FHDFST1", 7), 0);
    CHECK_EQ(header->pre.struct_hash, hf_struct_hash(HF_KIND_STREAM));
    CHECK_EQ(header->pre.header_bytes, page());
    CHECK_EQ(header->pre.total_bytes, page() + RING);
    CHECK_EQ(header->pre.total_bytes, file_bytes(fd));
    CHECK_EQ(header->pre.incarnation, 7);
    CHECK_EQ(header->pre.owner, hf_process_token());
    CHECK_EQ(header->pre.owner_pid, getpid());
    CHECK_EQ(header->pre.owner_start, hf_process_start((uint32_t)getpid()));
    CHECK_EQ(memcmp(header->pre.uuid, uuid, 16), 0);
    CHECK_EQ(memcmp(header->pre.boot_id, boot, 16), 0);
    CHECK_EQ(header->ring_bytes, RING);
    hf_map_detach(map);
    close(fd);
}

static void ring_is_mapped_twice_back_to_back(void)
{
    int fd = check_memory();
    struct hf_map *map = made(fd), *reader = NULL;
    hf_map_publish(map);
    CHECK_EQ(hf_map_attach(fd, HF_KIND_STREAM, 0, 1, &reader), HF_OK);
    CHECK_EQ(reader->ring_bytes, RING);
    CHECK_EQ(reader->mapped_bytes, page() + 2 * RING);
    uint8_t *ring = map->base + page();
    memcpy(ring + RING - 4, "abcdefgh", 8); /* over the seam */
    CHECK_EQ(memcmp(ring, "efgh", 4), 0);
    CHECK_EQ(memcmp(reader->base + page() + RING - 4, "abcdefgh", 8), 0);
    ring[2 * RING - 1] = 'z';
    CHECK_EQ(reader->base[page() + RING - 1], 'z');
    hf_map_detach(reader);
    hf_map_detach(map);
    close(fd);
}

static void board_and_bells_have_no_ring(void)
{
    static const struct {
        uint32_t kind;
        uint64_t bytes;
    } kinds[] = {{HF_KIND_BOARD, sizeof(struct hf_board)}, {HF_KIND_BELLS, sizeof(struct hf_bells)}};
    for (int i = 0; i < 2; i++) {
        int fd = check_memory();
        struct hf_map *map = NULL, *other = NULL;
        CHECK_EQ(hf_map_create(fd, kinds[i].kind, kinds[i].bytes, 0, uuid, 0, &map), HF_OK);
        hf_map_publish(map);
        CHECK_EQ(hf_map_attach(fd, kinds[i].kind, 1, 1, &other), HF_OK);
        CHECK_EQ(other->ring_bytes, 0);
        map->base[kinds[i].bytes - 1] = 9;
        CHECK_EQ(other->base[kinds[i].bytes - 1], 9);
        hf_map_detach(map);
        hf_map_detach(other);
        close(fd);
    }
}

static void write_there(void *argument)
{
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would only report it */
    *(volatile uint8_t *)argument = 1;
}

static void attach_and_write(void *argument)
{
    struct hf_map *map = NULL;
    CHECK_EQ(hf_map_attach(*(int *)argument, HF_KIND_STREAM, 0, 0, &map), HF_OK);
    write_there(map->base + page());
}

static void read_only_mapping_cannot_be_written(void)
{
    int fd = check_memory();
    struct hf_map *map = made(fd);
    hf_map_publish(map);
    check_killed(check_fork(attach_and_write, &fd), SIGSEGV);
    hf_map_detach(map);
    close(fd);
}

/* Attaches after `bytes` at `offset` were changed; then mends them. */
static int64_t attach_with(int fd, size_t offset, const void *value, size_t bytes)
{
    uint8_t old[64];
    CHECK_EQ(pread(fd, old, bytes, (off_t)offset), bytes);
    CHECK_EQ(pwrite(fd, value, bytes, (off_t)offset), bytes);
    int64_t status = attach_status(fd, HF_KIND_STREAM);
    CHECK_EQ(pwrite(fd, old, bytes, (off_t)offset), bytes);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_OK);
    return status;
}

#define ATTACH_WITH(field, type, value)                                                                                \
    attach_with(fd, offsetof(struct hf_stream_header, field), &(type){value}, sizeof(type))

static void attach_refuses_every_wrong_field(void)
{
    int fd = check_memory();
    struct hf_map *map = made(fd);
    hf_map_publish(map);
    CHECK_EQ(ATTACH_WITH(pre.magic, uint64_t, 1), HF_DAMAGED);
    CHECK_EQ(ATTACH_WITH(pre.magic, uint64_t, HF_MAGIC | HF_KIND_BELLS), HF_LAYOUT);
    CHECK_EQ(ATTACH_WITH(pre.layout_version, uint32_t, HF_LAYOUT_VERSION + 1), HF_LAYOUT);
    CHECK_EQ(ATTACH_WITH(pre.struct_hash, uint32_t, ~hf_struct_hash(HF_KIND_STREAM)), HF_LAYOUT);
    CHECK_EQ(ATTACH_WITH(pre.page_size, uint32_t, (uint32_t)page() * 4), HF_LAYOUT);
    const uint32_t headers[] = {0, 1, (uint32_t)page() * 2, (uint32_t)page() + 32, UINT32_MAX, UINT32_C(1) << 31};
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        CHECK_EQ(ATTACH_WITH(pre.header_bytes, uint32_t, headers[i]), HF_DAMAGED);
    }
    const uint64_t totals[] = {0, RING, page() + RING + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        CHECK_EQ(ATTACH_WITH(pre.total_bytes, uint64_t, totals[i]), HF_DAMAGED);
    }
    const uint64_t rings[] = {0, 32, RING - 32, RING / 2, RING * 2, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
        CHECK_EQ(ATTACH_WITH(ring_bytes, uint64_t, rings[i]), HF_DAMAGED);
    }
    uint8_t boot[16] = {0};
    CHECK_EQ(attach_with(fd, offsetof(struct hf_preamble, boot_id), boot, 16), HF_GONE);
    CHECK_EQ(ftruncate(fd, (off_t)(page() * 2 + RING)), 0);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_DAMAGED);
    CHECK_EQ(ftruncate(fd, 100), 0);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_DAMAGED);
    hf_map_detach(map);
    close(fd);
}

static void attach_as_another_user(void *argument)
{
    CHECK_EQ(seteuid(54321), 0);
    CHECK_EQ(attach_status(*(int *)argument, HF_KIND_STREAM), HF_FOREIGN);
}

static void attach_refuses_what_others_could_have_made(void)
{
    int fd = check_memory();
    struct hf_map *map = made(fd);
    hf_map_publish(map);
    const mode_t modes[] = {0640, 0604, 0620, 0777};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        CHECK_EQ(fchmod(fd, modes[i]), 0);
        CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_FOREIGN);
    }
    CHECK_EQ(fchmod(fd, 0600), 0);
    int directory = open("/", O_RDONLY);
    CHECK_EQ(attach_status(directory, HF_KIND_STREAM), HF_FOREIGN);
    close(directory);
    CHECK_EQ(attach_status(-1, HF_KIND_STREAM), HF_ERRNO - EBADF);
    if (geteuid() == 0) {
        check_exited(check_fork(attach_as_another_user, &fd));
        CHECK_EQ(fchown(fd, 54321, (gid_t)-1), 0); /* root may map it, and its owner may truncate it under root */
        CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_FOREIGN);
        CHECK_EQ(fchown(fd, 0, (gid_t)-1), 0);
        CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_OK);
    } else {
        printf("    (not root: another user's object is not tried)\n");
    }
    hf_map_detach(map);
    close(fd);
}

static void attach_refuses_an_object_with_two_names(void)
{
    int directory = check_directory();
    int fd = openat(directory, "one", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct hf_map *map = made(fd);
    hf_map_publish(map);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_OK);
    CHECK_EQ(linkat(directory, "one", directory, "two", 0), 0);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_FOREIGN);
    CHECK_EQ(unlinkat(directory, "one", 0), 0);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_OK);
    CHECK_EQ(unlinkat(directory, "two", 0), 0); /* removed between opening and mapping: it is still ours */
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_OK);
    hf_map_detach(map);
    close(fd);
    close(directory);
}

static void create_refuses_what_it_cannot_map(void)
{
    int fd = check_memory();
    struct hf_map *map = NULL;
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, RING - 1, uuid, 1, &map), HF_USAGE);
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, RING * 3, uuid, 1, &map), HF_USAGE);
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, 0, uuid, 1, &map), HF_USAGE);
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, 128, RING, uuid, 1, &map), HF_USAGE);
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, UINT64_MAX, RING, uuid, 1, &map), HF_USAGE);
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, UINT64_C(1) << 63, uuid, 1, &map), HF_TOO_LARGE);
    CHECK_EQ(hf_map_create(fd, HF_KIND_BOARD, sizeof(struct hf_board), RING, uuid, 1, &map), HF_USAGE);
    CHECK_EQ(hf_map_create(fd, HF_KIND_HEAD, sizeof(struct hf_head), 0, uuid, 1, &map), HF_USAGE);
    CHECK(map == NULL);
    CHECK_EQ(file_bytes(fd), 0);
    map = made(fd);
    struct hf_map *second = NULL;
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, RING, uuid, 1, &second), HF_EXISTS);
    CHECK(second == NULL);
    hf_map_detach(map);
    close(fd);
}

static void memory_that_runs_out_is_an_error_and_leaves_nothing(void)
{
    int fd = check_memory();
    struct hf_map *map = NULL;
    uint64_t ring = UINT64_C(32) << 20; /* three steps of sizing */
    hf_failpoint_arm("segment.allocate=errno:ENOSPC@3");
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, ring, uuid, 1, &map), HF_ERRNO - ENOSPC);
    CHECK(map == NULL);
    CHECK_EQ(file_bytes(fd), 0);
    hf_failpoint_arm("segment.populate=errno:ENOMEM@1");
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, RING, uuid, 1, &map), HF_ERRNO - ENOMEM);
    CHECK(map == NULL);
    CHECK_EQ(file_bytes(fd), 0);
    hf_failpoint_arm("segment.allocate=errno:EINTR@1;segment.populate=errno:EINTR@1");
    map = made(fd); /* interrupted once, then done */
    CHECK_EQ(file_bytes(fd), page() + RING);
    hf_failpoint_arm("");
    hf_map_detach(map);
    close(fd);
}

static void size_limit_of_the_kernel_is_an_error_too(void)
{
    int fd = check_memory();
    struct rlimit old, small = {1 << 20, 1 << 20};
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct hf_map *map = NULL;
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, UINT64_C(4) << 20, uuid, 1, &map), HF_ERRNO - EFBIG);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_EQ(file_bytes(fd), 0);
    close(fd);
}

/* Pages of the mapping that would fault when touched: bit 63 of a page's word tells whether it is there. */
static int absent_pages(const struct hf_map *map)
{
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    int absent = 0;
    for (uint64_t i = 0; i < map->mapped_bytes; i += page()) {
        uint64_t word;
        CHECK_EQ(pread(fd, &word, 8, (off_t)(((uintptr_t)map->base + i) / page() * 8)), 8);
        absent += word >> 63 == 0;
    }
    close(fd);
    return absent;
}

static void both_mappings_are_populated(void)
{
    int fd = check_memory();
    struct hf_map *map = NULL, *reader = NULL;
    CHECK_EQ(hf_map_create(fd, HF_KIND_STREAM, HEADER, UINT64_C(4) << 20, uuid, 1, &map), HF_OK);
    hf_map_publish(map);
    CHECK_EQ(absent_pages(map), 0);
    CHECK_EQ(hf_map_attach(fd, HF_KIND_STREAM, 0, 0, &reader), HF_OK);
    CHECK(absent_pages(reader) > 0); /* not asked for */
    hf_map_detach(reader);
    CHECK_EQ(hf_map_attach(fd, HF_KIND_STREAM, 0, 1, &reader), HF_OK);
    CHECK_EQ(absent_pages(reader), 0);
    hf_map_detach(reader);
    hf_failpoint_arm("segment.populate=errno:EINVAL"); /* an old kernel: pages are touched by hand */
    CHECK_EQ(hf_map_attach(fd, HF_KIND_STREAM, 0, 1, &reader), HF_OK);
    CHECK_EQ(absent_pages(reader), 0);
    hf_map_detach(reader);
    memset(map->base + page(), 0xa5, map->ring_bytes);
    CHECK_EQ(hf_map_attach(fd, HF_KIND_STREAM, 1, 1, &reader), HF_OK);
    CHECK_EQ(absent_pages(reader), 0);
    for (uint64_t i = 0; i < map->ring_bytes; i++) {
        CHECK_EQ(map->base[page() + i], 0xa5);
    }
    hf_failpoint_arm("");
    hf_map_detach(reader);
    hf_map_detach(map);
    close(fd);
}

/* In the child the range is free, something else is put there, and detaching must leave it alone. */
static void detach_in_child(void *argument)
{
    struct hf_map *map = argument;
    uint8_t *there =
        mmap(map->base, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(there == map->base);
    *there = 5;
    hf_map_detach(map);
    CHECK_EQ(*there, 5);
}

static void forked_child_has_no_mapping_and_unmaps_nothing(void)
{
    int fd = check_memory();
    struct hf_map *map = made(fd);
    check_exited(check_fork(detach_in_child, map));
    CHECK_EQ(map->base[page()], 0);
    hf_map_detach(map);
    hf_map_detach(NULL);
    close(fd);
}

static void die_before_publishing(void *argument)
{
    hf_failpoint_arm("segment.publish=kill@1");
    hf_map_publish(made(*(int *)argument));
}

static void creator_that_dies_before_publishing_leaves_nothing_that_attaches(void)
{
    int fd = check_memory();
    check_killed(check_fork(die_before_publishing, &fd), SIGKILL);
    CHECK_EQ(attach_status(fd, HF_KIND_STREAM), HF_AGAIN);
    close(fd);
}

int main(void)
{
    RUN(object_does_not_exist_until_it_is_published);
    RUN(preamble_names_object_and_creator);
    RUN(ring_is_mapped_twice_back_to_back);
    RUN(board_and_bells_have_no_ring);
    RUN(read_only_mapping_cannot_be_written);
    RUN(attach_refuses_every_wrong_field);
    RUN(attach_refuses_what_others_could_have_made);
    RUN(attach_refuses_an_object_with_two_names);
    RUN(create_refuses_what_it_cannot_map);
    RUN(memory_that_runs_out_is_an_error_and_leaves_nothing);
    RUN(size_limit_of_the_kernel_is_an_error_too);
    RUN(both_mappings_are_populated);
    RUN(forked_child_has_no_mapping_and_unmaps_nothing);
    RUN(creator_that_dies_before_publishing_leaves_nothing_that_attaches);
    return 0;
}
