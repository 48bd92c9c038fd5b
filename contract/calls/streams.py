"""The frames of a stream: members of the query that opens one and of what a client sends.

docs/STREAMS.md describes the protocol. A frame of a client is an object with one member, which is
one of `FRAMES`. A refused frame ends the stream with close code `CLOSE_BASE` + the HTTP status that
the same refusal has in `broker/engine/errors.py`.
"""

from __future__ import annotations

from typing import Final

from delaylog.contract.calls import shapes
from delaylog.contract.members import Choice, Int, QueryFlag, QueryInt, QueryTexts, Shape
from delaylog.contract.message_fields import TAGS_MAX

CREDIT_BYTES_MAX: Final = 1 << 40
"""Upper bound of a credit in bytes: no stream has more in flight."""
MESSAGES: Final = 100
BYTES: Final = 1 << 20
"""The credit at the start, unless the query gives another one."""
HEARTBEAT_SECONDS: Final = 15.0
"""A stream without deliveries sends a sign of life after this time."""
CLIENT_FRAME_BYTES_MAX: Final = 1 << 20
"""A frame of a client, all its fragments together: receipts of ten thousand messages fit."""
FORMS: Final = ("json", "msgpack", "bulk")
EVENTS: Final = "text/event-stream"
"""The content type of server-sent events."""
CLOSE_BASE: Final = 4_000
KEEP_LEASES: Final = 4_000
"""The close code of a client that leaves and keeps its leases until they expire."""
CLOSED_OK: Final = 1_000
GOING_AWAY: Final = 1_001
"""The close code of a node that stops."""
INTERNAL_ERROR: Final = 1_011

FORM: Final = Choice(
    "form", "Of deliveries over a WebSocket: JSON texts, msgpack, or bulk bodies.", FORMS
)
OPEN: Final = (
    FORM,
    QueryInt(
        "messages",
        "Credit in messages at the start; of server-sent events: unsettled messages at a time.",
        0,
        "leased_max",
        default=MESSAGES,
    ),
    QueryInt("bytes", "The same in bytes, after one message.", 0, CREDIT_BYTES_MAX, default=BYTES),
    QueryInt("lease_ms", "The length of leases in ms; 0: the topic's.", 0, shapes.LEASE_MS_MAX),
    QueryTexts(
        "tags",
        "Only messages with these tags, separated by commas; a comma of a tag is \\,.",
        TAGS_MAX,
    ),
    shapes.TAGS_MODE,
    QueryFlag(
        "begin",
        "Whether an attempt begins at the delivery; else with a frame begin, or when the message "
        "is settled.",
        True,
    ),
    shapes.CONSUMER,
)

CREDIT: Final = Shape(
    "Credit",
    Int("messages", "This many messages more.", 0, "leased_max"),
    Int("bytes", "This many bytes more.", 0, CREDIT_BYTES_MAX),
    doc="credit",
)
_RECEIPTS: Final = (shapes.RECEIPTS,)
STOP: Final = Shape("Stop", doc="stop")
FRAMES: Final = {
    "credit": CREDIT,
    "stop": STOP,
    "ack": Shape("Ack", *_RECEIPTS, doc="ack"),
    "nack": Shape("Nack", *_RECEIPTS, shapes.BACK_MS, shapes.REASON, doc="nack"),
    "reject": Shape("Reject", *_RECEIPTS, shapes.REASON, doc="reject"),
    "extend": Shape("Extend", *_RECEIPTS, shapes.EXTEND_MS, doc="extend"),
    "begin": Shape("Begin", *_RECEIPTS, shapes.EXTEND_MS, doc="begin"),
}
"""The frames of a client, by the name of their one member."""
