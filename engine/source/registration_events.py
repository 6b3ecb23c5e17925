"""What a source's program is told of its registration: an event per action that has one (docs/semantics.md
B.4, B.5, L.1). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events import source as events
from ..rules import registration as reg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..control.link import StoreLink

__all__ = ["may_be_gone", "source_event"]


def may_be_gone(action: reg.Forgot) -> str:
    """What its program is told of stores that have forgotten, and its log."""
    return (
        f"numbering goes on at {action.start_sqn}; {', '.join(action.stores)} may have had more and cannot know it any more: "
        f"messages from {action.start_sqn} on that were stable only there are gone"
    )


def source_event(action: reg.Action, names: Sequence[str], links: Sequence[StoreLink] = ()) -> object | None:
    """The event of this action, None if it has none. `names` and `links`: of the stores, by index."""
    match action:
        case reg.Granted(store, grant):
            flags = events.RegistrationSuccessFlags(grant.flags | events.RegistrationSuccessFlags.OLD * grant.old)
            return events.RegistrationSuccess(flags, grant.registration_id, grant.next_sqn, store, names[store])
        case reg.Complete(sequence_number, all_stores):
            complete = events.RegistrationCompleteFlags
            return events.RegistrationComplete(complete(0) if all_stores else complete.QUORUM, sequence_number)
        case reg.RefusedBy(store, refusal):
            return events.RegistrationError(refusal.text, names[store], refusal.pid, refusal.since_ns / 1e9)
        case reg.Forgot():
            return events.RegistrationError(may_be_gone(action), action.stores[0])
        case reg.Unresponsive(store, lost, registered, required, answered):
            text = f"store {store} [{names[store]}] unresponsive"
            text += (" (quorum lost)" if lost else "") if answered else " - no registration response."
            return events.StoreUnresponsive(text, names[store], store, lost, registered, required)
        case reg.Full(store, registered, required):
            welcome = links[store].welcome if links else None
            where = welcome.directory if welcome is not None else "its directory"
            text = (
                f"store {store} [{names[store]}] has no room for messages: make room in {where}, or in /dev/shm if it "
                "keeps them in memory; it goes on by itself"
            )
            text += "" if registered >= required else "; until then nothing new becomes stable in its group"
            return events.StoreUnresponsive(text, names[store], store, False, registered, required, "full")
    return None
