"""Claims in a cluster of three: whoever leads knows them, and what was answered holds."""

from __future__ import annotations

from typing import Any

import msgpack
import pyarrow as pa

from delaylog.broker.calls.forms.arrow_stream import ARROW
from tests.broker.cluster.three_nodes import Answer, ThreeNodes

BULK = {"Content-Type": "application/vnd.delaylog.batch"}
N = 9_000


def send(three: ThreeNodes, topic: str) -> None:
    fields = {"v": 1, "n": N, "delay_ms": 0, "body_size": 8}
    fields["bodies"] = b"".join(b"%08d" % k for k in range(N))
    path = f"/v1/topics/{topic}/messages"
    answer = three.call(three.leader(), "POST", path, msgpack.packb(fields), BULK)
    assert answer.status == 200, answer


def claim(three: ThreeNodes, topic: str, call: str = "", body: Any = None) -> Answer:
    """A call of a claim, to whoever leads; while nobody does, again."""

    def ask() -> Answer | None:
        try:
            path = f"/v1/topics/{topic}/claims/c{call}"
            answer = three.call(three.leader(), "POST", path, body or {})
        except OSError:
            return None
        return None if answer.status in (307, 503) else answer

    found: Answer = three.until(ask)
    return found


def rows(three: ThreeNodes, topic: str, node: int, query: str = "") -> pa.Table:
    path = f"/v1/topics/{topic}/claims/c/rows?{query}"
    answer = three.call(node, "GET", path, None, {"Accept": ARROW})
    assert answer.status == 200, answer
    return pa.ipc.open_stream(answer.body).read_all()


def test_a_failover_keeps_a_claim(three: ThreeNodes) -> None:
    """The leader is killed after a claim was made, then after it was acked: nothing is lost."""
    send(three, "kept")
    made = claim(three, "kept", body={"max": 8_000, "lease_ms": 600_000}).json
    assert (made["n"], made["state"]) == (8_000, "open")
    leader = three.leader()
    before = rows(three, "kept", leader)
    three.caught_up()
    for follower in three.followers():
        assert rows(three, "kept", follower, "read=local").equals(before)
    three.kill(leader)
    again = claim(three, "kept", body={"max": 10}).json
    assert again == made
    assert rows(three, "kept", three.leader()).equals(before)
    three.start(leader)
    assert claim(three, "kept", "/extend", {"lease_ms": 900_000}).json["result"] == "done"
    assert claim(three, "kept", "/ack").json["result"] == "done"
    second = three.leader()
    three.kill(second)
    assert claim(three, "kept", "/ack").json["result"] == "already"
    counts = three.call(three.leader(), "GET", "/v1/topics/kept/stats").json["counts"]
    assert (counts["acked"], counts["leased"]) == (8_000, 0)
    three.start(second)


def test_followers_send_on(three: ThreeNodes) -> None:
    """307 to the leader, for each call."""
    send(three, "sent-on")
    claim(three, "sent-on")
    (follower, _), leader = three.followers(), three.leader()
    path = "/v1/topics/sent-on/claims/c"
    calls = [("POST", path), ("GET", path), ("GET", f"{path}/rows"), ("POST", f"{path}/ack")]
    for method, each in calls:
        answer = three.call(follower, method, each, {} if method == "POST" else None)
        assert (answer.status, answer.headers.get("Location")) == (307, three.url(leader) + each)
