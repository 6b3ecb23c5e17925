/* failpoint.c: places where a test may kill, stop, delay or fail a process. Only hf_failpoint_arm, which then does
 * nothing, exists in a release build.
 *
 * Specification: points separated by `;`, each `name=action` (at every hit) or `name=action@N` (at the N-th hit only,
 * from 1). Actions: `kill` (SIGKILL), `stop` (SIGSTOP), `delay` (1 ms), `errno:E` (HF_FAIL_STATUS gives -1000 - E; E a
 * number or one of the names below; the first time it says `failpoint NAME` on stderr), `mutant` (HF_MUTANT is true: a
 * planted bug). Also read from HOLDFAST_FAIL when the library is loaded. A specification that cannot be read aborts: a
 * misspelled one would make a test pass for nothing. Arm before the threads that hit the points start. */
#include "base/failpoint.h"

#ifndef HF_FAILPOINTS

void hf_failpoint_arm(const char *spec)
{
    (void)spec;
}

#else

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/status.h"

enum { POINTS = 32, NAME_BYTES = 48 };
enum action { KILL, STOP, DELAY, FAIL, MUTANT };

struct point {
    char name[NAME_BYTES];
    enum action action;
    int error;
    uint32_t nth;  /* 0 = every hit */
    uint32_t hits; /* counted by all threads */
};

static struct point points[POINTS];
static uint32_t armed; /* how many; stored last (release) */

static const struct {
    const char *name;
    int number;
} errors[] = {
    {"EACCES", EACCES}, {"EAGAIN", EAGAIN}, {"EDQUOT", EDQUOT}, {"EINTR", EINTR},   {"EINVAL", EINVAL},
    {"EIO", EIO},       {"EMFILE", EMFILE}, {"ENOENT", ENOENT}, {"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC},
    {"ENOSYS", ENOSYS}, {"EPERM", EPERM},   {"EROFS", EROFS},
};

static _Noreturn void refuse(const char *spec)
{
    fprintf(stderr, "holdfast: cannot read failpoint specification: %s\n", spec);
    abort();
}

static int number_of(const char *text, const char *spec)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strcmp(text, errors[i].name) == 0) {
            return errors[i].number;
        }
    }
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value <= 0 || value > 1000000000) {
        refuse(spec);
    }
    return (int)value;
}

static void parse(char *text, struct point *point, const char *spec)
{
    char *action = strchr(text, '=');
    if (action == NULL || action == text || action - text >= NAME_BYTES) {
        refuse(spec);
    }
    *action++ = '\0';
    char *nth = strchr(action, '@');
    if (nth != NULL) {
        *nth++ = '\0';
    }
    memset(point, 0, sizeof(*point));
    memcpy(point->name, text, strlen(text) + 1);
    point->nth = nth == NULL ? 0 : (uint32_t)number_of(nth, spec);
    if (strcmp(action, "kill") == 0) {
        point->action = KILL;
    } else if (strcmp(action, "stop") == 0) {
        point->action = STOP;
    } else if (strcmp(action, "delay") == 0) {
        point->action = DELAY;
    } else if (strcmp(action, "mutant") == 0) {
        point->action = MUTANT;
    } else if (strncmp(action, "errno:", 6) == 0) {
        point->action = FAIL;
        point->error = number_of(action + 6, spec);
    } else {
        refuse(spec);
    }
}

void hf_failpoint_arm(const char *spec)
{
    hf_store_release_u32(&armed, 0);
    if (spec == NULL || *spec == '\0') {
        return;
    }
    char *copy = strdup(spec);
    if (copy == NULL) {
        refuse(spec);
    }
    uint32_t count = 0;
    char *rest = NULL;
    for (char *text = strtok_r(copy, ";", &rest); text != NULL; text = strtok_r(NULL, ";", &rest)) {
        if (count == POINTS) {
            refuse(spec);
        }
        parse(text, &points[count++], spec);
    }
    free(copy);
    hf_store_release_u32(&armed, count);
}

__attribute__((constructor)) static void arm_from_environment(void)
{
    hf_failpoint_arm(getenv("HOLDFAST_FAIL"));
}

static int64_t act(const struct point *point, int first)
{
    switch (point->action) {
    case KILL:
        kill(getpid(), SIGKILL);
        pause();
        break;
    case STOP:
        kill(getpid(), SIGSTOP);
        break;
    case DELAY:
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        break;
    case FAIL:
        if (first) {
            dprintf(STDERR_FILENO, "failpoint %s\n", point->name);
        }
        return HF_ERRNO - point->error;
    case MUTANT:
        return 1;
    }
    return 0;
}

int64_t hf_failpoint(const char *name)
{
    uint32_t count = hf_load_acquire_u32(&armed);
    for (uint32_t i = 0; i < count; i++) {
        struct point *point = &points[i];
        if (strcmp(point->name, name) != 0) {
            continue;
        }
        uint32_t hit = hf_add_u32(&point->hits, 1) + 1;
        if (point->nth == 0 || point->nth == hit) {
            return act(point, point->nth != 0 || hit == 1);
        }
    }
    return 0;
}

#endif
