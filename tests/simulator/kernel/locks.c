/* locks.c: locks of files' bytes, by a process, by an open file (OFD), and flock's. Who locks what overlaps with a lock of his own
 * replaces all of that. See kernel.h. */
#include "inode.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

enum { LOCKS = 1024, OFD_GETLK = 36, OFD_SETLK = 37 };

struct lock {
    const struct inode *file; /* NULL: free */
    int process;              /* of a POSIX lock, else -1 */
    uint64_t opened;          /* of the others */
    int flock;                /* another name space */
    short type;
    int64_t first, last; /* bytes */
};

static struct lock locks[LOCKS];
static int lock_count; /* no one from here on was ever used */

void sim_locks_begin(void)
{
    memset(locks, 0, sizeof locks);
    lock_count = 0;
}

static int is_owner(const struct lock *lock, int process, uint64_t opened)
{
    return process >= 0 ? lock->process == process : lock->process < 0 && lock->opened == opened;
}

static int overlap(const struct lock *lock, const struct lock *asked)
{
    return lock->file == asked->file && lock->flock == asked->flock && lock->first <= asked->last &&
           asked->first <= lock->last;
}

static const struct lock *conflict(const struct lock *asked)
{
    for (int i = 0; i < lock_count; i++) {
        const struct lock *lock = &locks[i];
        if (overlap(lock, asked) && !is_owner(lock, asked->process, asked->opened) &&
            (lock->type == F_WRLCK || asked->type == F_WRLCK)) {
            return lock;
        }
    }
    return NULL;
}

static int64_t take(const struct lock *asked)
{
    struct lock *free = NULL;
    if (asked->type != F_UNLCK && conflict(asked) != NULL) {
        return -EAGAIN;
    }
    for (int i = 0; i < lock_count; i++) {
        struct lock *lock = &locks[i];
        if (overlap(lock, asked) && is_owner(lock, asked->process, asked->opened)) {
            lock->file = NULL;
        }
        free = lock->file == NULL ? lock : free;
    }
    if (asked->type != F_UNLCK) {
        if (free == NULL && lock_count == LOCKS) {
            return -ENOLCK;
        }
        free = free != NULL ? free : &locks[lock_count++];
        *free = *asked;
    }
    return 0;
}

int64_t sim_lock(int fd, int command, void *lock)
{
    const struct inode *file = sim_inode(fd);
    struct flock *asked = lock;
    sim_tick();
    if (file == NULL) {
        return -EBADF;
    }
    int process = command == OFD_GETLK || command == OFD_SETLK ? -1 : sim_running;
    int64_t first = asked->l_start, last = asked->l_len > 0 ? first + asked->l_len - 1 : INT64_MAX;
    struct lock wanted = {file, process, sim_opened(fd), 0, asked->l_type, first, last};
    if (command == F_SETLK || command == OFD_SETLK) {
        return sim_over ? -EIO : take(&wanted);
    }
    const struct lock *found = conflict(&wanted);
    asked->l_type = found != NULL ? found->type : F_UNLCK;
    asked->l_pid = found != NULL && found->process >= 0 ? (pid_t)sim_processes[found->process].pid : -1;
    return 0;
}

int64_t sim_flock(int fd, int operation)
{
    const struct inode *file = sim_inode(fd);
    sim_tick();
    if (file == NULL) {
        return -EBADF;
    }
    short type = operation & LOCK_EX ? F_WRLCK : operation & LOCK_SH ? F_RDLCK : F_UNLCK;
    return take(&(struct lock){file, -1, sim_opened(fd), 1, type, 0, INT64_MAX});
}

void sim_drop_inode_locks(const struct inode *file, int process)
{
    for (int i = 0; process >= 0 && i < lock_count; i++) {
        if (locks[i].file == file && locks[i].process == process) {
            locks[i].file = NULL;
        }
    }
}

void sim_drop_open_locks(uint64_t opened)
{
    for (int i = 0; i < lock_count; i++) {
        if (locks[i].file != NULL && locks[i].process < 0 && locks[i].opened == opened) {
            locks[i].file = NULL;
        }
    }
}

void sim_drop_process_locks(int process)
{
    for (int i = 0; i < lock_count; i++) {
        if (locks[i].file != NULL && locks[i].process == process) {
            locks[i].file = NULL;
        }
    }
}
