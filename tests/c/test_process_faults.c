/* The system refuses what a process needs for its token, its lock file or the proof of another one's death: nothing is
 * guessed, nothing stays behind. */
#include "base/atomic.h"
#include "base/process.h"
#include "base/status.h"
#include "fault_kit.h"

static int domain;
static const char no_wipe[] = "HF_TEST_NO_WIPE"; /* the program runs again, on a system without such pages */

static int lock_files(int dir)
{
    int count = 0, fd = openat(dir, "processes", O_RDONLY | O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        return 0;
    }
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        count += e->d_name[0] != '.';
    }
    closedir(d);
    return count;
}

/* ---- joining ---- */

static void join_with_failing_calls(void *argument)
{
    static const struct {
        enum call call;
        int nth, error;
    } refused[] = {{MKDIRAT, 1, EACCES}, {OPENAT, 1, ENOSPC}, {FCNTL, 1, EMFILE}, {FCNTL, 2, ENOLCK}, {FSTAT, 1, EIO}};
    int files = lock_files(domain), before = held();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        fault_at(refused[i].call, refused[i].nth, refused[i].error);
        CHECK_EQ(hf_process_join(domain), HF_ERRNO - refused[i].error);
        CHECK(fault_over());
        CHECK_EQ(lock_files(domain), files);
        CHECK_EQ(held(), before);
    }
    CHECK_EQ(hf_process_join(domain), HF_OK); /* under the same token: no name is in the way */
    CHECK_EQ(lock_files(domain), files + 1);
    *(uint64_t *)argument = hf_process_token();
}

static void a_join_that_fails_leaves_no_file_and_may_be_tried_again(void)
{
    uint64_t *token = check_shared(sizeof *token);
    check_exited(check_fork(join_with_failing_calls, token));
    CHECK_EQ(hf_process_alive(domain, *token, 0, 0), 0);
    munmap(token, sizeof *token);
}

/* The lock is what counts; the line in the file is for people. */
static void join_without_proc(void *argument)
{
    (void)argument;
    fault_at(OPEN, 1, ENOENT);
    CHECK_EQ(hf_process_join(domain), HF_OK);
    CHECK(fault_over());
}

static void a_boot_id_that_cannot_be_read_keeps_nobody_from_joining(void)
{
    check_exited(check_fork(join_without_proc, NULL));
}

static void one_process_joins_directories_of_two_file_systems(void)
{
    char memory[] = "/dev/shm/hf-test-XXXXXX", command[64];
    CHECK(mkdtemp(memory) != NULL);
    int other = open(memory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_EQ(hf_process_join(domain), HF_OK);
    CHECK_EQ(hf_process_join(other), HF_OK);
    CHECK_EQ(hf_process_join(other), HF_OK);
    CHECK_EQ(lock_files(other), 1);
    close(other);
    snprintf(command, sizeof command, "rm -r %s", memory);
    CHECK_EQ(system(command), 0);
}

/* ---- tokens ---- */

static void mint_without_random_bytes(void *out)
{
    fault_at(GETRANDOM, 1, ENOSYS);
    *(uint64_t *)out = hf_process_token();
    CHECK(fault_over());
    CHECK_EQ(hf_process_join(domain), HF_OK);
}

static void without_random_bytes_tokens_still_differ(void)
{
    uint64_t *token = check_shared(2 * sizeof *token);
    check_exited(check_fork(mint_without_random_bytes, token));
    check_exited(check_fork(mint_without_random_bytes, token + 1));
    for (int i = 0; i < 2; i++) {
        CHECK(token[i] >> 16 != 0 && (token[i] & 0xffff) == 0);
        CHECK_EQ(hf_process_alive(domain, token[i], 0, 0), 0);
    }
    CHECK(token[0] != token[1]);
    munmap(token, 2 * sizeof *token);
}

/* ---- the proof of death ---- */

struct other {
    struct check_gate ready;
    uint64_t token;
    pid_t pid;
};

static void join_and_wait(void *argument)
{
    struct other *other = argument;
    CHECK_EQ(hf_process_join(domain), HF_OK);
    other->token = hf_process_token();
    check_open(&other->ready);
    for (;;) {
        pause();
    }
}

static struct other *another_process(void)
{
    struct other *other = check_shared(sizeof *other);
    other->ready = check_gate();
    other->pid = check_fork(join_and_wait, other);
    check_pass(&other->ready);
    return other;
}

static void end(struct other *other)
{
    kill(other->pid, SIGKILL);
    check_killed(other->pid, SIGKILL);
    check_close(&other->ready);
    munmap(other, sizeof *other);
}

static void a_lock_that_cannot_be_asked_for_proves_nothing(void)
{
    struct other *other = another_process();
    int before = held();
    fault_at(OPENAT, 1, EMFILE);
    CHECK_EQ(hf_process_alive(domain, other->token, 0, 0), HF_ERRNO - EMFILE);
    fault_at(FCNTL, 1, ENOLCK);
    CHECK_EQ(hf_process_alive(domain, other->token, 0, 0), HF_ERRNO - ENOLCK);
    fault_over();
    CHECK_EQ(held(), before);
    CHECK_EQ(hf_process_alive(domain, other->token, 0, 0), 1);
    end(other);
}

static void who_cannot_see_itself_in_proc_declares_nobody_dead(void)
{
    uint64_t nobody = hf_process_token() ^ UINT64_C(0x5555550000);
    uint32_t pid = (uint32_t)getppid();
    uint64_t start = hf_process_start(pid);
    CHECK(start != 0);
    CHECK_EQ(hf_process_alive(domain, nobody, pid, start), 1);
    CHECK_EQ(hf_process_alive(domain, nobody, pid, start + 1), 0);
    CHECK_EQ(hf_process_alive(domain, nobody, pid, 0), HF_ERRNO - ENOENT);
    CHECK_EQ(hf_process_alive(domain, nobody, 1 << 30, start), 0); /* no process has such a pid */
    for (int nth = 1; nth <= 2; nth++) {                           /* its own file, then the other's */
        static const int errors[] = {EACCES, EMFILE, ENFILE};
        for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
            fault_at(OPEN, nth, errors[i]);
            CHECK_EQ(hf_process_alive(domain, nobody, pid, start + 1), HF_ERRNO - errors[i]);
            CHECK(fault_over());
        }
    }
    fault_at(READ, 2, ESRCH); /* it has ended since the open */
    CHECK_EQ(hf_process_alive(domain, nobody, pid, start), 0);
    CHECK(fault_over());
}

/* What read() gives in place of a file in /proc. */
static void tell(const char *text)
{
    fault_at(READ, 1, 0);
    fault.text = text;
}

static void only_a_whole_line_of_proc_has_a_start_time(void)
{
    static const struct {
        const char *line;
        uint64_t start;
    } lines[] = {
        {"7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 3 18 4711 20", 4711},
        {"7 (a) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 2 18 4711 20", 4711}, /* its main thread left */
        {"7 (a) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 4711 20", 0},
        {"7 (a) X 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 3 18 4711 20", 0},
        {"7 (a) S 1 2 3", 0},
        {"7 a S 1 2 3", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        tell(lines[i].line);
        CHECK_EQ(hf_process_start(7), lines[i].start);
        CHECK(fault_over());
    }
    uint32_t self = (uint32_t)getpid();
    uint64_t start = hf_process_start(self);
    fault_at(READ, 1, EIO);
    CHECK_EQ(hf_process_start(self), 0);
    fault_at(READ, 1, EINTR);
    CHECK_EQ(hf_process_start(self), start); /* it reads on */
    CHECK(fault_over());
}

static void only_32_hex_digits_are_a_boot_id(void)
{
    static const char *const wrong[] = {"01234567-89ab-cdef-0123-456789abcde\n", /* 31 */
                                        "01234567-89ab-cdef-0123-456789abcdef0\n",
                                        "01234567-89ab-cdef-0123-456789abcdeg\n"};
    uint8_t id[16];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tell(wrong[i]);
        CHECK_EQ(hf_boot_id(id), HF_DAMAGED);
        CHECK(fault_over());
    }
    tell("");
    CHECK_EQ(hf_boot_id(id), HF_ERRNO - ENOENT);
    static const int errors[] = {ENOENT, EMFILE, ENFILE}; /* named by who is told, with the limit */
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        fault_at(OPEN, 1, errors[i]);
        CHECK_EQ(hf_boot_id(id), HF_ERRNO - errors[i]);
        CHECK(fault_over());
    }
    fault_at(READ, 1, EIO);
    CHECK_EQ(hf_boot_id(id), HF_ERRNO - EIO);
    tell("01234567-89ab-cdef-0123-456789abcdef");
    CHECK_EQ(hf_boot_id(id), HF_OK);
    CHECK_EQ(memcmp(id, "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef", 16), 0);
    fault_over();
}

/* ---- a system without pages that a fork wipes ---- */

__attribute__((constructor(101))) static void take_the_page_away(void)
{
    const char *which = getenv(no_wipe);
    if (which != NULL) {
        fault_at(strcmp(which, "map") == 0 ? MMAP : MADVISE, 1, EINVAL);
    }
}

static void become_another(void *argument)
{
    uint64_t parent = *(uint64_t *)argument;
    CHECK(hf_process_forked(parent));
    CHECK_EQ(hf_process_join(domain), HF_OK);
    CHECK(hf_process_token() != parent);
    CHECK_EQ(hf_process_alive(domain, parent, 0, 0), 1);
}

static void fork_without_the_page(void)
{
    CHECK(fault_over());
    CHECK_EQ(hf_process_join(domain), HF_OK);
    uint64_t token = hf_process_token();
    check_exited(check_fork(become_another, &token));
    CHECK(!hf_process_forked(token));
}

static void run_again_without_the_page(void *which)
{
    setenv(no_wipe, which, 1);
    execl("/proc/self/exe", "test_process_faults", (char *)NULL);
    _exit(1);
}

static void without_a_page_that_fork_wipes_a_forked_child_is_still_noticed(void)
{
    check_exited(check_fork(run_again_without_the_page, "madvise"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they map before us */
    check_exited(check_fork(run_again_without_the_page, "map"));
#endif
}

int main(void)
{
    domain = check_directory();
    if (getenv(no_wipe) != NULL) {
        fork_without_the_page();
        return 0;
    }
    RUN(a_join_that_fails_leaves_no_file_and_may_be_tried_again);
    RUN(a_boot_id_that_cannot_be_read_keeps_nobody_from_joining);
    RUN(one_process_joins_directories_of_two_file_systems);
    RUN(without_random_bytes_tokens_still_differ);
    RUN(a_lock_that_cannot_be_asked_for_proves_nothing);
    RUN(who_cannot_see_itself_in_proc_declares_nobody_dead);
    RUN(only_a_whole_line_of_proc_has_a_start_time);
    RUN(only_32_hex_digits_are_a_boot_id);
    RUN(without_a_page_that_fork_wipes_a_forked_child_is_still_noticed);
    return 0;
}
