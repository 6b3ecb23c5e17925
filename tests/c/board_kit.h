/* board_kit.h: a board and bells of the test's own, made anew by fresh(). */
#ifndef HF_BOARD_KIT_H
#define HF_BOARD_KIT_H
#include <pthread.h>
#include <stddef.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/status.h"
#include "board/bell.h"
#include "board/board.h"
#include "board/wait.h"
#include "check.h"

static int domain;
static int board_fd, bells_fd;
static struct hf_map *board, *bells;
static const uint8_t source[16] = {9};

static inline struct hf_map *make(int fd, uint32_t kind, uint64_t bytes)
{
    struct hf_map *map = NULL;
    CHECK_EQ(hf_map_create(fd, kind, bytes, 0, source, 0, &map), HF_OK);
    hf_map_publish(map);
    return map;
}

static inline void fresh(void)
{
    hf_map_detach(board);
    hf_map_detach(bells);
    if (board_fd > 0) {
        close(board_fd);
        close(bells_fd);
    }
    board_fd = check_memory();
    bells_fd = check_memory();
    board = make(board_fd, HF_KIND_BOARD, sizeof(struct hf_board));
    bells = make(bells_fd, HF_KIND_BELLS, sizeof(struct hf_bells));
}

/* A child's own mapping, in place of its parent's. */
static inline void attach_here(void)
{
    CHECK_EQ(hf_map_attach(board_fd, HF_KIND_BOARD, 1, 1, &board), HF_OK);
    CHECK_EQ(hf_map_attach(bells_fd, HF_KIND_BELLS, 1, 1, &bells), HF_OK);
}

static inline struct hf_identity receiver(uint64_t number)
{
    struct hf_identity who = {.incarnation = 1, .session_id = 5, .role = HF_ROLE_RECEIVER, .name = "receiver"};
    memcpy(who.uuid, &number, sizeof(number));
    return who;
}

/* Waits for its turn as long as it takes. */
static inline int64_t claim(const struct hf_identity *who, struct hf_line_view *holder)
{
    int64_t index;
    do {
        index = hf_board_claim(board, domain, who, holder);
    } while (index == HF_AGAIN);
    return index;
}

static inline int64_t claim_number(uint64_t number)
{
    struct hf_identity who = receiver(number);
    return claim(&who, NULL);
}

static inline struct hf_board *shared(void)
{
    return (struct hf_board *)board->base;
}

static struct check_gate ready;

static inline _Noreturn void stay(void)
{
    check_open(&ready);
    for (;;) {
        pause();
    }
}

#endif
