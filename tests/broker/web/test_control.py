"""Single messages by id, bulk cancel and reschedule, topics, namespaces and operations."""

from __future__ import annotations

import itertools
import struct
from typing import Any
from urllib.parse import quote

import pytest

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
    assert broker.call("GET", place).json["state"] == "deleted"


def test_states(broker: Any, topic: str, assert_problem: Any) -> None:
    """Cancel and reschedule say done, too_late with the state, or unknown; force ends a lease."""
    path = f"/v1/topics/{topic}/messages"
    broker.post(path, {"id": "a", "body": "x"})
    broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 20_000})
    message = broker.call("GET", f"{path}/a").json
    assert message["state"] == "leased"
    assert message["lease_until_ms"] > message["deliver_at_ms"]
    for method, body in (("DELETE", None), ("PATCH", {"delay_ms": 0})):
        answer = broker.call(method, f"{path}/a", body)
        assert assert_problem(answer, 409, "too_late")["state"] == "leased"
        assert_problem(broker.call(method, f"{path}/b", body), 404, "unknown")
        assert_problem(broker.call(method, f"{path}/~0000000000000001", body), 404, "unknown")
        assert_problem(broker.call(method, "/v1/topics/none/messages/b", body), 404, "unknown")
    assert broker.call("DELETE", f"{path}/a?force=true").json["state"] == "deleted"
    ended = broker.call("GET", f"{path}/a?read=leader").json
    assert ended["state"] == "deleted"
    assert ended["cause"] == "cancel"
    assert ended["ended_at_ms"] >= ended["sent_at_ms"]
    answer = broker.call("DELETE", f"{path}/a")
    assert assert_problem(answer, 409, "too_late")["state"] == "deleted"
    assert broker.counts(topic)["deleted"] == 1


def test_reschedule_now(broker: Any, topic: str) -> None:
    """delay 0 is now; the priority alone may be changed."""
    path = f"/v1/topics/{topic}/messages"
    sent = broker.post(path, LATER)
    changed = broker.call("PATCH", f"{path}/{sent['id']}", {"priority": 5}).json
    assert changed == {
        "result": "done",
        "state": "waiting",
        "deliver_at_ms": sent["deliver_at_ms"],
    }
    assert broker.call("GET", f"{path}/{sent['id']}").json["priority"] == 5
    changed = broker.call("PATCH", f"{path}/{sent['id']}", {"delay_ms": 0}).json
    assert changed["result"] == "done"
    assert changed["deliver_at_ms"] < sent["deliver_at_ms"]
    (got,) = broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 20_000})["messages"]
    assert got["id"] == sent["id"]
    assert got["priority"] == 5


def test_many(broker: Any, topic: str) -> None:
    """:cancel and :reschedule answer per id, in JSON; a repeated id counts once."""
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
    assert (counts["waiting"], counts["deleted"], counts["leased"]) == (2, 2, 0)


@pytest.mark.parametrize("by", ["refs", "ids"])
def test_thousands_in_bulk(broker: Any, topic: str, by: str) -> None:
    """They are changed in several turns: each gets its own time and its own answer."""
    path, n = f"/v1/topics/{topic}", 5_000
    broker.call("PUT", path, {})
    broker.call("PUT", f"{path}/groups/second", {})
    names = b"".join(b"%05d" % k for k in range(n))
    fields = {"v": 1, "n": n, "delay_ms": 9 * 86_400_000, "body_size": 0, "bodies": b""}
    fields |= {"id_size": 5, "id": names}
    refs = broker.bulk(f"{path}/messages", fields).packed["refs"]
    which = {"refs": refs} if by == "refs" else {"id_size": 5, "id": names}
    due = struct.pack(f"<{n}q", *range(2_000_000_000_000, 2_000_000_000_000 + n))
    ask = {"v": 1, "n": n, **which, "deliver_at_ms": due}
    moved = broker.bulk(f"{path}/messages:reschedule", ask).packed
    assert moved == {"v": 1, "n": n, "result": bytes(n)}
    for number in (0, 999, 1_000, 1_001, 4_999):
        message = broker.call("GET", f"{path}/messages/{number:05d}").json
        assert message["deliver_at_ms"] == 2_000_000_000_000 + number
    twice = (
        {"refs": refs[:-8] + refs[:8]}
        if by == "refs"
        else {"id_size": 5, "id": names[:-5] + names[:5]}
    )
    ended = broker.bulk(f"{path}/messages:cancel", {"v": 1, "n": n, **twice}).packed
    assert ended["result"] == bytes(n), "one that is named twice is changed once"
    assert broker.counts(topic)["deleted"] == n - 1
    again = broker.bulk(f"{path}/messages:cancel", {"v": 1, "n": n, **which}).packed
    assert again["result"] == b"\x01" * (n - 1) + b"\0"


def test_many_in_bulk(broker: Any, topic: str) -> None:
    """The same by refs or by a column of ids, as bulk bodies."""
    path = f"/v1/topics/{topic}"
    fields = {"v": 1, "n": 3, "delay_ms": 3_600_000, "body_size": 1, "bodies": b"abc"}
    refs = broker.bulk(f"{path}/messages", fields).packed["refs"]
    alien = struct.pack("<q", 2**62)
    due = struct.pack("<3q", *[2_000_000_000_000] * 3)
    moved = broker.bulk(
        f"{path}/messages:reschedule",
        {"v": 1, "n": 3, "refs": refs[:16] + alien, "deliver_at_ms": due},
    )
    assert moved.packed == {"v": 1, "n": 3, "result": b"\0\0\x02"}
    ended = broker.bulk(f"{path}/messages:cancel", {"v": 1, "n": 2, "refs": refs[:8] + alien})
    assert ended.packed == {"v": 1, "n": 2, "result": b"\0\x02"}
    broker.post(f"{path}/messages", LATER | {"id": "é"})
    ids = {"v": 1, "n": 3, "id_size": struct.pack("<3H", 2, 4, 2), "id": "énoneé".encode()}
    assert broker.bulk(f"{path}/messages:cancel", ids).packed["result"] == b"\0\x02\0"
    late = broker.bulk(f"{path}/messages:cancel", {"v": 1, "n": 1, "refs": refs[:8]}).packed
    assert late["result"] == b"\x01"
    assert broker.counts(topic)["deleted"] == 2


def test_topics(broker: Any, topic: str, assert_problem: Any) -> None:
    """PUT makes (201) or changes (200), GET shows, DELETE drops only an empty one."""
    path = f"/v1/topics/{topic}"
    assert_problem(broker.call("GET", path), 404, "unknown")
    assert_problem(broker.call("GET", f"{path}/stats"), 404, "unknown")
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
    assert stats == {
        "topic": topic,
        "group": "default",
        "sent": 4,
        "delivered": 1,
        "counts": {
            "waiting": 2,
            "ready": 0,
            "leased": 1,
            "acked": 0,
            "expired": 0,
            "dead": 0,
            "deleted": 1,
        },
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


def test_operations(broker: Any, topic: str) -> None:
    """Health, readiness, the root and the metrics, for GET and HEAD."""
    broker.post(f"/v1/topics/{topic}/messages", LATER)
    assert broker.call("GET", "/healthz").json == {"status": "ok"}
    assert broker.call("GET", "/readyz").json == {
        "status": "ready",
        "disk_full": False,
        "clock_held_ms": 0,
    }
    assert broker.call("GET", "/").json["name"] == "delaylog"
    for path in ("/healthz", "/readyz", "/metrics", "/"):
        head = broker.call("HEAD", path)
        assert head.status == 200
        assert head.body == b""
    metrics = broker.call("GET", "/metrics")
    assert metrics.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    text = metrics.body.decode()
    labels = f'{{group="default",namespace="default",topic="{topic}"}}'
    assert f"delaylog_living_messages{labels} 1.0" in text
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(
        len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0 for line in samples
    )
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert named == typed
    before = problems(broker)
    broker.call("GET", "/nothing")
    assert problems(broker) == before + 1


def problems(broker: Any) -> float:
    """How many `unknown` answers the broker counts."""
    text = broker.call("GET", "/metrics").body.decode()
    wanted = 'delaylog_problems_total{code="unknown"} '
    return sum(float(x.removeprefix(wanted)) for x in text.splitlines() if x.startswith(wanted))


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


@pytest.mark.parametrize("query", ["delay_buckets=maybe", "buckets=1"])
def test_stats_refuse_an_unknown_query(
    broker: Any, topic: str, assert_problem: Any, query: str
) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {})
    assert_problem(broker.call("GET", f"/v1/topics/{topic}/stats?{query}"), 400, "bad_request")


def test_dead_letters_are_deleted_by_force(broker: Any, topic: str, assert_problem: Any) -> None:
    """One by one, in a list and by a filter that says so; without force they are too late."""
    url = f"/v1/topics/{topic}"
    path = f"{url}/messages"
    broker.call("PUT", url, {"max_retry": 0, "ended_keep_ms": 60_000})
    names = [*"abcdef"]
    broker.post(path, [{"id": name, "body": "x", "tags": [name]} for name in names])
    receipts: list[str] = []
    while len(receipts) < len(names):
        got = broker.post(f"{url}/receive", {"wait_ms": 20_000, "max": 10})["messages"]
        receipts += [each["receipt"] for each in got]
    broker.post(f"{url}/nack", {"receipts": receipts})
    broker.post(path, {"id": "alive", "body": "x"})
    assert assert_problem(broker.call("DELETE", f"{path}/a"), 409, "too_late")["state"] == "dead"
    assert broker.call("DELETE", f"{path}/a?force=true").json["state"] == "deleted"
    answer = broker.post(f"{path}:cancel", {"ids": ["a", "b", "no"], "force": True})
    assert [each["result"] for each in answer["results"]] == ["too_late", "done", "unknown"]
    assert answer["results"][0]["state"] == "deleted"
    refused = broker.call("POST", f"{path}:cancel", {"filter": {"state": "dead"}})
    assert "force" in assert_problem(refused, 400, "bad_request", "state")["detail"]
    for wanted, matched in (({"state": "dead", "tag": "c"}, 1), ({"state": "dead"}, 3)):
        begun = broker.call("POST", f"{path}:cancel", {"filter": wanted, "force": True}).json
        while begun["state"] == "running":
            begun = broker.call("GET", f"/v1/jobs/{begun['job']}").json
        assert (begun["matched"], begun["done"]) == (matched, matched)
    assert broker.call("GET", f"{url}/dead").json["messages"] == []
    counts = broker.counts(topic)
    assert (counts["dead"], counts["deleted"], counts["ready"]) == (0, 6, 1)
    message = broker.call("GET", f"{path}/f").json
    assert (message["state"], message["cause"], message["attempts"]) == ("deleted", "cancel", 1)
    assert broker.call("POST", f"{path}:replay", {"ids": ["f"]}).json["results"][0] == {
        "result": "too_late",
        "state": "deleted",
    }
