"""Why a datagram was refused, and how often.

Every datagram that arrives is either acted upon or counted here under one reason. A refusal never
ends anything: whoever can reach the port can send what he likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Refusal(StrEnum):
    """The reasons, as metrics name them."""

    OVERSIZED = "oversized"
    """Longer than any message: not even deciphered."""
    UNAUTHENTIC = "unauthentic"
    """Not made with this cluster's key: garbage, or another cluster."""
    MALFORMED = "malformed"
    """Made with the key, but no message that a sound node sends."""
    UNKNOWN_TYPE = "unknown_type"
    """A kind of message that this version does not know."""
    STRANGER = "stranger"
    """From a node that is no member, or for another node."""
    OTHER_LIFE = "other_life"
    """From a run of its sender that is over, or not known yet. A few belong to every start."""
    REPLAYED = "replayed"
    """Seen before, or too old to tell."""
    OLD_TERM = "old_term"
    """An answer or a claim that a newer election has overtaken."""
    DISK_FULL = "disk_full"
    """Acting on it needs a durable note for which there is no space: as if it had been lost."""


class Refused(Exception):
    """A datagram is not acted upon; count it and go on."""

    def __init__(self, reason: Refusal) -> None:
        self.reason = reason
        super().__init__(reason.value)


class RefusalCounts:
    """How many datagrams were refused for each reason since the start."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(Refusal, 0)

    def note(self, reason: Refusal) -> None:
        """One more."""
        self._counts[reason] += 1

    def view(self) -> Mapping[str, int]:
        """All reasons by name, also those that never occurred."""
        return {reason.value: count for reason, count in self._counts.items()}
