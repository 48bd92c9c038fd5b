"""State pages never lead the log: a frame that was lost leaves no state behind."""

from __future__ import annotations

import numpy as np
import pytest

from delaylog.storage.layout import MessageState


def run_while_the_log_stands(work) -> None:
    """Run background work until it asks to wait for the log."""
    for step in work:
        if callable(step):
            step()
        elif step is not None:
            return


@pytest.mark.parametrize("which", ["states", "checkpoint"])
def test_a_lost_lease_frame_leaves_the_message_ready(host, which: str) -> None:
    """Pages are copied while a LEASE frame is only in memory; then the process is gone."""
    host.send(2)
    assert len(host.receive(1, lease=1_000, turn=False)) == 1
    engine = host.engine
    if which == "states":
        work = engine.housekeeping.states_work()
    else:
        work = engine.upkeep.checkpoint(lambda: host.now_ms)
    run_while_the_log_stands(work)
    host.sync()
    assert len(host.receive(1, lease=1_000, turn=False)) == 1
    run_while_the_log_stands(work)
    work.close()
    host.crash()
    assert host.bodies() == [b"1"]
    host.advance(3_000)
    assert [m.body for m in host.receive(lease=1_000)] == [b"0"]
    host.advance(60_000)
    assert sorted(host.bodies()) == [b"0", b"1"]
    host.check_counts()


def test_two_state_writers_take_turns(host) -> None:
    """A checkpoint and the state writer together: the newest states stand in the file."""
    host.send(300)
    first = host.receive(100)
    one, two = (
        host.engine.housekeeping.states_work(),
        host.engine.upkeep.checkpoint(lambda: host.now_ms),
    )
    jobs = []
    for number, work in enumerate((one, two, one, two, two, one, two, one, two)):
        step = next(work, None)
        if callable(step):
            step()
            jobs.append(number)
        elif step is not None:
            host.sync()
        if number == 3:
            host.ack(first[:50])
    assert jobs
    host.engine.run_inline(one)
    host.engine.run_inline(two)
    host.checkpoint()
    hours = host.engine.state.hours
    refs = np.array([m.origin for m in first], np.int64)
    expected = [MessageState.ACKED] * 50 + [MessageState.LEASED] * 50
    assert hours.get_states(refs)["state"].tolist() == expected
    host.restart()
    hours = host.engine.state.hours
    assert hours.get_states(refs)["state"].tolist() == expected
    host.check_counts()
