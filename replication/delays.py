"""How late this node and its peers run, which stretches every silence after which a node acts.

A busy machine delays rounds and answers without any fault. The longest recent delay, which fades
within a minute, gives one factor for all times of an election. Without delays the factor is 1.
"""

from __future__ import annotations

from typing import Final

DELAY_MS_FREE: Final = 100
"""The longest delay that stretches nothing: a round every 50 ms, and as much again."""
DELAY_MS_MAX: Final = 800
"""A longer pause is a stop of a process or a machine, not a delay, and says nothing about load."""
FACTOR_MAX: Final = 4.0
"""A leader counts as heard for 1 s at most; see `stretched_max_ms` in peer_oracle.py."""
FADE_MS: Final = 60_000
"""A delay counts for less and less, and not at all after this time."""


class Delays:
    """The delays that one node has seen."""

    def __init__(self) -> None:
        self._longest_ms = 0
        self._at_ms = 0

    def note(self, delay_ms: int, now_ms: int) -> None:
        """Something came this late, or this long after the one before it."""
        if self.longest_ms(now_ms) <= delay_ms <= DELAY_MS_MAX:
            self._longest_ms, self._at_ms = delay_ms, now_ms

    def longest_ms(self, now_ms: int) -> float:
        """The longest recent delay; an older one counts for less."""
        age_ms = min(max(now_ms - self._at_ms, 0), FADE_MS)
        return self._longest_ms * (1 - age_ms / FADE_MS)

    def factor(self, now_ms: int) -> float:
        """By how much every silence is stretched: 1 to `FACTOR_MAX`."""
        return min(max(self.longest_ms(now_ms) / DELAY_MS_FREE, 1.0), FACTOR_MAX)
