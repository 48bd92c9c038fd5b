"""Pushes of a cluster of three: the leader pushes, and the next one goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.broker.cluster.three_nodes import Answer, ThreeNodes
from tests.broker.push.sink import Sink, started_sink

TARGET = "/v1/topics/t/groups/default/target"


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with started_sink() as server:
        yield server


@pytest.fixture(scope="module")
def pushing(start_three: Callable[..., ThreeNodes], sink: Sink) -> ThreeNodes:
    port = sink.server_address[1]
    return start_three(limits=f'push_allow = "127.0.0.0/8"\npush_ports = "{port}"\n')


def call(three: ThreeNodes, method: str, path: str, body: Any = None) -> Answer:
    """A call to whoever leads; while nobody does, or not all nodes know targets, again."""

    def ask() -> Answer | None:
        try:
            answer = three.call(three.leader(), method, path, body)
        except OSError:
            return None
        return None if answer.status in (307, 409, 503) else answer

    found: Answer = three.until(ask)
    return found


def send(three: ThreeNodes, first: int, count: int, delay_ms: int) -> None:
    messages = [
        {"body": str(number), "delay_ms": delay_ms, "id": f"m{number}"}
        for number in range(first, first + count)
    ]
    assert call(three, "POST", "/v1/topics/t/messages", messages).status == 200


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
