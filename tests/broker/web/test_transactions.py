"""Transactions over HTTP: staged, decided, repeated, refused, and across a kill."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from tests.broker.calls.forms.arrow_streams import UTC_US, one, stream

BULK = "application/vnd.delaylog.batch"
ARROW = "application/vnd.apache.arrow.stream"
HOUR = 3_600_000


def columns(bodies: list[bytes], **members: Any) -> bytes:
    """A bulk body of messages that are due at once, unless told."""
    sizes = b"".join(len(body).to_bytes(4, "little") for body in bodies)
    fields = {
        "v": 1,
        "n": len(bodies),
        "body_size": sizes,
        "bodies": b"".join(bodies),
        **members,
    }
    if "deliver_at_ms" not in fields:
        fields.setdefault("delay_ms", 0)
    return bytes(msgpack.packb(fields))


def stage(broker: Any, name: str, topic: str, body: bytes, **query: Any) -> Any:
    """Stage one part; returns the answer."""
    text = "&".join(f"{key}={value}" for key, value in {"part": 0, **query}.items())
    path = f"/v1/transactions/{name}/parts?topic={topic}&{text}"
    return broker.call("POST", path, body, {"Content-Type": BULK})


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def commit(broker: Any, name: str, *winners: tuple[int, int, int], **more: Any) -> Any:
    """Commit (part, attempt, rows)."""
    named = [{"part": p, "attempt": a, "rows": r} | more for p, a, r in winners]
    return broker.call("POST", f"/v1/transactions/{name}/commit", {"winners": named})


def published(broker: Any, name: str) -> dict[str, Any]:
    """The transaction once all its rows are in their hours."""
    until = time.monotonic() + 30
    while True:
        found: dict[str, Any] = broker.call("GET", f"/v1/transactions/{name}").json
        if found["published"] == found["rows"]:
            return found
        assert time.monotonic() < until, found
        time.sleep(0.01)


def bodies_of(broker: Any, topic: str, count: int) -> list[bytes]:
    """Receive and ack so many messages."""
    out: list[bytes] = []
    until = time.monotonic() + 30
    while len(out) < count and time.monotonic() < until:
        got = broker.post(f"/v1/topics/{topic}/receive", {"max": 1_000, "wait_ms": 500})
        messages = got["messages"]
        out += [message["body"].encode() for message in messages]
        receipts = [message["receipt"] for message in messages]
        broker.post(f"/v1/topics/{topic}/ack", {"receipts": receipts})
    return out


def test_a_whole_transaction(broker: Any, topic: str) -> None:
    """Nothing is seen before the commit, everything once after it, losers never."""
    begun = broker.post("/v1/transactions", {"transaction": topic})
    assert (begun["transaction"], begun["state"]) == (topic, "open")
    for part in range(3):
        for number in range(2):
            rows = numbered(1_000 * part + 500 * number, 500)
            answer = stage(broker, topic, topic, columns(rows), part=part, attempt=7, number=number)
            assert answer.json == {"rows": 500, "result": "staged"}, answer
    assert stage(broker, topic, topic, columns([b"lost"]), part=1, attempt=8).status == 200
    again = stage(broker, topic, topic, columns(numbered(0, 500)), part=0, attempt=7, number=0)
    assert again.json == {"rows": 500, "result": "already"}
    shown = broker.call("GET", f"/v1/transactions/{topic}").json
    assert (shown["rows"], shown["parts"], shown["state"]) == (3_001, 7, "open")
    assert broker.counts(topic)["waiting"] == 0
    winners = [(part, 7, 1_000) for part in range(3)]
    answer = commit(broker, topic, *winners)
    expected = {"transaction": topic, "state": "committed", "rows": 3_000, "result": "done"}
    assert answer.json == expected, answer
    counts = broker.counts(topic)
    assert counts["waiting"] + counts["ready"] == 3_000
    assert commit(broker, topic, *winners).json == expected | {"result": "already"}
    found = published(broker, topic)
    assert (found["discarded_rows"], found["results"]["created"]) == (1, 3_000)
    assert sorted(bodies_of(broker, topic, 3_000), key=int) == numbered(0, 3_000)


def test_repeats_and_refusals(broker: Any, topic: str, assert_problem: Callable[..., None]) -> None:
    """Each call says what is there; an ended transaction takes nothing more."""
    one = columns([b"a"])
    assert_problem(stage(broker, topic, topic, one), 404, "unknown")
    assert_problem(broker.call("GET", f"/v1/transactions/{topic}"), 404, "unknown")
    assert_problem(commit(broker, topic), 404, "unknown")
    assert_problem(broker.call("POST", f"/v1/transactions/{topic}/abort"), 404, "unknown")
    broker.post("/v1/transactions", {"transaction": topic, "ttl_ms": 60_000})
    assert stage(broker, topic, topic, one).status == 200
    other = stage(broker, topic, topic, columns([b"b"]))
    assert_problem(other, 409, "conflict")
    assert_problem(stage(broker, topic, f"{topic}x", one), 409, "conflict")
    wrong = commit(broker, topic, (0, 0, 2))
    assert_problem(wrong, 409, "conflict")
    assert (wrong.json["part"], wrong.json["rows"], wrong.json["item"]) == (0, 1, 0)
    assert_problem(commit(broker, topic, (0, 0, 1), (0, 1, 0)), 400, "bad_request")
    assert_problem(commit(broker, topic, (0, 0, 1), producer="nobody"), 409, "conflict")
    for action in ("commit", "abort"):
        path = f"/v1/transactions/{topic}/{action}"
        assert_problem(broker.call("POST", path, {"colour": 1}), 400, "bad_request", "colour")
    wrong_winner = {"winners": [{"part": 0, "attempt": 0, "rows": 1, "colour": 1}]}
    path = f"/v1/transactions/{topic}/commit"
    assert_problem(broker.call("POST", path, wrong_winner), 400, "bad_request", "colour", 0)
    aborted = broker.post(f"/v1/transactions/{topic}/abort")
    assert aborted == {"transaction": topic, "state": "aborted", "result": "done"}
    assert broker.post(f"/v1/transactions/{topic}/abort")["result"] == "already"
    late = stage(broker, topic, topic, one, part=1)
    assert_problem(late, 410, "gone")
    assert late.json["state"] == "aborted"
    assert_problem(commit(broker, topic, (0, 0, 1)), 410, "gone")
    begun = broker.post("/v1/transactions", {"transaction": topic})
    assert begun == {"transaction": topic, "state": "aborted", "expires_at_ms": None}
    assert broker.call("GET", f"/v1/transactions/{topic}").json["discarded_rows"] == 1
    made = broker.post("/v1/transactions")["transaction"]
    assert commit(broker, made, (3, 1, 0)).json["rows"] == 0
    assert_problem(broker.call("POST", f"/v1/transactions/{made}/abort"), 409, "conflict")
    assert_problem(stage(broker, made, topic, one), 410, "gone")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("topic=t", "part"),
        ("part=1", "topic"),
        ("topic=t&part=-1", "part"),
        ("topic=t&part=4294967296", "part"),
        ("topic=t&part=1&attempt=18446744073709551616", "attempt"),
        ("topic=a/b&part=1", "topic"),
        ("topic=t&ns=a/b&part=1", "ns"),
        ("topic=t&part=1&number=x", "number"),
        ("topic=t&part=1&producer=" + "x" * 256, "producer"),
    ],
)
def test_what_a_part_is_named_by(
    broker: Any, topic: str, assert_problem: Callable[..., None], query: str, field: str
) -> None:
    broker.post("/v1/transactions", {"transaction": topic})
    path = f"/v1/transactions/{topic}/parts?{query}"
    answer = broker.call("POST", path, columns([b"a"]), {"Content-Type": BULK})
    assert_problem(answer, 400, "bad_request")
    assert answer.json["field"] == field


def test_a_part_is_judged_as_a_send_is(
    broker: Any, topic: str, assert_problem: Callable[..., None]
) -> None:
    """What a send would refuse is refused when it is staged, and leaves nothing behind."""
    broker.post("/v1/transactions", {"transaction": topic})
    bad = [
        (columns([b"a"], delay_ms=2**60), 400),
        (columns([b"a"], deliver_at_ms=2**62), 400),
        (columns([b"a"], id_size=1, id=b"\x01"), 400),
        (columns([b"a"], producer="p", sequence=1), 400),
        (columns([b"a"], colour=1), 400),
        (columns([b"a"])[:-1], 400),
        (b"", 400),
    ]
    for body, status in bad:
        assert_problem(stage(broker, topic, topic, body), status, "bad_request")
    as_json = broker.call("POST", f"/v1/transactions/{topic}/parts?topic={topic}&part=1", {})
    assert_problem(as_json, 415, "unsupported")
    assert broker.call("GET", f"/v1/transactions/{topic}").json["parts"] == 0
    assert broker.counts(topic) is None
    u64 = 2**64 - 1
    assert (
        stage(broker, topic, topic, columns([b"a"]), attempt=u64, producer="%C3%A4").status == 200
    )
    assert commit(broker, topic, (0, u64, 1)).json["rows"] == 1


def test_it_expires(broker: Any, topic: str, assert_problem: Callable[..., None]) -> None:
    broker.post("/v1/transactions", {"transaction": topic, "ttl_ms": 4_000})
    assert stage(broker, topic, topic, columns([b"a"])).status == 200
    time.sleep(4.01)
    late = stage(broker, topic, topic, columns([b"b"]), part=1)
    assert_problem(late, 410, "gone")
    assert late.json["state"] == "expired"
    assert broker.post(f"/v1/transactions/{topic}/abort")["state"] == "expired"


def test_ids_and_columns_come_through(broker: Any, topic: str) -> None:
    """Every column of a bulk send is one of a part; ids are merged when they are published."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", {"body": "there", "id": "b", "delay_ms": HOUR})
    broker.post("/v1/transactions", {"transaction": topic})
    due = int(time.time() * 1000) + HOUR
    body = columns(
        [b"x", b"y", b"z"],
        deliver_at_ms=due,
        id_size=1,
        id=b"abc",
        priority=7,
        tags_size=3,
        tags=b"redredred",
        key_size=1,
        key=b"kkk",
        ttl_ms=5_000,
        max_retry=3,
        merge="reject",
    )
    assert stage(broker, topic, topic, body).status == 200
    assert commit(broker, topic, (0, 0, 3)).json["rows"] == 3
    assert published(broker, topic)["results"] == {
        "created": 2,
        "kept": 0,
        "replaced": 0,
        "rejected": 1,
        "ended": 0,
    }
    found = broker.call("GET", f"{path}/messages/c").json
    wanted = {
        "body": "z",
        "deliver_at_ms": due,
        "priority": 7,
        "tags": ["red"],
        "key": "k",
        "expires_at_ms": due + 5_000,
        "max_retry": 3,
    }
    assert wanted.items() <= found.items()
    assert broker.call("GET", f"{path}/messages/b").json["body"] == "there"
    assert broker.counts(topic)["waiting"] == 3


def test_across_a_kill(start_broker: Callable[..., Any]) -> None:
    """What was staged is there after a kill; what was committed is published after another."""
    broker = start_broker()
    broker.post("/v1/transactions", {"transaction": "x"})
    for part in range(20):
        body = columns(numbered(5_000 * part, 5_000))
        assert stage(broker, "x", "t", body, part=part).status == 200
    broker.kill()
    broker.start()
    assert broker.call("GET", "/v1/transactions/x").json["rows"] == 100_000
    winners = [(part, 0, 5_000) for part in range(20)]
    assert commit(broker, "x", *winners).json["result"] == "done"
    broker.kill()
    broker.start()
    assert commit(broker, "x", *winners).json["result"] == "already"
    published(broker, "x")
    assert sorted(bodies_of(broker, "t", 100_000), key=int) == numbered(0, 100_000)
    listed = broker.call("GET", "/v1/transactions").json
    assert [one["transaction"] for one in listed["transactions"]] == ["x"]
    assert listed["counts"] == {"open": 0, "publishing": 0, "ended": 1}


def many_topics(topics: list[str], bodies: list[bytes]) -> bytes:
    """An Arrow body of messages of different topics, due at once."""
    batch = one(
        topic=pa.array(topics),
        value=pa.array(bodies, pa.binary()),
        deliver_at=pa.array([0] * len(topics), UTC_US),
    )
    # A run of one topic may lie in both batches.
    return stream(batch.slice(0, 2), batch.slice(2))


def test_a_body_may_have_rows_of_many_topics(
    broker: Any, topic: str, assert_problem: Callable[..., None]
) -> None:
    """Each run of a topic is a part; a repeat changes nothing, and a wrong row stages nothing."""
    broker.post("/v1/transactions", {"transaction": topic})
    names = [f"{topic}-{letter}" for letter in "aabbbca"]
    rows = [b"%d" % number for number in range(len(names))]
    path = f"/v1/transactions/{topic}/parts?part=3&attempt=1&number="

    def staged(body: bytes, number: int = 0, kind: str = ARROW) -> Any:
        return broker.call("POST", f"{path}{number}", body, {"Content-Type": kind})

    huge = many_topics(names, [*rows[:5], b"x" * 5_000_000, rows[6]])
    refused = staged(huge)
    assert_problem(refused, 413, "too_large")
    assert refused.json["item"] == 5
    assert_problem(staged(many_topics([*names[:6], "a b"], rows)), 400, "bad_request", "topic")
    assert_problem(staged(columns([b"a"]), kind=BULK), 400, "bad_request", "topic")
    body = many_topics(names, rows)
    assert_problem(staged(body, 2**32 - 3), 400, "bad_request", "number")
    assert broker.call("GET", f"/v1/transactions/{topic}").json["parts"] == 0
    assert staged(body).json == {"rows": 7, "result": "staged"}
    assert staged(body).json == {"rows": 7, "result": "already"}
    # The body took the numbers 0 to 3.
    assert_problem(staged(many_topics([f"{topic}-d"], [b"7"]), 3), 409, "conflict")
    assert staged(many_topics([f"{topic}-d"], [b"7"]), 4).json["result"] == "staged"
    assert broker.call("GET", f"/v1/transactions/{topic}").json["parts"] == 5
    assert commit(broker, topic, (3, 1, 8)).json["rows"] == 8
    found = published(broker, topic)
    assert found["results"]["created"] == 8
    for letter, wanted in {"a": [0, 1, 6], "b": [2, 3, 4], "c": [5], "d": [7]}.items():
        bodies = bodies_of(broker, f"{topic}-{letter}", len(wanted))
        assert sorted(map(int, bodies)) == wanted
