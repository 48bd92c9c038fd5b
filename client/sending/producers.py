"""Names under which lanes send, so that a broker knows a repeat from a new message.

The one rule: no (producer, sequence) is ever used for two different requests, by any process: each
client adds a part of its own to the name it was given, a forked child another one, and a numbering
that is given back goes on where it stood.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections import deque
from typing import Final

PRODUCER_CHARS_MAX: Final = 200
"""A broker takes 255; the rest is for what is added."""


class Numbering:
    """A producer's name and its next sequence."""

    __slots__ = ("_next", "producer")

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self._next = 0

    def take(self) -> int:
        """The next sequence."""
        taken = self._next
        self._next += 1
        return taken


class Producers:
    """The numberings of one client. Threads may take and give back at once."""

    def __init__(self, label: str | None = None) -> None:
        if label is not None and not (
            isinstance(label, str) and 1 <= len(label) <= PRODUCER_CHARS_MAX
        ):
            raise ValueError(f"a producer is named by 1 to {PRODUCER_CHARS_MAX} characters")
        self._label = label
        self._begin()

    def take(self) -> Numbering:
        """One that nobody uses now."""
        if os.getpid() != self._process_id:
            # The parent goes on with the same names: ours would be taken for its repeats.
            self._begin()
        try:
            return self._spare.pop()
        except IndexError:
            return Numbering(f"{self._name}-{next(self._numbers)}")

    def give_back(self, numbering: Numbering) -> None:
        """It may be used again, for any topic: sequences only have to grow."""
        if os.getpid() == self._process_id:
            self._spare.append(numbering)

    def _begin(self) -> None:
        # Of a name that was given, a run before this one may have used every sequence from 0.
        unique = uuid.uuid4().hex
        self._name = unique if self._label is None else f"{self._label}-{unique[:12]}"
        self._spare: deque[Numbering] = deque()
        self._numbers = itertools.count()
        self._process_id = os.getpid()
