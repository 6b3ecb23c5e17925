"""iceoryx2: samples lent from shared memory; the receiver polls."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..peer import Place

QUEUED_BYTES = 64 << 20


class Iceoryx(Peer):
    """Publish-subscribe of byte slices; the publisher waits for a full queue, so that nothing is lost."""

    name = "iceoryx2"
    needs = (("iceoryx2", "iceoryx2 on PyPI"),)

    def start(self, place: Place) -> None:
        super().start(place)
        self.service = f"lab/{os.getpid()}{place.folder}"

    def _service(self) -> Any:
        import iceoryx2 as iox

        iox.set_log_level(iox.LogLevel.Error)
        self._node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)
        queued = max(2, min(1000, QUEUED_BYTES // self.place.size)) if self.place.roomy else 2
        service = self._node.service_builder(iox.ServiceName.new(self.service))
        service = service.publish_subscribe(iox.Slice[ctypes.c_uint8]).subscriber_max_buffer_size(queued)
        return service.enable_safe_overflow(False).max_subscribers(4).open_or_create()

    def sender(self) -> Sender:
        """The publisher waits for room, as its default strategy says."""
        publisher = self._service().publisher_builder().initial_max_slice_len(self.place.size).create()

        def send(payload: bytes) -> None:
            sample = publisher.loan_slice_uninit(len(payload))
            ctypes.memmove(sample.payload_ptr, payload, len(payload))
            sample.assume_init().send()

        return Sender(send, close=publisher.delete)

    def receiver(self, index: int) -> Receiver:
        """A sample is the publisher's again when the next one has come: the view does not outlive it."""
        subscriber = self._service().subscriber_builder().create()
        view, held = functools.cache(lambda length: ctypes.c_uint8 * length), [None]

        def receive() -> Any:
            while (sample := subscriber.receive()) is None:
                pass
            held[0] = sample
            return view(sample.header.number_of_elements).from_address(sample.payload_ptr)

        return Receiver(receive, close=subscriber.delete)
