"""Consumer groups: who sees a topic's messages, with one state and one ready queue each.

A message is one row and one body whatever the number of groups. A group sees what was sent after
it was born; what was sent below its floor has ended by rule (a purge is one frame, it touches no
row). So the living rows of a group are counted by hour: when a group goes, or is purged, its
counts leave the hours' in one step. A row that comes back from a lease, moves or is replayed
stores where in the log it did, so that only a purge after that ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.key_gate import KeyGate
from delaylog.broker.engine.rate_meter import RateMeter
from delaylog.broker.engine.ready_lanes import ReadyLanes
from delaylog.broker.engine.settings import RateLimit
from delaylog.broker.engine.token_bucket import TokenBucket
from delaylog.storage.columns import some
from delaylog.storage.layout import (
    STATE_NONE,
    Cause,
    MessageState,
    RowArray,
    StateArray,
)

DEFAULT_GROUP: Final = 1
"""Number of a topic's default group."""
DEFAULT_NAME: Final = "default"

_ENDED_NAMES: Final[dict[int, str]] = {
    MessageState.ACKED: "acked",
    MessageState.EXPIRED: "expired",
    MessageState.DEAD: "dead",
    MessageState.DELETED: "deleted",
}


@dataclass(slots=True)
class GroupCounts:
    """Living messages and, since the group was made, ended ones."""

    living: int = 0
    leased: int = 0
    acked: int = 0
    expired: int = 0
    dead: int = 0
    deleted: int = 0
    delivered: int = 0
    sums: GroupCounts | None = None
    """What is counted here counts there as well; not state (see `Series`)."""

    def add(self, name: str, n: int) -> None:
        """Raise one of the counts by n."""
        setattr(self, name, getattr(self, name) + n)
        if self.sums is not None:
            self.sums.add(name, n)

    def ended(self, state: int, n: int) -> None:
        """Count n messages that reached an ended state."""
        self.add("living", -n)
        self.add(_ENDED_NAMES[state], n)

    def changed(self, before: int, after: int, n: int) -> None:
        """Count n ended messages that went from one ended state to another."""
        self.add(_ENDED_NAMES[before], -n)
        self.add(_ENDED_NAMES[after], n)


@dataclass(slots=True)
class Group:
    """A group of consumers that compete; its number is never used again in its topic."""

    number: int
    name: str
    ready: ReadyLanes
    gate: KeyGate
    born: int = 0
    """Log position of its making: what was sent before does not exist for it."""
    ephemeral: bool = False
    """It goes when nobody has asked for its messages for a while."""
    floor: int = 0
    """Log position of its last purge (at least `born`): what was sent before has ended."""
    counts: GroupCounts = field(default_factory=GroupCounts)
    hours: dict[int, int] = field(default_factory=dict)
    """Living rows by the hour they stand in; hours without any are absent."""
    guests: dict[int, int] = field(default_factory=dict)
    """Living rows that stand elsewhere, by the hour of their origin."""
    purged_ms: int = 0
    """When its last purge was."""
    bucket: TokenBucket | None = None
    """What may be handed out by the topic's rate limit; not state."""
    pace: RateLimit | None = None
    """The limit that the bucket was made for."""
    delivered_rate: RateMeter = field(default_factory=RateMeter)
    """Of the count of deliveries; not state."""
    acked_rate: RateMeter = field(default_factory=RateMeter)
    """Of the count of acks; not state."""
    used_ms: int = 0
    """When somebody last asked for its messages; not state."""
    suspect_until_ms: int = 0
    """Rows below the floor may still come out of the wheel up to this due time; not state."""

    @property
    def has_ready(self) -> bool:
        """Whether a receive may find something."""
        return len(self.ready) > 0 or self.gate.freed

    @property
    def ready_count(self) -> int:
        """Messages that are ready, as far as it was told; those that wait for a key are."""
        return self.ready.living

    def forget_ready(self) -> None:
        """Drop the hints to what is ready: it will come up again, or has ended."""
        self.ready.clear()

    def count_living(self, by_hour: Mapping[int, int], times: int) -> None:
        """Rows of hours begin (`times` > 0) or stop to live."""
        for hour, n in by_hour.items():
            _add(self.hours, hour, times * n)

    def count_guests(self, by_hour: Mapping[int, int], times: int) -> None:
        """Rows with their origins in hours begin (`times` > 0) or stop to live elsewhere."""
        for hour, n in by_hour.items():
            _add(self.guests, hour, times * n)

    def has(self, rows: RowArray) -> npt.NDArray[np.bool_]:
        """Which rows exist for this group, ended or not."""
        mine = (rows["group"] == 0) | (rows["group"] == self.number)
        return np.asarray(mine & (rows["sent_position"] >= self.born), np.bool_)

    def purged(self, rows: RowArray, entries: StateArray) -> npt.NDArray[np.bool_]:
        """Which rows, of those that exist for it, a purge has ended (no state says so)."""
        return self.purged_of(rows["sent_position"], entries)

    def purged_of(
        self, sent_position: npt.NDArray[np.uint64], entries: StateArray
    ) -> npt.NDArray[np.bool_]:
        """The same by where in the log the rows were sent."""
        # The time of an entry that is in no state is where in the log it came back.
        below = (sent_position < self.floor) & (entries["time"] < self.floor)
        return np.asarray(below & (entries["state"] == STATE_NONE), np.bool_)

    def show_purged(self, sent_position: npt.NDArray[np.uint64], entries: StateArray) -> None:
        """Make entries (copies) say what no state says: that a purge has ended their rows."""
        if self.floor:
            purged = self.purged_of(sent_position, entries)
            if some(purged):
                entries["state"][purged] = MessageState.DELETED
                entries["cause"][purged] = Cause.PURGE
                entries["time"][purged] = self.purged_ms

    def free(self, rows: RowArray, entries: StateArray) -> npt.NDArray[np.bool_]:
        """Which rows wait or are ready in this group."""
        out = entries["state"] == STATE_NONE
        if len(rows) and (self.floor or rows["group"].any()):
            out = out & self.has(rows) & ~self.purged(rows, entries)
        return np.asarray(out, np.bool_)


def _add(counts: dict[int, int], hour: int, n: int) -> None:
    total = counts.get(hour, 0) + n
    if total:
        counts[hour] = total
    else:
        counts.pop(hour, None)
