/* wake.pml: sleep and wake under TSO, where the source pays no fence: two readers that sleep for the stream, and a
 * source that sleeps for acks.
 *
 * Mirrors: csrc/board/wait.h hf_line_sleeps, hf_board_source_waits and hf_board_wait, csrc/board/tally.h hf_tally_wait, csrc/board/board.h hf_board_wake_slow and hf_board_ack,
 * hf_bell_read, hf_bell_ring, hf_bell_wait. Without membarrier (hf_stream_header.fenced): -DFENCED, where the waker
 * fences itself and so does the sleeper.
 *
 * Every process has a store buffer of two entries. A plain or release store goes through it; it drains at any time, in
 * order, and a process sees its own stores. An exchange, an increment of a bell and a fence drain the own buffer
 * first; membarrier drains everybody's. The sleep itself is futex: it goes on at once if the bell is not what it was
 * when it was read. The 50 ms cap of a sleep is left out, because it would hide every fault: the protocol must do
 * without it.
 *
 * The source sends 2 messages and then waits until both readers acknowledged them; the readers sleep whenever there is
 * nothing new.
 *
 * -DTWO_WAITERS: one reader, and two threads of the source's process that wait for acks: they share source_waiting and
 * the bell, so a waiter leaves the flag alone when it wakes (a flag left behind costs one needless ring); the acker
 * takes it by exchange.
 *
 * -DDOZES: a reader's sleep may end by itself, NAPS times; the reader then leaves its flag set, looks, and sleeps on
 * without another barrier, unless its bell has rung meanwhile (csrc/stream/reader.c dozes). A message that it finds clears the
 * flag. With naps without end nothing would ever be lost for good.
 *
 * Property: no lost wake-up: no state where a process sleeps and nothing more can happen before everything has been
 * read and acknowledged (spin's "invalid end state"; the buffers are empty then, because draining is always possible).
 *
 * Mutants: MUT_NO_BARRIER the sleeper does not issue membarrier (or the fenced waker does not fence);
 * MUT_SOURCE_NO_BARRIER the same for the source that waits for acks; MUT_PLAIN_CLEAR the source clears the hint with a
 * store instead of taking it by exchange; MUT_CLEAR_AFTER_SCAN it takes the hint after it looked at the lines;
 * MUT_HINT_FIRST the sleeper sets the hint before its line's flag; MUT_NO_RECHECK; MUT_BELL_READ_LATE the bell is read
 * after the last look; MUT_RING_BEFORE_COMMIT; MUT_ACK_AFTER_RING; MUT_WAKER_NO_FENCE (FENCED); MUT_WAITER_CLEARS a
 * waiter stores 0 to source_waiting when it wakes (TWO_WAITERS); MUT_DOZE_RUNG a reader sleeps on also after a ring;
 * MUT_DOZE_BY_HINT it does if the hint is there, which may be another reader's, before that one's barrier (DOZES). */
#define SOURCE 0
#define MESSAGES 2
#define NAPS 1

/* Shared words. */
#define TAIL 0      /* messages committed */
#define SLEEPERS 1
#define WAITING 2   /* source_waiting */
#define SLEEPING 2  /* + reader 1, 2 */
#define ACK 4       /* + reader 1, 2 */
#define WORDS 7

byte shared[WORDS];
byte bell[3]; /* of each process */
chan buffer[3] = [2] of { byte, byte };

active [3] proctype Drain() {
    byte at, value;
end_drain:
    do
    :: d_step { buffer[_pid] ? at, value -> shared[at] = value; at = 0; value = 0 }
    od
}

inline store(at, value) { buffer[me] ! at, value }

/* What this process sees. It never loads a word that waits in its own buffer, except the hint in MUT_PLAIN_CLEAR, where
 * a stale 1 costs one scan more. */
#define LOAD(at) shared[at]

inline drain(who) {
    do
    :: nempty(buffer[who]) -> buffer[who] ? a, v; shared[a] = v
    :: empty(buffer[who]) -> break
    od
}

inline membarrier() {
    d_step { drain(0); drain(1); drain(2); a = 0; v = 0 }
}

inline fence() {
    d_step { drain(me); a = 0; v = 0 }
}

inline ring(who) {
    d_step { drain(me); a = 0; v = 0; bell[who]++ }
}

inline sleeper_barrier() {
#ifndef MUT_NO_BARRIER
#ifdef FENCED
    fence()
#else
    membarrier()
#endif
#else
    skip
#endif
}

inline waker_barrier() {
#ifdef FENCED
#ifndef MUT_WAKER_NO_FENCE
    fence()
#else
    skip
#endif
#else
    skip
#endif
}

inline wake_lines() {
    do
    :: line < 2 ->
        line++;
        if
        :: LOAD(SLEEPING + line) -> ring(line)
        :: else
        fi
    :: else -> break
    od;
    line = 0
}

/* hf_board_wake_slow, behind the one load of the hint */
inline wake() {
    waker_barrier();
    if
    :: LOAD(SLEEPERS) ->
#ifdef MUT_PLAIN_CLEAR
        store(SLEEPERS, 0);
        wake_lines()
#else
#ifdef MUT_CLEAR_AFTER_SCAN
        wake_lines();
        d_step { drain(me); a = 0; v = 0; shared[SLEEPERS] = 0 }
#else
        d_step { drain(me); a = 0; v = 0; shared[SLEEPERS] = 0 };
        wake_lines()
#endif
#endif
    :: else
    fi
}

/* Waits until `done`, as a thread of the source's process. */
inline wait_for_acks(done) {
    do
    :: done -> break
    :: else ->
#ifndef MUT_BELL_READ_LATE
        seen = bell[SOURCE];
#endif
        store(WAITING, 1);
#ifndef MUT_SOURCE_NO_BARRIER
        sleeper_barrier();
#endif
        if
#ifndef MUT_NO_RECHECK
        :: done
#endif
        :: else ->
#ifdef MUT_BELL_READ_LATE
            seen = bell[SOURCE];
#endif
            bell[SOURCE] != seen
        fi;
#ifdef MUT_WAITER_CLEARS
        store(WAITING, 0);
#endif
        seen = 0
    od
}

/* hf_board_ack, behind the store of the ack */
inline wake_source() {
    waker_barrier();
    if
    :: LOAD(WAITING) ->
        d_step { drain(me); took = shared[WAITING]; shared[WAITING] = 0; a = 0; v = 0 };
        if
        :: took -> took = 0; ring(SOURCE)
        :: else
        fi
    :: else
    fi
}

#ifdef TWO_WAITERS
#define ALL_ACKED (LOAD(ACK + 1) == MESSAGES)
#else
#define ALL_ACKED (LOAD(ACK + 1) == MESSAGES && LOAD(ACK + 2) == MESSAGES)
#endif

active proctype Source() {
    byte sent, line, seen, a, v;
    byte me = SOURCE;

    do
    :: sent < MESSAGES ->
#ifdef MUT_RING_BEFORE_COMMIT
        wake();
        store(TAIL, sent + 1);
#else
        store(TAIL, sent + 1);
        wake();
#endif
        sent++
    :: else -> break
    od;
    wait_for_acks(ALL_ACKED)
}

#ifdef TWO_WAITERS
/* Another thread of the source's process, which waits for the first message only. */
active proctype Waiter() {
    byte seen, a, v;
    byte me = 2;

    wait_for_acks(LOAD(ACK + 1) >= 1)
}
#endif

proctype Reader(byte me) {
    byte read, seen, a, v;
    bool took;
#ifdef DOZES
    byte naps;
    bool dozes;
#endif

    do
    :: LOAD(TAIL) > read ->
        read++;
#ifdef DOZES
        if
        :: dozes -> dozes = false; seen = 0; store(SLEEPING + me, 0)
        :: else
        fi;
#endif
#ifdef MUT_ACK_AFTER_RING
        wake_source();
        store(ACK + me, read)
#else
        store(ACK + me, read);
        wake_source()
#endif
    :: read == MESSAGES -> break
    :: LOAD(TAIL) == read && read < MESSAGES ->
#ifdef DOZES
        if
#ifdef MUT_DOZE_RUNG
        :: dozes -> seen = bell[me]
#else
#ifdef MUT_DOZE_BY_HINT
        :: dozes && LOAD(SLEEPERS) -> seen = bell[me]
#else
        :: dozes && bell[me] == seen
#endif
#endif
        :: else ->
            seen = bell[me];
            store(SLEEPING + me, 1);
            store(SLEEPERS, 1);
            sleeper_barrier();
            dozes = true
        fi;
#else
#ifndef MUT_BELL_READ_LATE
        seen = bell[me];
#endif
#ifdef MUT_HINT_FIRST
        store(SLEEPERS, 1);
        store(SLEEPING + me, 1);
#else
        store(SLEEPING + me, 1);
        store(SLEEPERS, 1);
#endif
        sleeper_barrier();
#endif
        if
#ifndef MUT_NO_RECHECK
        :: LOAD(TAIL) > read
#endif
        :: else ->
#ifdef MUT_BELL_READ_LATE
            seen = bell[me];
#endif
            if
            :: bell[me] != seen
#ifdef DOZES
            :: naps < NAPS -> naps++
#endif
            fi
        fi;
#ifdef DOZES
        skip
#else
        store(SLEEPING + me, 0)
#endif
    od
}

init {
    atomic {
        run Reader(1);
#ifndef TWO_WAITERS
        run Reader(2)
#endif
    }
}
