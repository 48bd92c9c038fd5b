"""A consumer that waits for a key is woken when the key comes free, wherever its messages are.

A receive that finds a key held parks its messages. Then many other filters empty the lots: the
messages are in the queues again, where the waiting consumer does not look by itself. The scenes of
test_queue_scenes.py empty them in other ways.
"""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.ready.ready_queues import FILTERS_MAX
from delaylog.broker.engine.ready.tag_filter import TagFilter
from tests.broker.engine.ready.test_keys import send

X, Y = (TagFilter.parse([tag]) for tag in "xy")
HOUR = 3_600_000


@pytest.fixture
def host(open_host: Any) -> Any:
    host = open_host()
    host.configure(backoff={"first_ms": HOUR}, max_retry=1)
    return host


def ask_with_many_others(host: Any) -> None:
    for k in range(FILTERS_MAX):
        host.receive(only=TagFilter.parse([f"other{k}"]))


def is_woken(host: Any) -> bool:
    """Whether the host would wake a consumer, since the last call of this."""
    marked = host.engine.state.marks.newly_ready
    woken = host.place in marked and host.topic.default.has_ready
    marked.clear()
    return woken


@pytest.mark.parametrize("parked_max", [0, 1_000], ids=["disk", "memory"])
@pytest.mark.parametrize("only", [None, X], ids=["any", "filter"])
def test_a_key_comes_free_after_its_lot_was_emptied(
    host: Any, only: TagFilter | None, parked_max: int
) -> None:
    host.topic.default.gate.parking.parked_max = parked_max
    send(host, ("a", "a0"), ("a", "a1"), ("b", "b0"), tags=["x,y", "x,y", "y"])
    held = host.receive(lease=HOUR)
    assert [m.body for m in held] == [b"a0", b"b0"]
    assert host.receive(only=Y) == host.receive(only=only) == []
    ask_with_many_others(host)
    is_woken(host)
    host.ack(held[1:])
    assert not is_woken(host), "no consumer waits for that key"
    host.ack(held[:1])
    assert is_woken(host)
    assert host.bodies(only=only) == [b"a1"]
