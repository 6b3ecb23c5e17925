/* crc32c.c: CRC-32C by the processor's instruction, else by table. See crc32c.h.
 *
 * The instruction has a latency of three cycles and a throughput of one, so three independent lanes are three times
 * as fast as one. A long input is cut in three neighbouring blocks of a fixed size; the CRCs are joined with tables
 * that hold the effect of that many zero bytes (crc(A|B) = zeros(crc(A)) ^ crc(B), since the CRC is linear). */
#include "base/crc32c.h"

#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define POLYNOMIAL UINT32_C(0x82F63B78) /* Castagnoli, bit-reversed */
#define LANE_LONG 2048                  /* bytes per lane; below it joining would cost a tenth of the work */
#define LANE_SHORT 256
#define HEADER 32 /* of a frame; its last four bytes are the sum itself */
#define HEADER_SUMMED 28

static uint32_t slices[8][256];     /* slicing by 8 */
static uint32_t zeros_long[4][256]; /* effect of LANE_LONG zero bytes, by byte of the CRC */
static uint32_t zeros_short[4][256];

static uint64_t word_at(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

#if defined(__x86_64__) || defined(__aarch64__)
static uint32_t half_at(const uint8_t *p)
{
    uint32_t half;
    memcpy(&half, p, sizeof half);
    return half;
}
#endif

static uint32_t table_raw(uint32_t crc, const uint8_t *p, uint64_t bytes)
{
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t w = word_at(p) ^ crc;
        crc = slices[7][w & 255] ^ slices[6][(w >> 8) & 255] ^ slices[5][(w >> 16) & 255] ^ slices[4][(w >> 24) & 255] ^
              slices[3][(w >> 32) & 255] ^ slices[2][(w >> 40) & 255] ^ slices[1][(w >> 48) & 255] ^ slices[0][w >> 56];
    }
    for (; bytes > 0; bytes--, p++) {
        crc = slices[0][(crc ^ *p) & 255] ^ (crc >> 8);
    }
    return crc;
}

static void table_frames(uint32_t crc[3], const uint8_t *const frame[3], const uint32_t length[3])
{
    for (int i = 0; i < 3; i++) {
        crc[i] = table_raw(table_raw(crc[i], frame[i], HEADER_SUMMED), frame[i] + HEADER, length[i] - HEADER);
    }
}

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#define HARDWARE __attribute__((target("sse4.2")))
#define HARDWARE_NAME "sse4.2"

static int hardware_present(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}
/* 64 bits wide, the upper half zero: cutting it to 32 between two steps would lengthen the chain by a move. */
HARDWARE static inline uint64_t step8(uint64_t crc, uint64_t word)
{
    return __builtin_ia32_crc32di(crc, word);
}
HARDWARE static inline uint32_t step4(uint32_t crc, uint32_t word)
{
    return __builtin_ia32_crc32si(crc, word);
}
HARDWARE static inline uint32_t step1(uint32_t crc, uint8_t byte)
{
    return __builtin_ia32_crc32qi(crc, byte);
}
#else
#define HARDWARE
#define HARDWARE_NAME "armv8"

static int hardware_present(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
static inline uint64_t step8(uint64_t crc, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}
static inline uint32_t step4(uint32_t crc, uint32_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(crc) : "r"(word));
    return crc;
}
static inline uint32_t step1(uint32_t crc, uint8_t byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}
#endif

static uint32_t shifted(uint32_t zeros[4][256], uint32_t crc)
{
    return zeros[0][crc & 255] ^ zeros[1][(crc >> 8) & 255] ^ zeros[2][(crc >> 16) & 255] ^ zeros[3][crc >> 24];
}

/* As many triples of `lane` bytes as there are; returns the bytes that it took. */
HARDWARE static inline uint64_t lanes(uint32_t *crc, const uint8_t *p, uint64_t bytes, uint64_t lane,
                                      uint32_t zeros[4][256])
{
    uint64_t taken = 0;
    for (; bytes - taken >= 3 * lane; taken += 3 * lane) {
        const uint8_t *q = p + taken;
        uint64_t a = *crc, b = 0, c = 0;
        for (uint64_t i = 0; i < lane; i += 8) {
            a = step8(a, word_at(q + i));
            b = step8(b, word_at(q + lane + i));
            c = step8(c, word_at(q + 2 * lane + i));
        }
        *crc = shifted(zeros, shifted(zeros, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
    }
    return taken;
}

HARDWARE static uint32_t hardware_raw(uint32_t crc, const uint8_t *p, uint64_t bytes)
{
    if (bytes >= 3 * LANE_SHORT) {
        uint64_t taken = lanes(&crc, p, bytes, LANE_LONG, zeros_long);
        taken += lanes(&crc, p + taken, bytes - taken, LANE_SHORT, zeros_short);
        p += taken;
        bytes -= taken;
    }
    uint64_t wide = crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        wide = step8(wide, word_at(p));
    }
    crc = (uint32_t)wide;
    if (bytes >= 4) {
        crc = step4(crc, half_at(p));
        p += 4;
        bytes -= 4;
    }
    for (; bytes > 0; bytes--, p++) {
        crc = step1(crc, *p);
    }
    return crc;
}

HARDWARE static void hardware_frames(uint32_t crc[3], const uint8_t *const frame[3], const uint32_t length[3])
{
    const uint8_t *p = frame[0], *q = frame[1], *r = frame[2];
    uint64_t a = crc[0], b = crc[1], c = crc[2];
    for (uint64_t i = 0; i < HEADER - 8; i += 8) {
        a = step8(a, word_at(p + i));
        b = step8(b, word_at(q + i));
        c = step8(c, word_at(r + i));
    }
    a = step4((uint32_t)a, half_at(p + HEADER - 8));
    b = step4((uint32_t)b, half_at(q + HEADER - 8));
    c = step4((uint32_t)c, half_at(r + HEADER - 8));
    uint64_t least = length[0] < length[1] ? length[0] : length[1];
    least = length[2] < least ? length[2] : least;
    uint64_t common = least & ~UINT64_C(7);
    for (uint64_t i = HEADER; i < common; i += 8) {
        a = step8(a, word_at(p + i));
        b = step8(b, word_at(q + i));
        c = step8(c, word_at(r + i));
    }
    crc[0] = length[0] == common ? (uint32_t)a : hardware_raw((uint32_t)a, p + common, length[0] - common);
    crc[1] = length[1] == common ? (uint32_t)b : hardware_raw((uint32_t)b, q + common, length[1] - common);
    crc[2] = length[2] == common ? (uint32_t)c : hardware_raw((uint32_t)c, r + common, length[2] - common);
}
#else
#define HARDWARE_NAME "table"
#define hardware_raw table_raw
#define hardware_frames table_frames
static int hardware_present(void)
{
    return 0;
}
#endif

static uint32_t (*raw)(uint32_t, const uint8_t *, uint64_t) = table_raw;
static void (*raw_frames)(uint32_t[3], const uint8_t *const[3], const uint32_t[3]) = table_frames;

/* The effect of `count` zero bytes on a CRC whose only non-zero byte is number `which`. */
static void make_zeros(uint32_t zeros[4][256], uint64_t count)
{
    uint32_t bit[32];
    for (int i = 0; i < 32; i++) {
        bit[i] = UINT32_C(1) << i;
        for (uint64_t n = 0; n < count; n++) {
            bit[i] = slices[0][bit[i] & 255] ^ (bit[i] >> 8);
        }
    }
    for (int which = 0; which < 4; which++) {
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t effect = 0;
            for (int i = 0; i < 8; i++) {
                effect ^= (value >> i) & 1 ? bit[8 * which + i] : 0;
            }
            zeros[which][value] = effect;
        }
    }
}

/* Runs before main and before any thread: the tables and the choice are constant afterwards. */
__attribute__((constructor)) static void prepare(void)
{
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int i = 0; i < 8; i++) {
            crc = (crc >> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
        }
        slices[0][value] = crc;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t crc = slices[slice - 1][value];
            slices[slice][value] = slices[0][crc & 255] ^ (crc >> 8);
        }
    }
    make_zeros(zeros_long, LANE_LONG);
    make_zeros(zeros_short, LANE_SHORT);
    if (hardware_present()) {
        raw = hardware_raw;
        raw_frames = hardware_frames;
    }
}

uint32_t hf_crc32c(uint32_t crc, const uint8_t *data, uint64_t bytes)
{
    return ~raw(~crc, data, bytes);
}

uint32_t hf_crc32c_table(uint32_t crc, const uint8_t *data, uint64_t bytes)
{
    return ~table_raw(~crc, data, bytes);
}

const char *hf_crc32c_name(void)
{
    return raw == table_raw ? "table" : HARDWARE_NAME;
}

void hf_crc32c_frames(uint32_t seed, const uint8_t *const frame[3], const uint32_t length[3], uint32_t out[3])
{
    out[0] = out[1] = out[2] = ~seed;
    raw_frames(out, frame, length);
    for (int i = 0; i < 3; i++) {
        out[i] = ~out[i];
    }
}
