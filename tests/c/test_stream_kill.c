/* test_stream_kill.c: a source that dies at any failpoint leaves whole messages, and nothing else (stream/stream.h, 1, 2, 5). */
#include "base/failpoint.h"
#include "stream_kit.h"

enum { KILL_SEND, KILL_FRAGMENTS, KILL_CLAIM, KILL_ROWS, KILL_KINDS };

struct victim {
    int fd;
    int kind;
    char spec[64];
};

static void die_sending(void *argument)
{
    const struct victim *v = argument;
    int kind = v->kind;
    struct hf_stream_config config = kit_config();
    config.start_position = UINT64_C(0) - (UINT64_C(1) << 20);
    struct hf_source *s = kit_source_on(v->fd, &config, NULL);
    static uint8_t rows[100 * 40];
    int64_t status;
    kit_run(s, 96, KIT_RING + 4096); /* so that old frames lie everywhere */
    hf_failpoint_arm(v->spec);
    for (uint64_t i = 0; i < 1000; i++) {
        hf_source_release(s, UINT64_MAX);
        if (kind == KILL_CLAIM) {
            uint8_t *view = hf_source_claim(s, 200, &status);
            kit_fill(view, 200, s->next_sqn);
            hf_source_commit(s);
        } else if (kind == KILL_ROWS) {
            hf_source_send_rows(s, rows, 40, 40, 100);
        } else {
            kit_send(s, kind == KILL_FRAGMENTS ? 5000 : 96, s->next_sqn);
        }
    }
}

static void check_after_kill(int fd, int kind)
{
    struct hf_map *map;
    struct hf_reader *r;
    struct hf_entry entry;
    static uint8_t buf[8192];
    uint64_t at, end, next;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int readonly = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(readonly >= 0);
    CHECK_EQ(hf_map_attach(readonly, HF_KIND_STREAM, 0, 1, &map), HF_OK);
    close(readonly);
    CHECK_EQ(hf_stream_valid(map, &at), HF_OK);
    CHECK_EQ(hf_stream_end(map, &end, &next), HF_OK);
    CHECK_EQ(at, end);
    const struct hf_stream_header *header = (const struct hf_stream_header *)(const void *)map->base;
    CHECK(!hf_after(header->tail, end) && end - header->tail <= 64 * 96 + 8192);
    CHECK_EQ(hf_reader_open(map, NULL, NULL, -1, &r), HF_OK);
    CHECK_EQ(hf_reader_seek_oldest(r), HF_OK);
    int64_t status;
    while ((status = hf_reader_receive(r, &entry, buf, sizeof buf)) == 1) {
        CHECK(kind == KILL_ROWS || kit_is(buf, entry.length, entry.first_sequence_number));
    }
    CHECK_EQ(status, 0);
    CHECK_EQ(hf_reader_position(r), end);
    CHECK_EQ(hf_reader_next(r), next);
    uint64_t first;
    CHECK_EQ(hf_reader_seek(r, next), HF_OK);
    CHECK_EQ(hf_reader_seek(r, next + 1), HF_AHEAD);
    CHECK_EQ(hf_reader_seek(r, next - 1), HF_OK);
    CHECK(hf_reader_copy(r, buf, sizeof buf, &first, &at) > 0); /* also what the tail line does not tell yet */
    CHECK_EQ(at, next);
    hf_reader_close(r);
    hf_map_detach(map);
}

static void a_source_killed_anywhere_leaves_whole_messages_and_nothing_else(void)
{
    static const char *points[] = {"source.claimed", "source.half",      "source.copied",
                                   "source.zeroed",  "source.committed", "source.published"};
    static const int hits[] = {1, 2, 3, 5, 77};
    for (int kind = 0; kind < KILL_KINDS; kind++) {
        for (size_t p = 0; p < sizeof points / sizeof *points; p++) {
            for (size_t h = 0; h < sizeof hits / sizeof *hits; h++) {
                struct victim v = {.kind = kind, .fd = check_memory()};
                if (kind != KILL_CLAIM || p != 1) { /* a claim's payload is written by the caller: no "half" */
                    snprintf(v.spec, sizeof v.spec, "%s=kill@%d", points[p], hits[h]);
                    check_killed(check_fork(die_sending, &v), SIGKILL);
                    check_after_kill(v.fd, kind);
                }
                close(v.fd);
            }
        }
    }
}

int main(void)
{
    RUN(a_source_killed_anywhere_leaves_whole_messages_and_nothing_else);
    return 0;
}
