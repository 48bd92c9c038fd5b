"""Runs the replication state machine of one member: inputs in, messages and events out.

The state machine has no network and no clock. Each input is followed in the same turn of the loop
by the messages and events that it caused (`pump`), and the timer is armed again.

A follower has a group commit: one sync covers all frames that arrive within 3 ms. A leader keeps
log for its followers beyond what it needs itself: a follower that is less than `LOG_KEPT_BYTES`
behind catches up from the log, so the log from its position on is kept. A follower that is further
behind gets a copy of the folder instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from delaylog.replication.errors import PeerError
from delaylog.replication.leader import Leader
from delaylog.replication.messages import Nack
from delaylog.replication.node import ReplicationNode

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

# ------------------------------------------------------------------------------------- the host

# The timer of replication: fires when the replication state machine has something to do.


class RoundTimer:
    """One timer. All methods belong to the loop's thread."""

    def __init__(self, fire: Callable[[], None], boot_ms: Callable[[], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fire = fire
        self._boot_ms = boot_ms
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def arm(self, at_ms: int) -> None:
        """Fire at this time of the boot clock, or at the earlier time that is set already."""
        if self._handle is not None:
            if self._at_ms <= at_ms:
                return
            self._handle.cancel()
        self._at_ms = at_ms
        self._handle = self._loop.call_later(max(at_ms - self._boot_ms(), 0) / 1000, self._fired)

    def cancel(self) -> None:
        """Do not fire."""
        if self._handle is not None:
            self._handle.cancel()

    def _fired(self) -> None:
        self._handle = None
        self._fire()


class ReplicationHost:
    """The host of one member. All methods belong to the loop's thread."""

    def __init__(self, member: ClusterMember, random: Random) -> None:
        self._member = member
        self._random = random
        self.timer = RoundTimer(self._timer_fired, member.machine.boot_ms)
        self.replication: ReplicationNode | None = None
        """None until the node has joined, and while its folder is being replaced."""

    def begin(self) -> ReplicationNode:
        """Begin on the member's present files."""
        files = self._member.files
        self.replication = ReplicationNode(
            log=files.replica,
            meta=files.meta,
            ticks=files.ticks,
            random=self._random,
            commit=files.committed,
        )
        return self.replication

    def take_input(self, take: Callable[[], object]) -> None:
        """Give replication an input and act on the results. Raises PeerError."""
        if self._member.stopping:
            return
        try:
            try:
                take()
            finally:
                self.pump()
        except PeerError:
            raise
        except Exception as error:
            self._member.input_failed(error)

    def pump(self) -> None:
        """Send the messages and carry out the events that replication has queued."""
        member, replication = self._member, self.replication
        assert replication is not None
        events = replication.take_events()
        while events:
            for event in events:
                member.act(event)
            events = replication.take_events()
        for target, message in replication.take_messages():
            member.counts.refused_epochs += isinstance(message, Nack)
            member.transport.send(target, message)
        member.note_progress(replication)
        self.arm()

    def arm(self) -> None:
        """Have the timer fire when replication has something to do."""
        at_ms = None if self.replication is None else self.replication.next_timer_ms()
        if at_ms is not None and not self._member.stopping:
            self.timer.arm(at_ms)

    def _timer_fired(self) -> None:
        replication = self.replication
        if replication is not None:
            self.take_input(lambda: self._member.run_timer(replication))


# -------------------------------------------------------------------------- syncs of a follower

SYNC_EVERY_SECONDS: Final = 0.003


class PacedSync:
    """Requests syncs, at most one in `SYNC_EVERY_SECONDS`."""

    def __init__(self, kick: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._kick = kick
        self._due: asyncio.TimerHandle | None = None
        self._kicked_at = 0.0

    def soon(self) -> None:
        """Frames were appended: request a sync, now or when the interval is over."""
        if self._due is None:
            wait = SYNC_EVERY_SECONDS - (self._loop.time() - self._kicked_at)
            if wait <= 0:
                self._now()
            else:
                self._due = self._loop.call_later(wait, self._now)

    def _now(self) -> None:
        self._due = None
        self._kicked_at = self._loop.time()
        self._kick()

    def cancel(self) -> None:
        """Request no sync any more: the log is about to be closed."""
        if self._due is not None:
            self._due.cancel()
            self._due = None


# ----------------------------------------------------------------------- log kept for followers

LOG_KEPT_BYTES: Final = 1 << 30
"""Most log that is kept for followers after a checkpoint has made it superfluous."""


def log_needed(
    positions: Iterable[int], *, first: int, end: int, kept_bytes: int = LOG_KEPT_BYTES
) -> int:
    """The first position that followers need of a log from `first` to `end`.

    `positions` = the known end of each follower's log.
    """
    near = (at for at in positions if first <= at and end - at <= kept_bytes)
    return min(near, default=end)


class FollowerPositions:
    """The assumed ends of the followers' logs: from HELLO, until a leader knows better."""

    def __init__(self, first: int) -> None:
        """`first` = first position of this node's log, assumed of nodes that have not connected."""
        self._first = first
        self._stated: dict[int, int] = {}

    def heard(self, peer: int, end: int) -> None:
        """A node has said where its log ends."""
        self._stated[peer] = end

    def of(self, leader: Leader) -> list[int]:
        """The positions of all followers."""
        return [
            one.match or self._stated.get(peer, self._first)
            for peer, one in leader.progress.items()
        ]
