/* mutate.h: mutants of a corpus of inputs (fuzz.h). Deterministic: the same numbers and corpus give the same mutants. */
#ifndef HF_FUZZ_MUTATE_H
#define HF_FUZZ_MUTATE_H
#include <stddef.h>
#include <stdint.h>

struct fuzz_input {
    uint8_t *bytes;
    size_t size;
};

struct fuzz_corpus {
    struct fuzz_input *inputs;
    size_t count;
};

struct fuzz_random {
    uint64_t state;
};

/* A mutant of one input (at times of two) into `out`. Returns its size, at most `room`. */
size_t fuzz_mutate(struct fuzz_random *random, const struct fuzz_corpus *corpus, uint8_t *out, size_t room);
#endif
