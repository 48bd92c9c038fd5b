"""Figures of recent syncs: robust, fading, and aware of a sync that hangs."""

from __future__ import annotations

from delaylog.broker.host.log_commits import (
    KEPT_SECONDS,
    SAMPLES_MIN,
    STALLED_SECONDS,
    TRANSFER_BYTES_PER_SECOND,
    WINDOW_SECONDS,
    SyncFigures,
    SyncTimes,
)


def take(times: SyncTimes, at: float, seconds: float, *, size: int = 1) -> None:
    """A job that ends at `at` and took so long."""
    times.began_s = at - seconds
    times.end(at, size)


def test_without_samples_there_is_no_figure() -> None:
    times = SyncTimes()
    assert times.recent(5.0) == SyncFigures(0, 0)
    take(times, 6.0, 0.2, size=0)
    assert times.recent(6.0) == SyncFigures(0, 0)


def test_one_outlier_moves_the_maximum_alone() -> None:
    times = SyncTimes()
    for at in range(9):
        take(times, 10 + at / 10, 0.004)
    take(times, 11.0, 0.9)
    assert times.recent(11.0) == SyncFigures(4, 900, fresh=True)
    assert times.recent(11.0 + WINDOW_SECONDS).max_ms == 900


def test_a_large_batch_on_a_plain_disk_is_no_slow_sync() -> None:
    times = SyncTimes()
    take(times, 1.0, 0.51, size=TRANSFER_BYTES_PER_SECOND // 2)
    assert times.recent(1.0) == SyncFigures(10, 10, fresh=True)


def test_a_fast_sync_is_no_missing_one() -> None:
    times = SyncTimes()
    take(times, 1.0, 0.0001)
    assert times.recent(1.0) == SyncFigures(1, 1, fresh=True)


def test_the_newest_stay_while_nothing_is_synced() -> None:
    times = SyncTimes()
    for at in range(2 * SAMPLES_MIN):
        take(times, 10 + at, 0.3 if at >= SAMPLES_MIN else 0.001)
    assert times.recent(19 + STALLED_SECONDS).fresh
    assert times.recent(19 + WINDOW_SECONDS * 2) == SyncFigures(300, 300)
    assert times.recent(19 + KEPT_SECONDS + 1) == SyncFigures(0, 0)


def test_a_sync_that_hangs_is_the_figure() -> None:
    times = SyncTimes()
    for at in range(20):
        take(times, 10 + at / 10, 0.004)
    times.began_s = 12.0
    assert times.recent(12.0 + STALLED_SECONDS / 2).median_ms == 4
    assert times.recent(14.5) == SyncFigures(2_500, 2_500, fresh=True, hangs=True)
