/* log_object.h: a log's directory as an image (fuzz.h), and all that one may do to it. */
#ifndef HF_FUZZ_LOG_OBJECT_H
#define HF_FUZZ_LOG_OBJECT_H
#include "fuzz.h"

/* The objects, in this order. LOG_NAMES: base position of the second segment, first and next number of the fill, 8 bytes each. */
enum { LOG_HEAD, LOG_FIRST, LOG_SECOND, LOG_FILL, LOG_NAMES, LOG_OBJECTS };
enum { LOG_HEAD_BYTES = 12288, LOG_SEGMENT_BYTES = 16384, LOG_DATA = 8192 };
/* What the flags of an input ask for. BUSY: the store's other calls too. */
enum log_flag {
    LOG_MEND_HEADERS = 1, /* the environment's words of preambles; checksums of headers and fills */
    LOG_MEND_FRAMES = 2,  /* positions and checksums of frames, as far as their lengths chain */
    LOG_MEND_SEALS = 4,   /* checksums of seals and indexes */
    LOG_MEND_HEAD = 8,    /* of its table; end_check */
    LOG_MEMORY = 16,
    LOG_READ_ONLY = 32,
    LOG_BUSY = 64,
};
enum { LOG_MEND_ALL = LOG_MEND_HEADERS | LOG_MEND_FRAMES | LOG_MEND_SEALS | LOG_MEND_HEAD };

struct fuzz_image log_image(void);
/* A valid log, by number: the bytes are always the same. 0: there is no such one. */
int log_valid(unsigned number, struct fuzz_image *out);
void log_mend(struct fuzz_image *image, unsigned flags);
void log_head_v1(uint8_t *file); /* a valid head becomes one of layout version 1 */
/* Writes the directory, checks it, reads it, opens it, appends, and does it again. */
void log_exercise(const struct fuzz_image *image, unsigned flags);
/* A new directory for a log, in memory; where there is one, that of quick.h. */
int log_directory(void);
void log_empty(int dir); /* removes every file in it */
#endif
