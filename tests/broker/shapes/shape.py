"""A shape: how a load spreads over hours and topics, and what is done to it; messages of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from tests.broker.shapes.pairs import pairwise

HOUR_MS = 3_600_000
NEAR_MS_RANGE = (100, 2_000)
"""Delays of messages that come due within the test."""
FAR_MS_MIN = HOUR_MS
"""No message with a longer delay comes due within the test, which may take minutes."""
NEAR_EVERY = 8
TOPICS_WITH_NEAR = 64
"""Near messages go to this many topics: each of them has to be received from by itself."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One case of the matrix."""

    hours: int
    many_topics: bool
    bulk: bool
    end: str
    """How the broker ends in the middle: "kill" or "stop"."""
    use: str
    """"plain", "cancels" or "groups"."""

    def __str__(self) -> str:
        topics = "topics" if self.many_topics else "topic"
        return f"{self.hours}h-{topics}-{'bulk' if self.bulk else 'single'}-{self.end}-{self.use}"


SHAPES = [
    Shape(*case)
    for case in pairwise(
        (87_600, 8_760, 720, 1),
        (True, False),
        (True, False),
        ("kill", "stop"),
        ("cancels", "groups", "plain"),
    )
]


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cases are, and what the broker gets for it."""

    topics: int
    """Where there are many."""
    bulk: int
    single: int
    """Messages of a case, by how they are sent."""
    lookups: int
    """Far messages that are looked up one by one."""
    resident_kib_max: int
    """Of the broker; an idle one has 66 MiB."""
    constants: Mapping[str, float]
    """Of the broker's code."""

    def messages(self, shape: Shape) -> int:
        return self.bulk if shape.bulk else self.single


@dataclass(frozen=True, slots=True)
class Planned:
    """A message to be sent."""

    topic: str
    id: str
    body: bytes
    delay_ms: int


def plan(shape: Shape, size: Size, random: Random) -> Iterator[list[Planned]]:
    """The messages of a case, in the batches in which they are sent, one topic each."""
    topics = size.topics if shape.many_topics else 1
    count = size.messages(shape) // topics
    batch = min(count, 1_000) if shape.bulk else 1
    near_topics = range(0, topics, max(1, topics // TOPICS_WITH_NEAR))
    # In rounds over all topics, so that each of them is sent to again and again.
    for first in range(0, count, batch):
        for topic in range(topics):
            yield [
                Planned(
                    f"t{topic}",
                    f"t{topic}-{number}",
                    f"t{topic}-{number}".encode().ljust(100, b"."),
                    _delay_ms(shape, random, topic in near_topics and number % NEAR_EVERY == 0),
                )
                for number in range(first, min(first + batch, count))
            ]


def _delay_ms(shape: Shape, random: Random, near: bool) -> int:
    if near:
        return random.randint(*NEAR_MS_RANGE)
    return random.randint(FAR_MS_MIN, shape.hours * HOUR_MS + FAR_MS_MIN)
