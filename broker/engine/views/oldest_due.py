"""The due time of the oldest ready message of a group, or of many: how long somebody has waited.

Ready refs are looked at where they lie, in memory. Refs of many groups are looked up in one pass,
since the overhead of a look-up is more than that of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delaylog.broker.engine.ready.fifo_queue import HEAD_REFS_MAX
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import distinct, grouped, some
from delaylog.storage.layout import HOUR_MS, HOUR_SHIFT, STATE_ENTRY, STATE_NONE, Int64Array

FRONT_REFS: Final = 1
"""Refs at the front of a queue in order of release: the first one is the oldest, or nearly."""
SAMPLE_REFS: Final = 1_024
"""Refs of a group whose rows are read at once: a sample if more are of its oldest hour."""
HOURS_MAX: Final = 8
"""Hours in which only ended messages are found before the search ends."""
GROUPS_AT_ONCE: Final = 8
"""Groups whose states are looked up in one pass when the oldest message of many is sought."""
_NONE: Final = np.iinfo(np.int64).max


def oldest_due_ms(state: EngineState, groups: Sequence[Group]) -> list[int | None]:
    """For each group the due time of its oldest ready message, in Unix ms; None if it has none.

    Messages whose key is locked are ready. Refs on disk are not looked at: they are behind those in
    memory, but for messages of low priority and keys that were locked later.
    """
    if not groups:
        return []
    sought = [_oldest_hour(_ready_refs(group, FRONT_REFS)) for group in groups]
    found: list[int | None] = _living_due(state, groups, sought)
    for at, group in enumerate(groups):
        if found[at] is None and len(sought[at]):
            # What is at the front has ended.
            found[at] = _search(state, group)
    return found


class OldestDue:
    """Seeks the oldest ready message of many groups.

    Rows are read in the oldest hours only, and states for the groups with the oldest rows only.
    """

    def __init__(self) -> None:
        self.due_ms: int | None = None
        """Its due time in Unix ms, of the groups before the last `look`; None if none is ready."""
        self._groups: list[Group] = []
        self._fronts: list[Int64Array] = []

    def add(self, group: Group, front: Sequence[Int64Array]) -> None:
        """Consider a group at the next `look`, which must see the same state.

        `front` is what is at the front of its queues (`FRONT_REFS`), and not empty.
        """
        self._groups.append(group)
        self._fronts.append(_oldest_hour(_joined(front)))

    def look(self, state: EngineState) -> None:
        """Look into the groups that were added since the last time."""
        groups, fronts = self._groups, self._fronts
        if not groups:
            return
        self._groups, self._fronts = [], []
        refs = np.concatenate(fronts)
        owners = np.repeat(np.arange(len(groups)), [len(front) for front in fronts])
        hours = refs >> HOUR_SHIFT
        for hour in distinct(hours).tolist():
            if self.due_ms is not None and hour * HOUR_MS >= self.due_ms:
                break
            here = np.flatnonzero(hours == hour)
            known = state.hours.known(refs[here])
            due_ms = np.full(len(groups), _NONE)
            # Of a row that was removed only the hour is known; others may be ready behind it.
            due_ms[owners[here[~known]]] = hour * HOUR_MS
            here = here[known]
            np.minimum.at(due_ms, owners[here], state.hours.rows(refs[here])["deliver_at"])
            self._look_into(state, groups, due_ms)

    def _look_into(self, state: EngineState, groups: Sequence[Group], due_ms: Int64Array) -> None:
        """Look into groups, given the due times of their first messages, which may have ended."""
        order = np.argsort(due_ms, kind="stable")
        for first in range(0, len(groups), GROUPS_AT_ONCE):
            at = order[first : first + GROUPS_AT_ONCE]
            at = at[due_ms[at] < (_NONE if self.due_ms is None else self.due_ms)]
            for due in oldest_due_ms(state, [groups[each] for each in at.tolist()]):
                if due is not None and (self.due_ms is None or due < self.due_ms):
                    self.due_ms = due
            if len(at) < GROUPS_AT_ONCE:
                break


def _search(state: EngineState, group: Group) -> int | None:
    """Look through all refs in memory, hour by hour."""
    refs = _ready_refs(group, HEAD_REFS_MAX)
    for _ in range(HOURS_MAX):
        if not len(refs):
            break
        (due_ms,) = _living_due(state, [group], [_oldest_hour(refs)])
        if due_ms is not None:
            return due_ms
        hours = refs >> HOUR_SHIFT
        refs = refs[hours > hours.min()]
    return None


def _ready_refs(group: Group, front: int) -> Int64Array:
    parts = [] if group.made_ready is None else group.made_ready.in_memory(front)
    return _joined(parts) if parts else np.zeros(0, np.int64)


def _joined(parts: Sequence[Int64Array]) -> Int64Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _oldest_hour(refs: Int64Array) -> Int64Array:
    """The refs of the oldest hour, at most `SAMPLE_REFS`: a ref begins with the hour of its row."""
    if len(refs) > 1:
        hours = refs >> HOUR_SHIFT
        refs = refs[hours == hours.min()]
        refs = refs[:: -(-len(refs) // SAMPLE_REFS)]
    return refs


def _living_due(
    state: EngineState, groups: Sequence[Group], sought: Sequence[Int64Array]
) -> list[int | None]:
    """For each group the least due time of those of its refs whose messages live in it."""
    counts = [len(refs) for refs in sought]
    refs, owners = np.concatenate(sought), np.repeat(np.arange(len(groups)), counts)
    known = state.hours.known(refs)
    refs, owners = refs[known], owners[known]
    least = np.full(len(groups), _NONE)
    if len(refs):
        rows, entries = state.hours.rows(refs), np.zeros(len(refs), STATE_ENTRY)
        numbers = np.array([group.number for group in groups])[owners]
        for number, mine in grouped(numbers):
            entries[mine] = state.hours.get_states(refs[mine], number)
        free = np.asarray(entries["state"] == STATE_NONE)
        floors = np.array([group.floor for group in groups])[owners]
        odd = free & ((floors != 0) | (rows["group"] != 0))
        if some(odd):
            for owner, mine in grouped(np.where(odd, owners, -1)):
                if owner >= 0:
                    free[mine] = groups[owner].free(rows[mine], entries[mine])
        np.minimum.at(least, owners[free], rows["deliver_at"][free])
    return [None if due == _NONE else due for due in least.tolist()]
