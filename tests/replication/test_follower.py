"""A follower: what it takes, what it vouches for, and when it cuts its log.

Of frames from a peer only what a log would accept itself is let in.
"""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.replication.epochs import NO_TICK, EpochTick
from delaylog.replication.errors import DivergedError, PeerError
from delaylog.replication.follower import Follower
from delaylog.replication.messages import Append, Takeover
from delaylog.replication.replica import split_frames
from tests.replication.memory_disk import MemoryLog, MemoryTicks
from tests.replication.parts import BEGIN, FRAME, Outbox, log_of, replica

E1, E2, E3 = 1 << 16, 2 << 16 | 1, 3 << 16 | 1


class Made:
    """A follower of a log, and its leader's messages."""

    def __init__(self, mine: MemoryLog, leader: MemoryLog) -> None:
        self.log, self.leader = mine, leader
        self.ticks = MemoryTicks()
        self.out = Outbox()
        self.follower = Follower(replica(0, mine, self.ticks, self.out), voter=True)

    def append(self, start: int, end: int, **changes: Any) -> Any:
        """The leader's frames between two places; returns the answer."""
        log = self.leader
        message = Append(
            log.epochs.last_epoch,
            start,
            log.epochs.before(start),
            0,
            1,
            NO_TICK,
            bytes(log.data[start:end]),
        )
        self.follower.append(1, message._replace(**changes))
        return self.out.last()


def test_a_tick_counts_once_its_frames_are_here() -> None:
    made = Made(MemoryLog(), log_of((E2, 2)))
    tick = EpochTick(E2, 7, 1, BEGIN + FRAME)
    assert made.append(0, BEGIN, tick=tick, seq=4).seq == 0
    assert made.ticks.tick.second == 0
    assert made.append(BEGIN, BEGIN + FRAME, tick=tick, seq=5).seq == 5
    assert made.ticks.tick == tick
    # An older tick takes nothing back, and its round was taken long ago.
    assert made.append(BEGIN, BEGIN, tick=tick._replace(second=6), seq=3).seq == 5
    assert made.ticks.tick == tick


def test_a_tick_of_another_epoch_is_not_taken() -> None:
    made = Made(MemoryLog(), log_of((E2, 0)))
    assert made.append(0, BEGIN, tick=EpochTick(E1, 9), seq=4).seq == 0


def test_epoch_begin_brings_its_tick() -> None:
    leader = MemoryLog()
    leader.append_begin(EpochTick(E2, 5, 6, 7), 8)
    made = Made(MemoryLog(), leader)
    made.append(0, leader.end)
    assert made.ticks.tick == EpochTick(E2, 5, 6, 7, 8)


def test_frames_of_a_later_epoch_than_the_leaders_are_refused() -> None:
    made = Made(MemoryLog(), log_of((E1, 0), (E3, 0)))
    with pytest.raises(PeerError):
        made.append(0, made.leader.end, epoch=E2)
    assert made.log.end == 0


def test_a_frame_across_the_end_stops_the_node() -> None:
    """The same epoch with other frame bounds cannot be: one of two logs is rotten."""
    made = Made(MemoryLog(), log_of((E2, 3)))
    made.append(0, BEGIN + FRAME)
    made.log.data += bytes(8)
    with pytest.raises(DivergedError):
        made.append(BEGIN, made.leader.end)


def test_it_takes_over_only_from_where_the_leader_ended() -> None:
    made = Made(MemoryLog(), log_of((E2, 2)))
    end = made.leader.end
    made.append(0, end)
    takeover = Takeover(E2, end, EpochTick(E2, 9, 0, end))
    assert not made.follower.holds(takeover)
    made.log.sync()
    assert made.follower.holds(takeover)
    assert not made.follower.holds(takeover._replace(end=end - FRAME))
    assert not made.follower.holds(takeover._replace(epoch=E1))
    made.follower.take_over(takeover)
    assert made.ticks.tick == takeover.tick


# --------------------------------------------------------------------------- frames


LOG = log_of((1 << 16, 2), (2 << 16, 1))
DATA = bytes(LOG.data)


def test_frames_are_split() -> None:
    frames = split_frames(DATA, 0, 0)
    assert [frame.end for frame in frames] == LOG.ends
    assert [frame.begins for frame in frames] == [True, False, False, True, False]
    assert [frame.epoch >> 16 for frame in frames] == [1, 1, 1, 2, 2]
    assert frames[3].tick.epoch == 2 << 16
    assert split_frames(b"", 500, 1) == []
    first = BEGIN + FRAME
    assert split_frames(memoryview(DATA)[first:], first, 1 << 16) == frames[2:]


@pytest.mark.parametrize(
    ("data", "position", "epoch", "says"),
    [
        (DATA, 8, 0, "no frame begins at 8"),
        (DATA[1:], 1, 0, "no frame begins at 1"),
        (DATA[:-1], 0, 0, "cut short"),
        (DATA[: BEGIN + 10], 0, 0, "no frame begins at 64"),
        (DATA[:-1] + b"\xff", 0, 0, "damaged"),
        # The epoch rises by EPOCH_BEGIN only, and it does rise there.
        (DATA[BEGIN:], BEGIN, 0, "has epoch 0x10000"),
        (DATA, 0, 1 << 16, "has epoch 0x10000"),
        (DATA, 0, 3 << 16, "has epoch 0x10000"),
    ],
)
def test_all_else_is_refused(data: bytes, position: int, epoch: int, says: str) -> None:
    with pytest.raises(PeerError, match=says):
        split_frames(data, position, epoch)


def test_every_flipped_bit_is_seen() -> None:
    for at in range(len(DATA)):
        with pytest.raises(PeerError):
            split_frames(DATA[:at] + bytes([DATA[at] ^ 4]) + DATA[at + 1 :], 0, 0)
