"""The gate: a leader dispatches only while a majority has followed it recently.

Every round of a leader carries its tick. The gate is open for 50 ms after the newest round whose
tick a majority has taken was sent, by a clock that runs while the process is stopped. Every later
leader gets the tick of such a majority, so a hand-out that a successor's tick does not cover
happened in those 50 ms. No two clocks are compared, and the gate of a leader that is stopped or
partitioned closes by itself.
"""

from __future__ import annotations

from typing import Final

from delaylog.replication.configuration import Configuration

ROUNDS_REMEMBERED: Final = 64
"""An answer to an older round is too late to open the gate: 64 rounds of 10 ms are 640 ms."""


class Gate:
    """Numbers the rounds of one leadership, and records which voter took which tick."""

    def __init__(self, node: int, configuration: Configuration, gate_ms: int) -> None:
        """`node` leads."""
        self._node = node
        self._configuration = configuration
        self._gate_ms = gate_ms
        self._sent_ms: dict[int, int] = {}
        self._taken_ms: dict[int, int] = {}
        self.seq = 0
        """Number of the newest round."""

    def begin_round(self, now_ms: int) -> int:
        """A round goes out now; returns its number."""
        self.seq += 1
        self._sent_ms[self.seq] = now_ms
        self._sent_ms.pop(self.seq - ROUNDS_REMEMBERED, None)
        return self.seq

    def take(self, peer: int, seq: int) -> None:
        """A voter has taken the tick of a round."""
        sent_ms = self._sent_ms.get(seq)
        if sent_ms is not None:
            self._taken_ms[peer] = max(sent_ms, self._taken_ms.get(peer, sent_ms))

    def forget(self, peer: int) -> None:
        """Do not count this peer any more."""
        self._taken_ms.pop(peer, None)

    def age_ms(self, now_ms: int) -> int | None:
        """The age of the newest round whose tick a majority took; None without one."""
        taken_ms = self._configuration.reached({self._node: now_ms, **self._taken_ms})
        return None if taken_ms is None else now_ms - taken_ms

    def open_until_ms(self, now_ms: int) -> int:
        """When the gate closes if no further tick is taken, by the same clock; 0 = it is shut."""
        age_ms = self.age_ms(now_ms)
        return 0 if age_ms is None else now_ms - age_ms + self._gate_ms

    def is_open(self, now_ms: int) -> bool:
        """Whether messages may be handed out at this moment."""
        age_ms = self.age_ms(now_ms)
        return age_ms is not None and age_ms < self._gate_ms
