"""Runs the replication state machine of one member: inputs in, messages and events out.

The state machine has no network and no clock. Each input is followed in the same turn of the loop
by the messages and events that it caused (`pump`), and the timer is armed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.member_view import MemberView
from delaylog.replication.errors import PeerError
from delaylog.replication.events import Event
from delaylog.replication.messages import Nack
from delaylog.replication.node import ReplicationNode

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


class HostedMember(MemberView, Protocol):
    """What the host needs of its member."""

    counts: MemberCounts
    stopping: bool
    """The node ends: no input is taken any more."""

    def act(self, event: Event) -> None:
        """Carry out an event."""

    def note_progress(self, replication: ReplicationNode) -> None:
        """The log, the commit or the gate may have changed."""

    def run_timer(self, replication: ReplicationNode) -> None:
        """Give replication the time."""

    def input_failed(self, error: Exception) -> None:
        """Replication could not take an input; the error is not the peer's."""


class ReplicationHost:
    """The host of one member. All methods belong to the loop's thread."""

    def __init__(self, member: HostedMember, random: Random) -> None:
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
