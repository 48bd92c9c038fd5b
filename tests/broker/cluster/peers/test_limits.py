"""The bounds hold together, and changes that break them are our own mistakes."""

from __future__ import annotations

import pytest

from delaylog.broker.cluster.peers.records import RECORD_BYTES_MAX, PeerLimits
from delaylog.replication.epochs import EpochTick
from delaylog.replication.messages import Append, Fetched
from delaylog.replication.wire import FRAMES_BYTES_MAX, encode


def test_the_largest_message_fits() -> None:
    """Both kinds that carry frames."""
    frames = memoryview(bytearray(FRAMES_BYTES_MAX))
    for message in (Append(1, 2, 3, 4, 5, EpochTick(), frames), Fetched(1, 2, 3, frames)):
        assert sum(map(len, encode(message))) <= RECORD_BYTES_MAX


@pytest.mark.parametrize(
    "change",
    [
        {"ping_ms": 40},
        {"ping_ms": 250},
        {"silent_ms": 300},
        {"redial_min_ms": 300},
        {"redial_min_ms": 0},
        {"strangers_max": 0},
    ],
)
def test_contradictions(change: dict[str, int]) -> None:
    PeerLimits()
    with pytest.raises(AssertionError):
        PeerLimits(**change)
