"""Reasons for refused datagrams, and their counters.

Every received datagram is either handled or counted under one reason. A refusal never ends
anything, since anybody who reaches the port can send datagrams.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Refusal(StrEnum):
    """The reasons, as metrics name them."""

    OVERSIZED = "oversized"
    """Longer than any message; not deciphered."""
    UNAUTHENTIC = "unauthentic"
    """Not made with this cluster's key: garbage, or from another cluster."""
    MALFORMED = "malformed"
    """Made with the key, but not a message that a correct node sends."""
    UNKNOWN_TYPE = "unknown_type"
    """A kind of message that this version does not know."""
    STRANGER = "stranger"
    """From a node that is not a member, or for another node."""
    OTHER_LIFE = "other_life"
    """From a process of its sender that has ended, or is unknown. A few occur at every start."""
    REPLAYED = "replayed"
    """Received before, or too old to tell."""
    OLD_TERM = "old_term"
    """An answer or a claim of an older term."""
    DISK_FULL = "disk_full"
    """It requires a durable write for which there is no space; handled as if it was lost."""


class Refused(Exception):
    """A datagram is refused; count it and go on."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason
        super().__init__(reason.value)


class RefusalCounts:
    """Numbers of refused datagrams by reason, since the start."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Refusal, 0)

    def note(self, reason: Refusal) -> None:
        """Count one refusal."""
        self._counts[reason] += 1

    def view(self) -> Mapping[str, int]:
        """The counters of all reasons, including zeros."""
        return {reason.value: count for reason, count in self._counts.items()}
