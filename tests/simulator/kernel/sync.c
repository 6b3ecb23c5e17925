/* sync.c: what is durable, and what a power cut leaves. See kernel.h.
 *
 * A sync of a file makes its bytes and its size durable, one of a directory the names in it; nothing else does, except that the
 * kernel may write a page back whenever it likes. A sync that fails drops what it was to write: the pages stay as they are in
 * memory, and the next sync takes them for clean. */
#include "inode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOWEST_NS = 3000000 };

int sim_sleep(uint64_t word, int64_t until_ns); /* calls.c */

static int is_set(const uint64_t *bits, uint64_t page)
{
    return bits[page / 64] >> page % 64 & 1;
}

static void set(uint64_t *bits, uint64_t page, int value)
{
    uint64_t bit = UINT64_C(1) << page % 64;
    bits[page / 64] = value ? bits[page / 64] | bit : bits[page / 64] & ~bit;
}

/* What a mapping wrote is seen by comparison. */
static int is_dirty(const struct inode *file, uint64_t page)
{
    if (is_set(file->dropped, page)) {
        return 0;
    }
    if (is_set(file->dirty, page)) {
        return 1;
    }
    uint64_t at = file_at(file) + page * PAGE;
    return file->mapped && memcmp(sim_memory + at, sim_platter + at, PAGE) != 0;
}

static void write_page(struct inode *file, uint64_t page)
{
    uint64_t at = file_at(file) + page * PAGE;
    memcpy(sim_platter + at, sim_memory + at, PAGE);
    set(file->dirty, page, 0);
}

static uint64_t pages_of(const struct inode *file)
{
    uint64_t most = file->size > file->synced_size ? file->size : file->synced_size;
    return (most + PAGE - 1) / PAGE;
}

static void sync_bytes(struct inode *file, int fails)
{
    for (uint64_t page = 0; page < pages_of(file); page++) {
        if (is_dirty(file, page)) {
            if (fails) {
                set(file->dropped, page, 1);
                set(file->dirty, page, 0);
            } else {
                write_page(file, page);
            }
        }
    }
    if (!fails) {
        file->synced_size = file->size;
    }
}

static void apply(struct names *names, const struct change *change)
{
    if (change->from.name[0] != 0) {
        name_remove(names, change->from.name);
    }
    if (change->to.name[0] != 0) {
        name_set(names, change->to.name, change->to.inode);
    }
}

static void sync_names(struct inode *directory, int fails)
{
    for (int i = 0; i < directory->change_count && !fails; i++) {
        apply(&directory->synced, &directory->changes[i]);
    }
    directory->change_count = 0; /* fails: dropped */
}

int64_t sim_sync(int fd)
{
    sim_tick();
    struct inode *file = sim_inode(fd);
    if (file == NULL) {
        return -EBADF;
    }
    if (sim_running >= 0 && sim_held == 0 && !sim_over && sim_random() % 4 == 0) { /* a disk takes its time */
        sim_sleep(0, sim_now_ns + (int64_t)(sim_random() % SLOWEST_NS));
    }
    int64_t failed = device_fails(file->device, 1);
    if (failed != 0) {
        return failed;
    }
    struct sim_device *on = &sim_devices[file->device];
    int fails = on->sync_errors > 0;
    on->syncs++;
    on->sync_errors -= fails;
    if (file->kind == SIM_DIRECTORY) {
        sync_names(file, fails);
    } else {
        sync_bytes(file, fails);
    }
    return fails ? -EIO : 0;
}

static int happens(int chance)
{
    return (int)(sim_random() % 256) < chance;
}

void sim_write_back(int device, int chance)
{
    for (uint32_t i = 1; i < sim_inode_count; i++) {
        struct inode *file = &sim_inodes[i];
        if (file->device != device || file->kind != SIM_FILE) {
            continue;
        }
        for (uint64_t page = 0; page < pages_of(file); page++) {
            if (is_dirty(file, page) && happens(chance)) {
                write_page(file, page);
            }
        }
    }
}

static void cut_file(struct inode *file, int chance)
{
    for (uint64_t page = 0; page < pages_of(file); page++) {
        uint64_t at = file_at(file) + page * PAGE;
        if (is_set(file->touched, page) || file->mapped) {
            if (is_dirty(file, page) && happens(chance)) {
                memcpy(sim_platter + at, sim_memory + at, PAGE);
            } else {
                memcpy(sim_memory + at, sim_platter + at, PAGE);
            }
        }
    }
    if (file->size != file->synced_size && happens(chance)) {
        file->synced_size = file->size;
    }
    file->size = file->synced_size;
    memset(sim_memory + file_at(file) + file->size, 0, ROOM - file->size > PAGE ? PAGE : ROOM - file->size);
    memset(file->dirty, 0, sizeof file->dirty);
    memset(file->dropped, 0, sizeof file->dropped);
    file->mapped = 0;
}

static void cut_directory(struct inode *directory, int chance)
{
    for (int i = 0; i < directory->change_count; i++) {
        if (happens(chance)) {
            apply(&directory->synced, &directory->changes[i]);
        }
    }
    directory->change_count = 0;
    free(directory->names.entries);
    directory->names = (struct names){0};
    for (int i = 0; i < directory->synced.count; i++) {
        name_set(&directory->names, directory->synced.entries[i].name, directory->synced.entries[i].inode);
    }
}

static void forget(struct inode *directory)
{
    directory->change_count = 0;
    directory->names.count = directory->synced.count = 0;
}

void sim_power_cut(int chance)
{
    for (uint32_t i = 1; i < sim_inode_count; i++) {
        struct inode *each = &sim_inodes[i];
        if (each->kind == SIM_DIRECTORY && sim_devices[each->device].memory) {
            forget(each);
        } else if (each->kind == SIM_DIRECTORY) {
            cut_directory(each, each->number == 1 ? 256 : chance);
        } else if (each->kind == SIM_FILE && !sim_devices[each->device].memory) {
            cut_file(each, chance);
        }
        each->links = each->number == 1;
    }
    for (uint32_t i = 1; i < sim_inode_count; i++) {
        const struct names *names = &sim_inodes[i].names;
        for (int j = 0; sim_inodes[i].kind == SIM_DIRECTORY && j < names->count; j++) {
            sim_inodes[names->entries[j].inode].links++;
        }
    }
}

static void copy_into(const struct inode *from, struct inode *to)
{
    for (int i = 0; i < from->names.count; i++) {
        const struct entry *entry = &from->names.entries[i];
        struct inode *source = &sim_inodes[entry->inode];
        struct inode *made = inode_new(to->device, source->kind, source->mode);
        if (source->kind == SIM_FILE) {
            memcpy(sim_bytes(made), sim_bytes(source), source->size);
            memcpy(sim_platter + file_at(made), sim_bytes(source), source->size);
            memcpy(made->touched, source->touched, sizeof made->touched);
            made->size = made->synced_size = source->size;
        }
        memcpy(made->target, source->target, sizeof made->target);
        made->links = 1;
        name_set(&to->names, entry->name, made->number);
        name_set(&to->synced, entry->name, made->number);
        if (source->kind == SIM_DIRECTORY) {
            copy_into(source, made);
        }
    }
}

int64_t sim_copy(const char *from, const char *path)
{
    struct inode *source = NULL, *to, *parent;
    char last[SIM_NAME_MAX];
    int64_t status = from[0] != 0 ? walk(-100, from, 1, &source, &parent, last) : 0;
    if (status == 0 && from[0] != 0 && source == NULL) {
        status = -ENOENT;
    }
    if (status == 0) {
        status = walk(-100, path, 1, &to, &parent, last);
    }
    if (status != 0 || to == NULL) {
        return status != 0 ? status : -ENOENT;
    }
    struct names before = to->names; /* who has them open still has them */
    free(to->synced.entries);
    to->names = to->synced = (struct names){0};
    to->change_count = 0;
    if (source != NULL) {
        copy_into(source, to);
    }
    free(before.entries);
    return 0;
}

static int file_holds(const struct inode *file, const char *bytes, uint64_t length, int durable)
{
    const uint8_t *data = (durable ? sim_platter : sim_memory) + file_at(file);
    uint64_t size = durable ? file->synced_size : file->size, pages = (size + PAGE - 1) / PAGE;
    for (uint64_t page = 0; page < pages; page++) {
        if (!file->mapped && !is_set(file->touched, page)) {
            continue;
        }
        uint64_t from = page * PAGE, to = from + PAGE + length < size ? from + PAGE + length : size;
        if (memmem(data + from, to - from, bytes, length) != NULL) {
            return 1;
        }
    }
    return 0;
}

static int tree_holds(const struct inode *at, const char *bytes, uint64_t length, int how)
{
    if (at->kind == SIM_FILE) {
        return file_holds(at, bytes, length, how & SIM_DURABLE);
    }
    if (at->kind == SIM_LINK) {
        return sim_holds(at->target, bytes, length, how);
    }
    const struct names *names = (how & SIM_DURABLE) != 0 ? &at->synced : &at->names;
    for (int i = 0; i < names->count; i++) {
        const struct inode *each = &sim_inodes[names->entries[i].inode];
        if (((how & SIM_SHALLOW) == 0 || each->kind == SIM_FILE) && tree_holds(each, bytes, length, how)) {
            return 1;
        }
    }
    return 0;
}

int sim_holds(const char *path, const char *bytes, uint64_t length, int how)
{
    struct inode *found, *parent;
    char last[SIM_NAME_MAX];
    sim_looking++;
    int holds =
        walk(-100, path, 1, &found, &parent, last) == 0 && found != NULL && tree_holds(found, bytes, length, how);
    sim_looking--;
    return holds;
}
