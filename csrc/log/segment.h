/* segment.h: a segment's file: its name, its header and seal, its index (segment.c), and whether it is still
 * the same (identity.c). Fills are read as segments, too (fill.h). */
#ifndef HF_LOG_SEGMENT_H
#define HF_LOG_SEGMENT_H
#include "log/window.h"

#define HF_HEADER_PAGE UINT64_C(4096)  /* the words of a head; of a segment: header and its copy, the index follows */
#define HF_SEGMENT_MIN UINT64_C(16384) /* smallest segment file */
#define HF_SEGMENT_SANE (UINT64_C(1) << 40)            /* no segment file is larger */
#define HF_END_SANE (UINT64_MAX - 2 * HF_SEGMENT_SANE) /* no log ends there or behind: what came next would wrap */
#define HF_HEADER_CRC offsetof(struct hf_segment_header, crc)
#define HF_SEGMENT_NAME 24 /* "seg-" + 16 hex digits + NUL */

enum hf_seg_state {
    HF_SEG_GOOD = 0,
    HF_SEG_BAD = 1,   /* no readable header of this source: its frames cannot be verified */
    HF_SEG_ALIEN = 2, /* a good header, but of another position: a recycled file under its old name */
    HF_SEG_VANISHED = 3
};

/* One segment file as its name and header describe it; everything checked, nothing trusted beyond the file's size. */
struct hf_seg {
    uint64_t base;  /* log position of its first frame, from the name */
    uint64_t limit; /* log position behind the last byte that can hold a frame */
    uint64_t first_sqn;
    uint64_t incarnation;
    uint64_t synced_below;
    uint64_t header_bytes;
    uint64_t file_bytes; /* as stat says */
    uint64_t allocated;  /* bytes of disk */
    struct hf_seal seal; /* end_position 0: not sealed, or the seal is wrong */
    uint8_t uuid[16];
    uint32_t seed;      /* of its frames' CRCs */
    uint32_t state;     /* enum hf_seg_state */
    uint64_t fill_next; /* not 0: a fill, and the number behind its last message; its positions begin at 0 */
    uint32_t flaws; /* a copy of the header, the seal or an unused byte of the page is wrong: harmless, but reported */
    uint32_t unreadable; /* the disk does not give its header's page, or not the file itself */
    int fd;              /* -1: not open. A log has only open what it may write: open leaves none, a roll makes them */
    uint8_t *map;        /* NULL: not mapped; the memory level's own, to write. Nobody reads through it */
    uint64_t mapped;
    struct hf_window window;
};

/* The sparse index of one segment while it is walked or written. */
struct hf_index {
    struct hf_index_entry *entries;
    uint32_t count;
    uint32_t max;
    uint64_t next_offset; /* file offset from which on the next entry is due */
};
static inline void hf_index_note(struct hf_index *x, uint64_t offset, uint64_t sqn)
{
    if (offset >= x->next_offset && x->count < x->max) {
        x->entries[x->count].sqn = sqn;
        x->entries[x->count].offset = offset;
        x->count++;
        x->next_offset = (offset / HF_INDEX_STEP + 1) * HF_INDEX_STEP;
    }
}
int64_t hf_index_reset(struct hf_index *x, uint64_t file_bytes); /* HF_OK, or no memory */

void hf_seg_name(char name[HF_SEGMENT_NAME], uint64_t base);
/* The segments of a directory, ascending, their headers read. Returns the count; *out is malloc'ed (also when it is
 * 0). */
int64_t hf_seg_list(int dir, const uint8_t *source_uuid, struct hf_seg **out);
int64_t hf_seg_list_all(int dir, const uint8_t *source_uuid,
                        struct hf_seg **out);                               /* HF_SEG_ALIEN, too: open removes them */
int64_t hf_seg_load(int dir, struct hf_seg *s, const uint8_t *source_uuid); /* HF_OK or an errno; s->state says more */
/* Makes this file that of no position, on disk: its name is about to go, and a power cut may bring that back. */
int64_t hf_seg_void(int dir, const struct hf_seg *s, const uint8_t *source_uuid);
/* Opens it to read, unless it is open. HF_GONE: the file is another one by now. */
int64_t hf_seg_open(int dir, struct hf_seg *s);
void hf_seg_unmap(struct hf_seg *s); /* what the store had mapped to write */
void hf_seg_list_free(struct hf_seg *segs, int64_t n);
uint64_t hf_seg_header_bytes(uint64_t file_bytes);
/* Writes a header (both copies, seal cleared) for a file of s->file_bytes, open at s->fd; mints its uuid and fills
 * in *s. */
int64_t hf_seg_begin(struct hf_seg *s, const uint8_t *source_uuid);
/* Index, then seal. */
int64_t hf_seg_seal(struct hf_seg *s, uint64_t end, uint64_t next_sqn, const struct hf_index *index);
int64_t hf_seg_index(struct hf_seg *s, struct hf_index_entry *out,
                     uint64_t max); /* of an open one; 0: none, or wrong; or an errno */

/* ---- identity.c ---- */

/* 1: the file under this name is still the one that was listed, of this source (not asked of a fill). To be asked before
 * anything in it is called damage. */
int hf_seg_same(int dir, const struct hf_seg *s, const uint8_t *source_uuid);

/* ---- files of any kind ---- */

/* Calls take(argument, name) for every name in the directory, until it returns an error; that is returned. */
int64_t hf_each_name(int dir, int64_t (*take)(void *argument, const char *name), void *argument);
void hf_fill_preamble(struct hf_preamble *pre, uint32_t kind);
int64_t hf_write_all(int fd, const void *data, uint64_t bytes, uint64_t offset);
int hf_zeros(const uint8_t *p, uint64_t bytes); /* 1: nothing else */
#endif
