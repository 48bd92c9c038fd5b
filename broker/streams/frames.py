"""The frames of a stream: what a client sends is decoded here, what it gets is encoded.

The members of a client's frames are declared in `contract/calls/streams`. Frames of deliveries have
the members of a receive's answer, and `bytes`, by which the credit was reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import orjson

from delaylog.broker.calls.answers import Problem, document_of
from delaylog.broker.calls.forms.deliveries import COLUMNS, bulk_delivery, message_objects
from delaylog.broker.calls.forms.parsers import read_json, read_msgpack
from delaylog.broker.calls.shapes import parse_receipts
from delaylog.broker.calls.turn.settles import bulk_settling
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import Delivery
from delaylog.contract.calls.shapes import JSON_ROWS_MAX, JSON_VALUES_MAX
from delaylog.contract.calls.streams import CREDIT, FRAMES, STOP
from delaylog.storage.messages.batch import BATCH_VERSION

_NAMES: Final = ", ".join(FRAMES)
_SETTLING: Final = frozenset(FRAMES) - {CREDIT.doc, STOP.doc}


@dataclass(frozen=True, slots=True)
class Grant:
    """A client gives credit."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stop:
    """A client takes its credit back."""


@dataclass(frozen=True, slots=True)
class Settle:
    """A client settles messages: by receipts, or by refs of one lease."""

    wanted: Settling
    receipts: Sequence[str] = ()
    named: Sequence[tuple[int, int]] = ()
    """(lease, origin) of each receipt."""
    columns: Receipts | None = None


def decode(raw: str | bytes, limits: Limits) -> Grant | Stop | Settle:
    """A frame of a client: JSON as a text, msgpack as bytes. Raises EngineError or BatchError."""
    try:
        if isinstance(raw, str):
            members = read_json(raw.encode(), JSON_VALUES_MAX)
        else:
            members = read_msgpack(raw, JSON_VALUES_MAX, JSON_ROWS_MAX)
    except Problem as error:
        # A reader of bodies speaks of a body.
        what = error.detail.replace("the body", "the frame").replace("requests", "frames")
        raise Problem(error.code, what) from None
    if not isinstance(members, dict) or len(members) != 1:
        raise Problem("bad_request", f"a frame is an object with one member of {_NAMES}")
    ((name, given),) = members.items()
    if name not in FRAMES:
        raise Problem("bad_request", f"unknown frame {str(name)[:64]!a}; known are {_NAMES}")
    if name in _SETTLING and isinstance(given, dict) and "lease" in given:
        wanted, columns = bulk_settling({"v": BATCH_VERSION, **given}, name, limits)
        return Settle(wanted, columns=columns)
    values = FRAMES[name].take(given, limits)
    if name == CREDIT.doc:
        return Grant(values["messages"] or 0, values["bytes"] or 0)
    if name == STOP.doc:
        return Stop()
    receipts = values["receipts"]
    if receipts is None:
        raise Problem("bad_request", f"{name} has no receipts", field="receipts")
    reason = (values.get("reason") or b"").decode()
    wanted = Settling(name, values.get("delay_ms"), values.get("lease_ms"), reason)
    return Settle(wanted, receipts, parse_receipts(receipts))


def delivery_frame(found: Delivery, form: str, now_ms: int) -> bytes:
    """A frame of deliveries."""
    size = len(found.records)
    if form == "bulk":
        return bulk_delivery(found, COLUMNS, now_ms, bytes=size)
    messages = message_objects(found, packed=form == "msgpack")
    return frame({"messages": messages, "bytes": size, "now_ms": now_ms}, form)


def frame(members: dict[str, Any], form: str) -> bytes:
    """Any other frame."""
    return orjson.dumps(members) if form == "json" else bytes(msgpack.packb(members))


def events(found: Delivery) -> bytes:
    """Deliveries as server-sent events: one for each message."""
    messages = message_objects(found, packed=False)
    return b"".join(b"data: %b\n\n" % orjson.dumps(message) for message in messages)


def end_event(why: EngineError) -> bytes:
    """The last event: the problem document of what ends the stream."""
    return b"event: end\ndata: %b\n\n" % orjson.dumps(document_of(why))
