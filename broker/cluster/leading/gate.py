"""What calls of a member wait for: the gate, and the next leader. Also the pace of rounds.

Messages are handed out while the gate is open, which is while a majority has taken a tick recently.
Rounds are more frequent from shortly before a message is due until shortly after a hand-out, so
that the gate stays open in that time. Calls that wait for one event are released together.

The leader that clients are sent to is the node whose frames were taken most recently. The oracle is
asked only without one: it may learn of an election later, or name a node that does not serve yet.
Calls wait through a short change of leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from delaylog.broker.engine.errors import NO_LONGER_LEADS, NotLeadingError
from delaylog.broker.host.node import Node
from delaylog.replication.node import ReplicationNode
from delaylog.replication.replica import Now

# -------------------------------------------------------------------------------------- waiting


class GateWaiters:
    """The waiting calls."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, seconds: float) -> bool:
        """Wait to be released; False if the time is up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(future)
        return True

    def open(self) -> None:
        """Release all waiting calls. A call that starts to wait later is not released by this."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)


# -------------------------------------------------------------------------- the gate and rounds

BUSY_AHEAD_MS: Final = 100
"""How long before the next due message rounds become frequent, so that the gate is open then."""
BUSY_AFTER_MS: Final = 200
"""How long rounds stay frequent after a hand-out: more may follow."""


class Pace:
    """The rounds of one node, while it leads."""

    def __init__(
        self,
        node: Node,
        *,
        serving: Callable[[], ReplicationNode | None],
        committed: Callable[[], int],
        rearm: Callable[[], None],
    ) -> None:
        """`serving` = replication while the engine leads, else None; `rearm` is called when the
        interval of rounds changes.
        """
        self._node = node
        self._serving = serving
        self._committed = committed
        self._rearm = rearm
        self._gate = GateWaiters()
        self._handed_ms = -BUSY_AFTER_MS

    def now(self) -> Now:
        """The two times."""
        return Now(self._node.machine.boot_ms(), self._node.clock.now_ms())

    # ------------------------------------------------------------------ the gate

    def gate_open(self) -> bool:
        """Whether messages may be handed out at this moment."""
        replication = self._serving()
        if replication is None or not replication.leadership.may_append():
            return False
        return replication.leadership.may_dispatch(self.now())

    def gate_open_until_ms(self) -> int:
        """When the gate closes if no further tick is taken, by the boot clock; 0 = it is shut."""
        replication = self._serving()
        leader = None if replication is None else replication.leader
        return 0 if leader is None else leader.gate.open_until_ms(self.now().boot_ms)

    async def until_gate_open(self, seconds: float) -> bool:
        """Wait until the gate is open; False if the time is up. Raises NotLeadingError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self.gate_open():
            replication = self._serving()
            if replication is None:
                raise NotLeadingError(NO_LONGER_LEADS)
            left = until - loop.time()
            if left <= 0:
                return False
            waiting = self._gate.wait(left)
            if not replication.leadership.busy:
                # Send a round now: a call waits for its answers.
                replication.leadership.busy = True
                self._rearm()
            await waiting
        self._handed_ms = self._node.machine.boot_ms()
        return True

    async def until_none_waits(self, seconds: float) -> bool:
        """Wait until the gate is open and no call waits for it; False if the time is up. Raises
        NotLeadingError.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and await self.until_gate_open(until - loop.time()):
            self.look()
            # The calls that waited for the gate take their turn.
            await asyncio.sleep(0)
            if not len(self._gate) and self.gate_open():
                return True
        return False

    def look(self) -> None:
        """Release the waiting calls if the gate is open now."""
        if len(self._gate) and self.gate_open():
            self._gate.open()

    def let_go(self) -> None:
        """The leadership has ended: wake the waiting calls, which then raise."""
        self._gate.open()

    # ------------------------------------------------------------------ rounds

    def note_busy(self) -> None:
        """Set whether rounds are frequent."""
        replication = self._serving()
        if replication is None:
            return
        wake_ms = self._node.engine.next_wake_ms()
        near = wake_ms is not None and wake_ms - self._node.clock.now_ms() < BUSY_AHEAD_MS
        lately = self._node.machine.boot_ms() - self._handed_ms < BUSY_AFTER_MS
        busy = near or lately or len(self._gate) > 0 or replication.leadership.hands_over
        if busy != replication.leadership.busy:
            replication.leadership.busy = busy
            self._rearm()

    def publish(self) -> None:
        """Put the position of the wheel, and the log that it covers, into the tick."""
        replication = self._serving()
        leader = None if replication is None else replication.leader
        if replication is None or leader is None or not leader.serving:
            return
        state, order = self._node.engine.state, leader.order
        if replication.leadership.may_append():
            reached = (state.tick.second, state.tick.local_index)
            if reached > (order.tick.second, order.tick.local_index):
                order.begin(*reached)
                order.finish(self._node.clock.now_ms())
        if not state.exposures:
            _, end = order.take(min(leader.commit, self._committed()))
            order.cover(end)


# ----------------------------------------------------------------------------------- the leader

FOLLOWED_MS: Final = 250
"""How long a leader counts as such after its last message (it sends a round every 50 ms), and how
long it counts itself as followed after a majority's last answers."""


class LeaderSight:
    """The view of one node."""

    def __init__(
        self,
        node: int,
        boot_ms: Callable[[], int],
        *,
        leads: Callable[[], bool],
        chosen: Callable[[], int | None],
        knows: Callable[[int], bool] = lambda _: True,
        stretch: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`leads` = whether this node leads; `chosen` = the oracle's choice; `knows` = whether a
        node is a known member: one that is behind in the log may not know the leader yet;
        `stretch` = the factor by which a busy machine stretches silences.
        """
        self._node = node
        self._boot_ms = boot_ms
        self._knows = knows
        self._stretch = stretch
        self._leads = leads
        self._chosen = chosen
        self._followed: int | None = None
        self._followed_ms = -FOLLOWED_MS
        self._waiters = GateWaiters()

    def follow(self, leader: int) -> None:
        """Frames of the promised epoch came from `leader`."""
        self._followed, self._followed_ms = leader, self._boot_ms()

    @property
    def followed(self) -> tuple[int | None, int]:
        """The node whose frames of the promised epoch came last, and when."""
        return self._followed, self._followed_ms

    @property
    def leader(self) -> int | None:
        """The index of the leader; None if none is known."""
        if self._leads():
            return self._node
        recent = self._boot_ms() - self._followed_ms < FOLLOWED_MS * self._stretch()
        found = self._followed if recent else self._chosen()
        if found is None or found == self._node or not self._knows(found):
            return None
        return found

    @property
    def other(self) -> int | None:
        """The leader, if it is another node."""
        leader = self.leader
        return None if leader == self._node else leader

    async def wait(self, seconds: float) -> None:
        """Wait until `settle` is called, at most `seconds`."""
        await self._waiters.wait(seconds)

    @property
    def waited_for(self) -> bool:
        """Whether a call waits."""
        return len(self._waiters) > 0

    def settle(self) -> None:
        """Release the waiting calls: a leader is known."""
        self._waiters.open()
