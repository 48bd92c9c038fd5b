"""Replay and jobs over HTTP: bulk bodies, counts, rates, refusals, and a kill."""

from __future__ import annotations

import struct
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.waiting import PATIENCE_S, await_that

HOUR = 3_600_000
LATER = {"body": "x", "delay_ms": HOUR}


def finished(broker: Any, job: dict[str, Any]) -> dict[str, Any]:
    """The job once it has ended."""
    until = time.monotonic() + PATIENCE_S
    while job["state"] == "running":
        assert time.monotonic() < until
        time.sleep(0.02)
        job = broker.call("GET", f"/v1/jobs/{job['job']}").json
    return job


def begin(broker: Any, topic: str, action: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = broker.call("POST", f"/v1/topics/{topic}/messages:{action}", body)
    assert answer.status == 202, answer
    return answer.json


def counted(broker: Any, topic: str, query: str) -> dict[str, int]:
    """What a count finds, its pieces added up."""
    found = {"matched": 0, "scanned": 0}
    cursor: str | None = ""
    while cursor is not None:
        more = f"&cursor={cursor}" if cursor else ""
        part = broker.call("GET", f"/v1/topics/{topic}/messages:count?{query}{more}").json
        found = {name: count + part[name] for name, count in found.items()}
        cursor = part["cursor"]
    return found


def make_dead(broker: Any, topic: str, ids: list[str]) -> None:
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0, "backoff": {"first_ms": 0}})
    broker.post(f"{path}/messages", [{"body": "x", "id": name} for name in ids])
    got = broker.post(f"{path}/receive", {"max": len(ids), "wait_ms": 20_000})["messages"]
    broker.post(f"{path}/nack", {"receipts": [message["receipt"] for message in got]})
    assert broker.counts(topic)["dead"] == len(ids)


def test_replay(broker: Any, topic: str) -> None:
    """By ids, in bulk by ids and by refs; with a time."""
    path = f"/v1/topics/{topic}"
    make_dead(broker, topic, ["a", "b", "c", "d"])
    done, unknown = {"result": "done"}, {"result": "unknown"}
    answer = broker.post(f"{path}/messages:replay", {"ids": ["a", "none", "a"]})
    assert answer == {"results": [done, unknown, done]}
    late = {"result": "too_late", "state": "ready"}
    assert broker.post(f"{path}/messages:replay", {"ids": ["a"]}) == {"results": [late]}
    (got,) = broker.post(f"{path}/receive", {"wait_ms": 20_000})["messages"]
    assert (got["id"], got["attempts"]) == ("a", 1)
    ids = {"v": 1, "n": 2, "id_size": 1, "id": b"bx", "delay_ms": HOUR}
    assert broker.bulk(f"{path}/messages:replay", ids).packed["result"] == b"\0\x02"
    assert broker.call("GET", f"{path}/messages/b").json["state"] == "waiting"
    alien = {"v": 1, "refs": struct.pack("<2q", 1, 2**62)}
    assert broker.bulk(f"{path}/messages:replay", alien).packed["result"] == b"\x02\x02"
    counts = broker.counts(topic)
    assert (counts["dead"], counts["leased"], counts["waiting"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("query", "filter_", "count"),
    [
        ("", {}, 6),
        ("tag=red", {"tag": "red"}, 3),
        ("key=k&state=waiting", {"key": "k", "state": "waiting"}, 2),
        ("key=", {"key": ""}, 3),
        ("state=leased", {"state": "leased"}, 0),
    ],
)
def test_a_count_is_what_a_job_matches(
    broker: Any, topic: str, query: str, filter_: dict[str, Any], count: int
) -> None:
    path = f"/v1/topics/{topic}"
    for k in range(6):
        tags, keys = ["red"] if k % 2 else [], {"key": "k" if k < 2 else "l"} if k < 3 else {}
        message = {"body": "x", "delay_ms": HOUR * (1 + k % 3), "tags": tags, **keys}
        broker.post(f"{path}/messages", message)
    found = counted(broker, topic, query)
    assert found["matched"] == count
    assert count <= found["scanned"] <= 6
    body = {"filter": filter_, "force": True}
    assert finished(broker, begin(broker, topic, "cancel", body))["matched"] == count
    assert counted(broker, topic, query)["matched"] == 0


def test_a_count_of_dead_letters(broker: Any, topic: str) -> None:
    make_dead(broker, topic, ["a", "b"])
    assert counted(broker, topic, "")["matched"] == 0
    assert counted(broker, topic, "state=dead")["matched"] == 2


def settle(broker: Any, path: str, group: str, verb: str, reasons: dict[str, str]) -> None:
    """Receive these messages in a group, and say of each why it failed."""
    wanted = {"group": group, "wait_ms": 20_000, "ids": [*reasons], "max": len(reasons)}
    for got in broker.post(f"{path}/receive", wanted)["messages"]:
        why = {"reason": reasons[got["id"]]} if reasons[got["id"]] else {}
        broker.post(f"{path}/{verb}", {"receipts": [got["receipt"]], "group": group, **why})


@pytest.fixture
def failed(broker: Any, topic: str) -> str:
    """Four dead letters in two groups: in `mail` for want of paper, in the default group for other
    reasons; b failed twice, c without a reason, d was rejected.
    """
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0, "backoff": {"first_ms": 0}})
    broker.call("PUT", f"{path}/groups/mail", {})
    sent = [{"body": "x", "id": name, "max_retry": int(name == "b")} for name in "abcd"]
    broker.post(f"{path}/messages", sent)
    for group, said, nothing in (("default", "ink", ""), ("mail", "paper", "paper")):
        settle(broker, path, group, "nack", {"a": said, "b": said, "c": nothing})
        settle(broker, path, group, "nack", {"b": "paper"})
        settle(broker, path, group, "reject", {"d": said})
    return topic


@pytest.mark.parametrize(
    ("filter_", "replayed"),
    [
        ({"group": "default"}, {"default": "abcd"}),
        ({"group": "mail"}, {"mail": "abcd"}),
        ({"group": "default", "reason": "ink"}, {"default": "ad"}),
        ({"group": "default", "reason": "ink", "cause": "nack"}, {"default": "a"}),
        ({"group": "default", "reason": "", "cause": "nack"}, {"default": "c"}),
        ({"cause": "rejected"}, {"default": "d", "mail": "d"}),
        ({"reason": "paper"}, {"default": "b", "mail": "abcd"}),
        ({"reason_prefix": "pa"}, {"default": "b", "mail": "abcd"}),
        ({"group": "default", "reason_prefix": "in", "cause": "rejected"}, {"default": "d"}),
        ({"reason_prefix": "ink", "reason": "paper"}, {}),
        ({"reason_prefix": "papers"}, {}),
        ({"reason": "none"}, {}),
    ],
    ids=str,
)
def test_jobs_of_one_group_and_reason(
    broker: Any, failed: str, filter_: dict[str, Any], replayed: dict[str, str]
) -> None:
    """Purpose: letters of other groups, and those that failed for another reason, stay dead.
    Method: a replay to a far time; what waits in each group is what was meant, and was counted.
    """
    path = f"/v1/topics/{failed}"
    matched = counted(broker, failed, urlencode({"state": "dead", **filter_}))["matched"]
    assert matched == len(set("".join(replayed.values())))
    body = {"filter": {"state": "dead", **filter_}, "delay_ms": HOUR}
    job = finished(broker, begin(broker, failed, "replay", body))
    assert (job["filter"], job["matched"], job["done"]) == (body["filter"], matched, matched)
    for group in ("default", "mail"):
        listed = broker.call("GET", f"{path}/messages?group={group}&state=waiting").json
        assert "".join(sorted(each["id"] for each in listed["messages"])) == replayed.get(group, "")


@pytest.mark.parametrize(
    "failure", [{"reason": "ink"}, {"reason_prefix": "i"}, {"cause": "rejected"}], ids=str
)
def test_a_failure_without_a_state_means_dead_letters(
    broker: Any, failed: str, assert_problem: Any, failure: dict[str, str]
) -> None:
    """Purpose: who asks by reason deals with dead letters. Method: a message in retry has failed
    for the same reason; counts and replays find the letters, other actions are refused.
    """
    path = f"/v1/topics/{failed}"
    broker.post(f"{path}/messages", {"body": "x", "id": "e", "max_retry": 1})
    wanted = {"group": "default", "wait_ms": 20_000, "ids": ["e"]}
    (got,) = broker.post(f"{path}/receive", wanted)["messages"]
    back = {"receipts": [got["receipt"]], "reason": "ink", "delay_ms": HOUR}
    broker.post(f"{path}/nack", back)
    query = {"group": "default", **failure}
    dead = counted(broker, failed, urlencode({**query, "state": "dead"}))["matched"]
    assert counted(broker, failed, urlencode(query))["matched"] == dead > 0
    in_retry = int("cause" not in failure)
    waiting = urlencode({**query, "state": "waiting"})
    assert counted(broker, failed, waiting)["matched"] == in_retry
    for action, more in (("cancel", {}), ("reschedule", {"delay_ms": HOUR})):
        body = {"filter": query, **more}
        refused = broker.call("POST", f"{path}/messages:{action}", body)
        problem = assert_problem(refused, 400, "bad_request")
        assert "unless it names a state" in problem["detail"]
        body["filter"] = {**query, "state": "waiting"}
        job = finished(broker, begin(broker, failed, action, body))
        assert job["matched"] == (in_retry if action == "cancel" else 0)
    job = finished(broker, begin(broker, failed, "replay", {"filter": query, "delay_ms": HOUR}))
    assert (job["filter"], job["done"]) == ({**query, "state": "dead"}, dead)


@pytest.mark.parametrize(
    ("member", "value", "status"), [("group", "none", 404), ("cause", "acked", 400)]
)
def test_groups_and_causes_of_a_filter_are_checked(
    broker: Any, topic: str, assert_problem: Any, member: str, value: str, status: int
) -> None:
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {})
    code = "unknown" if status == 404 else "bad_request"
    count = broker.call("GET", f"{path}/messages:count?{member}={value}")
    assert assert_problem(count, status, code)["field"] == member
    asked = broker.call("POST", f"{path}/messages:cancel", {"filter": {member: value}})
    assert assert_problem(asked, status, code)["field"] == member


@pytest.mark.parametrize("cursor", ["x", "1.2", "1.99999999999.3", "-1.1.1"])
def test_cursors_of_counts_are_checked(
    broker: Any, topic: str, cursor: str, assert_problem: Any
) -> None:
    broker.call("PUT", f"/v1/topics/{topic}", {})
    answer = broker.call("GET", f"/v1/topics/{topic}/messages:count?cursor={cursor}")
    assert_problem(answer, 400, "bad_request", "cursor")


def test_replay_at_a_rate_wakes_consumers(broker: Any, topic: str) -> None:
    """Who waits gets what comes back to life; the rate holds; a stopped job does no more."""
    path = f"/v1/topics/{topic}"
    make_dead(broker, topic, [f"m{k}" for k in range(100)])
    begun = time.monotonic()
    job = begin(broker, topic, "replay", {"filter": {"state": "dead"}, "rate": 20})
    assert job["rate"] == 20
    got: list[str] = []
    while len(got) < 20:
        answer = broker.post(f"{path}/receive", {"max": 50, "wait_ms": 10_000})
        got += [message["id"] for message in answer["messages"]]
    assert time.monotonic() - begun > 0.4
    assert got == [f"m{k}" for k in range(len(got))]
    stopped = broker.call("DELETE", f"/v1/jobs/{job['job']}").json
    assert stopped["state"] == "cancelled"
    assert stopped["done"] < 100
    time.sleep(0.3)
    assert broker.call("GET", f"/v1/jobs/{job['job']}").json == stopped
    assert broker.counts(topic)["dead"] == 100 - stopped["done"]


BROKEN: list[tuple[str, dict[str, Any], str | None]] = [
    ("cancel", {}, "ids"),
    ("cancel", {"ids": ["a"], "filter": {}}, "ids"),
    ("cancel", {"filter": []}, "filter"),
    ("cancel", {"filter": {"colour": "red"}}, "colour"),
    ("cancel", {"filter": {"state": "acked"}}, "state"),
    ("cancel", {"filter": {"state": "dead"}}, "state"),
    ("cancel", {"filter": {"state": 1}}, "state"),
    ("cancel", {"filter": {"due_from": -1}}, "due_from"),
    ("cancel", {"filter": {"due_to": "soon"}}, "due_to"),
    ("cancel", {"filter": {"tag": 5}}, "tag"),
    ("cancel", {"filter": {"tag": "x" * 65}}, "tag"),
    ("cancel", {"filter": {"key": "x" * 256}}, "key"),
    ("cancel", {"filter": {}, "rate": 0}, "rate"),
    ("cancel", {"filter": {}, "rate": 1.5}, "rate"),
    ("cancel", {"ids": ["a"], "rate": 5}, "rate"),
    ("cancel", {"filter": {}, "deliver_at_ms": 5}, "deliver_at_ms"),
    ("reschedule", {"filter": {}}, "deliver_at_ms"),
    ("reschedule", {"filter": {}, "deliver_at_ms": 2**62}, "deliver_at_ms"),
    ("reschedule", {"filter": {}, "deliver_at_ms": 0, "delay_ms": 1}, "delay_ms"),
    ("reschedule", {"filter": {}, "delay_ms": 1, "force": True}, "force"),
    ("replay", {"filter": {"state": "waiting"}}, "state"),
    ("replay", {"ids": [], "filter": None}, "ids"),
    ("replay", {"ids": ["a"], "deliver_at_ms": 2**62}, "deliver_at_ms"),
]


@pytest.mark.parametrize(("action", "body", "field"), BROKEN, ids=str)
def test_refusals(
    broker: Any, topic: str, assert_problem: Any, action: str, body: Any, field: str | None
) -> None:
    """A broken call names the member, makes no job and changes nothing."""
    broker.post(f"/v1/topics/{topic}/messages", LATER | {"id": "a"})
    before = broker.call("GET", "/v1/jobs").json
    answer = broker.call("POST", f"/v1/topics/{topic}/messages:{action}", body)
    assert assert_problem(answer, 400, "bad_request").get("field") == field
    assert broker.call("GET", "/v1/jobs").json == before
    assert broker.counts(topic)["waiting"] == 1


@pytest.mark.parametrize("name", ["j0", "j999999999", "1", "x", "j1x", "%20"])
def test_a_job_that_does_not_exist(broker: Any, assert_problem: Any, name: str) -> None:
    for method in ("GET", "DELETE"):
        assert_problem(broker.call(method, f"/v1/jobs/{name}"), 404, "unknown")


def test_a_job_survives_a_kill(start_broker: Any) -> None:
    """An acknowledged job goes on after kill -9, from where it was, and ends once."""
    broker = start_broker()
    path = "/v1/topics/t"
    fields = {"v": 1, "n": 2_000, "delay_ms": HOUR, "body_size": 1, "bodies": b"x" * 2_000}
    broker.bulk(f"{path}/messages", fields)
    # So slow that a busy machine, which needs seconds for a start, does not see its end.
    job = begin(broker, "t", "cancel", {"filter": {}, "rate": 300})

    def done() -> int:
        count: int = broker.call("GET", f"/v1/jobs/{job['job']}").json["done"]
        return count

    seen = 0
    for _ in range(4):
        assert done() >= seen, "what was told is not taken back"
        await_that(lambda before=seen: done() > before)
        seen = done()
        broker.kill()
        broker.start()
    assert 0 < seen < 2_000
    job = finished(broker, broker.call("GET", f"/v1/jobs/{job['job']}").json)
    assert (job["state"], job["matched"], job["done"]) == ("done", 2_000, 2_000)
    counts = broker.counts("t")
    assert (counts["waiting"], counts["cancelled"]) == (0, 2_000)
    assert broker.stop() == 0
