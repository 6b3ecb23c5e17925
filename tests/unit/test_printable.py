"""Names and topics are other people's text: shown escaped, kept as they are."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast.cli.outcome import run
from holdfast.engine.control.wire import Refused
from holdfast.engine.printable import LOGGERS, json_text, printable

ROOT = Path(__file__).resolve().parents[2]
NASTY = "a\x1b]0;owned\x07\n\x85b\u202ec\u2028\x7f\U000e0041"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("quotes/EUR→USD ü 日本", "quotes/EUR→USD ü 日本"),
        ("a\x1b[2J\rb", "a\\x1b[2J\\rb"),
        ("\u202egpj.exe\u2066", "\\u202egpj.exe\\u2066"),
        ("line\nfeed\u2028\x9b\udc80", "line\\nfeed\\u2028\\x9b\\udc80"),
    ],
)
def test_what_does_not_show_is_escaped_and_nothing_else(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_json_is_fit_for_a_terminal_and_decodes_to_the_same() -> None:
    text = json_text(msgspec.json.encode({NASTY: NASTY, "ü": "日本"}))
    assert text.isprintable()
    assert "ü" in text
    assert json.loads(text) == {NASTY: NASTY, "ü": "日本"}


def test_no_error_has_more_than_one_line_of_text_that_shows() -> None:
    error = hf.ConfigError(f"topic {NASTY}", hint=f"not {NASTY}")
    assert str(error).isprintable()
    assert str(error.args[0]).startswith("topic a\\x1b]0;owned\\x07\\n\\x85b\\u202ec")
    assert Refused(1, "busy", NASTY).text == NASTY, "data stays as it is"


@pytest.mark.parametrize("name", LOGGERS)
def test_a_topic_forges_no_line_of_the_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger(name).warning("topic %s has %d", NASTY, 3)
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert record.getMessage().endswith("has 3")


def test_every_logger_of_the_package_escapes() -> None:
    files = [path for folder in ("engine", "bindings") for path in (ROOT / folder).rglob("*.py")]
    named = {name for path in files for name in re.findall(r'getLogger\("([^"]*)"\)', path.read_text())}
    assert named == set(LOGGERS)


def test_the_verbs_show_a_topic_escaped(domain: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = (
        "import sys, holdfast as hf\nfrom holdfast.engine.store.store import Store, StoreConfig\n"
        "import threading\nstore = Store(StoreConfig('a', sys.argv[1], sys.argv[2]))\nstore.open()\n"
        "thread = threading.Thread(target=store.run)\nthread.start()\n"
        "ctx = hf.Context(domain=sys.argv[2])\n"
        "src = ctx.source(eval(sys.argv[3]), options={'ume_store_name': ['a:0:0'], 'ring_size': 65536})\n"
        "src.wait_registered(60)\nsrc.send(b'x')\nsrc.wait_stable(timeout=60)\nctx.close()\n"
        "store.stop()\nthread.join()\nstore.close()\n"
    )
    place = str(tmp_path / "a")
    subprocess.run([sys.executable, "-c", code, place, domain, ascii(NASTY)], check=True, capture_output=True)
    verbs = [["stat"], ["stat", "--json"], ["events"], ["events", "--json"], ["doctor"], ["doctor", "--json"]]
    verbs = [[*verb, "--domain", domain] for verb in verbs]
    verbs += [["store", verb, place] for verb in ("check", "dump", "repair")]
    verbs += [["store", verb, place, "--json"] for verb in ("check", "dump")]
    capfd.readouterr()
    for verb in verbs:
        run(verb)
        said = capfd.readouterr()
        assert all(line.isprintable() for line in (said.out + said.err).split("\n")), verb
        if "--json" in verb and "doctor" not in verb:
            lines = said.out if "stat" in verb else f"[{','.join(said.out.splitlines())}]"
            assert _has(json.loads(lines)), verb


def _has(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has(each) for each in value.values())
    return any(_has(each) for each in value) if isinstance(value, list) else value == NASTY


def test_the_guide_has_a_row_for_each_logger() -> None:
    guide = (ROOT / "bindings" / "README.md").read_text()
    table = guide.partition("### Loggers\n")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `(holdfast[\w.]*)` \|", table, re.MULTILINE)) == LOGGERS
