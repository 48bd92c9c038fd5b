"""Real hand-outs of an engine by minutes of its own clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delaylog.broker.engine.watch.histogram import BOUNDS_MS
from delaylog.broker.host.watch import lateness
from delaylog.broker.host.watch.lateness import MINUTE_MS, RECENT, RecentLateness
from tests.broker.engine.host import Host
from tests.broker.host.running_node import running


class Watched:
    """A host whose minutes are counted from the beginning of one."""

    def __init__(self, folder: Path) -> None:
        self.host = Host(folder)
        self.recent = RecentLateness()
        self.host.advance(-self.host.now_ms % MINUTE_MS)
        self.first = self.host.now_ms // MINUTE_MS
        self.look()

    def look(self) -> None:
        self.recent.look(self.host.now_ms, self.host.engine.state.series)

    def hand_out(self, late_ms: int) -> None:
        """A message of its own, this late, and a look."""
        self.host.send(1, delay=0)
        self.host.advance(late_ms)
        self.host.ack(self.host.receive())
        self.look()

    def until_minute(self, minute: int) -> None:
        """Advance to the start of a minute, counted from the first one."""
        self.host.advance((self.first + minute) * MINUTE_MS - self.host.now_ms)
        self.look()

    def found(self) -> dict[int, list[int]]:
        """By minute, the bounds below which there were messages."""
        out = {}
        for each in self.recent.minutes(self.host.now_ms):
            from_ms, counts = each["from_ms"], each["counts"]
            assert isinstance(from_ms, int)
            assert isinstance(counts, list)
            assert len(counts) == len(BOUNDS_MS) + 1
            bounds = [bound for bound, n in zip(BOUNDS_MS, counts, strict=False) for _ in range(n)]
            out[from_ms // MINUTE_MS - self.first] = bounds
        return out


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.host.close()


def test_a_minute_is_shown_when_it_has_ended(watched: Watched) -> None:
    watched.hand_out(8)
    watched.hand_out(40)
    assert watched.found() == {}
    watched.until_minute(1)
    assert watched.found() == {0: [10, 50]}
    watched.hand_out(200)
    watched.until_minute(3)
    assert watched.found() == {0: [10, 50], 1: [250]}


def test_old_minutes_are_forgotten(watched: Watched) -> None:
    for minute in range(RECENT + 10):
        watched.until_minute(minute)
    assert list(watched.found()) == list(range(9, RECENT + 9))
    watched.until_minute(RECENT + 50)
    assert min(watched.found()) == 50


def test_another_engine_counts_from_zero(watched: Watched) -> None:
    """Purpose: no negative counts, and none twice. Method: an engine that has counted less."""
    for _ in range(3):
        watched.hand_out(8)
    watched.until_minute(1)
    watched.host.restart(pause_ms=10)
    watched.look()
    watched.hand_out(40)
    watched.until_minute(2)
    assert watched.found() == {0: [10, 10, 10], 1: [50]}


def test_a_clock_that_was_set_back(watched: Watched) -> None:
    """Minutes to come are not shown, and replaced when they have ended again."""
    for minute in range(1, 4):
        watched.hand_out(8)
        watched.until_minute(minute)
    series, now_ms = watched.host.engine.state.series, watched.host.now_ms
    watched.recent.look(now_ms - 2 * MINUTE_MS, series)
    assert len(watched.recent.minutes(now_ms - 2 * MINUTE_MS)) == 1
    watched.recent.look(now_ms - MINUTE_MS, series)
    assert watched.found() == {0: [10], 1: []}


async def test_a_node_looks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "MINUTE_MS", 200)
    async with running(tmp_path) as it:
        await it.until(lambda: len(it.node.recent_lateness.minutes(it.clock.now_ms())) > 1)
