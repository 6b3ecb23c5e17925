/* fuzz.h: what a target is, and what its inputs look like.
 *
 * A target is one C file with the two functions below; libFuzzer or driver.c calls them. It must take any bytes: a crash, a
 * sanitizer's report, a FUZZ_CHECK that fails, a lost descriptor, or two seconds without an answer is a finding.
 *
 * An input is a byte of flags and edits, written over zeros: so a file of 16 KiB with a dozen frames is a few hundred bytes, and
 * a mutant that appends an edit changes a field of a valid object in place. An edit is
 *
 *     object u8 | offset u24 | length u16 | bytes        with FUZZ_CUT in `object`: the object ends at `offset`; no bytes
 *
 * Objects, offsets and lengths are taken modulo what there is: every input means something. What the flags mend (checksums,
 * the positions in commit words, this machine's boot id) is the target's: without that, no mutant gets past the first check. */
#ifndef HF_FUZZ_H
#define HF_FUZZ_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* The target's valid objects, as inputs, by number. Returns the bytes written to `out`; 0: there is no such seed. */
size_t fuzz_seed(unsigned number, uint8_t *out, size_t room);

enum { FUZZ_CUT = 0x80, FUZZ_EDIT = 6, FUZZ_OBJECTS = 8, FUZZ_FRAME = 32, FUZZ_INPUT_MAX = 1 << 16 };

#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The objects that an input stands for. */
struct fuzz_image {
    unsigned objects;
    uint8_t *bytes[FUZZ_OBJECTS];
    uint32_t room[FUZZ_OBJECTS];
    uint32_t size[FUZZ_OBJECTS]; /* room, unless it was cut */
    uint32_t end[FUZZ_OBJECTS];  /* of what edits wrote */
    uint32_t used[FUZZ_OBJECTS]; /* zeros behind: room, unless the target knows better once it is done */
};

static inline uint32_t fuzz_u24(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
}

/* An object in memory that is there: what is mapped already needs no copy. */
static inline void fuzz_object_at(struct fuzz_image *image, uint8_t *bytes, uint32_t room)
{
    FUZZ_CHECK(image->objects < FUZZ_OBJECTS && bytes != NULL);
    image->bytes[image->objects] = bytes;
    image->room[image->objects] = image->size[image->objects] = image->used[image->objects] = room;
    image->objects++;
}

static inline void fuzz_object(struct fuzz_image *image, uint32_t room)
{
    fuzz_object_at(image, calloc(1, room), room);
}

/* Nothing was written into this object but edits, and frames' headers where edits had written some of them. */
static inline void fuzz_only_edited(struct fuzz_image *image, unsigned object)
{
    uint32_t end = image->end[object] + FUZZ_FRAME;
    image->used[object] = end < image->room[object] ? end : image->room[object];
}

/* Clears the objects and applies the edits; returns the flags. */
static inline unsigned fuzz_read(struct fuzz_image *image, const uint8_t *data, size_t size)
{
    for (unsigned i = 0; i < image->objects; i++) {
        memset(image->bytes[i], 0, image->used[i]);
        image->size[i] = image->used[i] = image->room[i];
        image->end[i] = 0;
    }
    for (size_t at = 1; at + FUZZ_EDIT <= size;) {
        unsigned object = (data[at] & ~(unsigned)FUZZ_CUT) % image->objects;
        uint32_t offset = fuzz_u24(data + at + 1) % image->room[object];
        size_t length = (size_t)data[at + 4] | (size_t)data[at + 5] << 8;
        int cut = (data[at] & FUZZ_CUT) != 0;
        at += FUZZ_EDIT;
        if (cut) {
            image->size[object] = offset;
            continue;
        }
        length = length < size - at ? length : size - at;
        size_t fits = length < image->room[object] - offset ? length : image->room[object] - offset;
        memcpy(image->bytes[object] + offset, data + at, fits);
        uint32_t end = offset + (uint32_t)fits;
        image->end[object] = end > image->end[object] ? end : image->end[object];
        at += length;
    }
    return size > 0 ? data[0] : 0;
}

static inline size_t fuzz_put(uint8_t *out, size_t room, unsigned object, uint32_t offset, const uint8_t *bytes,
                              size_t length)
{
    FUZZ_CHECK(FUZZ_EDIT + length <= room && length <= UINT16_MAX);
    const uint8_t edit[FUZZ_EDIT] = {(uint8_t)object,         (uint8_t)offset, (uint8_t)(offset >> 8),
                                     (uint8_t)(offset >> 16), (uint8_t)length, (uint8_t)(length >> 8)};
    memcpy(out, edit, sizeof edit);
    memcpy(out + sizeof edit, bytes, length);
    return sizeof edit + length;
}

/* The input that fuzz_read makes these objects of. */
static inline size_t fuzz_write(const struct fuzz_image *image, unsigned flags, uint8_t *out, size_t room)
{
    enum { GAP = FUZZ_EDIT + 2 }; /* shorter runs of zeros cost less than another edit */
    size_t at = 1;
    out[0] = (uint8_t)flags;
    for (unsigned i = 0; i < image->objects; i++) {
        const uint8_t *bytes = image->bytes[i];
        for (uint32_t from = 0; from < image->size[i]; from++) {
            if (bytes[from] == 0) {
                continue;
            }
            uint32_t to = from + 1;
            for (uint32_t next = to; next < image->size[i] && next - to < GAP && next - from < UINT16_MAX; next++) {
                to = bytes[next] != 0 ? next + 1 : to;
            }
            at += fuzz_put(out + at, room - at, i, from, bytes + from, to - from);
            from = to;
        }
        if (image->size[i] < image->room[i]) {
            at += fuzz_put(out + at, room - at, i | FUZZ_CUT, image->size[i], bytes, 0);
        }
    }
    return at;
}
#endif
