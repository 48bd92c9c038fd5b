"""A node's membership of its cluster: replication, connections, the oracle and the engine together.

The member is made of parts: `ReplicationHost` runs replication, `Greeting` introduces the node to
its peers, `Lead` and `Succession` carry the leadership, and `MemberPoll` looks at everything that
has no event of its own. The parts call the member back. They import this module for its type only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.greeting import Greeting
from delaylog.broker.cluster.leading.gate import LeaderSight, Pace
from delaylog.broker.cluster.leading.lead import Lead, SafeSends
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.cluster.member_events import EventActions, MemberPoll, StatusExchange
from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.broker.cluster.member_oracle import MemberOracle
from delaylog.broker.cluster.member_role import MemberRole
from delaylog.broker.cluster.members.folders import StaleFolderError
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.members.node_status import Statuses
from delaylog.broker.cluster.peers import PeerHost, PeerTransport
from delaylog.broker.cluster.replication_host import (
    FollowerPositions,
    PacedSync,
    ReplicationHost,
    log_needed,
)
from delaylog.broker.cluster.watch.fitness_watch import FitnessWatch
from delaylog.broker.cluster.watch.member_watch import MemberWatch
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.node import Node
from delaylog.broker.host.node_role import ClusterCalls
from delaylog.broker.host.watch.quiet_log import QuietLog
from delaylog.replication.errors import LostCommitError
from delaylog.replication.messages import (
    Append,
    CopyMessage,
    Event,
    Message,
    NodeStatus,
    OracleMessage,
)
from delaylog.replication.node import ReplicationNode
from delaylog.replication.replica import Now
from delaylog.storage.errors import DiskFullError

RELEASE_PACE_SECONDS: Final = 0.004
"""Shortest time between two releases, twice that of a single node: each occupies several nodes."""

log = logging.getLogger("delaylog.cluster")


class ClusterMember:
    """One member. All methods belong to the loop's thread unless they say otherwise."""

    def __init__(
        self,
        config: ClusterConfig,
        files: MemberFiles,
        *,
        new_cluster: bool,
        on_fatal: Callable[[BaseException], None],
        machine: Machine,
        make_transport: Callable[..., PeerTransport] = PeerTransport,
    ) -> None:
        """`make_transport` is called as `PeerTransport` is."""
        self.machine = machine
        self.file = config
        """The cluster file: where this node listens."""
        self.members = KnownMembers(self, config)
        self._files = files
        self.on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._host = ReplicationHost(self, machine.random())
        self.greeting = Greeting(
            self, self.members, new_cluster=new_cluster, on_stale=self._stale_folder
        )
        self.folders = self.greeting.folders
        self._positions = FollowerPositions(files.physical.first_position)
        self._quiet = QuietLog(log)
        self.quarantined: str | None = None
        """Why this node takes no part any more, though it runs."""
        self._kept_end = 0  # Where the committed log ended when the node was quarantined.
        self._safe_sends = SafeSends(self._loop, self.members.name_of)
        self.counts = MemberCounts()
        self.statuses = Statuses()
        """The newest status of each connected peer."""
        self.stopping = False
        """The node ends: no input is taken any more."""
        self.transport = make_transport(
            config.peer_config(),
            PeerHost(
                self.greeting.hello,
                self.folders,
                self._on_message,
                self._on_connect,
                self._on_disconnect,
                self.greeting.levels,
                self.members.describe,
                lambda: self.oracle.stretch(machine.boot_ms()),
            ),
            machine,
        )

    def attach(
        self,
        node: Node,
        oracle: MemberOracle,
        succession: Succession,
        copies: Copies,
        calls: ClusterCalls,
    ) -> None:
        """Attach the node and its components; called before the node starts.

        `calls` = the calls of operators on this member.
        """
        self._node = node
        self.oracle = oracle
        self.copies = copies
        self._succession = succession
        self.watch = MemberWatch(self, node)
        self._pace = Pace(
            node, serving=self._serving, committed=self.committed, rearm=self._host.arm
        )
        self._sight = LeaderSight(
            self.config.node,
            self.machine.boot_ms,
            leads=lambda: succession.leading,
            chosen=lambda: oracle.leader(self.machine.boot_ms()),
            knows=lambda node: node in self.members.nodes,
            stretch=lambda: oracle.stretch(self.machine.boot_ms()),
        )
        self.fitness = FitnessWatch(self, node, self._sight, self.machine.boot_ms())
        self._lead = Lead(self, self._host, succession, self._pace, self._safe_sends)
        self._actions = EventActions(self, succession, self._lead)
        self._exchange = StatusExchange(self, self.members, self.watch, self.fitness)
        self._poll = MemberPoll(self, self._exchange)
        self._sync = PacedSync(node.log_commits.kick)
        node.role = self._role = MemberRole(
            self, calls, succession, self._sight, self._pace, self._safe_sends
        )
        node.releases.pace.shortest_s = RELEASE_PACE_SECONDS
        node.log_commits.position = self.committed

    @property
    def replication(self) -> ReplicationNode | None:
        """None until the node has joined, and while its folder is being replaced."""
        return self._host.replication

    @property
    def waits_for(self) -> str:
        """What keeps this node from joining."""
        return self.greeting.waits_for

    @property
    def config(self) -> ClusterConfig:
        """The cluster file with the members that the log knows."""
        return self.members.config

    @property
    def node(self) -> Node:
        """The broker's node that this member is attached to."""
        return self._node

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Listen, connect, take part in elections. Raises OSError and ClusterError."""
        if self.greeting.joins_blank():
            self._begin()
        await self.transport.start()
        await self.oracle.start()
        self._succession.start()
        self._join_if_new()
        if self.replication is None:
            log.info("%s", self.waits_for)
        self._poll.start()

    async def stop(self) -> None:
        """Take no further part."""
        self.stopping = True
        self.cancel_timers()
        self._sync.cancel()
        self.fitness.stop()
        if self.replication is not None:
            self.replication.unsuggest_leader()
            self._host.pump()
        await self.copies.stop()
        await self.oracle.stop()
        await self.transport.stop()
        await self._succession.stop()

    def cancel_timers(self) -> None:
        """Neither poll nor give replication the time any more."""
        self._host.timer.cancel()
        self._poll.cancel()

    def _join_if_new(self) -> None:
        """Join with a new folder once the other nodes have said what they hold."""
        if self.greeting.joins():
            self._begin()
            # The others wait for the id of the new cluster.
            for peer in self.transport.connected():
                self.transport.drop(peer, "this node is part of the cluster now")

    def _begin(self) -> None:
        self.members.follow(self._host.begin())

    # ------------------------------------------------------------------ another folder

    @property
    def files(self) -> MemberFiles:
        """The open files; a copy of the leader's folder replaces them."""
        return self._files

    def fall_silent(self, end: int) -> None:
        """Stop replication: a folder whose log goes to `end` is about to replace this one."""
        self.greeting.silent_end = end
        self._host.replication = None

    def take_files(self, files: MemberFiles) -> None:
        """Use these files from now on."""
        self._files = files

    def go_on(self) -> None:
        """Take part again; the peers hear of the new log when they connect again."""
        self.greeting.silent_end = None
        self._begin()
        for peer in self.transport.connected():
            self.transport.drop(peer, "this node uses a copy of the leader's folder now")

    # ------------------------------------------------------------------ inputs

    def now(self) -> Now:
        """The two times."""
        return Now(self.machine.boot_ms(), self._node.clock.now_ms())

    def note_level(self) -> None:
        """The log's level was raised."""
        self.greeting.levels()

    def _on_connect(self, peer: int) -> None:
        self.fitness.heard(peer, self.machine.boot_ms())
        hello, folder = self.transport.hello_of(peer), self.transport.folder_of(peer)
        if hello is not None and folder is not None:
            self.greeting.heard(peer, folder)
            self._positions.heard(peer, hello.end)
            self.copies.giver.met(peer, hello.end)
        self._join_if_new()
        if self.replication is not None:
            replication = self.replication
            self.take_input(lambda: replication.reconnect(peer))

    def _stale_folder(self, error: StaleFolderError) -> None:
        """This folder must not be served: the node ends, unless it does so already."""
        if not self.stopping:
            self.stopping = True
            self._loop.call_soon(self.on_fatal, error)

    def _on_disconnect(self, peer: int, ended: bool) -> None:
        self.statuses.lost(peer)
        self.watch.lost(peer)
        if ended:
            self.oracle.ended(peer, self.machine.boot_ms())
        if not self.stopping:
            self.copies.lost(peer)

    def _on_message(self, peer: int, message: Message) -> None:
        if isinstance(message, CopyMessage):
            if not self.stopping:
                self.copies.receive(peer, message)
            return
        if isinstance(message, NodeStatus):
            self._exchange.receive(peer, message)
            return
        if isinstance(message, OracleMessage):
            if not self.stopping:
                self.oracle.receive(peer, message, self.machine.boot_ms())
            return
        replication = self.replication
        if replication is not None:
            self.take_input(lambda: replication.receive(peer, message, self.now()))
            if isinstance(message, Append):
                now_ms = self.machine.boot_ms()
                if message.epoch == replication.promised:
                    self.oracle.hear(peer, now_ms)
                    self._sight.follow(peer)
                    self.settle()
                else:
                    self.oracle.hear_deposed(peer, now_ms)

    def take_input(self, take: Callable[[], object]) -> None:
        """Give replication an input and act on the results. Raises PeerError."""
        self._host.take_input(take)

    def input_failed(self, error: Exception) -> None:
        """Replication could not take an input."""
        match error:
            case LostCommitError():
                self._quarantine(error)
            case DiskFullError():
                # Nothing was promised and nothing sent: the peer asks again.
                self._quiet.tell("full disk", "the disk is full: %s", error)
                self.fitness.make_room()
            case _:
                # The logs differ, or the disk fails: this node must not answer anybody again.
                self.stopping = True
                self.on_fatal(error)

    def _quarantine(self, error: LostCommitError) -> None:
        """Keep what the cluster has lost: take no further part, and serve reads only."""
        log.error("%s", error)
        # Reads wait for the committed position, and replication, which knows it, ends here.
        self._kept_end, self.quarantined = self.committed(), str(error)
        self.fall_silent(0)
        self.counts.lost_commits += 1
        self._loop.create_task(self._leave())

    async def _leave(self) -> None:
        await self.oracle.stop()
        await self.transport.stop()

    def run_timer(self, replication: ReplicationNode) -> None:
        """Give replication the time, with what the wheel has reached by now."""
        self._pace.note_busy()
        self._pace.publish()
        replication.timer(self.now())

    def act(self, event: Event) -> None:
        """Carry out an event of replication."""
        self._actions.act(event)

    def note_progress(self, replication: ReplicationNode) -> None:
        """The log, the commit or the gate may have changed."""
        if self._files.physical.end_position > self._files.physical.durable_position:
            self._sync.soon()
        leader = replication.leader
        if leader is not None and self.leading:
            self._lead.note_progress(replication, leader)
        else:
            self._succession.look()

    # ------------------------------------------------------------------ the log

    @property
    def position(self) -> int:
        """How far the log is applied."""
        return self._node.engine.state.position

    def gate_age_ms(self) -> int | None:
        """The age of the newest tick that a majority has taken; None unless this node leads."""
        leader = None if self.replication is None else self.replication.leader
        return None if leader is None else leader.gate.age_ms(self.machine.boot_ms())

    @property
    def lags(self) -> bool:
        """Whether it would have much log to apply before it could lead."""
        return self._succession.lags

    def committed(self) -> int:
        """End of the log that is both committed and durable on this disk."""
        if self.replication is None:
            return self._files.start if self.quarantined is None else self._kept_end
        return min(self.replication.commit, self._files.physical.durable_position)

    def drop_log(self, position: int) -> int:
        """Remove the log below `position` that no near follower needs. Any thread."""
        replication, physical = self.replication, self._files.physical
        leader = None if replication is None else replication.leader
        if leader is not None and not self._node.engine.upkeep.short_of_space:
            if self.copies.giving:
                return 0
            positions = self._positions.of(leader)
            first, end = physical.first_position, physical.end_position
            position = min(position, log_needed(positions, first=first, end=end))
        return physical.drop_below(position)

    # ------------------------------------------------------------------ who leads

    @property
    def leading(self) -> bool:
        """Whether the engine leads."""
        return self._succession.leading

    @property
    def leader(self) -> int | None:
        """The index of the leader, if this node knows one."""
        return self._sight.leader

    @property
    def leader_works(self) -> bool:
        """Whether a leader works, as this node sees it: within a second its own gate was open and
        it has committed what waits, or a round of another leader came.
        """
        replication, now_ms = self.replication, self.machine.boot_ms()
        if replication is None:
            return False
        _, followed_ms = self._sight.followed
        age_ms = now_ms - followed_ms if replication.leader is None else self.gate_age_ms()
        stalled_ms = replication.timing.stalled_ms
        return (
            age_ms is not None
            and age_ms < stalled_ms
            and self.fitness.stalled_ms(now_ms) < stalled_ms
        )

    def settle(self) -> None:
        """Let calls go on that wait for a leader, if there is one."""
        if self._sight.waited_for and self._role.settled:
            self._sight.settle()

    def may_append(self) -> bool:
        """Whether replication takes changes; the engine asks before each."""
        replication = self.replication
        return replication is not None and replication.leadership.may_append()

    def _serving(self) -> ReplicationNode | None:
        return self.replication if self.leading else None

    async def hand_over(self, target: int | None) -> int | None:
        """Hand the leadership to a node (None = the fittest). Returns the new leader; None if no
        node took over. Raises NotLeadingError.
        """
        return await self._lead.hand_over(target)

    async def until_handed_over(self) -> None:
        """Wait for the end of a hand-over that is under way, if any."""
        await self._lead.until_handed_over()

    def let_go(self, out_ms: int) -> None:
        """Give up the leadership without a successor, and stay out of elections for `out_ms`."""
        self._lead.let_go(out_ms)
