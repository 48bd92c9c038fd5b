"""Consumer groups: who sees a topic's messages, with one state and one ready queue each.

A message is one row and one body whatever the number of groups. A group sees what was sent after
it was born; what was sent below its floor has ended by rule (a purge is one frame, it touches no
row). So the living rows of a group are counted by hour: when a group goes, or is purged, its
counts leave the hours' in one step. A row that comes back from a lease, moves or is replayed
stores where in the log it did, so that only a purge after that ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.ready.key_gate import KeyGate
from delaylog.broker.engine.ready.ready_lanes import Order, ReadyLanes
from delaylog.broker.engine.topics.rate_meter import RateMeter
from delaylog.broker.engine.topics.settings import RateLimit
from delaylog.broker.engine.topics.token_bucket import TokenBucket
from delaylog.storage.columns.count_columns import CountColumns
from delaylog.storage.columns.questions import some
from delaylog.storage.files.run_file import RunFile
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
MakeRun: TypeAlias = Callable[[int], RunFile]
"""Makes a file for what does not fit into memory, by the number of its topic."""

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
    make_run: MakeRun
    topic: int = 0
    """The topic's number: names the files of what is ready."""
    born: int = 0
    """Log position of its making: what was sent before does not exist for it."""
    ephemeral: bool = False
    """It goes when nobody has asked for its messages for a while."""
    floor: int = 0
    """Log position of its last purge (at least `born`): what was sent before has ended."""
    counts: GroupCounts = field(default_factory=GroupCounts)
    hours: CountColumns = field(default_factory=CountColumns)
    """Living rows by the hour they stand in; hours without any are absent."""
    guests: CountColumns = field(default_factory=CountColumns)
    """Living rows that stand elsewhere, by the hour of their origin."""
    purged_ms: int = 0
    """When its last purge was."""
    bucket: TokenBucket | None = None
    """What may be handed out by the topic's rate limit; not state."""
    pace: RateLimit | None = None
    """The limit that the bucket was made for."""
    made_rates: tuple[RateMeter, RateMeter] | None = None
    """Of the counts of deliveries and acks, if something has needed them yet; not state."""
    used_ms: int = 0
    """When somebody last asked for its messages; not state."""
    suspect_until_ms: int = 0
    """Rows below the floor may still come out of the wheel up to this due time; not state."""
    order: Order | None = None
    """How ready messages are ordered, as the topic's settings say."""
    made_ready: ReadyLanes | None = None
    """`ready`, if something has needed it yet."""
    made_gate: KeyGate | None = None
    """`gate`, if something has needed it yet."""

    @property
    def ready(self) -> ReadyLanes:
        """What is ready. Most of many groups have nothing, so it is made when it is needed."""
        if self.made_ready is None:
            make_run = partial(self.make_run, self.topic)
            self.made_ready = ReadyLanes(make_run, self.gate, self.order)
        return self.made_ready

    @property
    def gate(self) -> KeyGate:
        """Who holds which key; made when it is needed."""
        if self.made_gate is None:
            self.made_gate = KeyGate(partial(self.make_run, self.topic))
        return self.made_gate

    @property
    def delivered_rate(self) -> RateMeter:
        """Of the count of deliveries."""
        return self._rates()[0]

    @property
    def acked_rate(self) -> RateMeter:
        """Of the count of acks."""
        return self._rates()[1]

    def _rates(self) -> tuple[RateMeter, RateMeter]:
        if self.made_rates is None:
            self.made_rates = (RateMeter(), RateMeter())
        return self.made_rates

    @property
    def has_ready(self) -> bool:
        """Whether a receive may find something."""
        lanes, gate = self.made_ready, self.made_gate
        return (lanes is not None and len(lanes) > 0) or (gate is not None and gate.freed)

    @property
    def free_count(self) -> int:
        """How many messages consumers may be woken for: at least 1, and no more than that while
        keys or a rate limit hold messages back.
        """
        lanes, gate = self.made_ready, self.made_gate
        if lanes is None or self.bucket is not None or (gate is not None and gate.holding):
            return 1
        return max(len(lanes), 1)

    @property
    def ready_count(self) -> int:
        """Ready messages, approximately; those parked behind a held key are included."""
        return 0 if self.made_ready is None else self.made_ready.living

    def set_order(self, order: Order | None) -> None:
        """Order what becomes ready from now on."""
        self.order = order
        if self.made_ready is not None:
            self.made_ready.set_order(order)

    def forget_ready(self) -> None:
        """Drop the hints to what is ready: it will come up again, or has ended."""
        if self.made_ready is not None:
            self.made_ready.clear()

    def count_living(self, by_hour: Mapping[int, int], times: int) -> None:
        """Rows of hours begin (`times` > 0) or stop to live."""
        self.hours.add(by_hour, times)

    def count_guests(self, by_hour: Mapping[int, int], times: int) -> None:
        """Rows with their origins in hours begin (`times` > 0) or stop to live elsewhere."""
        self.guests.add(by_hour, times)

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
