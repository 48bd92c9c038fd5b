"""What the next leader knows after a kill: claims, transactions, why messages are late."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pyarrow as pa

from delaylog.broker.calls.forms.arrow_stream import ARROW
from tests.broker.cluster.three_nodes import NODES, Answer, ThreeNodes

BULK = {"Content-Type": "application/vnd.delaylog.batch"}
PARTS, ROWS = 30, 5_000
X = "/v1/transactions/x"
DELAY_MS = 10_000


def batch(bodies: list[bytes], **columns: Any) -> bytes:
    """A bulk body of bodies of one size."""
    fields = {"v": 1, "n": len(bodies), "body_size": len(bodies[0]), "bodies": b"".join(bodies)}
    packed: bytes = msgpack.packb(fields | columns)
    return packed


def at_leader(three: ThreeNodes, method: str, path: str, body: Any = None) -> Answer:
    """A call of the leader that succeeds."""
    found = three.on_leader(method, path, body, BULK if isinstance(body, bytes) else {})
    assert found.status == 200, found
    return found


def claim(three: ThreeNodes, topic: str, call: str = "", body: Any = None) -> Answer:
    """A call of a claim at the leader."""
    return three.on_leader("POST", f"/v1/topics/{topic}/claims/c{call}", body or {})


def rows(three: ThreeNodes, topic: str, follower: int | None = None) -> pa.Table:
    """The rows of a claim, as the leader has them, or this follower."""
    path, headers = f"/v1/topics/{topic}/claims/c/rows", {"Accept": ARROW}
    if follower is None:
        answer = three.on_leader("GET", path, None, headers)
    else:
        answer = three.call(follower, "GET", f"{path}?read=local", None, headers)
    assert answer.status == 200, answer
    return pa.ipc.open_stream(answer.body).read_all()


def test_a_failover_keeps_a_claim(three: ThreeNodes) -> None:
    """The leader is killed after a claim was made, then after it was acked: nothing is lost."""
    messages = batch([b"%08d" % k for k in range(9_000)], delay_ms=0)
    at_leader(three, "POST", "/v1/topics/kept/messages", messages)
    made = claim(three, "kept", body={"max": 8_000, "lease_ms": 600_000}).json
    assert (made["n"], made["state"]) == (8_000, "open")
    leader = three.leader()
    before = rows(three, "kept")
    three.caught_up()
    for follower in three.followers():
        assert rows(three, "kept", follower).equals(before)
    three.kill(leader)
    again = claim(three, "kept", body={"max": 10}).json
    assert again == made
    assert rows(three, "kept").equals(before)
    three.start(leader)
    assert claim(three, "kept", "/extend", {"lease_ms": 900_000}).json["result"] == "done"
    assert claim(three, "kept", "/ack").json["result"] == "done"
    second = three.leader()
    three.kill(second)
    assert claim(three, "kept", "/ack").json["result"] == "already"
    counts = at_leader(three, "GET", "/v1/topics/kept/stats").json["counts"]
    assert (counts["acked"], counts["leased"]) == (8_000, 0)
    three.start(second)
    three.caught_up()


def test_a_new_leader_publishes_a_transaction(three: ThreeNodes) -> None:
    """Every row once on every node, also on the one that was killed and comes back."""
    at_leader(three, "POST", "/v1/transactions", {"transaction": "x"})
    for part in range(PARTS):
        ids = [f"{part:04}{row:05}".encode() for row in range(ROWS)]
        columns = {"delay_ms": 3_600_000, "id_size": 9, "id": b"".join(ids)}
        path = f"{X}/parts?topic=t&part={part}"
        assert at_leader(three, "POST", path, batch(ids, **columns)).json["rows"] == ROWS
    winners = [{"part": part, "attempt": 0, "rows": ROWS} for part in range(PARTS)]
    leader = three.leader()
    answer = at_leader(three, "POST", f"{X}/commit", {"winners": winners})
    three.kill(leader)
    assert answer.json["result"] == "done"
    again = at_leader(three, "POST", f"{X}/commit", {"winners": winners}).json
    assert (again["result"], again["rows"]) == ("already", PARTS * ROWS)
    assert at_leader(three, "GET", "/v1/topics/t/stats").json["counts"]["waiting"] == PARTS * ROWS

    def published() -> bool:
        found = at_leader(three, "GET", X).json
        return bool(found["published"] == PARTS * ROWS)

    three.until(published)
    three.start(leader)
    three.caught_up()
    for node in NODES:
        shown = three.call(node, "GET", f"{X}?read=local").json
        assert shown["results"]["created"] == shown["published"] == PARTS * ROWS
        counts = three.call(node, "GET", "/v1/topics/t/stats?read=local").json["counts"]
        assert counts["waiting"] == PARTS * ROWS


def test_the_time_without_a_leader_is_a_take_over(start_three: Callable[..., ThreeNodes]) -> None:
    """The whole time, not only that since the election.

    Method: no two nodes run when the message becomes due, nor half a second later.
    """
    three = start_three()
    message = {"body": "x", "id": "a", "delay_ms": DELAY_MS}
    due_ms = at_leader(three, "POST", "/v1/topics/t/messages", message).json["deliver_at_ms"]
    three.caught_up()
    stopped, other = three.followers()
    (leader,) = {*NODES} - {stopped, other}
    three.kill(leader)
    three.signal(stopped, signal.SIGSTOP)
    assert time.time() * 1_000 < due_ms, "the machine is too slow for this test"
    time.sleep(due_ms / 1_000 + 0.5 - time.time())
    three.signal(stopped, signal.SIGCONT)

    def received() -> Any:
        body = {"max": 1, "wait_ms": 1_000}
        return at_leader(three, "POST", "/v1/topics/t/receive", body).json["messages"]

    three.until(received)
    waits = at_leader(three, "GET", "/v1/topics/t/messages/a?life=true").json["waits"]
    assert waits[0]["cause"] == "take_over", waits
    assert waits[0]["from_ms"] == due_ms
    assert waits[0]["until_ms"] >= due_ms + 500
    assert "unknown" not in {wait["cause"] for wait in waits}
    (follower,) = three.followers()
    stats = three.call(follower, "GET", "/v1/topics/t/stats?read=local")
    assert stats.json["bounded_by"] is None
