/* coverage.h: included before everything else where coverage is measured (make coverage). gcc writes its counters when a program ends by
 * exit(); a child that ends by _exit(), or kills itself at a failpoint, writes them first. */
#ifndef HF_COVERAGE_H
#define HF_COVERAGE_H
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

extern void __gcov_dump(void);

static inline __attribute__((noreturn, unused)) void coverage_exit(int status)
{
    __gcov_dump();
    _exit(status);
}

static inline __attribute__((unused)) int coverage_kill(pid_t pid, int signal_number)
{
    if (pid == getpid()) {
        __gcov_dump();
    }
    return kill(pid, signal_number);
}

#define _exit coverage_exit
#define kill coverage_kill
#endif
