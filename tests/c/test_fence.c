/* test_fence.c: a process finds out that its lock is gone, and forgets directories that are. */
#include "base/process.h"
#include "base/status.h"
#include "check.h"

static int domain;

/* What a backup that runs inside a process does. */
static void read_own_file(int directory)
{
    char path[64], byte;
    snprintf(path, sizeof(path), "processes/%012llx", (unsigned long long)(hf_process_token() >> 16));
    int fd = openat(directory, path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK_EQ(read(fd, &byte, 1), 1);
    close(fd);
}

static void lose_the_lock(void *argument)
{
    (void)argument;
    CHECK_EQ(hf_process_join(domain), HF_OK);
    CHECK_EQ(hf_process_check(domain), HF_OK);
    CHECK_EQ(hf_process_check(domain), HF_OK); /* asking takes no lock away */
    int other = open("/tmp", O_RDONLY | O_DIRECTORY);
    CHECK_EQ(hf_process_check(other), HF_USAGE);
    close(other);
    read_own_file(domain);
    CHECK_EQ(hf_process_check(domain), HF_FENCED);
    CHECK_EQ(hf_process_join(domain), HF_FENCED);
    CHECK_EQ(hf_process_check(domain), HF_FENCED);
}

static void lose_the_descriptor(void *argument)
{
    CHECK_EQ(hf_process_join(domain), HF_OK);
    for (int fd = 3; fd < 64; fd++) { /* as closefrom(3), except for the directory */
        if (fd != domain) {
            close(fd);
        }
    }
    int fd = argument != NULL ? open("/dev/null", O_RDWR) : -1; /* another file under the old number, or none */
    CHECK_EQ(hf_process_check(domain), HF_FENCED);
    if (fd >= 0) {
        close(fd);
    }
}

static void a_process_that_lost_its_lock_finds_out_and_stays_fenced(void)
{
    check_exited(check_fork(lose_the_lock, NULL));
    check_exited(check_fork(lose_the_descriptor, NULL));
    check_exited(check_fork(lose_the_descriptor, &domain));
    CHECK_EQ(hf_process_check(domain), HF_OK); /* a child's loss is not ours */
    CHECK_EQ(hf_process_check(-1), HF_ERRNO - EBADF);
}

static void a_lock_is_held_by_who_took_it(void)
{
    int fd = check_memory();
    CHECK_EQ(hf_lock_held(fd), 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    CHECK_EQ(fcntl(fd, F_SETLK, &lock), 0);
    CHECK_EQ(hf_lock_held(fd), 1);
    close(fd);
    CHECK_EQ(hf_lock_held(-1), HF_ERRNO - EBADF);
}

static void note(void *argument)
{
    (void)argument;
    uint8_t line[] = "something that tools may read\n";
    CHECK_EQ(hf_process_note(domain, line, sizeof(line)), HF_USAGE);
    CHECK_EQ(hf_process_join(domain), HF_OK);
    struct stat before, file;
    char path[64];
    snprintf(path, sizeof(path), "processes/%012llx", (unsigned long long)(hf_process_token() >> 16));
    CHECK_EQ(fstatat(domain, path, &before, 0), 0);
    CHECK_EQ(hf_process_note(domain, line, sizeof(line) - 1), HF_OK);
    CHECK_EQ(hf_process_note(domain, line, 4), HF_OK);
    CHECK_EQ(fstatat(domain, path, &file, 0), 0);
    CHECK_EQ(file.st_size, before.st_size + 4);
    CHECK_EQ(hf_process_check(domain), HF_OK);
    read_own_file(domain);
    CHECK_EQ(hf_process_note(domain, line, 4), HF_FENCED);
    CHECK_EQ(hf_process_note(-1, line, 4), HF_ERRNO - EBADF);
}

static void a_note_replaces_the_one_before(void)
{
    check_exited(check_fork(note, NULL));
}

struct other {
    struct check_gate ready;
    uint64_t token;
};

static void join_and_stay(void *argument)
{
    struct other *other = argument;
    CHECK_EQ(hf_process_join(domain), HF_OK);
    other->token = hf_process_token();
    check_open(&other->ready);
    for (;;) {
        pause();
    }
}

static void a_living_process_has_a_pid_and_a_dead_one_none(void)
{
    struct other *other = check_shared(sizeof(*other));
    other->ready = check_gate();
    pid_t child = check_fork(join_and_stay, other);
    check_pass(&other->ready);
    CHECK_EQ(hf_process_pid(domain, other->token), child);
    CHECK_EQ(hf_process_pid(domain, hf_process_claim()), getpid());
    kill(child, SIGKILL);
    check_killed(child, SIGKILL);
    CHECK_EQ(hf_process_pid(domain, other->token), 0);
    CHECK_EQ(hf_process_pid(domain, UINT64_C(0x123450000)), 0); /* no lock file */
    CHECK_EQ(hf_process_pid(domain, 0), 0);
    check_close(&other->ready);
    munmap(other, sizeof(*other));
}

static void join_and_remove(void *argument)
{
    (void)argument;
    CHECK_EQ(hf_process_join(domain), HF_OK);
    int first = -1;
    for (int i = 0; i < 3000; i++) {
        char name[32], path[64];
        snprintf(name, sizeof(name), "short%d", i);
        CHECK(mkdirat(domain, name, 0700) == 0);
        int fd = openat(domain, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(fd >= 0);
        first = i == 0 ? fd : first;
        CHECK_EQ(hf_process_join(fd), HF_OK);
        snprintf(path, sizeof(path), "processes/%012llx", (unsigned long long)(hf_process_token() >> 16));
        CHECK(unlinkat(fd, path, 0) == 0);
        if (i > 1) { /* of the first two directories only the lock file is gone */
            CHECK(unlinkat(fd, "processes", AT_REMOVEDIR) == 0);
            close(fd);
            CHECK(unlinkat(domain, name, AT_REMOVEDIR) == 0);
        }
        CHECK(fd < 600);
    }
    CHECK_EQ(hf_process_check(domain), HF_OK);
    CHECK_EQ(hf_process_check(first), HF_OK);
}

static void directories_that_are_removed_are_forgotten(void)
{
    check_exited(check_fork(join_and_remove, NULL));
}

int main(void)
{
    domain = check_directory();
    CHECK_EQ(hf_process_join(domain), HF_OK);
    RUN(a_process_that_lost_its_lock_finds_out_and_stays_fenced);
    RUN(a_lock_is_held_by_who_took_it);
    RUN(a_note_replaces_the_one_before);
    RUN(a_living_process_has_a_pid_and_a_dead_one_none);
    RUN(directories_that_are_removed_are_forgotten);
    return 0;
}
