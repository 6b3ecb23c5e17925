/* CRC-32C: known answers, and every path against the portable table. */
#include "base/crc32c.h"
#include "check.h"

static uint64_t seed = 1;

static uint64_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed >> 24;
}

static void fill(uint8_t *p, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        p[i] = (uint8_t)next_random();
    }
}

static void known_answers_of_rfc_3720(void)
{
    uint8_t text[32];
    memset(text, 0, sizeof text);
    CHECK_EQ(hf_crc32c(0, text, 32), 0x8A9136AA);
    CHECK_EQ(hf_crc32c_table(0, text, 32), 0x8A9136AA);
    memset(text, 0xFF, sizeof text);
    CHECK_EQ(hf_crc32c(0, text, 32), 0x62A8AB43);
    CHECK_EQ(hf_crc32c_table(0, text, 32), 0x62A8AB43);
    CHECK_EQ(hf_crc32c(0, (const uint8_t *)"123456789", 9), 0xE3069283);
    CHECK_EQ(hf_crc32c_table(0, (const uint8_t *)"123456789", 9), 0xE3069283);
    CHECK_EQ(hf_crc32c(0, text, 0), 0);
}

static void every_length_and_alignment_equals_the_table(void)
{
    static uint8_t data[20000 + 8];
    fill(data, sizeof data);
    for (uint64_t bytes = 0; bytes < 1700; bytes++) {
        uint64_t at = bytes & 7;
        CHECK_EQ(hf_crc32c(7, data + at, bytes), hf_crc32c_table(7, data + at, bytes));
    }
    for (int i = 0; i < 2000; i++) {
        uint64_t at = next_random() % 8, bytes = next_random() % 20000;
        uint32_t start = (uint32_t)next_random();
        CHECK_EQ(hf_crc32c(start, data + at, bytes), hf_crc32c_table(start, data + at, bytes));
    }
}

static void a_sum_can_be_continued_anywhere(void)
{
    static uint8_t data[9000];
    fill(data, sizeof data);
    uint32_t whole = hf_crc32c(0, data, sizeof data);
    for (int i = 0; i < 500; i++) {
        uint64_t cut = next_random() % sizeof data;
        CHECK_EQ(hf_crc32c(hf_crc32c(0, data, cut), data + cut, sizeof data - cut), whole);
    }
}

static void three_frames_at_once_equal_three_calls(void)
{
    static uint8_t data[30000];
    fill(data, sizeof data);
    for (int i = 0; i < 5000; i++) {
        uint32_t most = i % 2 ? 200 : 9000, length[3], out[3], start = (uint32_t)next_random();
        const uint8_t *at[3];
        for (int k = 0; k < 3; k++) {
            length[k] = 32 + (uint32_t)next_random() % most;
            at[k] = data + next_random() % (sizeof data - most - 32);
        }
        hf_crc32c_frames(start, at, length, out);
        for (int k = 0; k < 3; k++) {
            CHECK_EQ(out[k], hf_crc32c_table(hf_crc32c_table(start, at[k], 28), at[k] + 32, length[k] - 32));
        }
    }
}

static void the_chosen_method_has_a_name(void)
{
    const char *name = hf_crc32c_name();
    CHECK(strcmp(name, "sse4.2") == 0 || strcmp(name, "armv8") == 0 || strcmp(name, "table") == 0);
    printf("    %s\n", name);
}

int main(void)
{
    RUN(known_answers_of_rfc_3720);
    RUN(every_length_and_alignment_equals_the_table);
    RUN(a_sum_can_be_continued_anywhere);
    RUN(three_frames_at_once_equal_three_calls);
    RUN(the_chosen_method_has_a_name);
    return 0;
}
