"""Expiries: what is kept of the messages that expire is bounded by what is ready."""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.ready.expiries import OUTDATED_MAX, SHARED, Expiries
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import INDEX_ENTRY, RowArray
from tests.storage.fake_disk import FakeDisk

LATE_MS = 10**12


def expiring(at_ms: int) -> RowArray:
    rows = np.zeros(1, INDEX_ENTRY)
    rows["expires_at"] = at_ms
    return rows


def test_short_ttls_before_a_long_one_leave_nothing() -> None:
    """Each of them makes the long one the first to expire once more."""
    disk = FakeDisk()
    expiries = Expiries(lambda owner: ScratchQueue(disk, f"{owner}.run"))
    expiries.add(7, np.array([1]), expiring(LATE_MS))
    expiries.add(SHARED, np.array([2]), expiring(LATE_MS + 1))
    for at_ms in range(5_000):
        expiries.add(SHARED, np.array([3 + at_ms]), expiring(at_ms))
        assert expiries.next() == (at_ms, SHARED)
        assert expiries.take(SHARED, at_ms, 10).tolist() == [3 + at_ms]
    assert len(expiries) == 2
    assert len(expiries._firsts) <= OUTDATED_MAX + 4
    assert expiries.next() == (LATE_MS, 7)
    assert expiries.take(7, LATE_MS, 10).tolist() == [1]
    assert expiries.next() == (LATE_MS + 1, SHARED)
    assert expiries.take(SHARED, LATE_MS + 1, 10).tolist() == [2]
    assert expiries.next() is None
