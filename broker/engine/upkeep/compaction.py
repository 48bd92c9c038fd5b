"""Compaction: hours in which most rows have ended are rewritten without them.

Each node compacts by itself, so it may only remove rows that no later frame can read: rows that
were acked, cancelled, replaced or expired and are past their keep time, rows that a purge ended,
and rows that a message has left. Dead messages stay, as they can be replayed. A row is marked
first, and removed once both kept checkpoints are past the mark, so that no replay reads it.

Rows are checked in slices, since their states, and the rows that messages have moved to, must be
read. A row that has ended stays ended, whatever frames come between two slices.

The present hour and the next are not compacted, because the wheel has refs to their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.broker.engine.upkeep.checkpoints import Upkeep
from delaylog.storage.columns import Mask, concat_rows, distinct, put_rows, some, take_rows
from delaylog.storage.hours.compaction import Removal
from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.hour_table import HourCounts
from delaylog.storage.layout import (
    HOUR_MS,
    HOUR_SHIFT,
    INDEX_BITS,
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE,
    INDEX_MASK,
    STATE_ENTRY,
    Cause,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)
from delaylog.storage.runs.id_index import SORTED_MAX, OwnedIds, owned_ids
from delaylog.storage.work import IoJob, Work

# -------------------------------------------------------------------- which rows may be removed

_STATES_ROWS: Final = 1_024
"""Rows whose states are read in one slice."""
_MOVED_ROWS: Final = 128
"""Rows that messages moved to, read in one slice: each takes a read of its own."""
_MOVED: Final = int(MessageState.MOVED)
_FINAL: Final = np.array(
    [int(MessageState.ACKED), int(MessageState.EXPIRED), int(MessageState.CANCELLED)], np.uint8
)


@dataclass(slots=True)
class _Targets:
    """The rows that `refs` name, as far as they exist."""

    refs: Int64Array
    at: Int64Array
    """Index into `refs` for each row."""
    rows: RowArray


def removable_rows(
    state: EngineState, refs: Int64Array, rows: RowArray, now_ms: int
) -> Generator[None, None, tuple[Mask, Mask]]:
    """(rows that may be removed, origins of which only the record may be removed)."""
    gone, bare = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    for number in distinct(rows["topic"]).tolist():
        topic = state.by_number.get(number)
        if topic is None:
            # The topic was dropped, or the row was removed before (its topic number is 0).
            continue
        at = np.flatnonzero(rows["topic"] == number)
        mine, their_refs = take_rows(rows, at), refs[at]
        over, leads = np.ones(len(at), np.bool_), np.zeros(len(at), np.bool_)
        targets = _Targets(np.zeros(0, np.int64), np.zeros(0, np.int64), mine[:0])
        for group in list(topic.groups.values()):
            entries = yield from _states(state, their_refs, group)
            there = group.has(mine)
            mine_over = _over(topic, group, mine, entries, now_ms) | ~there
            moved = there & (entries["state"] == _MOVED)
            mine_over |= moved
            mine_leads = moved & (mine["origin"] == their_refs)
            which = np.flatnonzero(mine_leads)
            if len(which):
                forward = entries["forward"][which].astype(np.int64)
                if not np.array_equal(forward, targets.refs):
                    # Read again for each group only if messages moved to different rows.
                    targets = yield from _targets(state, forward)
                states = yield from _states(state, forward[targets.at], group)
                living = ~_over(topic, group, targets.rows, states, now_ms)
                mine_leads[which] = False
                mine_leads[which[targets.at]] = living
            over &= mine_over
            leads |= mine_leads
        gone[at], bare[at] = over & ~leads, over & leads
    return gone, bare


def _states(
    state: EngineState, refs: Int64Array, group: Group
) -> Generator[None, None, StateArray]:
    """Their states in a group, read in order of hour, so that few files are open at a time."""
    out = np.zeros(len(refs), STATE_ENTRY)
    order = np.argsort(refs, kind="stable")
    for first in range(0, len(refs), _STATES_ROWS):
        part = order[first : first + _STATES_ROWS]
        # An hour may have been removed since the last slice.
        part = part[state.hours.known(refs[part])]
        put_rows(out, part, state.hours.get_states(refs[part], group.number))
        yield None
    return out


def _targets(state: EngineState, refs: Int64Array) -> Generator[None, None, _Targets]:
    """The rows that messages moved to, as far as they exist."""
    hours = state.hours
    parts, found = [np.zeros(0, np.int64)], [np.zeros(0, INDEX_ENTRY)]
    order = np.argsort(refs, kind="stable")
    for first in range(0, len(refs), _MOVED_ROWS):
        part = order[first : first + _MOVED_ROWS]
        part = part[hours.known(refs[part])]
        rows = hours.rows(refs[part])
        named = np.flatnonzero(hours.check_tags(refs[part], rows))
        parts.append(part[named])
        found.append(take_rows(rows, named))
        yield None
    return _Targets(refs, np.concatenate(parts), concat_rows(found))


def _over(topic: Topic, group: Group, rows: RowArray, entries: StateArray, now_ms: int) -> Mask:
    """Which rows have ended in a group and are past their keep time."""
    kinds = entries["state"]
    keep_ms = topic.settings.ended_keep_ms
    final = np.isin(kinds, _FINAL)
    past = (entries["time"] + keep_ms < now_ms) | (entries["cause"] == int(Cause.FORGOTTEN))
    out: Mask = final & past
    purged = group.purged(rows, entries) if group.floor else np.zeros(len(rows), np.bool_)
    if group.purged_ms + keep_ms < now_ms:
        out |= purged
    if topic.erased:
        # Messages to erase must not be readable or replayed any more.
        erased = rows["sent_position"] < topic.erased
        out |= erased & (final | purged | (kinds == int(MessageState.DEAD)))
    return out


# ------------------------------------------------------------------------------------- the work

LOOK_MS: Final = 30_000
"""Interval between two scans of all hours."""
AGAIN_MS: Final = 120_000
"""Interval before an hour is read again that had too few removable rows."""
ROWS_MIN: Final = 8_192
"""Removable rows below which an hour is not rewritten."""
MARKED_ROWS_MAX: Final = 1 << 28
"""Rows of all marked hours, at most: two bits of memory each."""
_LOOK_HOURS: Final = 4_096
_SLICE_ROWS: Final = 8_192
_FAR: Final = -1
"""Stands for all hours of the far tier where an hour is expected."""


@dataclass(slots=True)
class Mark:
    """Rows of an hour that may be removed once both kept checkpoints are at `position`."""

    rows: int
    gone: npt.NDArray[np.uint8]
    """One bit per row."""
    bare: npt.NDArray[np.uint8]
    """Origins that lead to the newest row of their message: only their records are removed."""
    position: int
    counts: HourCounts

    def mask(self, bits: npt.NDArray[np.uint8]) -> Mask:
        """The bits as a mask."""
        return np.unpackbits(bits, count=self.rows).view(np.bool_)


class Compactor:
    """Compacts the hours of one engine, as background work."""

    def __init__(self, state: EngineState, upkeep: Upkeep, *, freed: Callable[[], None]) -> None:
        """`freed` is called when files have become smaller."""
        self._state = state
        self._upkeep = upkeep
        self._freed = freed
        self._marks: dict[int, Mark] = {}
        self._removed: dict[int, int] = {}
        """By hour: number of rows that were removed before."""
        self._again_ms: dict[int, int] = {}
        self._clean: set[tuple[int, int, int]] = set()
        """(topic, position of the purge, hour) without messages left to erase."""
        self._rewritten_for: set[tuple[int, int, int]] = set()
        """The same with `_FAR` as hour: purges for which the far tier is being rewritten."""
        upkeep.awaited = self._marks, self._rewritten_for
        self._look_ms = 0
        self._groups_max = 1
        self.hours = 0
        """Number of rewritten hours."""
        self.rows = 0
        """Number of removed rows."""

    def _covered(self) -> int:
        kept = self._upkeep.kept_positions
        return min(kept) if len(kept) > 1 else 0

    def due(self, now_ms: int) -> bool:
        """Whether `work` has something to do."""
        if now_ms >= self._look_ms or now_ms < self._look_ms - LOOK_MS:
            return True
        covered = self._covered()
        return (
            any(mark.position <= covered for mark in self._marks.values())
            and not self._upkeep.files_pinned()
        )

    def work(self, clock: Callable[[], int], stopping: Callable[[], bool] = lambda: False) -> Work:
        """Remove marked rows that may be removed now; then mark more."""
        for hour in sorted(self._marks):
            if stopping():
                return
            mark = self._marks.get(hour)
            if (
                mark is not None
                and mark.position <= self._covered()
                and not self._upkeep.files_pinned()
            ):
                del self._marks[hour]
                yield from self._remove(hour, mark, clock, stopping)
        now_ms = clock()
        if now_ms < self._look_ms and now_ms >= self._look_ms - LOOK_MS:
            return
        self._look_ms = now_ms + LOOK_MS
        groups = (len(self._state.by_number[number].groups) for number in self._state.marks.special)
        self._groups_max = max(groups, default=1) or 1
        if self._state.marks.erasing:
            yield from self._erase(clock, stopping)
        for number, (hour, counts) in enumerate(list(self._state.hours.counts.near.items())):
            if number % _LOOK_HOURS == 0:
                yield None
            if stopping():
                return
            if self._worth_a_look(hour, counts, clock()):
                yield from self.look_through(hour, counts, clock)

    # ------------------------------------------------------------------ marking

    def _may(self, hour: int, now_ms: int) -> bool:
        """Whether an hour may be compacted: only look-ups can refer to its rows."""
        state = self._state
        now_hour = max(now_ms, state.tick.second * 1_000) // HOUR_MS
        near = now_ms // HOUR_MS <= hour <= now_hour + 1 or hour in state.hours.folders.opened.near
        return not near and hour in state.hours.counts

    def _worth_a_look(self, hour: int, counts: HourCounts, now_ms: int) -> bool:
        state = self._state
        there = counts.rows - self._removed.get(hour, 0)
        # `living` counts a row once for each group, so at most this many rows have ended.
        ended = there - counts.living // self._groups_max
        if sum(mark.rows for mark in self._marks.values()) + counts.rows > MARKED_ROWS_MAX:
            if self._marks:
                return False
        if ended < ROWS_MIN or 2 * ended <= there or hour in self._marks:
            return False
        if counts.ended and hour < state.hour_floor and not state.archive_hold:
            # The whole hour will be removed.
            return False
        if state.archive_hold and hour >= state.archive_released:
            # The archive needs the ended rows.
            return False
        again_ms = self._again_ms.get(hour, 0)
        return not now_ms < again_ms <= now_ms + AGAIN_MS and self._may(hour, now_ms)

    def look_through(
        self,
        hour: int,
        counts: HourCounts,
        clock: Callable[[], int],
        erased: Mapping[int, int] | None = None,
    ) -> Generator[IoJob | float | None, None, set[int]]:
        """Read an hour and mark rows that may be removed.

        `erased` = by topic the position below which messages are to be erased. Returns the topics
        of which the hour contains such messages.
        """
        found: set[int] = set()
        state = self._state
        folder = state.hours.folders.hour(hour)
        last = folder.row_count
        gone, bare = np.zeros(last, np.bool_), np.zeros(last, np.bool_)
        removed = 0
        with folder.pinned():
            for first in range(1, last + 1, _SLICE_ROWS):
                stop = min(first + _SLICE_ROWS, last + 1)
                box: list[RowArray] = []
                yield partial(_read, folder, first, stop - 1, box)
                if state.hours.counts.near.get(hour) is not counts:
                    return found
                part = slice(first - 1, stop - 1)
                refs = _refs(hour, box[0])
                gone[part], bare[part] = yield from removable_rows(state, refs, box[0], clock())
                for number, position in (erased or {}).items():
                    mine = box[0]["topic"] == number
                    if some(mine & (box[0]["sent_position"] < position)):
                        found.add(number)
                removed += int(np.count_nonzero(box[0]["global_index"] == 0))
                yield None
        state.hours.flusher.rest(hour)
        self._removed[hour] = removed
        new = int(np.count_nonzero(gone)) - removed
        # A third, not half: some ended rows are within their keep time.
        if (new >= ROWS_MIN and 3 * new > last - removed) or (found and new):
            bits = np.packbits(gone), np.packbits(bare)
            self._marks[hour] = Mark(last, *bits, state.position, counts)
        else:
            self._again_ms[hour] = clock() + AGAIN_MS
        return found

    # ------------------------------------------------------------------ far hours

    def merge_far(self, clock: Callable[[], int]) -> Work:
        """Merge runs of the far tier, leaving out removable rows.

        A start from an older checkpoint reads the older runs, so no mark is needed.
        """
        state = self._state
        dropped: list[OwnedIds] = []

        def keep(keys: Int64Array, rows: RowArray) -> Generator[None, None, Mask]:
            # Hours that have left the far tier since the merge began may have been removed.
            kept: Mask = keys >> INDEX_BITS >= state.hours.counts.far_from
            keys, rows = keys[kept], take_rows(rows, kept)
            hours = keys >> INDEX_BITS
            refs = rows["epoch_tag"].astype(np.int64) << INDEX_BITS
            refs |= hours << HOUR_SHIFT | keys & INDEX_MASK
            gone, _ = yield from removable_rows(state, refs, rows, clock())
            if state.archive_hold:
                # The archive needs the ended rows, except those to erase.
                gone &= self._erased(rows)
            if some(gone):
                self.rows += int(np.count_nonzero(gone))
                first = gone & (rows["origin"] == refs)
                dropped.append(owned_ids(take_rows(rows, first), hours[first]))
            kept[kept] = ~gone
            return kept

        yield from state.hours.far.merges.work(
            state.hours.counts,
            None if state.archive_hold and not state.marks.erasing else keep,
        )
        if sum(map(len, dropped)):
            yield from self._upkeep.apart(state.ids.forget_jobs(dropped))

    # ------------------------------------------------------------------ erasing

    def _erased(self, rows: RowArray) -> Mask:
        """Which rows belong to messages that a purge has asked to erase."""
        out = np.zeros(len(rows), np.bool_)
        for number in self._state.marks.erasing:
            topic = self._state.by_number.get(number)
            if topic is not None:
                out |= (rows["topic"] == number) & (rows["sent_position"] < topic.erased)
        return out

    def _erase_far(self, erased: Mapping[int, int]) -> set[int]:
        """Have the far tier rewritten; returns the topics of which it may still have messages.

        Old runs are removed once neither kept checkpoint names them.
        """
        state = self._state
        wanted = {
            (number, position, _FAR)
            for number, position in erased.items()
            if state.hours.far.may_hold(position, state.by_number[number].last_hour)
        }
        if self._rewritten_for and state.hours.far.merges.rewritten:
            self._clean |= self._rewritten_for
            self._rewritten_for.clear()
        wanted -= self._clean
        if wanted and not self._rewritten_for and state.hours.far.merges.rewrite():
            self._rewritten_for |= wanted
        return {number for number, _, _ in wanted}

    def _erase(self, clock: Callable[[], int], stopping: Callable[[], bool]) -> Work:
        """Mark messages that a purge has asked to erase; note topics without any left.

        Once both kept checkpoints are past the purge, all its messages are in the files of hours,
        and not only in the log. Segments of the log are removed once no checkpoint needs them.
        """
        state, covered = self._state, self._covered()
        topics = {number: state.by_number.get(number) for number in sorted(state.marks.erasing)}
        state.marks.erasing.difference_update(
            number for number, topic in topics.items() if topic is None
        )
        erased = {
            number: topic.erased
            for number, topic in topics.items()
            if topic is not None and topic.erased <= covered
        }
        left = self._erase_far(erased)
        for hour, counts in list(state.hours.counts.near.items()):
            wanted = {
                number: position
                for number, position in erased.items()
                if (number, position, hour) not in self._clean
            }
            if not counts.rows or not wanted or stopping():
                left |= wanted.keys()
                continue
            holding = {
                number: position
                for number, position in wanted.items()
                if _may_hold(state.hours.folders.hour(hour), number)
            }
            if hour in self._marks or (holding and not self._may(hour, clock())):
                left |= holding.keys()
                continue
            if holding:
                found = yield from self.look_through(hour, counts, clock, holding)
                left |= found
                wanted = {n: position for n, position in wanted.items() if n not in found}
            self._clean |= {(number, position, hour) for number, position in wanted.items()}
            yield None
        for number in erased.keys() - left:
            topic = topics[number]
            if topic is not None and state.log.first_position >= erased[number]:
                state.before_change(number)
                topic.erased_here = erased[number]
                if not topic.erasing:
                    state.marks.erasing.discard(number)
        if not state.marks.erasing:
            self._clean.clear()

    # ------------------------------------------------------------------ removing

    def _remove(
        self,
        hour: int,
        mark: Mark,
        clock: Callable[[], int],
        stopping: Callable[[], bool],
    ) -> Work:
        state = self._state
        if state.hours.counts.near.get(hour) is not mark.counts or not self._may(hour, clock()):
            return
        folder, gone = state.hours.folders.hour(hour), mark.mask(mark.gone)
        kept = mark.rows - int(np.count_nonzero(gone))
        needed = folder.log_size + kept * INDEX_ENTRY_SIZE + state.limits.disk_reserve_bytes
        if state.fs.free_bytes(state.folder) < needed:
            # The old and the new files exist at the same time for a while.
            self._again_ms[hour] = clock() + AGAIN_MS
            return
        before = folder.extent_count, folder.log_size
        self._upkeep.compacted = hour
        try:
            yield from self._upkeep.apart(self._forget_ids(hour, gone))
            # The wheel has no refs to an hour ahead, so states of its removed rows are not read.
            ahead = hour > clock() // HOUR_MS
            removal = Removal(gone, mark.mask(mark.bare), states=ahead)
            yield from state.hours.compact(hour, removal, stopping)
        finally:
            self._upkeep.compacted = None
        if before == (folder.extent_count, folder.log_size):
            return
        removed = mark.rows - kept
        self.rows += removed - self._removed.get(hour, 0)
        self.hours += 1
        self._removed[hour] = removed
        self._freed()

    def _forget_ids(self, hour: int, removed: Mask) -> Work:
        """Remove messages from the id index whose first rows are removed."""
        state = self._state
        found: list[OwnedIds] = []
        for first in range(0, len(removed), _SLICE_ROWS):
            gone = removed[first : first + _SLICE_ROWS]
            if some(gone):
                yield partial(_gather, state.hours.folders.hour(hour), first, gone, found)
            if sum(map(len, found)) >= SORTED_MAX:
                yield from state.ids.forget_jobs(found)
                found.clear()
        yield from state.ids.forget_jobs(found)


def _gather(folder: DelayHour, first: int, gone: Mask, found: list[OwnedIds]) -> None:
    rows = take_rows(folder.read_range(first + 1, first + len(gone)), gone)
    # Only first rows: a message that moved is found by its first row.
    owned = owned_ids(take_rows(rows, rows["origin"] == _refs(folder.hour, rows)), folder.hour)
    if len(owned):
        found.append(owned)


def _may_hold(folder: DelayHour, topic: int) -> bool:
    """Whether the files may contain rows of a topic, by the zone maps."""
    bits = folder.extents()["topic_bits"]
    return some(bits & np.uint64(1 << (topic % 64)))


def _read(folder: DelayHour, first: int, last: int, box: list[RowArray]) -> None:
    box.append(folder.read_range(first, last))


def _refs(hour: int, rows: RowArray) -> Int64Array:
    tags = rows["epoch_tag"].astype(np.int64)
    refs: Int64Array = hour << HOUR_SHIFT | tags << INDEX_BITS | rows["global_index"]
    return refs
