"""Which topics and groups have their own metrics; all others are summed under one label.

A topic gets its own series when it is created, if one is free, and keeps it until it is dropped. A
topic created while none was free stays among the others, also across restarts (checkpoints record
it), so that the counters of the others never fall. When a group is dropped, its living and leased
messages are subtracted from the sums.
"""

from __future__ import annotations

from typing import Any, Final

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.groups import SAVED_COUNTS, Group, GroupCounts
from delaylog.broker.engine.watch.lateness import Lateness

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
