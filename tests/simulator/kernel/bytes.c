/* bytes.c: reading and writing by descriptor. See kernel.h. */
#include "inode.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static int64_t usable(int fd, int writes, struct inode **out)
{
    struct inode *file = sim_inode(fd);
    sim_tick();
    if (file == NULL || (writes && (sim_flags(fd) & O_ACCMODE) == O_RDONLY)) {
        return -EBADF;
    }
    *out = file;
    return file->kind != SIM_FILE ? -EISDIR : device_fails(file->device, writes);
}

int64_t sim_pread(int fd, void *out, uint64_t bytes, int64_t at)
{
    struct inode *file;
    int64_t status = usable(fd, 0, &file);
    if (status == 0 && at < 0) {
        status = -EINVAL;
    }
    if (status == 0 && sim_devices[file->device].read_error != 0) {
        status = -sim_devices[file->device].read_error;
    }
    if (status != 0) {
        return status;
    }
    uint64_t left = (uint64_t)at < file->size ? file->size - (uint64_t)at : 0;
    bytes = bytes < left ? bytes : left;
    memcpy(out, sim_bytes(file) + at, bytes);
    return (int64_t)bytes;
}

static int is_zero(const uint8_t *data, uint64_t bytes)
{
    return bytes == 0 || (data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0);
}

static int never_written(const struct inode *file, uint64_t from, uint64_t to)
{
    for (uint64_t page = from / PAGE; page * PAGE < to; page++) {
        if (file->touched[page / 64] >> page % 64 & 1) {
            return 0;
        }
    }
    return !file->mapped;
}

int64_t sim_pwrite(int fd, const void *data, uint64_t bytes, int64_t at)
{
    struct inode *file;
    int64_t status = usable(fd, 1, &file);
    uint64_t from = (uint64_t)at, to = from + bytes;
    if (status == 0) {
        status = at < 0 ? -EINVAL : fits(file, to);
    }
    if (status != 0) {
        return status;
    }
    if (!(bytes >= PAGE && never_written(file, from, to) && is_zero(data, bytes))) { /* else it is zeros already */
        memcpy(sim_bytes(file) + from, data, bytes);
        page_written(file, from, to);
    }
    if (to > file->size) {
        resize(file, to);
    }
    return (int64_t)bytes;
}

int64_t sim_read(int fd, void *out, uint64_t bytes)
{
    struct opened *file = opened_as(fd);
    if (file == NULL) {
        return -EBADF;
    }
    int64_t got;
    if (file->inode == NULL) {
        uint64_t left = strlen(file->text) - (uint64_t)file->at;
        got = (int64_t)(bytes < left ? bytes : left);
        memcpy(out, file->text + file->at, (size_t)got);
    } else {
        got = sim_pread(fd, out, bytes, file->at);
    }
    file->at += got > 0 ? got : 0;
    return got;
}

int64_t sim_write(int fd, const void *data, uint64_t bytes)
{
    struct opened *file = opened_as(fd);
    if (file == NULL || file->inode == NULL) {
        return -EBADF;
    }
    if (file->flags & O_APPEND) {
        file->at = (int64_t)file->inode->size;
    }
    int64_t got = sim_pwrite(fd, data, bytes, file->at);
    file->at += got > 0 ? got : 0;
    return got;
}

int64_t sim_truncate(int fd, int64_t size)
{
    struct inode *file;
    int64_t status = usable(fd, 1, &file);
    if (status == 0) {
        status = size < 0 || size > ROOM ? -EINVAL : 0;
    }
    if (status == 0) {
        resize(file, (uint64_t)size);
    }
    return status;
}

int64_t sim_allocate(int fd, int64_t at, int64_t bytes)
{
    struct inode *file;
    int64_t status = usable(fd, 1, &file);
    if (status == 0) {
        status = fits(file, (uint64_t)(at + bytes));
    }
    if (status == 0 && (uint64_t)(at + bytes) > file->size) {
        resize(file, (uint64_t)(at + bytes));
    }
    return status;
}

int64_t sim_punch(int fd, int64_t at, int64_t bytes)
{
    struct inode *file;
    int64_t status = usable(fd, 1, &file);
    uint64_t from = (uint64_t)at, to = from + (uint64_t)bytes;
    if (status == 0 && from < file->size) {
        to = to < file->size ? to : file->size;
        for (uint64_t page = from / PAGE; page * PAGE < to; page++) {
            uint64_t low = page * PAGE < from ? from : page * PAGE,
                     high = (page + 1) * PAGE < to ? (page + 1) * PAGE : to;
            if (file->mapped || file->touched[page / 64] >> page % 64 & 1) {
                memset(sim_bytes(file) + low, 0, high - low);
                page_written(file, low, high);
            }
        }
    }
    return status;
}
