"""A store that starts on a disk that is read-only, and what happens when the disk can be written again.

Run by test_read_only.py as root, in a mount namespace of its own: ``read_only_start.py DIRECTORY [cache]``.
Each step prints a line.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.command_line import Program, run, stat, until
from support.read_only_disk import mounted
from support.receiving import SHORT, take

import holdfast as hf
from holdfast.engine.memory.domain import Domain

COUNT = 100
OPTIONS = {"ume_store_name": ["a"], "ring_size": 1 << 17}


def say(*words: object) -> None:
    print(*words, flush=True)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def run_store(*arguments: str) -> Program:
    program = Program("store", "run", *arguments)
    atexit.register(program.process.kill)  # where something fails
    return program


def started(directory: Path, name: str = "a") -> Program:
    return run_store("--name", name, "--directory", str(directory), "--type", "disk")


def end(program: Program) -> tuple[int, str]:
    program.signal(signal.SIGTERM)
    code, _, err = program.end()
    assert "Traceback" not in err, err
    return code, err


def fill(directory: Path) -> None:
    """Half of what is sent is acknowledged by one receiver; the head is one that a power cut may leave."""
    program = started(directory)
    with (
        hf.Context(session_id=1) as ctx,
        hf.Context(session_id=2) as other,
        ctx.source("quotes", options=OPTIONS) as src,
        other.receiver("quotes") as rcv,
    ):
        src.wait_registered(SHORT)
        (head,) = directory.glob("logs/*/head")
        early = head.read_bytes()
        for number in range(COUNT):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
        take(rcv, COUNT // 2)
    with contextlib.closing(Domain(join=False)) as domain:
        until(lambda _: not any(item.kind == "stream" for item in domain.objects()))  # the log alone has them
    say("filled", end(program)[0])
    with head.open("r+b") as file:
        file.write(early)


def refused(session: int) -> str:
    with hf.Context(session_id=session) as ctx:
        try:
            ctx.source("quotes", options=OPTIONS).wait_registered(SHORT)
        except hf.RegistrationError as error:
            return str(error)
    return "granted"


def received(session: int, first: int) -> tuple[bool, bool]:
    """It gets the rest; whether it is told that nothing is recorded."""
    said: list[object] = []
    with hf.Context(session_id=session) as ctx, ctx.receiver("quotes", on_event=said.append) as rcv:
        whole = take(rcv, COUNT - first) == list(range(first, COUNT))
    return whole, any("records nothing" in str(event) for event in said)


def told() -> tuple[bool, bool, int]:
    """What ``stat`` says of the store, for programs and for people, and the lines of ``doctor`` that name the
    disk."""
    doctor = run("doctor")[1]
    return stat()["stores"][0]["read_only"], "running, read-only" in run("stat")[1], doctor.count("read-only")


def another(directory: Path, holder: int = 0) -> tuple[int, bool]:
    """A second store there is refused. A reader cannot write its pid into the lock file."""
    code, _, err = started(directory, "b").end()
    return code, f"directory {directory} is in use by the store of process {holder}\n" in err


def drive(disk: Path) -> None:
    directory = disk / "a"
    fill(directory)
    remount(disk, "ro")
    before = files(directory)
    program = started(directory)
    until(lambda seen: [row["state"] for row in seen["stores"]] == ["running"])
    say("known", *received(2, COUNT // 2))
    say("new", *received(3, 0))
    why = refused(4)
    say("source", f"{directory} cannot be written: its file system was read-only when the store started" in why)
    say("acknowledged", sorted((row["session_id"], row["ack"]) for row in stat()["receivers"]))
    say("told", *told())
    say("a second one", *another(directory))
    code, _, err = run("store", "exclude", "elsewhere", "--force")
    say("excluded", code, "takes nothing in" in err)

    remount(disk, "rw")
    say("and later", *received(5, 0), "start the store again" in refused(6))
    say("told", *told(), "can be written now: start the store again" in run("doctor")[1])
    say("a second one", *another(directory))
    (source,) = stat()["sources"]
    code, _, err = run("store", "mark", "a", "--source", str(source["registration_ids"]["a"]), "--numbers", "3")
    say("marked", code, "takes nothing in" in err)
    code, err = end(program)
    say("ended", code, err.count("HF_READ_ONLY"), "written" if files(directory) != before else "untouched")

    program = started(directory)
    with (
        hf.Context(session_id=1) as ctx,
        hf.Context(session_id=2) as known,
        hf.Context(session_id=3) as new,
        ctx.source("quotes", options=OPTIONS) as src,
    ):
        src.wait_registered(SHORT)
        src.wait_stable(src.send(b"more"), timeout=SHORT)
        with known.receiver("quotes") as one, new.receiver("quotes") as two:
            say("goes on", take(one), take(two), *told())
    view = disk / "view"
    view.mkdir()
    subprocess.run(["mount", "--bind", str(directory), str(view)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(view)], check=True)
    say("beside a writer", *another(view, program.process.pid))
    say("ended", end(program)[0])

    view = disk / "empty"
    view.mkdir(mode=0o700)
    (view / "logs").mkdir(mode=0o700)
    remount(disk, "ro")
    code, _, err = started(view, "b").end()
    say("empty", code, f"{view} cannot be written" in err, "mount it read-write" in err)


def drive_cache(disk: Path, state: Path) -> None:
    """The state can be written, and the logs lie on another disk, which is read-only: that one is named."""
    cache, file = disk / "cache", state.with_suffix(".xml")
    places = {"disk-state-directory": state, "disk-cache-directory": cache, "context-name": "a"}
    given = "".join(f'<option type="store" name="{name}" value="{value}"/>' for name, value in places.items())
    topics = '<topics><topic pattern="quotes" type="direct"/></topics>'
    store = f'<store name="a" port="0"><ume-attributes>{given}</ume-attributes>{topics}</store>'
    file.write_text(f'<ume-store version="1.3"><daemon/><stores>{store}</stores></ume-store>')
    program = run_store(str(file))
    until(lambda seen: [row["state"] for row in seen["stores"]] == ["running"])
    say("ended", end(program)[0])
    remount(disk, "ro")
    program = run_store(str(file))
    until(lambda seen: [row["state"] for row in seen["stores"]] == ["running"])
    say("source", f"{cache} cannot be written: its file system was read-only when the store started" in refused(4))
    say("doctor", f"store a: {cache} is on a file system that is read-only" in run("doctor")[1])
    remount(disk, "rw")
    say("and later", f"because {state} or {cache} was on a file system" in run("doctor")[1])
    say("ended", end(program)[0])


if __name__ == "__main__":
    os.umask(0o077)
    made = mounted(Path(sys.argv[1]))
    if sys.argv[2:] == ["cache"]:
        drive_cache(made, Path(sys.argv[1]) / "state")
    else:
        drive(made)
