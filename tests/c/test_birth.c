/* When a file was made: the same as long as it is that file, and another one for a copy. */
#include "base/birth.h"
#include "base/status.h"
#include "check.h"

static int directory;

static int64_t birth_of(const char *name, int flags)
{
    int64_t ns = -1;
    int fd = openat(directory, name, flags | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(hf_file_birth(fd, &ns), HF_OK);
    CHECK(close(fd) == 0);
    return ns;
}

static void a_file_keeps_its_birth_whatever_is_written_and_however_it_is_called(void)
{
    int64_t born = birth_of("one", O_RDWR | O_CREAT);
    int fd = openat(directory, "one", O_RDWR | O_CLOEXEC);
    CHECK_EQ(write(fd, "x", 1), 1);
    CHECK(close(fd) == 0);
    CHECK(renameat(directory, "one", directory, "renamed") == 0);
    CHECK_EQ(birth_of("renamed", O_RDONLY), born);
}

static void a_later_file_was_born_later(void)
{
    int64_t first = birth_of("first", O_RDWR | O_CREAT), later = first;
    if (first == 0) {
        SKIP("this file system keeps no births");
    }
    for (int i = 0; later == first; i++) { /* the clock of births may tick slowly */
        char name[32];
        snprintf(name, sizeof name, "later-%d", i);
        later = birth_of(name, O_RDWR | O_CREAT);
    }
    CHECK(later > first);
}

static void what_is_no_descriptor_has_none(void)
{
    int64_t ns = -1;
    CHECK_EQ(hf_file_birth(-1, &ns), HF_ERRNO - EBADF);
    CHECK_EQ(ns, 0);
}

int main(void)
{
    directory = check_directory();
    RUN(a_file_keeps_its_birth_whatever_is_written_and_however_it_is_called);
    RUN(what_is_no_descriptor_has_none);
    RUN(a_later_file_was_born_later);
    return 0;
}
