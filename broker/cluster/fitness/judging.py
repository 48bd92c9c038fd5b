"""Whether this node is fit to lead, with hysteresis.

A node judges itself: it is cut off while it leads and no majority acknowledges its log, full while
sends are refused for lack of space, and slow while its syncs take long and several times as long as
those of another voter. Each has to last before the judgement changes, so it cannot flap whatever
the readings do. Its clock may also be far off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FULL_ON_MS: Final = 1_000
FULL_OFF_MS: Final = 5_000
SLOW_ON_MS: Final = 3_000
HANGS_ON_MS: Final = 1_000
"""The same while a sync does not end: nothing is acknowledged until another node leads."""
SLOW_OFF_MS: Final = 10_000
SLOW_SYNC_MS: Final = 200
"""A median sync below this is never slow: sends are acknowledged by the majority's disks anyway."""
SLOW_FACTOR: Final = 4
"""Compared with the fastest fit voter: when all disks are slow, a hand-over improves nothing."""
GOOD_SHARE: Final = 2
"""A slow node is good again below half of the greater of the two bounds."""
CUT_ON_MS: Final = 500
"""How long that lasts before the leader gives up, so that a stall of this process is no reason."""
CUT_OFF_MS: Final = 5_000
"""How long log has to arrive, here as a follower or at a majority, until the node is fit again."""
CUT_OFF_MS_MAX: Final = 1_800_000
CUT_AGAIN_MS: Final = 3_600_000
"""That time doubles if the node is cut off again within this time: a network that loses only what
it is rarely asked to carry looks sound in between."""
GAP_MS: Final = 2_000
"""Readings further apart than this say nothing about the time in between."""


class Unfit(StrEnum):
    """Why a node is not fit to lead; the values go over the wire and into metrics."""

    FULL = "full"
    SLOW = "slow"
    CLOCK = "clock"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """What a node knows of its own disk and log at one moment."""

    full: bool = False
    """Sends are refused for lack of space, or the log finds none."""
    free_bytes: int = 0
    sync_ms: int = 0
    """Median of recent syncs of the log; 0 = there was none."""
    sync_max_ms: int = 0
    sync_fresh: bool = False
    """The log was synced a moment ago. Older syncs change no judgement: a short burst of slow ones
    before a pause does not make a node slow, and a pause does not make it fit."""
    sync_hangs: bool = False
    """A sync of the log has run for more than a second and has not ended."""
    unapplied_bytes: int = 0
    """Committed log that the engine has not applied."""
    cut: bool | None = None
    """It leads, and no majority acknowledges its log; False = log arrives, here or at a majority;
    None = unknown."""
    clock_off: bool = False
    """The node's clock is far from the median of all clocks; see watch/clock_watch.py."""


class Latch:
    """A condition that must hold for a time before it counts, and be gone for a time to end."""

    def __init__(self, *, on_ms: int, off_ms: int, off_ms_max: int = 0, again_ms: int = 0) -> None:
        """`off_ms` doubles, up to `off_ms_max`, if it counts again within `again_ms`."""
        self.on = False
        self._on_ms, self._off_ms = on_ms, off_ms
        self._off_ms_min, self._off_ms_max = off_ms, off_ms_max
        self._again_ms = again_ms
        self._ended_ms: int | None = None
        self._since_ms: int | None = None
        self._seen_ms = 0

    def look(self, now_ms: int, *, bad: bool, good: bool, on_ms: int | None = None) -> bool:
        """Take a reading, which is bad, good or neither; one that is neither changes nothing.

        `on_ms` replaces the time that bad readings have to last, for this reading.
        """
        assert not (bad and good), "a reading is bad, good or between"
        gap = now_ms - self._seen_ms > GAP_MS
        self._seen_ms = now_ms
        if not (good if self.on else bad):
            self._since_ms = None
        elif self._since_ms is None or gap:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= (self._off_ms if self.on else on_ms or self._on_ms):
            self.on, self._since_ms = not self.on, None
            if not self.on:
                self._ended_ms = now_ms
            elif self._ended_ms is not None and now_ms - self._ended_ms < self._again_ms:
                self._off_ms = min(2 * self._off_ms, self._off_ms_max)
            else:
                self._off_ms = self._off_ms_min
        return self.on


class Judge:
    """The judgement of one node on itself."""

    def __init__(self) -> None:
        self._cut = Latch(
            on_ms=CUT_ON_MS,
            off_ms=CUT_OFF_MS,
            off_ms_max=CUT_OFF_MS_MAX,
            again_ms=CUT_AGAIN_MS,
        )
        self._full = Latch(on_ms=FULL_ON_MS, off_ms=FULL_OFF_MS)
        self._slow = Latch(on_ms=SLOW_ON_MS, off_ms=SLOW_OFF_MS)
        self._clock_off = False
        self._cut_now = False

    @property
    def unfit(self) -> Unfit | None:
        """Why this node is not fit to lead; None while it is."""
        if self._full.on:
            return Unfit.FULL
        if self._slow.on:
            return Unfit.SLOW
        if self._clock_off:
            return Unfit.CLOCK
        return Unfit.CUT if self._cut.on else None

    @property
    def is_cut(self) -> bool:
        """Whether it is cut off at this moment; `unfit` stays until log has arrived for a while."""
        return self._cut.on and self._cut_now

    def look(self, mine: Fitness, others_sync_ms: Iterable[int], now_ms: int) -> Unfit | None:
        """Take a reading; `others_sync_ms` = the medians of the fit voters that have one."""
        self._cut_now = mine.cut is True
        self._cut.look(now_ms, bad=self._cut_now, good=mine.cut is False)
        self._full.look(now_ms, bad=mine.full, good=not mine.full)
        fastest = min((ms for ms in others_sync_ms if ms), default=0)
        self._slow.look(
            now_ms,
            bad=mine.sync_fresh and _is_slow(mine.sync_ms, fastest, 1),
            good=(mine.sync_fresh or not mine.sync_ms)
            and not _is_slow(mine.sync_ms, fastest, GOOD_SHARE),
            on_ms=HANGS_ON_MS if mine.sync_hangs else None,
        )
        # The clock watch has added hysteresis already.
        self._clock_off = mine.clock_off
        return self.unfit


def _is_slow(mine_ms: int, fastest_ms: int, share: int) -> bool:
    """Whether a median is beyond both bounds, divided by `share`."""
    if not fastest_ms:
        return False
    return mine_ms * share >= max(SLOW_SYNC_MS, SLOW_FACTOR * fastest_ms)
