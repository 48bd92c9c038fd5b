"""The table after a replay or a checkpoint is the table before: random calls and firings."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from delaylog.broker.engine.errors import EngineError
from tests.broker.engine.host import HOUR
from tests.broker.engine.member import Member
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.engine.schedules.test_exactly_once import some_timing
from tests.effort import tries

OVERLAPS = ("allow", "skip", "buffer_one", "replace")
NAMES = ("a", "b", "c", "d")


def rows(engine: object) -> dict[int, bytes]:
    """What the table stores of each schedule."""
    table = engine.state.schedules  # type: ignore[attr-defined]
    found = {number: table.get(number) for number in table.numbers().tolist()}
    assert len(found) == len(table)
    for one in found.values():
        assert table.find(one.topic, one.name).number == one.number
    return {number: one.pack() for number, one in found.items()}


def step(host: ScheduleHost, random: Random) -> None:
    """A call, or some time."""
    name = random.choice(NAMES)
    known = host.engine.state.schedules.find(host.topic.number, name) is not None
    what = random.randrange(9)
    if not known or what == 0:
        host.put(name, **some_timing(random), overlap=random.choice(OVERLAPS))
    elif what == 1:
        host.patch(name, body=b"%d" % random.randrange(9), overlap=random.choice(OVERLAPS))
    elif what == 2:
        random.choice((host.pause_one, host.resume_one, host.drop_one))(name)
    elif what == 3:
        with suppress(EngineError):
            host.run_now(name)
    elif what == 4:
        messages = host.receive(lease=random.choice((HOUR, 40 * HOUR)))
        host.ack([message for message in messages if random.random() < 0.7])
    elif what == 5:
        random.choice((host.purge, host.checkpoint, host.flush))()
    else:
        host.advance(random.randrange(12 * HOUR))


@pytest.mark.parametrize("seed", range(tries(12)))
def test_a_start_and_a_follower_have_the_same_table(
    host: ScheduleHost, member: Member, seed: int
) -> None:
    """By the whole log, by a checkpoint and the log behind it, and frame by frame."""
    random = Random(seed)
    for _ in range(8):
        for _ in range(10):
            step(host, random)
        member.catch_up(host)
        assert rows(member.engine) == rows(host.engine)
        before = rows(host.engine)
        host.restart()
        assert rows(host.engine) == before
