"""Control over groups: each call acts in every group where the message can still be changed.

A message is done if it was done in any group, and then it is said which groups were too late; it
is too late if there was none. Most topics have one group, for which this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from delaylog.broker.engine.control.changing import DONE, TOO_LATE, ControlResult
from delaylog.broker.engine.control.found import FoundColumns
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.groups import Group


@dataclass(frozen=True, slots=True)
class GroupedResult:
    """A result over all groups, and by message the groups that were too late for it."""

    result: ControlResult
    late: list[list[str]]

    def late_for(self, at: int) -> list[str]:
        """Groups that were too late for a message that is done elsewhere."""
        return self.late[at] if self.late else []


def in_groups(
    topic: Topic,
    find: Callable[[Group], FoundColumns],
    act: Callable[[FoundColumns], ControlResult],
) -> GroupedResult:
    """Find messages as each group sees them and act on what is found."""
    if topic.plain:
        return GroupedResult(act(find(topic.default)), [])
    if not topic.groups:
        # Nobody sees its messages, so there are none.
        return GroupedResult(act(find(topic.default)), [])
    best: ControlResult | None = None
    late: list[list[str]] = []
    for group in topic.groups.values():
        found = find(group)
        # A group of which nothing is known has no say.
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
    """The better result of two for each message."""
    found = one.found
    columns = {}
    for name in ("known", "origins", "refs", "rows", "entries", "states"):
        column = getattr(found, name).copy()
        column[better] = getattr(other.found, name)[better]
        columns[name] = column
    return ControlResult(
        np.minimum(one.codes, other.codes),
        FoundColumns(**columns, group=found.group),
        np.where(better, other.deliver_at_ms, one.deliver_at_ms),
        max(one.position, other.position),
    )
