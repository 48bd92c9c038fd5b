"""The clock is set back (and that is confirmed) or ahead: never early, no stall, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.model import Backoff
from delaylog.storage.layout import MessageState

SECOND = 1_000
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("ms", [5 * SECOND, 2 * HOUR, DAY])
def test_a_message_sent_after_the_step_comes_at_its_time(host: Any, ms: int, crash: bool) -> None:
    host.send(3, delay=0)
    host.advance(10 * SECOND)
    host.checkpoint()
    host.set_back(ms)
    host.send([b"new"], delay=SECOND)
    host.send([b"hours"], delay=3 * HOUR)
    if crash:
        host.restart()
    host.advance(SECOND - 1)
    assert b"new" not in host.bodies()
    host.advance(1)
    assert b"new" in host.bodies()
    host.advance(3 * HOUR - SECOND - 1)
    assert b"hours" not in host.bodies()
    host.advance(1)
    assert b"hours" in host.bodies()


def test_what_was_ready_waits_for_its_time_by_the_new_clock(host: Any) -> None:
    sent = host.send([b"a", b"b"], delay=[0, 5 * SECOND])
    host.advance(6 * SECOND)
    host.set_back(HOUR)
    assert host.receive() == []
    assert [host.state_of(name) for name in host.ids_of(sent)] == [MessageState.WAITING] * 2
    host.advance(HOUR - 6 * SECOND)
    assert host.bodies() == [b"a"]
    host.advance(5 * SECOND)
    assert host.bodies() == [b"b"]


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("ms", [-DAY, -2 * HOUR, 2 * HOUR, DAY])
def test_what_is_left_of_a_lease_stays(host: Any, ms: int, crash: bool) -> None:
    host.configure(backoff=Backoff(first_ms=0))
    host.send(1, delay=0)
    (message,) = host.receive(lease=30 * SECOND)
    host.advance(10 * SECOND)
    if ms < 0:
        host.set_back(-ms)
    else:
        host.jump_ahead(ms)
    if crash:
        host.restart()
    host.advance(19 * SECOND)
    assert host.receive() == []
    assert host.state_of(message.any_id) is MessageState.LEASED
    host.advance(2 * SECOND)
    state = host.state_of(message.any_id)
    assert state is not MessageState.LEASED
    if ms > 0:
        assert [m.attempts for m in host.receive()] == [2]


def test_a_forward_step_brings_everything_oldest_first(host: Any) -> None:
    host.send(500, delay=list(range(0, 500 * 60_000, 60_000)))
    host.jump_ahead(DAY)
    assert host.bodies() == [b"%d" % k for k in range(500)]


def test_a_restart_behind_the_time_it_told_holds_that_time(open_host: Callable[..., Any]) -> None:
    host = open_host()
    host.send(1, delay=0)
    host.advance(DAY)
    told = host.now_ms
    host.engine.write_tick(told)
    host.engine.close()
    host.now_ms -= DAY
    host._open()
    assert host.engine.started_ms == told


def test_after_an_accepted_step_a_restart_goes_on_from_the_new_time(host: Any) -> None:
    host.send(1, delay=0)
    host.engine.write_tick(host.now_ms)
    host.set_back(DAY)
    host.send(1, delay=0)
    host.restart()
    assert host.engine.started_ms == host.now_ms


@pytest.mark.parametrize("seed", range(6))
def test_hours_that_were_deleted_come_to_be_again(host: Any, seed: int) -> None:
    """Their rows are numbered from one again and never pass for the old ones."""
    random = Random(seed)
    host.configure(ended_keep_ms=0)
    old = host.send(20, delay=0)
    host.ack(host.receive())
    hour = host.now_ms // HOUR
    for _ in range(8):
        host.advance(HOUR)
        host.send(1, delay=0)
        host.ack(host.receive())
        host.checkpoint()
    assert hour not in host.engine.state.hours.counts
    host.set_back(8 * HOUR)
    fresh = host.send([b"again-%d" % k for k in range(7)], delay=60 * SECOND)
    assert fresh.refs[0] >> 43 == hour
    steps = [host.flush, host.checkpoint, host.restart, host.crash]
    for step in random.choices(steps, k=5):
        step()
    assert host.find(host.ids_of(old)) == [None] * 20
    host.advance(59 * SECOND)
    assert host.receive() == []
    host.advance(SECOND)
    assert sorted(host.bodies()) == [b"again-%d" % k for k in range(7)]
