"""The checker's store: every call of a history as 72 bytes, under the id of its message.

Calls may be added in any order. A message costs its id, one dictionary slot and 72 bytes a call, so
that millions of messages fit into memory. Texts that are only compared (lease, body) are stored as
64-bit hashes, 0 = absent; texts that are reported (key, group) as indexes into a table.

A call with an unknown outcome may take effect at any time from `t0` on, or never: its `t1` is
`FOREVER`. A refused call has no effect and is dropped, except that a refused ack or nack shows that
its client no longer holds the lease (`GONE`).
"""

from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import NamedTuple

from delaylog.broker.history.model import OPS, RESULTS, Call

ABSENT = -(1 << 62)
"""Value of a time that the record does not have."""

FOREVER = 1 << 62
"""The end of an interval whose true end is unknown."""


class Kind(IntEnum):
    """The kind of an event; 0 is never valid."""

    SEND = 1
    DELIVER = 2
    ACK = 3
    NACK = 4
    GONE = 5
    EXTEND = 6
    CANCEL = 7
    RESCHEDULE = 8
    DEAD = 9


class Result(IntEnum):
    """The result of a send, in `Event.note`; UNSAID if the record does not have it."""

    UNSAID = 0
    CREATED = 1
    KEPT = 2
    REPLACED = 3


FORCED = 1
"""`Event.note` of a cancel or reschedule that also acts on a leased message."""


class Event(NamedTuple):
    """One call of one message. `until` is the expiry of a send, and the lease end of a delivery."""

    kind: int
    note: int
    group: int
    number: int
    key: int
    span_ms: int
    t0: int
    t1: int
    due: int
    now: int
    until: int
    body: int
    lease: int

    @property
    def is_known(self) -> bool:
        """Whether the call was answered, so that its effect is certain and lies before `t1`."""
        return self.t1 != FOREVER


EVENT = Struct("<BBHiIIqqqqqqq")
"""kind u8 · note u8 · group u16 · attempt or priority i32 · key u32 · lease span u32 · t0 i64 ·
t1 i64 · due i64 · now i64 · until i64 · body hash i64 · lease hash i64"""
assert EVENT.size == 72
_pack = EVENT.pack

# Looking up an enum member costs more than comparing with it.
_SEND, _DELIVER, _ACK, _NACK = int(Kind.SEND), int(Kind.DELIVER), int(Kind.ACK), int(Kind.NACK)
_EXTEND, _CANCEL, _RESCHEDULE = int(Kind.EXTEND), int(Kind.CANCEL), int(Kind.RESCHEDULE)

_GROUPS_MAX = 1 << 16
_make = partial(tuple.__new__, Event)
_LONG = 64 * EVENT.size

_KINDS = {op: int(Kind[op.upper()]) for op in sorted(OPS)}
_RESULTS = {name: int(Result[name.upper()]) for name in sorted(RESULTS)}


class TooManyGroups(Exception):
    """The history has more groups than an event can number. Check it in parts."""


class EventStore:
    """Events by id, in the order of arrival; also the sends and receives that had no id."""

    __slots__ = ("_groups", "_keys", "events", "group_names", "key_names", "orphans", "unseen_ms")

    def __init__(self) -> None:
        self.events: dict[str, bytes | bytearray] = {}
        self.group_names = [""]
        self.key_names = [""]
        self.orphans: dict[int, tuple[int, int]] = {}
        """Unanswered sends without an id, by body hash (0 = no body): (count, earliest t0)."""
        self.unseen_ms = FOREVER
        """`t0` of the first receive whose answer was lost: it may have leased any messages."""
        self._groups = {"": 0}
        self._keys = {"": 0}

    def add(self, call: Call) -> None:
        """Store one call under its id. Of refused calls, only acks and nacks are stored."""
        (t0, t1, op, ok, name, due, expires, now, attempt, lease, lease_until, lease_ms, key,
         group, body, priority, result, force) = call  # fmt: skip
        kind = _KINDS[op]
        if ok is False:
            if kind not in (_ACK, _NACK):
                return
            kind = int(Kind.GONE)
        if name is None:
            self._add_nameless(call)
            return
        note = span_ms = number = 0
        until = ABSENT
        if kind in (_DELIVER, _EXTEND):
            if kind == _EXTEND and lease_ms == 0:
                kind = _NACK  # Extending by 0 returns the message.
            if lease_until is not None:
                until = lease_until
            elif lease_ms is not None and now is not None:
                until = now + lease_ms
            if lease_ms is not None:
                span_ms = lease_ms
            elif lease_until is not None and now is not None:
                span_ms = min(max(lease_until - now, 0), 0xFFFFFFFF)
            if attempt is not None:
                number = attempt
        elif kind == _SEND:
            if result is not None:
                note = _RESULTS[result]
            if expires is not None:
                until = expires
            if priority is not None:
                number = priority
        elif kind in (_CANCEL, _RESCHEDULE):
            if force:
                note = FORCED
            if expires is not None:
                until = expires
        packed = _pack(
            kind,
            note,
            0 if group is None else self._group_number(group),
            number,
            0 if key is None else self._key_number(key),
            span_ms,
            t0,
            FOREVER if ok is None else t1,
            ABSENT if due is None else due,
            ABSENT if now is None else now,
            until,
            0 if body is None else hash(body) or 1,
            0 if lease is None else hash(lease) or 1,
        )
        events = self.events.get(name)
        if events is None:
            self.events[name] = packed
            return
        # `bytes` take the least memory for a few events, but each addition copies them. An id with
        # many events gets a bytearray, which grows in place.
        if len(events) == _LONG:
            events = bytearray(events)
        events += packed
        self.events[name] = events

    def _add_nameless(self, call: Call) -> None:
        assert call.op in ("send", "deliver"), "only these may lack an id"
        if call.op == "deliver":
            self.unseen_ms = min(self.unseen_ms, call.t0)
            return
        body = 0 if call.body is None else hash(call.body) or 1
        count, since_ms = self.orphans.get(body, (0, FOREVER))
        self.orphans[body] = (count + 1, min(since_ms, call.t0))

    def _group_number(self, group: str) -> int:
        number = self._groups.get(group)
        if number is None:
            number = self._groups[group] = len(self.group_names)
            if number >= _GROUPS_MAX:
                most = _GROUPS_MAX - 1
                raise TooManyGroups(f"the history has more than {most:,} groups; check it in parts")
            self.group_names.append(group)
        return number

    def _key_number(self, key: str) -> int:
        number = self._keys.get(key)
        if number is None:
            number = self._keys[key] = len(self.key_names)
            self.key_names.append(key)
        return number


def unpack(events: bytes | bytearray) -> Iterator[Event]:
    """The events of one id, in the order of their arrival."""
    return map(_make, EVENT.iter_unpack(events))
