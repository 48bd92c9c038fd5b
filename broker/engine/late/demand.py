"""Which messages the consumers of one group asked for, and when.

Calls with a tag filter or with ids leave other messages waiting though somebody asks. So a message
is explained by the calls that would have taken it: by the masks of its tags and of the filters. A
mask may match a message that the filter rejects, and then the call counts as one for the message:
`filtered_out` is said only of a message that no call could have taken. Nothing is known of the time
before `since_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

Masks: TypeAlias = tuple[int, ...]
"""What a call asks for: messages whose tag mask contains one of these."""
EVERYTHING: Final[Masks] = (0,)
IDS: Final[Masks] = ()
"""Messages by their ids: no other one, and such a message is taken as soon as it is ready."""
MASKS_MAX: Final = 64
"""Filters of a group that are remembered, as many as have queues. What is asked for with others
counts as everything.
"""
GAPS_MAX: Final = 8
"""Gaps between calls that are remembered, of each filter."""
SHORT_MS: Final = 100
"""A call that was no longer joins the gaps around it, so that a consumer with many short calls
fills no list. `busy_ms` may be wrong by as much.
"""
USED_MS: Final = 60_000
"""Consumers poll at least as often: one that asked this recently is there."""
AWAY_MS: Final = 900_000
"""A consumer that asked this recently may be busy: its messages wait for it."""
_Time: TypeAlias = tuple[int, int]


class Gap(NamedTuple):
    """No call asked in this time; messages of the group were under lease until `busy_ms`."""

    from_ms: int
    busy_ms: int
    until_ms: int

    def joined(self, later: Gap) -> Gap | None:
        """Both as one gap; None if that hides a longer call, whether messages were under lease, or
        that a consumer asked in the last `USED_MS`.
        """
        if not 0 <= later.from_ms - self.until_ms <= SHORT_MS:
            return None
        if later.until_ms - self.from_ms > USED_MS:
            return None
        if max(self.until_ms - self.busy_ms, later.until_ms - later.busy_ms) <= SHORT_MS:
            return Gap(self.from_ms, later.busy_ms, later.until_ms)
        if max(self.busy_ms - self.from_ms, later.busy_ms - later.from_ms) <= SHORT_MS:
            return Gap(self.from_ms, self.busy_ms, later.until_ms)
        return None


class Absence(NamedTuple):
    """When nobody asked for a message, in times without overlaps and in order."""

    filtered_out: list[_Time]
    """Others asked in the last `USED_MS`, and nobody who would have taken it in `AWAY_MS`."""
    busy: list[_Time]
    """A consumer that would have taken it did not ask, while messages were under lease."""
    nobody: list[_Time]
    """A consumer that would have taken it did not ask, and none was under lease."""


class _Asker:
    """The calls that ask for the same messages."""

    __slots__ = ("asked_ms", "calls", "first_ms", "gaps")

    def __init__(self, first_ms: int) -> None:
        self.first_ms = self.asked_ms = first_ms
        """When the first call began, and when the last one ended."""
        self.calls = 0
        self.gaps: list[Gap] = []

    def gap(self, busy_ms: int, now_ms: int) -> Gap:
        """The gap since the last call."""
        return Gap(self.asked_ms, max(busy_ms, self.asked_ms), now_ms)

    def keep(self, gap: Gap) -> None:
        """A call ends a gap."""
        if self.gaps and (joined := self.gaps[-1].joined(gap)) is not None:
            self.gaps[-1] = joined
        else:
            self.gaps.append(gap)
            del self.gaps[:-GAPS_MAX]


class Demand:
    """The calls of one group, since the first one that did not ask for everything."""

    def __init__(self, since_ms: int, calls: int, asked_ms: int, *, before: bool = False) -> None:
        """`calls` ask now, and may ask for anything; the last one ended at `asked_ms`, 0 = none.
        `before` = it is only known that some consumer holds leases of before that.
        """
        self.since_ms = since_ms
        self._before = before
        self._askers: dict[Masks, _Asker] = {}
        if calls or asked_ms:
            anyone = self._askers[EVERYTHING] = _Asker(since_ms if calls else asked_ms)
            anyone.calls = calls

    def begin(self, masks: Masks, busy_ms: int, now_ms: int, gap_min_ms: int) -> None:
        """A call asks. Messages of the group were under lease until `busy_ms`. Shorter gaps than
        `gap_min_ms` are not kept.
        """
        if self._before and (masks == EVERYTHING or busy_ms < now_ms):
            self._before = False
            if masks != EVERYTHING:
                # No leases are left. The consumer asks again or is gone: what it would have taken
                # before is not known.
                self._askers.pop(EVERYTHING, None)
                self.since_ms = max(self.since_ms, busy_ms)
        asker = self._askers.get(masks)
        if asker is None:
            if masks != EVERYTHING and not self._make_room():
                self.begin(EVERYTHING, busy_ms, now_ms, gap_min_ms)
                return
            asker = self._askers[masks] = _Asker(now_ms)
        elif not asker.calls and now_ms - asker.asked_ms >= gap_min_ms:
            asker.keep(asker.gap(busy_ms, now_ms))
        asker.calls += 1

    @property
    def wants_all(self) -> bool:
        """Whether a call asks now that may take any message."""
        anyone = self._askers.get(EVERYTHING)
        return anyone is not None and anyone.calls > 0

    def end(self, masks: Masks, now_ms: int) -> None:
        """A call has ended. It counts as one for everything if it began before the first one here,
        or without room for its filter.
        """
        for each in (masks, EVERYTHING):
            asker = self._askers.get(each)
            if asker is not None and asker.calls:
                asker.calls -= 1
                asker.asked_ms = now_ms
                return

    def _make_room(self) -> bool:
        """Forget the filter that was not used for longest if there are too many; False if all of
        them are in use.
        """
        if len(self._askers) < MASKS_MAX:
            return True
        idle = [
            (asker.asked_ms, each)
            for each, asker in self._askers.items()
            if not asker.calls and each != EVERYTHING
        ]
        if not idle:
            return False
        asked_ms, oldest = min(idle)
        del self._askers[oldest]
        # Until then its consumer may have been busy.
        self.since_ms = max(self.since_ms, asked_ms + AWAY_MS)
        return True

    def recent(self, now_ms: int) -> set[Masks]:
        """What is asked for by consumers that may be there; empty if none asked in `USED_MS`, or
        if that is not known.
        """
        last = {
            each: now_ms if asker.calls else asker.asked_ms for each, asker in self._askers.items()
        }
        if self.since_ms > now_ms or now_ms - max(last.values(), default=0) > USED_MS:
            return set()
        return {each for each, asked_ms in last.items() if now_ms - asked_ms <= AWAY_MS}

    def absence(self, tag_mask: int, busy_ms: int, now_ms: int) -> Absence:
        """Why a message with this mask of tags waited for a call, if it was ready all the time.
        Messages of the group were under lease until `busy_ms`.
        """
        first_ms = now_ms
        asked: list[_Time] = []
        here: list[_Time] = []
        others: list[_Time] = []
        busy: list[_Time] = []
        for masks, asker in self._askers.items():
            gaps = asker.gaps if asker.calls else [*asker.gaps, asker.gap(busy_ms, now_ms)]
            if any(tag_mask & mask == mask for mask in masks):
                first_ms = min(first_ms, asker.first_ms)
                asked += _asked(asker, gaps, 0, now_ms)
                here += _asked(asker, gaps, AWAY_MS, now_ms)
                busy += [(each.from_ms, each.busy_ms) for each in gaps]
            else:
                others += _asked(asker, gaps, USED_MS, now_ms)
        away = _without([(self.since_ms, now_ms)], _joined(here))
        # Before the first call for it, the gaps of the whole group tell.
        absent = _without([(max(first_ms, self.since_ms), now_ms)], _joined(asked))
        busy = _joined(busy)
        return Absence(_both(away, _joined(others)), _both(absent, busy), _without(absent, busy))


def _asked(asker: _Asker, gaps: Iterable[Gap], after_ms: int, now_ms: int) -> list[_Time]:
    """When calls asked, and for `after_ms` after each."""
    times, from_ms = [], asker.first_ms
    for gap in gaps:
        if gap.from_ms + after_ms < gap.until_ms:
            times.append((from_ms, gap.from_ms + after_ms))
            from_ms = gap.until_ms
    return [*times, (from_ms, now_ms)]


def _joined(times: Iterable[_Time]) -> list[_Time]:
    """The times in order, without overlaps."""
    out: list[_Time] = []
    for from_ms, until_ms in sorted(times):
        if from_ms >= until_ms:
            continue
        if out and from_ms <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], until_ms)
        else:
            out.append((from_ms, until_ms))
    return out


def _both(one: Sequence[_Time], other: Sequence[_Time]) -> list[_Time]:
    """The times that are in both. Each list is in order and has no overlaps."""
    out: list[_Time] = []
    at = 0
    for from_ms, until_ms in one:
        while at < len(other) and other[at][1] <= from_ms:
            at += 1
        for first_ms, last_ms in other[at:]:
            if first_ms >= until_ms:
                break
            if max(from_ms, first_ms) < min(until_ms, last_ms):
                out.append((max(from_ms, first_ms), min(until_ms, last_ms)))
    return out


def _without(one: Sequence[_Time], other: Sequence[_Time]) -> list[_Time]:
    """The times of the first without those of the second."""
    # From the end of each time of the second to the begin of its next one.
    ends = one[-1][1] if one else 0
    edges = [0, *(edge for time in other for edge in time), ends]
    return _both(one, list(zip(edges[::2], edges[1::2], strict=True)))
