/* bench.c: runs the cases that its arguments name, interleaved, and prints one JSON line per run (bench.h). */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

static const struct bench_case *const tables[] = {limit_cases, disk_cases,  stream_cases, log_cases, store_cases,
                                                  fan_cases,   scale_cases, path_cases,   tail_cases};
enum { TABLES = sizeof tables / sizeof tables[0], PROBE_BLOCKS = 64, CLOCK_READS = 10000 };

void bench_die(const char *what, int64_t status)
{
    if (status <= HF_ERRNO) {
        fprintf(stderr, "bench: %s: %s\n", what, strerror((int)(HF_ERRNO - status)));
    } else {
        fprintf(stderr, "bench: %s: %s (%lld)\n", what, hf_status_name(status), (long long)status);
    }
    exit(1);
}

int64_t bench_must(int64_t status, const char *what)
{
    if (status < 0) {
        bench_die(what, status);
    }
    return status;
}

void bench_usage(const char *why)
{
    fprintf(
        stderr,
        "bench: %s\nusage: bench [--cores 0,1] [--memory DIR] [--disk DIR] [--probes no] RUNS CASE[:ARGUMENT...]...\n",
        why);
    for (int t = 0; t < TABLES; t++) {
        for (const struct bench_case *c = tables[t]; c->name != NULL; c++) {
            fprintf(stderr, "  %s%s\n", c->name, c->usage);
        }
    }
    exit(2);
}

uint64_t bench_number(const struct words *words, int index, uint64_t otherwise)
{
    if (index >= words->count) {
        return otherwise;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(words->word[index], &end, 10);
    if (errno != 0 || *end != '\0' || end == words->word[index]) {
        bench_usage("a number was expected");
    }
    return value;
}

const char *bench_word(const struct words *words, int index, const char *otherwise)
{
    return index < words->count ? words->word[index] : otherwise;
}

int bench_choice(const struct words *words, int index, const char *const *names, int count)
{
    const char *word = bench_word(words, index, names[0]);
    for (int i = 0; i < count; i++) {
        if (strcmp(word, names[i]) == 0) {
            return i;
        }
    }
    bench_usage("an argument is none of the known words");
}

int64_t bench_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t bench_cpu(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t bench_cpu_share(void)
{
    int64_t start = bench_cpu();
    for (int i = 0; i < CLOCK_READS; i++) {
        (void)bench_cpu();
    }
    return (bench_cpu() - start) / (CLOCK_READS + 1);
}

void bench_pin(const struct bench *bench, int index)
{
    if (bench->core_count == 0) {
        return;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)bench->cores[index % bench->core_count], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        bench_die("sched_setaffinity", HF_ERRNO - errno);
    }
}

int bench_alone(const struct bench *bench, int threads)
{
    return bench->core_count >= threads;
}

void *bench_memory(uint64_t bytes)
{
    uint64_t rounded = (bytes + 4095) / 4096 * 4096;
    void *memory = aligned_alloc(4096, rounded);
    if (memory == NULL) {
        bench_die("memory", HF_ERRNO - ENOMEM);
    }
    return memset(memory, 0x5a, rounded);
}

void histogram_record(struct histogram *histogram, uint64_t ns)
{
    uint32_t shift = ns < 2 * BENCH_SUB ? 0 : 63U - (uint32_t)__builtin_clzll(ns) - 7;
    histogram->count[shift * BENCH_SUB + (ns >> shift)]++;
    histogram->total++;
    histogram->highest = ns > histogram->highest ? ns : histogram->highest;
}

static uint64_t bucket_low(uint32_t bucket)
{
    uint32_t shift = bucket < 2 * BENCH_SUB ? 0 : bucket / BENCH_SUB - 1;
    return (uint64_t)(bucket - shift * BENCH_SUB) << shift;
}

uint64_t histogram_quantile(const struct histogram *histogram, double q)
{
    uint64_t below = 0;
    uint64_t wanted = (uint64_t)((double)histogram->total * q);
    for (uint32_t i = 0; i < BENCH_BUCKETS; i++) {
        below += histogram->count[i];
        if (below > wanted) {
            return bucket_low(i);
        }
    }
    return histogram->highest;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return count == 0 ? 0 : (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void *thread_main(void *arg)
{
    struct bench_thread *thread = arg;
    bench_pin(thread->bench, thread->core);
    hf_store_release_u32(&thread->ready, 1); /* pairs with bench_start */
    thread->body(thread->arg);
    return NULL;
}

void bench_start(struct bench_thread *thread, const struct bench *bench, int core, void (*body)(void *), void *arg)
{
    *thread = (struct bench_thread){.bench = bench, .body = body, .arg = arg, .core = core};
    int error = pthread_create(&thread->thread, NULL, thread_main, thread);
    if (error != 0) {
        bench_die("pthread_create", HF_ERRNO - error);
    }
    while (hf_load_acquire_u32(&thread->ready) == 0) {
        (void)sched_yield();
    }
}

void bench_join(struct bench_thread *thread)
{
    (void)pthread_join(thread->thread, NULL);
}

static void print_sample(const char *name, uint64_t run, double before, double after, const struct sample *sample)
{
    printf("{\"case\": \"%s\", \"run\": %llu, \"value\": %.6g, \"unit\": \"%s\", \"bytes\": %llu, \"count\": %llu, "
           "\"flight\": %llu, \"probe_ns\": [%.1f, %.1f], \"histogram\": [",
           name, (unsigned long long)run, sample->value, sample->unit, (unsigned long long)sample->bytes,
           (unsigned long long)sample->count, (unsigned long long)sample->flight, before, after);
    const char *comma = "";
    for (uint32_t i = 0; sample->latencies != 0 && i < BENCH_BUCKETS; i++) {
        if (sample->histogram.count[i] != 0) {
            printf("%s[%llu, %u]", comma, (unsigned long long)bucket_low(i), sample->histogram.count[i]);
            comma = ", ";
        }
    }
    printf("]}\n");
    (void)fflush(stdout);
}

static const struct bench_case *find(const char *name)
{
    for (int t = 0; t < TABLES; t++) {
        for (const struct bench_case *c = tables[t]; c->name != NULL; c++) {
            if (strcmp(c->name, name) == 0) {
                return c;
            }
        }
    }
    bench_usage("unknown case");
}

static void run_case(const struct bench *bench, const char *text, uint64_t run)
{
    static struct sample sample; /* too large for a stack */
    char *copy = strdup(text);
    struct words words = {0};
    for (char *rest = copy, *word; (word = strsep(&rest, ":")) != NULL;) {
        if (words.count == BENCH_WORDS) {
            bench_usage("too many arguments in a case");
        }
        words.word[words.count++] = word;
    }
    const struct bench_case *c = find(words.word[0]);
    memset(&sample, 0, sizeof sample);
    bench_pin(bench, 0);
    double before = bench->bare != 0 ? 0 : line_round_trip(bench, PROBE_BLOCKS, NULL);
    c->run(bench, &words, &sample);
    double after = bench->bare != 0 ? 0 : line_round_trip(bench, PROBE_BLOCKS, NULL);
    print_sample(text, run, before, after, &sample);
    free(copy);
}

static void read_cores(struct bench *bench, char *list)
{
    for (char *word; (word = strsep(&list, ",")) != NULL && *word != '\0';) {
        char *end = NULL;
        long core = strtol(word, &end, 10);
        if (*end != '\0' || core < 0 || core >= CPU_SETSIZE || bench->core_count == 16) {
            bench_usage("--cores takes up to 16 numbers separated by commas");
        }
        bench->cores[bench->core_count++] = (int)core;
    }
}

int main(int argc, char **argv)
{
    struct bench bench = {.memory_dir = NULL};
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--cores") == 0) {
            read_cores(&bench, argv[at + 1]);
        } else if (strcmp(argv[at], "--memory") == 0) {
            bench.memory_dir = argv[at + 1];
        } else if (strcmp(argv[at], "--disk") == 0) {
            bench.disk_dir = argv[at + 1];
        } else if (strcmp(argv[at], "--probes") == 0) {
            bench.bare = strcmp(argv[at + 1], "no") == 0;
        } else {
            bench_usage("unknown option");
        }
    }
    if (argc - at < 2) {
        bench_usage("RUNS and at least one CASE are needed");
    }
    struct words runs = {.count = 1, .word = {argv[at]}};
    for (uint64_t run = 0, end = bench_number(&runs, 0, 0); run < end; run++) {
        for (int i = at + 1; i < argc; i++) {
            run_case(&bench, argv[i], run);
        }
    }
    return 0;
}
