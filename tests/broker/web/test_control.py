"""Single messages by id, bulk cancel and reschedule, topics, namespaces and operations."""

from __future__ import annotations

import itertools
import struct
from typing import Any
from urllib.parse import quote

import pytest

from delaylog.contract.calls.shapes import STATE

LATER = {"body": "x", "delay_ms": 3_600_000}
IDS = [
    "a b",
    "a/b",
    "/",
    "?",
    "a#b",
    "100%",
    "%2F",
    "a+b&c=d;e",
    "'\"<>\\|^`{}[]",
    ".",
    "..",
    "../x",
    "a:cancel",
    ":",
    "@!$*(),",
    "a~b",
    "é",
    "😀",
    "日本語",
    "\u2028",
    "\u200b",
    "\ufeff",
    "\uffff",
    "e\u0301",
    "messages",
    "x" * 255,
    "é" * 127,
]


@pytest.mark.parametrize("text", IDS)
def test_every_legal_id(broker: Any, topic: str, text: str) -> None:
    """Every legal id works in a path, percent-encoded: read, reschedule, cancel."""
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, LATER | {"id": text, "tags": ["t"], "key": "k", "headers": {"h": "v"}})
    place = f"{path}/" + (text.replace(".", "%2E") if text in (".", "..") else quote(text, safe=""))
    message = broker.call("GET", place).json
    assert message.pop("deliver_at_ms") - message.pop("sent_at_ms") == 3_600_000
    assert message == {
        "id": text,
        "topic": topic,
        "namespace": "default",
        "state": "waiting",
        "cause": None,
        "reason": None,
        "failures": [],
        "expires_at_ms": None,
        "attempts": 0,
        "max_retry": 10,
        "priority": 0,
        "key": "k",
        "tags": ["t"],
        "headers": {"h": "v"},
        "body": "x",
    }
    assert broker.call("PATCH", place, {"delay_ms": 7_200_000}).json["result"] == "done"
    assert broker.call("DELETE", place).json["result"] == "done"
    assert broker.call("GET", place).json["state"] == "cancelled"


def test_what_changes_of_one_message_answer(broker: Any, topic: str, assert_problem: Any) -> None:
    """Done with the new state, too late with the state, or unknown."""
    path = f"/v1/topics/{topic}/messages"
    sent = broker.post(path, LATER | {"id": "a"})
    done = {"result": "done", "state": "waiting", "deliver_at_ms": sent["deliver_at_ms"]}
    assert broker.call("PATCH", f"{path}/a", {"priority": 5}).json == done
    now = broker.call("PATCH", f"{path}/a", {"delay_ms": 0}).json
    assert now["deliver_at_ms"] < sent["deliver_at_ms"]
    (got,) = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 20_000})["messages"]
    message = broker.call("GET", f"{path}/a").json
    assert (message["state"], message["priority"]) == ("leased", got["priority"]) == ("leased", 5)
    assert message["lease_until_ms"] > message["deliver_at_ms"]
    for method, body in (("DELETE", None), ("PATCH", {"delay_ms": 0})):
        answer = broker.call(method, f"{path}/a", body)
        assert assert_problem(answer, 409, "too_late")["state"] == "leased"
        for place in (f"{path}/b", f"{path}/~0000000000000001", "/v1/topics/none/messages/b"):
            assert_problem(broker.call(method, place, body), 404, "unknown")
    assert broker.call("DELETE", f"{path}/a?force=true").json["state"] == "cancelled"
    ended = broker.call("GET", f"{path}/a?read=leader").json
    assert (ended["state"], ended["cause"]) == ("cancelled", "cancel")
    assert ended["ended_at_ms"] >= ended["sent_at_ms"]


def test_changes_of_many_answer_each(broker: Any, topic: str) -> None:
    """:cancel and :reschedule answer per id; a repeated id counts once."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", [LATER | {"id": text} for text in "abc"])
    broker.post(f"{path}/messages", {"id": "now", "body": "x"})
    broker.post(f"{path}/receive", {"wait_ms": 20_000})
    ask = {"ids": ["a", "none", "now", "a"], "delay_ms": 7_200_000}
    late = {"result": "too_late", "state": "leased"}
    done, unknown = {"result": "done"}, {"result": "unknown"}
    answer = broker.post(f"{path}/messages:reschedule", ask)
    assert answer == {"results": [done, unknown, late, done]}
    answer = broker.post(f"{path}/messages:cancel", {"ids": ["b", "b", "none", "now"]})
    assert answer == {"results": [done, done, unknown, late]}
    answer = broker.post(f"{path}/messages%3Acancel", {"ids": ["now"], "force": True})
    assert answer == {"results": [done]}
    counts = broker.counts(topic)
    assert (counts["waiting"], counts["cancelled"], counts["leased"]) == (2, 2, 0)


@pytest.mark.parametrize("by", ["refs", "ids"])
def test_changes_of_thousands_in_bulk(broker: Any, topic: str, by: str) -> None:
    """They are made in several turns: each message gets its own time and its own answer."""
    path, n = f"/v1/topics/{topic}", 5_000
    broker.call("PUT", path, {})
    broker.call("PUT", f"{path}/groups/second", {})
    names = b"".join(b"%05d" % k for k in range(n))
    fields = {"v": 1, "n": n, "delay_ms": 9 * 86_400_000, "body_size": 0, "bodies": b""}
    refs = broker.bulk(f"{path}/messages", fields | {"id_size": 5, "id": names}).packed["refs"]
    alien = struct.pack("<q", 2**62)

    def which(first: int, stop: int, *more: int | None) -> dict[str, Any]:
        """A range of rows, then single ones; None is a message that is not there."""
        rows = [*range(first, stop), *more]
        if by == "refs":
            column = b"".join(alien if k is None else refs[8 * k : 8 * k + 8] for k in rows)
            return {"v": 1, "n": len(rows), "refs": column}
        texts = ["none" if k is None else f"{k:05d}" for k in rows]
        sizes = struct.pack(f"<{len(rows)}H", *map(len, texts))
        return {"v": 1, "n": len(rows), "id_size": sizes, "id": "".join(texts).encode()}

    due = struct.pack(f"<{n}q", *range(2_000_000_000_000, 2_000_000_000_000 + n))
    moved = broker.bulk(f"{path}/messages:reschedule", which(0, n) | {"deliver_at_ms": due})
    assert moved.packed == {"v": 1, "n": n, "result": bytes(n)}
    for number in (0, 999, 1_000, 1_001, 4_999):
        message = broker.call("GET", f"{path}/messages/{number:05d}").json
        assert message["deliver_at_ms"] == 2_000_000_000_000 + number
    ended = broker.bulk(f"{path}/messages:cancel", which(0, n - 1, 0)).packed
    assert ended["result"] == bytes(n), "one that is named twice is changed once"
    assert broker.counts(topic)["cancelled"] == n - 1
    again = broker.bulk(f"{path}/messages:cancel", which(0, n, None)).packed
    assert again["result"] == b"\x01" * (n - 1) + b"\0\x02"


def test_topics(broker: Any, topic: str, assert_problem: Any) -> None:
    """PUT makes (201) or changes (200), GET shows, DELETE drops only an empty one."""
    path = f"/v1/topics/{topic}"
    assert_problem(broker.call("GET", path), 404, "unknown")
    assert_problem(broker.call("DELETE", path), 404, "unknown")
    made = broker.call("PUT", path, {"merge": "replace", "backoff": {"first_ms": 5}})
    assert made.status == 201
    assert made.json["topic"] == topic
    assert made.json["namespace"] == "default"
    settings = made.json["settings"]
    assert settings["merge"] == "replace"
    assert settings["backoff"] == {"first_ms": 5, "max_ms": 300_000, "factor": 2.0, "jitter": 0.2}
    assert set(made.json["counts"].values()) == {0}
    changed = broker.call("PUT", path)
    assert changed.status == 200
    assert changed.json["settings"]["merge"] == "keep"
    sent = broker.post(f"{path}/messages", LATER)
    assert assert_problem(broker.call("DELETE", path), 409, "conflict")["living"] == 1
    broker.call("DELETE", f"{path}/messages/{sent['id']}")
    assert broker.call("DELETE", path).json == {"result": "done"}
    assert_problem(broker.call("GET", path), 404, "unknown")
    broker.post(f"{path}/messages", LATER)
    assert broker.counts(topic)["waiting"] == 1


def test_stats(broker: Any, topic: str) -> None:
    """Counts per state, and how many were ever sent and delivered."""
    path = f"/v1/topics/{topic}"
    broker.post(f"{path}/messages", [LATER, LATER, {"body": "now"}])
    early = broker.post(f"{path}/messages", LATER | {"delay_ms": 3_000_000})
    (got,) = broker.post(f"{path}/receive", {"wait_ms": 20_000})["messages"]
    stats = broker.call("GET", f"{path}/stats").json
    assert stats["oldest_due_ms"] == early["deliver_at_ms"]
    broker.call("DELETE", f"{path}/messages/{early['id']}")
    stats = broker.call("GET", f"{path}/stats").json
    assert stats.pop("oldest_due_ms") > early["deliver_at_ms"]
    rates = stats.pop("rates")
    assert rates.pop("acked") == 0
    assert 0 < rates.pop("delivered") < rates.pop("sent") <= 4
    assert rates == {}
    assert stats.pop("now_ms") > 0
    assert sum(bucket["count"] for bucket in stats.pop("delay_buckets")) == 2
    assert stats.pop("bounded_by") is None
    assert stats == {
        "topic": topic,
        "group": "default",
        "sent": 4,
        "delivered": 1,
        "consumers": [],
        "waiting_receives": 0,
        "counts": dict.fromkeys(STATE.words, 0) | {"waiting": 2, "leased": 1, "cancelled": 1},
    }
    broker.post(f"{path}/ack", {"receipts": [got["receipt"]]})
    assert broker.call("GET", f"{path}/stats").json["rates"]["acked"] > 0
    broker.post(f"{path}/purge", {})
    assert broker.call("GET", f"{path}/stats").json["oldest_due_ms"] is None


def test_namespaces(broker: Any, topic: str) -> None:
    """The same topic in two namespaces is two topics; the short path is namespace `default`."""
    one, two = f"/v1/ns/one/topics/{topic}", f"/v1/ns/two/topics/{topic}"
    broker.post(f"{one}/messages", LATER | {"id": "a"})
    assert broker.call("GET", f"{two}/messages/a").status == 404
    broker.post(f"{two}/messages", [LATER | {"id": "a"}, LATER | {"id": "b"}])
    assert broker.call("GET", f"{one}/stats").json["counts"]["waiting"] == 1
    assert broker.call("GET", f"{two}/stats").json["counts"]["waiting"] == 2
    assert broker.call("GET", f"{two}/messages/b").json["namespace"] == "two"
    names = [each["topic"] for each in broker.call("GET", "/v1/ns/one/topics").json["topics"]]
    assert names == [topic]
    assert broker.call("GET", "/v1/ns/three/topics").json == {"topics": [], "cursor": None}
    broker.post(f"/v1/ns/default/topics/{topic}/messages", LATER)
    assert broker.counts(topic)["waiting"] == 1
    listed = broker.call("GET", "/v1/topics").json["topics"]
    assert topic in [each["topic"] for each in listed]
    assert [each["topic"] for each in listed] == sorted(each["topic"] for each in listed)


def test_the_text_of_the_metrics(broker: Any, topic: str) -> None:
    """In Prometheus' own form, each with its help and its type."""
    broker.post(f"/v1/topics/{topic}/messages", LATER)
    metrics = broker.call("GET", "/metrics")
    assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = metrics.body.decode()
    labels = f'{{group="default",namespace="default",topic="{topic}"}}'
    assert f"delaylog_living_messages{labels} 1.0" in text
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert named == typed


def test_stats_tell_how_far_off_messages_are(broker: Any, topic: str) -> None:
    for delay_ms in (30_000, 90_000, 7_200_000, 7_300_000):
        broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": delay_ms})
    stats = broker.call("GET", f"/v1/topics/{topic}/stats").json
    buckets = stats["delay_buckets"]
    assert [bucket["count"] for bucket in buckets] == [1, 1, 0, 0, 2, 0, 0, 0, 0]
    assert (buckets[0]["from_ms"], buckets[-1]["to_ms"]) == (0, None)
    assert all(a["to_ms"] == b["from_ms"] for a, b in itertools.pairwise(buckets))
    lean = broker.call("GET", f"/v1/topics/{topic}/stats?delay_buckets=false").json
    assert "delay_buckets" not in lean
    assert lean["counts"] == stats["counts"]
