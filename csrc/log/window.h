/* window.h: the bytes of a log's files, read into private memory (window.c): a bad sector is damage, and no
 * signal. */
#ifndef HF_LOG_WINDOW_H
#define HF_LOG_WINDOW_H
#include "base/layout.h"
#include "base/status.h"

struct hf_seg;

/* Part of a file: offsets from <= x < to. */
struct hf_bytes {
    uint64_t from;
    uint64_t to;
};

/* A copy of part of a segment's file. */
struct hf_window {
    uint8_t *bytes; /* malloc'ed */
    uint64_t room;
    struct hf_bytes has;
    struct hf_bytes bad; /* from the first byte of it to the last that the disk did not give; empty: it gave all */
};

/* 1: the disk does not give what was asked for. Else the call failed, and says nothing of it. */
int hf_unreadable(int error);
/* Reads `bytes` of the file; zeros for what it does not have and for what the disk does not give, which *bad tells. Else an
 * errno: the call failed, and says nothing of the bytes. */
int64_t hf_read_all(int fd, uint8_t *to, uint64_t bytes, uint64_t offset, struct hf_bytes *bad);
/* `bytes` from `offset` on of an open segment, and in s->window what lies behind them; valid until the next call for it.
 * NULL: *status is an errno. */
const uint8_t *hf_seg_bytes(struct hf_seg *s, uint64_t offset, uint64_t bytes, int64_t *status);
/* 1: the disk did not give some of these bytes, which the window has; or of bytes beside them. */
int hf_seg_unread(const struct hf_seg *s, uint64_t offset, uint64_t bytes);
void hf_seg_forget(struct hf_seg *s); /* what the window has may be old: it is read again */
void hf_seg_close(struct hf_seg *s);  /* file and window; not the map */
#endif
