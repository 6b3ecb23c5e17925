/* tell.c: what a store writes into its log's head, a word at a time and in the order of its calls; and its
 * syncs. Where one of them fails, the log is poisoned (poison.c).
 *
 * A log at level disk writes with pwrite: a store through a mapping, on a file system that was remounted read-only after an error
 * (errors=remount-ro), is SIGBUS, which ends the store with all its other logs. Its own mapping of the head is to read, and shows
 * what was written: both are the same pages. Who cannot write there publishes nothing any more: the log is poisoned, and the next
 * open writes a new head. A log at level memory stores through its mapping, as it does into its segments. */
#include "log/writer.h"
#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/sync.h"
#include "log/head.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int64_t put(const struct hf_log *log, const void *place, const void *value, uint64_t bytes)
{
    int64_t failed = HF_FAIL_STATUS("head.pwrite");
    if (failed != 0) {
        return failed;
    }
    off_t at = (const uint8_t *)place - (const uint8_t *)log->head;
    ssize_t n;
    do {
        n = pwrite(log->head_fd, value, bytes, at);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)bytes ? HF_OK : n < 0 ? hf_errno() : HF_ERRNO - EIO;
}

static void tell_poison(struct hf_log *log, uint64_t word)
{
    /* Best effort: the doubt lies on another device. Never through the mapping: a disk that fails may be read-only by now. */
    (void)put(log, &log->head->poisoned, &word, sizeof word);
}

int hf_log_poisoned(const struct hf_log *log)
{
    return hf_load_relaxed_u32(&log->poisoned) != 0 || hf_load_acquire_u64(&log->head->poisoned) != 0;
}

int64_t hf_log_poison(struct hf_log *log)
{
    hf_store_relaxed_u32(&log->poisoned, 1);
    if (log->head != NULL) {
        tell_poison(log, hf_doubt_word());
    }
    if (log->config.doubt != NULL) {
        (void)hf_doubt_set(log->config.doubt);
    }
    return HF_POISONED;
}

int64_t hf_log_durable(struct hf_log *log, int fd, uint32_t what)
{
    int64_t status = hf_sync(fd, what);
    if (status != HF_OK && HF_MUTANT("log.believe")) { /* an error like another: the next sync is believed */
        return status;
    }
    return status == HF_OK ? HF_OK : hf_log_poison(log);
}

static void tell(struct hf_log *log, void *place, const void *value, uint64_t bytes)
{
    if (hf_load_relaxed_u32(&log->poisoned)) { /* what came before is not there: a later word must not speak of it */
        return;
    }
    if (put(log, place, value, bytes) != HF_OK) {
        hf_log_poison(log);
    }
}

void hf_log_tell(struct hf_log *log, uint64_t *word, uint64_t value)
{
    if (hf_log_on_disk(log)) {
        tell(log, word, &value, sizeof value);
    } else {
        hf_store_release_u64(word, value); /* pairs with the two reads of hf_head_look, of another process */
    }
}

void hf_log_tell_on_disk(struct hf_log *log, uint64_t *word, uint64_t value)
{
    tell(log, word, &value, sizeof value);
}

void hf_log_tell_bytes(struct hf_log *log, void *place, const void *bytes, uint64_t n)
{
    if (hf_log_on_disk(log)) {
        tell(log, place, bytes, n);
    } else {
        memcpy(place, bytes, n);
    }
}

void hf_log_tell_begins(struct hf_log *log)
{
    struct hf_begin_table t;
    hf_head_begins_page(log->generation, log->begins, log->begin_count, &t);
    hf_log_tell_bytes(log, (uint8_t *)log->head + HF_HEADER_PAGE * (1 + log->generation % 2), &t, sizeof t);
}

void hf_log_publish(struct hf_log *log)
{
    struct hf_head *head = log->head;
    uint64_t end[2] = {log->end, log->end ^ hf_head_mask(head)};
    if (hf_log_on_disk(log)) {
        hf_log_tell_bytes(log, &head->end, end, sizeof end); /* torn, the smaller one counts: it was published before */
    } else {
        hf_store_release_u64(&head->end_check, end[1]);
        hf_store_release_u64(&head->end, end[0]); /* pairs with hf_head_look */
    }
    hf_log_tell(log, &head->next_sqn, log->appended_sqn);
    log->synced = log->end;
}
