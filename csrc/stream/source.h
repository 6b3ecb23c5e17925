/* source.h: private to source.c and send.c. The private memory of a source's process.
 *
 * One thread at a time sends (send.c), by the caller's lock. Policy (source.c: limits, release, in_flight,
 * stable, sri) may run on another thread, itself one at a time: it writes lines of its own and never waits. */
#ifndef HF_STREAM_SOURCE_H
#define HF_STREAM_SOURCE_H
#include "base/stamp.h"
#include "stream/frame.h"

/* Where a number's frame begins, and the payload before it: a walk over frames starts at the last step below its end. */
struct hf_step {
    uint64_t sqn;
    uint64_t position;
    uint64_t payload;
};

struct hf_source {
    /* The sender's; every send uses these two lines. */
    _Alignas(64) uint8_t *ring;
    struct hf_stream_header *header;
    const uint32_t *sleepers; /* the board's hint, or `nobody` */
    uint64_t mask;
    uint64_t position; /* of the next frame */
    uint64_t next_sqn;
    uint64_t room_position; /* the word behind a message must end at or below this, */
    uint64_t room_sqn;      /* its last number below this, */
    uint64_t room_payload;  /* and the payload count at or below this */
    uint64_t payload;
    uint64_t messages;
    uint64_t token;
    uint64_t stripe; /* position >> stripe_shift of the last mark */
    uint32_t stripe_shift;
    uint32_t fragment_bytes;
    uint32_t fenced;
    uint32_t seen;         /* `changes` that the room was computed from */
    uint32_t busy;         /* a send is running, or a claim is open */
    uint32_t nobody;       /* always 0 */
    struct hf_step *steps; /* one per 2^step_shift numbers: more than can be in flight, so none in use is overwritten */
    uint64_t step_mask;
    uint32_t step_shift;
    struct hf_stamp stamp;
    /* The sender's, slow path. */
    uint64_t admit;         /* trail that was checked against pins, + ring */
    uint64_t grant;         /* trail that is stored, but waits for a pin */
    int64_t grant_until_ns; /* CLOCK_MONOTONIC; then the pin is passed. 0: no grant waits */
    int64_t pin_timeout_ns;
    uint64_t raises;  /* of the trail; their parity chooses the mark */
    uint64_t wanted;  /* bytes of frames of the message that last found no room among the retained ones */
    uint64_t claimed; /* payload bytes of the open claim + 1; 0: none */
    uint64_t incarnation;
    struct hf_map *map;
    struct hf_map *board;
    struct hf_map *bells;
    uint32_t abandoned;
    int64_t sent_ns; /* CLOCK_MONOTONIC: the end of the last send of a large message */
    /* Policy's wishes. writer: policy; read by every send, written rarely. */
    _Alignas(64) uint32_t changes; /* grows with each change of this line */
    uint32_t closed;
    uint64_t flight_messages;
    uint64_t flight_bytes;
    uint64_t retained_bytes;
    /* How much has left the flight: its sum, wherever it lay, added to the start. What is sent beyond these counts is in flight.
     * What is released may be overwritten. writer: policy; the sender reads them when it has run out of room. */
    _Alignas(64) uint64_t flight_payload;
    uint64_t flight_sqn; /* stored last (release) */
    uint64_t released_position;
    uint64_t released_sqn; /* stored last (release) */
    /* Policy's own. Below `settled` all but the holes left the flight; released <= settled, and no hole lies below released. */
    uint64_t released_payload;
    uint64_t holes_sqn; /* fragments in holes, */
    uint64_t holes_payload;
    struct hf_step settled;
};

static inline uint64_t hf_lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* After a large message of one frame, whose send began at begin_ns: if the one before it lies back longer than it took, as where
 * each waits for an answer, the lines of the next one are fetched now, while others read this one. Not while they stream: a copy
 * of whole lines need not have them, and fetching all of them costs it a sixth. */
void hf_source_fetch_ahead(struct hf_source *s, uint64_t length, int64_t begin_ns);

#endif
