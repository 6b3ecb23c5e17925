"""The numpy dtypes are what the C compiler made of base/layout.h."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.engine.native import layout
from holdfast.engine.native.core import ffi, lib

ROOT = Path(__file__).resolve().parents[3]
STRUCTS = sorted((layout.SHARED | layout.PRIVATE).items())


@pytest.mark.parametrize(("name", "cname"), STRUCTS)
def test_size_and_offsets_are_the_compilers(name: str, cname: str) -> None:
    dtype: np.dtype[Any] = getattr(layout, name)
    assert dtype.itemsize == ffi.sizeof(cname)
    assert dtype.fields is not None
    for field, described in dtype.fields.items():
        assert described[1] == ffi.offsetof(cname, field)
        assert described[0].itemsize == ffi.sizeof(dict(ffi.typeof(cname).fields)[field].type)


def test_every_struct_of_the_layout_has_a_dtype() -> None:
    declared = re.findall(r"^struct hf_\w+(?= \{)", (ROOT / "csrc" / "base" / "layout.h").read_text(), re.MULTILINE)
    assert declared == list(layout.SHARED.values())


@pytest.mark.parametrize(("name", "cname"), STRUCTS)
def test_only_padding_is_left_out(name: str, cname: str) -> None:
    dtype: np.dtype[Any] = getattr(layout, name)
    assert [field for field, _ in ffi.typeof(cname).fields if not field.startswith("_")] == list(dtype.names or ())


def test_a_frame_written_by_c_is_read_by_numpy() -> None:
    frame = ffi.new("struct hf_frame *")
    frame.commit, frame.sequence_number, frame.timestamp_ns = 2**64 - 1, 2**63 + 5, -1
    frame.flags, frame.fragment, frame.crc = lib.HF_FRAME_LAST, 65535, 2**32 - 1
    seen = np.frombuffer(memoryview(ffi.buffer(frame)), layout.FRAME)[0]
    assert seen.tolist() == (2**64 - 1, 2**63 + 5, -1, lib.HF_FRAME_LAST, 65535, 2**32 - 1)


def test_names_are_text_up_to_the_first_nul() -> None:
    line = ffi.new("struct hf_board_line *")
    line.name = b"store-a"
    assert np.frombuffer(memoryview(ffi.buffer(line)), layout.BOARD_LINE)[0]["name"] == b"store-a"


@pytest.mark.parametrize("ctype", ["void *", "struct hf_map", "int (*)(int)"])
def test_what_cannot_be_shared_is_refused(ctype: str) -> None:
    with pytest.raises(TypeError, match="cannot be shared"):
        layout.dtype_of(ctype)


def test_a_dtype_is_made_once() -> None:
    assert layout.FRAME is layout.FRAME
    with pytest.raises(AttributeError, match="NOTHING"):
        _ = layout.NOTHING


def test_shared_memory_is_what_the_last_release_shares_while_it_is_upgraded() -> None:
    """Of 0.1.0. Sources, stores and receivers of both versions use one ring and one board then."""
    shared = {lib.HF_KIND_STREAM: 0x9420D427, lib.HF_KIND_BOARD: 0xE3180803, lib.HF_KIND_BELLS: 0xECBBE317}
    found = {kind: lib.hf_struct_hash(kind) for kind in shared}
    assert found == shared, (
        "processes of the last release refuse this: a new field takes exactly the bytes of a pad, as a nested struct that "
        "is not in the hash's list (docs/contributing.md, Add a field to the layout)"
    )
