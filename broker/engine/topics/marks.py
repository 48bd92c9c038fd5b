"""Marks: which topics and groups need attention, by number.

A mark is a hint for a periodic look or for the host. Whoever follows one checks the topic or group
again, so a mark that is out of date does no harm. Nothing here is stored in a checkpoint.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.model import Topic
from delaylog.storage.columns.questions import among, distinct
from delaylog.storage.layout import Int64Array

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
