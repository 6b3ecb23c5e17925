"""Events and messages as the lines that UM's programs print (docs/semantics.md M)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import events

if TYPE_CHECKING:
    from enum import IntFlag

    from holdfast import Message

TAGS = {
    "INTRAGROUP_STABLE": "IA",
    "INTERGROUP_STABLE": "IR",
    "WHOLE_MESSAGE_STABLE": "MESSAGE",
    "WHOLE_MESSAGE_CONFIRMED": "MESSAGE",
}
"""What UM's programs call these flags; others are printed by their names."""


def flags_of(flags: IntFlag | None, **instead: str) -> str:
    """``Flags 0x7 IA IR STABLE``. ``instead``: for some flags, other words. None: the old form of an event,
    without."""
    if flags is None:
        return "Flags unknown"
    words = [instead.get(name, TAGS.get(name, name)) for flag in flags if (name := flag.name)]
    return " ".join([f"Flags 0x{int(flags):x}", *words])


def message_line(message: Message) -> str:
    """``[topic][source][number], 25 bytes``; ``-RX-`` marks a retransmission."""
    again = " -RX-" if message.is_retransmit else ""
    return f"[{message.topic}][{message.source}][{message.sequence_number}]{again}, {len(message)} bytes"


def context_line(info: events.ReceivingContextInfo) -> str:
    """A receiving context has appeared, or is gone (with ume_source_liveness_timeout in the
    configuration)."""
    who = f"regid {info.regid}, Session ID {info.session_id}"
    return f"Receiver declared dead: {who}, reason {info.flag.name}" if info.flag else f"Receiver detected: {who}"


def source_line(event: events.SourceEvent) -> str:
    """One event of a source."""
    match event:
        case events.source.RegistrationError():
            return f"Error registering source with UME store {event.store}: {event.text}"
        case events.source.RegistrationSuccess():
            said = flags_of(event.flags, OLD=f"OLD[SQN {event.sequence_number}]")
            return f"{_who(event)} registration success. RegID {event.registration_id}. {said}"
        case events.source.RegistrationComplete():
            return f"UME registration complete. SQN {event.sequence_number}. {flags_of(event.flags)}"
        case events.StoreUnresponsive():
            return f"UME store unresponsive: {event.text}. {event.registered} of {event.required} left"
        case events.MessageStable():
            return f"{_who(event)} message stable. {_what(event)}. {flags_of(event.flags)}"
        case events.MessageNotStable():
            return f"{_who(event)} message NOT stable!! {_what(event)}. {flags_of(event.flags)}"
        case events.MessageReclaimed():
            return f"UME message reclaimed. {_what(event)}. {flags_of(event.flags)}"
        case events.DeliveryConfirmation():
            numbers = _numbers(event.first_sequence_number, event.sequence_number)
            confirmed = f"{numbers}, RcvRegID {event.receiver_registration_id} (cd {event.client_data})"
            return f"UME delivery confirmation. {confirmed}. {flags_of(event.flags)}"
        case events.SequenceNumberInfo():
            numbers = _numbers(event.first_sequence_number, event.last_sequence_number)
            return f"{numbers} (cd {event.client_data})"
        case events.FlightSizeNotification():
            return f"Flight size: {event.state.name}"
        case events.Wakeup():
            return "Wakeup"
        case events.source.Skipped():
            who = f"RcvRegID {event.receiver_registration_id}, Session ID {event.session_id}"
            return (
                f"UME waits for a receiver that skipped. {event.first_sequence_number}..{event.sequence_number}, {who}"
            )
        case events.source.DeregistrationSuccess():
            ended = f"RegID {event.registration_id}. Last SQN {event.sequence_number}"
            return f"{_who(event)} deregistration success. {ended}"
        case events.source.DeregistrationComplete():
            return "UME deregistration complete"


def receiver_line(event: events.ReceiverEvent) -> str:
    """One event of a receiver."""
    return f"[{event.topic}]{_about(event)}"


def _about(event: events.ReceiverEvent) -> str:
    if isinstance(event, events.NoSource):
        return ", no source found yet"
    stream = f"[{event.source}]"
    match event:
        case events.receiver.RegistrationError():
            where = f" at store {event.store}" if event.store else ""
            return f"{stream} UME registration error{where}: {event.text}"
        case events.receiver.RegistrationSuccess():
            old, session = f"OLD[SQN {event.sequence_number}]", f"SrcSID {event.src_session_id}"
            said = flags_of(event.flags, OLD=old, SRC_SID=session)
            return f"{stream} {_who(event)} registration success. {_registration_ids(event)}. {said}"
        case events.receiver.RegistrationComplete():
            said = flags_of(event.flags, SRC_SID=f"SrcSID {event.src_session_id}")
            return f"{stream} UME registration complete. SQN {event.sequence_number}. {said}"
        case events.RegistrationChange():
            return f"{stream} UME registration change: {event.text}"
        case events.UnrecoverableLoss():
            return f"{stream}[{event.sequence_number}], LOST"
        case events.UnrecoverableLossBurst():
            return f"{stream}[{event.sequence_number}], LOST BURST"
        case events.receiver.Skipped():
            return f"{stream}[{event.first_sequence_number}..{event.sequence_number}], skipped and not acknowledged"
        case events.BeginOfStream():
            return f"{stream}, begin of stream"
        case events.EndOfStream():
            return f"{stream}, end of stream"
        case events.receiver.DeregistrationSuccess():
            ended = f"{_registration_ids(event)}. SQN {event.sequence_number}"
            return f"{stream} {_who(event)} deregistration success. {ended}"
        case events.receiver.DeregistrationComplete():
            return f"{stream} UME deregistration complete"


_OfStore = (
    events.source.RegistrationSuccess
    | events.MessageStable
    | events.MessageNotStable
    | events.source.DeregistrationSuccess
    | events.receiver.RegistrationSuccess
    | events.receiver.DeregistrationSuccess
)
_OfNumbers = events.MessageStable | events.MessageNotStable | events.MessageReclaimed


def _who(event: _OfStore) -> str:
    return "UME" if event.store is None else f"UME store {event.store_index}: {event.store}"


def _what(event: _OfNumbers) -> str:
    return f"{_numbers(event.first_sequence_number, event.sequence_number)} (cd {event.client_data})"


def _numbers(first: int, last: int) -> str:
    return f"SQN {last}" if first == last else f"SQN [{first},{last}]"


def _registration_ids(event: events.receiver.RegistrationSuccess | events.receiver.DeregistrationSuccess) -> str:
    return f"SrcRegID {event.source_registration_id} RcvRegID {event.receiver_registration_id}"
