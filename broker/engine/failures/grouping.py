"""Dead letters of a group by the reason of their last failure, and how many have each.

Rows stay columns until they are grouped, since an object for each message would cost ten times as
much; then there is an object for each reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import numpy as np

from delaylog.broker.engine.failures.failure_table import FAILED, HOW, FailedRows
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import distinct
from delaylog.storage.columns.whole_rows import concat_rows, take_rows
from delaylog.storage.layout import Int64Array, MessageState
from delaylog.storage.work import ReadJob, Work

_LOOK_ROWS: Final = 4_096
"""Messages that are looked up in one slice: less than a millisecond."""
_TEXTS: Final = 512
"""Slots of reasons, or pairs with consumers, that are counted in one slice."""
_HOW_SHIFT: Final = 32
_PART_SHIFT: Final = 34
assert len(HOW) <= 1 << (_PART_SHIFT - _HOW_SHIFT)


def _last(parts: Sequence[FailedRows], topic: int, group: int) -> tuple[FailedRows, Int64Array]:
    """The last failure of each message of a group, and the part that it is in."""
    mine = [take_rows(rows, (rows["topic"] == topic) & (rows["group"] == group)) for rows in parts]
    part_of = np.repeat(np.arange(len(parts)), [len(rows) for rows in mine])
    rows = concat_rows([np.zeros(0, FAILED), *mine])
    _, at = np.unique(rows["origin"][::-1], return_index=True)
    at = len(rows) - 1 - at
    return take_rows(rows, at), part_of[at]


class _Alike(NamedTuple):
    """Failures of one part, of one kind and reason, as a slot of each column."""

    keys: Int64Array
    """The part, how they failed, and the number of the reason."""
    counts: Int64Array
    first_ms: Int64Array
    last_ms: Int64Array
    origins: Int64Array
    """Of the messages that failed last."""
    consumers: Int64Array
    """Pairs of a slot (high half) and the number of a consumer, ascending."""


def _alike(rows: FailedRows, part_of: Int64Array, *, by_reason: bool) -> _Alike:
    keys = part_of << _PART_SHIFT | rows["how"].astype(np.int64) << _HOW_SHIFT
    if by_reason:
        keys |= rows["reason"]
    order = np.lexsort((rows["at_ms"], keys))
    keys, at_ms = keys[order], rows["at_ms"][order]
    fresh = np.diff(keys, prepend=-1) != 0
    first = np.flatnonzero(fresh)
    last = np.append(first, len(keys))[1:] - 1
    consumers = rows["consumer"][order].astype(np.int64)
    pairs = (np.cumsum(fresh) - 1) << 32 | consumers
    return _Alike(
        keys[first],
        last - first + 1,
        at_ms[first],
        at_ms[last],
        rows["origin"][order][last],
        distinct(pairs[consumers > 0]),
    )


@dataclass(slots=True)
class DeadReason:
    """Dead letters that failed last in the same way, for the same reason."""

    how: str
    text: str
    count: int = 0
    first_ms: int = 2**63 - 1
    last_ms: int = 0
    origin: int = 0
    """Of the message that failed last."""
    consumers: set[str] = field(default_factory=set)

    @property
    def members(self) -> dict[str, Any]:
        """Its members of an answer."""
        return {
            "cause": self.how,
            "reason": self.text or None,
            "count": self.count,
            "consumers": len(self.consumers),
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
        }


class DeadReasons:
    """Counts the dead letters of a group; `work` fills `most` and `other`."""

    def __init__(
        self, state: EngineState, topic: Topic, group: Group, *, limit: int, by_reason: bool = True
    ) -> None:
        """`limit`: the number of reasons in `most`. `by_reason`: whether to count by the texts of
        reasons too, or only by how the attempts failed.
        """
        self._state, self._topic, self._group = state, topic, group
        self._limit, self._by_reason = limit, by_reason
        self._found: dict[tuple[str, str], DeadReason] = {}
        self.most: list[DeadReason] = []
        """The most frequent reasons, the most frequent first."""
        self.other = group.counts.dead
        """Dead letters without a failure: they expired, or the table has forgotten theirs."""

    def work(self) -> Work:
        """Look at every message that has failed, in slices."""
        group = self._group
        parts = self._state.failures.parts
        columns = [part.rows for part in parts]
        lasts: list[tuple[FailedRows, Int64Array]] = []
        # A full table takes tens of milliseconds to sort.
        yield ReadJob(lambda: lasts.append(_last(columns, self._topic.number, group.number)))
        rows, part_of = lasts.pop()
        dead = np.zeros(len(rows), np.bool_)
        for first in range(0, len(rows), _LOOK_ROWS):
            some = slice(first, first + _LOOK_ROWS)
            found = find_origins(self._state, rows["origin"][some], self._topic, group=group)
            dead[some] = found.known & (found.states == int(MessageState.DEAD))
            yield None
        grouped: list[_Alike] = []
        mine, mine_of = take_rows(rows, dead), part_of[dead]
        yield ReadJob(lambda: grouped.append(_alike(mine, mine_of, by_reason=self._by_reason)))
        yield from self._count(grouped.pop(), [part.texts for part in parts])
        self.other = max(group.counts.dead - len(mine), 0)

    def _count(self, alike: _Alike, texts: Sequence[Sequence[str]]) -> Work:
        """Join the slots of all parts by their texts, and choose the most frequent ones."""
        slots: list[tuple[DeadReason, Sequence[str]]] = []
        for part in _pieces(alike.keys, alike.counts, alike.first_ms, alike.last_ms, alike.origins):
            for key, count, first_ms, last_ms, origin in part:
                named = texts[key >> _PART_SHIFT]
                how = HOW[key >> _HOW_SHIFT & (1 << (_PART_SHIFT - _HOW_SHIFT)) - 1]
                text = named[key & (1 << _HOW_SHIFT) - 1]
                reason = self._found.get((how, text))
                if reason is None:
                    reason = self._found[how, text] = DeadReason(how, text)
                reason.count += count
                reason.first_ms = min(reason.first_ms, first_ms)
                if last_ms >= reason.last_ms:
                    reason.last_ms, reason.origin = last_ms, origin
                slots.append((reason, named))
            yield None
        for pairs in _pieces(alike.consumers):
            for (pair,) in pairs:
                reason, named = slots[pair >> 32]
                reason.consumers.add(named[pair & 0xFFFFFFFF])
            yield None
        every = list(self._found.values())
        for first in range(0, len(every), _TEXTS):
            some = self.most + every[first : first + _TEXTS]
            self.most = nsmallest(
                self._limit, some, key=lambda one: (-one.count, one.how, one.text)
            )
            yield None


def _pieces(*columns: Int64Array) -> Iterator[Iterator[tuple[int, ...]]]:
    """Tuples of the slots of some columns, `_TEXTS` at a time: what one slice counts."""
    for first in range(0, len(columns[0]), _TEXTS):
        yield zip(*(column[first : first + _TEXTS].tolist() for column in columns), strict=True)
