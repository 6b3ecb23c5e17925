"""A context that is made from a file really uses it; and what callbacks raise reaches whoever waits."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHORT = 90.0

XML = """<?xml version="1.0"?>
<um-configuration version="1.0">
  <templates>
    <template name="stores">
      <options type="source">
        <option name="ume_store_name" default-value="a:0:0"/>
        <option name="transport" default-value="LBT-SMX"/>
      </options>
      <options type="context"><option name="ume_ack_batching_interval" default-value="5"/></options>
    </template>
  </templates>
  <applications>
    <application name="pricer" template="stores">
      <contexts>
        <context name="eu">
          <options type="context"><option name="ume_session_id" default-value="0x2A"/></options>
          <sources>
            <topic topicname="quotes">
              <options type="source"><option name="ume_flight_size" default-value="2"/></options>
            </topic>
            <topic pattern="^secret" rule="deny"/>
          </sources>
        </context>
      </contexts>
    </application>
  </applications>
</um-configuration>
"""


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SHORT
    while not true():
        assert time.monotonic() < deadline, "the time is over"
        time.sleep(0.002)


# Files ------------------------------------------------------------------------------------------------------


def test_a_context_from_a_flat_file_sends_to_its_stores_and_acknowledges_as_it_says(
    run_store: Callable[..., object], tmp_path: Path
) -> None:
    run_store()
    path = tmp_path / "um.cfg"
    path.write_text(
        "source ume_store_name a:0:0\nreceiver ume_use_ack_batching 0\ncontext context_name pricer\ncontext ume_session_id 7\n"
    )
    with hf.Context(config=path) as ctx:
        src = ctx.source("quotes")
        src.wait_registered(SHORT)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
        assert list(src.registration_ids) == ["a"]
        rcv = ctx.receiver("quotes")
        message = rcv.receive(SHORT)
        assert message is not None
        message.release()
        assert list(rcv.stats().acknowledged.values()) == [0], "at once, not at the interval"
        assert (ctx.name, ctx.session_id) == ("pricer", 7)
        assert repr(ctx).startswith("<Context pricer domain=")
        assert " session_id=0x7 sources=1 receivers=1>" in repr(ctx)


def test_a_context_from_an_xml_file_by_application_and_name(
    run_store: Callable[..., object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run_store()
    path = tmp_path / "um.xml"
    path.write_text(XML)
    with hf.Context(config=path, application="pricer", name="eu") as ctx:
        quotes, trades = ctx.source("quotes"), ctx.source("trades", options={"ume_session_id": 9})
        quotes.wait_registered(SHORT)
        trades.wait_registered(SHORT)
        assert (quotes.options.ume_flight_size, trades.options.ume_flight_size) == (2, 1000)
        assert (quotes.options.ume_session_id, trades.options.ume_session_id) == (42, 9)
        assert ctx.options.ume_ack_batching_interval == 5
        assert ctx.application == "pricer"
        with pytest.raises(hf.ConfigError, match=r"a source of topic secret\.plans is forbidden"):
            ctx.source("secret.plans")
        assert ctx.stats() == hf.ContextStats(2, 0, 0, {"a": True})
    assert [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()] == [
        f"{path}: options of a network have no effect on one host: transport"
    ]


def test_the_environments_file_is_the_default_of_every_context(
    run_store: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store()
    (tmp_path / "um.cfg").write_text("source ume_store_name a\nsource ume_flight_size 3\n")
    monkeypatch.setenv("LBM_DEFAULT_CONFIG_FILE", str(tmp_path / "um.cfg"))
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={"ume_flight_size": 4})
        src.wait_registered(SHORT)
        assert src.options.ume_flight_size == 4
        assert src.stats().stores.keys() == {"a"}


def test_a_wrong_file_makes_no_context(tmp_path: Path) -> None:
    path = tmp_path / "um.cfg"
    path.write_text("source ume_store_name a:0:0\nsource ume_flight_sise 3\n")
    with pytest.raises(hf.ConfigError) as raised:
        hf.Context(config=str(path))
    assert (raised.value.file, raised.value.line, raised.value.column) == (str(path), 2, 8)
    with pytest.raises(hf.ConfigError, match="expected a name"):
        hf.Context(name="x" * 129)


@pytest.mark.parametrize("wrong", ["ume_flight_size=5", ["ume_flight_size"], {7: 8}, 0])
def test_options_that_are_no_dict_of_names_are_a_config_error(wrong: Any) -> None:
    with pytest.raises(hf.ConfigError, match=r"context options = .*: expected a dict"):
        hf.Context(options=wrong)
    with hf.Context() as ctx:
        for make in (ctx.source, ctx.smart_source, ctx.receiver):
            with pytest.raises(hf.ConfigError, match=r"(source|receiver) options = .*: expected a dict"):
                make("quotes", options=wrong)


def test_warnings_of_options_are_logged_with_the_topic(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"), hf.Context() as ctx:
        ctx.source("quotes", options={"ume_store_behavior": "rr"})
        ctx.smart_source("trades", options={"ume_store_behavior": "rr"})
    said = [record.getMessage() for record in caplog.records if "ume_store_behavior = rr" in record.getMessage()]
    assert [line.partition(": ")[0] for line in said] == ["source of 'quotes'", "source of 'trades'"], "once each"


# The command line -------------------------------------------------------------------------------------------


def command(*arguments: str, lines: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], input=lines, capture_output=True, timeout=SHORT, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_command_takes_stores_and_session_from_a_file(run_store: Callable[..., object], tmp_path: Path) -> None:
    run_store()
    run_store("b")
    (tmp_path / "um.xml").write_text(XML)
    where = ["--config", str(tmp_path / "um.xml"), "--application", "pricer"]
    code, _, told = command("send", "quotes", *where, lines=b"one\ntwo\n")
    assert code == 0, told
    assert told.rstrip().endswith("stable, and registered at a"), "not at b, which runs as well"
    session = tmp_path / "um.cfg"
    session.write_text("context ume_session_id 0x77\n")
    assert command("recv", "quotes", "--count", "1", "--config", str(session))[:2] == (0, "one\n")
    assert command("recv", "quotes", "--exit-at-end", "--session", "0x77")[:2] == (0, "two\n")


def test_the_command_sends_to_the_stores_that_are_configured_anywhere_else_to_all(
    run_store: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store()
    run_store("b")

    def stable_at(*arguments: str) -> str:
        code, _, told = command("send", "quotes", *arguments, lines=b"one\n")
        assert code == 0, told
        return told.rstrip().rpartition("registered at ")[2]

    silent, named = tmp_path / "silent.cfg", tmp_path / "named.cfg"
    silent.write_text("source ume_flight_size 5\n")
    named.write_text("source ume_store_name b:0:0\n")
    assert stable_at("--config", str(silent)) == "a, b", "a file without stores does not turn persistence off"
    assert stable_at("-o", "ume_store_name=b") == "b"
    assert stable_at("--config", str(named), "--store", "a") == "a"
    monkeypatch.setenv("LBM_DEFAULT_CONFIG_FILE", str(named))
    assert stable_at() == "b"


def test_the_command_shows_where_a_file_is_wrong(run_store: Callable[..., object], tmp_path: Path) -> None:
    run_store()
    path = tmp_path / "um.cfg"
    path.write_text("source ume_flight_sise 3\n")
    code, out, told = command("send", "quotes", "--config", str(path))
    assert (code, out) == (2, "")
    assert told.splitlines() == [
        f"error: {path}:1:8: source option 'ume_flight_sise' does not exist",
        "  source ume_flight_sise 3",
        "         ^",
        "hint: did you mean ume_flight_size?",
    ]


# Callbacks that raise ---------------------------------------------------------------------------------------


def fail(_: Any) -> None:
    raise ValueError("from a callback")


def failed(ctx: hf.Context, options: dict[str, object]) -> hf.Source:
    """A source whose event callback has raised."""
    src = ctx.source("quotes", options=options, on_event=fail)
    until(lambda: ctx.callback_errors)
    return src


def test_what_a_callback_raises_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with hf.Context() as ctx:
        src = failed(ctx, {})
        src.wait_registered(SHORT)
        assert ctx.stats().callback_errors == ctx.callback_errors >= 1
    assert any(record.exc_info and "from a callback" in str(record.exc_info[1]) for record in caplog.records)


class Ended(BaseException):
    """As asyncio.CancelledError is: no Exception."""


def ends(_: object) -> None:
    raise Ended


@pytest.mark.parametrize("callback", [lambda _: sys.exit(3), ends], ids=["exits", "cancelled"])
def test_a_callback_that_exits_ends_the_program_where_it_waits_and_not_the_contexts_thread(
    callback: Callable[[object], object],
) -> None:
    with hf.Context() as ctx:
        ctx.source("first", on_event=callback)
        until(lambda: ctx.callback_errors)
        ctx.source("second").wait_registered(SHORT)
    ctx = hf.Context(options={"callback_errors": "raise"})
    ctx.source("first", on_event=lambda _: sys.exit(3))
    until(lambda: ctx.callback_raised)
    with pytest.raises(SystemExit):
        ctx.close()


@pytest.mark.parametrize("whose", ["context", "source"])
def test_with_raise_the_next_call_that_waits_raises_it_once(whose: str) -> None:
    option: dict[str, object] = {"callback_errors": "raise"}
    ctx = hf.Context(options=option if whose == "context" else {})
    src = failed(ctx, option if whose == "source" else {})
    with pytest.raises(ValueError, match="from a callback"):
        src.wait_registered(SHORT)
    src.wait_registered(SHORT)
    ctx.close()


def test_the_sources_own_option_goes_before_the_contexts() -> None:
    with hf.Context(options={"callback_errors": "raise"}) as ctx:
        failed(ctx, {"callback_errors": "log"}).wait_registered(SHORT)


@pytest.mark.parametrize(
    "wait",
    [
        lambda src, rcv: src.wait_stable(timeout=SHORT),
        lambda src, rcv: rcv.receive(SHORT),
        lambda src, rcv: rcv.receive_batch(1, SHORT),
        lambda src, rcv: next(iter(rcv)),
        lambda src, rcv: rcv.context.close(),
        lambda src, rcv: src.close(),
        lambda src, rcv: rcv.close(),
        lambda src, rcv: src.__exit__(None, None, None),
        lambda src, rcv: rcv.__exit__(None, None, None),
    ],
    ids=[
        "wait_stable",
        "receive",
        "receive_batch",
        "iter",
        "close",
        "source",
        "receiver",
        "with_source",
        "with_receiver",
    ],
)
def test_every_kind_of_waiting_raises_it(wait: Callable[[hf.Source, hf.Receiver], object]) -> None:
    ctx = hf.Context(options={"callback_errors": "raise"})
    rcv = ctx.receiver("other")
    src = failed(ctx, {})
    with pytest.raises(ValueError, match="from a callback"):
        wait(src, rcv)
    ctx.close()
    assert repr(ctx).endswith(" closed>")


def test_an_iteration_that_is_idle_already_is_woken_by_it() -> None:
    with hf.Context(options={"callback_errors": "raise"}) as ctx:
        sender = ctx.source("quotes")
        sender.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        until(lambda: rcv.stats().sources)
        sender.send(b"x")
        messages = iter(rcv)
        assert bytes(next(messages)) == b"x"
        ctx.source("other", on_event=fail)
        with pytest.raises(ValueError, match="from a callback"):
            next(messages)


@pytest.mark.parametrize("inner", ["source", "receiver"])
def test_the_block_that_fails_itself_is_not_hidden_by_a_callback(inner: str) -> None:
    def block() -> None:
        with hf.Context(options={"callback_errors": "raise"}) as ctx:
            src = failed(ctx, {})
            with src if inner == "source" else ctx.receiver("other"):
                raise KeyError

    with pytest.raises(KeyError):
        block()


def test_the_end_of_the_block_raises_it() -> None:
    with pytest.raises(ValueError, match="from a callback"), hf.Context(options={"callback_errors": "raise"}) as ctx:
        failed(ctx, {})


def test_a_sequential_context_raises_it_in_poll() -> None:
    with hf.Context(options={"callback_errors": "raise", "operational_mode": "sequential"}) as ctx:
        ctx.source("quotes", on_event=fail)
        with pytest.raises(ValueError, match="from a callback"):
            until(lambda: ctx.poll(SHORT) < 0)
