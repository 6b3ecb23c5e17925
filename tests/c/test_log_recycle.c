/* A memory log at its limit rolls into what it has: the same files, mapped as they were. What a log has open. */
#include "log_kit.h"

#include <sys/stat.h>

enum { MESSAGE = 900, SEGMENT = 32768, FILES = 4, ROLLS = 40 };

static int dir;

static ino_t newest(void)
{
    struct stat st;
    char name[256] = "";
    DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY));
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (strncmp(e->d_name, "seg-", 4) == 0 && strcmp(e->d_name, name) > 0) {
            snprintf(name, sizeof name, "%s", e->d_name);
        }
    }
    CHECK_EQ(fstatat(dir, name, &st, 0), 0);
    closedir(d);
    return st.st_ino;
}

/* Writable mappings of the log's segments: where each begins, ascending. */
static int mappings(unsigned long *out)
{
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps) != NULL) {
        if (strstr(line, check_directory_path()) != NULL && strstr(line, "rw-s") != NULL &&
            (strstr(line, "/seg-") != NULL || strstr(line, "/spare") != NULL)) {
            CHECK(n < 2 * FILES);
            CHECK(sscanf(line, "%lx", &out[n++]) == 1);
        }
    }
    fclose(maps);
    return n;
}

static void a_full_memory_log_makes_neither_files_nor_mappings(void)
{
    struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, SEGMENT, SEGMENT, FILES * SEGMENT));
    CHECK_EQ(hf_log_begin(log, 1, 0), HF_OK);
    ino_t seen[ROLLS];
    unsigned long before[2 * FILES], after[2 * FILES];
    uint64_t sqn = 0;
    int rolls = 0, mapped = 0;
    while (rolls < ROLLS) {
        kit_append(log, sqn++, 1, MESSAGE, 1);
        ino_t now = newest();
        if (rolls > 0 && now == seen[rolls - 1]) {
            continue;
        }
        int known = 0;
        for (int i = 0; i < rolls; i++) {
            known |= seen[i] == now;
        }
        CHECK_EQ(known, rolls > FILES); /* one file more than the limit's: the spare */
        seen[rolls++] = now;
        if (rolls == FILES + 2) {
            mapped = mappings(before);
        }
    }
    CHECK_EQ(mapped, FILES + 1);
    CHECK_EQ(mappings(after), mapped);
    CHECK(memcmp(before, after, (size_t)mapped * sizeof *before) == 0);
    struct hf_logr *r = kit_reader(dir);
    CHECK_EQ(hf_log_sync(log), HF_OK);
    uint64_t oldest, next;
    CHECK_EQ(hf_logr_range(r, &oldest, &next), HF_OK);
    CHECK_EQ(next, sqn);
    kit_expect(r, oldest, next, 1);
    hf_logr_close(r);
    hf_log_close(log);
    CHECK_EQ(mappings(after), 0);
}

static void another_life_writes_the_same_files_again(void)
{
    for (int life = 0; life < 3; life++) { /* what was there is not mapped: it comes by the helper's way */
        struct hf_log *log = kit_open(dir, kit_config(HF_LEVEL_MEMORY, SEGMENT, SEGMENT, FILES * SEGMENT));
        uint64_t sqn = kit_info(log).appended_sqn;
        for (uint64_t i = 0; i < 300; i++) {
            kit_append(log, sqn + i, 1, MESSAGE, 1);
            CHECK(hf_log_prepare(log) >= 0);
        }
        CHECK_EQ(hf_log_sync(log), HF_OK);
        struct hf_logr *r = kit_reader(dir);
        kit_expect(r, kit_info(log).oldest_sqn, sqn + 300, 1);
        hf_logr_close(r);
        hf_log_close(log);
        CHECK_EQ(kit_findings(dir, &(struct hf_check_summary){0}), 0);
    }
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d) != NULL) {
        n++;
    }
    closedir(d);
    return n;
}

static void a_log_counts_its_descriptors(void)
{
    for (uint32_t level = HF_LEVEL_MEMORY; level <= HF_LEVEL_DISK; level++) {
        int own = kit_subdirectory(dir, level == HF_LEVEL_DISK ? "disk" : "memory"), others = open_files();
        struct hf_log *log = kit_open(own, kit_config(level, 16384, 16384, 65536));
        CHECK_EQ(hf_log_files(log), open_files() - others);
        CHECK_EQ(hf_log_prepare(log), 1);
        CHECK_EQ(hf_log_files(log), HF_LOG_FILES - 1); /* the first segment comes with the first message */
        for (uint64_t n = 0; n < 3000; n += 100) {     /* with rolls, and segments that go */
            kit_append(log, n, 100, 90, 0);
            CHECK_EQ(hf_log_sync(log), HF_OK);
            hf_log_prepare(log);
            CHECK_EQ(hf_log_files(log), HF_LOG_FILES);
            CHECK_EQ(hf_log_files(log), open_files() - others);
        }
        hf_log_close(log);
        CHECK_EQ(open_files(), others);
        close(own);
    }
}

int main(void)
{
    dir = kit_directory();
    RUN(a_full_memory_log_makes_neither_files_nor_mappings);
    RUN(another_life_writes_the_same_files_again);
    RUN(a_log_counts_its_descriptors);
    return 0;
}
