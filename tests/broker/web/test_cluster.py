"""What a broker that runs alone says to calls that are made for a cluster: it is all there is."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

BULK = "application/vnd.delaylog.batch"
FAR_MS = 3_600_000


@pytest.mark.parametrize("acks", ["leader", "quorum", "all"])
def test_acks_mean_this_disk(broker: Any, topic: str, acks: str) -> None:
    path, message = f"/v1/topics/{topic}/messages?acks={acks}", {"body": "x", "delay_ms": FAR_MS}
    columns = {"v": 1, "n": 1, "delay_ms": FAR_MS, "body_size": 1, "bodies": b"x"}
    assert broker.call("POST", path, message).status == 200
    assert broker.call("POST", path, [message, message]).status == 200
    assert broker.call("POST", path, message, {"Idempotency-Key": f"{topic}{acks}"}).status == 200
    assert broker.bulk(path, msgpack.packb(columns)).status == 200
    assert broker.counts(topic)["waiting"] == 5


@pytest.mark.parametrize("acks", ["none", "", "ALL", "leader,quorum"])
def test_unknown_acks(broker: Any, topic: str, assert_problem: Any, acks: str) -> None:
    """Nothing is sent, in any form."""
    path = f"/v1/topics/{topic}/messages?acks={acks}"
    for body in ({"body": "x"}, [{"body": "x"}]):
        assert_problem(broker.call("POST", path, body), 400, "bad_request", "acks")
    columns = {"v": 1, "n": 1, "delay_ms": 0, "body_size": 1, "bodies": b"x"}
    assert_problem(broker.bulk(path, msgpack.packb(columns)), 400, "bad_request", "acks")
    assert broker.counts(topic) is None


def test_reads(broker: Any, topic: str, assert_problem: Any) -> None:
    """Both words mean this node; no other is known, nor either where nothing is read."""
    message = {"body": "x", "id": "i", "delay_ms": FAR_MS}
    broker.post(f"/v1/topics/{topic}/messages", message)
    base = f"/v1/topics/{topic}"
    tails = ("", "/stats", "/forecast", "/messages", "/messages/i", "/dead", "/groups")
    for path in ("/v1/topics", "/v1/jobs", "/v1/clock", *(base + tail for tail in tails)):
        for word in ("local", "leader"):
            assert broker.call("GET", f"{path}?read={word}").status == 200
        answer = broker.call("GET", f"{path}?read=near")
        assert_problem(answer, 400, "bad_request", "read")
    assert_problem(broker.call("GET", "/metrics?read=local"), 400, "bad_request")
    assert_problem(broker.call("DELETE", f"{base}?read=local"), 400, "bad_request")
    assert_problem(broker.call("POST", f"{base}/receive?read=local", {}), 400, "bad_request")


def test_there_is_no_cluster(broker: Any, assert_problem: Any) -> None:
    for method, path in (("GET", "/v1/cluster"), ("POST", "/v1/cluster/handover")):
        problem = assert_problem(broker.call(method, path), 404, "unknown")
        assert "--cluster" in problem["detail"]
    assert_problem(broker.call("PUT", "/v1/cluster", {}), 405, "method")
    assert_problem(broker.call("GET", "/v1/cluster/nodes"), 404, "unknown")
    change = {"action": "remove", "nodes": ["1"]}
    assert_problem(broker.call("POST", "/v1/cluster/members", change), 404, "unknown")
    for body, field in (({"nodes": ["1"]}, "action"), ({"action": "add"}, "nodes")):
        answer = broker.call("POST", "/v1/cluster/members", body)
        assert_problem(answer, 400, "bad_request", field)
    answer = broker.call("POST", "/v1/cluster/handover", {"to": 1.5})
    assert_problem(answer, 400, "bad_request", "to")
    assert b"delaylog_cluster_" not in broker.call("GET", "/metrics").body
