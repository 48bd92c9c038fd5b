"""What the state keeps about all topics together: their names in order, marks, and own metrics.

`TopicNames` are sorted in each namespace, for the pages of a list of topics.

`Marks` tell by number which topics and groups need attention. A mark is a hint for a periodic look
or for the host. Whoever follows one checks the topic or group again, so a mark that is out of date
does no harm. Marks are not stored in a checkpoint.

`Series` tells which topics and groups have their own metrics; all others are summed under one
label. A topic gets its own series when it is created, if one is free, and keeps it until it is
dropped. A topic created while none was free stays among the others, also across restarts
(checkpoints record it), so that the counters of the others never fall. When a group is dropped, its
living and leased messages are subtracted from the sums.
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedList

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.groups import SAVED_COUNTS, Group, GroupCounts
from delaylog.broker.engine.watch.histogram import Lateness
from delaylog.storage.columns import among, distinct
from delaylog.storage.layout import Int64Array

# ---------------------------------------------------------------------------------------- names


class TopicNames:
    """Sorted names, so that the cost of a page depends on its length only."""

    def __init__(self) -> None:
        self._spaces: dict[str, SortedList[str]] = {}

    def add(self, namespace: str, name: str) -> None:
        """A topic was created."""
        found = self._spaces.get(namespace)
        if found is None:
            found = self._spaces[namespace] = SortedList()
        found.add(name)

    def remove(self, namespace: str, name: str) -> None:
        """A topic was dropped."""
        names = self._spaces[namespace]
        names.remove(name)
        if not names:
            del self._spaces[namespace]

    def namespaces(self) -> list[str]:
        """Namespaces that have topics, by name."""
        return sorted(self._spaces)

    def page(
        self, namespace: str, limit: int, *, after: str = "", prefix: str = ""
    ) -> tuple[list[str], str | None]:
        """Up to `limit` names behind `after`, and the cursor of the next page; None on the last."""
        first = max(after, prefix)
        names = self._spaces.get(namespace)
        if names is None:
            return [], None
        behind = names.irange(first, inclusive=(first != after, True))
        matching = takewhile(lambda name: name.startswith(prefix), behind)
        found = list(islice(matching, limit + 1))
        page = found[:limit]
        return page, page[-1] if len(found) > limit else None


# ---------------------------------------------------------------------------------------- marks

SPECIAL_FEW: Final = 16

GroupKey = tuple[int, int]
"""The number of a topic, and that of one of its groups."""


class Marks:
    """Topics and groups that need attention."""

    __slots__ = (
        "dropped",
        "ephemeral",
        "erasing",
        "filtered",
        "lease_full",
        "newly_ready",
        "rate_limited",
        "retire_queue",
        "special",
        "timed",
    )

    def __init__(self) -> None:
        self.special: set[int] = set()
        """Topics with named groups, now or earlier, or with a floor in the default group: a row
        that becomes ready there is judged for each group."""
        self.timed: set[int] = set()
        """Topics with messages that have a ttl: what becomes ready there is watched."""
        self.erasing: set[int] = set()
        """Topics with messages that a purge asked to erase and that this node still stores."""
        self.retire_queue: list[int] = []
        """Topics that `retire_unused` has still to check in this round."""
        self.ephemeral: set[GroupKey] = set()
        """Ephemeral groups."""
        self.filtered: set[GroupKey] = set()
        """Groups with a queue for a tag filter."""
        self.newly_ready: set[GroupKey] = set()
        """Groups in which something became ready since the host last woke consumers."""
        self.lease_full: set[GroupKey] = set()
        """Groups at `leased_max` that have refused a receive."""
        self.rate_limited: dict[GroupKey, int] = {}
        """Groups whose rate limit has refused a receive, and when it lets more through."""
        self.dropped: list[tuple[str, str, str]] = []
        """Namespace, topic and group of groups dropped since the host last looked: consumers that
        wait for one are notified."""

    def special_among(self, numbers: Int64Array) -> npt.NDArray[np.bool_]:
        """Which topic numbers are special; the cost depends on `numbers`, not on `special`."""
        if len(self.special) <= SPECIAL_FEW:
            few = np.fromiter(self.special, np.int64, len(self.special))
        else:
            found = [number for number in distinct(numbers).tolist() if number in self.special]
            few = np.array(found, np.int64)
        return among(numbers, few)

    def mark_special(self, topic: Topic) -> None:
        """Mark a topic whose groups or floors changed as special, or as special no more."""
        if topic.plain and not topic.default.floor and not topic.had_groups:
            self.special.discard(topic.number)
        else:
            self.special.add(topic.number)


# ---------------------------------------------------------------- topics with their own metrics

GROUPS_PER_TOPIC: Final = 4
"""Series for groups, for each series of a topic."""
_FIELDS: Final = (*SAVED_COUNTS, "replaced")


class Series:
    """Topics with their own metrics, and the sums over all others."""

    def __init__(self, topics_max: int) -> None:
        self.topics_max = topics_max
        self.topics: dict[int, Topic] = {}
        """Topics with their own metrics, by number."""
        self.groups = 0
        """Number of groups with their own metrics."""
        self.sent = 0
        """Messages sent to all other topics, including dropped ones."""
        self.counts = GroupCounts()
        """Sums over all other groups; of dropped groups only ended messages."""
        self.lateness: dict[int, Lateness] = {}
        """Lateness of topics with their own metrics, by number, from their first message that was
        due. Like the rest of lateness it is not state."""
        self.other_lateness = Lateness()
        """Lateness of all other topics."""
        self.dropped_lateness = Lateness()
        """Lateness of dropped topics that had their own metrics."""

    def enter(self, topic: Topic, *, other: bool = False) -> None:
        """A topic was created or restored; `other` = it had no series before the restart."""
        if not other and len(self.topics) < self.topics_max:
            self.topics[topic.number] = topic
        elif not other:
            self.sent += topic.sent

    def leave(self, topic: Topic) -> None:
        """A topic was dropped; its series is free for a new one."""
        self.topics.pop(topic.number, None)
        late = self.lateness.pop(topic.number, None)
        if late is not None:
            self.dropped_lateness.add(late)

    def lateness_of(self, topic: Topic) -> Lateness:
        """Where the lateness of the topic's messages is counted."""
        late = self.lateness.get(topic.number)
        if late is None:
            if topic.number not in self.topics:
                return self.other_lateness
            late = self.lateness[topic.number] = Lateness()
        return late

    def total_lateness(self) -> Lateness:
        """The lateness of all messages since the start."""
        total = Lateness()
        for late in (*self.lateness.values(), self.other_lateness, self.dropped_lateness):
            total.add(late)
        return total

    def count_sent(self, topic: Topic, count: int) -> None:
        """Messages were sent to a topic."""
        topic.sent += count
        if topic.number not in self.topics:
            self.sent += count

    def enter_group(self, topic: Topic, group: Group, *, other: bool = False) -> None:
        """A group was created or restored; `other` = it was part of the sums before the restart."""
        room = self.groups < self.topics_max * GROUPS_PER_TOPIC
        if not other and room and topic.number in self.topics:
            self.groups += 1
            return
        group.counts.sums = self.counts
        if not other:
            for name in _FIELDS:
                self.counts.add(name, getattr(group.counts, name))

    def leave_group(self, group: Group) -> None:
        """A group was dropped: nothing lives in it any more."""
        if group.counts.sums is None:
            self.groups -= 1
            return
        self.counts.add("living", -group.counts.living)
        self.counts.add("leased", -group.counts.leased)
        group.counts.sums = None

    def snapshot(self) -> list[int]:
        """For a checkpoint."""
        return [self.sent, *(getattr(self.counts, name) for name in SAVED_COUNTS)]

    def restore(self, saved: list[Any], replaced: int) -> None:
        """Restore sums; topics and groups that are part of them enter as `other`."""
        self.sent, self.counts.replaced = saved[0], replaced
        for name, value in zip(SAVED_COUNTS, saved[1:], strict=True):
            setattr(self.counts, name, value)
