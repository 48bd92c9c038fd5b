"""The messages of firings: a schedule's body and fields, with an id and three headers.

The id is `schedule@instant`. The headers `schedule`, `due` (the instant in Unix ms) and `n` (the
number of the firing) are added, unless the schedule has headers of these names; in the values of
its own headers `{schedule}`, `{due}` and `{n}` are replaced. The body is bytes and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from delaylog.broker.engine.schedules.schedule import Schedule
from delaylog.contract.calls.schedule_members import INSTANT_MS_MAX
from delaylog.contract.message_fields import HEADERS, pack_fields, put_columns
from delaylog.storage.messages.batch import MessageBatch, batch_of_columns

NAMES: Final = ("schedule", "due", "n")
"""The headers of a firing."""
_KEPT_BYTES: Final = 4_096
"""Larger messages are unpacked at each firing, so that memory does not grow with bodies."""


class Firing(NamedTuple):
    """An instant of a schedule that fires."""

    schedule: Schedule
    instant_ms: int
    due_ms: int
    n: int


class _Template(NamedTuple):
    body: bytes
    fields: dict[str, Any]
    """Packed, without headers."""
    backoff: bytes
    headers: dict[str, str]


def is_firing(id_: str, headers: Mapping[str, str]) -> bool:
    """Whether a message with this id and these headers is the one firing of an instant: a backfill
    sends further messages for it.
    """
    schedule, due, n = (headers.get(name) for name in NAMES)
    whole = None not in (schedule, due, n)
    return whole and n != "0" and id_ == f"{schedule}@{due}"


def pack_message(body: bytes, fields: Mapping[str, Any], name: str) -> bytes:
    """A message as a schedule stores it. Raises MemberError that names the field."""
    packed = bytes(msgpack.packb({"body": body, "fields": dict(fields)}))
    # The longest values decide whether the headers of every firing have room.
    _fields_of(_template(packed), name, INSTANT_MS_MAX, 2**53)
    return packed


def unpack_message(packed: bytes) -> tuple[bytes, dict[str, Any]]:
    """(body, fields) of a stored message."""
    members = msgpack.unpackb(packed)
    return members["body"], members["fields"]


def batch_of(firings: Sequence[Firing]) -> MessageBatch:
    """The messages of firings of one topic."""
    rows, bodies = [], []
    for schedule, instant_ms, _, n in firings:
        template = _template(schedule.spec.message)
        row = _fields_of(template, schedule.name, instant_ms, n)
        row["id"] = schedule.id_at(instant_ms).encode()
        rows.append(row)
        bodies.append(template.body)
    columns: dict[str, Any] = {
        "n": len(firings),
        "deliver_at_ms": np.array([firing.due_ms for firing in firings], np.int64),
        "body_size": np.array(list(map(len, bodies)), np.int64),
        "bodies": b"".join(bodies),
    }
    put_columns(columns, rows)
    return batch_of_columns(columns)


def _template(packed: bytes) -> _Template:
    return _made(packed) if len(packed) > _KEPT_BYTES else _kept(packed)


@lru_cache(maxsize=1_024)
def _kept(packed: bytes) -> _Template:
    return _made(packed)


def _made(packed: bytes) -> _Template:
    body, fields = unpack_message(packed)
    headers = HEADERS.check(fields.pop("headers", None) or {})
    made = pack_fields(fields)
    return _Template(body, made, made.pop("headers", b""), headers)


def _fields_of(template: _Template, name: str, instant_ms: int, n: int) -> dict[str, Any]:
    values = dict(zip(NAMES, (name, str(instant_ms), str(n)), strict=True))
    headers = dict(values)
    for header, text in template.headers.items():
        if "{" in text:
            for word, value in values.items():
                text = text.replace(f"{{{word}}}", value)
        headers[header] = text
    packed = pack_fields({"headers": headers})["headers"]
    return {**template.fields, "headers": template.backoff + packed}
