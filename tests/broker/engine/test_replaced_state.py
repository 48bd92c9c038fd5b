"""Reference counts alone free an engine that was replaced.

Python's collector may have frozen its objects, and frees no cycle among them then
(`broker/process/parts.py`). So the collector is off here, and finds nothing in the end.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.storage.layout import HOUR_MS
from tests.broker.engine.keyspace_work import execute
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.engine.staging import Transactions

REPLACEMENTS = 3
OURS = ("delaylog.broker.engine", "delaylog.storage", "delaylog.wheel")


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


def use_everything(host: ScheduleHost, round_number: int) -> None:
    """Leave messages in every state, in near and far hours, in memory and in files."""
    host.configure(max_retry=1)
    host.put_group("other")
    for number in range(20):
        host.send(
            2,
            ids=[f"{round_number}-{number}-{letter}" for letter in "ab"],
            keys=["k", "l"],
            tags=["x", "y"],
            producer=f"p{number}",
            sequence=round_number,
        )
    host.send(20, delay=[HOUR_MS * (1 + each * 4) for each in range(20)])
    taken = host.receive(4, lease=60_000)
    host.ack(taken[:1])
    host.nack(taken[1:2])
    host.receive(1, group="other")
    host.receive(1, group="other", only=TagFilter.parse(["y"]))
    host.put("every", interval_ms=1_000)
    host.advance(3_000)
    calls = Transactions(host.engine)
    calls.begin(f"open{round_number}", host.now_ms)
    calls.stage(f"open{round_number}", [b"part"], host.now_ms)
    execute(host.engine, host.now_ms, [b"SET", b"key", b"1", b"EX", b"100"], [b"LPUSH", b"l", b"1"])
    host.flush()
    host.checkpoint(2)
    host.far_work()
    host.send(3, ids=[f"{round_number}-{letter}" for letter in "xyz"], delay=5_000)
    host.cancel([f"{round_number}-x"])
    host.begin_job("cancel")


@pytest.mark.usefixtures("no_collector")
def test_a_replaced_engine_is_freed_without_the_collector(tmp_path: Path) -> None:
    host = ScheduleHost(tmp_path / "data")
    old: list[weakref.ref[Any]] = []
    for round_number in range(REPLACEMENTS):
        use_everything(host, round_number)
        state = host.engine.state
        assert len(state.producers) == 20
        assert len(state.leases)
        old += [weakref.ref(one) for one in (host.engine, state, state.hours)]
        host.restart()
        host.engine.state.inherit(state)
        del state
        while host.engine.state.free_slice():
            pass
    assert [one() for one in old] == [None] * len(old)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    left = Counter(type(one) for one in gc.garbage)
    found = {kind.__name__ for kind in left if kind.__module__.startswith(OURS)}
    # The empty end of a list refers to itself. So does an executor of Redis commands, with its
    # queue of time-outs.
    assert found <= {"SnapshotNode", "DelayQueue"}
    host.close()
