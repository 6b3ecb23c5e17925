"""`holdfast store deregister --receiver-uuid`: what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support.command_line import run
from support.receiving import SHORT

import holdfast as hf
from holdfast.cli import operate
from holdfast.cli.operate import deregister
from holdfast.engine.log.info_file import read_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--receiver-uuid", "ab" * 16), "add --receiver REGID"),
        (("--receiver", "3", "--receiver-uuid", "abc"), "--receiver-uuid 'abc' is no uuid"),
        (("--finished", "--older-than", "1d", "--receiver-uuid", "ab" * 16), "--finished is about all stores"),
    ],
)
def test_a_uuid_that_names_no_receiver_is_refused(words: tuple[str, ...], said: str) -> None:
    which = () if "--finished" in words else ("a", "--source", "2")
    code, _, err = run("store", "deregister", *which, *words)
    assert (code, said in err) == (2, True), err


def test_a_store_of_an_older_release_is_not_asked_by_uuid(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would pass that over, and go by the RegID."""
    store = run_store("a", "disk")
    info = read_info(store.store.domain, "a")
    assert info is not None
    monkeypatch.setattr(operate, "read_info", lambda *_: msgspec.structs.replace(info, ready=None))
    with pytest.raises(hf.Error, match="of an older release, which knows no --receiver-uuid"):
        deregister("a", 2, 3, False, SHORT, None, bytes(16))
