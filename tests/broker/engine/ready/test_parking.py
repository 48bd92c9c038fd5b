"""What is parked while keys are held, for filters and for those who take any.

Filters take the first that they want of a free key, others the first there is; and each message is
parked at most once for each queue, however many receives meet it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine.ready import key_gate, parking_lot
from delaylog.broker.engine.ready.parking_lot import ParkedSpill, Parking
from delaylog.broker.engine.ready.ready_queues import FILTER_IDLE_MS
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.idle import look_after_groups
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.scratch_queue import ScratchQueue
from tests.broker.engine.ready.test_keys import send


@pytest.fixture
def host(open_host: Any) -> Any:
    host = open_host()
    host.configure(backoff={"first_ms": 0})
    return host


def test_filters_do_not_multiply_parked_messages(host: Any) -> None:
    """Many filters that match all messages of a long key: parked messages stay parked."""
    count = 300
    send(host, *[("a", str(k)) for k in range(count)], tags=["x,y,z"] * count)
    filters = [TagFilter.parse([tag]) for tag in "xyz"]
    group = host.topic.default
    for k in range(40):
        (got,) = host.receive(1, only=filters[k % 3])
        assert int(got.body) == k
        for only in (*filters, None):
            assert host.receive(only=only) == []
        assert group.gate.parked <= count
        assert len(group.ready) <= count
        assert group.ready_count == count - k - 1
        host.ack([got])
        assert group.gate.parking.count <= 4 * count, "once for each queue"
    assert host.bodies() == [b"40"]


@pytest.mark.parametrize("ask", ["receive", "peek"])
def test_the_queue_of_an_idle_filter_is_closed(host: Any, ask: str) -> None:
    """Who only peeked with it counts too: each message would go into its queue for ever."""
    state, topic, only = host.engine.state, host.topic, TagFilter.parse(["x"])
    send(host, ("a", "0"), tags=["x"])
    if ask == "receive":
        assert host.bodies(only=only) == [b"0"]
    else:
        host.peek(1, only=only)
    host.advance(FILTER_IDLE_MS)
    look_after_groups(state, host.now_ms)
    assert topic.default.ready.filtered
    host.advance(1)
    look_after_groups(state, host.now_ms)
    assert not topic.default.ready.filtered


@pytest.fixture
def all_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is parked in memory, and what is on disk is read two by two."""
    monkeypatch.setattr(
        parking_lot, "ParkedSpill", partial(ParkedSpill, slice_pairs=2, per_key_max=1)
    )
    monkeypatch.setattr(key_gate, "Parking", partial(Parking, parked_max=0))


@pytest.mark.usefixtures("all_on_disk")
@pytest.mark.parametrize("full_from_the_start", [True, False])
def test_a_full_disk_holds_up_no_other_deliveries(
    host: Any, monkeypatch: pytest.MonkeyPatch, full_from_the_start: bool
) -> None:
    """What of a free key lies on disk comes when there is space; what never got there, at once."""
    full, push = full_from_the_start, ScratchQueue.push

    def push_if_room(self: ScratchQueue, values: np.ndarray) -> None:
        if full:
            raise DiskFullError("no space")
        push(self, values)

    monkeypatch.setattr(ScratchQueue, "push", push_if_room)
    send(host, *[("a", f"a{k}") for k in range(6)], ("b", "b0"))
    held = host.receive()
    assert [m.body for m in held] == [b"a0", b"b0"]
    full = True
    host.ack(held)
    send(host, *[("", f"x{k}") for k in range(4)], *[("b", f"b{k}") for k in range(1, 3)])

    def drain() -> list[bytes]:
        out = []
        for _ in range(20):
            got = host.receive(1)
            out += [m.body for m in got]
            host.ack(got)
        return out

    seen = drain()
    assert {b"x0", b"x1", b"x2", b"x3"} <= set(seen)
    if full_from_the_start:
        assert len(seen) == 11
    full = False
    seen += drain()
    assert len(seen) == 11
    assert [body for body in seen if body.startswith(b"a")] == [b"a%d" % k for k in range(1, 6)]
    assert seen.index(b"b1") < seen.index(b"b2")
