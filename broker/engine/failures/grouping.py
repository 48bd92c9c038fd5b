"""Dead letters of a group by the reason of their last failure, and how many have each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from delaylog.broker.engine.failures.failure_table import HOW, FailedRows
from delaylog.broker.engine.failures.tidying import SLICE_MESSAGES
from delaylog.broker.engine.lookup.find_messages import find_origins
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.layout import Int64Array, MessageState
from delaylog.storage.work import Work


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

    def __init__(self, state: EngineState, topic: Topic, group: Group) -> None:
        self._state, self._topic, self._group = state, topic, group
        self._found: dict[tuple[str, str], _Reason] = {}
        self.other = group.counts.dead
        """Dead letters that have no failure: they expired, or theirs is not kept any more."""

    def work(self) -> Work:
        """Look at every message that has failed, in slices."""
        state, topic, group = self._state, self._topic, self._group
        rows = state.failures.rows
        rows = rows[(rows["topic"] == topic.number) & (rows["group"] == group.number)]
        # The last failure of each message.
        origins, at = np.unique(rows["origin"][::-1], return_index=True)
        rows = rows[::-1][at]
        texts = {
            number: state.failures.text(number)
            for name in ("reason", "consumer")
            for number in np.unique(rows[name]).tolist()
        }
        for first in range(0, len(origins), SLICE_MESSAGES):
            part = slice(first, first + SLICE_MESSAGES)
            self._count(origins[part], rows[part], texts)
            yield None
        self.other = max(group.counts.dead - sum(each.count for each in self._found.values()), 0)

    def _count(self, origins: Int64Array, rows: FailedRows, texts: dict[int, str]) -> None:
        found = find_origins(self._state, origins, self._topic, group=self._group)
        for row in rows[found.known & (found.states == int(MessageState.DEAD))]:
            key = HOW[row["how"]], texts[int(row["reason"])]
            reason = self._found.setdefault(key, _Reason())
            reason.count += 1
            at_ms = int(row["at_ms"])
            reason.first_ms = min(reason.first_ms, at_ms)
            if at_ms >= reason.last_ms:
                reason.last_ms, reason.origin = at_ms, int(row["origin"])
            if consumer := texts[int(row["consumer"])]:
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
