"""A soak: ``python -m soak [--minutes M] [--every S] [--seed N]``. Exit status: 0 nothing found, 1 otherwise.

Three stores that keep little, three sources, seven kinds of receivers. Every ``S`` seconds one of them is
killed, stopped or closed, or a store is silent, wiped, adopted or excluded. Beside them are receivers that
are thrown away, and all commands of an operator. Everything is judged: messages (judge.py), silent stores
(silence.py), commands that look (words.py, following.py) and that change something (deeds.py), what may not
grow (growth.py).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from evidence import record

DOMAIN = "soak"
PREFIX = "hf-soak-"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M", help="length (30)")
    parser.add_argument("--every", type=float, default=20.0, metavar="S", help="seconds between two troubles (20)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), metavar="N")
    parser.add_argument("--keep", action="store_true", help="leave the directory where something is found")
    given = parser.parse_args()
    print(f"soak: seed {given.seed}", flush=True)
    _clear_up()
    where = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir="/tmp"))
    _surroundings(where)
    from soak.scene import Scene  # holdfast reads the environment

    began = time.monotonic()
    scene = Scene(where, DOMAIN, given.seed, 60 * given.minutes, given.every)
    try:
        with scene:
            scene.run()
    except Exception as why:
        scene.findings.append(f"the soak failed itself: {type(why).__name__}: {why}")
        raise
    finally:
        seconds = time.monotonic() - began
        record(
            "soak", counts={**scene.counts, "minutes": round(given.minutes)}, findings=len(scene.findings),
            planted=(scene.caught, scene.planted), seconds=seconds, seed=given.seed,
        )  # fmt: skip
        _remove(where, files=not (given.keep and scene.findings))
    for line in scene.samples.table():
        print(line)
    for found in scene.findings:
        print(f"FOUND {found}")
    counts = ", ".join(f"{count} {what}" for what, count in scene.counts.items())
    print(
        f"soak: {counts}; {len(scene.findings)} findings, planted lies caught {scene.caught} of {scene.planted}; {seconds:.0f} s,"
        f" seed {given.seed}"
    )
    return int(bool(scene.findings) or scene.caught < scene.planted)


def _surroundings(where: Path) -> None:
    tests = Path(__file__).resolve().parents[1]
    os.environ["HOLDFAST_DIR"] = str(where / "run")
    os.environ["HOLDFAST_DOMAIN"] = DOMAIN
    os.environ["PYTHONPATH"] = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(tests.parent / "build" / "pycache"))
    for name in (
        "PYTHONDONTWRITEBYTECODE",
        "HOLDFAST_FAILPOINTS",
        "LBM_DEFAULT_CONFIG_FILE",
        "LBM_XML_CONFIG_FILENAME",
        "LBM_XML_CONFIG_APPNAME",
    ):
        os.environ.pop(name, None)


def _clear_up() -> None:
    """What a soak left that was killed."""
    for path in Path("/tmp").glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).split("-")[0]
        if path.stat().st_uid == os.getuid() and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            _remove(path, files=True)


def _remove(where: Path, *, files: bool) -> None:
    """Shared memory first: the directory names it."""
    from support.leftovers import remove_objects

    domain = where / "run" / DOMAIN
    if domain.is_dir():
        remove_objects(domain)
    if files:
        shutil.rmtree(where, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
