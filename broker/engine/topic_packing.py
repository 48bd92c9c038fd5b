"""Topics of a checkpoint, packed in slices while the broker goes on.

A checkpoint is of one log position. A topic that is about to change while others are still being
packed is packed first (copy-on-write), so each is packed as it was at that position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgpack

from delaylog.broker.engine.groups import Group
from delaylog.broker.engine.key_gate import NO_KEYS
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.series import Series
from delaylog.broker.engine.settings import TopicSettings
from delaylog.storage.packing import PackedList

SLICE_TOPICS: Final = 8
BLOCK_BYTES: Final = 1 << 18
"""Blocks of this size are handed to the writer: it copies one at a time."""
_COUNT_FIELDS: Final = ("living", "leased", "acked", "expired", "dead", "deleted", "delivered")
_PACKER: Final = msgpack.Packer()


class TopicPacking:
    """Packs the topics that exist when it is made."""

    def __init__(self, topics: Mapping[int, Topic], series: Series) -> None:
        self._by_number = topics
        self._series = series
        self._numbers = sorted(topics)
        self._end = self._numbers[-1] + 1 if self._numbers else 0
        """Topics from this number on were created later."""
        self._reached = 0
        """Topics below this number are packed."""
        self._early: dict[int, bytes] = {}
        self._known: dict[int, tuple[TopicSettings, int]] = {}
        """Places in `settings` by the identity of the object, which is kept for that."""
        self.settings: list[dict[str, Any]] = []
        """What topics name by its place: those of nearly all are the same object."""
        self.topics = PackedList(len(self._numbers))

    def before_change(self, number: int) -> None:
        """A topic is about to change, or to be dropped."""
        if self._reached <= number < self._end and number not in self._early:
            topic = self._by_number.get(number)
            if topic is not None:
                self._early[number] = self._pack(topic)

    def work(self) -> Iterator[None]:
        """Pack what is left."""
        block = bytearray()
        for at, number in enumerate(self._numbers):
            packed = self._early.pop(number, None)
            block += self._pack(self._by_number[number]) if packed is None else packed
            self._reached = number + 1
            if len(block) >= BLOCK_BYTES:
                self.topics.blocks.append(bytes(block))
                block.clear()
            if at % SLICE_TOPICS == SLICE_TOPICS - 1:
                yield None
        self.topics.blocks.append(bytes(block))

    def _pack(self, topic: Topic) -> bytes:
        members = {
            "settings": self._number_of(topic.settings),
            "number": topic.number,
            "ns": topic.namespace,
            "name": topic.name,
            "made": topic.made,
            "paused": topic.paused,
            "prioritised": topic.prioritised,
            "own_backoffs": topic.own_backoffs,
            "sent": topic.sent,
            "bytes_sent": topic.bytes_sent,
            "keep": topic.keep_until_ms,
            "last_hour": topic.last_hour,
            "next_group": topic.next_group,
            "other": topic.number not in self._series.topics,
            "erased": [topic.erased, topic.erased_here],
            "groups": [_saved_group(group) for group in topic.groups.values()],
        }
        packed: bytes = _PACKER.pack(members)
        return packed

    def _number_of(self, settings: TopicSettings) -> int:
        known = self._known.get(id(settings))
        if known is None:
            known = self._known[id(settings)] = (settings, len(self.settings))
            self.settings.append(settings.as_dict())
        return known[1]


def _saved_group(group: Group) -> dict[str, Any]:
    return {
        "number": group.number,
        "name": group.name,
        "born": group.born,
        "ephemeral": group.ephemeral,
        "floor": group.floor,
        "gate": NO_KEYS if group.made_gate is None else group.gate.snapshot(),
        "purged_ms": group.purged_ms,
        "counts": [getattr(group.counts, name) for name in _COUNT_FIELDS],
        "hours": group.hours.pack(),
        "guests": group.guests.pack(),
        "other": group.counts.sums is not None,
    }
