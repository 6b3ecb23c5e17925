/* layout.c: the hash that tells two builds of layout.h apart. See hf_struct_hash in layout.h.
 *
 * Every field is listed once more here, because C cannot enumerate them. The list cannot drift: layout.h pads
 * explicitly, so the sizes of the listed fields must add up to the size of the struct, and a field that is missing here
 * does not compile. */
#include "base/layout.h"

// clang-format off: tables that wrap as they please
#define FIELDS_hf_preamble(F)                                                                                          \
    F(hf_preamble, magic)                                                                                              \
    F(hf_preamble, layout_version)                                                                                     \
    F(hf_preamble, struct_hash) F(hf_preamble, page_size) F(hf_preamble, header_bytes) F(hf_preamble, total_bytes)     \
        F(hf_preamble, incarnation) F(hf_preamble, owner) F(hf_preamble, created_ns) F(hf_preamble, owner_start)       \
            F(hf_preamble, owner_pid) F(hf_preamble, _pad0) F(hf_preamble, uuid) F(hf_preamble, boot_id)               \
                F(hf_preamble, _pad1)
#define FIELDS_hf_frame(F)                                                                                             \
    F(hf_frame, commit)                                                                                                \
    F(hf_frame, sequence_number) F(hf_frame, timestamp_ns) F(hf_frame, flags) F(hf_frame, fragment) F(hf_frame, crc)
#define FIELDS_hf_control_body(F) F(hf_control_body, first) F(hf_control_body, last)
#define FIELDS_hf_mark(F) F(hf_mark, position) F(hf_mark, sqn)
#define FIELDS_hf_sri_store(F)                                                                                         \
    F(hf_sri_store, name)                                                                                              \
    F(hf_sri_store, uuid)                                                                                              \
    F(hf_sri_store, registration_id) F(hf_sri_store, group) F(hf_sri_store, index) F(hf_sri_store, version)
#define FIELDS_hf_sri_groups(F)                                                                                        \
    F(hf_sri_groups, sizes) F(hf_sri_groups, intragroup) F(hf_sri_groups, intergroup) F(hf_sri_groups, _pad)
#define FIELDS_hf_stream_header(F)                                                                                     \
    F(hf_stream_header, pre)                                                                                           \
    F(hf_stream_header, ring_bytes)                                                                                    \
    F(hf_stream_header, start_position) F(hf_stream_header, start_sqn) F(hf_stream_header, fragment_bytes)             \
        F(hf_stream_header, fenced) F(hf_stream_header, session_id) F(hf_stream_header, flags)                         \
            F(hf_stream_header, _pad0)                                                                                 \
            F(hf_stream_header, topic) F(hf_stream_header, tail) F(hf_stream_header, next_sqn)                         \
                F(hf_stream_header, messages) F(hf_stream_header, payload_bytes) F(hf_stream_header, stable_sqn)       \
                    F(hf_stream_header, heartbeat_ns) F(hf_stream_header, _pad1) F(hf_stream_header, trail)            \
                        F(hf_stream_header, state) F(hf_stream_header, _pad2) F(hf_stream_header, sri_version)         \
                            F(hf_stream_header, sri_count) F(hf_stream_header, _pad3) F(hf_stream_header, sri_groups)  \
                            F(hf_stream_header, _pad4)                                                                 \
                                F(hf_stream_header, sri) F(hf_stream_header, marks)
#define FIELDS_hf_board_line(F)                                                                                        \
    F(hf_board_line, owner)                                                                                            \
    F(hf_board_line, state)                                                                                            \
    F(hf_board_line, from_sqn) F(hf_board_line, to_sqn) F(hf_board_line, ack) F(hf_board_line, position)               \
        F(hf_board_line, pin) F(hf_board_line, pin_stream) F(hf_board_line, sleeping) F(hf_board_line, bell)           \
            F(hf_board_line, heartbeat_ns) F(hf_board_line, delivered) F(hf_board_line, redelivered)                   \
                F(hf_board_line, lapped) F(hf_board_line, ack_stream) F(hf_board_line, _pad0) F(hf_board_line, uuid)   \
                    F(hf_board_line, incarnation) F(hf_board_line, session_id) F(hf_board_line, owner_start)           \
                        F(hf_board_line, since_ns) F(hf_board_line, owner_pid) F(hf_board_line, registration_id)       \
                            F(hf_board_line, role) F(hf_board_line, level) F(hf_board_line, name)                      \
                                F(hf_board_line, user_registration_id) F(hf_board_line, flags) F(hf_board_line, _pad1)
#define FIELDS_hf_board(F)                                                                                             \
    F(hf_board, pre)                                                                                                   \
    F(hf_board, sleepers)                                                                                              \
    F(hf_board, _pad0) F(hf_board, source_waiting) F(hf_board, source_bell) F(hf_board, _pad1) F(hf_board, claimer)    \
        F(hf_board, _pad2) F(hf_board, lines)
#define FIELDS_hf_bell(F) F(hf_bell, owner) F(hf_bell, word) F(hf_bell, _pad0) F(hf_bell, _pad1)
#define FIELDS_hf_bells(F) F(hf_bells, pre) F(hf_bells, bells)
#define FIELDS_hf_seal(F)                                                                                              \
    F(hf_seal, end_position)                                                                                           \
    F(hf_seal, next_sqn) F(hf_seal, index_count) F(hf_seal, index_crc) F(hf_seal, _pad0) F(hf_seal, crc)
#define FIELDS_hf_segment_header(F)                                                                                    \
    F(hf_segment_header, pre)                                                                                          \
    F(hf_segment_header, source_uuid)                                                                                  \
    F(hf_segment_header, base_position) F(hf_segment_header, first_sqn) F(hf_segment_header, synced_below)             \
        F(hf_segment_header, _pad0) F(hf_segment_header, _pad1) F(hf_segment_header, crc) F(hf_segment_header, _pad2)  \
            F(hf_segment_header, seal)
#define FIELDS_hf_index_entry(F) F(hf_index_entry, sqn) F(hf_index_entry, offset)
#define FIELDS_hf_begin(F) F(hf_begin, incarnation) F(hf_begin, start_sqn)
#define FIELDS_hf_head(F)                                                                                              \
    F(hf_head, pre)                                                                                                    \
    F(hf_head, end)                                                                                                    \
    F(hf_head, end_check) F(hf_head, next_sqn) F(hf_head, level) F(hf_head, poisoned) F(hf_head, _pad0)                \
        F(hf_head, oldest_sqn) F(hf_head, oldest_position) F(hf_head, begin_version) F(hf_head, _pad1)
#define FIELDS_hf_begin_table(F)                                                                                       \
    F(hf_begin_table, generation)                                                                                      \
    F(hf_begin_table, count) F(hf_begin_table, _pad0) F(hf_begin_table, crc) F(hf_begin_table, begins)
#define FIELDS_hf_head_v1(F)                                                                                           \
    F(hf_head_v1, pre)                                                                                                 \
    F(hf_head_v1, end)                                                                                                 \
    F(hf_head_v1, end_check) F(hf_head_v1, next_sqn) F(hf_head_v1, level) F(hf_head_v1, poisoned)                      \
        F(hf_head_v1, begin_crc) F(hf_head_v1, _pad0) F(hf_head_v1, oldest_sqn) F(hf_head_v1, oldest_position)         \
            F(hf_head_v1, begin_version) F(hf_head_v1, begin_count) F(hf_head_v1, begins)
#define FIELDS_hf_fill_header(F)                                                                                       \
    F(hf_fill_header, pre)                                                                                             \
    F(hf_fill_header, source_uuid) F(hf_fill_header, first_sqn) F(hf_fill_header, next_sqn)                            \
        F(hf_fill_header, end_position) F(hf_fill_header, _pad0) F(hf_fill_header, crc)
#define FIELDS_hf_entry(F)                                                                                             \
    F(hf_entry, sequence_number)                                                                                       \
    F(hf_entry, first_sequence_number)                                                                                 \
    F(hf_entry, timestamp_ns) F(hf_entry, offset) F(hf_entry, length) F(hf_entry, flags) F(hf_entry, fragments)

#define STRUCTS(S)                                                                                                     \
    S(hf_preamble)                                                                                                     \
    S(hf_frame)                                                                                                        \
    S(hf_control_body) S(hf_mark) S(hf_sri_store) S(hf_sri_groups) S(hf_stream_header) S(hf_board_line) S(hf_board) S(hf_bell)          \
        S(hf_bells) S(hf_seal) S(hf_segment_header) S(hf_index_entry) S(hf_begin) S(hf_head) S(hf_begin_table) S(hf_head_v1)        \
        S(hf_fill_header) S(hf_entry)
// clang-format on

#define BYTES_OF(type, field) +sizeof(((struct type *)0)->field)
#define LISTED(type) _Static_assert(0 FIELDS_##type(BYTES_OF) == sizeof(struct type), #type ": a field is not listed");
STRUCTS(LISTED)

#define PLACE(type, field) (uint32_t)offsetof(struct type, field), (uint32_t)sizeof(((struct type *)0)->field),
#define PLACES(type) (uint32_t)sizeof(struct type), FIELDS_##type(PLACE)
#define PLACES_COMMON PLACES(hf_preamble)
#define PLACES_FRAMES PLACES(hf_frame) PLACES(hf_control_body)

static uint32_t hash_of(const uint32_t *places, size_t count)
{
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a, by 32-bit words */
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ places[i]) * UINT32_C(16777619);
    }
    return hash;
}

#define HASH(places) hash_of(places, sizeof(places) / sizeof((places)[0]))

/* One version for all kinds would make every old file unreadable when one kind changes. */
uint32_t hf_layout_version(uint32_t kind)
{
    return kind == HF_KIND_HEAD ? HF_HEAD_VERSION : HF_LAYOUT_VERSION;
}

uint32_t hf_head_v1_hash(void)
{
    static const uint32_t head[] = {PLACES_COMMON PLACES(hf_begin) PLACES(hf_head_v1)};
    return HASH(head);
}

uint32_t hf_head_rest_hash(void)
{
    return ~hf_head_v1_hash();
}

uint32_t hf_struct_hash(uint32_t kind)
{
    static const uint32_t stream[] = {PLACES_COMMON PLACES_FRAMES PLACES(hf_mark) PLACES(hf_sri_store)
                                          PLACES(hf_sri_groups) PLACES(hf_stream_header)};
    static const uint32_t board[] = {PLACES_COMMON PLACES(hf_board_line) PLACES(hf_board)};
    static const uint32_t bells[] = {PLACES_COMMON PLACES(hf_bell) PLACES(hf_bells)};
    static const uint32_t segment[] = {PLACES_COMMON PLACES_FRAMES PLACES(hf_seal) PLACES(hf_segment_header)
                                           PLACES(hf_index_entry)};
    static const uint32_t head[] = {PLACES_COMMON PLACES(hf_begin) PLACES(hf_head) PLACES(hf_begin_table)};
    static const uint32_t fill[] = {PLACES_COMMON PLACES_FRAMES PLACES(hf_fill_header)};
    switch (kind) {
    case HF_KIND_STREAM:
        return HASH(stream);
    case HF_KIND_BOARD:
        return HASH(board);
    case HF_KIND_BELLS:
        return HASH(bells);
    case HF_KIND_SEGMENT:
        return HASH(segment);
    case HF_KIND_HEAD:
        return HASH(head);
    case HF_KIND_FILL:
        return HASH(fill);
    default:
        return 0; /* of no object: hf_map_* refuse other kinds */
    }
}
