"""What a person may get wrong: one line each, with the value, the limit and the remedy, and an exit code that
says which kind.

2: usage or configuration; 3: in use; 5: damage.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.command_line import SHORT, one_error, run
from support.own_file_system import own_file_system

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

STORES_26 = ",".join(f"s{number}" for number in range(26))
LONG = "x" * 128
DTD = '<!DOCTYPE ume-store SYSTEM "umestored.dtd">\n<ume-store version="1.3"><stores/></ume-store>'


def store(*more: str, name: str = "a") -> list[str]:
    return ["store", "run", "--name", name, "--directory", "d", *more]


def source(*options: str) -> list[str]:
    return ["send", "quotes", *(part for option in options for part in ("-o", option))]


@pytest.mark.parametrize(
    ("arguments", "value", "limit", "remedy"),
    [
        (store("--type", "tape"), "'tape'", "expected one of", "disk, memory, no-cache"),
        (store("-o", "repository-type=tape"), "'tape'", "expected one of", "disk, memory, no-cache"),
        (source(f"ume_store_name=a:{2**32}"), "'4294967296'", "from 0 to 4294967295", "0: the store chooses"),
        (source(f"ume_store=127.0.0.1:1:{2**32}"), "'4294967296'", "from 0 to 4294967295", "0: the store chooses"),
        (source("ume_store_name=a:0:5"), "not '5'", "from 0 to 4", "a group"),
        (source("ume_store_group=5:1"), "not '5'", "from 0 to 4", "a group"),
        (source(f"ume_store_name={STORES_26}"), "26 stores", "the maximum is 25", "drop 1"),
        (source("ume_store_name=a,b", "ume_store_group=0:3"), "Group 0", "2 of 3", "name 1 more"),
        (store(name=LONG), "(128 characters)", "31 at most", "letters, digits"),
        (source(f"ume_store_name={LONG}"), "(128 characters)", "1 to 31 characters", "A-Z a-z 0-9"),
        (source("ume_store=10.29.3.16:14567"), "'10.29.3.16'", "loopback address", "127.0.0.1:PORT"),
        (store("--port", "65536"), "port 65536", "1 to 65535", "or None"),
        (["store", "run", "dtd.xml"], "dtd.xml:1:1", "a document type (DTD) is not read", "leave <!DOCTYPE ...> out"),
        (["store", "run", "--validate", "dtd.xml"], "dtd.xml:1:1", "a document type (DTD) is not read", "leave <!DOCTYPE"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_value_limit_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], value: str, limit: str, remedy: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dtd.xml").write_text(DTD)
    code, out, err = run(*arguments)
    text = "\n".join(line for line in err.splitlines() if not line.startswith("  "))  # without the excerpt of a file
    one_error((code, out, text), 2, value, limit, remedy)
    assert not (tmp_path / "d").exists()


def test_a_directory_in_use_is_told_with_the_process_that_has_it(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    run_store("b", "disk")
    result = run("store", "run", "--name", "a", "--directory", str(tmp_path / "store-b"))
    one_error(result, 3, str(tmp_path / "store-b"), f"process {os.getpid()}", "stop that store")


def test_a_damaged_directory_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "state.0").write_bytes(b"rubbish")
    result = run("store", "run", "--name", "a", "--directory", str(tmp_path))
    one_error(result, 5, str(tmp_path), "neither state.0 nor state.1 is valid", "restore the directory")
    assert (tmp_path / "state.0").read_bytes() == b"rubbish"


def test_a_file_in_place_of_a_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("store", "run", "--name", "a", "--directory", str(tmp_path / "file"))
    one_error(result, 2, str(tmp_path / "file"), "is not a directory", "choose one that uid")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    with own_file_system(tmp_path / "small", "size=64k") as made:
        yield made


def fill(path: Path) -> None:
    """Takes all the room that there is."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_directory_on_a_full_disk_is_told_with_what_is_free(small_disk: Path) -> None:
    fill(small_disk / "full")
    result = run("store", "run", "--name", "a", "--directory", str(small_disk / "a"))
    one_error(result, 2, str(small_disk / "a"), "No space left on device, 0 bytes are free", "make room there")
    (small_disk / "full").unlink()
    with hf.spawn_store(hf.StoreConfig("a", small_disk / "a"), SHORT) as again:
        assert again.stop() == 0


def test_a_directory_that_takes_no_bytes_is_told(tmp_path: Path) -> None:
    """As on a full disk, also where no file system can be mounted: files may have no bytes in this
    process."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    code = "import sys, holdfast as hf\ntry: hf.store_main(hf.StoreConfig('a', sys.argv[1], type='disk'))\n"
    code += "except hf.Error as error: print(type(error).__name__, error.exit_code, error)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")],
        capture_output=True, text=True, check=False, preexec_fn=limit, timeout=SHORT,
    )  # fmt: skip
    assert done.stdout.startswith("ConfigError 2 "), done.stdout + done.stderr
    assert "cannot be used: File too large" in done.stdout
    assert "make room there" in done.stdout
