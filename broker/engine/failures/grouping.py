"""Dead letters of a group by the kind of their last failure, and how many are of each.

Reasons are of one kind if they differ only in what `folding` folds, such as numbers. Rows stay
columns until they are grouped, since an object for each message would cost ten times as much; then
there is an object for each kind. The failure table bounds their number, the caller those it gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import numpy as np

from delaylog.broker.engine.failures.failure_table import HOW, FailedRows
from delaylog.broker.engine.failures.folding import Folded, fold
from delaylog.broker.engine.failures.matching import failed_as, last_failures
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.message_filter import ANY, MessageFilter
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import distinct
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import Int64Array, MessageState
from delaylog.storage.work import ReadJob, Work

_LOOK_ROWS: Final = 4_096
"""Messages that are looked up in one slice: less than a millisecond."""
_TEXTS: Final = 128
"""Slots of reasons, or pairs with consumers, that are counted in one slice: a reason takes up to
60 µs to fold.
"""
_HOW_SHIFT: Final = 32
_PART_SHIFT: Final = 34
assert len(HOW) <= 1 << (_PART_SHIFT - _HOW_SHIFT)


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
    """Dead letters that failed last in the same way, for reasons of one kind."""

    how: str
    text: str
    """The kind: the reason, folded."""
    prefix: str
    """What all the reasons begin with."""
    texts: set[str] = field(default_factory=set)
    """The reasons themselves."""
    count: int = 0
    first_ms: int = 2**63 - 1
    last_ms: int = 0
    origin: int = 0
    """Of the message that failed last."""
    consumers: set[str] = field(default_factory=set)

    @property
    def members(self) -> dict[str, Any]:
        """Its members of an answer."""
        exact = next(iter(self.texts)) if len(self.texts) == 1 else None
        return {
            "cause": self.how,
            "reason": (self.text if exact is None else exact) or None,
            "reason_prefix": self.prefix or None,
            "texts": sum(map(bool, self.texts)),
            "count": self.count,
            "consumers": len(self.consumers),
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
        }


class DeadReasons:
    """Counts the dead letters of a group; `work` fills `most`, `rest` and `other`."""

    def __init__(
        self,
        state: EngineState,
        topic: Topic,
        group: Group,
        wanted: MessageFilter = ANY,
        *,
        limit: int,
        by_reason: bool = True,
        exact: bool = False,
    ) -> None:
        """`wanted`: the failures to count, by cause and reason. `limit`: the number of kinds in
        `most`. `by_reason`: whether to count by reasons too, or only by how the attempts failed.
        `exact`: whether each text is a kind of its own.
        """
        self._state, self._topic, self._group, self._wanted = state, topic, group, wanted
        self._limit, self._by_reason, self._exact = limit, by_reason, exact
        self._found: dict[tuple[str, str], DeadReason] = {}
        self.most: list[DeadReason] = []
        """The most frequent kinds, the most frequent first."""
        self.rest = 0
        """Dead letters of other kinds."""
        self.other = group.counts.dead
        """Dead letters without a failure: they expired, or the table has forgotten theirs."""

    def work(self) -> Work:
        """Look at every message that has failed, in slices."""
        group = self._group
        parts = self._state.failures.parts
        lasts: list[tuple[FailedRows, Int64Array]] = []
        # A full table takes tens of milliseconds to sort.
        yield ReadJob(lambda: lasts.append(last_failures(parts, self._topic.number, group.number)))
        rows, part_of = lasts.pop()
        dead = np.zeros(len(rows), np.bool_)
        for first in range(0, len(rows), _LOOK_ROWS):
            some = slice(first, first + _LOOK_ROWS)
            found = find_origins(self._state, rows["origin"][some], self._topic, group=group)
            dead[some] = found.known & (found.states == int(MessageState.DEAD))
            yield None
        grouped: list[_Alike] = []
        self.other = max(group.counts.dead - int(np.count_nonzero(dead)), 0)
        counted = dead & failed_as(parts, rows, part_of, self._wanted)
        mine, mine_of = take_rows(rows, counted), part_of[counted]
        yield ReadJob(lambda: grouped.append(_alike(mine, mine_of, by_reason=self._by_reason)))
        yield from self._count(grouped.pop(), [part.texts for part in parts])
        self.rest = len(mine) - sum(reason.count for reason in self.most)

    def _count(self, alike: _Alike, texts: Sequence[Sequence[str]]) -> Work:
        """Join the slots of all parts by their kinds, and choose the most frequent ones."""
        slots: list[tuple[DeadReason, Sequence[str]]] = []
        for part in _pieces(alike.keys, alike.counts, alike.first_ms, alike.last_ms, alike.origins):
            for key, count, first_ms, last_ms, origin in part:
                named = texts[key >> _PART_SHIFT]
                how = HOW[key >> _HOW_SHIFT & (1 << (_PART_SHIFT - _HOW_SHIFT)) - 1]
                text = named[key & (1 << _HOW_SHIFT) - 1]
                reason = self._kind(how, text)
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

    def _kind(self, how: str, text: str) -> DeadReason:
        """The kind of a reason, which has the reason from now on."""
        folded = Folded(text, text) if self._exact else fold(text)
        kind = self._found.get((how, folded.text))
        if kind is None:
            kind = self._found[how, folded.text] = DeadReason(how, *folded)
        # A reason may say "#" itself.
        kind.prefix = min(kind.prefix, folded.prefix, key=len)
        kind.texts.add(text)
        return kind


def _pieces(*columns: Int64Array) -> Iterator[Iterator[tuple[int, ...]]]:
    """Tuples of the slots of some columns, `_TEXTS` at a time: what one slice counts."""
    for first in range(0, len(columns[0]), _TEXTS):
        yield zip(*(column[first : first + _TEXTS].tolist() for column in columns), strict=True)
