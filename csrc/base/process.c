/* process.c: this process's token and lock files, and the proof that another process is dead. See process.h. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/proc.h"
#include "base/status.h"

enum { DIRECTORIES = 1024, FORGET_AT = 256, PATH_BYTES = 32, CLAIM_BITS = 16, CLAIM_MASK = 0xffff };

struct joined {
    dev_t device;
    ino_t inode;
    int fd; /* of our lock file; open for as long as we live */
    int lost;
    off_t said;        /* bytes of the file's first line; what hf_process_note says stands behind it */
    dev_t lock_device; /* what `fd` leads to, as long as nobody else closes it */
    ino_t lock_inode;
};

/* All that a process has for itself. */
struct self {
    pthread_mutex_t mutex; /* guards everything here except registered_token */
    struct joined registry[DIRECTORIES];
    uint32_t registered;
    uint32_t claims;
    uint64_t registered_token; /* of the process that registered for membarrier: a forked child registers itself */
    /* The token's word: a page of its own that the kernel wipes in a forked child, whoever forks and however. Where there
     * is no such page, the plain word serves, and only forks that run the fork handlers are noticed. */
    volatile uint64_t *word;
    volatile uint64_t plain_word;
};

static struct self only = {.mutex = PTHREAD_MUTEX_INITIALIZER, .word = &only.plain_word};
static struct self *self = &only;
volatile const uint64_t *hf_process_page = &only.plain_word;

#ifdef HF_SIMULATION
/* The simulator plays many processes in one, and says which one runs (tests/simulator/kernel). */
void *hf_self_new(void);
void *hf_self_new(void)
{
    struct self *made = calloc(1, sizeof *made);
    if (made != NULL) {
        pthread_mutex_init(&made->mutex, NULL);
        made->word = &made->plain_word;
    }
    return made;
}

void hf_self_enter(void *process);
void hf_self_enter(void *process)
{
    self = process != NULL ? process : &only;
    hf_process_page = self->word;
}
#endif

void hf_process_lock(void)
{
    pthread_mutex_lock(&self->mutex);
}

void hf_process_unlock(void)
{
    pthread_mutex_unlock(&self->mutex);
}

/* Runs in the child before anything else can: its copies of the lock files' descriptors still carry the numbers that we
 * gave them, so they can be closed. That drops no lock: POSIX locks belong to the parent, and the child has none. */
static void after_fork_in_child(void)
{
    for (uint32_t i = 0; i < self->registered; i++) {
        close(self->registry[i].fd);
    }
    self->registered = 0;
    hf_store_relaxed_u64(self->word, 0);
    pthread_mutex_unlock(&self->mutex);
}

/* The mutex is taken across a fork, so that no child starts with it held by a thread that it does not have. */
__attribute__((constructor)) static void set_up(void)
{
    pthread_atfork(hf_process_lock, hf_process_unlock, after_fork_in_child);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *mapped = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        return;
    }
    if (madvise(mapped, page, MADV_WIPEONFORK) != 0) {
        munmap(mapped, page);
        return;
    }
    self->word = mapped;
    hf_process_page = self->word;
}

/* 48 random bits above 16 zeros, never 0. Should the kernel refuse random bytes, time and pid do: a token only has to
 * be new, and hf_process_join refuses one that is not. */
static uint64_t new_token(void)
{
    uint64_t token = 0;
    while (token == 0) {
        ssize_t got = getrandom(&token, sizeof(token), 0);
        if (got != (ssize_t)sizeof(token)) {
            struct timespec t;
            clock_gettime(CLOCK_REALTIME, &t);
            token = ((uint64_t)t.tv_nsec << 34) ^ ((uint64_t)t.tv_sec << 16) ^ ((uint64_t)getpid() << 26);
        }
        token &= ~(uint64_t)CLAIM_MASK;
    }
    return token;
}

static uint64_t token_locked(void)
{
    uint64_t token = hf_load_relaxed_u64(self->word);
    if (token == 0) {
        /* A child of a bare clone() ran no handler; its inherited descriptors stay open and mean nothing. */
        self->registered = 0;
        token = new_token();
        hf_store_release_u64(self->word, token);
    }
    return token;
}

uint64_t hf_process_token(void)
{
    uint64_t token = hf_load_acquire_u64(self->word);
    if (token == 0) {
        hf_process_lock();
        token = token_locked();
        hf_process_unlock();
    }
    return token;
}

uint64_t hf_process_claim(void)
{
    return hf_process_token() | (hf_add_u32(&self->claims, 1) % CLAIM_MASK + 1);
}

int hf_process_forked(uint64_t token)
{
    return (hf_load_relaxed_u64(hf_process_page) ^ token) >> CLAIM_BITS != 0;
}

static void lock_path(char path[PATH_BYTES], uint64_t token)
{
    snprintf(path, PATH_BYTES, "processes/%012llx", (unsigned long long)(token >> CLAIM_BITS));
}

static struct flock first_byte(short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
}

/* One line for people; nothing reads it. Best effort: the lock is what counts. */
static void describe(int fd)
{
    uint8_t id[16] = {0};
    (void)hf_boot_id(id);
    char hex[33];
    for (int i = 0; i < 16; i++) {
        snprintf(hex + 2 * i, 3, "%02x", id[i]);
    }
    uint32_t pid = (uint32_t)getpid();
    (void)dprintf(fd, "%u %llu %s\n", pid, (unsigned long long)hf_process_start(pid), hex);
}

/* A locked lock file for `token`. O_EXCL: a name that exists is somebody else's, even if nobody holds it. */
static int64_t make_lock_file(int domain_fd, uint64_t token)
{
    if (mkdirat(domain_fd, "processes", 0700) != 0 && errno != EEXIST) {
        return HF_ERRNO - errno;
    }
    char path[PATH_BYTES];
    lock_path(path, token);
    int low = openat(domain_fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (low < 0) {
        return HF_ERRNO - errno;
    }
    HF_FAIL("process.created"); /* a crash here leaves an empty, free file whose token nobody has seen */
    /* Above 2: a daemon that started without standard streams may yet put them there, and that would close this one. */
    int fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
    struct flock lock = first_byte(F_WRLCK);
    close(low); /* before the lock, which any close would drop */
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0) {
        int64_t status = HF_ERRNO - errno;
        unlinkat(domain_fd, path, 0);
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    describe(fd);
    return fd;
}

/* A lock that an open file description asks for conflicts with every POSIX lock, also with this process's own, which F_GETLK
 * never shows. So the very descriptor that holds the lock can ask for it, and nothing is opened or closed. */
int64_t hf_lock_held(int fd)
{
    struct flock lock = first_byte(F_WRLCK);
    if (fcntl(fd, F_OFD_GETLK, &lock) != 0) {
        return HF_ERRNO - errno;
    }
    return lock.l_type == F_WRLCK && lock.l_pid == getpid();
}

/* Once lost, lost for ever: from then on others may have taken this process for dead. A descriptor that somebody has closed, or
 * that leads elsewhere by now, has taken the lock with it. What the kernel cannot say is no proof of a loss. */
static int64_t check_locked(struct joined *joined)
{
    struct stat file;
    if (!joined->lost) {
        int other =
            fstat(joined->fd, &file) != 0 || file.st_dev != joined->lock_device || file.st_ino != joined->lock_inode;
        joined->lost = other || hf_lock_held(joined->fd) == 0;
    }
    return joined->lost ? HF_FENCED : HF_OK;
}

static struct joined *find_locked(const struct stat *directory)
{
    for (uint32_t i = 0; i < self->registered; i++) {
        if (self->registry[i].device == directory->st_dev && self->registry[i].inode == directory->st_ino) {
            return &self->registry[i];
        }
    }
    return NULL;
}

/* The directory is removed, and the lock file with it: /proc says where it lay. 0: it may be there. */
static int is_gone(const struct joined *joined)
{
    enum { TAIL = sizeof "/processes/0123456789ab (deleted)" - 1 };
    char name[PATH_BYTES], path[4096];
    struct stat file, now;
    snprintf(name, sizeof name, "/proc/self/fd/%d", joined->fd);
    ssize_t length = readlink(name, path, sizeof path);
    if (length <= TAIL || fstat(joined->fd, &file) != 0 || file.st_nlink > 0) {
        return 0;
    }
    path[length - TAIL] = 0;
    return stat(path, &now) != 0 ? errno == ENOENT : now.st_dev != joined->device || now.st_ino != joined->inode;
}

/* Closing a lock file drops its lock, which nobody can ask for any more. */
static void forget_gone(void)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->registered; i++) {
        const struct joined each = self->registry[i];
        if (is_gone(&each)) {
            close(each.fd);
        } else {
            self->registry[kept++] = each;
        }
    }
    self->registered = kept;
}

static int64_t join_locked(int domain_fd, const struct stat *directory)
{
    uint64_t token = token_locked();
    struct joined *joined = find_locked(directory);
    if (joined != NULL) {
        return check_locked(joined);
    }
    if (self->registered % FORGET_AT == 0) {
        forget_gone();
    }
    if (self->registered == DIRECTORIES) {
        return HF_FULL;
    }
    int64_t fd = make_lock_file(domain_fd, token);
    if (fd < 0) {
        return fd;
    }
    struct stat file = {0};
    (void)fstat((int)fd, &file); /* of a descriptor that is open; a failure would show as a loss */
    self->registry[self->registered++] = (struct joined){
        .device = directory->st_dev,
        .inode = directory->st_ino,
        .fd = (int)fd,
        .said = file.st_size,
        .lock_device = file.st_dev,
        .lock_inode = file.st_ino,
    };
    return HF_OK;
}

static int64_t with_directory(int domain_fd, int64_t (*work)(int domain_fd, const struct stat *directory))
{
    struct stat directory;
    if (fstat(domain_fd, &directory) != 0) {
        return HF_ERRNO - errno;
    }
    if (!S_ISDIR(directory.st_mode)) {
        return HF_ERRNO - ENOTDIR;
    }
    hf_process_lock();
    int64_t status = work(domain_fd, &directory);
    hf_process_unlock();
    return status;
}

int64_t hf_process_join(int domain_fd)
{
    return with_directory(domain_fd, join_locked);
}

static int64_t checked_locked(int domain_fd, const struct stat *directory)
{
    (void)domain_fd;
    (void)token_locked(); /* a child of a bare clone() has joined nothing */
    struct joined *joined = find_locked(directory);
    return joined != NULL ? check_locked(joined) : HF_USAGE;
}

int64_t hf_process_check(int domain_fd)
{
    return with_directory(domain_fd, checked_locked);
}

int64_t hf_process_note(int domain_fd, const uint8_t *text, uint64_t bytes)
{
    struct stat directory;
    if (fstat(domain_fd, &directory) != 0) {
        return HF_ERRNO - errno;
    }
    hf_process_lock();
    (void)token_locked();
    struct joined *joined = find_locked(&directory);
    int64_t status = joined == NULL ? HF_USAGE : check_locked(joined);
    if (status == HF_OK &&
        (ftruncate(joined->fd, joined->said) != 0 || pwrite(joined->fd, text, bytes, joined->said) != (ssize_t)bytes)) {
        status = HF_ERRNO - errno;
    }
    hf_process_unlock();
    return status;
}

/* The lock file is gone, so pid and start time decide. A process that cannot even see itself in /proc proves
 * nothing, nor does one that cannot open the other's file there. */
static int64_t alive_by_start(uint32_t pid, uint64_t start)
{
    uint64_t own, found;
    if (pid == 0 || start == 0) {
        return HF_ERRNO - ENOENT;
    }
    int64_t status = hf_proc_start((uint32_t)getpid(), &own);
    if (status != HF_OK) {
        return status;
    }
    status = hf_proc_start(pid, &found);
    return status == HF_OK ? found == start : status == HF_ERRNO - ENOENT ? 0 : status;
}

/* 1: *holder is the pid of who holds the lock of `owner`, another process; 0: it is free; HF_ERRNO - errno. */
static int64_t ask_lock(int domain_fd, uint64_t owner, pid_t *holder)
{
    char path[PATH_BYTES];
    lock_path(path, owner);
    int fd = openat(domain_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return HF_ERRNO - errno;
    }
    struct flock lock = first_byte(F_WRLCK); /* F_GETLK asks only, so a read-only descriptor will do */
    int64_t status = fcntl(fd, F_GETLK, &lock) == 0 ? lock.l_type != F_UNLCK : HF_ERRNO - errno;
    *holder = lock.l_pid;
    close(fd);
    return status;
}

int64_t hf_process_alive(int domain_fd, uint64_t owner, uint32_t pid, uint64_t start)
{
    if (owner >> CLAIM_BITS == 0) {
        return 0; /* no process has token 0 */
    }
    if (!hf_process_forked(owner)) {
        return 1; /* us; opening our own lock file would drop our lock at close */
    }
    pid_t holder = 0;
    int64_t status = ask_lock(domain_fd, owner, &holder);
    return status == HF_ERRNO - ENOENT ? alive_by_start(pid, start) : status;
}

int64_t hf_process_pid(int domain_fd, uint64_t owner)
{
    if (owner >> CLAIM_BITS == 0) {
        return 0;
    }
    if (!hf_process_forked(owner)) {
        return getpid();
    }
    pid_t holder = 0;
    return ask_lock(domain_fd, owner, &holder) == 1 && holder > 0 ? holder : 0;
}

/* ---- membarrier ---- */

int hf_wait_registered(void)
{
    uint64_t token = hf_load_relaxed_u64(hf_process_page);
    return token != 0 && hf_load_relaxed_u64(&self->registered_token) == token;
}

/* What a registration does not reach: the kernel keeps for each core whether what runs there has registered. It forgets it when one
 * of our threads ends there, and learns it again when memory of another process is loaded, not when the next thread of ours comes
 * (seen on Linux 6.18). Until then a waker on that core gets no barrier. A wake that is lost so comes late, at the sleeper's next
 * look: HF_WAIT_MAX_NS at most. No message is lost. */
int hf_wait_setup(void)
{
    uint64_t token = hf_process_token();
    if (hf_load_relaxed_u64(&self->registered_token) == token) {
        return 1;
    }
    if (HF_FAIL_STATUS("wait.register") != 0 ||
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0) {
        return 0;
    }
    hf_store_relaxed_u64(&self->registered_token, token);
    return 1;
}
