/* check.h: what the C tests share. One program per file: exit 0 passed, 1 failed (file:line on stderr), 77 skipped. */
#ifndef HF_CHECK_H
#define HF_CHECK_H
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: [%d] %s\n", __FILE__, __LINE__, getpid(), #condition);                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_EQ(left, right)                                                                                          \
    do {                                                                                                               \
        int64_t left_value_ = (int64_t)(left), right_value_ = (int64_t)(right);                                        \
        if (left_value_ != right_value_) {                                                                             \
            fprintf(stderr, "%s:%d: [%d] %s is %lld, not %s = %lld\n", __FILE__, __LINE__, getpid(), #left,            \
                    (long long)left_value_, #right, (long long)right_value_);                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A test is a function whose name is a sentence. One that hangs fails. */
#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        printf("  %s\n", #test);                                                                                       \
        fflush(stdout);                                                                                                \
        signal(SIGALRM, check_hung_);                                                                                  \
        alarm(CHECK_SECONDS);                                                                                          \
        test();                                                                                                        \
        alarm(0);                                                                                                      \
    } while (0)

#define SKIP(reason)                                                                                                   \
    do {                                                                                                               \
        printf("skipped: %s\n", reason);                                                                               \
        exit(77);                                                                                                      \
    } while (0)

enum { CHECK_SECONDS = 600 }; /* a hang, on a machine that does much else, too */

/* Not async-signal-safe, and need not be: whatever comes of it, the test has failed. */
static inline void check_hung_(int signal_number)
{
    (void)signal_number;
    fprintf(stderr, "the last test named above hangs\n");
    exit(1);
}

static char check_directory_path_[256];
static pid_t check_directory_owner_;

static inline void check_directory_remove_(void)
{
    if (getpid() != check_directory_owner_) {
        return;
    }
    char command[300];
    snprintf(command, sizeof(command), "rm -rf -- '%s'", check_directory_path_);
    if (system(command) != 0) {
        fprintf(stderr, "cannot remove %s\n", check_directory_path_);
    }
}

/* A temporary directory, removed when this process exits. One per program. Returns a descriptor of it. */
static inline int check_directory(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(check_directory_path_, sizeof(check_directory_path_), "%s/hf-test-XXXXXX", base == NULL ? "/tmp" : base);
    CHECK(mkdtemp(check_directory_path_) != NULL);
    check_directory_owner_ = getpid();
    CHECK(atexit(check_directory_remove_) == 0);
    int fd = open(check_directory_path_, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

static inline const char *check_directory_path(void)
{
    return check_directory_path_;
}

/* An empty shared memory file, mode 0600, that nobody has to unlink. */
static inline int check_memory(void)
{
    int fd = memfd_create("hf-test", MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(fchmod(fd, 0600) == 0);
    return fd;
}

/* Shared, zeroed memory for what parent and children tell each other. */
static inline void *check_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* A forked child that runs body() and leaves with status 0, or 1 from a failed CHECK. It dies with us. */
static inline pid_t check_fork(void (*body)(void *), void *argument)
{
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGALRM, SIG_DFL);
        body(argument);
        _exit(0);
    }
    return pid;
}

static inline int check_wait(pid_t pid)
{
    int status;
    pid_t got;
    do {
        got = waitpid(pid, &status, 0);
    } while (got < 0 && errno == EINTR);
    CHECK_EQ(got, pid);
    return status;
}

static inline void check_exited(pid_t pid)
{
    int status = check_wait(pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

static inline void check_killed(pid_t pid, int signal_number)
{
    int status = check_wait(pid);
    CHECK(WIFSIGNALED(status));
    CHECK_EQ(WTERMSIG(status), signal_number);
}

/* A byte through a pipe: one process waits until another one has come that far. */
struct check_gate {
    int ends[2];
};

static inline struct check_gate check_gate(void)
{
    struct check_gate gate;
    CHECK(pipe2(gate.ends, O_CLOEXEC) == 0);
    return gate;
}

static inline void check_open(const struct check_gate *gate)
{
    CHECK_EQ(write(gate->ends[1], "x", 1), 1);
}

static inline void check_pass(const struct check_gate *gate)
{
    char byte;
    CHECK_EQ(read(gate->ends[0], &byte, 1), 1);
}

static inline void check_close(const struct check_gate *gate)
{
    close(gate->ends[0]);
    close(gate->ends[1]);
}
#endif
