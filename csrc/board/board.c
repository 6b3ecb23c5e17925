/* board.c: claiming, reading and acknowledging on a source's board. See board.h.
 *
 * `owner` is also the version of a line. A claim passes through two owner words:
 *
 *     CAS owner -> first; state = FREE (CLOSED if the participant comes back); owner = second; details; since; state = ACTIVE
 *
 * hf_board_read takes a copy only if owner and state are the same before and after it. While the owner is `first`, no
 * detail has changed; once it is `second`, the state is FREE until all details are there. So a copy never pairs one
 * participant's identity with another's ack. CLOSED instead of FREE: details of the same participant may be of two
 * incarnations there, but uuid, role, level and positions do not change, and a claimer that dies there does not lose
 * them.
 *
 * Why claims take turns: two claimers of one uuid on two lines would each have to see the other before it may win, and
 * one that has won must not be overtaken by one that had not looked yet. With turns there is one claimer at a time, and
 * whoever holds the uuid has published. The turn is a word that holds the claimer's owner word: if its process is
 * proved dead, it changes hands like a line does. A stopped claimer makes others fail (HF_AGAIN), never overlap. */
#include "board/board.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/process.h"
#include "base/status.h"
#include "board/bell.h"

enum { WORDS = sizeof(struct hf_board_line) / 8, DETAILS = 2, READ_TRIES = 16, TURN_NAP_NS = 100000, NOBODY = -1 };
_Static_assert(offsetof(struct hf_board_line, from_sqn) == DETAILS * 8, "owner and state first, then the details");

static struct hf_board *board_of(const struct hf_map *map)
{
    return (struct hf_board *)map->base;
}

struct hf_board_line *hf_board_line_at(struct hf_map *map, int64_t index)
{
    if (hf_process_forked(map->token) || map->kind != HF_KIND_BOARD || index < 0 || index >= HF_BOARD_LINES) {
        return NULL;
    }
    return &board_of(map)->lines[index];
}

static int owned_here(const struct hf_map *map, const struct hf_board_line *line)
{
    return (hf_load_relaxed_u64(&line->owner) ^ map->token) >> 16 == 0;
}

/* 1 alive, 0 the line may change hands, < 0 cannot be said. */
static int64_t line_alive(int domain_fd, const struct hf_board_line *line)
{
    uint64_t owner = hf_load_acquire_u64(&line->owner);
    uint32_t pid = hf_load_relaxed_u32(&line->owner_pid);
    return hf_process_alive(domain_fd, owner, pid, hf_load_relaxed_u64(&line->owner_start));
}

/* Waits for its turn. HF_AGAIN after 50 ms: the caller may see to its signals and come again; *out then says whose turn it is. A
 * turn is never taken from a process that lives, however long it stands still. */
static int64_t take_turn(struct hf_board *board, int domain_fd, uint64_t claim, struct hf_line_view *out)
{
    for (int64_t deadline = hf_now_ns() + HF_WAIT_MAX_NS;;) {
        uint64_t holder = hf_load_acquire_u64(&board->claimer); /* pairs with end_turn */
        int64_t alive = holder == 0 ? 0 : hf_process_alive(domain_fd, holder, 0, 0);
        if (alive < 0) {
            return alive;
        }
        if (alive == 0 && hf_cas_u64(&board->claimer, holder, claim)) {
            return HF_OK;
        }
        if (hf_now_ns() >= deadline) {
            if (out != NULL) {
                *out = (struct hf_line_view){.index = UINT32_MAX, .alive = 1, .line.owner = holder};
                out->line.owner_pid = (uint32_t)hf_process_pid(domain_fd, holder);
            }
            return HF_AGAIN;
        }
        /* Not a yield: a crowd of claimers would starve the one whose turn it is. */
        nanosleep(&(struct timespec){0, TURN_NAP_NS}, NULL);
    }
}

static void end_turn(struct hf_board *board)
{
    hf_store_release_u64(&board->claimer, 0); /* pairs with take_turn */
}

static void copy_words(const struct hf_board_line *line, struct hf_board_line *out)
{
    const uint64_t *from = (const uint64_t *)(const void *)line;
    uint64_t words[WORDS];
    for (int i = 0; i < WORDS; i++) {
        words[i] = hf_load_relaxed_u64(&from[i]);
    }
    memcpy(out, words, sizeof(words));
}

/* One attempt. 1: *out is consistent. The range is read last and by its own rule (hf_line_range): a store that has lost numbers
 * moves from_sqn behind them before its ack passes them, so whoever sees that ack sees that range. */
static int try_copy(const struct hf_board_line *line, struct hf_board_line *out)
{
    uint64_t owner = hf_load_acquire_u64(&line->owner); /* pairs with describe: second owner word */
    uint64_t state = hf_load_acquire_u64(&line->state); /* pairs with describe: state ACTIVE */
    /* A released line's owner is 0 before and after somebody else's whole claim: the time of the claim tells them apart. It is the
     * last detail that is stored (board.pml, MUT_SINCE_FIRST). */
    uint64_t since = hf_load_acquire_u64(&line->since_ns); /* pairs with describe: since */
    copy_words(line, out);
    uint64_t ack_stream = hf_load_acquire_u64(&line->ack_stream); /* pairs with hf_board_rebase; before ack */
    uint64_t ack = hf_load_acquire_u64(&line->ack); /* pairs with hf_board_ack; before position: ack <= position */
    uint64_t position = hf_load_relaxed_u64(&line->position);
    HF_FAIL("board.copied");
    uint64_t to = hf_load_acquire_u64(&line->to_sqn); /* pairs with hf_line_range */
    uint64_t from = hf_load_relaxed_u64(&line->from_sqn);
    hf_fence_acquire(); /* pairs with the release fences in describe and hf_line_range */
    if (hf_load_relaxed_u64(&line->to_sqn) != to || hf_load_acquire_u64(&line->state) != state ||
        hf_load_relaxed_u64(&line->owner) != owner || hf_load_relaxed_u64(&line->since_ns) != since) {
        return 0;
    }
    out->owner = owner;
    out->state = state;
    out->from_sqn = from;
    out->to_sqn = to;
    out->ack = ack;
    out->ack_stream = ack_stream;
    out->position = position;
    return 1;
}

/* 1: a copy; 0: unused, or changing hands all the time. */
static int copy_line(const struct hf_board_line *line, struct hf_board_line *out)
{
    for (int i = 0; i < READ_TRIES; i++) {
        if (hf_load_acquire_u64(&line->state) == HF_LINE_FREE) {
            return 0; /* most lines of most boards: nothing is copied */
        }
        if (try_copy(line, out)) {
            return out->state != HF_LINE_FREE;
        }
        hf_cpu_relax();
    }
    return 0;
}

int64_t hf_board_copy(const struct hf_map *map, int64_t index, struct hf_board_line *out)
{
    HF_ENTER(map);
    if (map->kind != HF_KIND_BOARD || index < 0 || index >= HF_BOARD_LINES) {
        return HF_USAGE;
    }
    return copy_line(&board_of(map)->lines[index], out) ? 1 : HF_AGAIN;
}

int64_t hf_board_read(const struct hf_map *map, int domain_fd, int test, struct hf_line_view *out, int64_t n)
{
    HF_ENTER(map);
    int64_t count = 0;
    for (uint32_t i = 0; i < HF_BOARD_LINES && count < n; i++) {
        struct hf_line_view *view = &out[count];
        if (!copy_line(&board_of(map)->lines[i], &view->line)) {
            continue;
        }
        int64_t alive = -1;
        if (view->line.state == HF_LINE_CLOSED || view->line.owner == 0) {
            alive = 0;
        } else if (test) {
            alive = hf_process_alive(domain_fd, view->line.owner, view->line.owner_pid, view->line.owner_start);
        }
        view->index = i;
        view->alive = alive < 0 ? -1 : (int32_t)alive;
        count++;
    }
    return count;
}

static int same_participant(const struct hf_board_line *line, const struct hf_identity *who)
{
    struct hf_board_line copy;
    copy_words(line, &copy); /* stable: only its owner's release can run beside our turn, and it leaves the identity */
    return copy.state != HF_LINE_FREE && copy.role == who->role && memcmp(copy.uuid, who->uuid, sizeof(copy.uuid)) == 0;
}

/* Line of an earlier incarnation of `who`, NOBODY, HF_BUSY, or why that cannot be said. */
static int64_t find_own(struct hf_board *board, int domain_fd, const struct hf_identity *who,
                        struct hf_line_view *holder, int64_t *own)
{
    *own = NOBODY;
    for (uint32_t i = 0; i < HF_BOARD_LINES; i++) {
        struct hf_board_line *line = &board->lines[i];
        if (!same_participant(line, who)) {
            continue;
        }
        int64_t alive = line_alive(domain_fd, line);
        if (alive < 0) {
            return alive;
        }
        if (alive == 1) {
            if (holder != NULL) {
                *holder = (struct hf_line_view){.index = i, .alive = 1};
                copy_words(line, &holder->line);
            }
            return HF_BUSY;
        }
        if (*own == NOBODY) {
            *own = i;
        }
    }
    return HF_OK;
}

static int64_t find_unused(const struct hf_board *board)
{
    for (int64_t i = 0; i < HF_BOARD_LINES; i++) {
        const struct hf_board_line *line = &board->lines[i];
        if (hf_load_relaxed_u64(&line->owner) == 0 && hf_load_relaxed_u64(&line->state) == HF_LINE_FREE) {
            return i;
        }
    }
    return NOBODY;
}

/* Nobody goes on with what it says, once its owner has ended. */
static int is_for_nobody(const struct hf_board_line *line)
{
    struct hf_board_line copy;
    copy_words(line, &copy); /* as in same_participant */
    return copy.role == HF_ROLE_RECEIVER && (copy.flags & (HF_LINE_EPHEMERAL | HF_LINE_DEREGISTERED)) != 0;
}

/* A line that may change hands: of an ephemeral or deregistered receiver, else any; the longest silent. Each candidate is tested once. */
static int64_t find_silent(const struct hf_board *board, int domain_fd)
{
    uint8_t tested[HF_BOARD_LINES] = {0};
    for (int round = 0; round < HF_BOARD_LINES; round++) {
        int64_t oldest = NOBODY;
        int first = 0; /* the oldest is of the kind that goes first */
        uint64_t oldest_ns = UINT64_MAX;
        for (int64_t i = 0; i < HF_BOARD_LINES; i++) {
            uint64_t heartbeat = hf_load_relaxed_u64(&board->lines[i].heartbeat_ns);
            int ephemeral = is_for_nobody(&board->lines[i]);
            int sooner = ephemeral != first ? ephemeral : heartbeat < oldest_ns;
            if (!tested[i] && (oldest == NOBODY || sooner)) {
                oldest = i;
                oldest_ns = heartbeat;
                first = ephemeral;
            }
        }
        tested[oldest] = 1;
        if (line_alive(domain_fd, &board->lines[oldest]) == 0) {
            return oldest;
        }
    }
    return NOBODY;
}

static uint64_t realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The details of a line: positions as they are if `keep`, else from the start. */
static void compose(struct hf_board_line *next, const struct hf_identity *who, int keep)
{
    if (!keep) {
        memset(next, 0, sizeof(*next));
    }
    next->pin = UINT64_MAX;
    next->pin_stream = 0;
    next->sleeping = 0;
    next->bell = who->bell;
    next->heartbeat_ns = (uint64_t)hf_now_ns();
    memcpy(next->uuid, who->uuid, sizeof(next->uuid));
    next->incarnation = who->incarnation;
    next->session_id = who->session_id;
    next->owner_pid = (uint32_t)getpid();
    next->owner_start = hf_process_start(next->owner_pid);
    next->since_ns = realtime_ns();
    next->registration_id = who->registration_id;
    next->role = who->role;
    next->level = who->level;
    next->user_registration_id = who->user_registration_id;
    next->flags = who->flags;
    memcpy(next->name, who->name, sizeof(next->name));
    next->name[sizeof(next->name) - 1] = '\0';
}

/* Makes the line ours (see above). HF_AGAIN: its dead owner was buried just then, or a broken peer has it; nothing was written. */
static int64_t describe(struct hf_board_line *line, const struct hf_identity *who, uint64_t owner, uint64_t first)
{
    if (!hf_cas_u64(&line->owner, owner, first)) {
        return HF_AGAIN;
    }
    HF_FAIL("board.owned");
    struct hf_board_line next;
    copy_words(line, &next);
    int keep = same_participant(line, who) && next.level == who->level;
    compose(&next, who, keep);
    hf_store_release_u64(&line->state, keep ? HF_LINE_CLOSED : HF_LINE_FREE);
    hf_store_release_u64(&line->owner, hf_process_claim()); /* pairs with try_copy: owner */
    hf_fence_release();                                     /* whoever sees a detail sees the second owner word */
    uint64_t words[WORDS];
    uint64_t since = next.since_ns;
    next.since_ns = hf_load_relaxed_u64(&line->since_ns);
    memcpy(words, &next, sizeof(words));
    uint64_t *to = (uint64_t *)(void *)line;
    for (int i = DETAILS; i < WORDS; i++) {
        hf_store_relaxed_u64(&to[i], words[i]);
    }
    HF_FAIL("board.described");
    hf_store_release_u64(&line->since_ns, since); /* pairs with try_copy: since. Whoever sees it sees every detail */
    hf_store_release_u64(&line->state, HF_LINE_ACTIVE); /* pairs with try_copy: state */
    return HF_OK;
}

static int64_t claim_in_turn(struct hf_board *board, int domain_fd, const struct hf_identity *who,
                             struct hf_line_view *holder, uint64_t claim)
{
    int64_t index;
    int64_t status = find_own(board, domain_fd, who, holder, &index);
    if (status != HF_OK) {
        return status;
    }
    if (index == NOBODY) {
        index = find_unused(board);
    }
    if (index == NOBODY) {
        index = find_silent(board, domain_fd);
    }
    if (index == NOBODY) {
        return HF_FULL;
    }
    struct hf_board_line *line = &board->lines[index];
    uint64_t owner = hf_load_acquire_u64(&line->owner); /* 0 or dead: only a claimer in its turn makes it another one */
    status = describe(line, who, owner, claim);
    return status == HF_OK ? index : status;
}

int64_t hf_board_claim(struct hf_map *map, int domain_fd, const struct hf_identity *who, struct hf_line_view *holder)
{
    HF_ENTER(map);
    if (map->kind != HF_KIND_BOARD || !map->writable || who->role == HF_ROLE_NONE) {
        return HF_USAGE;
    }
    int64_t status = hf_process_join(domain_fd); /* before the first shared store: our death must be provable */
    if (status != HF_OK) {
        return status;
    }
    struct hf_board *board = board_of(map);
    uint64_t claim = hf_process_claim();
    status = take_turn(board, domain_fd, claim, holder);
    if (status != HF_OK) {
        return status;
    }
    HF_FAIL("board.turn");
    status = claim_in_turn(board, domain_fd, who, holder, claim);
    end_turn(board);
    return status;
}

int64_t hf_board_release(struct hf_map *map, int64_t index)
{
    HF_ENTER(map);
    struct hf_board_line *line = hf_board_line_at(map, index);
    if (line == NULL || !owned_here(map, line) || hf_load_relaxed_u64(&line->state) != HF_LINE_ACTIVE) {
        return HF_USAGE;
    }
    hf_store_relaxed_u32(&line->sleeping, 0);
    hf_store_relaxed_u64(&line->heartbeat_ns, (uint64_t)hf_now_ns());
    hf_store_seq_cst_u64(&line->pin, UINT64_MAX); /* pairs with the source's scan of pins */
    hf_store_release_u64(&line->state, HF_LINE_CLOSED);
    HF_FAIL("board.closed"); /* a crash here: closed, and its owner proved dead, which is the same */
    hf_store_release_u64(&line->owner, 0);
    return HF_OK;
}

int64_t hf_board_bury(struct hf_map *map, int domain_fd)
{
    HF_ENTER(map);
    if (map->kind != HF_KIND_BOARD || !map->writable) {
        return HF_USAGE;
    }
    int64_t count = 0;
    for (int i = 0; i < HF_BOARD_LINES; i++) {
        struct hf_board_line *line = &board_of(map)->lines[i];
        uint64_t owner = hf_load_acquire_u64(&line->owner);
        if (owner != 0 && hf_load_relaxed_u32(&line->role) == HF_ROLE_RECEIVER &&
            hf_process_alive(domain_fd, owner, 0, 0) == 0) {
            count += hf_cas_u64(&line->owner, owner, 0); /* a claimer that has seen the dead owner tries again */
        }
    }
    return count;
}

int64_t hf_board_mark(struct hf_map *map, int domain_fd, int64_t index, uint64_t since_ns)
{
    HF_ENTER(map);
    struct hf_board_line *line = hf_board_line_at(map, index);
    if (line == NULL || !map->writable) {
        return HF_USAGE;
    }
    int64_t status = hf_process_join(domain_fd); /* as in hf_board_claim */
    if (status == HF_OK) {
        status = take_turn(board_of(map), domain_fd, hf_process_claim(), NULL);
    }
    if (status != HF_OK) {
        return status;
    }
    int same = hf_load_relaxed_u32(&line->role) == HF_ROLE_RECEIVER &&
               hf_load_relaxed_u64(&line->since_ns) == since_ns && hf_load_relaxed_u64(&line->state) != HF_LINE_FREE;
    if (same) {
        hf_or_u32(&line->flags, HF_LINE_DEREGISTERED);
    }
    end_turn(board_of(map));
    return same;
}

/* The range is empty while it changes: a reader loads to_sqn, from_sqn and to_sqn again. Whoever sees the new from_sqn
 * sees 0 or the new to_sqn the second time, so a pair is the old one, the new one, or read once more. */
void hf_line_range(struct hf_board_line *line, uint64_t from_sqn, uint64_t to_sqn)
{
    hf_store_relaxed_u64(&line->to_sqn, 0);
    hf_fence_release(); /* pairs with try_copy: acquire fence */
    hf_store_relaxed_u64(&line->from_sqn, from_sqn);
    HF_FAIL("board.range");                      /* a crash here leaves an empty range: it counts for nothing */
    hf_store_release_u64(&line->to_sqn, to_sqn); /* pairs with try_copy: to_sqn */
}

void hf_board_ack(struct hf_map *map, struct hf_map *bells, int64_t index, uint64_t ack, uint64_t position)
{
    struct hf_board_line *line = hf_board_line_at(map, index);
    if (line == NULL || !owned_here(map, line)) {
        return;
    }
    uint64_t least = position > ack ? position : ack;
    if (hf_load_relaxed_u64(&line->position) < least) {
        hf_store_relaxed_u64(&line->position, least);
    }
    if (hf_load_relaxed_u64(&line->ack) < ack) {
        hf_store_release_u64(&line->ack, ack); /* pairs with try_copy: ack */
    }
    /* The store above before the look at source_waiting: the source's membarrier orders them, if we registered for
     * it. */
    if (hf_wait_registered()) {
        hf_compiler_barrier();
    } else {
        hf_fence_seq_cst();
    }
    struct hf_board *board = board_of(map);
    if (hf_load_relaxed_u32(&board->source_waiting) != 0 && hf_exchange_u32(&board->source_waiting, 0) != 0 &&
        bells != NULL) {
        hf_bell_ring(bells, hf_load_relaxed_u32(&board->source_bell)); /* pairs with hf_board_source_waits */
    }
}

void hf_board_rebase(struct hf_map *map, int64_t index, uint64_t incarnation, uint64_t start_sqn)
{
    struct hf_board_line *line = hf_board_line_at(map, index);
    if (line == NULL || !owned_here(map, line) || hf_load_relaxed_u64(&line->ack_stream) >= incarnation) {
        return;
    }
    if (hf_load_relaxed_u64(&line->ack) > start_sqn) {
        hf_store_release_u64(&line->ack, start_sqn);
    }
    if (line->from_sqn > start_sqn &&
        line->to_sqn > start_sqn) { /* what comes again from there on, it has like anybody */
        hf_line_range(line, start_sqn, line->to_sqn);
    }
    hf_store_release_u64(&line->ack_stream, incarnation); /* pairs with try_copy: ack_stream */
}

/* Called after `sleepers` was seen set. The exchange, unlike a load and a store, reads the latest value: it
 * synchronises with the exchange of every sleeper before it, so their `sleeping` and `bell` are seen below; and a
 * sleeper after it leaves 1 behind, for the next commit, and has not taken its last look yet (wait.c), which then sees
 * this commit. */
void hf_board_wake_slow(struct hf_map *map, struct hf_map *bells)
{
    if (bells == NULL || hf_process_forked(map->token)) {
        return;
    }
    struct hf_board *board = board_of(map);
    if (hf_exchange_u32(&board->sleepers, 0) == 0) {
        return;
    }
    for (int i = 0; i < HF_BOARD_LINES; i++) {
        const struct hf_board_line *line = &board->lines[i];
        if (hf_load_relaxed_u32(&line->sleeping) != 0 && hf_load_acquire_u64(&line->state) == HF_LINE_ACTIVE) {
            hf_bell_ring(bells, hf_load_relaxed_u32(&line->bell));
        }
    }
}
