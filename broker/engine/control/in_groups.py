"""Control in all groups: a call acts in every group where the message can still be changed.

A message is done if it was changed in any group; the result then names the groups that were too
late. It is too late if it was changed in none. For a topic with one group this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from delaylog.broker.engine.control.changes import DONE, TOO_LATE, ControlResult
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.groups import Group


@dataclass(frozen=True, slots=True)
class GroupedResult:
    """A result over all groups, and for each message the groups that were too late."""

    result: ControlResult
    late: list[list[str]]

    def late_for(self, at: int) -> list[str]:
        """Groups that were too late for a message that was changed in another group."""
        return self.late[at] if self.late else []


def in_groups(
    topic: Topic,
    find: Callable[[Group], FoundMessages],
    act: Callable[[FoundMessages], ControlResult],
) -> GroupedResult:
    """Look messages up as each group sees them, and act on them in each."""
    if topic.plain:
        return GroupedResult(act(find(topic.default)), [])
    if not topic.groups:
        # Without groups no message is visible.
        return GroupedResult(act(find(topic.default)), [])
    best: ControlResult | None = None
    late: list[list[str]] = []
    for group in topic.groups.values():
        found = find(group)
        # UNKNOWN is the greatest code, so a group that does not know a message never wins.
        result = act(found)
        if best is None:
            best, late = result, [[] for _ in range(len(found))]
        for at in np.flatnonzero(result.codes == TOO_LATE).tolist():
            late[at].append(group.name)
        if best is not result:
            better = result.codes < best.codes
            best = _merged(best, result, better)
    assert best is not None, "a topic that is not plain has groups"
    for at in np.flatnonzero(best.codes != DONE).tolist():
        late[at] = []
    return GroupedResult(best, late)


def _merged(one: ControlResult, other: ControlResult, better: np.ndarray) -> ControlResult:
    """For each message the better of two results."""
    found = one.found
    columns = {}
    for name in ("known", "origins", "refs", "rows", "entries", "states"):
        column = getattr(found, name).copy()
        column[better] = getattr(other.found, name)[better]
        columns[name] = column
    return ControlResult(
        np.minimum(one.codes, other.codes),
        FoundMessages(**columns, group=found.group),
        np.where(better, other.deliver_at_ms, one.deliver_at_ms),
        max(one.position, other.position),
    )
