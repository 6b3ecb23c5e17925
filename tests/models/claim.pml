/* claim.pml: who may open which incarnation, and where it starts, while stores are away, cannot be read, are killed and are
 * wiped. 3 stores, a quorum of 2.
 *
 * Mirrors: engine/rules/election.py decide, engine/rules/reports.py least_impossible, engine/log/state_file.py promise, the desk's begin in
 * engine/store/sources.py, engine/rules/reconcile.py newest_table and after_begin. Ring, board and drain are begin.pml's: here a reboot
 * may always have taken them.
 *
 * One claimant after another: the one before is dead, as its free lock proves. A claimant asks the stores that are up. Each
 * promises it an incarnation greater than all that it has seen or promised. A second question has the greatest of these promised
 * by all that answered. Then the claimant decides on a start, says BEGIN at one store after another, sends when a quorum has
 * begun, and dies anywhere. A store that is not up can be read or not. With -DWIPE one store loses its directory once; it has
 * forgotten until a BEGIN has made it catch up with all others.
 *
 * A message is known by its number and the incarnation that sent it. Properties: (a) no incarnation starts at or below a number
 * that is stable; (b) no BEGIN that any store has makes void what is stable, should that store come back as the newest; (c) no
 * two claimants begin under one incarnation; (d) a message that is stable is in a log that is not wiped.
 *
 * Mutants: MUT_UNKNOWN_EMPTY who cannot be read has nothing; MUT_NO_PROMISE a claimant opens the newest that it has read of, and
 * one more; MUT_ONE_QUESTION the greatest promise is opened, and the other stores have not made it; MUT_LAZY_PROMISE a kill takes a promise back; with WIPE, MUT_FORGETFUL_ZERO who has forgotten counts as
 * having nothing, and MUT_FORGETFUL_VOTES as a store like any other. */
#define STORES 3
#define NUMBERS 1
#ifdef WIPE
#define CLAIMANTS 3
#else
#define CLAIMANTS 4
#endif
#define INCS 9
#define UNKNOWN 15
#define LOST 14

typedef Log {
    byte rec[NUMBERS]; /* incarnation of the record; 0 = none, LOST = nobody had it */
    byte next;
    byte newest;       /* incarnation of the newest BEGIN, 0 = none */
    byte start[INCS];  /* where incarnation i starts, UNKNOWN = no such BEGIN in the table */
    byte promised;
    byte to;           /* whom */
    bool forgot;
}
Log log[STORES];

byte stable[NUMBERS]; /* incarnation; 0 = none */
byte owner[INCS];     /* claimant that has begun it somewhere */
bool wiped;

byte c, s, p, i, n, k, t, least, high, start, begun, ups, voters, unknown;
bool up[STORES], seen[STORES], told[STORES];
byte at[STORES];

/* Table of store p, the newest that was read, in t. */
inline newest_table() {
    t = STORES; s = 0;
    do
    :: s < STORES ->
        if
        :: seen[s] && log[s].newest > 0 && (t == STORES || log[s].newest > log[t].newest) -> t = s
        :: else
        fi;
        s++
    :: else -> break
    od;
    s = 0
}

/* Number behind what log p has, by the table of t: a later incarnation voids from its start on. */
inline reach(result) {
    result = log[p].next;
    if
    :: t < STORES ->
        i = log[p].newest + 1;
        do
        :: i < INCS ->
            if
            :: log[t].start[i] < result -> result = log[t].start[i]
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    :: else
    fi
}

/* (b) and (d): every BEGIN that any store has, should it be the newest of all. */
inline check() {
    t = STORES; s = 0;
    do
    :: s < STORES ->
        if
        :: log[s].newest > 0 && (t == STORES || log[s].newest > log[t].newest) -> t = s
        :: else
        fi;
        s++
    :: else -> break
    od;
    n = 0;
    do
    :: n < NUMBERS ->
        if
        :: stable[n] > 0 ->
            i = stable[n] + 1;
            do
            :: i < INCS -> assert(log[t].start[i] > n); i++ /* (b) */
            :: else -> break
            od;
            assert(log[0].rec[n] == stable[n] || log[1].rec[n] == stable[n] || log[2].rec[n] == stable[n]) /* (d) */
        :: else
        fi;
        n++
    :: else -> break
    od;
    n = 0; s = 0; i = 0; t = 0
}

/* Store s answers: first question with least 0. */
inline promise() {
#ifndef MUT_NO_PROMISE
    newest_table();
    if
    :: t < STORES -> high = log[t].newest
    :: else -> high = 0
    fi;
    if
    :: log[p].to != c && log[p].promised > high -> high = log[p].promised
    :: else
    fi;
    high++;
    if
    :: least > high -> high = least
    :: else
    fi;
    if
    :: log[p].promised > high -> high = log[p].promised
    :: else
    fi;
    log[p].promised = high; log[p].to = c;
    high = 0; t = 0
#else
    skip
#endif
}

/* A store is killed: what is not on disk is gone. */
inline kill_one() {
#ifdef MUT_LAZY_PROMISE
    if
    :: log[0].promised = log[0].newest; log[0].to = 0
    :: log[1].promised = log[1].newest; log[1].to = 0
    :: skip
    fi
#else
    skip
#endif
}

inline wipe_one() {
#ifdef WIPE
    if
    :: !wiped ->
        wiped = true;
        if
        :: p = 0
        :: p = 1
        :: p = 2
        fi;
        d_step {
            n = 0;
            do
            :: n < NUMBERS -> log[p].rec[n] = 0; n++
            :: else -> break
            od;
            i = 0;
            do
            :: i < INCS -> log[p].start[i] = UNKNOWN; i++
            :: else -> break
            od;
            log[p].next = 0; log[p].newest = 0; log[p].promised = 0; log[p].to = 0; log[p].forgot = true;
            n = 0; i = 0; p = 0
        }
    :: skip
    fi
#else
    skip
#endif
}

/* BEGIN(k, start) at store p, with the table of t: what it makes void goes, and what it lacks comes from logs that can be
 * read. */
inline begin_at() {
    d_step {
        reach(high);
        n = high;
        do
        :: n < NUMBERS -> log[p].rec[n] = 0; n++
        :: else -> break
        od;
        log[p].next = high;
        n = high;
        do
        :: n < start && n < NUMBERS ->
            log[p].rec[n] = LOST; s = 0;
            do
            :: s < STORES ->
                if
                :: seen[s] && at[s] != UNKNOWN && at[s] > n -> log[p].rec[n] = log[s].rec[n]
                :: else
                fi;
                s++
            :: else -> break
            od;
            n++
        :: else -> break
        od;
        i = 0;
        do
        :: i < INCS ->
            if
            :: t < STORES && i < k -> log[p].start[i] = log[t].start[i]
            :: t == STORES && i < k -> log[p].start[i] = UNKNOWN
            :: i == k -> log[p].start[i] = start
            :: else -> log[p].start[i] = UNKNOWN
            fi;
            i++
        :: else -> break
        od;
        log[p].next = start; log[p].newest = k;
        log[p].forgot = log[p].forgot && !(seen[0] && seen[1] && seen[2]);
        assert(owner[k] == 0 || owner[k] == c); /* (c) */
        owner[k] = c;
        told[p] = true; begun++;
        n = 0; i = 0; s = 0; high = 0
    }
}

#ifdef MUT_NO_PROMISE
#define TAKES(x) (log[x].newest < k)
#else
#define TAKES(x) (log[x].newest < k && (k > log[x].promised || (k == log[x].promised && log[x].to == c)))
#endif

inline forget_all() {
    d_step {
        s = 0;
        do
        :: s < STORES -> up[s] = false; seen[s] = false; told[s] = false; at[s] = 0; s++
        :: else -> break
        od;
        s = 0; p = 0; i = 0; n = 0; k = 0; t = 0; least = 0; high = 0; start = 0; begun = 0; ups = 0; voters = 0; unknown = 0
    }
}

active proctype Claimants() {
    d_step {
        do
        :: p < STORES ->
            i = 0;
            do
            :: i < INCS -> log[p].start[i] = UNKNOWN; i++
            :: else -> break
            od;
            p++
        :: else -> break
        od;
        p = 0; i = 0;
        /* Incarnation 1 has begun everywhere, and has sent nothing yet. */
        log[0].newest = 1; log[1].newest = 1; log[2].newest = 1;
        log[0].start[1] = 0; log[1].start[1] = 0; log[2].start[1] = 0;
        log[0].promised = 1; log[1].promised = 1; log[2].promised = 1;
        owner[1] = 99
    };
    do
    :: c == CLAIMANTS -> break
    :: c < CLAIMANTS ->
        c++;
        wipe_one();
        kill_one();
        /* Who is up, and whose files can be read. */
        if
        :: up[0] = true; up[1] = true; ups = 2
        :: up[0] = true; up[2] = true; ups = 2
        :: up[1] = true; up[2] = true; ups = 2
        :: up[0] = true; up[1] = true; up[2] = true; ups = 3
        :: up[0] = true; ups = 1
        :: up[1] = true; ups = 1
        :: up[2] = true; ups = 1
        fi;
        do
        :: p < STORES ->
            if
            :: up[p] -> seen[p] = true
            :: else ->
                if
                :: seen[p] = true
                :: seen[p] = false
                fi
            fi;
            p++
        :: else -> break
        od;
        p = 0;
        /* The first question; it may die between any two stores. */
        do
        :: p < STORES ->
            if
            :: up[p] ->
                if
                :: d_step { promise() }
                :: goto died
                fi
            :: else
            fi;
            p++
        :: else -> break
        od;
        p = 0;
        if
        :: ups < 2 -> goto died /* it cannot complete */
        :: else
        fi;
        d_step {
            newest_table();
            k = (t < STORES -> log[t].newest + 1 : 1);
#ifndef MUT_NO_PROMISE
            do
            :: p < STORES ->
                if
                :: up[p] && log[p].promised > k -> k = log[p].promised
                :: else
                fi;
                p++
            :: else -> break
            od;
            p = 0;
#endif
            t = 0
        };
        if
        :: k >= INCS -> goto died
        :: else
        fi;
#ifndef MUT_ONE_QUESTION
        least = k;
        do
        :: p < STORES ->
            if
            :: up[p] ->
                if
                :: d_step { promise() }
                :: goto died
                fi
            :: else
            fi;
            p++
        :: else -> break
        od;
        p = 0;
#endif
        kill_one();
        /* The decision. */
        d_step {
            newest_table();
            p = 0; voters = 0; unknown = 0; high = 0;
            do
            :: p < STORES ->
                if
                :: seen[p] && !(log[p].forgot && !up[p]) -> reach(at[p])
#ifdef MUT_UNKNOWN_EMPTY
                :: else -> at[p] = 0
#else
                :: else -> at[p] = UNKNOWN; unknown++
#endif
                fi;
                if
#ifdef MUT_FORGETFUL_VOTES
                :: up[p] -> voters++
#else
                :: up[p] && !log[p].forgot -> voters++
#endif
                :: else
                fi;
                p++
            :: else -> break
            od;
            p = 0;
            do
            :: p < STORES ->
                if
                :: at[p] != UNKNOWN && at[p] > high -> high = at[p]
                :: else
                fi;
                p++
            :: else -> break
            od;
#ifndef MUT_FORGETFUL_ZERO
            p = 0;
            do
            :: p < STORES ->
                if
                :: log[p].forgot -> at[p] = (unknown > 0 -> UNKNOWN : high)
                :: else
                fi;
                p++
            :: else -> break
            od;
#endif
            p = 0;
            least = (at[0] >= at[1] -> (at[1] >= at[2] -> at[1] : (at[0] >= at[2] -> at[2] : at[0]))
                                     : (at[0] >= at[2] -> at[0] : (at[1] >= at[2] -> at[2] : at[1])))
        };
        if
        :: least == UNKNOWN || (voters < 2 && ups < 3) -> goto died /* it waits, until it gives up */
        :: else
        fi;
        /* The consensus behaviour can only raise it: as far as any log goes that was read. */
        if
        :: start = least
        :: start = (high > least -> high : least)
        fi;
        d_step {
            if
            :: t < STORES && log[t].start[log[t].newest] > start -> start = log[t].start[log[t].newest]
            :: else
            fi;
            n = start;
            do
            :: n < NUMBERS -> assert(stable[n] == 0); n++ /* (a) */
            :: else -> break
            od;
            n = 0
        };
        /* BEGIN, one store after another. The table is the claimant's: what it read, before any store takes the next one in. */
        p = t;
        do
        :: begun < ups ->
            if
            :: up[0] && !told[0] && TAKES(0) && t != 0 -> p = 0; begin_at()
            :: up[1] && !told[1] && TAKES(1) && t != 1 -> p = 1; begin_at()
            :: up[2] && !told[2] && TAKES(2) && t != 2 -> p = 2; begin_at()
            :: t < STORES && up[t] && !told[t] && TAKES(t) -> p = t; begin_at()
            :: d_step { check(); t = STORES } ; goto died
            :: begun >= 2 -> break
            fi
        :: else -> break
        od;
        skip;
        d_step { check() };
        if
        :: begun < 2 -> goto died
        :: else
        fi;
        /* It sends: each store that has begun takes what comes, in order; a quorum makes it stable. */
        do
        :: told[0] && log[0].next < NUMBERS -> log[0].rec[log[0].next] = k; log[0].next++
        :: told[1] && log[1].next < NUMBERS -> log[1].rec[log[1].next] = k; log[1].next++
        :: told[2] && log[2].next < NUMBERS -> log[2].rec[log[2].next] = k; log[2].next++
        :: d_step {
            n = start;
            do
            :: n < NUMBERS ->
                if
                :: (told[0] && log[0].next > n) + (told[1] && log[1].next > n) + (told[2] && log[2].next > n) >= 2 ->
                    assert(stable[n] == 0 || stable[n] == k);
                    stable[n] = k
                :: else
                fi;
                n++
            :: else -> break
            od;
            n = 0; check() }
        :: goto died
        od;
died:   skip;
        forget_all()
    od
}
