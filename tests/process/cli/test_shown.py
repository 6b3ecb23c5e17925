"""What objects say of themselves: the names and topics in it are other people's text, and shown escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.receiving import SHORT, source

import holdfast as hf
from holdfast.engine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

NASTY = "a\x1b]0;owned\x07\n\u202ec"


def test_no_repr_has_what_a_terminal_would_obey(run_store: Callable[..., object]) -> None:
    run_store()
    with hf.Context(name=NASTY) as ctx:
        src = source(ctx, 2, topic=NASTY)
        rcv = ctx.receiver(NASTY, options={"ume_explicit_ack_only": 1})
        message = rcv.receive(timeout=SHORT)
        batch = rcv.receive_batch(1, timeout=SHORT)
        assert message is not None
        assert batch is not None
        claim = src.claim(3)
        shown = [ctx, src, rcv, rcv.controllers[0], message, message.extract_ack(), batch, batch.extract_ack(), claim]
        said = [repr(each) for each in shown]
        claim.abandon()
        said.append(repr(claim))
        batch.release()
        message.release()
    for text in [*said, repr(src)]:
        assert text.isprintable(), text
        assert printable(NASTY) in text
