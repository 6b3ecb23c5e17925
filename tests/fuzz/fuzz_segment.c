/* fuzz_segment.c: a log's whole directory: head, two segments, a fill, their names and sizes. */
#include "log_object.h"

size_t fuzz_seed(unsigned number, uint8_t *out, size_t room)
{
    struct fuzz_image image = log_image();
    size_t size = 0;
    if (number < 6 && log_valid(number % 3, &image)) {
        size = fuzz_write(&image, LOG_MEND_ALL | (number >= 3 ? LOG_MEMORY | LOG_BUSY : 0), out, room);
    }
    for (unsigned i = 0; i < image.objects; i++) {
        free(image.bytes[i]);
    }
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_image image;
    if (image.objects == 0) {
        image = log_image();
    }
    unsigned flags = fuzz_read(&image, data, size);
    log_mend(&image, flags);
    log_exercise(&image, flags);
    return 0;
}
