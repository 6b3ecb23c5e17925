/* test_process.c: tokens, lock files and the proof of death. */
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/status.h"
#include "check.h"

static int domain;

static void page_reads_zero_before_the_first_token(void)
{
    CHECK_EQ(*hf_process_page, 0);
    CHECK(hf_process_forked(UINT64_C(0x123450000)));
}

static void token_has_48_random_bits_and_stays(void)
{
    uint64_t token = hf_process_token();
    CHECK(token != 0);
    CHECK_EQ(token & 0xffff, 0);
    CHECK_EQ(hf_process_token(), token);
    CHECK_EQ(*hf_process_page, token);
    CHECK(!hf_process_forked(token | 77));
}

static void claims_carry_the_token_and_never_a_zero_number(void)
{
    uint64_t token = hf_process_token();
    uint64_t first = hf_process_claim();
    for (int i = 0; i < 70000; i++) {
        uint64_t claim = hf_process_claim();
        CHECK_EQ(claim & ~UINT64_C(0xffff), token);
        CHECK((claim & 0xffff) != 0);
        CHECK(i > 60000 || claim != first);
    }
}

static int lock_file(uint64_t token, struct stat *file)
{
    char path[64];
    snprintf(path, sizeof(path), "processes/%012llx", (unsigned long long)(token >> 16));
    return fstatat(domain, path, file, AT_SYMLINK_NOFOLLOW);
}

/* Reads another process's lock file; our own must not be opened. */
static void parent_file_names_it(void *token)
{
    char path[64], text[128] = "";
    uint64_t parent = *(uint64_t *)token;
    snprintf(path, sizeof(path), "processes/%012llx", (unsigned long long)(parent >> 16));
    int fd = openat(domain, path, O_RDONLY);
    CHECK(fd >= 0);
    CHECK(read(fd, text, sizeof(text) - 1) > 0);
    unsigned pid = 0;
    unsigned long long start = 0;
    char boot[33] = "";
    CHECK_EQ(sscanf(text, "%u %llu %32s", &pid, &start, boot), 3);
    CHECK_EQ(pid, getppid());
    CHECK_EQ(start, hf_process_start(pid));
    CHECK_EQ(strlen(boot), 32);
}

static void join_makes_one_private_file_per_directory(void)
{
    CHECK_EQ(hf_process_join(domain), HF_OK);
    struct stat file, again;
    uint64_t token = hf_process_token();
    CHECK_EQ(lock_file(token, &file), 0);
    CHECK_EQ(file.st_mode, S_IFREG | 0600);
    int other = open(check_directory_path(), O_RDONLY | O_DIRECTORY);
    CHECK_EQ(hf_process_join(other), HF_OK);
    close(other);
    CHECK_EQ(lock_file(token, &again), 0);
    CHECK_EQ(file.st_ino, again.st_ino);
    check_exited(check_fork(parent_file_names_it, &token));
    CHECK_EQ(hf_process_alive(domain, token, 0, 0), 1);
    CHECK_EQ(hf_process_alive(domain, 0, 0, 0), 0);
}

static void join_refuses_what_is_not_a_directory(void)
{
    int fd = check_memory();
    CHECK_EQ(hf_process_join(fd), HF_ERRNO - ENOTDIR);
    CHECK_EQ(hf_process_join(-1), HF_ERRNO - EBADF);
    close(fd);
}

/* What a child says about itself. */
struct story {
    struct check_gate ready;
    uint64_t token;
    uint32_t pid;
    uint64_t start;
    pid_t grandchild;
};

static struct story *new_story(void)
{
    struct story *story = check_shared(sizeof(*story));
    story->ready = check_gate();
    return story;
}

static void end_story(struct story *story)
{
    check_close(&story->ready);
    munmap(story, sizeof(*story));
}

static void tell(struct story *story)
{
    CHECK_EQ(hf_process_join(domain), HF_OK);
    story->token = hf_process_token();
    story->pid = (uint32_t)getpid();
    story->start = hf_process_start(story->pid);
    check_open(&story->ready);
}

static _Noreturn void stay(void)
{
    for (;;) {
        pause();
    }
}

static void join_and_stay(void *argument)
{
    tell(argument);
    stay();
}

static void await_state(pid_t pid, int options)
{
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, (id_t)pid, &info, options), 0);
}

static void killed_child_is_dead_before_it_is_reaped(void)
{
    struct story *story = new_story();
    pid_t pid = check_fork(join_and_stay, story);
    check_pass(&story->ready);
    CHECK_EQ(hf_process_alive(domain, story->token | 9, 0, 0), 1);
    kill(pid, SIGKILL);
    await_state(pid, WEXITED | WNOWAIT); /* a zombie now */
    CHECK_EQ(kill(pid, 0), 0);           /* which is why nobody asks kill() */
    CHECK_EQ(hf_process_alive(domain, story->token | 9, 0, 0), 0);
    CHECK_EQ(hf_process_start((uint32_t)pid), 0);
    check_killed(pid, SIGKILL);
    CHECK_EQ(hf_process_alive(domain, story->token | 9, 0, 0), 0);
    end_story(story);
}

static void stopped_child_is_alive(void)
{
    struct story *story = new_story();
    pid_t pid = check_fork(join_and_stay, story);
    check_pass(&story->ready);
    kill(pid, SIGSTOP);
    await_state(pid, WSTOPPED | WNOWAIT);
    CHECK_EQ(hf_process_alive(domain, story->token, 0, 0), 1);
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    CHECK_EQ(hf_process_alive(domain, story->token, 0, 0), 0);
    end_story(story);
}

static void join_and_leave_a_grandchild(void *argument)
{
    struct story *story = argument;
    CHECK_EQ(hf_process_join(domain), HF_OK);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(CHECK_SECONDS);
        stay();
    }
    story->grandchild = pid;
    join_and_stay(argument);
}

static void grandchild_does_not_keep_its_dead_parent_alive(void)
{
    struct story *story = new_story();
    CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* the grandchild becomes ours to reap */
    pid_t pid = check_fork(join_and_leave_a_grandchild, story);
    check_pass(&story->ready);
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    CHECK_EQ(kill(story->grandchild, 0), 0);
    CHECK_EQ(hf_process_alive(domain, story->token, 0, 0), 0);
    kill(story->grandchild, SIGKILL);
    check_killed(story->grandchild, SIGKILL);
    end_story(story);
}

static void become_somebody_else(void *argument)
{
    uint64_t parent = *(uint64_t *)argument;
    CHECK_EQ(*hf_process_page, 0);
    CHECK(hf_process_forked(parent));
    CHECK_EQ(hf_process_alive(domain, parent, 0, 0), 1);
    CHECK_EQ(hf_process_join(domain), HF_OK);
    uint64_t token = hf_process_token();
    CHECK(token != parent);
    struct stat file;
    CHECK_EQ(lock_file(token, &file), 0);
    CHECK_EQ(hf_process_alive(domain, parent, 0, 0), 1);
    CHECK_EQ(hf_process_alive(domain, token, 0, 0), 1);
}

static void parent_is_alive(void *argument)
{
    CHECK_EQ(hf_process_alive(domain, *(uint64_t *)argument, 0, 0), 1);
}

static void forked_child_gets_a_token_of_its_own_and_leaves_its_parents_lock(void)
{
    uint64_t token = hf_process_token();
    check_exited(check_fork(become_somebody_else, &token));
    CHECK_EQ(hf_process_token(), token);
    check_exited(check_fork(parent_is_alive, &token));
}

static void bare_clone_reads_a_wiped_page(void)
{
    fflush(stdout);
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* no fork handler runs */
    CHECK(pid >= 0);
    if (pid == 0) {
        _exit(*hf_process_page == 0 ? 0 : 1);
    }
    check_exited((pid_t)pid);
}

static uint32_t stop_joining;

static void *keep_joining(void *argument)
{
    (void)argument;
    while (hf_load_acquire_u32(&stop_joining) == 0) {
        CHECK_EQ(hf_process_join(domain), HF_OK);
    }
    return NULL;
}

static void join_as_a_child(void *argument)
{
    (void)argument;
    alarm(CHECK_SECONDS); /* a deadlock must not outlive the test */
    CHECK_EQ(hf_process_join(domain), HF_OK);
}

static void fork_beside_a_joining_thread_leaves_no_locked_mutex(void)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, keep_joining, NULL), 0);
    for (int i = 0; i < 50; i++) {
        check_exited(check_fork(join_as_a_child, NULL));
    }
    hf_store_release_u32(&stop_joining, 1);
    pthread_join(thread, NULL);
}

static void remove_lock_file(uint64_t token)
{
    char path[64];
    snprintf(path, sizeof(path), "processes/%012llx", (unsigned long long)(token >> 16));
    CHECK_EQ(unlinkat(domain, path, 0), 0);
}

static void without_lock_file_pid_and_start_decide(void)
{
    struct story *story = new_story();
    pid_t pid = check_fork(join_and_stay, story);
    check_pass(&story->ready);
    remove_lock_file(story->token);
    CHECK(story->start != 0);
    CHECK_EQ(hf_process_alive(domain, story->token, story->pid, story->start), 1);
    CHECK_EQ(hf_process_alive(domain, story->token, story->pid, story->start + 1), 0);
    CHECK_EQ(hf_process_alive(domain, story->token, 0, 0), HF_ERRNO - ENOENT);
    kill(pid, SIGKILL);
    await_state(pid, WEXITED | WNOWAIT);
    CHECK_EQ(hf_process_alive(domain, story->token, story->pid, story->start), 0);
    check_killed(pid, SIGKILL);
    end_story(story);
}

static void join_many(void *argument)
{
    (void)argument;
    char name[32];
    struct rlimit files;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max; /* each directory keeps its lock file open, and 1024 is a usual limit */
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    for (int i = 0; i < 1025; i++) {
        snprintf(name, sizeof(name), "many-%d", i);
        CHECK_EQ(mkdirat(domain, name, 0700), 0);
        int fd = openat(domain, name, O_RDONLY | O_DIRECTORY);
        CHECK(fd >= 0);
        CHECK_EQ(hf_process_join(fd), i < 1024 ? HF_OK : HF_FULL);
        close(fd);
    }
}

static void a_process_joins_1024_directories_at_most(void)
{
    check_exited(check_fork(join_many, NULL));
}

static void join_without_standard_streams(void *argument)
{
    struct story *story = argument;
    close(0);
    close(1);
    CHECK_EQ(hf_process_join(domain), HF_OK);
    CHECK(fcntl(0, F_GETFD) == -1 && fcntl(1, F_GETFD) == -1);
    join_and_stay(story);
}

static void lock_file_never_takes_the_place_of_a_standard_stream(void)
{
    struct story *story = new_story();
    pid_t pid = check_fork(join_without_standard_streams, story);
    check_pass(&story->ready);
    CHECK_EQ(hf_process_alive(domain, story->token, 0, 0), 1);
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    end_story(story);
}

static int main_thread_left(void)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
    FILE *file = fopen(path, "re");
    CHECK(file != NULL && fgets(text, sizeof(text), file) != NULL);
    fclose(file);
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && name_end[2] == 'Z';
}

static void *outlive_main(void *argument)
{
    struct story *story = argument;
    while (!main_thread_left()) {
        sched_yield();
    }
    check_open(&story->ready);
    stay();
}

static void leave_main(void *argument)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, outlive_main, argument), 0);
    pthread_exit(NULL);
}

static void process_whose_main_thread_left_still_has_a_start_time(void)
{
    struct story *story = new_story();
    pid_t pid = check_fork(leave_main, story);
    check_pass(&story->ready);
    CHECK(hf_process_start((uint32_t)pid) != 0);
    kill(pid, SIGKILL);
    check_killed(pid, SIGKILL);
    end_story(story);
}

static void start_time_survives_a_hostile_process_name(void)
{
    char old[16];
    uint32_t pid = (uint32_t)getpid();
    uint64_t start = hf_process_start(pid);
    CHECK(start != 0);
    CHECK_EQ(prctl(PR_GET_NAME, old), 0);
    CHECK_EQ(prctl(PR_SET_NAME, ") Z 1 (x) Z"), 0);
    CHECK_EQ(hf_process_start(pid), start);
    CHECK_EQ(prctl(PR_SET_NAME, old), 0);
    CHECK_EQ(hf_process_start(0), 0);
}

static void boot_id_is_the_kernels(void)
{
    uint8_t id[16], again[16];
    CHECK_EQ(hf_boot_id(id), HF_OK);
    CHECK_EQ(hf_boot_id(again), HF_OK);
    CHECK_EQ(memcmp(id, again, sizeof(id)), 0);
    char text[64] = "", hex[3];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    CHECK(file != NULL && fgets(text, sizeof(text), file) != NULL);
    fclose(file);
    snprintf(hex, sizeof(hex), "%02x", id[15]);
    CHECK_EQ(strncmp(hex, text + 34, 2), 0);
    snprintf(hex, sizeof(hex), "%02x", id[0]);
    CHECK_EQ(strncmp(hex, text, 2), 0);
}

static void be_killed_between_create_and_lock(void *argument)
{
    struct story *story = argument;
    story->token = hf_process_token();
    hf_failpoint_arm("process.created=kill@1");
    (void)hf_process_join(domain);
}

static void process_killed_before_its_lock_is_dead(void)
{
    struct story *story = new_story();
    check_killed(check_fork(be_killed_between_create_and_lock, story), SIGKILL);
    CHECK_EQ(hf_process_alive(domain, story->token, 0, 0), 0);
    end_story(story);
}

static void hit_failpoints(void *argument)
{
    (void)argument;
    hf_failpoint_arm("a=errno:ENOSPC@2;b=errno:5;c=kill@3");
    CHECK_EQ(HF_FAIL_STATUS("a"), 0);
    CHECK_EQ(HF_FAIL_STATUS("a"), HF_ERRNO - ENOSPC);
    CHECK_EQ(HF_FAIL_STATUS("a"), 0);
    CHECK_EQ(HF_FAIL_STATUS("b"), HF_ERRNO - EIO);
    CHECK_EQ(HF_FAIL_STATUS("b"), HF_ERRNO - EIO);
    CHECK_EQ(HF_FAIL_STATUS("unknown"), 0);
    HF_FAIL("c");
    HF_FAIL("c");
    hf_failpoint_arm("c=kill@1;b=delay");
    CHECK_EQ(HF_FAIL_STATUS("b"), 0);
    HF_FAIL("c");
}

static void misspell_a_failpoint(void *argument)
{
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    hf_failpoint_arm(argument);
}

static void failpoints_fail_stop_and_kill_where_they_are_told(void)
{
    check_killed(check_fork(hit_failpoints, NULL), SIGKILL);
    char *wrong[] = {"a", "a=", "=kill", "a=kil", "a=errno:EWHAT", "a=kill@0", "a=kill@x"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        check_killed(check_fork(misspell_a_failpoint, wrong[i]), SIGABRT);
    }
}

static void every_status_has_a_name(void)
{
    CHECK_EQ(strcmp(hf_status_name(HF_LAPPED), "HF_LAPPED"), 0);
    CHECK_EQ(strcmp(hf_status_name(HF_ERRNO - EIO), "errno"), 0);
    CHECK_EQ(strcmp(hf_status_name(-500), "unknown"), 0);
    for (int64_t status = 0; status >= HF_HOLE; status--) {
        CHECK_EQ(strncmp(hf_status_name(status), "HF_", 3), 0);
    }
}

int main(void)
{
    domain = check_directory();
    RUN(page_reads_zero_before_the_first_token);
    RUN(token_has_48_random_bits_and_stays);
    RUN(claims_carry_the_token_and_never_a_zero_number);
    RUN(join_makes_one_private_file_per_directory);
    RUN(join_refuses_what_is_not_a_directory);
    RUN(killed_child_is_dead_before_it_is_reaped);
    RUN(stopped_child_is_alive);
    RUN(grandchild_does_not_keep_its_dead_parent_alive);
    RUN(forked_child_gets_a_token_of_its_own_and_leaves_its_parents_lock);
    RUN(bare_clone_reads_a_wiped_page);
    RUN(fork_beside_a_joining_thread_leaves_no_locked_mutex);
    RUN(without_lock_file_pid_and_start_decide);
    RUN(a_process_joins_1024_directories_at_most);
    RUN(lock_file_never_takes_the_place_of_a_standard_stream);
    RUN(process_whose_main_thread_left_still_has_a_start_time);
    RUN(start_time_survives_a_hostile_process_name);
    RUN(boot_id_is_the_kernels);
    RUN(process_killed_before_its_lock_is_dead);
    RUN(failpoints_fail_stop_and_kill_where_they_are_told);
    RUN(every_status_has_a_name);
    return 0;
}
