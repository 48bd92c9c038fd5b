"""Dead letters of a group by the reason of their last failure, and how many have each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from delaylog.broker.engine.failures.failure_table import FAILED, HOW, FailedRows, FailurePart
from delaylog.broker.engine.failures.tidying import SLICE_MESSAGES
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.whole_rows import concat_rows, take_rows
from delaylog.storage.layout import Int64Array, MessageState
from delaylog.storage.work import ReadJob, Work


def _last(parts: Sequence[FailedRows], topic: int, group: int) -> tuple[FailedRows, Int64Array]:
    """The last failure of each message of a group, and the part that it is in."""
    mine = [take_rows(rows, (rows["topic"] == topic) & (rows["group"] == group)) for rows in parts]
    part_of = np.repeat(np.arange(len(parts)), [len(rows) for rows in mine])
    rows = concat_rows([np.zeros(0, FAILED), *mine])
    _, at = np.unique(rows["origin"][::-1], return_index=True)
    at = len(rows) - 1 - at
    return take_rows(rows, at), part_of[at]


@dataclass(slots=True)
class _Reason:
    count: int = 0
    first_ms: int = 2**63 - 1
    last_ms: int = 0
    origin: int = 0
    """Of the message that failed last."""
    consumers: set[str] = field(default_factory=set)


class DeadReasons:
    """Counts the dead letters of a group; `work` fills `reasons` and `other`."""

    def __init__(
        self, state: EngineState, topic: Topic, group: Group, *, told: bool = True
    ) -> None:
        """`told` = whether by the reasons too; else only by how the attempts failed."""
        self._state, self._topic, self._group, self._told = state, topic, group, told
        self._found: dict[tuple[str, str], _Reason] = {}
        self.other = group.counts.dead
        """Dead letters without a failure: they expired, or the table has forgotten theirs."""

    def work(self) -> Work:
        """Look at every message that has failed, in slices."""
        group = self._group
        parts = self._state.failures.parts
        columns = [part.rows for part in parts]
        box: list[tuple[FailedRows, Int64Array]] = []
        # A full table takes tens of milliseconds to sort.
        yield ReadJob(lambda: box.append(_last(columns, self._topic.number, group.number)))
        rows, part_of = box.pop()
        for first in range(0, len(rows), SLICE_MESSAGES):
            some = slice(first, first + SLICE_MESSAGES)
            self._count(rows[some], [parts[number] for number in part_of[some].tolist()])
            yield None
        self.other = max(group.counts.dead - sum(each.count for each in self._found.values()), 0)

    def _count(self, rows: FailedRows, parts: list[FailurePart]) -> None:
        origins = rows["origin"].astype(np.int64)
        found = find_origins(self._state, origins, self._topic, group=self._group)
        dead = np.flatnonzero(found.known & (found.states == int(MessageState.DEAD)))
        for slot, row in zip(dead.tolist(), rows[dead], strict=True):
            texts = parts[slot].texts
            key = HOW[row["how"]], texts[row["reason"]] if self._told else ""
            reason = self._found.setdefault(key, _Reason())
            reason.count += 1
            at_ms = int(row["at_ms"])
            reason.first_ms = min(reason.first_ms, at_ms)
            if at_ms >= reason.last_ms:
                reason.last_ms, reason.origin = at_ms, int(row["origin"])
            if consumer := texts[row["consumer"]]:
                reason.consumers.add(consumer)

    def most(self, count: int) -> list[tuple[dict[str, Any], int]]:
        """(members of an answer, origin of the last message) of the most frequent reasons."""
        ordered = sorted(self._found.items(), key=lambda each: (-each[1].count, each[0]))
        return [
            (
                {
                    "cause": how,
                    "reason": text or None,
                    "count": one.count,
                    "consumers": len(one.consumers),
                    "first_ms": one.first_ms,
                    "last_ms": one.last_ms,
                },
                one.origin,
            )
            for (how, text), one in ordered[:count]
        ]
