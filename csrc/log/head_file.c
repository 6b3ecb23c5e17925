/* head_file.c: the file `head` of a log as a whole: made, made anew, and made small for a log at rest. See head.c.
 *
 * A head of layout version 1 is made anew by the store that opens it, and so is one that an earlier life may have lost on its
 * way to the disk (poison.c). The new file has what the old one says: nothing is decided here. What a crash leaves:
 *   1. `head-new` is written             -> the old head; the next open writes it again
 *   2. it is synced and renamed          -> one of the two heads, after a power cut too
 *   3. the directory is synced           -> the new head
 * Readers that have the old file open see that it has no name any more, and open the new one (refresh.c).
 *
 * A log at rest (rest.c) has a head of layout version 1: one page instead of three. One place for the table is enough in a
 * file that nobody writes; the next open makes it anew. It takes the same steps, without the last one: both files say the
 * same, so either may be there after a power cut. */
#include "log/head.h"
#include "base/crc32c.h"
#include "base/failpoint.h"
#include "base/sync.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

union head_file {
    struct hf_head head;
    uint8_t bytes[HF_HEAD_BYTES];
};

static void put_table(union head_file *file, const struct hf_begins *begins)
{
    struct hf_begin_table t;
    hf_head_begins_page(begins->generation, begins->at, begins->count, &t);
    memcpy(file->bytes + HF_HEADER_PAGE * (1 + begins->generation % 2), &t, sizeof t);
}

/* A head of one page, as layout version 1 has it. */
union head_page {
    struct hf_head_v1 head;
    uint8_t bytes[HF_HEADER_PAGE];
};

/* Whole, on disk and named; *out is open then, and stays as it is where there is no new file. The name may not be on disk.
 * HF_POISONED: its sync failed, and it is gone. */
static int64_t write_file(int dir, const void *file, uint64_t bytes, int *out)
{
    int fd = openat(dir, "head-new", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return hf_errno();
    }
    int64_t status = HF_FAIL_STATUS("log.fallocate");
    if (status == HF_OK) { /* mapped stores must never meet a full disk */
        int failed = posix_fallocate(fd, 0, (off_t)bytes);
        status = failed != 0 ? HF_ERRNO - failed : HF_OK;
    }
    if (status == HF_OK) {
        status = hf_write_all(fd, file, bytes, 0);
    }
    HF_FAIL("head.written");
    if (status == HF_OK) {
        status = HF_MUTANT("head.unsynced") || hf_sync(fd, HF_SYNC_DATA) == HF_OK ? HF_OK : HF_POISONED;
    }
    if (status == HF_OK && renameat(dir, "head-new", dir, "head") != 0) {
        status = hf_errno();
    }
    if (status != HF_OK) {
        unlinkat(dir, "head-new", 0);
        close(fd);
        return status;
    }
    HF_FAIL("head.renamed");
    *out = fd;
    return HF_OK;
}

/* As write_file, and its name is on disk. HF_POISONED with *out open: the directory's sync failed. */
static int64_t write_named(int dir, const union head_file *file, int *out)
{
    int64_t status = write_file(dir, file, sizeof *file, out);
    if (status == HF_OK) {
        status = hf_sync(dir, HF_SYNC_NAMES) == HF_OK ? HF_OK : HF_POISONED;
        HF_FAIL("head.synced");
    }
    return status;
}

int64_t hf_head_create(int dir, const uint8_t *uuid, int lost)
{
    union head_file file;
    const struct hf_begins none = {.generation = 1, .whole = 1};
    int fd = -1;
    memset(&file, 0, sizeof file);
    hf_fill_preamble(&file.head.pre, HF_KIND_HEAD);
    file.head.pre.header_bytes = (uint32_t)HF_HEADER_PAGE;
    file.head.pre.total_bytes = HF_HEAD_BYTES;
    memcpy(file.head.pre.uuid, uuid, HF_UUID);
    file.head.end_check = hf_head_mask(&file.head);
    file.head.oldest_position = UINT64_MAX; /* the segments know better; see retire.c */
    file.head.begin_version = none.generation + (lost && !HF_MUTANT("head.create_whole") ? 2 : 0);
    put_table(&file, &none);
    int64_t status = write_named(dir, &file, &fd);
    if (status == HF_POISONED && fd >= 0) {
        unlinkat(dir, "head", 0); /* the next one is another file */
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

int64_t hf_head_remake(int dir, const struct hf_head *old, struct hf_begins *begins)
{
    union head_file file;
    int fd = -1;
    memset(&file, 0, sizeof file);
    file.head = *old;
    file.head.pre.layout_version = hf_layout_version(HF_KIND_HEAD);
    file.head.pre.struct_hash = hf_struct_hash(HF_KIND_HEAD);
    file.head.pre.total_bytes = HF_HEAD_BYTES;
    memset(file.head._pad0, 0, sizeof file.head._pad0); /* version 1 had words here */
    memset(file.head._pad1, 0, sizeof file.head._pad1);
    begins->generation += begins->generation == 0;
    put_table(&file, begins);
    /* What is not known of the old table is not known of the new one. */
    file.head.begin_version = begins->version = begins->generation + (begins->whole ? 0 : 2);
    int64_t status = write_named(dir, &file, &fd);
    /* Nobody knows which of the two names the disk has: the next open makes a third file. */
    if (status == HF_POISONED && fd >= 0 && !HF_MUTANT("head.trust_name")) {
        const uint64_t doubt = hf_doubt_word();
        (void)hf_write_all(fd, &doubt, sizeof doubt, offsetof(struct hf_head, poisoned));
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* The words up to begin_version lie in the same places. */
static void shrink(union head_page *page, const struct hf_head *head, const struct hf_begins *begins)
{
    struct hf_head_v1 *small = &page->head;
    memset(page, 0, sizeof *page);
    memcpy(small, head, offsetof(struct hf_head_v1, begin_version));
    small->pre.layout_version = 1;
    small->pre.struct_hash = hf_head_rest_hash();
    small->pre.total_bytes = HF_HEADER_PAGE;
    memset(small->_pad0, 0, sizeof small->_pad0);
    small->begin_version = 2 * begins->generation; /* even: nobody is writing */
    small->begin_count = begins->count;
    memcpy(small->begins, begins->at, begins->count * sizeof *small->begins);
    small->begin_crc = hf_crc32c(0, (const uint8_t *)small->begins, begins->count * sizeof *small->begins);
}

int64_t hf_head_rest(int dir, int own)
{
    union head_page page;
    struct hf_head head;
    struct hf_begins begins;
    struct stat mine, named;
    int fd = -1;
    if (fstat(own, &mine) != 0 || fstatat(dir, "head", &named, AT_SYMLINK_NOFOLLOW) != 0) {
        return hf_errno();
    }
    if (mine.st_ino != named.st_ino || mine.st_dev != named.st_dev) {
        return HF_USAGE; /* another store has made this log's head anew: what that one says is not known here */
    }
    int64_t status = hf_head_read(own, &head, &begins);
    if (status != HF_OK || head.pre.layout_version == 1) {
        return status;
    }
    if (!begins.whole || head.poisoned != 0) {
        return HF_USAGE;
    }
    shrink(&page, &head, &begins);
    fd = -1;
    status = write_file(dir, &page, sizeof page, &fd);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}
