/* mutate.c: what the gcc-built driver does to inputs. Most changes are edits (fuzz.h): a field of the object that the input stands
 * for gets another value where it lies, and the rest stays valid. The others treat the input as bytes. */
#include "mutate.h"

#include <string.h>

#include "fuzz.h"

static uint64_t next(struct fuzz_random *random) /* splitmix64 */
{
    uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t below(struct fuzz_random *random, uint64_t limit)
{
    return limit == 0 ? 0 : next(random) % limit;
}

/* Values at which sizes, positions and numbers break. */
static uint64_t interesting(struct fuzz_random *random)
{
    static const uint64_t values[] = {0, 1, 31, 32, 33, 63, 64, 4096, 16384, 65535, 65536, UINT64_C(1) << 40};
    uint64_t power = UINT64_C(1) << below(random, 64);
    switch (below(random, 6)) {
    case 0:
        return power - 1;
    case 1:
        return power + below(random, 2) * 31;
    case 2:
        return UINT64_MAX - below(random, 64);
    case 3:
        return below(random, 4096);
    case 4:
        return next(random);
    default:
        return values[below(random, sizeof values / sizeof values[0])];
    }
}

/* Where the edits of an input begin, at random one of them; 0: it has none. */
static size_t some_edit(struct fuzz_random *random, const uint8_t *data, size_t size)
{
    size_t found = 0;
    uint64_t count = 0;
    for (size_t at = 1; at + FUZZ_EDIT <= size;) {
        size_t length = data[at] & FUZZ_CUT ? 0 : (size_t)data[at + 4] | (size_t)data[at + 5] << 8;
        if (below(random, ++count) == 0) {
            found = at;
        }
        at += FUZZ_EDIT + length;
    }
    return found;
}

/* Sets, adds to, or flips a bit of 1, 2, 4 or 8 bytes. */
static void change_number(struct fuzz_random *random, uint8_t *at, size_t room)
{
    size_t width = (size_t)1 << below(random, 4);
    uint64_t value = 0;
    if (width > room) {
        width = 1;
    }
    memcpy(&value, at, width);
    switch (below(random, 4)) {
    case 0:
        value = interesting(random);
        break;
    case 1:
        value += below(random, 70) - 35;
        break;
    case 2:
        value += (below(random, 5) - 2) * (UINT64_C(1) << below(random, 64));
        break;
    default:
        value ^= UINT64_C(1) << below(random, 8 * width);
        break;
    }
    memcpy(at, &value, width);
}

/* Appends an edit of a number that lies in what one of the edits wrote, or behind it. */
static size_t edit_number(struct fuzz_random *random, uint8_t *data, size_t size, size_t room)
{
    size_t from = some_edit(random, data, size);
    uint8_t value[8] = {0};
    if (from == 0 || room - size < FUZZ_EDIT + sizeof value) {
        return size;
    }
    size_t length = (size_t)data[from + 4] | (size_t)data[from + 5] << 8;
    size_t left = size - from - FUZZ_EDIT, inside = length < left ? length : left;
    size_t at = below(random, inside + 16) & ~(size_t)(below(random, 4) == 0 ? 0 : 3);
    if (at < inside) {
        size_t known = inside - at < sizeof value ? inside - at : sizeof value;
        memcpy(value, data + from + FUZZ_EDIT + at, known);
    }
    change_number(random, value, sizeof value);
    size_t width = (size_t)1 << below(random, 4);
    unsigned object = data[from] & ~(unsigned)FUZZ_CUT;
    uint32_t offset = fuzz_u24(data + from + 1) + (uint32_t)at;
    if (below(random, 40) == 0) {
        return size + fuzz_put(data + size, room - size, object | FUZZ_CUT, offset, value, 0);
    }
    return size + fuzz_put(data + size, room - size, object, offset, value, width);
}

/* Appends an edit that writes bytes of one edit elsewhere: a frame of another place, a header of another file. */
static size_t edit_copy(struct fuzz_random *random, uint8_t *data, size_t size, size_t room)
{
    size_t from = some_edit(random, data, size), to = some_edit(random, data, size);
    if (from == 0) {
        return size;
    }
    size_t length = (size_t)data[from + 4] | (size_t)data[from + 5] << 8;
    size_t left = size - from - FUZZ_EDIT, inside = length < left ? length : left;
    size_t at = below(random, inside) & ~(size_t)31;
    size_t take = below(random, inside - at) + 1;
    take = take < 512 ? take : 512;
    if (inside == 0 || room - size < FUZZ_EDIT + take) {
        return size;
    }
    uint32_t offset = fuzz_u24(data + to + 1) + (uint32_t)(below(random, 64) * 32);
    return size + fuzz_put(data + size, room - size, data[to] & ~(unsigned)FUZZ_CUT, offset,
                           data + from + FUZZ_EDIT + at, take);
}

static size_t drop_bytes(struct fuzz_random *random, uint8_t *data, size_t size)
{
    size_t at = below(random, size), take = below(random, size - at < 64 ? size - at : 64);
    memmove(data + at, data + at + take, size - at - take);
    return size - take;
}

/* The head of this input, and the tail of another one. */
static size_t splice(struct fuzz_random *random, const struct fuzz_corpus *corpus, uint8_t *data, size_t size,
                     size_t room)
{
    const struct fuzz_input *other = &corpus->inputs[below(random, corpus->count)];
    if (other->size < 2) {
        return size;
    }
    size_t from = some_edit(random, other->bytes, other->size);
    size_t take = other->size - from < room - size ? other->size - from : room - size;
    memcpy(data + size, other->bytes + from, take);
    return size + take;
}

size_t fuzz_mutate(struct fuzz_random *random, const struct fuzz_corpus *corpus, uint8_t *out, size_t room)
{
    const struct fuzz_input *input = &corpus->inputs[below(random, corpus->count)];
    size_t size = input->size < room ? input->size : room;
    memcpy(out, input->bytes, size);
    for (uint64_t i = 1 + below(random, 4); i > 0 || size == 0; i -= i > 0) {
        switch (size == 0 ? 15 : below(random, 16)) {
        case 0:
            size = drop_bytes(random, out, size);
            break;
        case 1:
        case 2:
        case 3: {
            size_t at = below(random, size);
            change_number(random, out + at, size - at);
            break;
        }
        case 4:
            out[0] ^= (uint8_t)(1u << below(random, 8));
            break;
        case 5:
            size = splice(random, corpus, out, size, room);
            break;
        case 6:
        case 7:
            size = edit_copy(random, out, size, room);
            break;
        case 15:
            if (size == 0) {
                out[size++] = (uint8_t)next(random);
                break;
            }
            /* fall through */
        default:
            size = edit_number(random, out, size, room);
            break;
        }
    }
    return size;
}
