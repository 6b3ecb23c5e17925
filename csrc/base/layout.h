/* layout.h: every byte that two processes share, on shared memory or on disk.
 *
 * This file is the single specification. The text between the cffi markers is compiled by C, parsed by cffi, and turned into
 * numpy dtypes and Numba record types (engine/native/layout.py); csrc/README.md's byte tables are generated from it. Nothing else
 * repeats an offset. Inside the markers: fixed-width integers, arrays, nested structs and enums only. Padding is explicit and
 * named _pad*. Atomicity lives at the access (atomic.h), not in the declaration.
 *
 * Everything is little-endian. Positions are free-running byte counts, masked only when indexing. `sqn` is a sequence number.
 */
#ifndef HF_BASE_LAYOUT_H
#define HF_BASE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
enum hf_layout_const {
    HF_LAYOUT_VERSION = 1,   /* of every kind but the head of a log */
    HF_HEAD_VERSION = 2,     /* 1 is read for ever; the store that opens such a log makes its head anew */
    HF_LINE = 128,    /* one writer per line; two 64-byte lines, because of adjacent-line prefetch */
    HF_GRANULE = 32,  /* frames start at multiples of this; equals sizeof(struct hf_frame) */
    HF_UUID = 16,
    HF_TOPIC_MAX = 256,      /* bytes, NUL included */
    HF_NAME_MAX = 32,        /* store and receiver names, bytes, NUL included */
    HF_STORES_MAX = 25,      /* stores per source (UM: 25) */
    HF_MARKS = 64,           /* stripes of a ring; each has a seek mark */
    HF_BOARD_LINES = 128,    /* participants per source: stores and receivers */
    HF_BELLS = 512,          /* processes per domain */
    HF_FRAGMENTS_MAX = 65535,/* fragments per message */
    HF_INCARNATIONS = 64,    /* incarnations that a log's head remembers */
    HF_STAGING_MAX = 262144, /* bytes staged (and checked) before they enter a log; stays in L2 */
    HF_INDEX_STEP = 65536,   /* log bytes per sparse index entry */
    HF_SEGMENT_COPY = 2048,  /* offset in a log segment of a second copy of its header's first 184 bytes */
    HF_FILL_MAX = 67108864   /* bytes of frames in one fill, if it has more than one message */
};

/* Which object a mapping holds; the low bits of its magic. */
enum hf_kind { HF_KIND_STREAM = 1, HF_KIND_BOARD = 2, HF_KIND_BELLS = 3, HF_KIND_SEGMENT = 4, HF_KIND_HEAD = 5, HF_KIND_FILL = 6 };

/* The first 128 bytes of every shared object. writer: the creator, once; of a head, also who opens the log (boot_id). In shared
 * memory `magic` is stored last (release): an object without it does not exist yet, and a creator that died before leaves something
 * that nobody accepts. A file gets its name when it is whole. */
struct hf_preamble {
    uint64_t magic;          /*   0  HF_MAGIC | kind */
    uint32_t layout_version; /*   8 */
    uint32_t struct_hash;    /*  12  of the sizes and field offsets of the structs that this kind of object is made of */
    uint32_t page_size;      /*  16  of the creator */
    uint32_t header_bytes;   /*  20  from the start of the object to its data; a multiple of page_size for mappings */
    uint64_t total_bytes;    /*  24  header and data, once */
    uint64_t incarnation;    /*  32  of the source */
    uint64_t owner;          /*  40  process token of the creator (process.h) */
    uint64_t created_ns;     /*  48  CLOCK_REALTIME */
    uint64_t owner_start;    /*  56  start time of the creator, clock ticks since boot; only names it in messages */
    uint32_t owner_pid;      /*  64  only names it in messages */
    uint32_t _pad0;          /*  68 */
    uint8_t uuid[16];        /*  72  of the source (stream, board, head) or of the segment */
    uint8_t boot_id[16];     /*  88  a ring of another boot is void */
    uint8_t _pad1[24];       /* 104 */
};                           /* 128 */

/* One fragment of a message, in a ring, in a log segment and in a Spark partition. The payload follows; the next frame starts
 * at the next granule.
 *
 * `commit` is the commit word: low 32 bits = header + payload bytes, high 32 bits = position / 32 + 1 (mod 2^32). It is stored
 * last, with release. In a ring a reader accepts only the word of its own position; 0 = not yet; anything else = lapped. In a
 * log, position counts the bytes of the whole log, not of one segment. */
struct hf_frame {
    uint64_t commit;          /*  0 */
    uint64_t sequence_number; /*  8  of this fragment */
    int64_t timestamp_ns;     /* 16  CLOCK_REALTIME at publish */
    uint16_t flags;           /* 24  enum hf_frame_flag */
    uint16_t fragment;        /* 26  index within its message; for control frames enum hf_control */
    uint32_t crc;             /* 28  0 in a ring; in a log CRC-32C, see log/log.h */
};                            /* 32 */

enum hf_frame_flag { HF_FRAME_FIRST = 1, HF_FRAME_LAST = 2, HF_FRAME_CONTROL = 4, HF_FRAME_HOLE = 8 };

/* Control frames exist only in logs and carry no message. */
enum hf_control { HF_CONTROL_SYNC = 1, HF_CONTROL_LOST = 2 };

/* Payload of a control frame. SYNC: everything below position `first` was on disk when this was written (`last` unused).
 * LOST: numbers first..last will never be had by anyone; a reader steps over them. With HF_FRAME_HOLE only this log lacks them:
 * not every other one could be read. Readers that are older than the flag take that for LOST. */
struct hf_control_body {
    uint64_t first; /* 0 */
    uint64_t last;  /* 8 */
};                  /* 16 */

/* A hint where a message starts, for readers that seek a number. Self-checking: it counts only if the frame at `position` is
 * committed for that position and carries `sqn`. */
struct hf_mark {
    uint64_t position; /* 0 */
    uint64_t sqn;      /* 8 */
};                     /* 16 */

/* One store of a source's registration (UM's SRI). */
struct hf_sri_store {
    char name[32];            /*  0 */
    uint8_t uuid[16];         /* 32  of the store */
    uint32_t registration_id; /* 48  RegID that the source holds there */
    uint16_t group;           /* 52 */
    uint16_t index;           /* 54  store index */
    uint64_t version;         /* 56  grows each time the source (re-)registers with it */
};                            /* 64 */

/* How a source's stores are grouped, and when it may send: enum values are quorum.py's, in its order. sizes: declared; 0 = no such group. */
struct hf_sri_groups {
    uint8_t sizes[5];         /*  0 */
    uint8_t intragroup;       /*  5  0 quorum, 1 all-active, 2 all */
    uint8_t intergroup;       /*  6  0 any, 1 all-active, 2 majority, 3 all */
    uint8_t _pad;             /*  7 */
};                            /*  8 */

/* NO_LATE_JOIN: receivers start with what is sent from now on, and recover nothing. DEREGISTERED: stored before the stream is closed,
 * when its source asks its stores to forget it. So whoever finds what is left of one that was killed then need not wait for it. */
enum hf_stream_flag { HF_STREAM_NO_LATE_JOIN = 1, HF_STREAM_DEREGISTERED = 2 };
enum hf_stream_state { HF_STREAM_OPEN = 1, HF_STREAM_CLOSED = 2 };

/* Header of a stream: the retention ring of one incarnation of one source. Named shared memory, written only by its source;
 * everybody else maps it read-only. The ring follows at pre.header_bytes and is mapped twice, back to back. A source that dies
 * leaves it as it is: the committed end is found from a mark, by walking over commit words (ring_walk.c). */
struct hf_stream_header {
    struct hf_preamble pre;   /*    0 */
    uint64_t ring_bytes;      /*  128  a power of two */
    uint64_t start_position;  /*  136  of the first frame */
    uint64_t start_sqn;       /*  144  of the first frame */
    uint32_t fragment_bytes;  /*  152  largest payload of one frame */
    uint32_t fenced;          /*  156  1: the source fences before it looks for sleepers (no membarrier here) */
    uint64_t session_id;      /*  160 */
    uint32_t flags;           /*  168  enum hf_stream_flag */
    uint8_t _pad0[84];        /*  172 */
    char topic[256];          /*  256 */
    uint64_t tail;            /*  512  cache line "tail": at most 64 messages of a batch behind the committed end */
    uint64_t next_sqn;        /*  520  number of the frame at `tail` */
    uint64_t messages;        /*  528  whole messages committed by this incarnation */
    uint64_t payload_bytes;   /*  536 */
    uint64_t stable_sqn;      /*  544  first number that is not yet stable, as the source last computed it */
    uint64_t heartbeat_ns;    /*  552  CLOCK_MONOTONIC, advisory */
    uint8_t _pad1[80];        /*  560 */
    uint64_t trail;           /*  640  cache line "trail": bytes below it may be overwritten at any time; pairs with hf_board_line.pin */
    uint64_t state;           /*  648  enum hf_stream_state; here, because idle readers poll this cache line and must not touch "tail" */
    uint8_t _pad2[112];       /*  656 */
    uint64_t sri_version;     /*  768  cache line "SRI": a sequence lock, odd while the source writes */
    uint32_t sri_count;       /*  776 */
    uint32_t _pad3;           /*  780 */
    struct hf_sri_groups sri_groups; /* 784 */
    uint8_t _pad4[104];       /*  792 */
    struct hf_sri_store sri[25]; /* 896 */
    struct hf_mark marks[66]; /* 2496  one per stripe; then two, in turn: what was released when the trail last moved */
};                            /* 3552 */

/* CONTEXT: a receiving context as a whole, for liveness detection; it has no positions. */
enum hf_role { HF_ROLE_NONE = 0, HF_ROLE_STORE = 1, HF_ROLE_RECEIVER = 2, HF_ROLE_CONTEXT = 3 };
/* What a receiver's acknowledgements mean to the source: CONFIRMS: they are delivery confirmations too; OUT_OF_ORDER: it delivers
 * in order of arrival; EXPLICIT: the program acknowledges. CATCHING_UP: this store reads from its peers' logs what the ring does
 * not have any more. SKIPPED: a receiver-paced receiver has started at `position`, behind its ack, and has acknowledged nothing
 * since. FULL: there is no room for this store's log. EPHEMERAL: nobody goes on with this receiver's ack once it has ended.
 * DEREGISTERED: the receiver has asked its stores to forget it, or the last of them has done so; a claim takes the flag off. A line
 * without it that no store knows is owed what it lacks: a store may have lost its state. Releases before 0.2.0 do not set it. */
enum hf_line_flag { HF_LINE_CONFIRMS = 1, HF_LINE_OUT_OF_ORDER = 2, HF_LINE_EXPLICIT = 4, HF_LINE_CATCHING_UP = 8, HF_LINE_SKIPPED = 16, HF_LINE_FULL = 32,
                    HF_LINE_EPHEMERAL = 64, HF_LINE_DEREGISTERED = 128 };
enum hf_line_state { HF_LINE_FREE = 0, HF_LINE_ACTIVE = 1, HF_LINE_CLOSED = 2 };

/* One participant of a source. One writer at a time: the participant whose process `owner` names. A line changes hands by a
 * compare-and-swap of `owner`, under the board's `claimer`, and only when it is 0 or its process is dead; then the new owner
 * writes the whole line. A crash leaves the line as it was: its ack stays readable. heartbeat_ns, flags and counters are
 * advisory, and written from Python by plain stores. HF_LINE_DEREGISTERED alone is set by others, too (hf_board_mark). */
struct hf_board_line {
    uint64_t owner;           /*   0  process token | claim count (process.h); 0 = nobody: never used, or released */
    uint64_t state;           /*   8  enum hf_line_state, stored last (release) */
    uint64_t from_sqn;        /*  16  the participant counts for numbers in [from_sqn, to_sqn) */
    uint64_t to_sqn;          /*  24  UINT64_MAX while it takes part */
    uint64_t ack;             /*  32  every number below is acknowledged (receiver) or stable at its level (store) */
    uint64_t position;        /*  40  next number that it will read, not a byte count; ack <= position */
    uint64_t pin;             /*  48  ring position below which nothing may be overwritten; UINT64_MAX = none */
    uint64_t pin_stream;      /*  56  incarnation of the ring that `pin` lies in */
    uint32_t sleeping;        /*  64  1: ring my bell after a commit; pairs with hf_board_wake */
    uint32_t bell;            /*  68  index into the domain's bells */
    uint64_t heartbeat_ns;    /*  72  CLOCK_MONOTONIC, advisory */
    uint64_t delivered;       /*  80  messages */
    uint64_t redelivered;     /*  88  messages delivered with the retransmit flag */
    uint64_t lapped;          /*  96  times that the ring overtook it */
    uint64_t ack_stream;      /* 104  incarnation of the source that `ack` was last compared with; stored after it */
    uint8_t _pad0[16];        /* 112 */
    uint8_t uuid[16];         /* 128  line "identity": of the participant, the same across its incarnations */
    uint64_t incarnation;     /* 144  of the participant */
    uint64_t session_id;      /* 152 */
    uint64_t owner_start;     /* 160 */
    uint64_t since_ns;        /* 168  CLOCK_REALTIME of the claim */
    uint32_t owner_pid;       /* 176 */
    uint32_t registration_id; /* 180 */
    uint32_t role;            /* 184  enum hf_role */
    uint32_t level;           /* 188  store: enum hf_level of its ack */
    char name[32];            /* 192 */
    uint32_t user_registration_id; /* 224  ume_user_receiver_registration_id of its context, 0 = none */
    uint32_t flags;           /* 228  enum hf_line_flag */
    uint8_t _pad1[24];        /* 232 */
};                            /* 256 */

enum hf_level { HF_LEVEL_MEMORY = 1, HF_LEVEL_DISK = 2 };

/* The board of one source identity: re-used by every incarnation, unlinked only with the source's state. */
struct hf_board {
    struct hf_preamble pre;      /*   0  incarnation 0: it belongs to the identity */
    uint32_t sleepers;           /* 128  line "sleepers": 1 = some line may have `sleeping` set; set by sleepers, taken by the source */
    uint8_t _pad0[124];          /* 132 */
    uint32_t source_waiting;     /* 256  line "source": 1 = ring source_bell after an ack moves; pairs with hf_board_ack */
    uint32_t source_bell;        /* 260 */
    uint8_t _pad1[120];          /* 264 */
    uint64_t claimer;            /* 384  line "claimer": owner word of the claim in progress, 0 = none; a dead one may be replaced */
    uint8_t _pad2[120];          /* 392 */
    struct hf_board_line lines[128]; /* 512 */
};                               /* 33280 */

/* One process's doorbell. `word` is a futex that everybody may increment; `owner` changes hands like a board line's. */
struct hf_bell {
    uint64_t owner;    /*   0 */
    uint32_t word;     /*   8 */
    uint32_t _pad0;    /*  12 */
    uint8_t _pad1[112];/*  16 */
};                     /* 128 */

/* The doorbells of a domain. */
struct hf_bells {
    struct hf_preamble pre;    /*   0 */
    struct hf_bell bells[512]; /* 128 */
};                             /* 65664 */

/* How a segment ends: written into its header page when it is full or cut, and never again. */
struct hf_seal {
    uint64_t end_position; /*  0  of the log, behind the last frame; 0 = not sealed */
    uint64_t next_sqn;     /*  8  behind the last message */
    uint32_t index_count;  /* 16  entries of the sparse index */
    uint32_t index_crc;    /* 20 */
    uint32_t _pad0;        /* 24 */
    uint32_t crc;          /* 28  of the 28 bytes above, seeded with the segment's uuid */
};                         /* 32 */

/* A log segment: header page, index area, frames. pre.uuid is new each time the file is used; pre.header_bytes is where
 * frames start. One incarnation per segment: a new one rolls. What precedes the seal is there twice, at HF_SEGMENT_COPY again:
 * a lost header would cost every frame of its segment, since their CRCs are seeded from it. */
struct hf_segment_header {
    struct hf_preamble pre;  /*   0 */
    uint8_t source_uuid[16]; /* 128 */
    uint64_t base_position;  /* 144  log position of the first frame */
    uint64_t first_sqn;      /* 152  number that its first message will carry */
    uint64_t synced_below;   /* 160  log position below which all was on disk when the segment was begun */
    uint64_t _pad0;          /* 168 */
    uint32_t _pad1;          /* 176 */
    uint32_t crc;            /* 180  of the 180 bytes above */
    uint8_t _pad2[72];       /* 184 */
    struct hf_seal seal;     /* 256 */
};                           /* 288 */

/* Sparse index of a sealed segment, behind its header page: a cache, rebuilt when it is missing or wrong. */
struct hf_index_entry {
    uint64_t sqn;    /* 0  of the first message that starts in this step */
    uint64_t offset; /* 8  of its first frame, in the file */
};                   /* 16 */

/* A BEGIN: the incarnation opened at this number. */
struct hf_begin {
    uint64_t incarnation; /* 0 */
    uint64_t start_sqn;   /* 8  records >= this of older incarnations are void */
};                        /* 16 */

/* The file `head` of a log: what readers need with the store dead. writer: the store. In memory `end_check` is stored before
 * `end`, on disk one write has both: where the two differ a crash came between, and the smaller one counts. All of it lies in one
 * sector; the BEGINs do not: they are in the two pages behind it. */
struct hf_head {
    struct hf_preamble pre;   /*   0 */
    uint64_t end;             /* 128  cache line "end": log position behind the last published frame */
    uint64_t end_check;       /* 136  end ^ pre.uuid (first 8 bytes) */
    uint64_t next_sqn;        /* 144  number behind the last published message */
    uint64_t level;           /* 152  enum hf_level of what was published */
    uint64_t poisoned;        /* 160  not 0 after a sync error, in this boot: its id, and bit 1. Nothing is published any more */
    uint8_t _pad0[88];        /* 168 */
    uint64_t oldest_sqn;      /* 256  cache line "retention": below it all was let go; what is not there from here on is lost */
    uint64_t oldest_position; /* 264  the same in bytes; UINT64_MAX: a new head, the segments know */
    uint64_t begin_version;   /* 272  generation of the newest table of BEGINs that is whole, on disk if the log is; stored after it */
    uint8_t _pad1[104];       /* 280 */
};                            /* 384 */

/* The BEGINs of a log: a page of the file `head`. Generation g is in page 1 + g % 2, so that a write which is torn leaves the
 * table before it. The newest one that is whole counts; if it is older than hf_head.begin_version, a BEGIN is lost. */
struct hf_begin_table {
    uint64_t generation;        /*  0  from 1 on */
    uint64_t count;             /*  8 */
    uint32_t _pad0;             /* 16 */
    uint32_t crc;               /* 20  of the 16 bytes from 0 on, then of begins[0 .. count] */
    struct hf_begin begins[64]; /* 24  ascending incarnations; the last HF_INCARNATIONS of them */
};                              /* 1048 */

/* A head of layout version 1, in one page: of a log at rest (log/rest.c), or of an early release. Up to begin_version it is as
 * hf_head. */
struct hf_head_v1 {
    struct hf_preamble pre;   /*   0 */
    uint64_t end;             /* 128 */
    uint64_t end_check;       /* 136 */
    uint64_t next_sqn;        /* 144 */
    uint64_t level;           /* 152 */
    uint64_t poisoned;        /* 160 */
    uint32_t begin_crc;       /* 168  of begins[0 .. begin_count], under begin_version */
    uint8_t _pad0[84];        /* 172 */
    uint64_t oldest_sqn;      /* 256 */
    uint64_t oldest_position; /* 264 */
    uint64_t begin_version;   /* 272  sequence lock over begin_count and begins, odd while written */
    uint64_t begin_count;     /* 280 */
    struct hf_begin begins[64]; /* 288  ascending incarnations */
};                            /* 1312 */

/* A fill: messages that a log has lost, copied from another store's log. First page of the file `fill-<first_sqn>-<next_sqn>`
 * beside the segments; written once, under another name. Frames follow at pre.header_bytes, at positions from 0 on, seeded as
 * a segment's. pre.incarnation: of the segment that they were copied from, so that what voided them there voids them here. */
struct hf_fill_header {
    struct hf_preamble pre;  /*   0  pre.uuid: of this file */
    uint8_t source_uuid[16]; /* 128 */
    uint64_t first_sqn;      /* 144  of the first message */
    uint64_t next_sqn;       /* 152  behind the last one; every number between is here */
    uint64_t end_position;   /* 160  bytes of frames */
    uint32_t _pad0;          /* 168 */
    uint32_t crc;            /* 172  of the whole page, as it is with 0 here */
};                           /* 176 */

/* One message as a poll reports it. Not shared between processes; here because numpy and Numba read it too. */
struct hf_entry {
    uint64_t sequence_number;       /*  0  of the last fragment */
    uint64_t first_sequence_number; /*  8 */
    int64_t timestamp_ns;           /* 16 */
    uint64_t offset;                /* 24  of the first fragment's payload, bytes from the base of the batch */
    uint32_t length;                /* 32  payload bytes, all fragments */
    uint16_t flags;                 /* 36  enum hf_entry_flag */
    uint16_t fragments;             /* 38 */
};                                  /* 40 */

/* FRAGMENTED: it has several fragments; only hf_columns says so. */
enum hf_entry_flag { HF_ENTRY_RETRANSMIT = 8, HF_ENTRY_FRAGMENTED = 16 };

uint32_t hf_layout_version(uint32_t kind); /* that this build writes of such an object */
uint32_t hf_struct_hash(uint32_t kind);  /* of the sizes and field offsets of every struct that such an object is made of */
uint32_t hf_head_v1_hash(void);          /* of HF_KIND_HEAD in layout version 1 */
uint32_t hf_head_rest_hash(void);        /* of one that was made for a log at rest: 0.1.0 refuses it, as it does version 2 */
/* cffi: end */

#define HF_MAGIC UINT64_C(0x3154534644484600) /* bytes: kind "FHDFST1" */

#define HF_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define HF_AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
HF_SIZE(hf_preamble, 128);
HF_SIZE(hf_frame, HF_GRANULE);
HF_SIZE(hf_control_body, 16);
HF_SIZE(hf_sri_store, 64);
HF_SIZE(hf_sri_groups, 8);
HF_SIZE(hf_stream_header, 3552);
HF_AT(hf_stream_header, tail, 4 * HF_LINE);
HF_AT(hf_stream_header, trail, 5 * HF_LINE);
HF_AT(hf_stream_header, sri_version, 6 * HF_LINE);
HF_AT(hf_stream_header, marks, 2496);
HF_SIZE(hf_board_line, 2 * HF_LINE);
HF_AT(hf_board_line, uuid, HF_LINE);
HF_SIZE(hf_board, 512 + HF_BOARD_LINES * 2 * HF_LINE);
HF_AT(hf_board, source_waiting, 2 * HF_LINE);
HF_AT(hf_board, claimer, 3 * HF_LINE);
HF_AT(hf_board, lines, 4 * HF_LINE);
HF_SIZE(hf_bell, HF_LINE);
HF_SIZE(hf_bells, HF_LINE + HF_BELLS * HF_LINE);
HF_SIZE(hf_segment_header, 288);
HF_AT(hf_segment_header, seal, 256);
HF_SIZE(hf_head, 3 * HF_LINE);
HF_AT(hf_head, oldest_sqn, 2 * HF_LINE);
HF_SIZE(hf_begin_table, 1048);
HF_AT(hf_begin_table, begins, 24);
HF_SIZE(hf_head_v1, 1312);
HF_AT(hf_head_v1, poisoned, offsetof(struct hf_head, poisoned));
HF_AT(hf_head_v1, oldest_sqn, offsetof(struct hf_head, oldest_sqn));
HF_AT(hf_head_v1, begin_version, offsetof(struct hf_head, begin_version));
HF_SIZE(hf_fill_header, 176);
HF_SIZE(hf_entry, 40);
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "holdfast's formats are little-endian");
_Static_assert(sizeof(void *) == 8, "holdfast needs a 64-bit platform");

#endif
