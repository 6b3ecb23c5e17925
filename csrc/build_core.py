"""Build time only: csrc's headers and sources become the compiled module ``holdfast._core``, csrc/python
``holdfast._receive``.

There is no second list of declarations. The text between the cffi markers of each header is what C compiles
and what cffi parses, and cffi checks every size and offset of it against the compiler.

A build in place (``pip install -e``, ``build_ext --inplace``) also makes two for tests:
``holdfast._core_fp``, with failpoints, and ``holdfast._core_sim``, whose system calls lead into the simulator
(tests/simulator/kernel). It is strict about warnings; a user's build is not, because a newer compiler's new
warning must not stop an installation.

``python csrc/build_core.py`` rebuilds all modules in place.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cffi import FFI
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
HEADERS = (
    "base/layout",
    "base/status",
    "base/process",
    "base/failpoint",
    "base/map",
    "board/board",
    "board/bell",
    "stream/stream",
    "board/wait",
    "board/tally",
    "base/crc32c",
    "base/sync",
    "log/log",
    "store/drain",
)
"""Those with a cffi region, in the order in which one uses what another declares."""
PYTHON = HERE / "python"
"""The sources of ``holdfast._receive``; all others are those of ``holdfast._core``."""

COMPILE = ["-std=c11", "-O2", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fstack-protector-strong"]
COMPILE += ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
"""No -march: what needs newer instructions chooses them at run time (base/crc32c.c)."""
LINK = ["-Wl,-z,relro,-z,now"]
WARN = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow"]
FAILPOINTS = "-DHF_FAILPOINTS"
KERNEL = HERE.parent / "tests/simulator/kernel"
"""What stands in for the system below ``holdfast._core_sim``. A checkout has it, a source distribution has
not."""
SIMULATION = ["-DHF_SIMULATION", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=0"]
"""Fortified calls would have other names."""
CALLBACKS = """
extern "Python+C" int sim_switch(int);
extern "Python+C" int sim_sleep(uint64_t, int64_t);
extern "Python+C" void sim_wake(uint64_t);
"""
"""From there into Python (tests/simulator/threads.py)."""

KEEP_THE_GIL = {
    "source": "send send_rows send_binary claim commit abort close next limits release in_flight stable",
    "reader": "receive receive_soon ready next position base batch unpin",
    "take": "",
    "board": "ack line_at",
    "bell": "read",
    "tally": "soon end",
    "process": "token forked",
}
"""hf_<key>_<word> (or hf_<key>): calls that never wait keep it (docs/design.md 25). It costs as much as they
do, and it is the lock that serialises a source's senders."""

KINDS = {".c", ".h", ".py", ".md"}

_MARKED = re.compile(r"/\* cffi: begin \*/(.*?)/\* cffi: end \*/", re.DOTALL)
_WRAPPED = re.compile(r"^\w.*\b__wrap_(\w+)\(", re.MULTILINE)


def declarations() -> str:
    """The marked text of all headers. Raises ValueError where HEADERS are not those that have a marked
    region."""
    marked = {
        path.relative_to(HERE).with_suffix("").as_posix(): found
        for path in HERE.rglob("*.h")
        if (found := _MARKED.findall(path.read_text()))
    }
    if marked.keys() != set(HEADERS):
        names = sorted(marked.keys() ^ set(HEADERS))
        raise ValueError(f"in HEADERS, or with text between /* cffi: begin */ and /* cffi: end */, not both: {names}")
    return "\n".join(part for name in HEADERS for part in marked[name])


def sources(module: str) -> list[str]:
    """Of a module, from the repository's root: all that there are, so none can be forgotten."""
    of_receive = module.endswith("_receive")
    found = [path for path in HERE.rglob("*.c") if path.is_relative_to(PYTHON) == of_receive]
    if module.endswith("_sim"):
        found += KERNEL.glob("*.c")
    return sorted(str(path.relative_to(HERE.parent)) for path in found)


def headers() -> list[str]:
    """All that a module of the core is compiled with, from the repository's root."""
    return sorted(str(path.relative_to(HERE.parent)) for path in [*HERE.rglob("*.h"), *KERNEL.glob("*.h")])


def wrapped() -> list[str]:
    """The calls that the simulator answers: those that its kernel has a ``__wrap_`` for."""
    return sorted({name for path in KERNEL.glob("*.c") for name in _WRAPPED.findall(path.read_text())})


def emit(module: str, path: Path) -> None:
    """Write the C source of ``module`` to ``path``. Raises ValueError when cffi writes wrappers in another
    form."""
    ffi = FFI()
    headers = list(HEADERS)
    ffi.cdef(declarations())
    if module.endswith("_sim"):
        headers.append("kernel")
        ffi.cdef("\n".join(_MARKED.findall((KERNEL / "kernel.h").read_text())) + CALLBACKS)
    ffi.set_source(module, "".join(f'#include "{name}.h"\n' for name in headers))
    path.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(path))
    text = path.read_text()
    for noun, verbs in KEEP_THE_GIL.items():
        for verb in verbs.split() or [""]:
            text = _keep_the_gil(text, f"hf_{noun}_{verb}".rstrip("_"))
    for name in re.findall(r"_cffi_f_(sim_\w+)\(PyObject", text):
        text = _keep_the_gil(text, name)
    path.write_text(text)


def _keep_the_gil(text: str, name: str) -> str:
    """``text`` with the wrapper of one function changed to call it and nothing else."""
    wrapper = re.compile(
        rf"(\n_cffi_f_{name}\(PyObject.*?)  Py_BEGIN_ALLOW_THREADS\n  _cffi_restore_errno\(\);\n(.*?)"
        r"  _cffi_save_errno\(\);\n  Py_END_ALLOW_THREADS\n",
        re.DOTALL,
    )
    changed, count = wrapper.subn(r"\1\2", text, count=1)
    if count != 1:
        raise ValueError(f"cffi's wrapper of {name} looks different: this version of cffi is not known")
    return changed


class BuildCore(build_ext):
    """build_ext that generates cffi's source and compiles ours with warnings on (cffi's is not clean under
    them)."""

    def finalize_options(self) -> None:
        """In place: the module with failpoints too, and strict (run() hides ``inplace`` from
        build_extension)."""
        self.development = bool(self.inplace or self.editable_mode)
        extensions = self.distribution.ext_modules or []
        if self.development and not any(one.name.endswith("_fp") for one in extensions):
            extensions.append(Extension("holdfast._core_fp", [], py_limited_api=True))
            if KERNEL.is_dir():
                extensions.append(Extension("holdfast._core_sim", [], py_limited_api=True))
        super().finalize_options()

    def get_source_files(self) -> list[str]:
        """All of csrc, for the source distribution."""
        return sorted(f"csrc/{path.relative_to(HERE)}" for path in HERE.rglob("*") if path.suffix in KINDS)

    def build_extension(self, ext: Extension) -> None:
        """Generate, compile our files strictly, and let build_ext compile the generated one and link."""
        variant = Path(self.build_temp) / ext.name.rpartition(".")[2]
        flags = [*COMPILE, FAILPOINTS] if ext.name.endswith("_fp") else COMPILE
        ext.include_dirs, ext.extra_link_args = [str(HERE)], LINK
        if ext.name.endswith("_sim"):
            flags = [*COMPILE, *SIMULATION]
            ext.include_dirs = [str(HERE), str(KERNEL)]
            ext.extra_link_args = [*LINK, *(f"-Wl,--wrap={name}" for name in wrapped())]
        flags_of_ours = [*flags, *WARN, *(["-Werror"] if self.development else [])]
        if not ext.name.rpartition(".")[2].startswith("_core"):  # all of it is ours
            ext.sources = sources(ext.name)
            ext.extra_compile_args = flags_of_ours
            ext.depends = [*map(str, sorted(HERE.rglob("*.h"))), __file__]
            super().build_extension(ext)
            return
        generated = variant / "module.c"
        emit(ext.name, generated)

        def compiled(source: str) -> list[str]:
            made: list[str] = self.compiler.compile(
                [source], str(variant), include_dirs=ext.include_dirs, extra_postargs=flags_of_ours
            )
            return made

        with ThreadPoolExecutor() as pool:
            ext.extra_objects = [made for objects in pool.map(compiled, sources(ext.name)) for made in objects]
        ext.depends = ext.extra_objects  # so that it links again when only they changed
        ext.sources = [str(generated)]
        ext.extra_compile_args = flags
        super().build_extension(ext)


if __name__ == "__main__":
    # A build folder of its own: a wheel is packed from the default one, and must not find the test build
    # there.
    setup(script_args=["-q", "build_ext", "--inplace", "--build-lib=build/inplace", "--build-temp=build/inplace/temp"])
