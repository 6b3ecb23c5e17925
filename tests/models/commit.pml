/* commit.pml: the commit word, the zeroed next word and the trail, against copying readers that may be lapped and a
 * source that may be killed between any two stores.
 *
 * Mirrors: csrc/stream/stream.h rules 1, 2, 4, 5 and csrc/base/layout.h struct hf_frame. Source = hf_source_send (grant, payload,
 * next word zeroed, commit, tail); Reader = hf_reader_receive / hf_reader_copy (word, copy, acquire fence, trail);
 * Walker = hf_stream_end and the store that drains a dead source's ring.
 *
 * One unit is a granule. The ring has 4, positions run over three laps, and the position in the word wraps every two
 * laps (the real one every 128 GiB), so a reader that stopped for two laps meets a word that looks like its own.
 * Payload is hostile: it equals the commit word that its slot would hold one lap later. A message is one frame of one
 * granule, one frame of two, or two frames of one and two granules. A copy is read granule by granule, the header's
 * word and the rest apart.
 *
 * Properties: (a) a message that a reader accepts was committed at that position, whole, and no byte of the copy is of
 * another lap; (b) "nothing there yet" is said only of a position that was neither committed nor lapped; (c) a word
 * that is not of this position means lapped, never damage, while the source is right; (d) after a kill the walk from
 * `tail` ends behind the last message whose first commit word was stored, and every message on the way is whole.
 *
 * Mutants: MUT_NO_ZERO next word not zeroed; MUT_ZERO_AFTER_COMMIT zeroed too late; MUT_COMMIT_FIRST first fragment's
 * word before the second's; MUT_COMMIT_BEFORE_PAYLOAD; MUT_TIGHT_ADMIT p + L <= admit, without the next word's room;
 * MUT_TRAIL_LATE the trail becomes visible after the payload (no fence behind its store); MUT_NO_TRAIL_CHECK;
 * MUT_TRAIL_BEFORE_COPY (no acquire fence); MUT_NO_TRAIL_ON_ZERO; MUT_TAIL_BEFORE_COMMIT. */
#define N 4
#define LAST 12
#define TAGS 8
#define NONE 255

/* A word: tag (1..TAGS) * 16 + granules * 4 + first * 2 + last. */
#define WORD(x, len, first, last) ((((x) % TAGS) + 1) * 16 + (len) * 4 + (first) * 2 + (last))
#define TAG(x) (((x) % TAGS) + 1)
#define LEN(w) (((w) / 4) % 4)
#define IS_FIRST(w) (((w) / 2) % 2)
#define IS_LAST(w) ((w) % 2)

byte word[N];  /* first 8 bytes of each granule: a commit word, or payload */
byte body[N];  /* the rest: 1 + the position that it was written for */
byte tail;
byte trail;
bool dead;     /* a kill arrives */
bool gone;     /* the source has been killed, or has ended: it stores nothing any more */

/* What really happened; nobody in the protocol reads it. */
byte whole[LAST + 4]; /* granules of the message whose first commit word was stored here, from the trail on */
byte end_of_committed;

/* A payload granule at x. */
inline payload(x) {
    word[(x) % N] = WORD((x) + N, 1, 1, 1);
    body[(x) % N] = (x) + 1
}

inline commit_whole(x, w, granules) {
    d_step {
        word[(x) % N] = w;
        whole[x] = granules;
        end_of_committed = (x) + granules
    }
}

inline zero(x) { word[(x) % N] = 0 }

inline store_trail() {
    d_step {
        do
        :: trail + N < admit -> whole[trail] = 0; trail++
        :: else -> break
        od
    }
}

proctype Source() {
    byte p = 0;
    byte admit = N;
    byte total;
    byte kind;
    {
        do
        :: p + 4 > LAST + 1 -> break
        :: else ->
            if
            :: kind = 1; total = 1
            :: kind = 2; total = 2
            :: kind = 3; total = 3
            fi;
#ifdef MUT_TIGHT_ADMIT
            if
            :: p + total > admit -> admit = p + total
            :: else
            fi;
#else
            if
            :: p + total + 1 > admit -> admit = p + total + 1
            :: else
            fi;
#endif
#ifndef MUT_TRAIL_LATE
            store_trail();
#endif
            if
            :: kind < 3 -> /* one frame */
#ifdef MUT_COMMIT_BEFORE_PAYLOAD
                zero(p + total);
                commit_whole(p, WORD(p, total, 1, 1), total);
                body[p % N] = p + 1;
                if
                :: kind == 2 -> payload(p + 1)
                :: else
                fi
#else
                body[p % N] = p + 1;
                if
                :: kind == 2 -> payload(p + 1)
                :: else
                fi;
#ifdef MUT_TRAIL_LATE
                store_trail();
#endif
#if !defined(MUT_NO_ZERO) && !defined(MUT_ZERO_AFTER_COMMIT)
                zero(p + total);
#endif
#ifdef MUT_TAIL_BEFORE_COMMIT
                tail = p + total;
#endif
                commit_whole(p, WORD(p, total, 1, 1), total)
#endif
            :: else -> /* two frames: [p] and [p + 1, p + 3) */
                body[(p + 1) % N] = p + 2;
                payload(p + 2);
                body[p % N] = p + 1;
#ifdef MUT_TRAIL_LATE
                store_trail();
#endif
#if !defined(MUT_NO_ZERO) && !defined(MUT_ZERO_AFTER_COMMIT)
                zero(p + total);
#endif
#ifdef MUT_COMMIT_FIRST
                commit_whole(p, WORD(p, 1, 1, 0), total);
                word[(p + 1) % N] = WORD(p + 1, 2, 0, 1)
#else
                word[(p + 1) % N] = WORD(p + 1, 2, 0, 1);
#ifdef MUT_TAIL_BEFORE_COMMIT
                tail = p + total;
#endif
                commit_whole(p, WORD(p, 1, 1, 0), total)
#endif
            fi;
#ifdef MUT_ZERO_AFTER_COMMIT
            zero(p + total);
#endif
            p = p + total;
            tail = p;
            total = 0;
            kind = 0
        od
    } unless { dead };
    gone = true
}

/* A kill may come between any two steps of the source. */
active proctype Killer() {
    dead = true
}

/* Copies `count` granules from `at` on, the first one a header; `right` stays true while all are of this position. */
inline copy(at, count) {
    i = 0;
    do
    :: i < count ->
        right = right && (body[(at + i) % N] == at + i + 1);
        if
        :: i > 0 -> right = right && (word[(at + i) % N] == WORD(at + i + N, 1, 1, 1))
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

active proctype Reader() {
    byte q = 0;
    byte w, t, i, granules;
    byte committed;
    bool right, lapped;

    do
    :: q < LAST ->
#ifdef MUT_TRAIL_BEFORE_COPY
        t = trail;
#endif
        d_step { w = word[q % N]; committed = whole[q]; lapped = trail > q };
        if
        :: w == 0 ->
#ifdef MUT_NO_TRAIL_ON_ZERO
            assert(committed == 0 && !lapped);
end_lost:   word[q % N] != 0
#else
            t = trail;
            if
            :: t > q -> q = NONE
            :: else ->
                assert(committed == 0 && !lapped); /* (b) */
end_idle:       word[q % N] != 0 || trail > q
            fi
#endif
        :: w != 0 && (w / 16 != TAG(q) || !IS_FIRST(w) || LEN(w) == 0) ->
            t = trail;
            assert(t > q); /* (c) */
            q = NONE
        :: else ->
            right = true;
            granules = LEN(w);
            copy(q, granules);
            if
            :: IS_LAST(w)
            :: else ->
                w = word[(q + granules) % N];
                if
                :: w / 16 == TAG(q + granules) && !IS_FIRST(w) && LEN(w) > 0 && IS_LAST(w) ->
                    copy((q + granules), LEN(w));
                    granules = granules + LEN(w)
                :: else -> right = false /* half a message, or lapped while reading */
                fi
            fi;
#ifndef MUT_TRAIL_BEFORE_COPY
            t = trail;
#endif
#ifdef MUT_NO_TRAIL_CHECK
            t = 0;
#endif
            if
            :: t > q -> q = NONE
            :: else ->
                assert(right && committed == granules); /* (a) */
                q = q + granules
            fi
        fi;
        w = 0; t = 0; granules = 0; right = false; committed = 0; lapped = false;
        if
        :: q == NONE -> q = tail /* lapped: goes on from the stores, then joins live again */
        :: else
        fi
    :: else -> break
    od
}

/* Looks at the ring of a source that is proved dead. */
proctype Walker() {
    byte q;
    byte w;
    d_step {
        gone ->
        q = tail;
        do
        :: word[q % N] / 16 == TAG(q) ->
            w = word[q % N];
            assert(whole[q] != 0);
            if
            :: IS_LAST(w) -> q = q + LEN(w)
            :: else ->
                q = q + LEN(w);
                w = word[q % N];
                assert(w / 16 == TAG(q) && IS_LAST(w) && !IS_FIRST(w));
                q = q + LEN(w)
            fi
        :: else -> break
        od;
        assert(q == end_of_committed); /* (d) */
        q = 0; w = 0
    }
}

init {
    atomic { run Walker(); run Source() }
}
