"""The fitness of one member: collects the figures of all nodes, and acts on them.

It fills in this node's status, moves the leadership when the planner decides so, and answers which
node can take it. The hand-over itself is carried out by the member.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from delaylog.broker.cluster.leading.gate import LeaderSight
from delaylog.broker.cluster.watch.fitness import (
    Fitness,
    Judge,
    Me,
    Move,
    Peer,
    Planner,
    Reason,
    Unfit,
    able,
    best,
    gives_up,
    refusal,
)
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.node import Node
from delaylog.storage.work import Work

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

# When a node lets others be elected first: while it is unfit, or has a lower priority.
#
# It is not a candidate for a bounded time after the leader has fallen silent, and only while a
# voter that is able to lead is connected. So a preference delays a failover by at most that time,
# and a cluster in which every disk is full elects a leader at once.

LEADER_MS: Final = 200
"""A leader sends a round every 50 ms. While it is heard, a node never stands back: then only a
transfer makes it a candidate."""
UNFIT_MS: Final = 2_000
"""How long the leader has to be silent until an unfit node is a candidate."""
CUT_MS: Final = 60_000
"""The same for a node that was cut off as the leader: it may hear no leader though one leads."""
PRIORITY_MS: Final = 600
"""The same for a node of lower priority: each other voter has been a candidate once by then, with
election timers of at most 500 ms."""


def stands_back(me: Me, peers: Sequence[Peer], silent_ms: int) -> bool:
    """Whether this node stands back now.

    `peers` = the other members without the last leader; `silent_ms` = time without a leader.
    """
    longest_ms = CUT_MS if me.unfit is Unfit.CUT else UNFIT_MS
    if not LEADER_MS <= silent_ms < longest_ms:
        return False
    others = able(peers)
    if me.unfit is not None:
        return bool(others)
    higher = any(peer.priority > me.priority for peer in others)
    return higher and silent_ms < PRIORITY_MS


LOOK_EVERY_MS: Final = 100
OUT_MS: Final = 3_000
"""How long a node that has given up the leadership stays out of elections."""
ROOM_EVERY_MS: Final = 200
VOTE_WITHOUT_SPACE: Final = "disk_full"
"""The oracle's reason for votes that it could not store for lack of space."""
RESULTS: Final = ("handed_over", "let_go", "failed")

log = logging.getLogger("delaylog.cluster")


class FitnessWatch:
    """The fitness watch of one member. All methods belong to the loop's thread."""

    def __init__(self, member: ClusterMember, node: Node, sight: LeaderSight, now_ms: int) -> None:
        self._member = member
        self._node = node
        self._sight = sight
        self._judge = Judge()
        self._planner = Planner()
        self._heard_ms: dict[int, int] = {}
        """Connected peers -> when their last status came, or the connection."""
        self._led_ms = now_ms
        """When this node led last; if it never has, when the watch was made."""
        self._has_led = False
        self._now_ms = now_ms
        self._look_ms = self._room_ms = 0
        self._lost = 0
        """Votes and folders of peers for which there was no space."""
        self._committed = 0
        self._moved_ms = now_ms
        """When the commit last moved, or nothing waited for it."""
        self._alone = False
        """The node leads and is unfit, and it is logged already that no node can take over."""
        self._moving: asyncio.Task[None] | None = None
        self.mine = Fitness()
        """The newest figures of this node."""
        self.moves: Counter[tuple[Reason, str]] = Counter()
        """Automatic moves by reason and result."""

    @property
    def unfit(self) -> Unfit | None:
        """Why this node is not fit to lead; None while it is."""
        return self._judge.unfit

    # ------------------------------------------------------------------ between nodes

    def heard(self, peer: int, now_ms: int) -> None:
        """A status of the peer came, or it has connected."""
        self._heard_ms[peer] = now_ms

    def said(self) -> dict[str, Any]:
        """The fields of this node's status about its fitness."""
        me = self._member.config.me
        return {
            "full": self.mine.full,
            "free_bytes": self.mine.free_bytes,
            "unfit": "" if self.unfit is None else self.unfit.value,
            "sync_ms": self.mine.sync_ms,
            "sync_max_ms": self.mine.sync_max_ms,
            "unapplied_bytes": self.mine.unapplied_bytes,
            "priority": me.priority,
            "zone": me.zone,
        }

    def peer(self, node: int) -> Peer:
        """Another member, as this node knows it now."""
        member = self._member
        config, replication = member.config.member(node), member.replication
        connected = node in member.transport.connected()
        leader = None if replication is None else replication.leader
        progress = None if leader is None else leader.progress.get(node)
        votes = replication is not None and node in replication.configuration.voters
        lag_bytes = 0
        if leader is not None and progress is not None:
            # What no majority has acknowledged here, a successor does not need.
            end = leader.commit if self._judge.is_cut else member.files.log_end
            votes, lag_bytes = progress.counts, max(end - progress.match, 0)
        status = member.statuses.of(node)
        known: dict[str, Any] = {"priority": config.priority, "zone": config.zone}
        if status is not None:
            known = {
                "unapplied_bytes": status.unapplied_bytes,
                "unfit": status.unfit,
                "full": status.full,
                "free_bytes": status.free_bytes,
                "sync_ms": status.sync_ms,
                "priority": status.priority,
                "zone": status.zone,
            }
        return Peer(
            node=node,
            name=config.name,
            connected=connected,
            votes=votes,
            silent_ms=max(self._now_ms - self._heard_ms.get(node, self._now_ms), 0),
            lag_bytes=lag_bytes,
            **known,
        )

    def peers(self) -> list[Peer]:
        """All other members."""
        return [self.peer(each.node) for each in self._member.config.others]

    # ------------------------------------------------------------------ questions

    def target(self) -> int | None:
        """The default target of a hand-over; None if no node can take over."""
        found = best(self.peers(), away_from=self._zone if self.unfit is not None else "")
        return None if found is None else found.node

    def refusal(self, target: int | None) -> str | None:
        """Why the target (None = the fittest node) cannot take over; None if it can."""
        if target is not None:
            return refusal(self.peer(target))
        refusals = [refusal(peer) for peer in self.peers()]
        if None in refusals:
            return None
        return f"no node can take over: {'; '.join(filter(None, refusals))}"

    def stands_back(self, now_ms: int) -> bool:
        """Whether this node lets others be elected first, or could not be elected at all."""
        if not self._member.watch.majority:
            return True
        last, followed_ms = self._sight.followed
        silent_ms = now_ms - max(followed_ms, self._led_ms)
        never = last is None and not self._has_led
        if never or (last is not None and last not in self._member.transport.connected()):
            # No leader can ask this node to stand: none was ever heard, or its process has ended.
            silent_ms = max(silent_ms, LEADER_MS)
        return stands_back(self._me(), [p for p in self.peers() if p.node != last], silent_ms)

    def stalled_ms(self, now_ms: int) -> int:
        """For how long this leader has committed nothing although frames wait for it."""
        return now_ms - self._moved_ms

    def shown(self, node: int) -> dict[str, Any]:
        """The fields of a member's row about its fitness."""
        if node == self._member.config.node:
            unfit = None if self.unfit is None else self.unfit.value
            sync_ms: int | None = self.mine.sync_ms or None
            config = self._member.config.me
            return _shown(unfit is None, unfit, sync_ms, config.priority, config.zone)
        peer = self.peer(node)
        if not peer.connected or self._member.statuses.of(node) is None:
            return _shown(None, None, None, peer.priority, peer.zone)
        return _shown(
            not peer.unfit, peer.unfit or None, peer.sync_ms or None, peer.priority, peer.zone
        )

    # ------------------------------------------------------------------ checking

    def look(self, now_ms: int) -> None:
        """Update the judgement, and begin a move if it is time; called by the poll."""
        self._now_ms = now_ms
        committed = self._member.committed()
        waits = self._member.leading and committed < self._member.files.log_end
        if not waits or committed != self._committed:
            self._committed, self._moved_ms = committed, now_ms
        self._has_led |= self._member.leading
        if self._member.leading or self._member.replication is None:
            self._led_ms = now_ms
        if now_ms < self._look_ms or self._node.suspended:
            return
        self._look_ms = now_ms + LOOK_EVERY_MS
        self.mine = self._read()
        peers = self.peers()
        before = self.unfit
        figures = (peer.sync_ms for peer in able(peers))
        if self._judge.look(self.mine, figures, now_ms) is not before:
            self._tell(before)
        lost = self._member.oracle.refused.get(VOTE_WITHOUT_SPACE, 0) + self._member.folders.unsaved
        if self._node.log_commits.disk_full or lost > self._lost:
            self.make_room()
        self._lost = lost
        replication = self._member.replication
        if replication is None or replication.leader is None:
            self._alone = False
            return
        me = self._me()
        if gives_up(me, peers):
            log.error("this node gives up the leadership")
            self.moves[Reason.CUT, "let_go"] += 1
            self._member.let_go(OUT_MS)
            return
        if not self._member.leading or replication.leadership.hands_over:
            return
        move = self._planner.look(me, peers, now_ms)
        if move is not None:
            self._alone = False
            self._moving = asyncio.get_running_loop().create_task(self._move(move))
        elif me.unfit_now and not self._alone and best(peers) is None:
            self._alone = True
            why = "; ".join(filter(None, map(refusal, peers)))
            log.error("this node is not fit to lead but leads on: no node can take over: %s", why)

    def make_room(self) -> None:
        """Free a step of the reserve, as there was no space for the log, a vote, a promise or the
        folder of a peer.

        They are not written through the engine's file system, which would do this itself. Without
        votes and promises, a cluster with full disks could not elect a leader.
        """
        if self._now_ms >= self._room_ms and self._node.engine.reserve.size_bytes:
            if self._node.spawn("room", self._give_room):
                self._room_ms = self._now_ms + ROOM_EVERY_MS

    def _give_room(self) -> Work:
        def give() -> None:
            self._node.engine.reserve.give()

        yield give

    def _read(self) -> Fitness:
        node = self._node
        sync = node.log_commits.sync_times.recent(node.machine.steady_s())
        return Fitness(
            full=node.refusing_sends or node.disk_full,
            free_bytes=min(node.free_bytes(), 1 << 62),
            sync_ms=sync.median_ms,
            sync_max_ms=sync.max_ms,
            sync_fresh=sync.fresh,
            sync_hangs=sync.hangs,
            unapplied_bytes=max(self._member.committed() - self._member.position, 0),
            cut=self._is_cut(),
            clock_off=self._member.watch.clocks.is_off,
        )

    def _is_cut(self) -> bool | None:
        """See `Fitness.cut`."""
        replication = self._member.replication
        if replication is None:
            return None
        if replication.leader is not None:
            return replication.leader.is_cut(self._now_ms)
        # Rounds come behind the log that was sent before them.
        _, followed_ms = self._sight.followed
        return False if self._now_ms - followed_ms < replication.timing.stalled_ms else None

    def _tell(self, before: Unfit | None) -> None:
        mine = self.mine
        match self.unfit:
            case Unfit.CUT:
                log.error(
                    "this node is not fit to lead: no majority of the voters acknowledges its log; "
                    "look at the network to them, also at its MTU"
                )
            case Unfit.FULL:
                text = "this node is not fit to lead: its disk is full, %d bytes free for messages"
                log.error(text, mine.free_bytes)
            case Unfit.SLOW:
                text = (
                    "this node is not fit to lead: its disk is slow, syncs take %d ms, up to %d ms"
                )
                log.error(text, mine.sync_ms, mine.sync_max_ms)
            case Unfit.CLOCK:
                log.error("this node is not fit to lead: its clock is off, look at NTP here")
            case None:
                log.warning("this node is fit to lead again; it was %s", before)

    @property
    def _zone(self) -> str:
        return self._member.config.me.zone

    def _me(self) -> Me:
        return Me(self.unfit, self._member.config.me.priority, self._zone, self._judge.is_cut)

    # ------------------------------------------------------------------ moving

    async def _move(self, move: Move) -> None:
        """Hand over; give up the leadership if a hand-over cannot succeed."""
        result = "failed"
        try:
            result = await self._try(move)
        except NotLeadingError:
            pass
        finally:
            self.moves[move.reason, result] += 1
            self._planner.ended(done=result == "handed_over")
            self._moving = None

    async def _try(self, move: Move) -> str:
        member, target = self._member, move.target
        why = {
            Reason.FULL: "its disk is full",
            Reason.SLOW: f"its disk is slow (a sync takes {self.mine.sync_ms} ms)",
            Reason.CLOCK: "its clock is off",
            Reason.PRIORITY: f"{target.name} has the higher priority ({target.priority})",
        }[move.reason]
        if not member.may_append():
            # An operator has requested a hand-over, or a new epoch is about to begin.
            return "failed"
        log.warning("this node hands over to %d (%s): %s", target.node, target.name, why)
        if self._can_hand_over() and await member.hand_over(target.node) is not None:
            return "handed_over"
        if move.reason is Reason.PRIORITY or not member.leading or best(self.peers()) is None:
            return "failed"
        log.warning("a hand-over cannot succeed: this node gives up the leadership")
        member.let_go(OUT_MS)
        return "let_go"

    def _can_hand_over(self) -> bool:
        """Whether the log can become durable here, which the final tick requires."""
        files = self._member.files
        waits = self._node.disk_full or self.mine.sync_hangs
        return not waits or files.durable_end == files.log_end

    def stop(self) -> None:
        """Begin no move any more, and cancel the present one."""
        if self._moving is not None:
            self._moving.cancel()


def _shown(
    fit: bool | None, unfit: str | None, sync_ms: int | None, priority: int, zone: str
) -> dict[str, Any]:
    return {"fit": fit, "unfit": unfit, "sync_ms": sync_ms, "priority": priority, "zone": zone}
