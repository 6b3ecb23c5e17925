/* pin.pml: zero-copy views: the trail handshake, eviction after a timeout, and a reader that moves to the next
 * incarnation's ring.
 *
 * Mirrors: csrc/stream/stream.h rule 3 and struct hf_board_line pin, pin_stream; Source = the grant of hf_source_send (store
 * trail, look at every pin, HF_PINNED and retry, timeout, write); Reader = hf_reader_batch and hf_reader_unpin.
 *
 * The ring has 4 granules, a message is one granule, a grant one message. The source's send does not wait: it returns
 * HF_PINNED and is called again, so that the trail of the first call is already stored at the retry. The reader holds
 * up to two views under one pin (the lowest). Its line still names the ring of incarnation 1 at the start, with a pin
 * there; the source is incarnation 2. A pin that the trail has passed in an earlier grant is evicted and is not waited
 * for again.
 *
 * Properties: (a) what a view that release reports as good showed was never overwritten while it was used; (b) the
 * source overwrites nothing in a view before the timeout ran out on that view's pin. A reader that finds its pin
 * passed when it takes the next view moves the pin up: the older view is given up by its own reader and is only
 * covered by (a).
 *
 * Mutants: MUT_PIN_AFTER_TRAIL the reader loads the trail, then stores its pin (a plain store that waits in the store
 * buffer does the same); MUT_SCAN_FIRST the source looks at pins, then stores the trail; MUT_NO_SCAN;
 * MUT_NO_RELEASE_CHECK; MUT_CHECK_BEFORE_USE; MUT_CACHED_TRAIL release compares with the trail that was loaded when
 * the view was taken; MUT_STREAM_AFTER_CHECK the line names the new ring only after the trail was loaded;
 * MUT_RETRY_FORGETS a retry takes the stored trail for an earlier grant's; MUT_KEEP_DEAD_PIN a view is taken under a
 * pin that the trail has passed; MUT_UNPIN_ALL a release clears the pin while another view is held. */
#define N 4
#define LAST 10
#define NO_PIN 255

byte cell[N];  /* 1 + position of the message there */
byte tail;
byte trail;
byte pin = 2;        /* of the old ring */
byte pin_stream = 1; /* incarnation */

/* What really holds; nobody in the protocol reads it. A view is valid from its trail check to its release. */
byte view[2] = { NO_PIN, NO_PIN }; /* its position in the new ring */
bool timed_out[2];                 /* the source's timeout ran out while it was held, or its reader gave it up */

inline overwrite(x) {
    d_step {
        assert(x < N || view[0] != x - N || timed_out[0]); /* (b) */
        assert(x < N || view[1] != x - N || timed_out[1]); /* (b) */
        cell[x % N] = x + 1
    }
}

active proctype Source() {
    byte x = 0;
    byte old, new, p;

    do
    :: x == LAST -> break
    :: x < LAST && x < N -> overwrite(x); x++; tail = x
    :: x < LAST && x >= N ->
        old = trail;
        new = x + 1 - N;
#ifndef MUT_SCAN_FIRST
        trail = new;
#endif
#ifndef MUT_NO_SCAN
        do
        ::  p = pin;
            if
            :: pin_stream == 2 && p < new && p >= old ->
                if
                :: skip /* HF_PINNED; called again */
#ifdef MUT_RETRY_FORGETS
                    ; old = trail
#endif
                :: d_step { timed_out[0] = true; timed_out[1] = true }; break
                fi
            :: else -> break
            fi
        od;
#endif
#ifdef MUT_SCAN_FIRST
        trail = new;
#endif
        overwrite(x);
        x++;
        old = 0; new = 0; p = 0;
        tail = x
    od
}

/* The trail check that makes view v, of position q, valid: the trail is not beyond limit, which is pinned. */
inline check(v, limit) {
    d_step {
        t = trail;
        if
        :: t <= limit -> view[v] = q; timed_out[v] = false; from[v] = q; seen[v] = t
        :: else
        fi
    }
}

/* pin at q, then check. */
inline pin_and_check(v) {
#ifdef MUT_PIN_AFTER_TRAIL
    check(v, q);
    pin_stream = 2;
    pin = q;
#else
#ifdef MUT_STREAM_AFTER_CHECK
    pin = q;
    check(v, q);
    pin_stream = 2;
#else
    pin_stream = 2;
    pin = q;
    check(v, q);
#endif
#endif
    if
    :: t > q -> pin = mine /* too late: older views keep the pin that they had */
    :: else -> mine = q
    fi
}

inline take(v) {
    if
    :: mine == NO_PIN -> pin_and_check(v)
    :: else ->
#ifdef MUT_KEEP_DEAD_PIN
        check(v, q)
#else
        check(v, mine);
        if
        :: t > mine -> /* evicted, or about to be: the older view is given up, the new one gets a pin of its own */
            timed_out[1 - v] = true;
            pin_and_check(v)
        :: else
        fi
#endif
    fi;
    if
    :: t > q -> q = tail /* lapped: goes on from the stores, then joins live again */
    :: else -> q++
    fi;
    t = 0
}

inline release(v) {
#ifdef MUT_CHECK_BEFORE_USE
    t = trail;
#endif
    got = cell[from[v] % N];
#ifndef MUT_CHECK_BEFORE_USE
    t = trail;
#endif
#ifdef MUT_CACHED_TRAIL
    t = seen[v];
#endif
#ifdef MUT_NO_RELEASE_CHECK
    t = 0;
#endif
    assert(t > from[v] || got == from[v] + 1); /* (a) */
    d_step { view[v] = NO_PIN; timed_out[v] = false; from[v] = NO_PIN; seen[v] = 0; got = 0; t = 0 };
#ifdef MUT_UNPIN_ALL
    mine = NO_PIN;
#else
    mine = from[1 - v];
#endif
    pin = mine
}

active proctype Reader() {
    byte q = 0;
    byte mine = NO_PIN; /* what pin holds, in the reader's own memory */
    byte from[2] = { NO_PIN, NO_PIN };
    byte seen[2];
    byte t, got;

    pin = NO_PIN; /* the last view of the old ring is released */
    do
    :: from[0] == NO_PIN && q < tail -> take(0)
    :: from[1] == NO_PIN && q < tail -> take(1)
    :: from[0] != NO_PIN -> release(0)
    :: from[1] != NO_PIN -> release(1)
    :: q == LAST && from[0] == NO_PIN && from[1] == NO_PIN -> break
    od
}
