"""Why a message was late at three real nodes: its leader died, and what a follower may say."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from tests.broker.cluster.three_nodes import ThreeNodes

DELAY_MS = 3_000


def test_a_leader_that_dies(start_three: Callable[..., ThreeNodes]) -> None:
    """Purpose: the whole time without a leader is `take_over`, not only that since the election.
    Method: no two nodes run when the message becomes due, nor half a second later."""
    three = start_three()
    leader = three.leader()
    sent = three.call(
        leader, "POST", "/v1/topics/t/messages", {"body": "x", "id": "a", "delay_ms": DELAY_MS}
    )
    assert sent.status == 200, sent
    due_ms = sent.json["deliver_at_ms"]
    three.caught_up()
    stopped, _ = three.followers()
    three.kill(leader)
    three.signal(stopped, signal.SIGSTOP)
    assert time.time() * 1_000 < due_ms, "the machine is too slow for this test"
    time.sleep(due_ms / 1_000 + 0.5 - time.time())
    three.signal(stopped, signal.SIGCONT)
    second = three.leader()

    def received() -> Any:
        body = {"max": 1, "wait_ms": 1_000}
        return three.call(second, "POST", "/v1/topics/t/receive", body).json.get("messages")

    three.until(received)
    waits = three.call(second, "GET", "/v1/topics/t/messages/a?life=true").json["waits"]
    assert waits[0]["cause"] == "take_over", waits
    assert waits[0]["from_ms"] == due_ms
    assert waits[0]["until_ms"] >= due_ms + 500
    assert "unknown" not in {wait["cause"] for wait in waits}
    (follower,) = [node for node in three.running if node != second]
    stats = three.call(follower, "GET", "/v1/topics/t/stats?read=local")
    assert stats.json["bounded_by"] is None
