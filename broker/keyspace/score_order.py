"""Members by score, ties by their bytes: an ordered list in blocks.

Scores stand apart from members, as bare doubles: a search touches a few cache lines and makes no
tuples, which is more than twice as fast as a list of (score, member). Blocks are split and joined
so that a change moves a few KB at most.

A *place* is (number of a block, index in it). Places are compared like tuples, and hold until the
next change. What a search finds is the first entry that is not less; so `(score, b"")` is before
all that have this score.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import itemgetter
from typing import Final, TypeAlias

Entry: TypeAlias = tuple[float, bytes]
Place: TypeAlias = tuple[int, int]

_LOAD: Final = 512
"""Entries of a block as it is made; it is split at twice, and joined below a quarter of it."""
_ALL: Final = 1 << 62
_last_of = itemgetter(-1)


class ScoreOrder:
    """Entries (score, member); each member stands here once, which the owner sees to."""

    __slots__ = ("_asked", "_before", "_count", "_greatest", "_members", "_scores")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        in_order = sorted(entries)
        blocks = [in_order[at : at + _LOAD] for at in range(0, len(in_order), _LOAD)]
        self._scores = [array("d", [score for score, _ in block]) for block in blocks]
        self._members = [[member for _, member in block] for block in blocks]
        self._greatest = [block[-1][0] for block in blocks]
        """The last score of each block."""
        self._count = len(in_order)
        self._before: list[int] | None = None
        """How many entries come before each block, while nobody changes anything."""
        self._asked = False

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for scores, members in zip(self._scores, self._members, strict=True):
            yield from zip(scores, members, strict=True)

    # ------------------------------------------------------------------ changing

    def add(self, score: float, member: bytes) -> None:
        """Put an entry in."""
        number, at = self.find(score, member)
        greatest = self._greatest
        if number == len(greatest):
            if not number:
                self._scores.append(array("d"))
                self._members.append([])
                greatest.append(score)
            else:
                number -= 1
                greatest[number] = score
            at = len(self._members[number])
        members = self._members[number]
        members.insert(at, member)
        self._scores[number].insert(at, score)
        self._count += 1
        self._before = None
        self._asked = False
        if len(members) > 2 * _LOAD:
            self._split(number)

    def remove(self, score: float, member: bytes) -> None:
        """Take an entry out, which is there."""
        number, at = self.find(score, member)
        assert self._members[number][at] == member, member
        self._delete(number, at)

    def pop(self, *, greatest: bool) -> Entry:
        """Take the last or the first entry out."""
        number = len(self._members) - 1 if greatest else 0
        at = len(self._members[number]) - 1 if greatest else 0
        entry = (self._scores[number][at], self._members[number][at])
        self._delete(number, at)
        return entry

    def delete(self, start: Place, stop: Place) -> None:
        """Take out what lies from place to place."""
        (first, start_at), (last, stop_at) = start, stop
        self._count -= sum(map(len, self._members[first:last])) + stop_at - start_at
        for blocks in (self._scores, self._members):
            if first == last:
                del blocks[first][start_at:stop_at]
                continue
            del blocks[first][start_at:]
            if last < len(blocks):
                del blocks[last][:stop_at]
            del blocks[first + 1 : last]
        del self._greatest[first + 1 : last]
        self._before = None
        self._asked = False
        if first < last and first + 1 < len(self._members):
            self._tidy(first + 1)
        self._tidy(first)

    def _delete(self, number: int, at: int) -> None:
        members, scores = self._members[number], self._scores[number]
        del members[at], scores[at]
        self._count -= 1
        self._before = None
        self._asked = False
        left = len(members)
        if left < _LOAD // 4:
            self._tidy(number)
        elif at == left:
            self._greatest[number] = scores[-1]

    def _tidy(self, number: int) -> None:
        """A block has become shorter."""
        scores, members = self._scores, self._members
        left = len(members[number])
        if not left:
            del scores[number], members[number], self._greatest[number]
            return
        self._greatest[number] = scores[number][-1]
        if left >= _LOAD // 4 or len(members) == 1:
            return
        if number + 1 == len(members):
            number -= 1
        scores[number] += scores[number + 1]
        members[number] += members[number + 1]
        self._greatest[number] = self._greatest[number + 1]
        del scores[number + 1], members[number + 1], self._greatest[number + 1]
        if len(members[number]) > 2 * _LOAD:
            self._split(number)

    def _split(self, number: int) -> None:
        scores, members = self._scores[number], self._members[number]
        half = len(members) // 2
        self._scores[number : number + 1] = [scores[:half], scores[half:]]
        self._members[number : number + 1] = [members[:half], members[half:]]
        self._greatest.insert(number, scores[half - 1])

    # ------------------------------------------------------------------ places

    def find(self, score: float, member: bytes = b"") -> Place:
        """The place of the first entry that is not less."""
        greatest = self._greatest
        number = bisect_left(greatest, score)
        if number == len(greatest):
            return number, 0
        if member and greatest[number] == score:
            # Entries of one score may fill many blocks.
            behind = bisect_right(greatest, score, number)
            number = bisect_left(self._members, member, number, behind, key=_last_of)
            if number == len(greatest):
                return number, 0
        scores = self._scores[number]
        at = bisect_left(scores, score)
        if member and scores[at] == score:
            behind = bisect_right(scores, score, at)
            at = bisect_left(self._members[number], member, at, behind)
        return number, at

    @property
    def end(self) -> Place:
        """The place behind everything."""
        return len(self._members), 0

    def rank(self, place: Place) -> int:
        """How many entries come before a place."""
        number, at = place
        if self._before is not None:
            return self._before[number] + at
        if self._asked:
            return self._counts()[number] + at
        self._asked = True
        return sum(map(len, self._members[:number])) + at

    def place(self, rank: int) -> Place:
        """The place of the entry with so many before it."""
        members = self._members
        if members and rank < len(members[0]):
            return 0, rank
        if rank >= self._count:
            return self.end
        before = self._counts()
        number = bisect_right(before, rank) - 1
        return number, rank - before[number]

    def _counts(self) -> list[int]:
        if self._before is None:
            self._before = [0, *accumulate(map(len, self._members))]
        return self._before

    # ------------------------------------------------------------------ reading

    def walk(self, start: Place, stop: Place, offset: int = 0, most: int = _ALL) -> list[Entry]:
        """Up to `most` entries from place to place, behind the first `offset`."""
        number, at = start
        last, end = stop
        blocks, members = self._scores, self._members
        at += offset
        while number < last and at >= len(members[number]):
            at -= len(members[number])
            number += 1
        out: list[Entry] = []
        while most > 0 and (number < last or (number == last and at < end)):
            upper = end if number == last else len(members[number])
            upper = min(upper, at + most)
            out += zip(blocks[number][at:upper], members[number][at:upper], strict=True)
            most -= upper - at
            number += 1
            at = 0
        return out

    def walk_back(
        self, start: Place, stop: Place, offset: int = 0, most: int = _ALL
    ) -> list[Entry]:
        """The same from `stop` down to `start`."""
        number, at = stop
        first, begin = start
        blocks, members = self._scores, self._members
        at -= offset
        while number > first and at <= 0:
            number -= 1
            at += len(members[number])
        out: list[Entry] = []
        while most > 0 and (number > first or (number == first and at > begin)):
            lower = begin if number == first else 0
            lower = max(lower, at - most)
            chunk = list(zip(blocks[number][lower:at], members[number][lower:at], strict=True))
            chunk.reverse()
            out += chunk
            most -= at - lower
            number -= 1
            at = len(members[number])
        return out
