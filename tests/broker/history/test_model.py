"""Reading lines: what is accepted becomes calls and marks, and every refusal names its place."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delaylog.broker.history import Call, HistoryError, Mark, parse_line, read_items

SEND = {"t0": 1, "t1": 2, "op": "send", "ok": True, "id": "a"}


def read(record: object) -> list[Call | Mark]:
    return list(parse_line(json.dumps(record).encode(), file="f.jsonl", line=7))


def test_a_call_with_every_field() -> None:
    record: dict[str, Any] = {
        "t0": 1, "t1": 2, "op": "deliver", "ok": True, "id": "a", "due": 3, "expires": 4, "now": 5,
        "attempt": 6, "lease": "L", "lease_until": 7, "lease_ms": 8, "key": "k", "group": "g",
        "body": "b", "priority": -9, "result": "kept", "force": True,
    }  # fmt: skip
    (call,) = read({**record, "client": "c", "a note of its own": [1]})
    assert call == Call(**record)


@pytest.mark.parametrize(
    ("record", "mark"),
    [
        ({"mark": "kill", "t": 5}, Mark("kill", 5, 5)),
        ({"mark": "failover", "t": 5, "until": 9}, Mark("failover", 5, 9)),
        ({"mark": "failover", "t": 5, "planned": True}, Mark("failover", 5, 5, planned=True)),
        ({"mark": "clock", "t": 5, "until": None}, Mark("clock", 5, 5)),
        ({"mark": "group", "t": 5, "group": "g"}, Mark("group", 5, 5, group="g")),
    ],
)
def test_a_mark(record: object, mark: Mark) -> None:
    assert read(record) == [mark]


def test_null_and_absent_are_the_same_but_for_the_outcome() -> None:
    assert read({**SEND, "due": None, "body": None}) == read(SEND)
    assert read({**SEND, "ok": None}) != read(SEND)


def test_a_lost_send_or_an_empty_receive_may_lack_an_id() -> None:
    assert read({"t0": 1, "t1": 2, "op": "send", "ok": None, "body": "b"}) == [
        Call(1, 2, "send", None, None, body="b")
    ]
    assert read({"t0": 1, "t1": 2, "op": "deliver", "ok": False}) == [
        Call(1, 2, "deliver", False, None)
    ]


def test_many_messages_in_one_call() -> None:
    record = {
        "t0": 1, "t1": 2, "op": "deliver", "ids": ["a", "b"], "oks": [True, None],
        "dues": [3, None], "bodies": ["x", "y"], "attempts": [1, 2], "leases": ["L", "M"],
        "keys": [None, "k"], "expiries": [9, 8], "priorities": [0, 1],
        "results": ["kept", None], "now": 5,
    }  # fmt: skip
    first = Call(1, 2, "deliver", True, "a", due=3, expires=9, now=5, attempt=1, lease="L",
                 body="x", priority=0, result="kept")  # fmt: skip
    second = Call(1, 2, "deliver", None, "b", expires=8, now=5, attempt=2, lease="M", key="k",
                  body="y", priority=1)  # fmt: skip
    assert read(record) == [first, second]


def test_a_scalar_holds_for_all_messages_of_the_call() -> None:
    record = {"t0": 1, "t1": 2, "op": "send", "ok": True, "ids": ["a", "b"], "due": 3, "body": "x"}
    assert read(record) == [Call(1, 2, "send", True, name, due=3, body="x") for name in ("a", "b")]
    assert read({**record, "ids": []}) == []


BULK = {"t0": 1, "t1": 2, "op": "send", "ok": True, "ids": ["a", "b"]}

REFUSED: dict[str, tuple[object, str | None, str]] = {
    "not an object": ([1], None, "not a JSON object"),
    "no op": ({"t0": 1, "t1": 2, "ok": True, "id": "a"}, "op", "missing"),
    "odd op": ({**SEND, "op": "steal"}, "op", "'steal' is not one of ack, backfill,"),
    "no t0": ({**SEND, "t0": None}, "t0", "missing"),
    "no t1": ({"t0": 1, "op": "send", "ok": True, "id": "a"}, "t1", "missing"),
    "t1 before t0": ({**SEND, "t1": 0}, "t1", "0 is before t0, 1"),
    "no outcome": ({"t0": 1, "t1": 2, "op": "send", "id": "a"}, "ok", "missing (null says"),
    "no id": ({"t0": 1, "t1": 2, "op": "send", "ok": True}, "id", "missing (only a send"),
    "a lost ack without an id": ({"t0": 1, "t1": 2, "op": "ack", "ok": None}, "id", "missing"),
    "a text time": ({**SEND, "due": "3"}, "due", 'expected an integer, found "3"'),
    "a time of day": ({**SEND, "due": 1.5}, "due", "expected an integer, found 1.5"),
    "a number as an id": ({**SEND, "id": 3}, "id", "expected a string, found 3"),
    "true as a number": ({**SEND, "attempt": True}, "attempt", "expected an integer, found true"),
    "a number as an outcome": ({**SEND, "ok": 1}, "ok", "expected true or false, found 1"),
    "a list as a body": ({**SEND, "body": ["x"]}, "body", 'expected a string, found ["x"]'),
    "a far time": ({**SEND, "due": 1 << 62}, "due", "is not within"),
    "a farther begin": ({**SEND, "t0": -(1 << 62)}, "t0", "is not within"),
    "a huge attempt": ({**SEND, "attempt": 1 << 31}, "attempt", "is not within 0 to 2147483647"),
    "a negative lease": ({**SEND, "lease_ms": -1}, "lease_ms", "-1 is not within 0 to 4294967295"),
    "a far lease end": ({**SEND, "lease_until": 1 << 62}, "lease_until", "is not within"),
    "a far expiry": ({**SEND, "expires": 1 << 62}, "expires", "is not within"),
    "a far clock": ({**SEND, "now": 1 << 62}, "now", "is not within"),
    "a huge priority": ({**SEND, "priority": 1 << 31}, "priority", "is not within"),
    "an odd result": ({**SEND, "result": "rejected"}, "result", "a rejected send has ok: false"),
    "an odd mark": ({"mark": "storm", "t": 1}, "mark", "'storm' is not one of clock, end,"),
    "a mark that is no text": ({"mark": 1, "t": 1}, "mark", "expected a string, found 1"),
    "a mark of nothing": ({"mark": None, "t": 1}, "mark", "None is not one of"),
    "a mark without a time": ({"mark": "kill"}, "t", "missing"),
    "a mark that ends early": ({"mark": "kill", "t": 5, "until": 4}, "until", "4 is before t, 5"),
    "a group without a name": ({"mark": "group", "t": 5}, "group", "missing"),
    "ids that are no list": ({**BULK, "ids": "a"}, "ids", 'expected a list, found "a"'),
    "ids beside an id": ({**BULK, "id": "a"}, "id", "given together with 'ids'"),
    "a column beside its scalar": (
        {**BULK, "due": 1, "dues": [1, 2]},
        "due",
        "given together with",
    ),
    "a column that is no list": ({**BULK, "dues": 3}, "dues", "expected a list, found 3"),
    "a short column": ({**BULK, "dues": [3]}, "dues", "1 values for 2 ids"),
    "a wrong element": ({**BULK, "dues": [3, "4"]}, "dues[1]", "expected an integer"),
    "a far element": ({**BULK, "dues": [None, 1 << 62]}, "dues[1]", "is not within"),
    "an odd result of many": (
        {**BULK, "results": ["kept", "x"]},
        "results[1]",
        "'x' is not one of",
    ),
    "a null id": ({**BULK, "ids": ["a", None]}, "ids[1]", "expected a string, found null"),
    "many without an outcome": ({"t0": 1, "t1": 2, "op": "send", "ids": ["a"]}, "ok", "missing"),
}


@pytest.mark.parametrize(("record", "field", "reason"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("is_warm", [False, True], ids=["first", "after good ones"])
def test_a_refusal_names_file_line_and_field(
    record: object, field: str | None, reason: str, is_warm: bool
) -> None:
    if is_warm:
        read({**SEND, "due": 3, "attempt": 1, "lease_ms": 3, "result": "kept"})
    with pytest.raises(HistoryError) as caught:
        read(record)
    error = caught.value
    assert (error.file, error.line, error.field) == ("f.jsonl", 7, field)
    assert reason in error.reason
    assert str(error).startswith("f.jsonl:7: " + (f"field '{field}': " if field else ""))


@pytest.mark.parametrize(
    ("raw", "hint"),
    [(b'{"t0": 1, "t1"\n', "not JSON"), (b'{"t0": 1, "t', "was its writer killed?"), (b"\xff", "")],
)
def test_what_is_no_json(raw: bytes, hint: str) -> None:
    with pytest.raises(HistoryError, match=r"f.jsonl:7: not JSON") as caught:
        parse_line(raw, file="f.jsonl", line=7)
    assert hint in str(caught.value)


def test_a_file_is_read_by_lines_and_counted_with_the_blank_ones() -> None:
    lines = [json.dumps(SEND).encode() + b"\n", b"\n", b'{"mark": "end", "t": 9}']
    assert [type(item) for item in read_items(lines, file="f")] == [Call, Mark]
    with pytest.raises(HistoryError, match=r"f:4: "):
        list(read_items([*lines, b"{"], file="f"))


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none())
FIELDS = [*Call._fields, "ids", "dues", "bodies", "oks", "mark", "t", "until", "client"]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_any_line_is_read_or_refused(record: dict[str, Any]) -> None:
    try:
        items = read(record)
    except HistoryError:
        return
    assert all(isinstance(item, Call | Mark) for item in items)


@given(st.binary())
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with pytest.raises(HistoryError):
        parse_line(raw + b"?", file="f", line=1)
