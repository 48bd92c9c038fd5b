"""The leadership of a member: its progress, how it is handed over, and what ends with it.

It joins the parts that work only while the engine leads: pace, waiting sends and the hand-over.

Sends may wait for another safety than a majority: this disk (acks=leader) or all voters (acks=all).
acks=quorum waits for the commit, as everything else does. acks=all has a deadline, since one voter
that is away would block every such send; the error then states which voters are missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from delaylog.broker.cluster.leading.gate import Pace
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.replication_host import ReplicationHost
from delaylog.broker.engine.errors import NO_LONGER_LEADS, EngineError, NotLeadingError
from delaylog.broker.host.log_commits import Completion, PositionWaiters
from delaylog.replication.epochs import EpochTick
from delaylog.replication.leader import Acks, Leader
from delaylog.replication.messages import SteppedDown
from delaylog.replication.node import ReplicationNode

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

# ------------------------------------------------------------------------------ sends that wait

ALL_SECONDS: Final = 5.0
"""How long a send with acks=all waits for the slowest voter."""


class NotEverywhereError(EngineError):
    """The message is stored, and some voters did not confirm it in time. `facts["missing"]` names
    them, `facts["committed"]` tells whether a majority has the message. Send it again with the same
    sequence, or accept that.
    """

    code = "not_ready"


class SafeSends:
    """The waiting sends of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name_of: Callable[[int], str]) -> None:
        self._loop = loop
        self._name_of = name_of
        self._leader = PositionWaiters()
        self._all = PositionWaiters()

    def add(self, leader: Leader, position: int, acks: Acks, call: Completion) -> None:
        """Call back once the log is that safe up to `position`, at once if it is already."""
        if leader.safe_end(acks) >= position:
            call(None)
        elif acks is Acks.LEADER:
            self._leader.add(position, call)
        else:
            self._add_all(leader, position, call)

    def _add_all(self, leader: Leader, position: int, call: Completion) -> None:
        def completed(error: BaseException | None) -> None:
            timer.cancel()
            call(error)

        def too_late() -> None:
            self._all.remove(position, completed)
            call(self._not_everywhere(leader, position))

        timer = self._loop.call_later(ALL_SECONDS, too_late)
        self._all.add(position, completed)

    def _not_everywhere(self, leader: Leader, position: int) -> NotEverywhereError:
        missing = [
            self._name_of(peer)
            for peer, one in leader.progress.items()
            if one.counts and one.match < position
        ]
        committed = leader.commit >= position
        known = "a majority has it" if committed else "no majority is known to have it"
        return NotEverywhereError(
            f"stored, but not every voter confirmed it within {ALL_SECONDS:.0f} s (missing: "
            f"{', '.join(missing) or 'none'}); {known}; send it again with the same sequence",
            committed=committed,
            missing=missing,
        )

    def progress(self, leader: Leader) -> None:
        """Call back for what has become safe."""
        if len(self._leader):
            self._leader.reach(leader.safe_end(Acks.LEADER))
        if len(self._all):
            self._all.reach(leader.safe_end(Acks.ALL))

    def fail_all(self, error: BaseException) -> None:
        """Fail all waiting sends: the leadership has ended."""
        self._leader.fail_all(error)
        self._all.fail_all(error)


# ------------------------------------------------------------------------------- the leadership

# A planned hand-over, from the request to its end.
#
# The final tick goes out first. Once replication has given the leadership away, the oracle is told
# once whom to elect.


def furthest(leader: Leader, connected: Collection[int]) -> int | None:
    """The connected voter with the longest log; None if no other voter is connected."""
    able = [
        (one.match, peer)
        for peer, one in leader.progress.items()
        if one.counts and peer in connected
    ]
    return max(able)[1] if able else None


class Handover:
    """The hand-over of one member, if one is in progress."""

    def __init__(self) -> None:
        self._ended: asyncio.Future[bool] | None = None
        self.target: int | None = None
        """The node to hand over to, until the leadership was given away."""

    def begin(self, target: int) -> asyncio.Future[bool]:
        """Begin; the future is True once this node no longer leads, False if no node took over."""
        self.target = target
        self._ended = asyncio.get_running_loop().create_future()
        return self._ended

    def give(self) -> int:
        """Replication has given the leadership away; returns the target, once."""
        assert self.target is not None, "a hand-over is under way"
        target, self.target = self.target, None
        return target

    async def until_over(self) -> None:
        """Wait for the end of the one that is under way, if any."""
        if self._ended is not None:
            await asyncio.wait([self._ended])

    def end(self, *, done: bool) -> None:
        """This node no longer leads (`done`), or leads on. Without a hand-over it does nothing."""
        self.target = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(done)
        self._ended = None


ANSWERS_SECONDS: Final = 1.0
"""How long a hand-over waits for answers that wait for the gate, which opens within 50 ms while a
majority follows the leader."""

log = logging.getLogger("delaylog.cluster")


def tick_facts(tick: EpochTick, name: str, value: int) -> dict[str, object]:
    """Fields of a log line: the tick, to compare the one handed over with the one taken over."""
    return {name: value, "tick": [tick.second, tick.local_index, tick.position]}


class Lead:
    """The leadership of one member. All methods belong to the loop's thread."""

    def __init__(
        self,
        member: ClusterMember,
        host: ReplicationHost,
        succession: Succession,
        pace: Pace,
        safe_sends: SafeSends,
    ) -> None:
        self._member = member
        self._host = host
        self._succession = succession
        self._pace = pace
        self._safe_sends = safe_sends
        self._handover = Handover()
        self._notified_commit = 0

    def note_progress(self, replication: ReplicationNode, leader: Leader) -> None:
        """The commit may have advanced, and the gate may be open. The engine leads."""
        committed = self._member.committed()
        if committed > self._notified_commit:
            self._notified_commit = committed
            self._member.node.log_committed()
        if replication.leadership.hands_over:
            self._pace.publish()
        self._safe_sends.progress(leader)
        self._pace.look()
        if self._handover.target is not None and replication.leadership.has_given:
            target = self._handover.give()
            log.info("handed over", extra=tick_facts(leader.order.tick, "to", target))
            self._member.oracle.transfer(target, self._member.machine.boot_ms())

    async def hand_over(self, target: int | None) -> int | None:
        """Hand the leadership to a node (None = the fittest). Returns the new leader; None if no
        node took over. Raises NotLeadingError.
        """
        self._leading()
        # Consumers that wait for the gate may have leased messages. A hand-over keeps it shut, so
        # they would get no answer, and nobody else the messages. If nobody follows this leader,
        # the hand-over finds that out by itself.
        await self._pace.until_none_waits(ANSWERS_SECONDS)
        replication, leader = self._leading()
        if target is None:
            target = self._member.fitness.target()
        if target is None:
            target = furthest(leader, self._member.transport.connected())
        if target is None or not replication.hand_over(target, self._pace.now()):
            return None
        ended = self._handover.begin(target)
        # The final tick goes out with a round.
        self._pace.note_busy()
        self._host.pump()
        # It goes on if the caller leaves, and somebody else may wait for its end.
        if not await asyncio.shield(ended):
            return None
        self._member.counts.handed_over += 1
        return target

    async def until_handed_over(self) -> None:
        """Wait for the end of a hand-over that is under way, if any."""
        await self._handover.until_over()

    def _leading(self) -> tuple[ReplicationNode, Leader]:
        replication = self._host.replication
        leader = None if replication is None else replication.leader
        if replication is None or leader is None or not self._succession.leading:
            raise NotLeadingError("this node does not lead, so there is nothing to hand over")
        return replication, leader

    def handover_failed(self) -> None:
        """No node took over, so this one leads on."""
        self._member.counts.handovers_failed += 1
        self._handover.end(done=False)

    def let_go(self, out_ms: int) -> None:
        """Give up the leadership without a successor, and stay out of elections for `out_ms`."""
        replication = self._host.replication
        if replication is not None and replication.leader is not None:
            now_ms = self._member.machine.boot_ms()
            self._member.oracle.resign(now_ms, now_ms + out_ms)
            self._host.take_input(replication.unsuggest_leader)

    def end(self, event: SteppedDown) -> None:
        """Stop leading, and fail the calls that wait for this leadership."""
        why = NotLeadingError(f"{NO_LONGER_LEADS}, with the same sequence")
        self._handover.end(done=True)
        was_leading = self._succession.leading
        self._succession.step_down(event.commit)
        if was_leading:
            self._member.node.end_leading(why)
        self._safe_sends.fail_all(why)
        self._pace.let_go()
