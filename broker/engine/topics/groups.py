"""Consumer groups: each sees a topic's messages with its own states and its own ready queue.

A message is one row and one body, however many groups there are. A group sees what was sent at or
behind `born`. What was sent below its `floor` has ended: a purge is one frame that raises the floor
and touches no row. Therefore a group counts its living rows by hour, and a drop or a purge
subtracts them from the hours' counts in one step. A row that returns from a lease, moves or is
replayed stores the log position where it did, so that only a later purge ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.ready.key_gate import KeyGate
from delaylog.broker.engine.ready.ready_queues import ReadyOrder, ReadyQueues
from delaylog.broker.engine.topics.rates import RateMeter, TokenBucket
from delaylog.broker.engine.topics.settings import RateLimit
from delaylog.storage.columns import CountColumns, some
from delaylog.storage.files.scratch_queue import ScratchQueue
from delaylog.storage.layout import (
    STATE_NONE,
    Cause,
    MessageState,
    RowArray,
    StateArray,
    StateValues,
)
from delaylog.storage.messages.rows import RowValues

DEFAULT_GROUP: Final = 1
"""Number of a topic's default group."""
DEFAULT_NAME: Final = "default"
MakeRun: TypeAlias = Callable[[int], ScratchQueue]
"""Creates a file for refs that do not fit into memory; its argument is the topic's number."""

_ENDED_NAMES: Final[dict[int, str]] = {
    MessageState.ACKED: "acked",
    MessageState.EXPIRED: "expired",
    MessageState.DEAD: "dead",
    MessageState.CANCELLED: "cancelled",
    MessageState.REPLACED: "replaced",
}


@dataclass(slots=True)
class GroupCounts:
    """Living messages, and messages that ended since the group was created."""

    living: int = 0
    leased: int = 0
    acked: int = 0
    expired: int = 0
    dead: int = 0
    cancelled: int = 0
    delivered: int = 0
    replaced: int = 0
    sums: GroupCounts | None = None
    """Sums that every change here is added to as well; not state (see `Series`)."""

    def add(self, name: str, n: int) -> None:
        """Raise one of the counts by n."""
        setattr(self, name, getattr(self, name) + n)
        if self.sums is not None:
            self.sums.add(name, n)

    def handed_out(self, n: int) -> None:
        """Count n messages that were leased; one step, since every receive takes it."""
        self.leased += n
        self.delivered += n
        if self.sums is not None:
            self.sums.handed_out(n)

    def acked_from_lease(self, n: int) -> None:
        """Count n messages that were leased and are acked; one step, since every ack takes it."""
        self.leased -= n
        self.living -= n
        self.acked += n
        if self.sums is not None:
            self.sums.acked_from_lease(n)

    def ended(self, state: int, n: int) -> None:
        """Count n messages that reached an ended state."""
        self.add("living", -n)
        self.add(_ENDED_NAMES[state], n)

    def changed(self, before: int, after: int, n: int) -> None:
        """Count n messages that changed from one ended state to another."""
        self.add(_ENDED_NAMES[before], -n)
        self.add(_ENDED_NAMES[after], n)


SAVED_COUNTS: Final = ("living", "leased", "acked", "expired", "dead", "cancelled", "delivered")
"""Counts that a checkpoint stores as a list, in this order; `replaced` came later, and is apart."""


@dataclass(slots=True)
class Group:
    """A group of consumers that compete; its number is never used again in its topic."""

    number: int
    name: str
    make_run: MakeRun
    topic: int = 0
    """The topic's number, which names the files of its ready queues."""
    born: int = 0
    """Log position of its creation: what was sent before does not exist for it."""
    ephemeral: bool = False
    """Whether it is dropped after some time without a receive."""
    floor: int = 0
    """Log position of its last purge (at least `born`): what was sent before has ended."""
    counts: GroupCounts = field(default_factory=GroupCounts)
    hours: CountColumns = field(default_factory=CountColumns)
    """Living rows by their hour; hours without any are absent."""
    guests: CountColumns = field(default_factory=CountColumns)
    """Living rows in another hour than their origin, by the hour of the origin."""
    purged_ms: int = 0
    """When its last purge was."""
    bucket: TokenBucket | None = None
    """Tokens for deliveries, by the topic's rate limit; not state."""
    pace: RateLimit | None = None
    """The limit of that bucket."""
    made_delivered_rate: RateMeter | None = None
    """`delivered_rate`, once it is needed; not state."""
    made_acked_rate: RateMeter | None = None
    """`acked_rate`, once it is needed; not state."""
    used_ms: int = 0
    """Time of the last receive; not state."""
    suspect_until_ms: int = 0
    """Due time up to which the wheel may still release rows below the floor; not state."""
    order: ReadyOrder | None = None
    """How ready messages are ordered, as the topic's settings say."""
    made_ready: ReadyQueues | None = None
    """`ready`, once it is needed."""
    made_gate: KeyGate | None = None
    """`gate`, once it is needed."""

    @property
    def ready(self) -> ReadyQueues:
        """Its ready queues. Created on demand, since most of many groups have nothing ready."""
        if self.made_ready is None:
            make_run = partial(self.make_run, self.topic)
            self.made_ready = ReadyQueues(make_run, self.gate, self.order)
        return self.made_ready

    @property
    def gate(self) -> KeyGate:
        """Its key locks, created on demand."""
        if self.made_gate is None:
            self.made_gate = KeyGate(partial(self.make_run, self.topic))
        return self.made_gate

    @property
    def delivered_rate(self) -> RateMeter:
        """The rate of deliveries."""
        if self.made_delivered_rate is None:
            self.made_delivered_rate = RateMeter()
        return self.made_delivered_rate

    @property
    def acked_rate(self) -> RateMeter:
        """The rate of acks."""
        if self.made_acked_rate is None:
            self.made_acked_rate = RateMeter()
        return self.made_acked_rate

    @property
    def has_ready(self) -> bool:
        """Whether a receive may find a message."""
        ready, gate = self.made_ready, self.made_gate
        return (ready is not None and len(ready) > 0) or (gate is not None and gate.parking.freed)

    @property
    def free_count(self) -> int:
        """For how many messages consumers may be woken: at least 1, and exactly 1 while locked keys
        or a rate limit may keep messages from being handed out.
        """
        ready, gate = self.made_ready, self.made_gate
        if ready is None or self.bucket is not None or (gate is not None and gate.in_use):
            return 1
        return max(len(ready), 1)

    @property
    def ready_count(self) -> int:
        """Approximate number of ready messages, including parked ones."""
        return 0 if self.made_ready is None else self.made_ready.living

    def set_order(self, order: ReadyOrder | None) -> None:
        """Set the order of messages that become ready from now on."""
        self.order = order
        if self.made_ready is not None:
            self.made_ready.set_order(order)

    def forget_ready(self) -> None:
        """Drop the hints in the ready queues: each message is released again, or has ended."""
        if self.made_ready is not None:
            self.made_ready.clear()

    def has(self, rows: RowArray) -> npt.NDArray[np.bool_]:
        """Which rows exist for this group, ended or not."""
        mine = (rows["group"] == 0) | (rows["group"] == self.number)
        return np.asarray(mine & (rows["sent_position"] >= self.born), np.bool_)

    def has_one(self, row: RowValues, entry: StateValues) -> bool:
        """Whether a row without a state waits or is ready in this group; see `free`."""
        if row.group not in (0, self.number) or row.sent_position < self.born:
            return False
        return max(row.sent_position, entry.time) >= self.floor

    def purged(self, rows: RowArray, entries: StateArray) -> npt.NDArray[np.bool_]:
        """Which rows, of those that exist for it, a purge has ended; no state records that."""
        return self.purged_of(rows["sent_position"], entries)

    def purged_of(
        self, sent_position: npt.NDArray[np.uint64], entries: StateArray
    ) -> npt.NDArray[np.bool_]:
        """The same, given the log positions at which the rows were sent."""
        # In an entry without a state, `time` is the log position at which the row returned.
        below = (sent_position < self.floor) & (entries["time"] < self.floor)
        return np.asarray(below & (entries["state"] == STATE_NONE), np.bool_)

    def show_purged(self, sent_position: npt.NDArray[np.uint64], entries: StateArray) -> None:
        """Change `entries`, which must be copies, so that they show rows ended by a purge."""
        if self.floor:
            purged = self.purged_of(sent_position, entries)
            if some(purged):
                entries["state"][purged] = MessageState.CANCELLED
                entries["cause"][purged] = Cause.PURGE
                entries["time"][purged] = self.purged_ms

    def free(self, rows: RowArray, entries: StateArray) -> npt.NDArray[np.bool_]:
        """Which rows wait or are ready in this group."""
        out = entries["state"] == STATE_NONE
        if len(rows) and (self.floor or rows["group"].any()):
            out = out & self.has(rows) & ~self.purged(rows, entries)
        return np.asarray(out, np.bool_)
