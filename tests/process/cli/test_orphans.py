"""``holdfast gc --orphans``, what ``doctor`` says of orphans, and ``--all-domains``: real processes, in a
/dev/shm of the test's own, for what is removed by age there belongs to all of a user."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import receiving
from support.command_line import SHORT
from support.orphan_scene import make_unused
from support.other_user import STRANGER
from support.private_shm import PrivateShm
from support.workers import stand_still

from holdfast.engine.native.waiting import readable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a /dev/shm")

RING = re.compile(r"\.s\d+$").search
UNSHARED = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private")
"""Another container, which has the same /dev/shm."""


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateShm]:
    base = tmp_path / "base"
    base.mkdir(mode=0o700)
    monkeypatch.setenv("HOLDFAST_DIR", str(base))
    made = PrivateShm()
    yield made
    made.close()


class Lives:
    """A memory store in a process, and a message in it."""

    def __init__(self, shm: PrivateShm, tmp_path: Path, domain: str, before: tuple[str, ...] = ()) -> None:
        self.shm, self.domain = shm, domain
        self.directory, self.stores = tmp_path / "base" / domain, tmp_path / f"a-{domain}"
        if not self.directory.exists():
            make_unused(self.directory)
        run = ["store", "run", "--name", "a", "--dir", str(self.stores), "--type", "memory", "-d", domain]
        self.process = subprocess.Popen(
            shm.inside(*before, sys.executable, "-m", "holdfast", *run), stderr=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stderr is not None
        assert readable(self.process.stderr.fileno(), SHORT)
        self.process.stderr.readline()
        sender = subprocess.run(
            shm.inside(sys.executable, "-m", "holdfast", "send", "quotes", "-d", domain),
            input=b"1\n", capture_output=True, check=False, timeout=SHORT,
        )  # fmt: skip
        assert sender.returncode == 0, sender.stderr
        receiving.until("the store takes the dead source's ring away", lambda: not any(map(RING, shm.names())))

    def kill(self) -> None:
        """With all that it has started. Idempotent."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()


def remove_domain(one: Lives) -> None:
    """Out of sight, and not for good: another test's domain that was made with the same inode would have the
    same prefix, and its processes would count."""
    shutil.move(one.directory, one.directory.parent.parent / f"removed-{one.domain}")


@pytest.fixture
def one(shm: PrivateShm, tmp_path: Path) -> Iterator[Lives]:
    made = Lives(shm, tmp_path, "one")
    yield made
    made.kill()


def test_what_is_left_when_a_domain_is_removed_is_listed_and_removed(shm: PrivateShm, one: Lives) -> None:
    one.kill()
    remove_domain(one)
    names = shm.names()
    found = {name.split(".")[2 if ".logs." in name else -1] for name in names}
    assert found - {"b"} == {"bells", "card", "logs"}, "a store takes the board of a source that is over"
    code, out, err = shm.holdfast("gc", "--orphans", "--all")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == len(names) + 2
    for name, said in zip(names, sorted(lines[: len(names)], key=lambda line: line.partition("/dev")[2]), strict=True):
        assert said.startswith("would remove ")
        assert f" /dev/shm/{name} (" in said
        assert said.endswith(f" old), domain {one.directory}: its directory does not exist")
    assert lines[-2].startswith(f"orphans: would remove {len(names)} things, ")
    assert lines[-1] == "to remove them: holdfast gc --orphans --remove --all"
    assert shm.holdfast("gc", "--orphans", "--remove", "--all", "--dry-run")[1].splitlines()[-2:] == lines[-2:]
    assert shm.names() == names
    code, out, err = shm.holdfast("gc", "--orphans", "--remove", "--all")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith(f"orphans: removed {len(names)} things, ")
    assert shm.names() == []


def test_the_logs_of_a_memory_store_stay_without_all(shm: PrivateShm, one: Lives, tmp_path: Path) -> None:
    """Its directory leads there: a store that starts in another domain goes on with them, and while that
    domain is there they stay."""
    one.kill()
    remove_domain(one)
    assert shm.holdfast("gc", "--orphans", "--remove")[0] == 0
    assert [name.split(".")[2] for name in shm.names()] == ["card", "logs"]
    (tmp_path / "a-one").rename(tmp_path / "a-two")
    two = Lives(shm, tmp_path, "two")
    two.kill()
    shown = json.loads(shm.holdfast("store", "dump", str(tmp_path / "a-two"), "--json")[1].splitlines()[0])
    assert shown["next"] == 2, "of both lives"
    _, out, _ = shm.holdfast("gc", "--orphans", "--remove", "--all")
    assert f"store a of domain {two.directory} has a log there" in out
    assert "it names whose the messages are that stay" in out


SENDS = """
import os, sys
import holdfast as hf
source = hf.Context(domain="one").source("quotes", options={"ring_size": 1 << 17, "ume_store_name": "a"})
source.wait_registered(90)
print("registered", flush=True)
sys.stdin.readline()
source.send(b"only in the ring")
os._exit(0)
"""


def test_a_ring_that_no_store_has_drained_stays_without_all(shm: PrivateShm, one: Lives) -> None:
    """The directory was moved to where nobody looks. It comes back, and with it a store that has the
    messages."""
    sender = subprocess.Popen(
        shm.inside(sys.executable, "-c", SENDS), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert sender.stdout is not None
    assert sender.stdout.readline() == "registered\n"
    stand_still(one.process.pid)  # it does not drain; and its death would be told to the source
    assert sender.communicate("send\n", timeout=SHORT)[0] == ""
    assert sender.returncode == 0
    one.kill()
    remove_domain(one)
    _, out, _ = shm.holdfast("gc", "--orphans", "--remove")
    assert "no store has drained it up to number 0 (removed with --all)" in out
    assert "it says who has drained the ring that stays" in out
    assert {name.split(".")[-1] for name in shm.names() if ".logs." not in name} == {"b", "card", "s1"}
    shutil.move(one.directory.parent.parent / "removed-one", one.directory)
    again = Lives(shm, one.directory.parent.parent, "one")
    again.kill()
    lines = map(json.loads, shm.holdfast("store", "dump", str(one.stores), "--json")[1].splitlines())
    assert sorted(line["next"] for line in lines if "next" in line) == [1, 2]
    remove_domain(one)
    shm.holdfast("gc", "--orphans", "--remove", "--all")
    assert shm.names() == []


def test_no_log_goes_while_a_domain_cannot_be_looked_at(shm: PrivateShm, one: Lives, tmp_path: Path) -> None:
    """A store of that one may have come from here."""
    one.kill()
    mine = set(shm.names())
    two = Lives(shm, tmp_path, "two")
    two.kill()
    remove_domain(one)
    place = two.directory / "stores"
    place.rename(place.with_name("away"))
    place.write_text("no directory")
    _, out, _ = shm.holdfast("gc", "--orphans", "--remove", "--all")
    assert f"a store of domain {two.directory} may have a log there" in out
    assert [name for name in mine & set(shm.names()) if ".logs." in name]
    place.unlink()
    place.with_name("away").rename(place)
    shm.holdfast("gc", "--orphans", "--remove", "--all")
    assert mine & set(shm.names()) == set()


def test_the_doctor_tells_of_orphans_and_the_command(shm: PrivateShm, one: Lives) -> None:
    assert orphans_at(shm) == []
    one.kill()
    remove_domain(one)
    assert orphans_at(shm) == [], "whoever removes a domain may be about to remove the rest"
    shm.sh("find /dev/shm -mindepth 1 -exec touch -d '2 hours ago' {} +")
    (goes, stays) = orphans_at(shm)
    assert (goes[0], stays[0]) == (False, False)
    assert goes[1].startswith("2 things of 1 domain whose directory is gone, ")
    assert goes[2] == "holdfast gc --orphans lists them, and with --remove removes them"
    said = r"1 rings and logs of 1 domain whose directory is gone \(\d+ MiB, the oldest of \d{4}-\d\d-\d\d .*\) may hold messages"
    assert re.match(said, stays[1])
    assert "move that same directory back" in stays[2]
    shm.holdfast("gc", "--orphans", "--remove")
    assert orphans_at(shm) == [stays]
    shm.sh("rm /dev/shm/*.card")
    ((ok, found, remedy),) = orphans_at(shm)
    assert (ok, remedy) == (True, "")
    assert found.startswith("1 things of 1 unknown domain, "), found


def orphans_at(shm: PrivateShm) -> list[tuple[bool, str, str]]:
    """What the doctor says."""
    said = json.loads(shm.holdfast("doctor", "--json", "-d", another())[1])
    return [(each["ok"], each["found"], each["remedy"]) for each in said if each["check"] == "orphans"]


def another() -> str:
    """A domain in which nobody lives."""
    place = os.path.join(os.environ["HOLDFAST_DIR"], "another", "stores")
    os.makedirs(place, mode=0o700, exist_ok=True)
    os.chmod(os.path.dirname(place), 0o700)
    return "another"


@pytest.mark.parametrize("card", [True, False])
def test_what_a_living_store_has_is_not_swept(shm: PrivateShm, one: Lives, *, card: bool) -> None:
    """Whether it has a card or, like those of 0.1, none; and not by age."""
    remove_domain(one)
    if not card:
        shm.sh("rm /dev/shm/*.card")
    names = shm.names()
    for more in ((), ("--older-than", "0s")):
        code, out, _ = shm.holdfast("gc", "--orphans", "--remove", "--all", *more)
        assert (code, shm.names()) == (0, names)
        assert f"orphans: removed 0 things, 0 bytes; kept {len(names)}, " in out
        assert ("a living process holds the domain's card" if card else "has something of its domain open") in out
    one.kill()
    shm.holdfast("gc", "--orphans", "--remove", "--all", "--older-than", "0s")
    assert shm.names() == []


@pytest.mark.parametrize("card", [True, False])
def test_what_lives_in_another_container_is_not_swept(shm: PrivateShm, one: Lives, *, card: bool) -> None:
    """It is not in the other one's /proc: the lock of the card speaks for it, and without a card what it has
    mapped."""
    remove_domain(one)
    if not card:
        shm.sh("rm /dev/shm/*.card")
    names = shm.names()
    code, out, _ = shm.holdfast("gc", "--orphans", "--remove", "--all", "--older-than", "0s", before=UNSHARED)
    assert (code, shm.names()) == (0, names)
    assert ("holds the domain's card" if card else "a process has /dev/shm/") in out
    one.kill()
    _, out, _ = shm.holdfast("gc", "--orphans", before=UNSHARED)
    assert "its domain is unknown (removed with --older-than AGE)" in out
    assert ("another mount namespace" if card else "it has no card") in out


def test_garbage_in_a_card_makes_its_domain_unknown(shm: PrivateShm, one: Lives) -> None:
    one.kill()
    remove_domain(one)
    (card,) = [name for name in shm.names() if name.endswith("card")]
    shm.sh(f"echo garbage >/dev/shm/{card}; mkfifo /dev/shm/hf.0123456789ab.card")
    names = shm.names()
    code, out, _ = shm.holdfast("gc", "--orphans", "--remove", "--all")
    assert (code, shm.names()) == (0, names)
    assert "of an unknown domain: its card cannot be read" in out
    assert "0123456789ab" not in out, "a FIFO is nothing of ours, and not waited for"
    shm.holdfast("gc", "--orphans", "--remove", "--all", "--older-than", "1h")
    assert shm.names() == names
    shm.sh("find /dev/shm -mindepth 1 -exec touch -d '2 hours ago' {} +")
    shm.holdfast("gc", "--orphans", "--remove", "--all", "--older-than", "1h")
    assert shm.names() == ["hf.0123456789ab.card"]


def test_what_another_user_has_is_not_looked_at(shm: PrivateShm, one: Lives) -> None:
    """Names of the domain's, a card that says that it is gone, and a domain that only he has."""
    one.kill()
    prefix = next(name for name in shm.names() if name.endswith("bells")).removesuffix("bells")
    code, _, err = shm.python("-m", "support.other_user", "junk", "/dev/shm", prefix, "8")
    assert code == 0, err
    shm.python("-m", "support.other_user", "junk", "/dev/shm", "hf.0123456789ab.", "8")
    shm.sh(f"cp /dev/shm/{prefix}card /dev/shm/hf.ba9876543210.card; chown {STRANGER} /dev/shm/hf.ba9876543210.card")
    names = shm.names()
    assert shm.holdfast("gc", "--orphans", "--remove", "--all", "--older-than", "0s")[1].startswith(
        "orphans: removed 0 "
    )
    assert shm.names() == names
    remove_domain(one)
    shm.holdfast("gc", "--orphans", "--remove", "--all")
    left = shm.names()
    assert len(left) == 17
    assert shm.sh(f"find /dev/shm -mindepth 1 ! -uid {STRANGER}") == ""


def test_who_comes_when_another_user_has_the_cards_name_works_without(shm: PrivateShm, one: Lives) -> None:
    one.kill()
    (card,) = [name for name in shm.names() if name.endswith("card")]
    shm.sh(f"mkdir /dev/shm/x; rm /dev/shm/{card}; mv /dev/shm/x /dev/shm/{card}")
    code, _, err = shm.holdfast("recv", "quotes", "-d", "one", "--exit-at-end")
    assert code == 3, err
    assert "card" not in err


def test_a_directory_that_nobody_may_look_into_proves_nothing(shm: PrivateShm) -> None:
    place = "/dev/shm/closed"  # where another user may come to
    shm.sh(f"mkdir {place}")
    code, out, err = shm.python("-m", "support.orphan_of_stranger", place)
    assert (code, err) == (0, "")
    why = "its directory cannot be looked at: Permission denied"
    assert out.splitlines() == [
        f"bells; False; {why}; its domain is unknown (removed with --older-than AGE)",
        f"card; False; {why}; its domain is unknown (removed with --older-than AGE)",
        str((f"{place}/one", why)),
    ]


# --all-domains ----------------------------------------------------------------------------------------------


def test_all_domains_are_shown_and_swept(shm: PrivateShm, one: Lives, tmp_path: Path) -> None:
    two = Lives(shm, tmp_path, "two")
    try:
        elsewhere = {"HOLDFAST_DIR": str(tmp_path / "elsewhere")}
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        paths = [str(each.directory) for each in (one, two)]
        before = ("env", f"HOLDFAST_DIR={elsewhere['HOLDFAST_DIR']}")  # known by their cards alone
        shown = json.loads(shm.holdfast("stat", "--all-domains", "--json", before=before)[1])
        assert [each["domain"] for each in shown] == paths
        assert [[row["pid"] for row in each["stat"]["stores"]] for each in shown] == [
            [one.process.pid],
            [two.process.pid],
        ]
        _, out, _ = shm.holdfast("stat", "--all-domains", before=before)
        assert [line for line in out.splitlines() if line.startswith("==")] == [f"== {path}" for path in paths]
        one.kill()
        code, out, _ = shm.holdfast("doctor", "--all-domains", "--json", before=before)
        bad = {
            each["domain"]: [found["check"] for found in each["findings"] if not found["ok"]]
            for each in json.loads(out)
        }
        assert (code, bad) == (1, {paths[0]: ["store", "stale"], paths[1]: []})
        code, out, _ = shm.holdfast("gc", "--all-domains", "--all", before=before)
        assert code == 0
        assert out.startswith(f"== {paths[0]}\nremoved ")
        assert f"\n== {paths[1]}\n" in out
        assert out.endswith("\ndomain two: removed 0 things, 0 bytes\n")
        (prefix,) = {name[:16] for name in shm.names()}
        assert f"/dev/shm/{prefix}" not in out
        assert shm.holdfast("stat", "--all-domains", before=before)[1].startswith(f"== {paths[1]}\n")
    finally:
        two.kill()


def test_a_domain_that_cannot_be_looked_at_does_not_hide_the_others(shm: PrivateShm, one: Lives) -> None:
    one.kill()
    (card,) = [name for name in shm.names() if name.endswith("card")]
    shm.sh(f'sed -i \'s/"mnt:[^"]*"/"mnt:[1]"/\' /dev/shm/{card}')
    shutil.move(one.directory, one.directory.parent.parent / "one-moved")
    another()
    code, out, err = shm.holdfast("stat", "--all-domains")
    assert code == 1
    assert f"domain {one.directory} cannot be looked at: its directory was seen in another mount namespace" in err
    assert "another: nothing is here" in out
    code, out, _ = shm.holdfast("stat", "--all-domains", "--json")
    assert [list(each) for each in json.loads(out)] == [["domain", "stat"], ["domain", "error"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["gc", "--remove"],
        ["gc", "--older-than", "7d"],
        ["gc", "--orphans", "--all-domains"],
        ["gc", "--orphans", "--domain", "one"],
        ["gc", "--orphans", "--older-than", "old"],
        ["gc", "--all-domains", "--domain", "one"],
        ["stat", "--all-domains", "--domain", "one"],
        ["doctor", "--all-domains", "--domain", "one"],
    ],
)
def test_what_excludes_each_other_is_refused(shm: PrivateShm, arguments: list[str]) -> None:
    code, out, err = shm.holdfast(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
