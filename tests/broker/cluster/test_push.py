"""Pushes of a cluster of three: the leader pushes, and the next one goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.cluster.three_nodes import NODES, TRIES, Answer, ThreeNodes
from tests.broker.push.sink import Sink, started_sink
from tests.waiting import await_that

TARGET = "/v1/topics/t/groups/default/target"
LEASE_S = 35
"""A target's timeout of five seconds, and what its leases are longer."""


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with started_sink() as server:
        yield server


@pytest.fixture(scope="module")
def pushing(start_three: Callable[..., ThreeNodes], sink: Sink) -> ThreeNodes:
    port = sink.server_address[1]
    return start_three(limits=f'push_allow = "127.0.0.0/8"\npush_ports = "{port}"\n')


def call(three: ThreeNodes, method: str, path: str, body: Any = None) -> Answer:
    """A call to the leader, repeated while not all nodes know targets."""
    return three.on_leader(method, path, body, later=(0, 307, 409, 503))


def send(three: ThreeNodes, first: int, count: int, delay_ms: int, topic: str = "t") -> None:
    messages = [
        {"body": str(number), "delay_ms": delay_ms, "id": f"m{number}", "max_retry": 100}
        for number in range(first, first + count)
    ]
    assert call(three, "POST", f"/v1/topics/{topic}/messages", messages).status == 200


def test_the_next_leader_goes_on(pushing: ThreeNodes, sink: Sink) -> None:
    three = pushing
    url = f"http://127.0.0.1:{sink.server_address[1]}/"
    assert call(three, "PUT", TARGET, {"url": url}).status == 201
    send(three, 0, 50, 100)
    three.until(lambda: len(sink.got) == 50)
    # Each node has the target, and one of them pushes.
    assert Counter(body for _, body in sink.got).most_common(1)[0][1] == 1
    send(three, 50, 50, 4_000)
    three.caught_up()
    leader = three.leader()
    three.kill(leader)
    three.until(lambda: len({body for _, body in sink.got}) == 100)
    shown = call(three, "GET", TARGET).json
    assert (shown["url"], shown["state"]) == (url, "closed")
    assert call(three, "PATCH", TARGET, {"push": "off"}).json["state"] == "disabled"
    second = three.leader()
    three.start(leader)
    three.caught_up()
    before = len(sink.got)
    three.kill(second)
    send(three, 100, 5, 0)
    assert call(three, "GET", TARGET).json["disabled"] == "operator"
    assert len(sink.got) == before
    assert call(three, "PATCH", TARGET, {"push": "on"}).status == 200
    three.until(lambda: len({body for _, body in sink.got}) == 105)
    three.start(second)


def is_open(three: ThreeNodes, target: str) -> Any:
    """What is known of a target whose breaker is open."""
    shown = call(three, "GET", target).json
    return shown if shown["state"] == "open" else None


def test_an_open_breaker_stays_open_with_the_next_leader(pushing: ThreeNodes, sink: Sink) -> None:
    three, target = pushing, "/v1/topics/sick/groups/default/target"
    sink.status = 500
    send(three, 1_000, 20, 0, "sick")
    url = f"http://127.0.0.1:{sink.server_address[1]}/"
    assert call(three, "PUT", target, {"url": url}).status == 201
    for _ in range(TRIES):
        before = three.until(lambda: is_open(three, target))
        three.caught_up()
        leader = three.leader()
        tried = len(sink.got)
        three.kill(leader)
        after = call(three, "GET", target).json
        if time.time() * 1_000 < before["open_until_ms"]:
            break
        # A machine that stalls lets the pause end meanwhile; the next one is longer.
        three.start(leader)
    assert (after["open_until_ms"], after["reason"]) == (before["open_until_ms"], before["reason"])
    if after["state"] == "open":
        assert len(sink.got) == tried
    sink.status = 204
    bodies = {str(number).encode() for number in range(1_000, 1_020)}
    three.until(lambda: bodies <= {body for body, _ in sink.times})
    three.until(lambda: call(three, "GET", target).json["state"] == "closed")
    three.start(*(node for node in NODES if node not in three.running))


def test_a_kill_amid_pushes_loses_nothing_and_repeats_after_leases_only(
    pushing: ThreeNodes, sink: Sink
) -> None:
    """What was in flight comes again when its lease ends, not before."""
    three, count, concurrency = pushing, 300, 10
    sink.times.clear()
    sink.delay_s = 0.02
    url = f"http://127.0.0.1:{sink.server_address[1]}/"
    target = {"url": url, "concurrency": concurrency, "timeout_ms": 5_000}
    send(three, 2_000, count, 0, "busy")
    three.caught_up()
    path = "/v1/topics/busy/groups/default/target"
    assert call(three, "PUT", path, target).status == 201
    three.until(lambda: len(sink.times) > count // 3)
    leader = three.leader()
    three.kill(leader)
    bodies = {str(number).encode() for number in range(2_000, 2_000 + count)}

    def all_came() -> bool:
        counts = call(three, "GET", "/v1/topics/busy").json["counts"]
        return bool(bodies <= {body for body, _ in sink.times}) and counts["acked"] == count

    await_that(all_came, seconds=LEASE_S + three.wait_s)
    by_body: dict[bytes, list[float]] = {}
    for body, at_s in sink.times:
        by_body.setdefault(body, []).append(at_s)
    repeated = [times for times in by_body.values() if len(times) > 1]
    assert len(repeated) <= 3 * concurrency
    assert all(len(times) == 2 for times in repeated)
    assert all(times[1] - times[0] >= LEASE_S - 1 for times in repeated)
    three.start(leader)
