"""Packs topics for checkpoints, in slices, while the broker goes on.

A checkpoint is of one log position. A topic that is about to change while others are still being
packed is packed before the change (copy-on-write), so that each is packed as it was at that
position. Packed topics are cached until they change: of many topics few change between two
checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgpack

from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.ready.key_gate import NO_KEYS
from delaylog.broker.engine.topics.groups import SAVED_COUNTS, Group
from delaylog.broker.engine.topics.registry import Series
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.contract.named_fields import NamedFields
from delaylog.storage.checkpoint import PackedList

SLICE_TOPICS: Final = 8
BLOCK_BYTES: Final = 1 << 18
"""Blocks of this size are handed to the writer: it copies one at a time."""
_SETTINGS_MIN: Final = 64
_PACKER: Final = msgpack.Packer()


TOPIC: Final = NamedFields(
    paused="paused",
    prioritised="prioritised",
    own_backoffs="own_backoffs",
    sent="sent",
    bytes_sent="bytes_sent",
    keep="keep_until_ms",
    last_hour="last_hour",
    next_group="next_group",
)
"""Fields of a topic in a checkpoint."""
GROUP: Final = NamedFields(born="born", ephemeral="ephemeral", floor="floor", purged_ms="purged_ms")


class PackedTopics:
    """Packed topics. `before_change` must be called before any change to a topic."""

    def __init__(self, topics: Mapping[int, Topic], series: Series) -> None:
        self.topics = topics
        self._series = series
        self._packed: dict[int, bytes] = {}
        """Topics that have not changed since they were packed."""
        self._packing: TopicPacking | None = None
        self.settings: list[dict[str, Any]] = []
        """Distinct settings; packed topics contain an index into it."""
        self._known: dict[int, tuple[TopicSettings, int]] = {}
        """Indexes into `settings` by the identity of the object, which is kept alive here."""

    def begin(self) -> TopicPacking:
        """Begin to pack the topics that exist now; `work` does it."""
        if len(self.settings) > _SETTINGS_MIN + 2 * len(self.topics):
            # Most of them belong to topics whose settings have changed since.
            self._packed, self._known, self.settings = {}, {}, []
        self._packing = TopicPacking(self)
        return self._packing

    def work(self) -> Iterator[None]:
        """Pack the topics that existed at `begin`."""
        if self._packing is not None:
            yield from self._packing.work()
            self._packing = None

    def give_up(self) -> None:
        """Abandon the packing that is under way."""
        self._packing = None

    def before_change(self, number: int) -> None:
        """A topic is about to change, or to be dropped."""
        if self._packing is not None:
            self._packing.before_change(number)
        self._packed.pop(number, None)

    def of(self, topic: Topic) -> bytes:
        """A topic as it is now, packed."""
        found = self._packed.get(topic.number)
        if found is None:
            found = self._packed[topic.number] = self._pack(topic)
        return found

    def _pack(self, topic: Topic) -> bytes:
        members = {
            "settings": self._number_of(topic.settings),
            "number": topic.number,
            "ns": topic.namespace,
            "name": topic.name,
            "made": topic.made,
            **TOPIC.pack(topic),
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


class TopicPacking:
    """Packs the topics that exist when it is created."""

    def __init__(self, packed: PackedTopics) -> None:
        self._packed = packed
        self._numbers = sorted(packed.topics)
        self._end = self._numbers[-1] + 1 if self._numbers else 0
        """Topics from this number on were created later."""
        self._reached = 0
        """Topics below this number are packed."""
        self._early: dict[int, bytes] = {}
        self.topics = PackedList(len(self._numbers))
        self.settings = packed.settings

    def before_change(self, number: int) -> None:
        """A topic is about to change, or to be dropped."""
        if self._reached <= number < self._end and number not in self._early:
            topic = self._packed.topics.get(number)
            if topic is not None:
                self._early[number] = self._packed.of(topic)

    def work(self) -> Iterator[None]:
        """Pack what is left."""
        block = bytearray()
        for at, number in enumerate(self._numbers):
            early = self._early.pop(number, None)
            block += self._packed.of(self._packed.topics[number]) if early is None else early
            self._reached = number + 1
            if len(block) >= BLOCK_BYTES:
                self.topics.blocks.append(bytes(block))
                block.clear()
            if at % SLICE_TOPICS == SLICE_TOPICS - 1:
                yield None
        self.topics.blocks.append(bytes(block))


def _saved_group(group: Group) -> dict[str, Any]:
    return {
        "number": group.number,
        "name": group.name,
        **GROUP.pack(group),
        "gate": NO_KEYS if group.made_gate is None else group.gate.snapshot(),
        "counts": [getattr(group.counts, name) for name in SAVED_COUNTS],
        "replaced": group.counts.replaced,
        "hours": group.hours.pack(),
        "guests": group.guests.pack(),
        "other": group.counts.sums is not None,
    }
