"""Which topics and groups have metrics of their own; all others are summed.

A topic takes a place when it is created and keeps it until it is dropped. A topic that was created
while no place was free stays among the others, also across restarts (checkpoints record it), so
the counters of the others never fall. Living and leased messages leave the sums with their group.
"""

from __future__ import annotations

from typing import Any, Final

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.topics.groups import Group, GroupCounts

GROUPS_PER_TOPIC: Final = 4
"""Places for groups, for each place of a topic."""
_FIELDS: Final = ("living", "leased", "acked", "expired", "dead", "deleted", "delivered")


class Series:
    """Places of topics, and the sums over those without one."""

    def __init__(self, topics_max: int) -> None:
        self.topics_max = topics_max
        self.topics: dict[int, Topic] = {}
        """Topics with metrics of their own, by number."""
        self.groups = 0
        """Groups with metrics of their own."""
        self.sent = 0
        """Messages sent to all other topics, dropped ones too."""
        self.counts = GroupCounts()
        """Sums over all other groups; of dropped ones only what had ended."""

    def enter(self, topic: Topic, *, other: bool = False) -> None:
        """A topic exists from now on; `other` = it had no place before a restart."""
        if not other and len(self.topics) < self.topics_max:
            self.topics[topic.number] = topic
        elif not other:
            self.sent += topic.sent

    def leave(self, topic: Topic) -> None:
        """A topic was dropped; its place is free for a new one."""
        self.topics.pop(topic.number, None)

    def count_sent(self, topic: Topic, count: int) -> None:
        """Messages were sent to a topic."""
        topic.sent += count
        if topic.number not in self.topics:
            self.sent += count

    def enter_group(self, topic: Topic, group: Group, *, other: bool = False) -> None:
        """A group exists from now on, or comes back from a checkpoint that named its sums."""
        room = self.groups < self.topics_max * GROUPS_PER_TOPIC
        if not other and room and topic.number in self.topics:
            self.groups += 1
            return
        group.counts.sums = self.counts
        if not other:
            for name in _FIELDS:
                self.counts.add(name, getattr(group.counts, name))

    def leave_group(self, group: Group) -> None:
        """A group goes: what lived in it lives no more."""
        if group.counts.sums is None:
            self.groups -= 1
            return
        self.counts.add("living", -group.counts.living)
        self.counts.add("leased", -group.counts.leased)
        group.counts.sums = None

    def snapshot(self) -> list[int]:
        """For a checkpoint."""
        return [self.sent, *(getattr(self.counts, name) for name in _FIELDS)]

    def restore(self, saved: list[Any]) -> None:
        """Sums of a checkpoint; topics and groups that were part of them enter as `other`."""
        self.sent = saved[0]
        for name, value in zip(_FIELDS, saved[1:], strict=True):
            setattr(self.counts, name, value)
