/* board.h: one line per participant of a source (base/layout.h: hf_board_line). Every line has one writer; what the source wants to
 * know (stability, confirmation, pins) it reads.
 *
 * Claiming: own line of an earlier incarnation (same uuid and role) first, then one that was never used, then one that was
 * released or whose owner is proved dead: of an ephemeral or deregistered receiver first, then the longest silent. Claims of one board take turns (hf_board.claimer), so that
 * one participant cannot get two lines. Only `owner` is compare-and-swapped; the details follow, and `state` is stored last. A
 * claimer that dies in between is dead, so the next one takes its turn and its line. Positions (ack, position, range, counters)
 * survive a re-claim by the same uuid, role and level, and are reset for any other.
 *
 * Garbage in a line (a broken peer may write any byte of the board) must not hurt a reader: hf_board_read copies fields with
 * atomic loads and clamps nothing; callers clamp against what they know. */
#ifndef HF_BOARD_BOARD_H
#define HF_BOARD_BOARD_H
#include "base/map.h"

/* cffi: begin */
struct hf_identity {
    uint8_t uuid[16];
    uint64_t incarnation;
    uint64_t session_id;
    uint32_t registration_id;
    uint32_t role;
    uint32_t level;
    uint32_t bell;
    uint32_t user_registration_id;
    uint32_t flags;
    char name[32];
};

/* A participant's copy of a line, and whether its process lives. */
struct hf_line_view {
    struct hf_board_line line;
    uint32_t index;
    int32_t alive; /* 1, 0 = proved dead (or closed), -1 = not tested */
};

/* Joins the domain if need be. Index of the line, or HF_FULL, HF_BUSY (a live process holds a line with this uuid and role;
 * *holder tells, may be NULL), HF_AGAIN (it was another one's turn for 50 ms: owner and owner_pid of *holder say whose, pid 0 where that is not
 * known), HF_FENCED, HF_FORKED, HF_USAGE, HF_ERRNO - errno. */
int64_t hf_board_claim(struct hf_map *board, int domain_fd, const struct hf_identity *who, struct hf_line_view *holder);
/* State CLOSED, pin none, owner 0; positions stay readable. HF_USAGE: the line is not this process's. */
int64_t hf_board_release(struct hf_map *board, int64_t index);
/* Lines of receivers whose lock proves them dead: owner 0, so that nothing names their lock files any more. Everything else stays
 * as it is; ACTIVE with owner 0 reads as dead. Takes no turn: one compare-and-swap of the dead owner's word wins. Number of
 * lines, or HF_FORKED, HF_USAGE. */
int64_t hf_board_bury(struct hf_map *board, int domain_fd);
/* Sets HF_LINE_DEREGISTERED in a receiver's line, as long as it is the one that was claimed at since_ns: in its own turn, so that no
 * claim runs meanwhile, and the mark meets no later participant. The owner, if it lives, may undo that by a plain store at the
 * same time: then the line says less. 1, 0 where the line is another one by now, or HF_AGAIN as hf_board_claim, HF_FORKED,
 * HF_USAGE, HF_ERRNO - errno. */
int64_t hf_board_mark(struct hf_map *board, int domain_fd, int64_t index, uint64_t since_ns);
/* NULL: no such line, or a forked child. */
struct hf_board_line *hf_board_line_at(struct hf_map *board, int64_t index);
/* Copies all lines with state != FREE into out (capacity n), each consistent in owner, identity and range; one that changes
 * hands just then is left out. test: also proves death, a few system calls per line. Returns the count. */
int64_t hf_board_read(const struct hf_map *board, int domain_fd, int test, struct hf_line_view *out, int64_t n);
/* One of them. 1, or HF_AGAIN: it is free or changes hands. */
int64_t hf_board_copy(const struct hf_map *board, int64_t index, struct hf_board_line *out);
void hf_line_range(struct hf_board_line *line, uint64_t from_sqn, uint64_t to_sqn);
/* Stores position and ack (release; neither goes backwards, ack <= position), then rings the source's bell if it waits. bells
 * may be NULL. A line that is not this process's stays as it is. Wait-free. */
void hf_board_ack(struct hf_map *board, struct hf_map *bells, int64_t index, uint64_t ack, uint64_t position);
/* A new incarnation of the source began at start_sqn (docs/design.md 13): ack = min(ack, start_sqn), then ack_stream =
 * incarnation. Older incarnations than ack_stream change nothing. Whoever reads an ack of an older ack_stream clamps it by every
 * start since. */
void hf_board_rebase(struct hf_map *board, int64_t index, uint64_t incarnation, uint64_t start_sqn);
/* cffi: end */

/* The source's side of sleep and wake (docs/design.md 10), called after a commit that has seen `sleepers` set
 * (send.c: wake); while nobody sleeps a commit costs one load. */
void hf_board_wake_slow(struct hf_map *board, struct hf_map *bells);
#endif
