"""The shared structs of csrc/base/layout.h as numpy dtypes, derived from what cffi read there. No offset is
written twice.

`layout.FRAME`, `layout.BOARD_LINE`, ... are made on first use: `import holdfast` does not need numpy for
them. Kernels never import from here: a struct reaches them as the dtype of an argument, so that another
layout is another signature and a cached kernel of the old one is not used for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .core import ffi

if TYPE_CHECKING:
    import numpy as np

# What processes share, in the order of base/layout.h.
SHARED: dict[str, str] = {
    "PREAMBLE": "struct hf_preamble",
    "FRAME": "struct hf_frame",
    "CONTROL_BODY": "struct hf_control_body",
    "MARK": "struct hf_mark",
    "SRI_STORE": "struct hf_sri_store",
    "SRI_GROUPS": "struct hf_sri_groups",
    "STREAM_HEADER": "struct hf_stream_header",
    "BOARD_LINE": "struct hf_board_line",
    "BOARD": "struct hf_board",
    "BELL": "struct hf_bell",
    "BELLS": "struct hf_bells",
    "SEAL": "struct hf_seal",
    "SEGMENT_HEADER": "struct hf_segment_header",
    "INDEX_ENTRY": "struct hf_index_entry",
    "BEGIN": "struct hf_begin",
    "HEAD": "struct hf_head",
    "BEGIN_TABLE": "struct hf_begin_table",
    "HEAD_V1": "struct hf_head_v1",
    "FILL_HEADER": "struct hf_fill_header",
    "ENTRY": "struct hf_entry",
}
# What only C and Python of one process share.
PRIVATE: dict[str, str] = {
    "LINE_VIEW": "struct hf_line_view",
    "FINDING": "struct hf_finding",
}


def dtype_of(ctype: Any) -> np.dtype[Any]:
    """Return the numpy dtype of a C type (a name or a cffi ctype): little-endian, padding dropped but
    counted.

    `char[n]` becomes `S<n>`. Raises TypeError for what cannot be shared: pointers, functions, bit-fields,
    unions.
    """
    import numpy as np

    t = ffi.typeof(ctype) if isinstance(ctype, str) else ctype
    if t.kind in ("primitive", "enum"):
        if t.cname == "char":
            return np.dtype("S1")
        sign = "f" if t.cname in ("float", "double") else "i" if int(ffi.cast(t, -1)) < 0 else "u"
        return np.dtype(f"<{sign}{ffi.sizeof(t)}")
    if t.kind == "array":
        if t.item.cname == "char":
            return np.dtype(f"S{t.length}")
        return np.dtype((dtype_of(t.item), (t.length,)))
    if t.kind == "struct" and all(f.bitsize == -1 for _, f in t.fields):
        shown = [(name, f) for name, f in t.fields if not name.startswith("_")]
        return np.dtype(
            {
                "names": [name for name, _ in shown],
                "formats": [dtype_of(f.type) for _, f in shown],
                "offsets": [f.offset for _, f in shown],
                "itemsize": ffi.sizeof(t),
            }
        )
    raise TypeError(f"{t.cname}: {t.kind} cannot be shared")


def __getattr__(name: str) -> np.dtype[Any]:
    """Make a dtype when it is first asked for, and keep it."""
    cname = SHARED.get(name) or PRIVATE.get(name)
    if cname is None:
        raise AttributeError(f"layout has no struct {name}")
    made = dtype_of(cname)
    globals()[name] = made
    return made
