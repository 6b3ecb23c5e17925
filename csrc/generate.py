"""What is written from the sources, never by hand: bindings/_core.pyi, and tables of csrc/README.md and
bindings/README.md.

``python csrc/generate.py`` writes them. With ``--check`` it writes nothing, and fails if one is not current.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from build_core import HERE, declarations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

STUB = HERE.parent / "bindings" / "_core.pyi"
README = HERE / "README.md"
GUIDE = HERE.parent / "bindings" / "README.md"
BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


STUB_HEAD = '''\
"""Typing of the compiled core. Written by csrc/generate.py; a test keeps it current."""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, overload

class CType:
    """A C type as cffi knows it."""

    cname: str
    kind: Literal["primitive", "bool", "enum", "struct", "union", "pointer", "array", "function", "void"]
    item: CType
    length: int | None
    fields: list[tuple[str, CField]]
    elements: dict[int, str]
    args: tuple[CType, ...]
    result: CType

class CField:
    """A field of a C struct."""

    type: CType
    offset: int
    bitshift: int
    bitsize: int

class CData:
    """A C value: its fields and items are those of its C type, and unchecked here."""

    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    def __getitem__(self, index: int | slice) -> Any: ...
    def __setitem__(self, index: int | slice, value: Any) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __add__(self, other: int) -> CData: ...
    @overload
    def __sub__(self, other: int) -> CData: ...
    @overload
    def __sub__(self, other: CData) -> int: ...

class Buffer:
    """Bytes of a C object in place (ffi.buffer)."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> bytes: ...
    def __setitem__(self, index: int | slice, value: bytes) -> None: ...

class FFI:
    """The part of cffi's FFI that the engine uses."""

    NULL: CData
    errno: int
    def new(self, cdecl: str | CType, init: object = ..., /) -> CData: ...
    def new_allocator(self, *, should_clear_after_alloc: bool = ...) -> Callable[..., CData]: ...
    def cast(self, cdecl: str | CType, value: object, /) -> CData: ...
    def typeof(self, value: object, /) -> CType: ...
    def sizeof(self, value: object, /) -> int: ...
    def alignof(self, cdecl: str | CType, /) -> int: ...
    def offsetof(self, cdecl: str | CType, /, *fields: str | int) -> int: ...
    def addressof(self, value: object, /, *fields: str | int) -> CData: ...
    def string(self, value: CData, maxlen: int = ...) -> bytes: ...
    def buffer(self, value: CData, size: int = ..., /) -> Buffer: ...
    @overload
    def from_buffer(self, value: object, /, require_writable: bool = ...) -> CData: ...
    @overload
    def from_buffer(self, cdecl: str, value: object, /, require_writable: bool = ...) -> CData: ...
    def memmove(self, dest: object, src: object, n: int) -> None: ...
    def gc(self, value: CData, destructor: Callable[[CData], object] | None, size: int = ...) -> CData: ...
    def release(self, value: CData, /) -> None: ...

Pointer = CData | bytes
"""What a byte pointer argument takes."""

class Lib:
    """Functions and constants of csrc."""

'''


def compiled_module() -> ModuleType:
    """``holdfast._core`` as built in place, loaded by itself: the package around it need not import."""
    path = next(HERE.parent.glob("bindings/_core.*.so"), None) or HERE.parent / "bindings" / "_core.so"
    spec = spec_from_file_location("_core", path, loader=ExtensionFileLoader("_core", str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stub(module: ModuleType) -> str:
    """The text of ``_core.pyi``: every constant, and every function with its arity and kinds of argument."""
    members = [f"    {line}" for line in _members(module.ffi, module.lib)]
    return STUB_HEAD + "\n".join(members) + "\n\nffi: FFI\nlib: Lib\n"


def _members(ffi: Any, lib: Any) -> Iterator[str]:
    text = _COMMENT.sub("", declarations())
    for name in sorted(dir(lib)):
        value = getattr(lib, name)
        if isinstance(value, int):
            yield f"{name}: Final = {value}"
            continue
        names = re.search(rf"\b{name}\(([^)]*)\)", text)
        kind = ffi.typeof(value)
        arguments = re.findall(r"(\w+)\s*(?:,|$)", names[1]) if names and kind.args else []
        typed = [f"{_parameter(a)}: {_annotation(t, 'Pointer')}" for a, t in zip(arguments, kind.args, strict=True)]
        yield f"def {name}({', '.join(['self', *typed, '/'])}) -> {_annotation(kind.result, 'CData')}: ..."


def _parameter(name: str) -> str:
    return f"{name}_" if iskeyword(name) else name


def _annotation(kind: Any, bytes_pointer: str) -> str:
    if kind.kind in {"primitive", "enum"}:
        return "int"
    if kind.kind == "void":
        return "None"
    return bytes_pointer if kind.kind == "pointer" and kind.item.cname in {"uint8_t", "char", "void"} else "CData"


# The tables -------------------------------------------------------------------------------------------------

_STRUCT = re.compile(r"((?:/\*(?:(?!\*/).)*\*/\s*)?)struct (hf_\w+) \{(.*?)\n\};", re.DOTALL)
_CONSTANT = re.compile(r"^    (HF_\w+) = (\d+),?(?:\s*/\*\s*(.*?)\s*\*/)?$", re.MULTILINE)
_FIELD = re.compile(r"^\s*([\w ]+?) (\w+)(?:\[(\d+)\])?;\s*/\*\s*(\d+)\s*(.*?)\s*\*/$", re.MULTILINE)


def tables(module: ModuleType) -> str:
    """The constants, and a table per struct of base/layout.h: offsets and sizes as compiled, meanings from
    the comments.

    Raises ValueError where a comment's offset is not the compiler's, or a field has no comment.
    """
    text = (HERE / "base" / "layout.h").read_text()
    lines = ["### Constants\n", "| name | value | meaning |", "|---|---:|---|"]
    lines += [f"| `{name}` | {value} | {meaning} |" for name, value, meaning in _CONSTANT.findall(text)]
    lines.append("")
    for match in _STRUCT.finditer(text):
        lines += _table(module.ffi, *match.groups())
    return "\n".join(lines)


def _table(ffi: Any, essay: str, name: str, body: str) -> Iterator[str]:
    kind = ffi.typeof(f"struct {name}")
    noted = {field: (base, length, int(at), text) for base, field, length, at, text in _FIELD.findall(body)}
    yield f"### `{name}`, {ffi.sizeof(kind)} bytes\n"
    if essay:
        words = " ".join(re.sub(r"^/\*|\*/$|^ \*", "", line) for line in essay.strip().splitlines())
        yield " ".join(words.split()) + "\n"
    yield "| offset | bytes | field | type | meaning |"
    yield "|---:|---:|---|---|---|"
    for field, found in kind.fields:
        base, length, offset, meaning = noted.get(field, ("", "", -1, ""))
        if offset != found.offset:
            raise ValueError(f"layout.h: {name}.{field} is at {found.offset}, its comment says {offset}")
        shown = f"{base}[{length}]" if length else base
        if not field.startswith("_pad"):
            cell = meaning.replace("|", "\\|")
            yield f"| {offset} | {ffi.sizeof(found.type)} | `{field}` | `{shown}` | {cell} |"
    yield ""


def with_tables(path: Path, written: str) -> str:
    """The page with the text between its markers replaced."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{written}\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Write the files, or say which ones are stale; the exit status."""
    module = compiled_module()
    writers: dict[Path, Callable[[], str]] = {
        STUB: lambda: stub(module),
        README: lambda: with_tables(README, tables(module)),
        GUIDE: lambda: with_tables(GUIDE, option_tables()),
    }
    stale = 0
    for path, write in writers.items():
        text = write()
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if "--check" in arguments:
            print(f"{path.relative_to(HERE.parent)} is not current: run make generate")
        else:
            path.write_text(text)
    return stale if "--check" in arguments else 0


def option_tables() -> str:
    """The reference of the options. Imported last: the package needs a layout that fits its sources."""
    from holdfast.engine.options.reference import reference
    from holdfast.spark.options import table

    return f"{reference()}\n\n### Spark\n\n{table()}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
