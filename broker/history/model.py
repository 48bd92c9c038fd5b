"""The history format: one JSON object a line, parsed into `Call`s and `Mark`s, or refused.

A line is a call of a client, or a mark by the program that runs the test. This module is the only
parser. Every `Call` and `Mark` that it returns is complete and in range; an error names file, line
and field. The checker interprets the calls.

A call::

    {"t0": ms, "t1": ms, "op": "send|deliver|ack|nack|extend|cancel|reschedule|dead",
     "ok": true|false|null, "id": "…", "due": ms, "expires": ms, "now": ms, "attempt": n,
     "lease": "…", "lease_until": ms, "lease_ms": ms, "key": "…", "group": "…", "body": "hash",
     "priority": n, "result": "created|kept|replaced", "force": true, "client": "…"}

`t0` and `t1` are the client's wall clock before and after the call. `ok: null` means that the
outcome is unknown (a timeout), `false` that the call was certainly refused. Absent and null are the
same for all other fields. Unknown fields are ignored, so that clients may add notes.

**Many messages in one call.** `ids` in place of `id` lists them, and a field that differs between
them is a list of the same length under its plural: `dues`, `expiries`, `bodies`, `attempts`,
`leases`, `keys`, `priorities`, `results`, `oks`. A field with the same value for all stays a scalar
under its own name. The line is parsed into one call for each id, with the same `t0` and `t1`::

    {"t0": 5, "t1": 9, "op": "send", "ok": true, "ids": ["a", "b"], "due": 70, "bodies": ["x", "y"]}

A mark: `{"mark": "kill|failover|clock|end|group", "t": ms, "until": ms, "planned": true,
"group": "…"}`, where all but the first two are optional (`group` belongs to the mark of that name).

A call about a recurring schedule, where `id` is the schedule's; its messages are `id@instant`::

    {"t0": ms, "t1": ms, "op": "schedule", "ok": true|false|null, "id": "…", "answer": {…}}
    {"t0": ms, "t1": ms, "op": "run", "ok": true|false|null, "id": "…", "at": ms}
    {"t0": ms, "t1": ms, "op": "backfill", "ok": true|false|null, "id": "…", "since": ms,
     "until": ms}

`answer` is the broker's description of the schedule after the call; without it there is none.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

import orjson

OPS = frozenset(("send", "deliver", "ack", "nack", "extend", "cancel", "reschedule", "dead"))
MARKS = frozenset(("kill", "failover", "clock", "end", "group"))
RESULTS = frozenset(("created", "kept", "replaced"))
SCHEDULE_OPS = frozenset(("schedule", "run", "backfill"))

TIME_MS_MAX = 1 << 61
"""73 million years. The checker uses greater values for "never"."""


class HistoryError(Exception):
    """A line cannot be read. Repair or remove it: a guess would make the verdict worthless."""

    def __init__(self, file: str, line: int, field: str | None, reason: str) -> None:
        place = f"{file}:{line}: " + (f"field {field!r}: " if field else "")
        super().__init__(place + reason)
        self.file = file
        self.line = line
        self.field = field
        self.reason = reason


class Call(NamedTuple):
    """One message's part in one call. `id` is None only where the outcome is not `True`."""

    t0: int
    t1: int
    op: str
    ok: bool | None
    id: str | None
    due: int | None = None
    expires: int | None = None
    now: int | None = None
    attempt: int | None = None
    lease: str | None = None
    lease_until: int | None = None
    lease_ms: int | None = None
    key: str | None = None
    group: str | None = None
    body: str | None = None
    priority: int | None = None
    result: str | None = None
    force: bool | None = None


class Mark(NamedTuple):
    """An event of the test, such as a kill, that rules take into account."""

    kind: str
    t: int
    until: int
    planned: bool = False
    group: str | None = None


class ScheduleCall(NamedTuple):
    """A call about one schedule. `answer` is None if the schedule does not exist after the call."""

    t0: int
    t1: int
    op: str
    ok: bool | None
    id: str
    answer: dict[str, Any] | None = None
    at: int | None = None
    since: int | None = None
    until: int | None = None


Item: TypeAlias = Call | Mark | ScheduleCall
ANSWER: dict[str, tuple[type, ...]] = {
    "state": (str,),
    "overlap": (str,),
    "catch_up": (str,),
    "catch_up_window_ms": (int,),
    "jitter_ms": (int,),
    "n": (int,),
    "skipped": (int,),
    "next_ms": (int, type(None)),
    "fired_ms": (int, type(None)),
    "buffered_ms": (int, type(None)),
    "ttl_ms": (int, type(None)),
}
"""The members of an answer that rule K needs, besides those of the timing."""

_TIME = (int, -TIME_MS_MAX, TIME_MS_MAX)
_TEXT = (str, 0, 0)
_FLAG = (bool, 0, 0)

_KINDS: dict[str, tuple[Any, int, int]] = {
    "t0": _TIME,
    "t1": _TIME,
    "op": _TEXT,
    "ok": _FLAG,
    "id": _TEXT,
    "due": _TIME,
    "expires": _TIME,
    "now": _TIME,
    "attempt": (int, 0, 2**31 - 1),
    "lease": _TEXT,
    "lease_until": _TIME,
    "lease_ms": (int, 0, 2**32 - 1),
    "key": _TEXT,
    "group": _TEXT,
    "body": _TEXT,
    "priority": (int, -(2**31), 2**31 - 1),
    "result": _TEXT,
    "force": _FLAG,
    "client": _TEXT,
    "mark": _TEXT,
    "t": _TIME,
    "until": _TIME,
    "planned": _FLAG,
    "answer": (dict, 0, 0),
    "at": _TIME,
    "since": _TIME,
}

PLURALS = {
    "id": "ids",
    "due": "dues",
    "expires": "expiries",
    "body": "bodies",
    "attempt": "attempts",
    "lease": "leases",
    "key": "keys",
    "priority": "priorities",
    "result": "results",
    "ok": "oks",
}
"""The fields that may differ between the messages of one call, and their lists."""

assert set(Call._fields) < set(_KINDS)
assert set(PLURALS) < set(Call._fields)

_TYPE_NAMES = {int: "an integer", str: "a string", bool: "true or false", dict: "an object"}


def parse_line(raw: bytes, *, file: str, line: int) -> Sequence[Item]:
    """Parse one line; a call with `ids` becomes one `Call` for each message."""
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        cut = "" if raw.endswith(b"\n") else " (the line has no end: was its writer killed?)"
        raise HistoryError(file, line, None, f"not JSON: {error}{cut}") from None
    if type(record) is not dict:
        raise HistoryError(file, line, None, "not a JSON object")
    _check_fields(record, file, line)
    if "mark" in record:
        return (_mark(record, file, line),)
    _require_call(record, file, line)
    if record["op"] in SCHEDULE_OPS:
        return (_schedule_call(record, file, line),)
    if "ids" in record:
        return _bulk(record, file, line)
    call = Call._make(map(record.get, Call._fields))
    if call.id is None and (call.ok is True or call.op not in ("send", "deliver")):
        reason = "missing (only a send or deliver with an unknown or refused outcome may omit it)"
        raise HistoryError(file, line, "id", reason)
    return (call,)


def read_items(lines: Iterable[bytes], *, file: str) -> Iterator[Item]:
    """Parse all lines of a file, skipping blank ones."""
    for number, raw in enumerate(lines, 1):
        if not raw.isspace():
            yield from parse_line(raw, file=file, line=number)


def _check_fields(record: dict[str, Any], file: str, line: int) -> None:
    """Refuse a field of the wrong type or out of range."""
    for field, value in record.items():
        kind = _KINDS.get(field)
        if kind is None or value is None:
            continue
        expected, least, most = kind
        if type(value) is not expected:
            raise HistoryError(file, line, field, _wrong_type(expected, value))
        if expected is int and not least <= value <= most:
            raise HistoryError(file, line, field, f"{value} is not within {least} to {most}")


def _require_call(record: dict[str, Any], file: str, line: int) -> None:
    op = record.get("op")
    if op not in OPS and op not in SCHEDULE_OPS:
        known = ", ".join(sorted(OPS | SCHEDULE_OPS))
        reason = "missing" if op is None else f"{op!r} is not one of {known}"
        raise HistoryError(file, line, "op", reason)
    t0, t1 = record.get("t0"), record.get("t1")
    if t0 is None or t1 is None:
        raise HistoryError(file, line, "t0" if t0 is None else "t1", "missing")
    if t1 < t0:
        raise HistoryError(file, line, "t1", f"{t1} is before t0, {t0}")
    # A null `ok` means an unknown outcome, so `ok` must not be left out: if a client forgot it, all
    # its calls would be in doubt and no rule could be broken.
    if "ok" not in record and "oks" not in record:
        raise HistoryError(file, line, "ok", "missing (null says that the outcome is unknown)")
    result = record.get("result")
    if result is not None and result not in RESULTS:
        _refuse_result(result, "result", file, line)


def _mark(record: dict[str, Any], file: str, line: int) -> Mark:
    kind = record["mark"]
    if kind not in MARKS:
        raise HistoryError(file, line, "mark", f"{kind!r} is not one of {', '.join(sorted(MARKS))}")
    t = record.get("t")
    if t is None:
        raise HistoryError(file, line, "t", "missing")
    until = record.get("until")
    if until is None:
        until = t
    elif until < t:
        raise HistoryError(file, line, "until", f"{until} is before t, {t}")
    group = record.get("group")
    if kind == "group" and group is None:
        raise HistoryError(file, line, "group", "missing")
    return Mark(kind, t, until, record.get("planned") is True, group)


def _schedule_call(record: dict[str, Any], file: str, line: int) -> ScheduleCall:
    call = ScheduleCall._make(map(record.get, ScheduleCall._fields))
    needed = {"run": ("id", "at"), "backfill": ("id", "since", "until")}.get(call.op, ("id",))
    # A run whose answer was lost has an instant that nobody knows.
    for field in needed if call.ok else ("id",):
        if record.get(field) is None:
            raise HistoryError(file, line, field, "missing")
    if call.ok and call.answer is not None:
        for field, kinds in ANSWER.items():
            value = call.answer.get(field)
            if type(value) not in kinds:
                reason = "missing" if value is None else _wrong_type(kinds[0], value)
                raise HistoryError(file, line, f"answer.{field}", reason)
    return call


def _bulk(record: dict[str, Any], file: str, line: int) -> list[Call]:
    ids = record["ids"]
    if type(ids) is not list:
        raise HistoryError(file, line, "ids", _wrong_type(list, ids))
    columns: list[Iterable[Any]] = []
    for field in Call._fields:
        plural = PLURALS.get(field)
        if plural is None or plural not in record:
            columns.append(repeat(record.get(field)))
            continue
        if record.get(field) is not None:
            raise HistoryError(file, line, field, f"given together with {plural!r}: give only one")
        columns.append(_column(record[plural], field, plural, len(ids), file, line))
    calls = list(map(Call._make, zip(*columns, strict=False)))
    assert len(calls) == len(ids)
    return calls


def _column(values: Any, field: str, plural: str, count: int, file: str, line: int) -> list[Any]:
    """Check one list of a bulk line: its length, and each element as the scalar would be."""
    if type(values) is not list:
        raise HistoryError(file, line, plural, _wrong_type(list, values))
    if len(values) != count:
        raise HistoryError(file, line, plural, f"{len(values)} values for {count} ids")
    expected, least, most = _KINDS[field]
    found = set(map(type, values)) - {expected}
    if field != "id":
        found.discard(type(None))
    if found:
        index = next(i for i, value in enumerate(values) if type(value) in found)
        raise HistoryError(file, line, f"{plural}[{index}]", _wrong_type(expected, values[index]))
    if expected is int:
        for index, value in enumerate(values):
            if value is not None and not least <= value <= most:
                reason = f"{value} is not within {least} to {most}"
                raise HistoryError(file, line, f"{plural}[{index}]", reason)
    if field == "result":
        for index, value in enumerate(values):
            if value is not None and value not in RESULTS:
                _refuse_result(value, f"{plural}[{index}]", file, line)
    return values


def _wrong_type(expected: type, value: Any) -> str:
    wanted = _TYPE_NAMES.get(expected, "a list")
    return f"expected {wanted}, found {orjson.dumps(value).decode()[:40]}"


def _refuse_result(value: str, field: str, file: str, line: int) -> None:
    reason = f"{value!r} is not one of {', '.join(sorted(RESULTS))} (a rejected send has ok: false)"
    raise HistoryError(file, line, field, reason)
