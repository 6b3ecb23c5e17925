/* process.c: processes, their descriptors, the clock, chance. See kernel.h. */
#include "inode.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPENED = 1 << 16, FIRST_FD = 1000000, FIRST_PID = 1000 };

struct descriptor {
    int opened; /* index, -1: closed */
    int process;
};

struct sim_process sim_processes[SIM_PROCESSES];
int sim_running = -1;
int64_t sim_now_ns, sim_real_ns, sim_budget, sim_calls;
int sim_over, sim_held;

static struct opened opened[OPENED];
static struct descriptor descriptors[OPENED];
static int opened_count, descriptor_count, process_count;
static uint64_t chance[2], digest;
static unsigned boot;

int sim_switch(int why);

void sim_tick(void)
{
    sim_calls++;
    if (sim_running >= 0 && sim_held == 0 && !sim_over && --sim_budget <= 0) {
        sim_switch(0);
    }
}

int64_t sim_look(int64_t ns)
{
    sim_tick();
    return sim_now_ns += ns;
}

uint64_t sim_turn(int process, uint64_t thread, int64_t ns, int64_t budget)
{
    digest = digest * UINT64_C(0x9e3779b97f4a7c15) + thread * 0x10001 + (uint64_t)sim_now_ns;
    sim_now_ns += ns;
    sim_budget = budget;
    sim_process_enter(process);
    return digest;
}

/* xorshift128+ */
uint64_t sim_random(void)
{
    uint64_t x = chance[0], y = chance[1];
    chance[0] = y;
    x ^= x << 23;
    chance[1] = x ^ y ^ x >> 17 ^ y >> 26;
    return chance[1] + y;
}

void sim_begin(uint64_t seed)
{
    for (int i = 0; i < process_count; i++) {
        free(sim_processes[i].self);
    }
    memset(sim_processes, 0, sizeof sim_processes);
    memset(opened, 0, (size_t)opened_count * sizeof *opened);
    opened_count = descriptor_count = process_count = 0;
    sim_running = -1;
    hf_self_enter(NULL);
    chance[0] = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    chance[1] = seed ^ UINT64_C(0xbf58476d1ce4e5b9);
    for (int i = 0; i < 16; i++) {
        (void)sim_random();
    }
    boot = 1;
    digest = 0;
    sim_now_ns = INT64_C(1000000000000);
    sim_real_ns = INT64_C(1700000000000000000);
    sim_budget = sim_calls = 0;
    sim_over = sim_held = 0;
    sim_files_begin();
    sim_locks_begin();
    sim_maps_begin();
}

int sim_process_begin(void)
{
    if (process_count == SIM_PROCESSES) {
        return -1;
    }
    struct sim_process *made = &sim_processes[process_count];
    *made = (struct sim_process){.pid = (uint32_t)(FIRST_PID + process_count),
                                 .start = (uint64_t)(sim_now_ns / 10000000),
                                 .alive = 1,
                                 .descriptors_max = OPENED,
                                 .self = hf_self_new()};
    return process_count++;
}

void sim_process_enter(int process)
{
    sim_running = process;
    hf_self_enter(process >= 0 ? sim_processes[process].self : NULL);
}

/* ---- descriptors ---- */

static struct descriptor *descriptor_of(int fd)
{
    if (fd < FIRST_FD || fd >= FIRST_FD + descriptor_count) {
        return NULL;
    }
    struct descriptor *found = &descriptors[fd - FIRST_FD];
    return found->opened >= 0 ? found : NULL;
}

struct opened *opened_as(int fd)
{
    const struct descriptor *found = descriptor_of(fd);
    return found != NULL ? &opened[found->opened] : NULL;
}

struct inode *sim_inode(int fd)
{
    const struct opened *found = opened_as(fd);
    return found != NULL ? found->inode : NULL;
}

uint64_t sim_opened(int fd)
{
    const struct descriptor *found = descriptor_of(fd);
    return found != NULL ? (uint64_t)found->opened + 1 : 0;
}

int sim_flags(int fd)
{
    const struct opened *found = opened_as(fd);
    return found != NULL ? found->flags : 0;
}

int64_t sim_device_of(int fd)
{
    const struct inode *file = sim_inode(fd);
    return file != NULL ? file->device : -EBADF;
}

static int64_t new_descriptor(int of)
{
    struct sim_process *process = sim_running >= 0 ? &sim_processes[sim_running] : NULL;
    if (process != NULL && process->descriptors >= process->descriptors_max) {
        return -EMFILE;
    }
    if (descriptor_count == OPENED) {
        fprintf(stderr, "more than %d descriptors in one seed\n", OPENED);
        abort();
    }
    descriptors[descriptor_count] = (struct descriptor){of, sim_running};
    opened[of].descriptors++;
    if (process != NULL) {
        process->descriptors++;
    }
    return FIRST_FD + descriptor_count++; /* no number is used twice: who is dead closes nobody else's */
}

static int64_t open_as(struct inode *inode, int flags, const char *text)
{
    if (opened_count == OPENED) {
        fprintf(stderr, "more than %d open files in one seed\n", OPENED);
        abort();
    }
    struct opened *made = &opened[opened_count];
    *made = (struct opened){.inode = inode, .flags = flags};
    snprintf(made->text, sizeof made->text, "%s", text);
    int64_t fd = new_descriptor(opened_count);
    if (fd >= 0) {
        opened_count++;
        if (inode != NULL) {
            inode->opened++;
        }
    }
    return fd;
}

/* The files of /proc that the core reads. */
static int64_t open_proc(const char *path)
{
    char text[128];
    unsigned pid;
    if (strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
        snprintf(text, sizeof text, "%08x-0000-4000-8000-000000000000\n", boot);
        return open_as(NULL, O_RDONLY, text);
    }
    if (sscanf(path, "/proc/%u/stat", &pid) != 1 || pid < FIRST_PID || pid >= FIRST_PID + (unsigned)process_count ||
        !sim_processes[pid - FIRST_PID].alive) {
        return -ENOENT;
    }
    const struct sim_process *process = &sim_processes[pid - FIRST_PID];
    snprintf(text, sizeof text, "%u (simulated) %c 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 %llu", pid,
             process->stopped ? 'T' : 'S', (unsigned long long)process->start);
    return open_as(NULL, O_RDONLY, text);
}

int64_t sim_openat(int dir, const char *path, int flags, uint32_t mode)
{
    struct inode *found, *parent;
    char last[SIM_NAME_MAX];
    int writes = (flags & O_ACCMODE) != O_RDONLY;
    sim_tick();
    if (sim_over) {
        return -EIO;
    }
    if (strncmp(path, "/proc/", 6) == 0) {
        return open_proc(path);
    }
    int64_t status = walk(dir, path, (flags & O_NOFOLLOW) == 0, &found, &parent, last);
    if (status == 0 && found == NULL) {
        status = (flags & O_CREAT) == 0 ? -ENOENT : device_fails(parent->device, 1);
        if (status == 0) {
            found = inode_new(parent->device, SIM_FILE, mode & 0777);
            name_set(&parent->names, last, found->number);
            name_changed(parent, NULL, last, found->number);
            found->links++;
        }
    } else if (status == 0 && (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
        status = -EEXIST;
    } else if (status == 0 && found->kind == SIM_LINK) {
        status = -ELOOP;
    } else if (status == 0 && found->kind == SIM_DIRECTORY && writes) {
        status = -EISDIR;
    } else if (status == 0 && (flags & O_DIRECTORY) != 0 && found->kind != SIM_DIRECTORY) {
        status = -ENOTDIR;
    } else if (status == 0 && writes) {
        status = device_fails(found->device, 1);
    }
    if (status != 0) {
        return status;
    }
    if ((flags & O_TRUNC) != 0 && writes) {
        resize(found, 0);
    }
    return open_as(found, flags, "");
}

int64_t sim_dup(int fd)
{
    const struct descriptor *found = descriptor_of(fd);
    return found != NULL ? new_descriptor(found->opened) : -EBADF;
}

static void close_one(struct descriptor *found)
{
    struct opened *file = &opened[found->opened];
    if (file->inode != NULL) {
        sim_drop_inode_locks(file->inode, found->process);
    }
    if (--file->descriptors == 0) {
        sim_drop_open_locks((uint64_t)found->opened + 1);
        if (file->inode != NULL) {
            file->inode->opened--;
        }
    }
    if (found->process >= 0) {
        sim_processes[found->process].descriptors--;
    }
    found->opened = -1;
}

/* Ticks not: a finalizer may call it. */
int64_t sim_close(int fd)
{
    struct descriptor *found = descriptor_of(fd);
    if (found == NULL) {
        return -EBADF;
    }
    close_one(found);
    return 0;
}

void sim_process_end(int process)
{
    for (int i = 0; i < descriptor_count; i++) {
        if (descriptors[i].opened >= 0 && descriptors[i].process == process) {
            close_one(&descriptors[i]);
        }
    }
    sim_drop_process_locks(process);
    sim_processes[process].alive = 0;
}

void sim_reboot(void)
{
    boot++;
}
