/* begin.pml: incarnations, BEGIN, drain before answer and the clamping of acks, for 1 store (default) or 3 with a
 * quorum of 2 (-DTHREE).
 *
 * Mirrors: docs/design.md 13 and 14; csrc/log/log.h hf_log_begin and struct hf_head (begins, next_sqn), csrc/store/drain.h
 * (publish, then ack), csrc/base/layout.h struct hf_board_line ack. Source = register, BEGIN, create the ring, send, and die
 * anywhere; Store = adopt BEGINs, drain rings, catch up from peers, ack, be killed and restart; Receiver = read the
 * ring in place or, what is older, the logs.
 *
 * A message is known by (number, incarnation of the source that sent it); a record in a log and an ack on a line carry
 * the incarnation, too. A dead source's ring stays until all that is in it is stable; once in a run a ring may be lost
 * undrained (reboot, operator), so that what was not stable is gone and its numbers are given again. A store's files
 * are readable while it is down, unless -DUNREADABLE.
 *
 * -DUNREADABLE must fail, and the test says so (promises, which claim.pml has, are what helps): with three stores, a BEGIN that a dying source left at one of them and
 * whose files nobody can read lets the next source take the same incarnation number, with another start. docs/design.md 14's
 * "a dead store's files are still readable on this host" is a condition, not a remark. -DTHREE has no receiver, to
 * stay small.
 *
 * A BEGIN carries the whole table of BEGINs that its source knows: a store that slept through incarnation k learns
 * start(k) as well as start(k + 1). The table with the highest incarnation replaces any other as a whole. An ack of
 * incarnation i counts for incarnation k up to the lowest start of i + 1 .. k.
 *
 * Properties: (a) a message that was stable at a quorum, or is in a ring that was not lost, is never renumbered: no
 * later incarnation starts at or below it; (b) never dropped: no BEGIN voids its record; (c) never counted wrongly:
 * what a source takes for stable is held, as the same message, by a quorum; (d) an old ack never skips a new message:
 * where a reader starts in an incarnation, and what the source takes for acknowledged, was processed as the message
 * that it is there; (e) no two sources send under one incarnation.
 *
 * Mutants: MUT_ANSWER_BEFORE_DRAIN; MUT_OWN_LOG_ONLY a store answers from its own log alone (THREE); MUT_NO_BEGIN a
 * source sends before its BEGIN is durable; MUT_LAST_BEGIN_ONLY a BEGIN carries only itself; MUT_NO_ACK_CLAMP acks
 * count whatever incarnation they are of; MUT_CLAMP_LAST_ONLY an ack is clamped by the newest start only;
 * MUT_ACK_BEFORE_LOG. */
#ifdef THREE
#define STORES 3
#define QUORUM 2
#define NUMBERS 2
#else
#define STORES 1
#define QUORUM 1
#define NUMBERS 3
#endif
#define INCS 3
#define KILLS 1
#ifdef UNREADABLE
#define SOURCES 4
#else
#define SOURCES 3
#endif

/* A table of BEGINs: the start of incarnation k in bits 4 k .. 4 k + 3. */
#define NO_START 15
#define EMPTY 65535 /* no start is known */
#define START(table, k) (((table) >> (4 * (k))) & 15)
#define WITH(table, k, at) (((table) & ~(15 << (4 * (k)))) | ((at) << (4 * (k))))

typedef Log {
    byte rec[NUMBERS];   /* incarnation of the record; valid below next */
    byte next;           /* published end */
    int begins;          /* table */
    byte newest;         /* incarnation of the newest BEGIN */
}
typedef Line { byte ack; byte incarnation }
typedef Ring { bool there; byte start; byte end; int begins }

Log log[STORES];
bool up[STORES];
Line line[STORES + 1]; /* board lines of the stores, and of the receiver */
#define RECEIVER STORES
Ring ring[INCS + 1];
bool living;  /* a source that has registered lives */
bool lost;    /* a ring was lost */
byte kills;

/* What really happened. */
byte stable[NUMBERS];    /* incarnation of the message that a quorum held under this number; 0 = none */
int truth = EMPTY;       /* the incarnations that sent, and where they started */
byte processed[NUMBERS]; /* incarnation of the message that the receiver processed last under this number */

#ifdef UNREADABLE
#define READABLE(s) up[s]
#else
#define READABLE(s) true
#endif

/* n of incarnation i is void under the table t, whose newest entry is k */
inline valid_end(s, t, result) {
    result = 0;
    do
    :: result < log[s].next ->
        i = log[s].rec[result] + 1;
        do
        :: i <= INCS && START(t, i) > result -> i++
        :: else -> break
        od;
        if
        :: i <= INCS -> break
        :: else -> result++
        fi
    :: else -> break
    od;
    i = 0
}

/* How far the ack of a line counts under the table t. */
inline clamped(l, t, k, result) {
    result = line[l].ack;
#ifndef MUT_NO_ACK_CLAMP
#ifdef MUT_CLAMP_LAST_ONLY
    if
    :: line[l].incarnation < k && START(t, k) < result -> result = START(t, k)
    :: else
    fi;
#else
    i = line[l].incarnation + 1;
    do
    :: i <= k ->
        if
        :: START(t, i) < result -> result = START(t, i)
        :: else
        fi;
        i++
    :: else -> break
    od;
#endif
#endif
    i = 0
}

/* (d): every number below `end` was processed as the message that it is for incarnation k, or as a later one. */
inline was_processed(k, end) {
    n = 0;
    do
    :: n < end ->
        i = k;
        do
        :: i > 0 && START(truth, i) > n -> i--
        :: else -> break
        od;
        assert(processed[n] >= i);
        n++
    :: else -> break
    od;
    n = 0; i = 0
}

/* hf_log_begin: the table t, whose newest entry is k, becomes durable at store s; records that it voids go; the
 * line's ack is clamped. */
inline adopt(s, t, k) {
    valid_end(s, t, e);
    n = e;
    do
    :: n < log[s].next ->
        assert(stable[n] == 0 || stable[n] != log[s].rec[n]); /* (b) */
        log[s].rec[n] = 0;
        n++
    :: else -> break
    od;
    log[s].next = e;
    log[s].newest = k;
    clamped(s, t, k, e);
    line[s].ack = e;
    line[s].incarnation = k;
    log[s].begins = t;
    n = 0; e = 0
}

/* Store s has all that existing rings hold. */
#define HAS(s, j) (!ring[j].there || (log[s].newest >= j && log[s].next >= ring[j].end))
#ifdef MUT_ANSWER_BEFORE_DRAIN
#define DRAINED(s) true
#else
#define DRAINED(s) (HAS(s, 1) && HAS(s, 2) && HAS(s, 3))
#endif

proctype Store(byte s) {
    byte i, n, e, p;

end_store:
    do
    /* A ring of an incarnation that it has no BEGIN of: takes it from the ring's header. */
    :: d_step { up[s] && log[s].newest < 1 && ring[1].there -> adopt(s, ring[1].begins, 1) }
    :: d_step { up[s] && log[s].newest < 2 && ring[2].there -> adopt(s, ring[2].begins, 2) }
    :: d_step { up[s] && log[s].newest < 3 && ring[3].there -> adopt(s, ring[3].begins, 3) }
    /* Drains the ring of its newest incarnation: log, then ack. */
    :: d_step { up[s] && ring[log[s].newest].there && log[s].next < ring[log[s].newest].end &&
                log[s].next >= ring[log[s].newest].start ->
#ifdef MUT_ACK_BEFORE_LOG
        line[s].ack = log[s].next + 1
       };
       if
       :: up[s] ->
        d_step {
#endif
        log[s].rec[log[s].next] = log[s].newest;
        log[s].next++
#ifdef MUT_ACK_BEFORE_LOG
        }
       :: else
       fi
#else
       }
#endif
    :: d_step { up[s] && line[s].ack < log[s].next -> line[s].ack = log[s].next }
#ifdef THREE
    /* Takes a peer's newer table, then what that has and it lacks. */
    :: d_step { up[s] && READABLE((s + 1) % 3) && log[(s + 1) % 3].newest > log[s].newest ->
        p = (s + 1) % 3; adopt(s, log[p].begins, log[p].newest); p = 0 }
    :: d_step { up[s] && READABLE((s + 2) % 3) && log[(s + 2) % 3].newest > log[s].newest ->
        p = (s + 2) % 3; adopt(s, log[p].begins, log[p].newest); p = 0 }
    :: d_step { up[s] && READABLE((s + 1) % 3) && log[(s + 1) % 3].newest == log[s].newest &&
                log[(s + 1) % 3].next > log[s].next ->
        p = (s + 1) % 3; log[s].rec[log[s].next] = log[p].rec[log[s].next]; log[s].next++; p = 0 }
    :: d_step { up[s] && READABLE((s + 2) % 3) && log[(s + 2) % 3].newest == log[s].newest &&
                log[(s + 2) % 3].next > log[s].next ->
        p = (s + 2) % 3; log[s].rec[log[s].next] = log[p].rec[log[s].next]; log[s].next++; p = 0 }
#endif
    :: d_step { up[s] && kills > 0 -> kills--; up[s] = false }
    :: up[s] = true
    od
}

/* Store s answers a new incarnation: the highest valid number in any readable log, under the newest table in any. */
inline answer(s) {
    m = 0; best = s;
#ifndef MUT_OWN_LOG_ONLY
    do
    :: m < STORES ->
        if
        :: READABLE(m) && log[m].newest > log[best].newest -> best = m
        :: else
        fi;
        m++
    :: else -> break
    od;
#endif
    if
    :: log[best].newest >= k ->
        k = log[best].newest;
        table = log[best].begins
    :: else
    fi;
    m = 0;
    do
    :: m < STORES ->
        if
#ifdef MUT_OWN_LOG_ONLY
        :: m == s ->
#else
        :: READABLE(m) ->
#endif
            valid_end(m, log[best].begins, e);
            if
            :: e > said[s] -> said[s] = e
            :: else
            fi
        :: else
        fi;
        m++
    :: else -> break
    od;
    answered[s] = true;
    answers++;
    m = 0; i = 0; e = 0; best = 0
}

/* The QUORUM-th largest of said, 0 for stores that said nothing. */
inline order_statistic(result) {
#ifdef THREE
    result = (said[0] >= said[1] -> (said[1] >= said[2] -> said[1] : (said[0] >= said[2] -> said[2] : said[0]))
                            : (said[0] >= said[2] -> said[0] : (said[1] >= said[2] -> said[2] : said[1])))
#else
    result = said[0]
#endif
}

/* What the participants' lines say under the table t of incarnation k: ghosts and properties (c) and (d). Leaves the
 * quorum's end in q. */
inline judge(t, k) {
    m = 0;
    do
    :: m < STORES -> clamped(m, t, k, said[m]); m++
    :: else -> break
    od;
    order_statistic(q);
    n = 0;
    do
    :: n < q ->
        if
        :: stable[n] == 0 -> /* newly stable: some message that QUORUM stores hold alike */
            m = 0;
            do
            :: m < STORES ->
                e = 0; i = 0;
                do
                :: i < STORES ->
                    e = e + (log[i].next > n && log[i].rec[n] == log[m].rec[n] && log[m].next > n && said[i] > n);
                    i++
                :: else -> break
                od;
                if
                :: e >= QUORUM -> stable[n] = log[m].rec[n]
                :: else
                fi;
                m++
            :: else -> break
            od;
            assert(stable[n] != 0); /* (c) */
            assert(n < START(t, k) || stable[n] >= k) /* (c) */
        :: else
        fi;
        n++
    :: else -> break
    od;
    clamped(RECEIVER, t, k, e);
    was_processed(k, e);
    m = 0; i = 0; n = 0; e = 0;
    do
    :: m < STORES -> said[m] = 0; m++
    :: else -> break
    od;
    m = 0
}

/* How a source meets store s. */
#define ANSWERS(s) d_step { up[s] && !answered[s] && DRAINED(s) -> answer(s) }
#define BEGINS(s) d_step { up[s] && answered[s] && !told[s] && log[s].newest <= k -> \
    adopt(s, table, k); told[s] = true; begun++ }

proctype Source() {
    byte i, n, e, m, q, k, best, answers, begun, sources;
    byte said[STORES];
    bool answered[STORES], told[STORES];
    int table;

    do
    :: sources == SOURCES -> break
    :: sources < SOURCES ->
        sources++;
        table = EMPTY;
#ifdef THREE
        living = true; /* smaller: no ring is lost during a registration */
#endif
        /* Registration: the owner before is dead, every store that answers has drained its rings. To die here changes
         * nothing, because an answer changes nothing at its store. */
        do
        :: answers < QUORUM ->
end_waits:  if
            :: ANSWERS(0)
#ifdef THREE
            :: ANSWERS(1)
            :: ANSWERS(2)
#endif
            fi
        :: else -> break
        od;
        if
        :: k == INCS -> goto died
        :: else
        fi;
        d_step {
            living = true;
            k++;
            order_statistic(q);
#ifdef MUT_LAST_BEGIN_ONLY
            table = EMPTY;
#endif
            table = WITH(table, k, q);
            n = q;
            do
            :: n < NUMBERS -> assert(stable[n] == 0); n++ /* (a) */
            :: else -> break
            od;
            i = 1;
            do
            :: i <= INCS -> assert(!ring[i].there || q >= ring[i].end); i++ /* (a) */
            :: else -> break
            od;
            n = 0; i = 0; q = 0; m = 0;
            do
            :: m < STORES -> said[m] = 0; m++
            :: else -> break
            od;
            m = 0
        };
        /* BEGIN at a quorum of those that answered. */
#ifndef MUT_NO_BEGIN
        do
        :: begun < QUORUM ->
            if
            :: BEGINS(0)
#ifdef THREE
            :: BEGINS(1)
            :: BEGINS(2)
#endif
            :: goto died
            fi
        :: else -> break
        od;
#endif
        begun = 0;
        d_step {
            assert(START(truth, k) == NO_START); /* (e) */
            truth = WITH(truth, k, START(table, k));
            ring[k].begins = table;
            ring[k].start = START(table, k);
            ring[k].end = START(table, k);
            ring[k].there = true
        };
        do
        :: ring[k].end < NUMBERS -> ring[k].end++ /* send */
        :: d_step { judge(table, k); q = 0 }
        :: goto died
        od;
died:   skip;
        d_step {
            m = 0;
            do
            :: m < STORES -> answered[m] = false; told[m] = false; said[m] = 0; m++
            :: else -> break
            od;
            table = EMPTY;
            m = 0; i = 0; n = 0; e = 0; q = 0; best = 0; answers = 0; begun = 0;
            k = 0;
            living = false
        }
    od
}

/* A dead stream goes when all that is in it is stable, or, once, without that. */
#define STREAM_GOES(k) d_step { !living && ring[k].there -> \
    judge(ring[k].begins, k); \
    if \
    :: q >= ring[k].end -> ring[k].there = false \
    :: q < ring[k].end && !lost -> ring[k].there = false; lost = true \
    :: else \
    fi; \
    q = 0 }

proctype Janitor() {
    byte i, n, e, m, q;
    byte said[STORES];

end_janitor:
    do
    :: STREAM_GOES(1)
    :: STREAM_GOES(2)
    :: STREAM_GOES(3)
    od
}

/* Joins the newest ring, reads it in place, and reads what is older from the logs. Its line is its only memory after
 * a restart. */
#define JOINS(k) d_step { ring[k].there && line[RECEIVER].incarnation < k -> \
    clamped(RECEIVER, ring[k].begins, k, e); \
    was_processed(k, e); \
    line[RECEIVER].ack = e; line[RECEIVER].incarnation = k; at = e; e = 0 }
#define READS_LOG(m) d_step { line[RECEIVER].incarnation > 0 && READABLE(m) && \
    log[m].newest >= line[RECEIVER].incarnation && \
    at < ring[line[RECEIVER].incarnation].start && at < log[m].next -> \
    processed[at] = log[m].rec[at]; at++ }

proctype Receiver() {
    byte i, n, e, at;

end_receiver:
    do
    :: JOINS(1)
    :: JOINS(2)
    :: JOINS(3)
    :: d_step { line[RECEIVER].incarnation > 0 && at >= ring[line[RECEIVER].incarnation].start &&
                at < ring[line[RECEIVER].incarnation].end ->
        processed[at] = line[RECEIVER].incarnation; at++ }
    :: READS_LOG(0)
#ifdef THREE
    :: READS_LOG(1)
    :: READS_LOG(2)
#endif
    :: d_step { line[RECEIVER].ack < at -> line[RECEIVER].ack = at }
    :: d_step { line[RECEIVER].ack < at -> at = line[RECEIVER].ack } /* restarts */
    od
}

init {
    byte s;
    d_step {
        kills = KILLS;
        do
        :: s < STORES ->
            up[s] = true;
            log[s].begins = EMPTY;
            s++
        :: else -> break
        od;
        s = 0
    };
    atomic {
        run Store(0);
#ifdef THREE
        run Store(1);
        run Store(2);
#endif
        run Source();
        run Janitor()
#ifndef THREE
        ;
        run Receiver()
#endif
    }
}
