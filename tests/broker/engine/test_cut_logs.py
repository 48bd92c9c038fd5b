"""A leader falls with frames that were never committed: its files keep nothing of them.

Purpose: members of one log have the same hours, byte by byte, whatever a leader had applied that no
other member has.
Method: a leader sends and cancels what is not committed, while its works go on and are abandoned
wherever they are. Its log is cut, another engine takes its place, and another member leads on with
frames like those that were cut. Both have to end with the same hours.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.engine import changes
from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.send.sends import send
from delaylog.storage.hours import hour_store
from delaylog.storage.messages.batch import decode_send, encode_send
from tests.broker.engine.host import HOUR
from tests.broker.engine.member import Member, contents
from tests.broker.engine.test_standby import abandon
from tests.effort import tries


def change(engine: Engine, random: Random, now_ms: int) -> None:
    """A send of a few messages, or a cancel of some."""
    state, topic = engine.state, engine.make_topic("t", now_ms)
    names = [f"{random.randrange(100):02}" for _ in range(random.randrange(1, 13))]
    if random.random() < 0.3:
        changes.cancel(state, topic, find_ids(state, topic, names, now_ms), now_ms)
        return
    n = len(names)
    delays = [random.choice((500, HOUR, HOUR, 50 * HOUR)) for _ in range(n)]
    columns = {
        "n": n,
        "bodies": random.randbytes(40 * n),
        "body_size": 40,
        "id": "".join(names).encode(),
        "id_size": 2,
        "delay_ms": np.array(delays, np.int64),
    }
    send(state, topic, decode_send(encode_send(columns), rows_max=n), now_ms, free_bytes=1 << 60)


def works(engine: Engine, now_ms: int) -> tuple[Any, ...]:
    """What writes files of hours."""
    housekeeping = engine.housekeeping
    return (
        housekeeping.flush_work,
        housekeeping.states_work,
        lambda: engine.upkeep.checkpoint(lambda: now_ms),
    )


@pytest.mark.parametrize("near_hours", [1, hour_store.NEAR_HOURS])
@pytest.mark.parametrize("seed", range(tries(6)))
def test_nothing_of_a_cut_frame_stays(
    host: Any, member: Member, tmp_path: Path, monkeypatch: Any, seed: int, near_hours: int
) -> None:
    monkeypatch.setattr(hour_store, "NEAR_HOURS", near_hours)
    random, now_ms = Random(seed), host.now_ms
    member.lead_after(host)
    fallen = 0
    other = Member(tmp_path / "other", now_ms)
    leader, follower = member, other
    for _ in range(4):
        for committed in (True, False):
            commit = leader.log.end_position
            if not committed:
                leader.engine.state.committed = lambda commit=commit: commit
            for _ in range(random.randrange(12)):
                change(leader.engine, random, now_ms)
                leader.log.write_pending()
                leader.log.sync()
                if random.random() < 0.4:
                    steps = random.choice((3, 10, 40))
                    abandon(random.choice(works(leader.engine, now_ms))(), steps)
            if committed:
                # Its checkpoint may append a frame.
                leader.engine.run_inline(random.choice(works(leader.engine, now_ms))())
                leader.log.write_pending()
                follower.copy(leader.log, leader.log.sync())
                follower.follow(leader.log.end_position)
                follower.engine.run_inline(random.choice(works(follower.engine, now_ms))())
        fallen += leader.engine.state.position > commit
        leader.engine.state.retire(commit)
        leader.engine.close()
        leader.log.cut(commit)
        leader.make_engine()
        leader.follow(commit)
        leader, follower = follower, leader
        leader.lead(now_ms)
    follower.copy(leader.log, leader.log.end_position)
    follower.follow(leader.log.end_position)
    assert fallen
    assert contents(leader.engine) == contents(follower.engine) != {}
    other.close()
