"""A sorted set: scores by member, and members ordered by (score, member).

The order is in sorted runs: an array of scores and a list of members. The *rank* of an entry is the
number of entries before it; it is valid until the next change. A search finds the first entry that
is not less, so `(score, b"")` sorts before all entries of that score.

A run keeps its scores as an array of doubles, so a search reads adjacent memory and compares
members only where scores are equal. Runs have about a thousand entries at most, so a change moves a
few KiB. A rank is the sum of the sizes of the runs before it. If there are many runs, numpy sums
them: 10 M entries are 15,000 runs.

Bounds of ranges are scores (`(1.5`, `+inf`) or members (`[a`, `(b`, `-`, `+`). A range of members
is defined only if all scores are equal. If they differ, the result is that of Redis for a small
set: a scan from the end at which the range begins, up to the first entry outside.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain
from math import inf, nextafter
from typing import Final, TypeAlias

import numpy as np

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.values.number_texts import to_bound

# ------------------------------------------------------------------------------------ the order

Entry: TypeAlias = tuple[float, bytes]
Rank: TypeAlias = int

_ALL: Final = 1 << 62
_RUN_ENTRIES_MAX: Final = 1_024
_RUN_ENTRIES: Final = _RUN_ENTRIES_MAX // 2
"""Entries of a run that was split, or built from many entries at once."""
_RUN_ENTRIES_MIN: Final = _RUN_ENTRIES // 4
"""A shorter run is merged with the next."""
_FEW_RUNS: Final = 32
"""Up to this number, the sizes of runs are summed without numpy."""


class ScoreOrder:
    """Entries (score, member). The owner ensures that each member is contained once."""

    __slots__ = ("_count", "_last_members", "_last_scores", "_members", "_scores", "_sizes")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._scores: list[array[float]] = []
        self._members: list[list[bytes]] = []
        # The last score, last member and size of each run. No run is empty.
        self._last_scores: list[float] = []
        self._last_members: list[bytes] = []
        self._sizes = array("q")
        self._count = 0
        self._fill(sorted(entries))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(map(zip, self._scores, self._members))

    # ------------------------------------------------------------------ changing

    def add(self, score: float, member: bytes) -> None:
        """Add an entry."""
        lasts = self._last_scores
        run = bisect_left(lasts, score)
        if run == len(lasts):
            self._append(score, member)
            return
        if lasts[run] == score:
            run = bisect_left(self._last_members, member, run, bisect_right(lasts, score, run))
            if run == len(lasts):
                self._append(score, member)
                return
        scores, members = self._scores[run], self._members[run]
        at = bisect_left(scores, score)
        if scores[at] == score:
            at = bisect_left(members, member, at, bisect_right(scores, score, at))
        scores.insert(at, score)
        members.insert(at, member)
        self._sizes[run] = size = len(members)
        self._count += 1
        if size > _RUN_ENTRIES_MAX:
            self._split(run)

    def update(self, entries: Iterable[Entry]) -> None:
        """Add many entries, none of which is contained."""
        merged = sorted(chain(self, entries))
        self._clear()
        self._fill(merged)

    def remove(self, score: float, member: bytes) -> None:
        """Remove an entry, which must be contained."""
        lasts = self._last_scores
        run = bisect_left(lasts, score)
        if lasts[run] == score:
            run = bisect_left(self._last_members, member, run, bisect_right(lasts, score, run))
        scores, members = self._scores[run], self._members[run]
        at = bisect_left(scores, score)
        if members[at] != member:
            at = bisect_left(members, member, at, bisect_right(scores, score, at))
            assert members[at] == member, "the entry is contained"
        left = len(members) - 1
        if at == left or left < _RUN_ENTRIES_MIN:
            self._cut(run, at, at + 1)
            if left:
                self._join(run)
            return
        del scores[at], members[at]
        self._sizes[run] = left
        self._count -= 1

    def pop(self, *, greatest: bool) -> Entry:
        """Remove and return the last or the first entry."""
        run = len(self._sizes) - 1 if greatest else 0
        at = self._sizes[run] - 1 if greatest else 0
        entry = self._scores[run][at], self._members[run][at]
        # The run at an end may become short: later pops empty it, so it is not joined.
        self._cut(run, at, at + 1)
        return entry

    def delete(self, start: Rank, stop: Rank) -> None:
        """Remove the entries from rank `start` to before `stop`."""
        if start >= stop:
            return
        run, at = self._run_of(start)
        last, before = self._run_of(stop - 1)
        if run == last:
            self._cut(run, at, before + 1)
        else:
            self._cut(last, 0, before + 1)
            self._drop(run + 1, last)
            self._cut(run, at, self._sizes[run])
        if self._sizes:
            self._join(min(run, len(self._sizes) - 1))

    # ------------------------------------------------------------------ ranks

    def find(self, score: float, member: bytes = b"") -> Rank:
        """Return the rank of the first entry that is not less than (score, member)."""
        run, at = self._search(score, member)
        return self._before(run) + at

    # ------------------------------------------------------------------ reading

    def walk(self, start: Rank, stop: Rank, offset: int = 0, most: int = _ALL) -> list[Entry]:
        """Return up to `most` entries of ranks `start` to `stop` - 1, after the first `offset`."""
        start += offset
        return self._entries(start, min(stop, start + most)) if start < stop else []

    def walk_back(self, start: Rank, stop: Rank, offset: int = 0, most: int = _ALL) -> list[Entry]:
        """Return up to `most` entries of ranks `stop` - 1 down to `start`, after `offset`."""
        stop -= offset
        first = max(start, stop - most)
        return self._entries(first, stop)[::-1] if first < stop else []

    def following(self, low: Entry, offset: int, most: int) -> list[Entry]:
        """Return up to `most` entries that are not less than `low`, after the first `offset`.

        Unlike `walk`, this needs no ranks, so it does not sum the sizes of the runs before.
        """
        run, at = self._search(*low)
        return self._collect(run, at + offset, most)

    # ------------------------------------------------------------------ runs

    def _search(self, score: float, member: bytes) -> tuple[int, int]:
        """Return the run of the first entry that is not less, and the entry's index in it."""
        lasts = self._last_scores
        run = bisect_left(lasts, score)
        if run < len(lasts) and lasts[run] == score:
            run = bisect_left(self._last_members, member, run, bisect_right(lasts, score, run))
        if run == len(lasts):
            return run, 0
        scores = self._scores[run]
        at = bisect_left(scores, score)
        if scores[at] == score:
            stop = bisect_right(scores, score, at)
            at = bisect_left(self._members[run], member, at, stop)
        return run, at

    def _before(self, run: int) -> Rank:
        """Return the number of entries before a run."""
        if run <= _FEW_RUNS:
            return sum(self._sizes[:run])
        return int(np.frombuffer(self._sizes, np.int64, run).sum())

    def _run_of(self, rank: Rank) -> tuple[int, int]:
        """Return the run of the entry at a rank, and its index in the run."""
        sizes = self._sizes
        if rank < sizes[0]:
            return 0, rank
        if len(sizes) <= _FEW_RUNS:
            run = bisect_right(list(accumulate(sizes)), rank)
        else:
            ends = np.frombuffer(sizes, np.int64).cumsum()
            run = int(ends.searchsorted(rank, "right"))
        return run, rank - self._before(run)

    def _entries(self, start: Rank, stop: Rank) -> list[Entry]:
        if stop - start <= 0 or start >= len(self):
            return []
        run, at = self._run_of(start)
        return self._collect(run, at, stop - start)

    def _collect(self, run: int, at: int, most: int) -> list[Entry]:
        """Return up to `most` entries from index `at` of a run; `at` may be beyond the run."""
        out: list[Entry] = []
        sizes = self._sizes
        while run < len(sizes) and most > 0:
            size = sizes[run]
            if at < size:
                stop = min(at + most, size)
                out += zip(self._scores[run][at:stop], self._members[run][at:stop], strict=True)
                most -= stop - at
            at = max(at - size, 0)
            run += 1
        return out

    def _append(self, score: float, member: bytes) -> None:
        """Add an entry after all others."""
        if not self._sizes:
            self._insert_run(0, array("d", (score,)), [member])
            self._count = 1
            return
        self._scores[-1].append(score)
        self._members[-1].append(member)
        self._sizes[-1] += 1
        self._count += 1
        self._last_scores[-1], self._last_members[-1] = score, member
        if self._sizes[-1] > _RUN_ENTRIES_MAX:
            self._split(len(self._sizes) - 1)

    def _cut(self, run: int, start: int, stop: int) -> None:
        """Remove entries from a run, and the run if it becomes empty."""
        members, scores = self._members[run], self._scores[run]
        if stop - start == len(members):
            self._drop(run, run + 1)
            return
        self._count -= stop - start
        at_end = stop == len(members)
        del members[start:stop], scores[start:stop]
        self._sizes[run] -= stop - start
        if at_end:
            self._last_scores[run], self._last_members[run] = scores[-1], members[-1]

    def _drop(self, start: int, stop: int) -> None:
        """Remove whole runs."""
        self._count -= sum(self._sizes[start:stop])
        del self._scores[start:stop], self._members[start:stop], self._sizes[start:stop]
        del self._last_scores[start:stop], self._last_members[start:stop]

    def _split(self, run: int) -> None:
        """Split a run that is too long."""
        scores, members = self._scores[run], self._members[run]
        self._insert_run(run + 1, scores[_RUN_ENTRIES:], members[_RUN_ENTRIES:])
        self._count += len(members) - _RUN_ENTRIES
        self._cut(run, _RUN_ENTRIES, len(members))

    def _join(self, run: int) -> None:
        """Merge a run with a neighbour if it has become short."""
        if len(self._sizes) < 2 or self._sizes[run] >= _RUN_ENTRIES_MIN:
            return
        run = min(run, len(self._sizes) - 2)
        scores, members = self._scores[run + 1], self._members[run + 1]
        self._count += len(members)
        self._scores[run] += scores
        self._members[run] += members
        self._sizes[run] += len(members)
        self._last_scores[run], self._last_members[run] = scores[-1], members[-1]
        self._cut(run + 1, 0, len(members))
        if self._sizes[run] > _RUN_ENTRIES_MAX:
            self._split(run)

    def _insert_run(self, run: int, scores: array[float], members: list[bytes]) -> None:
        self._scores.insert(run, scores)
        self._members.insert(run, members)
        self._sizes.insert(run, len(members))
        self._last_scores.insert(run, scores[-1])
        self._last_members.insert(run, members[-1])

    def _fill(self, entries: list[Entry]) -> None:
        """Fill the empty order with sorted entries."""
        for start in range(0, len(entries), _RUN_ENTRIES):
            part = entries[start : start + _RUN_ENTRIES]
            scores, members = zip(*part, strict=True)
            self._insert_run(len(self._sizes), array("d", scores), list(members))
        self._count = len(entries)

    def _clear(self) -> None:
        self._scores, self._members = [], []
        self._last_scores, self._last_members = [], []
        self._sizes = array("q")
        self._count = 0


# -------------------------------------------------------------------------------------- the set

LISTPACK_ENTRIES: Final = 128
LISTPACK_BYTES: Final = 64
"""Limits of a listpack: the number of members, and their length."""


class SortedSetValue:
    """`scores` maps members to scores; `order` has the entries (score, member) in order."""

    __slots__ = ("large", "order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self.order = ScoreOrder()
        self.large = False
        """The set has outgrown a listpack of Redis once: its scores may be -0."""

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.scores)

    def put(self, member: bytes, score: float) -> bool | None:
        """Add a member or change its score; returns whether it is new, None if nothing changed."""
        scores = self.scores
        old = scores.get(member)
        if old is None:
            if not self.large:
                if len(scores) >= LISTPACK_ENTRIES or len(member) > LISTPACK_BYTES:
                    self.large = True
                elif not score:
                    # A listpack holds whole scores as integers, which have no -0.
                    score = 0.0
            scores[member] = score
            self.order.add(score, member)
            return True
        if old == score:
            return None
        if not score and not self.large:
            score = 0.0
        order = self.order
        order.remove(old, member)
        order.add(score, member)
        scores[member] = score
        return False

    def take(self, member: bytes) -> bool:
        """Remove a member; returns whether it existed."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        self.order.remove(score, member)
        return True

    def pop(self, most: int, *, greatest: bool) -> list[Entry]:
        """Remove and return up to `most` members of one end."""
        order, scores = self.order, self.scores
        if most >= len(scores):
            out = list(order)
            if greatest:
                out.reverse()
            self.scores, self.order = {}, ScoreOrder()
            return out
        out = [order.pop(greatest=greatest) for _ in range(most)]
        for _, member in out:
            del scores[member]
        return out

    def take_between(self, start: Rank, stop: Rank) -> int:
        """Remove the entries from rank `start` to before `stop`; returns their number."""
        if start >= stop:
            return 0
        order, scores = self.order, self.scores
        taken = order.walk(start, stop)
        for _, member in taken:
            del scores[member]
        order.delete(start, stop)
        return len(taken)


# --------------------------------------------------------------------------------------- ranges

_NO_SCORE: Final = b"ERR min or max is not a float"
_NO_MEMBER: Final = b"ERR min or max not valid string range item"

ScoreRange: TypeAlias = tuple[float | None, float | None]
"""The least score in the range and the least score above it; None = above all scores."""
Bound: TypeAlias = tuple[int, bytes, bool]
"""(0, member, exclusive), or with -1 before all members, or with 1 after all members."""


def to_score_range(low: bytes, high: bytes) -> ScoreRange:
    """Parse a range of scores. Raises CommandError."""
    return _first_score(low, upper=False), _first_score(high, upper=True)


def _first_score(text: bytes, *, upper: bool) -> float | None:
    exclusive = text[:1] == b"("
    score = to_bound(text[1:] if exclusive else text)
    if score is None:
        raise CommandError(_NO_SCORE)
    if exclusive is upper:
        return score
    return None if score == inf else nextafter(score, inf)


def score_ranks(order: ScoreOrder, span: ScoreRange) -> tuple[Rank, Rank]:
    """Convert a range of scores to ranks [start, stop)."""
    low, high = span
    start = 0 if low == -inf else len(order) if low is None else order.find(low)
    return start, len(order) if high is None else order.find(high)


def to_member_bound(text: bytes) -> Bound:
    """Parse a bound of a range of members. Raises CommandError."""
    first = text[:1]
    if first in (b"-", b"+") and text[1:2] in (b"", b"\0"):
        return (-1 if first == b"-" else 1, b"", True)
    if first in (b"(", b"["):
        return (0, text[1:], first == b"(")
    raise CommandError(_NO_MEMBER)


def member_ranks(
    order: ScoreOrder, low: Bound, high: Bound, *, reverse: bool = False
) -> tuple[Rank, Rank]:
    """Convert a range of members to ranks [start, stop)."""
    (score, _), (greatest, _) = order.walk(0, len(order), 0, 1)[0], _last(order)
    if score == greatest:
        return (
            _member_rank(order, low, score, upper=False),
            _member_rank(order, high, score, upper=True),
        )
    start, stop = _mixed(list(order), low, high, reverse=reverse)
    return start, stop


def _last(order: ScoreOrder) -> Entry:
    return order.walk_back(0, len(order), 0, 1)[0]


def _member_rank(order: ScoreOrder, bound: Bound, score: float, *, upper: bool) -> Rank:
    side, member, exclusive = bound
    if side:
        return 0 if side < 0 else len(order)
    # The member with a zero byte appended is the next possible member.
    return order.find(score, member if exclusive is upper else member + b"\0")


def _above(member: bytes, low: Bound) -> bool:
    side, least, exclusive = low
    return side < 0 or (side == 0 and (member > least if exclusive else member >= least))


def _below(member: bytes, high: Bound) -> bool:
    side, most, exclusive = high
    return side > 0 or (side == 0 and (member < most if exclusive else member <= most))


def _mixed(entries: list[Entry], low: Bound, high: Bound, *, reverse: bool) -> tuple[int, int]:
    """Return the ranks [start, stop) that Redis's scan finds if scores differ."""
    nothing = (0, 0)
    if low[:2] > high[:2] or (low[:2] == high[:2] and (low[2] or high[2])):
        return nothing
    if not _above(entries[-1][1], low) or not _below(entries[0][1], high):
        return nothing
    count = len(entries)
    if reverse:
        stop = next((n for n in range(count, 0, -1) if _below(entries[n - 1][1], high)), 0)
        start = stop
        while start > 0 and _above(entries[start - 1][1], low):
            start -= 1
        return start, stop
    start = next((n for n in range(count) if _above(entries[n][1], low)), count)
    stop = start
    while stop < count and _below(entries[stop][1], high):
        stop += 1
    return start, stop
