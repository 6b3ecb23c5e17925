/* register.pml: backups that take a seat, lists of stores that change between lives, and the register of
 * the source's host.
 *
 * What each step mirrors is in README.md; the decision is in decision.inc. Promises by two questions,
 * orphan BEGINs and what a log holds are claim.pml's and begin.pml's: here a claimant asks once, and the
 * newest table holds. Ring and board are gone at each death. No operator excludes anybody.
 *
 * One life after another; the first has begun on list 0. Before each later one a store may lose its
 * directory (WIPES times in all; another process has run in the new one), and with -DDAMAGE the register
 * may be saved, and be lost or restored once. A life picks a list; of its stores some are up, of all
 * others some can be read. It asks, decides, writes its line, says BEGIN, sends. In the middle of it a
 * store comes late, a backup takes a seat, or one that takes part is wiped and comes back. It dies
 * anywhere.
 *
 * Properties: (a) no life starts at or below a number that is stable, unless no log has it any more, and
 * the decision says so; (b) no BEGIN makes void what is stable; (c) who waits does so for a store on
 * record that does not answer: else it has no next step, and the search finds an invalid end state. With
 * -DDAMAGE, (a) only where a log still has the number, and by what was lost with the register something
 * may be lost: not where the register as it was written would decide the same, nor where having none at
 * all would save it.
 *
 * Variants: {a,b,c} then {c,d,e}, two of three; -DPAIRS {a,b} then {b,c}, both; -DSEATS {a,b} then {b,c},
 * one seat and a backup; -DBACKUP {a,b,c,d}, three seats and a backup.
 *
 * Mutants: MUT_BACKUPS_IGNORED only first seats may have had anything; MUT_EARLIER_LIST only the declared
 * list counts; MUT_LINE_LATE the line is written when BEGIN has been acted on; MUT_SEAT_UNWRITTEN who
 * takes a seat counts without a line; MUT_RESTORED_BELIEVED where there is a register, the lists that
 * stores remember do not count; MUT_SETTLED_WITHOUT_REGISTER whom only the register knows is taken for one
 * that never took part; MUT_REJOINS_WHOLE who was wiped and begins again in the same life has a say;
 * MUT_FORGETFUL_ZERO who has forgotten counts as having nothing; MUT_FORGETFUL_FOR_EVER as having
 * anything, also when all have answered; MUT_UNREADABLE_EMPTY who cannot be read has nothing. */
#if defined(SEATS)
#define STORES 3
#define MEM(l) ((l) == 0 -> 3 : 6)
#define FIRST(l) ((l) == 0 -> 1 : 2)
#define NEED 1
#elif defined(PAIRS)
#define STORES 3
#define MEM(l) ((l) == 0 -> 3 : 6)
#define FIRST(l) MEM(l)
#define NEED 2
#elif defined(BACKUP)
#define STORES 4
#define ONE_LIST
#define MEM(l) 15
#define FIRST(l) 7
#define NEED 2
#else
#define STORES 5
#define MEM(l) ((l) == 0 -> 7 : 28)
#define FIRST(l) MEM(l)
#define NEED 2
#endif
#ifndef LIVES
#define LIVES 3
#endif
#ifndef NUMBERS
#define NUMBERS 1
#endif
#ifndef WIPES
#define WIPES 1
#endif
#define INCS (LIVES + 2)
#define UNKNOWN (NUMBERS + 1) /* greater than every number */
#define NOBODY STORES
#define B(p) (1 << (p))
#define CNT(m) (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1) + (((m) >> 3) & 1) + (((m) >> 4) & 1))
#define LISTED(m) ((((m) & 1) != 0 -> MEM(0) : 0) | (((m) & 2) != 0 -> MEM(1) : 0))

typedef Store {
    byte newest;      /* incarnation of the newest BEGIN, 0 = none */
    byte next;        /* number behind the last one that it has */
    byte start[INCS]; /* where incarnation i starts, UNKNOWN = no such BEGIN in its table */
    byte promised, to;
    byte list;        /* bit of the list that the newest BEGIN named, 0 = none */
    byte peers        /* who took part, as that BEGIN told */
}
Store st[STORES];
byte heard;  /* who has a state of the source */
byte forgot; /* who knows that it has lost something (SourceState.learner) */
byte wipes;

/* The register: lists, the number below which each counts, who took part; of these, whose directory has been wiped since. */
typedef Register { byte lists, below[2], wrote, old }
#define NOW 0
#ifdef DAMAGE
#define SAVED 1
#define WHOLE 2 /* what was to be written */
#define EMPTY 3 /* no register at all */
#define REGISTERS 4
bool damaged;
#else
#define REGISTERS 1
#endif
Register reg[REGISTERS];

byte stable, has[NUMBERS]; /* bits of numbers; who has what the last life to send this number gave it to */

/* The life. */
byte life, list, up, readable, seated, told, tells, k, start, sent;
byte snap[INCS]; /* its table */

/* Of one step; 0 between steps. */
byte p, q, i, n, t, v, least, most, high, learn, took, names, num[STORES], got, said;
byte was_got, was_first, was_said, first;
bool lost;

#define FOR(x, count) x = 0; do :: x < (count) ->
#define END(x) ; x++ :: else -> break od; x = 0

#include "decision.inc"

/* A decision that loses something: lost. Where nothing is left of it, it has to say so; with a register that is not what was
 * written nobody may know. */
#ifdef DAMAGE
#define SILENT false
#else
#define SILENT !said
#endif
inline judge() {
    lost = false;
    FOR(n, NUMBERS)
        if
        :: got == 1 && (stable & B(n)) && n >= first && (has[n] || SILENT) -> lost = true
        :: else
        fi
    END(n)
}

inline scratch() {
    got = 0; first = 0; said = 0; t = 0; learn = 0; took = 0; names = 0; lost = false
}

/* The line: this list, and who is about to take part (register.py declare). */
inline write(r, who) {
    reg[r].lists = reg[r].lists | B(list); reg[r].below[list] = UNKNOWN;
    reg[r].wrote = reg[r].wrote | (who); reg[r].old = reg[r].old & ~(who)
}

inline declare(who) {
#ifdef DAMAGE
    write(WHOLE, who);
#endif
    write(NOW, who)
}

/* register.py complete: no other list counts from the start on. */
inline bound(r) {
    if
    :: (reg[r].lists & B(1 - list)) && reg[r].below[1 - list] > start -> reg[r].below[1 - list] = start
    :: else
    fi
}

/* A store's directory is another one; a process of its own has started in it. */
inline wipe(s) {
    FOR(i, INCS) st[s].start[i] = UNKNOWN END(i);
    st[s].newest = 0; st[s].next = 0; st[s].promised = 0; st[s].to = 0; st[s].list = 0; st[s].peers = 0;
    forgot = forgot & ~B(s); heard = heard & ~B(s);
    FOR(i, REGISTERS) reg[i].old = reg[i].old | (reg[i].wrote & B(s)) END(i);
    FOR(n, NUMBERS) has[n] = has[n] & ~B(s) END(n);
    wipes++;
    printf("wiped %d\n", s)
}

/* Number from which on what store s has is void, in high. */
inline void_from(s) {
    high = (st[s].newest < k -> start : UNKNOWN);
    FOR(i, INCS)
        if
        :: i > st[s].newest && i < k && snap[i] < high -> high = snap[i]
        :: else
        fi
    END(i)
}

/* BEGIN(k, start) at store s; opening: its stream is not open at any store yet. */
inline begin_at(s, opening) {
    if
    :: st[s].newest > k || opening && (k < st[s].promised || k == st[s].promised && st[s].to != life) -> skip
    :: st[s].newest > 0 && st[s].newest < k && snap[st[s].newest] == UNKNOWN &&
       st[s].next > st[s].start[st[s].newest] -> skip /* built without one that has messages */
    :: else ->
        void_from(s);
        FOR(n, NUMBERS)
            if
            :: n >= high && n < st[s].next ->
                assert(!((stable & B(n)) && (has[n] & B(s)))); /* (b) */
                has[n] = has[n] & ~B(s)
            :: else
            fi;
            if
            :: n < start && (has[n] & (up | readable)) -> has[n] = has[n] | B(s) /* it catches up */
            :: else
            fi
        END(n);
        st[s].next = (st[s].next < high -> st[s].next : high);
        st[s].next = (st[s].next < start -> start : st[s].next);
        FOR(i, INCS) st[s].start[i] = (i < k -> snap[i] : (i == k -> start : UNKNOWN)) END(i);
        st[s].newest = k; st[s].list = B(list); st[s].peers = tells;
        told = told | B(s); high = 0;
        printf("  BEGIN(%d, %d) at %d: next %d\n", k, start, s, st[s].next)
    fi
}

/* What is stable now: enough of those that take part and have a seat have it. */
inline count_stable() {
    FOR(n, NUMBERS)
        if
        :: n >= start && CNT(has[n] & told & seated) >= NEED -> stable = stable | B(n)
        :: else
        fi
    END(n)
}

inline seats() {
    seated = FIRST(list); v = FIRST(list) & ~up;
    if
    :: v > 0 && (MEM(list) & ~FIRST(list) & up) -> seated = seated & ~(v & -v) | (MEM(list) & ~FIRST(list) & up)
    :: else
    fi;
    v = 0
}

inline opened() {
#ifndef MUT_LINE_LATE
    declare(tells);
#endif
    skip
}

active proctype Lives() {
    d_step {
        FOR(p, STORES) FOR(i, INCS) st[p].start[i] = UNKNOWN END(i) END(p);
        /* The first life has begun with who has a seat, and has sent nothing yet. */
        life = 1; k = 1; up = MEM(0); readable = 0; seated = FIRST(0); tells = FIRST(0); start = 0; list = 0;
        FOR(i, INCS) snap[i] = UNKNOWN END(i);
        declare(tells); heard = tells;
        FOR(p, STORES)
            if
            :: seated & B(p) -> begin_at(p, false); st[p].promised = 1; st[p].to = 1
            :: else
            fi
        END(p);
        skip
    };
    goto sends;

next:   skip; /* What befalls a store, or the register. */
    if
    :: d_step { wipes < WIPES -> p = 0 };
        do
        :: p < STORES - 1 -> p++
        :: d_step { wipe(p); p = 0 }; break
        od
    :: skip
    fi;
#ifdef DAMAGE
    if
    :: d_step { reg[SAVED].lists = reg[NOW].lists; reg[SAVED].below[0] = reg[NOW].below[0];
                reg[SAVED].below[1] = reg[NOW].below[1]; reg[SAVED].wrote = reg[NOW].wrote; reg[SAVED].old = reg[NOW].old }
    :: d_step { !damaged -> damaged = true; reg[NOW].lists = reg[SAVED].lists; reg[NOW].below[0] = reg[SAVED].below[0];
                reg[NOW].below[1] = reg[SAVED].below[1]; reg[NOW].wrote = reg[SAVED].wrote; reg[NOW].old = reg[SAVED].old }
    :: skip
    fi;
#endif
    life++;
    if
    :: list = 0
#ifndef ONE_LIST
    :: list = 1
#endif
    fi;
    do
    :: p < STORES ->
        if
        :: MEM(list) & B(p) -> up = up | B(p)
        :: readable = readable | B(p)
        :: skip
        fi;
        p++
    :: else -> break
    od;
    p = 0;
    d_step { seats(); printf("life %d list %d up %x readable %x seated %x\n", life, list, up, readable, seated) };
    if
    :: CNT(up & seated) < NEED -> goto died
    :: else
    fi;
    /* All that are up promise it one incarnation, one after another. */
    d_step {
        views(NOW);
        k = (t != NOBODY -> st[t].newest : 0);
        FOR(p, STORES)
            if
            :: (up & B(p)) && st[p].promised > k -> k = st[p].promised
            :: else
            fi
        END(p);
        k++;
        FOR(q, STORES) num[q] = 0 END(q);
        scratch()
    };
    do
    :: p < STORES ->
        if
        :: up & B(p) -> d_step { st[p].promised = k; st[p].to = life; heard = heard | B(p); p++ }
        :: !(up & B(p)) -> p++
        :: up & B(p) -> goto died
        fi
    :: else -> break
    od;
    p = 0;
    d_step {
#ifdef DAMAGE
        decide(WHOLE); was_got = got; was_first = first; was_said = said; scratch();
#endif
        decide(NOW);
        judge();
        printf("  decides %d: start %d, said %d, k %d; stable %x, has %x\n", got, first, said, k, stable, has[0]);
#ifdef DAMAGE
        if
        :: was_got != got || got == 1 && (was_first != first || was_said != said) ->
            /* Only what was to be written knew: then no register at all would be as bad. From here on it is another history. */
            if
            :: lost -> scratch(); decide(EMPTY); judge(); assert(lost)
            :: else
            fi;
            lost = false; got = 3
        :: else -> assert(!lost)
        fi;
        was_got = 0; was_first = 0; was_said = 0;
#else
        assert(!lost); /* (a) */
#endif
        start = first;
        FOR(n, NUMBERS)
            if
            :: got == 1 && n >= first -> has[n] = 0; stable = stable & ~B(n)
            :: else
            fi
        END(n);
        FOR(i, INCS) snap[i] = (got == 1 && st[t].start[i] < UNKNOWN -> st[t].start[i] : UNKNOWN) END(i);
        v = names; n = got; q = t;
        if
        :: got == 0 -> high = MEM(list) | LISTED(names) | LISTED(reg[NOW].lists)
        :: else
        fi;
        scratch();
        got = n; n = 0; v = 0; q = 0
    };
    if
    :: got == 1 -> got = 0
    :: got > 1 -> goto over
    :: got == 0 && (high & ~up) -> goto died /* it waits for a store; (c): else it has no next step */
    fi;
    d_step { tells = up & seated; opened() };
    /* BEGIN at one after another; some do not answer. */
    do
    :: p < STORES ->
        if
        :: up & seated & B(p) -> d_step { begin_at(p, true); p++ }
        :: p++
        fi
    :: else -> break
    od;
    p = 0;
    if
    :: CNT(told) < NEED -> goto died
    :: else
    fi;
    d_step {
#ifdef DAMAGE
        bound(WHOLE);
#endif
        bound(NOW)
    };

sends:  skip;
    do
    :: p < STORES -> p++
    :: d_step { p < STORES && (told & B(p)) && st[p].next < NUMBERS ->
            has[st[p].next] = has[st[p].next] | B(p); st[p].next++;
            sent = (st[p].next > sent -> st[p].next : sent);
            count_stable(); printf("  %d has %d; stable %x\n", p, st[p].next - 1, stable); p = 0 }
    :: d_step { p < STORES && (told & B(p)) && (forgot & B(p)) && st[p].next >= sent -> forgot = forgot & ~B(p); p = 0 }
    :: d_step { p < STORES && (told & B(p)) && wipes < WIPES -> wipe(p); told = told & ~B(p); p = 0 }
    /* It comes late, or again, or takes a seat. */
    :: p < STORES && (MEM(list) & B(p)) && !(told & B(p)) ->
        d_step {
            if
            :: seated & B(p) -> skip
            :: else ->
                v = seated & ~(seated - 1); /* of the first one that has a seat */
                seated = seated & ~v | B(p); told = told & ~v; v = 0
            fi;
            up = up | B(p); heard = heard | B(p);
#ifndef MUT_REJOINS_WHOLE
            if
            :: st[p].newest == 0 && (reg[NOW].old & B(p)) -> forgot = forgot | B(p)
            :: else
            fi;
#endif
            tells = tells | B(p);
            printf("  comes: %d, seated %x, forgot %x\n", p, seated, forgot);
#ifndef MUT_SEAT_UNWRITTEN
            declare(B(p))
#endif
        };
        if
        :: d_step { begin_at(p, false); count_stable(); p = 0 }
        :: goto died
        fi
#ifdef MUT_LINE_LATE
    :: d_step { declare(tells & told); p = 0 }
#endif
    :: goto died
    od;

died:   skip;
    d_step {
        up = 0; readable = 0; seated = 0; told = 0; tells = 0; k = 0; start = 0; sent = 0; list = 0;
        FOR(i, INCS) snap[i] = 0 END(i);
        p = 0; high = 0; got = 0; scratch()
    };
    if
    :: life < LIVES -> goto next
    :: else
    fi;
over:
    skip
}
