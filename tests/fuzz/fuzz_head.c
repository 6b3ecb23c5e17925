/* fuzz_head.c: the head of a log whose segments are right. */
#include "log_object.h"

enum { LOGS = 3 };

/* An input is a head, and a byte that says beside which of these logs it lies. */
static struct fuzz_image logs[LOGS];

static void prepare_logs(void)
{
    for (unsigned i = 0; i < LOGS && logs[i].objects == 0; i++) {
        logs[i] = log_image();
        FUZZ_CHECK(log_valid(i, &logs[i]));
    }
}

static struct fuzz_image head_image(void)
{
    struct fuzz_image image = {0};
    fuzz_object(&image, LOG_HEAD_BYTES);
    fuzz_object(&image, 1); /* which log */
    return image;
}

size_t fuzz_seed(unsigned number, uint8_t *out, size_t room)
{
    if (number >= 2 * LOGS) { /* the same again, in layout version 1 */
        return 0;
    }
    prepare_logs();
    struct fuzz_image image = head_image();
    memcpy(image.bytes[0], logs[number % LOGS].bytes[LOG_HEAD], LOG_HEAD_BYTES);
    image.bytes[1][0] = (uint8_t)(number % LOGS);
    if (number >= LOGS) {
        log_head_v1(image.bytes[0]);
    }
    size_t size = fuzz_write(&image, LOG_MEND_ALL, out, room);
    free(image.bytes[0]);
    free(image.bytes[1]);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_image image, before;
    if (image.objects == 0) {
        prepare_logs();
        image = head_image();
    }
    unsigned flags = fuzz_read(&image, data, size);
    struct fuzz_image *log = &logs[image.bytes[1][0] % LOGS];
    before = *log;
    log->bytes[LOG_HEAD] = image.bytes[0];
    log->size[LOG_HEAD] = image.size[0];
    log_mend(log, flags);
    log_exercise(log, flags);
    *log = before;
    return 0;
}
