/* status.c: names of results, for messages. */
#include "base/status.h"

const char *hf_status_name(int64_t status)
{
    if (status <= HF_ERRNO) {
        return "errno";
    }
    if (status >= 0) {
        return "HF_OK";
    }
    switch ((enum hf_status)status) {
#define HF_NAME(name)                                                                                                  \
    case name:                                                                                                         \
        return #name
        HF_NAME(HF_OK);
        HF_NAME(HF_AGAIN);
        HF_NAME(HF_FLIGHT_SIZE);
        HF_NAME(HF_FLIGHT_BYTES);
        HF_NAME(HF_RETENTION);
        HF_NAME(HF_PINNED);
        HF_NAME(HF_TOO_LARGE);
        HF_NAME(HF_LAPPED);
        HF_NAME(HF_AHEAD);
        HF_NAME(HF_DAMAGED);
        HF_NAME(HF_FORKED);
        HF_NAME(HF_BUSY);
        HF_NAME(HF_LAYOUT);
        HF_NAME(HF_FOREIGN);
        HF_NAME(HF_POISONED);
        HF_NAME(HF_GONE);
        HF_NAME(HF_FULL);
        HF_NAME(HF_SMALL);
        HF_NAME(HF_CLOSED);
        HF_NAME(HF_EVICTED);
        HF_NAME(HF_USAGE);
        HF_NAME(HF_ROLL);
        HF_NAME(HF_LOST);
        HF_NAME(HF_EXISTS);
        HF_NAME(HF_FENCED);
        HF_NAME(HF_HOLE);
        HF_NAME(HF_ERRNO);
#undef HF_NAME
    }
    return "unknown";
}
