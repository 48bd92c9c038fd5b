"""The frames of a stream of deliveries, in its bulk form; docs/STREAMS.md describes them.

`StreamState` counts credit and settling frames. It sends nothing: the socket is the caller's.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import msgpack

from delaylog.client.wire.bulk import (
    BulkError,
    IntArray,
    Numbers,
    ReceivedBatch,
    column_from,
    encode_settle,
    received,
    rows_in,
    unpack_map,
)

BYTES: Final = 32 << 20
"""Credit in bytes. The broker sends a frame at a time, so this is no use of memory by itself."""
STOP: Final[bytes] = msgpack.packb({"stop": {}})
"""The frame that takes the credit back."""
_MAP_OF_ONE: Final = b"\x81"


class StreamState:
    """What one stream has granted, sent and learned."""

    def __init__(self, messages_max: int) -> None:
        """`messages_max` = messages that may be on their way or not yielded."""
        self._messages_max = messages_max
        self._messages = self._bytes = 0
        """Credit that the broker has left."""
        self.sent = 0
        """Settling frames sent."""
        self.settled = 0
        """Of these, the first ones that the broker has carried out."""
        self.stopped = False
        """Whether the broker has confirmed the end of the credit."""
        self._gone: dict[int, IntArray] = {}

    def grant(self, unyielded: int) -> bytes | None:
        """A frame that tops the credit up; None if it is not worth one."""
        room = self._messages_max - self._messages - unyielded
        # Large messages use up the bytes first. While some are unyielded, no more are wanted.
        has_bytes = unyielded > 0 or self._bytes > BYTES // 2
        if room < max(self._messages_max // 2, 1) and has_bytes:
            return None
        given = {"messages": room, "bytes": BYTES - self._bytes}
        self._messages += room
        self._bytes = BYTES
        packed: bytes = msgpack.packb({"credit": given})
        return packed

    def settle(self, verb: str, lease: int, refs: Numbers | None, **members: Any) -> bytes:
        """A settling frame; its number is `sent` afterwards."""
        self.sent += 1
        key: bytes = msgpack.packb(verb)
        return _MAP_OF_ONE + key + encode_settle(lease, refs, **members)

    def read(self, wire: bytes) -> ReceivedBatch | None:
        """Note what a frame says; returns the messages that it has. Raises BulkError."""
        fields = unpack_map(wire)
        if "bodies" in fields:
            batch = received(fields, rows_in(fields))
            self._messages -= batch.n
            self._bytes -= _count(fields, "bytes")
            return batch
        if "gone" in fields:
            gone = fields["gone"]
            if not isinstance(gone, bytes) or len(gone) % 8:
                raise BulkError("not a column", "gone")
            self._gone[_count(fields, "frame")] = column_from(gone, "<i8")
        if "stopped" in fields:
            self.stopped = True
        if "settled" in fields:
            self.settled = _count(fields, "settled")
        return None

    def gone(self, number: int) -> IntArray:
        """The refs of a carried out settling frame whose lease had ended."""
        return self._gone.pop(number, None) or array("q")


def _count(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or value < 0:
        raise BulkError("not a count", name)
    return value
