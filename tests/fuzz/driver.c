/* driver.c: runs a target without libFuzzer: replays a corpus, then mutates it N times or S seconds long, by a seed.
 *
 *     TARGET [--runs N] [--seconds S] [--seed N] [--keep DIR] [--finding FILE] [INPUT | DIR]...
 *     TARGET --seeds DIR                             writes the target's valid objects there
 *     TARGET --merge DIR [INPUT | DIR]...            copies the smallest inputs that reach all that they reach together
 *
 * Where the code under test was compiled with -fsanitize-coverage=trace-pc, an input that reaches something new joins the corpus
 * (and DIR, with --keep); elsewhere mutants are made of the given corpus only. Exit status 0: nothing found; the last line says how
 * much was done. A finding ends the run: its input is written to FILE (default ./finding). */
#include "fuzz.h"
#include "mutate.h"
#include "quick.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CORPUS_MAX = 20000, MAP = 1 << 16, SECONDS_MAX = 2, WAITS_MAX = 30, PATH_BYTES = 600 };
#define LOOK_SECONDS 0.1 /* how often the watch looks */

static struct fuzz_corpus corpus;
static const char *finding = "finding", *keep;
static const uint8_t *current;
static size_t current_size;
static uint64_t kept;
static atomic_ullong steps; /* one when an input begins, one when it ends: odd while it runs */

/* ---- coverage ---- */

static int merging; /* a committed corpus is small: a place counts once, and the smallest inputs come first */

extern const char __executable_start[];
static uint8_t hits[MAP], seen[MAP];
static uint32_t touched[MAP], touched_count;
static uintptr_t before;

/* Called by the compiler's instrumentation at every edge of the code under test; not at all where there is none. */
void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0) - (uintptr_t)__executable_start;
    uint32_t edge = (uint32_t)((here * UINT64_C(0x9e3779b97f4a7c15)) >> 48) ^ (uint32_t)before;
    before = merging ? 0 : edge >> 1;
    if (hits[edge] == 0) {
        touched[touched_count++] = edge;
    }
    hits[edge] = (uint8_t)(hits[edge] + (hits[edge] < 255));
}

/* A bit per order of magnitude of how often an edge was taken. */
static uint8_t bucket(uint8_t count)
{
    uint8_t bit = 0;
    while (count > 1) {
        count >>= 1;
        bit++;
    }
    return (uint8_t)(1u << bit);
}

/* 1: this input did something that none before it did. */
static int take_coverage(void)
{
    int fresh = 0;
    for (uint32_t i = 0; i < touched_count; i++) {
        uint8_t bit = merging ? 1 : bucket(hits[touched[i]]);
        fresh |= (seen[touched[i]] & bit) == 0;
        seen[touched[i]] |= bit;
        hits[touched[i]] = 0;
    }
    touched_count = 0;
    before = 0;
    return fresh;
}

/* ---- findings ---- */

/* What one input frees stays poisoned for far longer than it runs; more would only be cold. Who allocated what is told in full by the
 * build with the kernel, to which a finding goes. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return quick_open == NULL ? "quarantine_size_mb=16" : "quarantine_size_mb=16:malloc_context_size=2";
}

void __sanitizer_set_death_callback(void (*callback)(void));

static void save_finding(void)
{
    int fd = open(finding, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (current != NULL && fd >= 0 && write(fd, current, current_size) == (ssize_t)current_size) {
        fprintf(stderr, "finding: %s, %zu bytes\n", finding, current_size);
    }
    current = NULL;
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Not async-signal-safe, and need not be: the run is over. */
static void on_signal(int number)
{
    (void)number;
    save_finding();
    _exit(1);
}

/* Beside the inputs, which so cost nothing: one that is still the same when it has had its time is a finding. */
static void *watch(void *none)
{
    const struct timespec nap = {.tv_nsec = (long)(LOOK_SECONDS * 1e9)};
    unsigned long long last = 0;
    double spent = 0, since = 0;
    for (;; nanosleep(&nap, NULL)) {
        unsigned long long step = atomic_load(&steps);
        if (step != last || step % 2 == 0) {
            last = step;
            spent = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
            since = seconds_of(CLOCK_MONOTONIC);
        } else if (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - spent >= SECONDS_MAX - LOOK_SECONDS ||
                   seconds_of(CLOCK_MONOTONIC) - since >= WAITS_MAX) {
            fprintf(stderr, "hang: no answer within %d s of the processor's time, or %d s\n", SECONDS_MAX, WAITS_MAX);
            save_finding();
            _exit(1);
        }
    }
    return none;
}

static void run(const uint8_t *data, size_t size)
{
    static int lowest = -1;
    uint8_t *exact = malloc(size == 0 ? 1 : size); /* so that the sanitizer knows where the input ends */
    FUZZ_CHECK(exact != NULL);
    if (size != 0) {
        memcpy(exact, data, size);
    }
    current = exact;
    current_size = size;
    atomic_fetch_add(&steps, 1);
    if (lowest < 0) {
        lowest = dup(0);
        close(lowest);
    }
    int before_it = quick_open == NULL ? 0 : quick_open();
    LLVMFuzzerTestOneInput(exact, size);
    int after = dup(0);
    close(after);
    FUZZ_CHECK(lowest == after); /* else it has left a descriptor open */
    FUZZ_CHECK(quick_open == NULL || quick_open() == before_it);
    atomic_fetch_add(&steps, 1);
    current = NULL;
    free(exact);
}

/* ---- the corpus ---- */

static void add(const uint8_t *data, size_t size)
{
    if (corpus.count == CORPUS_MAX) {
        return;
    }
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    FUZZ_CHECK(copy != NULL);
    if (size != 0) {
        memcpy(copy, data, size);
    }
    corpus.inputs[corpus.count++] = (struct fuzz_input){copy, size};
}

static void write_file(const char *directory, const char *name, const uint8_t *data, size_t size)
{
    char path[PATH_BYTES];
    FUZZ_CHECK(snprintf(path, sizeof path, "%s/%s", directory, name) < PATH_BYTES);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static uint64_t hash(const uint8_t *data, size_t size)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        h = (h ^ data[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

static void keep_input(const uint8_t *data, size_t size)
{
    char name[24];
    kept++;
    if (keep != NULL) {
        snprintf(name, sizeof name, "%016llx", (unsigned long long)hash(data, size));
        write_file(keep, name, data, size);
    }
}

static void load(const char *path)
{
    static uint8_t data[FUZZ_INPUT_MAX];
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        exit(2);
    }
    if (S_ISDIR(st.st_mode)) {
        struct dirent **names;
        int n = scandir(path, &names, NULL, alphasort); /* in one order everywhere: a seed means the same run */
        for (int i = 0; i < n; i++) {
            char inner[PATH_BYTES];
            if (names[i]->d_name[0] != '.' &&
                snprintf(inner, sizeof inner, "%s/%s", path, names[i]->d_name) < PATH_BYTES) {
                load(inner);
            }
            free(names[i]);
        }
        free(names);
        return;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, data, sizeof data);
    FUZZ_CHECK(size >= 0);
    close(fd);
    add(data, (size_t)size);
}

/* Ends after this many runs and this many seconds, whatever comes first; 0: no such limit. */
static uint64_t mutate(uint64_t runs, double seconds, uint64_t seed)
{
    static uint8_t mutant[FUZZ_INPUT_MAX];
    struct fuzz_random random = {seed};
    uint64_t executions = 0;
    double end = seconds > 0 ? seconds_of(CLOCK_MONOTONIC) + seconds : 0;
    for (; (runs == 0 || executions < runs) && (end == 0 || seconds_of(CLOCK_MONOTONIC) < end); executions++) {
        size_t size = fuzz_mutate(&random, &corpus, mutant, sizeof mutant);
        run(mutant, size);
        if (take_coverage()) {
            add(mutant, size);
            keep_input(mutant, size);
        }
    }
    return executions;
}

static int by_size(const void *a, const void *b)
{
    size_t x = ((const struct fuzz_input *)a)->size, y = ((const struct fuzz_input *)b)->size;
    return x < y ? -1 : x > y;
}

static void write_seeds(const char *directory)
{
    static uint8_t data[FUZZ_INPUT_MAX];
    for (unsigned i = 0;; i++) {
        char name[24];
        size_t size = fuzz_seed(i, data, sizeof data);
        if (size == 0) {
            return;
        }
        snprintf(name, sizeof name, "seed-%u", i);
        write_file(directory, name, data, size);
    }
}

int main(int count, char **arguments)
{
    double seconds = 0;
    uint64_t seed = 1, runs = 0;
    corpus.inputs = calloc(CORPUS_MAX, sizeof *corpus.inputs);
    FUZZ_CHECK(corpus.inputs != NULL);
    for (int i = 1; i < count; i++) {
        const char *word = arguments[i], *value = i + 1 < count ? arguments[i + 1] : "";
        i += strncmp(word, "--", 2) == 0;
        if (strcmp(word, "--seeds") == 0) {
            write_seeds(value);
            return 0;
        } else if (strcmp(word, "--seconds") == 0) {
            seconds = atof(value);
        } else if (strcmp(word, "--runs") == 0) {
            runs = strtoull(value, NULL, 10);
        } else if (strcmp(word, "--seed") == 0) {
            seed = strtoull(value, NULL, 10);
        } else if (strcmp(word, "--keep") == 0) {
            keep = value;
        } else if (strcmp(word, "--merge") == 0) {
            keep = value;
            merging = 1;
        } else if (strcmp(word, "--finding") == 0) {
            finding = value;
        } else if (strncmp(word, "--", 2) == 0) {
            fprintf(stderr, "unknown option %s\n", word);
            return 2;
        } else {
            load(word);
        }
    }
    __sanitizer_set_death_callback(save_finding);
    signal(SIGABRT, on_signal);
    pthread_t watcher;
    FUZZ_CHECK(pthread_create(&watcher, NULL, watch, NULL) == 0);
    current = (const uint8_t *)"";
    LLVMFuzzerTestOneInput(current, 0); /* what it opens once and for all */
    size_t given = corpus.count;
    if (merging) {
        qsort(corpus.inputs, given, sizeof *corpus.inputs, by_size);
    }
    for (size_t i = 0; i < given; i++) {
        run(corpus.inputs[i].bytes, corpus.inputs[i].size);
        if (take_coverage()) {
            keep_input(corpus.inputs[i].bytes, corpus.inputs[i].size);
        }
    }
    uint64_t executions = given > 0 && (runs > 0 || seconds > 0) ? mutate(runs, seconds, seed) : 0;
    printf("{\"replayed\": %zu, \"executions\": %llu, \"kept\": %llu}\n", given, (unsigned long long)executions,
           (unsigned long long)kept);
    for (size_t i = 0; i < corpus.count; i++) {
        free(corpus.inputs[i].bytes);
    }
    free(corpus.inputs);
    return 0;
}
