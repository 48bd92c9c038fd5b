"""Producer names and sequences, with which a broker recognizes repeated requests.

No process uses a (producer, sequence) for two different requests. Each client appends a unique part
to the given name, a forked child appends another one, and a numbering that is reused continues with
its next sequence.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections import deque
from typing import Final

PRODUCER_CHARS_MAX: Final = 200
"""A broker accepts 255 characters; the rest is for the appended part."""


class Numbering:
    """A producer name and its next sequence."""

    __slots__ = ("_next", "producer")

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self._next = 0

    def take(self) -> int:
        """Return the next sequence."""
        taken = self._next
        self._next += 1
        return taken


class Producers:
    """The numberings of one client. Thread-safe."""

    def __init__(self, label: str | None = None) -> None:
        if label is not None and not (
            isinstance(label, str) and 1 <= len(label) <= PRODUCER_CHARS_MAX
        ):
            raise ValueError(f"a producer is named by 1 to {PRODUCER_CHARS_MAX} characters")
        self._label = label
        self._begin()

    def take(self) -> Numbering:
        """Take an unused numbering."""
        if os.getpid() != self._process_id:
            # The parent still uses these names; the broker would treat our sends as its repeats.
            self._begin()
        try:
            return self._spare.pop()
        except IndexError:
            return Numbering(f"{self._name}-{next(self._numbers)}")

    def give_back(self, numbering: Numbering) -> None:
        """Return a numbering for reuse with any topic: sequences only have to increase."""
        if os.getpid() == self._process_id:
            self._spare.append(numbering)

    def _begin(self) -> None:
        # An earlier run of the program may have used the same name with sequences from 0.
        unique = uuid.uuid4().hex
        self._name = unique if self._label is None else f"{self._label}-{unique[:12]}"
        self._spare: deque[Numbering] = deque()
        self._numbers = itertools.count()
        self._process_id = os.getpid()
