/* board.pml: the claim of a board's line: turns, the two owner words, death anywhere, release, and reuse by another participant, beside
 * a reader that copies a line.
 *
 * Mirrors: csrc/board/board.c take_turn, find_own, find_unused, find_silent, describe, end_turn, hf_board_release, try_copy. A claimer is a
 * process with one claim; its owner words are FIRST and SECOND. Death is proved by a free lock (csrc/base/process.h), so it is
 * certain and final; who has ended is dead, too. Of the details there are four: ack, uuid, name and, stored last,
 * since (the time of the claim). Any line whose owner is dead may be the longest silent.
 *
 * Default: two lines, participants 1, 1 and 2, no reader. -DONE: one line, which participants 1 and 2 want, a reader, and no kills.
 *
 * Properties: (a) a live claimer has its line alone, until it releases it; (b) a participant has no two live lines; (c) a copy that a
 * reader accepts pairs no participant's identity with another's ack; (d) a participant that comes back finds its
 * positions, unless another one has taken its line meanwhile, and nobody starts with another's; (e) a claimer that is dead stops nobody
 * (spin's "invalid end state").
 *
 * Mutants: MUT_NO_TURN; MUT_TURN_PLAIN the turn is taken by a store; MUT_TURN_FOR_EVER a dead claimer keeps it; MUT_STEAL_ALIVE a
 * silent line is taken without proof of death; MUT_FREE_FOR_OWN a participant that comes back passes through FREE; with -DONE:
 * MUT_ALWAYS_CLOSED another participant's details change under CLOSED; MUT_STATE_FIRST ACTIVE is stored before the details;
 * MUT_SINCE_FIRST so is the time of the claim (before the last one); MUT_KEEP_OTHERS positions are not reset; MUT_NO_SINCE,
 * MUT_NO_RECHECK the reader does not compare the time of the claim, or owner and state, again; MUT_RELEASE_OWNER_FIRST release
 * gives the line away before its last store. */
#define CLAIMERS 3
#ifdef ONE
#define KILLS 0 /* who has ended is dead, too */
#define LINES 1
#define UUID(p) ((p) == 1 -> 2 : 1)
#else
#define KILLS 1
#define LINES 2
#define UUID(p) ((p) == 2 -> 2 : 1)
#endif

#define FREE 0
#define ACTIVE 1
#define CLOSED 2
#define NONE 255

#define FIRST (2 * me + 1)
#define SECOND (2 * me + 2)
#define ALIVE(o) ((o) != 0 && !dead[((o) - 1) / 2])

typedef Line { byte owner; byte state; byte ack; byte uuid; byte since; byte name }

Line line[LINES];
byte turn; /* the owner word of the claim in progress */
bool dead[CLAIMERS];

/* What really holds; nobody in the protocol reads it. */
byte holder[LINES] = NONE; /* the claimer that has the line */
byte home[3];              /* 1 + the line with the positions of this uuid */
byte last[3];              /* its last ack there: 16 * uuid + count */

inline claimed() {
    d_step {
        assert(holder[l] == NONE || dead[holder[l]]); /* (a) */
        i = 0;
        do
        :: i < LINES ->
            assert(i == l || holder[i] == NONE || dead[holder[i]] || UUID(holder[i]) != u); /* (b) */
            i++
        :: else -> break
        od;
        assert(home[u] == 0 || home[u] == l + 1);                              /* (d) */
        assert(line[l].ack == (home[u] == 0 -> 0 : last[u]));                  /* (d) */
        assert(line[l].uuid == u && line[l].name == u && line[l].since == SECOND);
        if
        :: home[u] == 0 -> last[u] = 0
        :: else
        fi;
        home[u] = l + 1;
        holder[l] = me;
        line[l].state = ACTIVE;
        i = 0
    }
}

inline take_turn() {
#ifndef MUT_NO_TURN
    do
#ifdef MUT_TURN_FOR_EVER
    :: atomic { turn == 0 -> h = turn };
#else
    :: atomic { !ALIVE(turn) -> h = turn };
#endif
#ifdef MUT_TURN_PLAIN
        turn = FIRST; break
#else
        if
        :: d_step { turn == h -> turn = FIRST }; break
        :: else
        fi
#endif
    od;
    h = 0
#else
    skip
#endif
}

inline end_turn() {
#ifndef MUT_NO_TURN
    turn = 0
#else
    skip
#endif
}

/* Leaves the line in l: NONE if there is none; busy: a live process is this participant. Beside a turn only the owner's release runs. */
inline find() {
    do
    :: i < LINES ->
        d_step {
            if
            :: line[i].state != FREE && line[i].uuid == u ->
                if
                :: ALIVE(line[i].owner) -> busy = true
                :: !ALIVE(line[i].owner) && l == NONE -> l = i
                :: else
                fi
            :: else
            fi;
            i++
        }
    :: else -> break
    od;
    skip; /* a break must not lead into a d_step */
    d_step {
        i = 0;
        do
        :: !busy && l == NONE && i < LINES ->
            if
            :: line[i].owner == 0 && line[i].state == FREE -> l = i
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    };
    if
    :: !busy && l == NONE ->
        if
#ifdef MUT_STEAL_ALIVE
        :: l = 0
        :: l = LINES - 1
#else
        :: !ALIVE(line[0].owner) -> l = 0
        :: !ALIVE(line[LINES - 1].owner) -> l = LINES - 1
        :: else
#endif
        fi
    :: else
    fi
}

inline describe() {
    line[l].owner = FIRST; /* by compare-and-swap; in its turn, nobody else's can come in between */
    d_step {
        keep = line[l].state != FREE && line[l].uuid == u;
        a = (keep -> line[l].ack : 0)
    };
#ifdef MUT_KEEP_OTHERS
    a = line[l].ack;
#endif
    d_step {
        if
        :: !keep && home[1] == l + 1 -> home[1] = 0
        :: !keep && home[2] == l + 1 -> home[2] = 0
        :: else
        fi;
#ifdef MUT_ALWAYS_CLOSED
        line[l].state = CLOSED
#else
#ifdef MUT_FREE_FOR_OWN
        line[l].state = FREE
#else
        line[l].state = (keep -> CLOSED : FREE)
#endif
#endif
    };
    line[l].owner = SECOND;
#ifdef MUT_STATE_FIRST
    line[l].state = ACTIVE;
#endif
    line[l].ack = a;
    line[l].uuid = u;
#ifdef MUT_SINCE_FIRST
    line[l].since = SECOND;
    line[l].name = u;
#else
    line[l].name = u;
    line[l].since = SECOND;
#endif
    claimed();
    a = 0;
    keep = false
}

inline release() {
    holder[l] = NONE;
#ifdef MUT_RELEASE_OWNER_FIRST
    line[l].owner = 0;
    line[l].state = CLOSED
#else
    line[l].state = CLOSED;
    line[l].owner = 0
#endif
}

proctype Claimer(byte me) {
    byte u = UUID(me);
    byte l = NONE;
    byte i, h, a;
    bool busy, keep;
    {
        take_turn();
        find();
        if
        :: busy || l == NONE -> end_turn()
        :: else ->
            describe();
            end_turn();
            if
            :: d_step { /* acknowledges something */
                assert(holder[l] == me && line[l].state == ACTIVE && line[l].uuid == u); /* (a) */
                last[u] = (last[u] == 0 -> 16 * u + 1 : last[u] + 1);
                line[l].ack = last[u]
               }
            :: skip
            fi;
            if
            :: release()
            :: skip
            fi
        fi
    } unless { dead[me] };
    d_step {
        assert(home[u] == 0 || line[home[u] - 1].state != FREE); /* (d): who dies leaves the positions */
        dead[me] = true; l = NONE; i = 0; h = 0; a = 0; busy = false; keep = false
    }
}

active proctype Killer() {
    byte kills;
    do
    :: kills < KILLS && !dead[0] -> dead[0] = true; kills++
    :: kills < KILLS && !dead[1] -> dead[1] = true; kills++
    :: kills < KILLS && !dead[2] -> dead[2] = true; kills++
    :: kills = 0; break
    od
}

#ifdef ONE
active proctype Reader() {
    byte o, s, t, a, u, n;
    o = line[0].owner;
    s = line[0].state;
    t = line[0].since;
    u = line[0].uuid;
    n = line[0].name;
    a = line[0].ack;
#ifndef MUT_NO_RECHECK
    if
    :: line[0].state != s -> goto no
    :: else
    fi;
    if
    :: line[0].owner != o -> goto no
    :: else
    fi;
#endif
#ifndef MUT_NO_SINCE
    if
    :: line[0].since != t -> goto no
    :: else
    fi;
#endif
    assert(s == FREE || (u == n && (a == 0 || a / 16 == u))); /* (c) */
no: skip;
    d_step { o = 0; s = 0; t = 0; a = 0; u = 0; n = 0 }
}
#endif

init {
    atomic {
        run Claimer(0);
#ifndef ONE
        run Claimer(2);
#endif
        run Claimer(1)
    }
}
