/* fuzz_board.c: a board and its bells whose every byte a broken peer may have written: for who reads them, for who claims a line,
 * and for a source that sends beside them. */
#include "fuzz.h"
#include "stream_kit.h"

#include "base/map.h"
#include "base/status.h"

enum {
    BOARD,
    BELLS,
    SCRIPT,
    OBJECTS,
    BOARD_BYTES = 36864,
    BELLS_BYTES = 69632,
    SCRIPT_BYTES = 128,
    MESSAGES = 36,
    SMALL = 900,
    LARGE = 7000
};
/* What the flags of an input ask for. */
enum { MEND_BOARD = 1, MEND_BELLS = 2, TEST_DEATH = 4, CLAIM = 8, SEND = 16 };

/* The third object: who claims, and what he says. */
struct script {
    struct hf_identity who;
    uint64_t ack;
    uint64_t position;
    uint64_t from;
    uint64_t to;
};
_Static_assert(sizeof(struct script) <= SCRIPT_BYTES, "script");

static int domain = -1, fds[2];
static const uint32_t rooms[OBJECTS] = {BOARD_BYTES, BELLS_BYTES, SCRIPT_BYTES};

static struct fuzz_image board_image(void)
{
    struct fuzz_image image = {0};
    for (int i = 0; i < OBJECTS; i++) {
        fuzz_object(&image, rooms[i]);
    }
    return image;
}

/* The board and the bells of the image are the files. */
static struct fuzz_image prepare(void)
{
    struct fuzz_image image = {0};
    setenv("TMPDIR", "/dev/shm", 0);
    domain = check_directory();
    FUZZ_CHECK(hf_process_join(domain) == HF_OK); /* its descriptor stays */
    for (int i = BOARD; i <= BELLS; i++) {
        fds[i] = check_memory();
        FUZZ_CHECK(ftruncate(fds[i], rooms[i]) == 0);
        uint8_t *file = mmap(NULL, rooms[i], PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
        FUZZ_CHECK(file != MAP_FAILED);
        fuzz_object_at(&image, file, rooms[i]);
    }
    fuzz_object(&image, rooms[SCRIPT]);
    return image;
}

static void mend(struct fuzz_image *image, int object, uint32_t kind)
{
    struct hf_preamble *pre = (struct hf_preamble *)(void *)image->bytes[object];
    pre->magic = HF_MAGIC | kind;
    pre->layout_version = HF_LAYOUT_VERSION;
    pre->struct_hash = hf_struct_hash(kind);
    pre->page_size = 4096;
    pre->header_bytes = rooms[object];
    pre->total_bytes = rooms[object];
    FUZZ_CHECK(hf_boot_id(pre->boot_id) == HF_OK);
}

/* ---- what is done to it ---- */

static void read_lines(const struct hf_map *board, unsigned flags)
{
    static struct hf_line_view views[HF_BOARD_LINES + 2];
    for (int64_t room = 1; room <= HF_BOARD_LINES + 2; room += HF_BOARD_LINES + 1) {
        int64_t n = hf_board_read(board, domain, (flags & TEST_DEATH) != 0, views, room);
        FUZZ_CHECK(n >= 0 && n <= room && n <= HF_BOARD_LINES);
        for (int64_t i = 0; i < n; i++) {
            FUZZ_CHECK(views[i].index < HF_BOARD_LINES && (i == 0 || views[i].index > views[i - 1].index));
            FUZZ_CHECK(views[i].line.state != HF_LINE_FREE && views[i].alive >= -1 && views[i].alive <= 1);
        }
    }
    struct hf_board_line line;
    for (int64_t i = -1; i <= HF_BOARD_LINES; i++) {
        int64_t status = hf_board_copy(board, i, &line);
        FUZZ_CHECK(i >= 0 && i < HF_BOARD_LINES ? status == 1 || status == HF_AGAIN : status == HF_USAGE);
    }
}

/* Whoever gets a line has it: what he says is what stands there, and nobody else gets it. */
static void claim_line(struct hf_map *board, struct hf_map *bells, const struct script *s)
{
    struct hf_line_view holder;
    struct hf_board_line line;
    int64_t index = hf_board_claim(board, domain, &s->who, &holder);
    FUZZ_CHECK(index < HF_BOARD_LINES);
    if (index < 0) {
        return;
    }
    FUZZ_CHECK(hf_board_copy(board, index, &line) == 1 && line.state == HF_LINE_ACTIVE && line.role == s->who.role);
    FUZZ_CHECK(memcmp(line.uuid, s->who.uuid, sizeof line.uuid) == 0 && memchr(line.name, 0, sizeof line.name) != NULL);
    FUZZ_CHECK(hf_board_claim(board, domain, &s->who, &holder) == HF_BUSY);
    uint64_t had = line.ack;
    hf_line_range(hf_board_line_at(board, index), s->from, s->to);
    hf_board_ack(board, bells, index, s->ack, s->position);
    FUZZ_CHECK(hf_board_copy(board, index, &line) == 1 && line.from_sqn == s->from && line.to_sqn == s->to);
    FUZZ_CHECK(line.ack == (had > s->ack ? had : s->ack) && line.position >= s->ack && line.position >= s->position);
    hf_board_rebase(board, index, s->who.incarnation, s->from);
    FUZZ_CHECK(hf_board_release(board, index) == HF_OK && hf_board_release(board, index) == HF_USAGE);
}

static void ring_bells(struct hf_map *board, struct hf_map *bells, const struct script *s)
{
    int64_t bell = hf_bell_claim(bells, domain);
    FUZZ_CHECK(bell < HF_BELLS);
    hf_bell_ring(bells, s->who.bell);
    hf_bell_ring_all(bells);
    (void)hf_bell_read(bells, s->who.bell);
    hf_board_wake_slow(board, bells);
}

/* A source whose ring is full for the first time, which nobody can hold up: only from here on does it look at pins. It is made once,
 * and what it is and has is copied back before each input. */
static struct hf_source *fresh_source(struct hf_map *board, struct hf_map *bells)
{
    static struct hf_source *s, was;
    static struct hf_step *steps;
    static uint8_t *bytes;
    int made = s == NULL;
    if (made) {
        struct hf_stream_config config = kit_config();
        config.pin_timeout_ms = 0;
        config.fragment_bytes = LARGE;
        s = kit_source(&config, NULL);
        kit_run(s, SMALL, KIT_RING - 2 * SMALL);
    }
    size_t once = s->map->mapped_bytes - s->map->ring_bytes;
    size_t step_bytes = (s->step_mask + 1) * sizeof *s->steps;
    if (made) {
        bytes = malloc(once);
        steps = malloc(step_bytes);
        was = *s;
        memcpy(bytes, s->map->base, once);
        memcpy(steps, s->steps, step_bytes);
    }
    *s = was;
    memcpy(s->map->base, bytes, once);
    memcpy(s->steps, steps, step_bytes);
    s->board = board;
    s->bells = bells;
    s->sleepers = &((struct hf_board *)(void *)board->base)->sleepers;
    return s;
}

static int64_t send_large(struct hf_source *s)
{
    int64_t status;
    uint8_t *at = hf_source_claim(s, LARGE, &status);
    return at == NULL ? status : hf_source_commit(s);
}

/* Pins, ranges and acks of nonsense hold a source up no longer than its timeout: twice round the ring. */
static void send_beside(struct hf_map *board, struct hf_map *bells)
{
    static const uint8_t data[SMALL] = {1};
    struct hf_source *s = fresh_source(board, bells);
    int sent = 0, pinned = 0;
    while (sent < MESSAGES && pinned < 1000) {
        int64_t status = sent % 2 == 0 ? hf_source_send(s, data, SMALL) : send_large(s);
        FUZZ_CHECK(status >= 0 || status == HF_PINNED);
        sent += status >= 0;
        pinned += status < 0;
        FUZZ_CHECK(status < 0 || hf_source_release(s, hf_source_next(s)) >= 0);
    }
    FUZZ_CHECK(sent == MESSAGES && s->position > 3 * KIT_RING - LARGE);
    hf_source_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_image image;
    if (image.objects == 0) {
        image = prepare();
    }
    unsigned flags = fuzz_read(&image, data, size);
    struct script script;
    memcpy(&script, image.bytes[SCRIPT], sizeof script);
    if (flags & MEND_BOARD) {
        mend(&image, BOARD, HF_KIND_BOARD);
    }
    if (flags & MEND_BELLS) {
        mend(&image, BELLS, HF_KIND_BELLS);
    }
    struct hf_map *board = NULL, *bells = NULL;
    int64_t status = hf_map_attach(fds[BOARD], HF_KIND_BOARD, 1, 0, &board);
    if (status == HF_OK) {
        status = hf_map_attach(fds[BELLS], HF_KIND_BELLS, 1, 0, &bells);
    }
    if (status == HF_OK) {
        read_lines(board, flags);
        if (flags & SEND) {
            send_beside(board, bells);
        }
        if (flags & CLAIM) {
            claim_line(board, bells, &script);
        }
        ring_bells(board, bells, &script);
    }
    hf_map_detach(board);
    hf_map_detach(bells);
    return 0;
}

/* ---- valid ones ---- */

static struct hf_board_line some_line(uint64_t i)
{
    struct hf_board_line line = {.owner = (0x1234 + i) << 16 | 1,
                                 .state = i % 3 == 2 ? HF_LINE_CLOSED : HF_LINE_ACTIVE,
                                 .from_sqn = i,
                                 .to_sqn = UINT64_MAX,
                                 .ack = 10 * i,
                                 .position = 10 * i + 5,
                                 .pin = i % 2 == 0 ? 32 * i : UINT64_MAX,
                                 .pin_stream = 3,
                                 .sleeping = i % 2,
                                 .bell = (uint32_t)i,
                                 .owner_pid = 1,
                                 .owner_start = 1,
                                 .role = i % 2 == 0 ? HF_ROLE_STORE : HF_ROLE_RECEIVER,
                                 .level = HF_LEVEL_DISK,
                                 .name = "a line",
                                 .uuid = {(uint8_t)(i + 1)}};
    return line;
}

/* 0: an empty board; 1: some lines of processes that are gone, one of them the claimer's; 2: all lines taken. */
size_t fuzz_seed(unsigned number, uint8_t *out, size_t room)
{
    if (number > 2) {
        return 0;
    }
    struct fuzz_image image = board_image();
    struct hf_board *board = (struct hf_board *)(void *)image.bytes[BOARD];
    struct script script = {
        .who = {.uuid = {1}, .incarnation = 2, .role = HF_ROLE_STORE, .level = HF_LEVEL_DISK, .name = "me"},
        .ack = 70,
        .position = 80,
        .from = 5,
        .to = UINT64_MAX};
    for (uint64_t i = 0; i < (number == 0 ? 0 : number == 1 ? 5 : HF_BOARD_LINES); i++) {
        board->lines[i] = some_line(i);
    }
    memcpy(image.bytes[SCRIPT], &script, sizeof script);
    board->sleepers = 1;
    size_t size = fuzz_write(&image, MEND_BOARD | MEND_BELLS | TEST_DEATH | CLAIM | SEND, out, room);
    for (int i = 0; i < OBJECTS; i++) {
        free(image.bytes[i]);
    }
    return size;
}
