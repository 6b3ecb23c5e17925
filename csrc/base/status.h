/* status.h: the closed set of results. A function returns a value >= 0, or one of these, or -1000 - errno for a failed system
 * call. engine/native/status.py is the only place that turns them into Python errors. */
#ifndef HF_BASE_STATUS_H
#define HF_BASE_STATUS_H
#include <errno.h>
#include <stdint.h>

/* cffi: begin */
enum hf_status {
    HF_OK = 0,
    HF_AGAIN = -1,         /* nothing there, or not yet */
    HF_FLIGHT_SIZE = -2,   /* flight size in messages reached */
    HF_FLIGHT_BYTES = -3,  /* flight size in bytes reached */
    HF_RETENTION = -4,     /* the ring holds messages that are not released */
    HF_PINNED = -5,        /* a reader's pin holds the ring back; try again */
    HF_TOO_LARGE = -6,     /* more than the object can ever take */
    HF_LAPPED = -7,        /* the ring overtook this position */
    HF_AHEAD = -8,         /* that number does not exist yet */
    HF_DAMAGED = -9,       /* bytes that no correct writer leaves */
    HF_FORKED = -10,       /* this handle belongs to the parent process */
    HF_BUSY = -11,         /* another thread is in, or a claim is open */
    HF_LAYOUT = -12,       /* another layout version, page size or platform */
    HF_FOREIGN = -13,      /* owned by another user, or looser than mode 0600 */
    HF_POISONED = -14,     /* a sync failed: this log publishes nothing any more */
    HF_GONE = -15,         /* no longer retained */
    HF_FULL = -16,         /* table or log is full */
    HF_SMALL = -17,        /* the caller's buffer is too small */
    HF_CLOSED = -18,       /* closed, and read to its end */
    HF_EVICTED = -19,      /* the trail passed a pin: what was read there is void */
    HF_USAGE = -20,        /* the caller broke a rule of this interface */
    HF_ROLL = -21,         /* the log needs its next segment */
    HF_LOST = -22,         /* a LOST record: step over it */
    HF_EXISTS = -23,
    HF_FENCED = -24,       /* this process has lost its lock: others may take it for dead */
    HF_HOLE = -25,         /* not in this log; another store may have it */
    HF_ERRNO = -1000       /* -1000 - errno */
};

const char *hf_status_name(int64_t status); /* "HF_LAPPED"; "errno" at and below HF_ERRNO; never NULL */
/* cffi: end */

/* The errno of a failed system call as a status. */
static inline int64_t hf_errno(void)
{
    return HF_ERRNO - errno;
}
#endif
