"""Frames from a peer: only what a log would accept itself is let in."""

from __future__ import annotations

import pytest

from delaylog.replication.errors import PeerError
from delaylog.replication.replica import split_frames
from tests.replication.parts import BEGIN, FRAME, log_of

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
