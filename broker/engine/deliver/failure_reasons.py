"""Questions about failures: which messages failed last in a given way, and how many of each kind.

Lists, and jobs that change such messages alone, ask `failed_so` and `origins_failed_so`.
`DeadReasons` counts the dead letters of a group by the kind of their last failure. Reasons are of
one kind if they differ only in what `fold` folds, numbers and ids. Exceptions quote what they
failed at: `ValueError: cannot parse 10004` and `… 10005` are both `ValueError: cannot parse #`. The
class in front of the first colon is kept as it is, so two classes are never one group.

Rows stay columns until they are grouped, since an object for each message would cost ten times as
much; then there is an object for each kind. The failure table bounds their number, the caller those
it gets.

`tidy` forgets the failures of messages that were successful in the end, or were removed. A
checkpoint calls it when the table has grown, so it has living messages and dead letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

import numpy as np

from delaylog.broker.engine.deliver.failures import (
    FAILED,
    HOW,
    FailedRows,
    FailurePart,
    FailureTable,
    Wanted,
)
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.lookup.message_filter import ANY, MessageFilter
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import Mask, concat_rows, distinct, every, take_rows
from delaylog.storage.layout import STATE_ENDED_FIRST, Int64Array, MessageState
from delaylog.storage.work import ReadJob, Work

# ----------------------------------------------------------------------------- kinds of reasons

FOLDED: Final = "#"
"""What a number or an id becomes."""
LOOKED_AT: Final = 200
"""Characters of a reason that are folded: its beginning says which kind of failure it is."""
_CLASS: Final = re.compile(r"(?:\w+(?:\.|::|\\|/))*[A-Z][\w$-]*(?=:|\Z)")
"""The class of an error, as languages write it: its last name begins with a capital letter."""
_VARYING: Final = re.compile(
    r"""
    0[xX][0-9a-fA-F]+                                      # an address of memory
    | (?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])  # UUID
    | (?<![0-9A-Za-z])(?=[A-Fa-f]*[0-9])[0-9a-fA-F]{8,}(?![0-9A-Za-z])      # a hash, an id in hex
    | (?<![0-9A-Za-z])(?=[A-Za-z]*[0-9])[0-9A-Za-z]{20,}(?![0-9A-Za-z])     # ULID, KSUID and others
    | (?:(?<![\w-])[+-])?\d+(?:[.,:]\d+)*(?:[eE][+-]?\d+)?     # a number, a time of day, an address
    """,
    re.VERBOSE,
)


class Folded(NamedTuple):
    """The kind of a reason."""

    text: str
    """The reason with numbers and ids folded."""
    prefix: str
    """What all reasons of the kind begin with."""


def fold(reason: str) -> Folded:
    """Fold a reason: equal texts are reasons of one kind."""
    head = reason[:LOOKED_AT]
    named = _CLASS.match(head)
    first = named.end() if named else 0
    found = _VARYING.search(head, first)
    if found is None and head == reason:
        return Folded(reason, reason)
    text = head[:first] + _VARYING.sub(FOLDED, head[first:])
    prefix = head[: found.start()] if found else head
    return Folded(text if head == reason else f"{text}…", prefix)


# ---------------------------------------------------------- messages that failed in a given way


def failed_so(table: FailureTable, topic: int, wanted: MessageFilter, found: FoundMessages) -> Mask:
    """Which messages have a failure that is kept, the last of which is as the filter says."""
    out = np.zeros(len(found), np.bool_)
    if len(found) == 0:
        return out
    messages = Wanted(topic, found.group.number, found.origins)
    for part in table.parts:
        at, slots = messages.among(part)
        # A later failure of a message replaces an earlier one: parts and rows are oldest first.
        out[slots] = _is_so(part, take_rows(part.rows, at), wanted)
    return out


def origins_failed_so(
    table: FailureTable, topic: int, group: int, wanted: MessageFilter
) -> Int64Array:
    """The messages of a group, ascending, whose last failure is as the filter says."""
    parts = table.parts
    rows, part_of = last_failures(parts, topic, group)
    origins: Int64Array = rows["origin"][failed_as(parts, rows, part_of, wanted)]
    return origins


def last_failures(
    parts: Sequence[FailurePart], topic: int, group: int
) -> tuple[FailedRows, Int64Array]:
    """The last failure of each message of a group, by message, and the part that it is in."""
    # Once each: rows may be added meanwhile.
    every = [part.rows for part in parts]
    mine = [take_rows(rows, (rows["topic"] == topic) & (rows["group"] == group)) for rows in every]
    part_of = np.repeat(np.arange(len(parts)), [len(rows) for rows in mine])
    rows = concat_rows([np.zeros(0, FAILED), *mine])
    _, at = np.unique(rows["origin"][::-1], return_index=True)
    at = len(rows) - 1 - at
    return take_rows(rows, at), part_of[at]


def failed_as(
    parts: Sequence[FailurePart], rows: FailedRows, part_of: Int64Array, wanted: MessageFilter
) -> Mask:
    """Which rows, each of a part, fail as the filter says."""
    out = np.ones(len(rows), np.bool_)
    if wanted.names_failure:
        for number, part in enumerate(parts):
            at = np.flatnonzero(part_of == number)
            out[at] = _is_so(part, take_rows(rows, at), wanted)
    return out


def _is_so(part: FailurePart, rows: FailedRows, wanted: MessageFilter) -> Mask:
    """Which of these rows of a part fail as the filter says."""
    so = np.ones(len(rows), np.bool_)
    if wanted.cause is not None:
        so &= rows["how"] == HOW.index(wanted.cause)
    if wanted.reason is not None:
        reason = wanted.reason
        so &= _has_text(part, rows, lambda text: _is_reason(reason, text))
    if wanted.reason_prefix is not None:
        prefix = wanted.reason_prefix
        so &= _has_text(part, rows, lambda text: text.startswith(prefix))
    return so


def _has_text(part: FailurePart, rows: FailedRows, fits: Callable[[str], bool]) -> Mask:
    """Which rows have a reason that fits."""
    used = distinct(rows["reason"].astype(np.int64)).tolist()
    return np.isin(rows["reason"], [number for number in used if fits(part.texts[number])])


def _is_reason(wanted: str, text: str) -> bool:
    """Whether a reason is the wanted one, or of the wanted kind as counts by reason show it."""
    return text == wanted or (FOLDED in wanted and fold(text).text == wanted)


# ------------------------------------------------------------------------- dead letters by kind

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


# --------------------------------------------------------------------------- failures to forget

TIDY_MIN: Final = 4_096
"""Number of failures below which nothing is forgotten."""
SLICE_MESSAGES: Final = 1_024
_DEAD: Final = int(MessageState.DEAD)


def tidy(state: EngineState) -> Work:
    """Forget failures of other messages, part by part, if the table has doubled since the last
    time.
    """
    table = state.failures
    if len(table) < max(TIDY_MIN, 2 * table.tidied):
        return
    for part in table.parts:
        rows = part.rows
        kept = np.zeros(len(rows), np.bool_)
        places = rows["topic"].astype(np.int64) << 32 | rows["group"]
        for place in distinct(places).tolist():
            mine = np.flatnonzero(places == place)
            origins, which = np.unique(rows["origin"][mine], return_inverse=True)
            needed = yield from _still_needed(state, divmod(place, 1 << 32), origins)
            kept[mine] = needed[which]
        if not every(kept):
            table.keep(part, kept)
    table.tidied = len(table)


def _still_needed(
    state: EngineState, place: tuple[int, int], origins: Int64Array
) -> Generator[None, None, Mask]:
    """Which of a group's messages are living or dead letters."""
    out = np.zeros(len(origins), np.bool_)
    for first in range(0, len(origins), SLICE_MESSAGES):
        topic, group = state.by_number.get(place[0]), state.group(*place)
        if topic is None or group is None:
            break
        part = slice(first, first + SLICE_MESSAGES)
        found = find_origins(state, origins[part], topic, group=group)
        living = found.states < STATE_ENDED_FIRST
        out[part] = found.known & (living | (found.states == _DEAD))
        yield None
    return out
