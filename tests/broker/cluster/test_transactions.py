"""A transaction over a failover: the leader is killed right behind the commit that it answered."""

from __future__ import annotations

from typing import Any

import msgpack

from tests.broker.answer import Answer
from tests.broker.cluster.three_nodes import NODES, ThreeNodes

BULK = "application/vnd.delaylog.batch"
PARTS, ROWS = 30, 5_000
X = "/v1/transactions/x"


def at_leader(three: ThreeNodes, method: str, path: str, body: Any = None) -> Answer:
    """A call that is repeated until somebody leads who answers it."""
    headers = {"Content-Type": BULK} if isinstance(body, bytes) else {}

    def call() -> Answer | None:
        answer = three.call(three.leader(), method, path, body, headers)
        return answer if answer.status not in (0, 307, 503) else None

    found: Answer = three.until(call)
    assert found.status == 200, found
    return found


def test_a_new_leader_publishes_on(three: ThreeNodes) -> None:
    """Every row once on every node, also on the one that was killed and comes back."""
    at_leader(three, "POST", "/v1/transactions", {"transaction": "x"})
    for part in range(PARTS):
        ids = [f"{part:04}{row:05}".encode() for row in range(ROWS)]
        columns = {
            "v": 1,
            "n": ROWS,
            "delay_ms": 3_600_000,
            "body_size": 9,
            "bodies": b"".join(ids),
            "id_size": 9,
            "id": b"".join(ids),
        }
        path = f"{X}/parts?topic=t&part={part}"
        assert at_leader(three, "POST", path, msgpack.packb(columns)).json["rows"] == ROWS
    winners = [{"part": part, "attempt": 0, "rows": ROWS} for part in range(PARTS)]
    leader = three.leader()
    answer = three.call(leader, "POST", f"{X}/commit", {"winners": winners})
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
