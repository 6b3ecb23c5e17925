/* torture_syscalls.c [turns]: a system call of a log's life fails, or the process dies there; then the next one, until the
 * life has no more. What was called stable is there afterwards: for whoever opens the log again, and behind a power cut.
 * Without `turns` only some of the calls are struck; with it all, and every death in that many ways.
 *
 * A sync that fails has dropped what it should have written (power_kit.h): the store is started again, and goes on. What a kill leaves is opened by a process that
 * is killed in its turn, three deep: an opening that was broken off does no harm to the next one. */
#include <stdarg.h>

#include "base/failpoint.h"
#include "power_kit.h"

enum { MESSAGES = 40, REOPENED = 33, DEPTH = 3, OPEN_CALLS = 60, SHORT_WRITE = -1, DIE = 0 };

static int root;
static uint64_t turns, stride = 1;
static int lies; /* the planted bug: what is appended is called stable */

/* ---- calls that fail ---- */

static int counting;       /* the calls of the log, not those of the test */
static uint64_t calls, at; /* the call with this number is struck */
static uint64_t at_too;    /* and this one; 0: none */
static int how;            /* errno, SHORT_WRITE or DIE */

static int strike(void)
{
    if (!counting || (++calls != at && calls != at_too)) {
        return 0;
    }
    if (how == DIE) {
        kill(getpid(), SIGKILL);
        pause();
    }
    errno = how == SHORT_WRITE ? EIO : how;
    return 1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    if (!strike()) {
        return syscall(SYS_pwrite64, fd, data, bytes, offset);
    }
    return how == SHORT_WRITE ? syscall(SYS_pwrite64, fd, data, bytes / 2, offset) : -1;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    return strike() ? -1 : syscall(SYS_pread64, fd, data, bytes, offset);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    if (strike()) {
        return errno;
    }
    return syscall(SYS_fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return strike() ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int openat(int dir, const char *name, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return strike() ? -1 : (int)syscall(SYS_openat, dir, name, flags, mode);
}

int renameat(int from, const char *old, int to, const char *new)
{
    return strike() ? -1 : (int)syscall(SYS_renameat2, from, old, to, new, 0);
}

int unlinkat(int dir, const char *name, int flags)
{
    return strike() ? -1 : (int)syscall(SYS_unlinkat, dir, name, flags);
}

int fstat(int fd, struct stat *out)
{
    return strike() ? -1 : (int)syscall(SYS_fstat, fd, out);
}

#if !defined(__SANITIZE_THREAD__) /* it needs its own before anything else is there */
void *mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && strike()) {
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, where, bytes, protection, flags, fd, offset);
}
#endif

/* ---- a life ---- */

struct told {
    uint64_t stable; /* number behind what was published */
    int lost;        /* the judge's word: something stable is not there */
};

static struct told *told;   /* outlives the process */
static int poisoned;        /* the log said so: it is to be opened again */
static char doubt[64];      /* path; on another disk */
static struct hf_log *left; /* as a store leaves it that is killed: not synced, not closed */

/* Every answer of the log is one of these. HF_GONE: a segment could not be read that could be read just before. */
static int64_t expect_typed(int64_t status)
{
    CHECK(status >= 0 || status == HF_POISONED || status == HF_ROLL || status == HF_GONE || status <= HF_ERRNO);
    poisoned |= status == HF_POISONED;
    return status;
}

static struct hf_log_config config_of(uint32_t level)
{
    struct hf_log_config config = kit_config(level, SEGMENT, SEGMENT, 3 * SEGMENT);
    config.doubt = doubt;
    return config;
}

/* A store tries again when it is told an error. */
static struct hf_log *open_log(int dir, uint32_t level)
{
    struct hf_log *log = NULL;
    struct hf_log_config config = config_of(level);
    for (int again = 0; again < 3 && log == NULL; again++) {
        expect_typed(hf_log_open(dir, &config, &log));
    }
    return log;
}

static void note(const struct hf_log *log)
{
    const struct hf_log_info info = kit_info(log);
    uint64_t next =
        lies ? info.appended_sqn
             : info.next_sqn; /* .damaged may be set in this life: what cannot be read is as good as damaged */
    told->stable = next > told->stable ? next : told->stable;
}

static void append(struct hf_log *log)
{
    static uint8_t block[KIT_BUFFER];
    for (int again = 0; again < 3; again++) {
        uint64_t bytes = kit_block(block, kit_info(log).appended_sqn, 1, 1500, 0);
        int64_t status = expect_typed(hf_log_append(log, block, bytes));
        if (status == HF_OK) {
            break;
        }
        if (status == HF_ROLL) {
            expect_typed(hf_log_roll(log));
        }
    }
    note(log);
}

/* A head's page that could not be written goes, and comes back as it is on the disk: without the flag. */
static void forget_the_flag(int dir)
{
    const uint64_t none = 0;
    int fd = (int)syscall(SYS_openat, dir, "head", O_WRONLY);
    if (fd >= 0) {
        CHECK_EQ(syscall(SYS_pwrite64, fd, &none, sizeof none, offsetof(struct hf_head, poisoned)), sizeof none);
        close(fd);
    }
}

/* Everything that a store does with a log. */
static void work(int dir, uint32_t level)
{
    struct hf_log *log = open_log(dir, level);
    if (log == NULL) {
        return;
    }
    for (int again = 0; again < 2 && expect_typed(hf_log_begin(log, 1, 0)) != HF_OK; again++) {
    }
    for (int i = 0; i < MESSAGES; i++) {
        if (poisoned) { /* then the store is started again */
            poisoned = 0;
            hf_log_close(log);
            if (roll_dice(2) == 0) {
                forget_the_flag(dir);
            }
            log = open_log(dir, level);
            if (log == NULL) {
                return;
            }
        }
        append(log);
        if (i % 5 == 4) {
            expect_typed(hf_log_sync(log));
            note(log);
        }
        if (i % 7 == 3) {
            expect_typed(hf_log_prepare(log));
        }
        if (i == 30) {
            expect_typed(hf_log_release(log, 12));
        }
        if (i == REOPENED) {
            left = log;
            log = open_log(dir, level);
            if (log == NULL) {
                return;
            }
            note(log);
        }
    }
    expect_typed(hf_log_sync(log));
    note(log);
    hf_log_close(log);
}

static void struck_life(int dir, uint32_t level)
{
    calls = 0;
    counting = 1;
    work(dir, level);
    counting = 0;
}

/* ---- judgement ---- */

/* Everything that was called stable and is retained is there, for readers, and for whoever opens the log. */
static void expect_stable(int dir, uint32_t level, const char *where)
{
    struct hf_logr *r;
    uint64_t oldest = 0, next = 0;
    elsewhere = 1;
    int64_t status = hf_logr_open(dir, &r);
    if (status == HF_OK) {
        CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    }
    struct hf_log_config config = config_of(level);
    struct hf_log *log = NULL;
    CHECK_EQ(hf_log_open(dir, &config, &log), HF_OK);
    struct hf_log_info info = kit_info(log);
    if (info.next_sqn < told->stable || info.damaged) {
        told->lost = 1;
        fprintf(stderr, "call %llu, %d, level %u, %s: %llu was stable, the log ends at %llu, damaged %llu\n",
                (unsigned long long)at, how, level, where, (unsigned long long)told->stable,
                (unsigned long long)info.next_sqn, (unsigned long long)info.damaged);
    }
    CHECK_EQ(info.damaged, 0);
    CHECK(info.next_sqn >= told->stable);
    kit_expect(r = status == HF_OK ? r : kit_reader(dir), info.oldest_sqn, info.next_sqn, 0);
    hf_log_close(log);
    hf_logr_close(r);
    elsewhere = 0;
}

static int begin_experiment(const char *name)
{
    new_disk();
    poisoned = 0;
    unlink(doubt);
    *told = (struct told){0};
    return kit_subdirectory(root, name);
}

static void clear_away(int dir)
{
    elsewhere = 1;
    if (left != NULL) {
        hf_log_close(left);
        left = NULL;
    }
    elsewhere = 0;
    close(dir);
}

static uint64_t calls_of_a_life(uint32_t level)
{
    int dir = begin_experiment("count");
    at = at_too = 0;
    struck_life(dir, level);
    CHECK_EQ(told->stable, MESSAGES);
    clear_away(dir);
    kit_empty(root, "count");
    return calls;
}

static uint64_t experiments;

static void one_failure(uint32_t level)
{
    int dir = begin_experiment("life");
    struck_life(dir, level);
    for (int i = 0; i < 2 && level == HF_LEVEL_DISK; i++) {
        int cut = kit_subdirectory(root, "cut");
        cut_power(dir, cut);
        expect_stable(cut, level, "behind a power cut");
        close(cut);
        kit_empty(root, "cut");
    }
    expect_stable(dir, level, "opened again");
    clear_away(dir);
    kit_empty(root, "life");
    experiments++;
}

static void every_call_fails_once(uint32_t level)
{
    static const int errors[] = {EIO, ENOSPC, EINTR, EMFILE, SHORT_WRITE};
    uint64_t all = calls_of_a_life(level);
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++) {
        how = errors[e];
        for (at = 1 + e * 3 % stride; at <= all; at += stride) {
            at_too = roll_dice(2) == 0 ? 0 : at + 1 + roll_dice(60);
            one_failure(level);
        }
    }
    at_too = 0;
}

static void whatever_call_fails_nothing_stable_is_lost(void)
{
    every_call_fails_once(HF_LEVEL_DISK);
    every_call_fails_once(HF_LEVEL_MEMORY);
}

static void lie(void *nothing)
{
    (void)nothing;
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    lies = 1;
    stride = 1;
    every_call_fails_once(HF_LEVEL_DISK);
}

static void believe(void *nothing)
{
    (void)nothing;
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    hf_failpoint_arm("log.believe=mutant");
    stride = 1;
    how = EIO;
    uint64_t all = calls_of_a_life(HF_LEVEL_DISK);
    for (at = 1; at <= all; at++) {
        one_failure(HF_LEVEL_DISK);
    }
}

static int caught;

/* By the judge: another check that fails ends the child as well, and says nothing. */
static void expect_caught(void (*plant)(void *nothing))
{
    told->lost = 0;
    int status = check_wait(check_fork(plant, NULL));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    CHECK(told->lost);
    caught++;
    for (int i = 0; i < 2; i++) {
        if (faccessat(root, i == 0 ? "life" : "cut", F_OK, 0) == 0) {
            kit_empty(root, i == 0 ? "life" : "cut");
        }
    }
}

static void a_store_that_calls_stable_what_is_not_synced_is_caught(void)
{
    expect_caught(lie);
}

static void a_store_that_asks_again_after_a_failed_sync_is_caught(void)
{
    expect_caught(believe);
}

/* ---- deaths ---- */

static uint64_t deaths;

struct victim {
    int dir;
    uint32_t level;
};

static void die_in_life(void *argument)
{
    const struct victim *v = argument;
    struck_life(v->dir, v->level);
}

static void die_in_opening(void *argument)
{
    const struct victim *v = argument;
    calls = 0;
    counting = 1;
    open_log(v->dir, v->level);
}

static void let_die(void (*body)(void *), struct victim *v)
{
    int status = check_wait(check_fork(body, v));
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
    deaths += WIFSIGNALED(status) ? 1 : 0;
}

static void copy_files(int from, int to)
{
    static uint8_t data[FILE_BYTES];
    const struct names names = take_names(from);
    for (int i = 0; i < names.count; i++) {
        int in = openat(from, names.at[i].name, O_RDONLY), out = openat(to, names.at[i].name, O_WRONLY | O_CREAT, 0600);
        ssize_t bytes = read(in, data, sizeof data);
        CHECK(bytes >= 0);
        CHECK_EQ(write(out, data, (size_t)bytes), bytes);
        close(in);
        close(out);
    }
}

static struct hf_log_info info_after_opening(int dir, uint32_t level)
{
    struct hf_log *log = kit_open(dir, config_of(level));
    struct hf_log_info info = kit_info(log);
    hf_log_close(log);
    return info;
}

/* A life dies at `call`, then openings, one after the other; the one that lives finds what a single one would have found. */
static void one_death(uint32_t level, uint64_t call)
{
    struct victim v = {begin_experiment("life"), level};
    elsewhere = 1;
    at = call;
    let_die(die_in_life, &v);
    int copy = kit_subdirectory(root, "cut");
    copy_files(v.dir, copy);
    const struct hf_log_info wanted = info_after_opening(copy, level);
    for (int depth = 0; depth < DEPTH; depth++) {
        at = 1 + roll_dice(1 + roll_dice(OPEN_CALLS)); /* most of them are short */
        let_die(die_in_opening, &v);
    }
    const struct hf_log_info found = info_after_opening(v.dir, level);
    CHECK_EQ(found.next_sqn, wanted.next_sqn);
    CHECK_EQ(found.oldest_sqn, wanted.oldest_sqn);
    CHECK_EQ(found.incarnation, wanted.incarnation);
    CHECK_EQ(found.damaged + wanted.damaged, 0);
    expect_stable(v.dir, level, "after openings that died");
    close(copy);
    close(v.dir);
    kit_empty(root, "cut");
    kit_empty(root, "life");
}

static void openings_that_die_do_no_harm_to_the_next_one(void)
{
    how = DIE;
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        uint64_t all = calls_of_a_life(level);
        for (uint64_t turn = 0; turn < (turns == 0 ? 1 : turns); turn++) {
            for (uint64_t call = 1; call <= all; call += stride) {
                one_death(level, call);
            }
        }
    }
}

int main(int argc, char **argv)
{
    turns = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    stride = turns == 0 ? 29 : 1; /* a fork is dear there */
#else
    stride = turns == 0 ? 7 : 1;
#endif
    files = check_shared(FILES * sizeof *files);
    told = check_shared(sizeof *told);
    root = kit_directory();
    snprintf(doubt, sizeof doubt, "/proc/self/fd/%d/doubt", root);
    sync_fails = strike;
    RUN(a_store_that_calls_stable_what_is_not_synced_is_caught);
    RUN(a_store_that_asks_again_after_a_failed_sync_is_caught);
    if (turns == 0) {
        RUN(whatever_call_fails_nothing_stable_is_lost);
        RUN(openings_that_die_do_no_harm_to_the_next_one);
    } else { /* take as long as they take */
        whatever_call_fails_nothing_stable_is_lost();
        openings_that_die_do_no_harm_to_the_next_one();
    }
    printf("{\"evidence\": \"failing_calls\", \"counts\": {\"calls_failed\": %llu, \"deaths\": %llu}, \"findings\": 0, "
           "\"planted\": [%d, 2]}\n",
           (unsigned long long)experiments, (unsigned long long)deaths, caught);
    return 0;
}
