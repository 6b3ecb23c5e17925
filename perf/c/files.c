/* files.c: scratch files of the cases that write (files.h). */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

static int must_fd(int fd, const char *what)
{
    if (fd < 0) {
        bench_die(what, HF_ERRNO - errno);
    }
    return fd;
}

static void path_of(char *out, size_t size, const char *dir, const char *name)
{
    if (dir == NULL) {
        bench_usage("this case needs --memory and --disk");
    }
    int length = snprintf(out, size, "%s/%s", dir, name);
    if (length < 0 || (size_t)length >= size) {
        bench_die("path", HF_ERRNO - ENAMETOOLONG);
    }
}

int bench_file(const char *dir, const char *name)
{
    char path[4096];
    path_of(path, sizeof path, dir, name);
    return must_fd(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), path);
}

void bench_unlink(const char *dir, const char *name, int fd)
{
    char path[4096];
    path_of(path, sizeof path, dir, name);
    (void)close(fd);
    (void)unlink(path);
}

int bench_shared(void)
{
    int fd = must_fd(memfd_create("holdfast-bench", MFD_CLOEXEC), "memfd_create");
    if (fchmod(fd, 0600) != 0) {
        bench_die("fchmod", HF_ERRNO - errno);
    }
    return fd;
}

int bench_read_only(int fd)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return must_fd(open(path, O_RDONLY | O_CLOEXEC), path);
}

int bench_directory(const char *dir, const char *name)
{
    char path[4096];
    path_of(path, sizeof path, dir, name);
    if (mkdir(path, 0700) != 0) {
        bench_die(path, HF_ERRNO - errno);
    }
    return must_fd(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path);
}

static void remove_tree(int at, const char *name, int depth)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(fd, entry->d_name, 0) != 0 && errno == EISDIR && depth > 0) {
            remove_tree(fd, entry->d_name, depth - 1);
        }
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    (void)unlinkat(at, name, AT_REMOVEDIR);
}

void bench_remove(const char *dir, const char *name, int fd)
{
    char path[4096];
    path_of(path, sizeof path, dir, name);
    (void)close(fd);
    remove_tree(AT_FDCWD, path, 1);
}

void bench_write(int fd, const void *data, uint64_t bytes, uint64_t at)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        ssize_t written = pwrite(fd, from, bytes, (off_t)at);
        if (written <= 0) {
            bench_die("pwrite", HF_ERRNO - (written == 0 ? EIO : errno));
        }
        from += written;
        at += (uint64_t)written;
        bytes -= (uint64_t)written;
    }
}

void bench_sync(int fd)
{
    if (fdatasync(fd) != 0) {
        bench_die("fdatasync", HF_ERRNO - errno);
    }
}
