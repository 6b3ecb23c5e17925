/* test_log_failed_reads.c: each read of an open, a walk, a reader and a check fails once. Nothing that was stable is cut or taken
 * for a torn tail. */
#include "base/failpoint.h"
#include "sector_kit.h"

#include <sys/wait.h>

static void each_read_of_an_open_may_fail_and_nothing_stable_goes(void)
{
    for (int n = 1;; n++) {
        int dir = a_stale_log(20);
        struct hf_log *log = NULL;
        struct hf_log_config c = config();
        struck = 0;
        error_of_nth = EIO;
        nth = n;
        int64_t status = hf_log_open(dir, &c, &log);
        nth = 0;
        CHECK(status == HF_OK || status == HF_DAMAGED || status == HF_GONE || status <= HF_ERRNO);
        if (status == HF_OK) {
            CHECK_EQ(kit_info(log).cut_bytes, 0);
            CHECK(kit_info(log).next_sqn >= 20 || kit_info(log).unsure);
            CHECK(kit_info(log).next_sqn >= 20 || kit_info(log).unsure_next >= 20);
            hf_log_close(log);
        }
        log = kit_open(dir, config()); /* once more, all is well */
        CHECK(kit_info(log).next_sqn >= 20 || kit_info(log).unsure_next >= 20);
        uint64_t next = kit_info(log).next_sqn;
        CHECK_EQ(read_around(dir, next), 0);
        hf_log_close(log);
        finish(dir);
        if (!struck) {
            CHECK(n > 4);
            return;
        }
    }
}

static void each_read_of_a_walk_may_fail_and_nothing_is_taken_for_torn(void)
{
    int dir = a_stale_log(90);
    for (int n = 1; n == 1 || struck; n++) {
        struct hf_logr *r = NULL;
        uint64_t next = 0;
        struck = 0;
        error_of_nth = EIO;
        nth = n;
        int64_t status = hf_logr_open(dir, &r);
        status = status == HF_OK ? hf_logr_end(r, &next) : status;
        nth = 0;
        CHECK(status == HF_OK ? next == 90 : struck && (status == HF_DAMAGED || status == HF_ERRNO - EIO));
        if (r != NULL) {
            hf_logr_close(r);
        }
        CHECK_EQ(end_as_told(dir, HF_OK), 90);
    }
    finish(dir);
}

static void each_read_of_an_open_without_memory_says_so(void)
{
    for (int n = 1;; n++) {
        int dir = a_stale_log(20);
        struct hf_log *log = NULL;
        struct hf_log_config c = config();
        struck = 0;
        error_of_nth = ENOMEM;
        nth = n;
        int64_t status = hf_log_open(dir, &c, &log);
        nth = 0;
        CHECK_EQ(status, struck ? HF_ERRNO - ENOMEM : HF_OK);
        if (status == HF_OK) {
            hf_log_close(log);
        }
        log = kit_open(dir, config());
        CHECK_EQ(kit_info(log).next_sqn, 20);
        CHECK_EQ(kit_info(log).unsure, 0);
        hf_log_close(log);
        CHECK_EQ(read_around(dir, 20), 0);
        finish(dir);
        if (!struck) {
            return;
        }
    }
}

static void each_read_of_a_reader_and_a_check_may_fail(void)
{
    static uint8_t buf[KIT_BUFFER];
    int dir = fresh(), reads = 0;
    struct hf_log *log = kit_open(dir, config());
    grow(log, 0, 90);
    hf_log_close(log);
    for (struck = 1; struck; reads++) {
        struct hf_logr *r = NULL;
        struct hf_check_summary sum;
        struck = 0;
        error_of_nth = EIO;
        nth = reads + 1;
        int64_t status = hf_logr_open(dir, &r);
        uint64_t next = 0;
        for (uint64_t at = 0; status >= 0 && at < 90; at = next) {
            status = hf_logr_read(r, at, buf, sizeof buf, &next);
            CHECK(status > 0 || status == HF_DAMAGED || status == HF_ERRNO - EIO);
            CHECK(status < 0 || kit_verify(buf, status, at, 0) == next);
        }
        int met = struck;
        nth = 0;
        if (r != NULL) { /* what failed once is read the next time */
            kit_expect(r, 0, 90, 0);
            hf_logr_close(r);
        }
        struck = 0;
        nth = reads + 1;
        status = kit_findings(dir, &sum);
        CHECK(status >= 0 || status == HF_ERRNO - EIO);
        CHECK(struck || status == 0);
        nth = 0;
        struck |= met;
    }
    CHECK(reads > 8);
    finish(dir);
}

/* ---- a bug that these tests must find ---- */

static void with_a_bug(void *argument)
{
    (void)argument;
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    hf_failpoint_arm("log.unread_is_torn=mutant");
    each_read_of_a_walk_may_fail_and_nothing_is_taken_for_torn();
}

static void an_unread_end_that_is_taken_for_torn_is_found(void)
{
    int status = check_wait(check_fork(with_a_bug, NULL));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

int main(void)
{
    parent = kit_directory();
    RUN(each_read_of_an_open_may_fail_and_nothing_stable_goes);
    RUN(each_read_of_a_walk_may_fail_and_nothing_is_taken_for_torn);
    RUN(each_read_of_an_open_without_memory_says_so);
    RUN(each_read_of_a_reader_and_a_check_may_fail);
    RUN(an_unread_end_that_is_taken_for_torn_is_found);
    return 0;
}
