/* files.c: names and bytes. See kernel.h. */
#include "inode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct inode sim_inodes[INODES];
uint32_t sim_inode_count;
uint8_t *sim_memory, *sim_platter;
int sim_arena = -1;
struct sim_device sim_devices[SIM_DEVICES];
int sim_looking;

static int root(void)
{
    return 1;
}

/* ---- names of a directory ---- */

uint32_t name_find(const struct names *names, const char *name)
{
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->entries[i].name, name) == 0) {
            return names->entries[i].inode;
        }
    }
    return 0;
}

void name_remove(struct names *names, const char *name)
{
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->entries[i].name, name) == 0) {
            memmove(&names->entries[i], &names->entries[i + 1], (size_t)(names->count - i - 1) * sizeof(struct entry));
            names->count--;
            return;
        }
    }
}

void name_set(struct names *names, const char *name, uint32_t inode)
{
    name_remove(names, name);
    if (names->count == names->room) {
        names->room = names->room == 0 ? 8 : 2 * names->room;
        names->entries = realloc(names->entries, (size_t)names->room * sizeof(struct entry));
    }
    struct entry *entry = &names->entries[names->count++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->inode = inode;
}

/* The clock of file times ticks every 4 ms. */
static int64_t file_time(void)
{
    int64_t now = sim_now_ns + sim_real_ns;
    return now - now % 4000000;
}

/* `directory` has changed: now, and on its disk when a sync says so. */
void name_changed(struct inode *directory, const char *from, const char *to, uint32_t inode)
{
    directory->modified_ns = file_time();
    if (directory->change_count == directory->change_room) {
        directory->change_room = directory->change_room == 0 ? 8 : 2 * directory->change_room;
        directory->changes = realloc(directory->changes, (size_t)directory->change_room * sizeof(struct change));
    }
    struct change *change = &directory->changes[directory->change_count++];
    memset(change, 0, sizeof *change);
    snprintf(change->from.name, SIM_NAME_MAX, "%s", from != NULL ? from : "");
    snprintf(change->to.name, SIM_NAME_MAX, "%s", to != NULL ? to : "");
    change->to.inode = inode;
}

/* ---- inodes ---- */

static void first_time(void)
{
    uint64_t all = (uint64_t)INODES * ROOM;
    sim_arena = memfd_create("simulated files", MFD_CLOEXEC);
    if (sim_arena < 0 || __real_ftruncate(sim_arena, (off_t)all) != 0) {
        abort();
    }
    sim_memory = __real_mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, sim_arena, 0);
    sim_platter = __real_mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sim_memory == MAP_FAILED || sim_platter == MAP_FAILED) {
        abort();
    }
}

void sim_files_begin(void)
{
    if (sim_arena < 0) {
        first_time();
    }
    for (uint32_t i = 0; i < sim_inode_count; i++) {
        struct inode *each = &sim_inodes[i];
        free(each->names.entries);
        free(each->synced.entries);
        free(each->changes);
        memset(each, 0, sizeof *each);
    }
    uint64_t used = (uint64_t)sim_inode_count * ROOM;
    if (used > 0) { /* all zeros again */
        __real_fallocate(sim_arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)used);
        __real_madvise(sim_platter, used, MADV_DONTNEED);
    }
    memset(sim_devices, 0, sizeof sim_devices);
    sim_inode_count = 1;
    struct inode *top = inode_new(0, SIM_DIRECTORY, 0755);
    top->links = 1;
}

struct inode *inode_new(int device, uint32_t kind, uint32_t mode)
{
    if (sim_inode_count == INODES) {
        fprintf(stderr, "more than %d files in one seed\n", INODES);
        abort();
    }
    struct inode *made = &sim_inodes[sim_inode_count];
    made->number = sim_inode_count++;
    made->kind = kind;
    made->mode = mode;
    made->device = device;
    made->modified_ns = made->born_ns = file_time();
    return made;
}

uint8_t *sim_bytes(struct inode *file)
{
    return sim_memory + file_at(file);
}

uint64_t sim_size(const struct inode *file)
{
    return file->size;
}

uint64_t sim_at(const struct inode *file)
{
    return file_at(file);
}

void sim_mapped(struct inode *file)
{
    file->mapped = 1;
}

int64_t device_fails(int device, int writes)
{
    const struct sim_device *on = &sim_devices[device];
    if (sim_over || sim_looking) {
        return sim_looking ? 0 : -EIO;
    }
    if (sim_running >= 0 && sim_processes[sim_running].hidden >> device & 1) {
        return -ENOENT;
    }
    if (on->error != 0) {
        return -on->error;
    }
    return writes && on->read_only ? -EROFS : 0;
}

/* ---- bytes ---- */

void page_written(struct inode *file, uint64_t from, uint64_t to)
{
    for (uint64_t page = from / PAGE; page * PAGE < to; page++) {
        uint64_t bit = UINT64_C(1) << page % 64;
        file->dirty[page / 64] |= bit;
        file->touched[page / 64] |= bit;
        file->dropped[page / 64] &= ~bit;
    }
    file->modified_ns = file_time();
}

void resize(struct inode *file, uint64_t size)
{
    if (size < file->size) {
        uint64_t whole = (file->size + PAGE - 1) / PAGE * PAGE;
        memset(sim_bytes(file) + size, 0, whole - size);
        page_written(file, size, whole);
    }
    file->size = size;
    file->modified_ns = file_time();
}

int64_t fits(struct inode *file, uint64_t end)
{
    struct sim_device *on = &sim_devices[file->device];
    if (on->write_errors > 0) {
        on->write_errors--;
        return -ENOSPC;
    }
    return end <= ROOM ? 0 : -ENOSPC;
}

/* ---- paths ---- */

static int64_t walk_from(struct inode *at, const char *path, int follow, int links, struct inode **found,
                         struct inode **parent, char last[SIM_NAME_MAX])
{
    if (path[0] == '/') {
        at = &sim_inodes[root()];
    }
    *parent = at;
    *found = at;
    last[0] = 0;
    while (*path == '/') {
        path++;
    }
    while (*path != 0) {
        if (at == NULL) {
            return -ENOENT;
        }
        if (at->kind != SIM_DIRECTORY) {
            return -ENOTDIR;
        }
        int64_t failed = device_fails(at->device, 0);
        if (failed != 0) {
            return failed;
        }
        size_t length = strcspn(path, "/");
        if (length >= SIM_NAME_MAX) {
            return -ENAMETOOLONG;
        }
        memcpy(last, path, length);
        last[length] = 0;
        path += length;
        while (*path == '/') {
            path++;
        }
        if (strcmp(last, ".") == 0) {
            continue;
        }
        *parent = at;
        uint32_t number = name_find(&at->names, last);
        struct inode *next = number != 0 ? &sim_inodes[number] : NULL;
        if (next != NULL && next->kind == SIM_LINK && (*path != 0 || follow)) {
            if (links == 0) {
                return -ELOOP;
            }
            char rest[2 * PATH_MAX_SIM];
            snprintf(rest, sizeof rest, "%s%s%s", next->target, *path != 0 ? "/" : "", path);
            return walk_from(at, rest, follow, links - 1, found, parent, last);
        }
        at = next;
        *found = at;
    }
    if (*found != NULL) {
        int64_t failed = device_fails((*found)->device, 0);
        if (failed != 0) {
            return failed;
        }
    }
    return 0;
}

/* found: NULL if the last name is not there; parent: the directory that it would be in. 0, or -errno. */
int64_t walk(int dir, const char *path, int follow, struct inode **found, struct inode **parent,
             char last[SIM_NAME_MAX])
{
    struct inode *at = path[0] == '/' || dir == AT_FDCWD ? &sim_inodes[root()] : sim_inode(dir);
    *found = *parent = NULL;
    return at == NULL ? -EBADF : walk_from(at, path, follow, 8, found, parent, last);
}

static void link_to(struct inode *parent, const char *name, struct inode *made)
{
    name_set(&parent->names, name, made->number);
    name_changed(parent, NULL, name, made->number);
    made->links++;
}

/* A new object under a name that is not there yet. */
static int64_t make(int dir, const char *path, uint32_t kind, uint32_t mode, struct inode **out)
{
    struct inode *found, *parent;
    char last[SIM_NAME_MAX];
    int64_t status = walk(dir, path, 0, &found, &parent, last);
    if (status == 0 && found != NULL) {
        status = -EEXIST;
    }
    if (status == 0) {
        status = device_fails(parent->device, 1);
    }
    if (status != 0) {
        return status;
    }
    *out = inode_new(parent->device, kind, mode);
    link_to(parent, last, *out);
    return 0;
}

int64_t sim_mkdirat(int dir, const char *path, uint32_t mode)
{
    struct inode *made;
    sim_tick();
    return make(dir, path, SIM_DIRECTORY, mode, &made);
}

int64_t sim_symlinkat(const char *target, int dir, const char *path)
{
    struct inode *made;
    sim_tick();
    int64_t status = make(dir, path, SIM_LINK, 0777, &made);
    if (status == 0) {
        snprintf(made->target, sizeof made->target, "%s", target);
    }
    return status;
}

int64_t sim_mount(const char *path, int device, uint32_t mode)
{
    struct inode *made, *parent;
    char last[SIM_NAME_MAX];
    int64_t status = make(AT_FDCWD, path, SIM_DIRECTORY, mode, &made);
    if (status == 0) {
        (void)walk(AT_FDCWD, path, 0, &made, &parent, last);
        made->device = device;
        parent->change_count--; /* what is mounted is always there */
        name_set(&parent->synced, last, made->number);
    }
    return status;
}

int64_t sim_readlinkat(int dir, const char *path, char *out, uint64_t room)
{
    struct inode *found, *parent;
    char last[SIM_NAME_MAX];
    sim_tick();
    int64_t status = walk(dir, path, 0, &found, &parent, last);
    if (status != 0 || found == NULL) {
        return status != 0 ? status : -ENOENT;
    }
    if (found->kind != SIM_LINK) {
        return -EINVAL;
    }
    return snprintf(out, room, "%s", found->target);
}

int64_t sim_unlinkat(int dir, const char *path, int flags)
{
    struct inode *found, *parent;
    char last[SIM_NAME_MAX];
    sim_tick();
    int64_t status = walk(dir, path, 0, &found, &parent, last);
    if (status == 0) {
        status = found == NULL ? -ENOENT : device_fails(parent->device, 1);
    }
    if (status == 0 && (flags & AT_REMOVEDIR) != 0) {
        status = found->kind != SIM_DIRECTORY ? -ENOTDIR : found->names.count > 0 ? -ENOTEMPTY : 0;
    } else if (status == 0 && found->kind == SIM_DIRECTORY) {
        status = -EISDIR;
    }
    if (status == 0) {
        name_remove(&parent->names, last);
        name_changed(parent, last, NULL, 0);
        found->links--;
    }
    return status;
}

int64_t sim_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    struct inode *old, *old_parent, *new, *new_parent;
    char old_name[SIM_NAME_MAX], new_name[SIM_NAME_MAX];
    sim_tick();
    int64_t status = walk(from_dir, from, 0, &old, &old_parent, old_name);
    if (status == 0) {
        status = old == NULL ? -ENOENT : walk(to_dir, to, 0, &new, &new_parent, new_name);
    }
    if (status == 0) {
        status = old_parent->device != new_parent->device ? -EXDEV : device_fails(old_parent->device, 1);
    }
    if (status != 0) {
        return status;
    }
    if (new != NULL) {
        new->links--;
    }
    name_remove(&old_parent->names, old_name);
    name_set(&new_parent->names, new_name, old->number);
    if (old_parent == new_parent) {
        name_changed(old_parent, old_name, new_name, old->number);
    } else {
        name_changed(new_parent, NULL, new_name, old->number);
        name_changed(old_parent, old_name, NULL, 0);
    }
    return 0;
}

static void say(const struct inode *file, struct sim_stat *out)
{
    int64_t blocks = 0;
    for (int i = 0; i < WORDS; i++) {
        blocks += __builtin_popcountll(file->touched[i]);
    }
    uint32_t kind = file->kind == SIM_DIRECTORY ? S_IFDIR : file->kind == SIM_LINK ? S_IFLNK : S_IFREG;
    *out = (struct sim_stat){.device = file->device + 1,
                             .inode = (int64_t)file->number,
                             .size = (int64_t)file->size,
                             .blocks = blocks * (PAGE / 512),
                             .links = (int64_t)file->links,
                             .mode = kind | file->mode,
                             .modified_ns = file->modified_ns,
                             .born_ns = file->born_ns};
}

int64_t sim_stat(int dir, const char *path, int follow, struct sim_stat *out)
{
    struct inode *found, *parent;
    char last[SIM_NAME_MAX];
    sim_tick();
    int64_t status = walk(dir, path, follow, &found, &parent, last);
    if (status != 0 || found == NULL) {
        return status != 0 ? status : -ENOENT;
    }
    say(found, out);
    return 0;
}

int64_t sim_fstat(int fd, struct sim_stat *out)
{
    const struct inode *file = sim_inode(fd);
    if (file == NULL) {
        return -EBADF;
    }
    say(file, out);
    return 0;
}

int64_t sim_name(int fd, int index, char *out96)
{
    const struct inode *file = sim_inode(fd);
    if (file == NULL || file->kind != SIM_DIRECTORY) {
        return file == NULL ? -EBADF : -ENOTDIR;
    }
    if (index >= file->names.count) {
        return 0;
    }
    memcpy(out96, file->names.entries[index].name, SIM_NAME_MAX);
    return 1;
}
