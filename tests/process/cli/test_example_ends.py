"""How the example programs end: wrong arguments, interrupts, output that nobody reads, nothing to do."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.example_programs import NAMES, SHORT, Example, wait


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_option_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(f"holdfast.examples.{name}").main
    assert main(["--nonsense"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: ")
    assert main(["--help"]) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("umesrc flights", "no store is configured; -t NAME"),
        ("umesrc -t a -m 5 -P 5 flights", "-m and -P exclude each other"),
        ("umesrc -t a -V -l 3 flights", "has at least 4 bytes"),
        ("umesrc -t a -M many flights", "argument -M/--messages: 'many' is not a whole number"),
        ("umesrc -t a -d -1 flights", "argument -d/--delay: '-1' is not a number of seconds"),
        ("umesrc -t a/b flights", "store name"),
        ("umercv -o ume_state_lifetime flights", "'ume_state_lifetime' is not NAME=VALUE"),
        ("umercv -o ume_state_lifetim=1 flights", "ume_state_lifetim"),
        ("ume_example_src --store a --interval soon", "'soon' is not a number of seconds"),
    ],
)
def test_a_wrong_value_is_one_line(arguments: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *rest = arguments.split()
    assert importlib.import_module(f"holdfast.examples.{name}").main(rest) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert text in err


@pytest.mark.parametrize("arguments", ["ume_example_rcv", "ume_example_src", "umercv flights", "retry_loss flights"])
def test_an_interrupt_while_it_waits_is_silent(arguments: str, domain: str) -> None:
    example = Example(arguments)
    processes = Path(os.environ["HOLDFAST_DIR"], domain, "processes")
    try:
        wait("it has a context", lambda: processes.is_dir() and any(processes.iterdir()), example.alive)
        example.process.send_signal(signal.SIGINT)
        assert example.end() == (130, "")
    finally:
        example.process.kill()


@pytest.mark.parametrize(
    "command",
    [
        "umesrc -t a -d 0 -m 1000 -v flights",  # events, on the context's thread
        "umesrc -t a -d 0 -m 1000 -s 0.01 flights",  # statistics, on a thread of theirs
        "umercv --session-id 1 -v -s 0.01 flights",
        "ume_example_src_3 --store a --interval 0.01 --file {}/ids",
    ],
)
def test_when_nobody_reads_any_more_it_ends_without_a_word(command: str, run_store: Any, tmp_path: Path) -> None:
    run_store()
    name, *arguments = command.format(tmp_path).split()
    importlib.import_module("holdfast.examples.umesrc").main(["-t", "a", "-d", "0", "-M", "20", "flights"])
    with subprocess.Popen(
        [sys.executable, "-m", f"holdfast.examples.{name}", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() != b""
        process.stdout.close()
        try:
            assert process.wait(SHORT) == 0
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_no_messages_are_no_work(domain: str) -> None:
    assert domain
    assert importlib.import_module("holdfast.examples.retry_loss").main(["--messages", "0", "flights"]) == 0


def test_nothing_of_the_examples_is_loaded_with_holdfast_nor_anything_slow_with_them() -> None:
    def loaded(code: str) -> set[str]:
        code = f"import sys\n{code}\nprint(*sys.modules)"
        return set(
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        )

    assert not [name for name in loaded("import holdfast") if name.startswith("holdfast.examples")]
    with_them = loaded("\n".join(f"import holdfast.examples.{name}" for name in NAMES))
    assert f"holdfast.examples.{NAMES[0]}" in with_them
    assert not with_them & {"numba", "pyarrow", "rich", "typer"}
