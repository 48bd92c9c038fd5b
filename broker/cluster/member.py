"""A node's place in its cluster: replication, its connections, the oracle and the engine.

Replication is a state machine without network or clock; this is its host. What comes in (messages,
times, words of the oracle, syncs of the log) is handed over, and what it says is sent and acted
on in the same turn (`_pump`). Whether the engine leads or follows is `Succession`'s affair.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from random import Random
from typing import Final

from delaylog.broker.cluster.candidacy import Candidacy
from delaylog.broker.cluster.config import ClusterConfig
from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.fitness.watch import FitnessWatch
from delaylog.broker.cluster.handover import Handover, furthest
from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.broker.cluster.member_standing import MemberStanding
from delaylog.broker.cluster.members.folders import Folders, StaleFolderError
from delaylog.broker.cluster.members.joining import Heard, Joining
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.members.node_status import (
    STATUS_EVERY_MS,
    Status,
    Statuses,
    encode_status,
)
from delaylog.broker.cluster.oracles import MemberOracle
from delaylog.broker.cluster.pace import Pace
from delaylog.broker.cluster.paced_sync import PacedSync
from delaylog.broker.cluster.peers import Levels, PeerHost, PeerPlace, PeerTransport, Transport
from delaylog.broker.cluster.retention import FollowerPlaces, log_needed
from delaylog.broker.cluster.safe_sends import SafeSends
from delaylog.broker.cluster.secret import KeyUse
from delaylog.broker.cluster.succession import Succession
from delaylog.broker.cluster.watch.boot_clock import boot_ms
from delaylog.broker.cluster.watch.leader_sight import LeaderSight
from delaylog.broker.cluster.watch.member_watch import MemberWatch
from delaylog.broker.cluster.watch.metrics import MemberCounts
from delaylog.broker.engine.errors import NotLeadingError
from delaylog.broker.host.node import Node
from delaylog.broker.host.watch.quiet_log import QuietLog
from delaylog.replication.configuration import CLUSTER_ID_SIZE
from delaylog.replication.errors import LostCommitError, PeerError
from delaylog.replication.events import (
    Event,
    HandoverFailed,
    NeedsCopy,
    Readmitted,
    Resigned,
    Serving,
    SteppedDown,
    TakeoverAsked,
    Truncated,
)
from delaylog.replication.messages import (
    Append,
    CopyEnd,
    CopyOffer,
    CopyPart,
    CopyTaken,
    Hello,
    Message,
    Nack,
    NodeStatus,
)
from delaylog.replication.node import ReplicationNode
from delaylog.replication.timing import Now
from delaylog.replication.watermark import EpochTick
from delaylog.storage.errors import DiskFullError
from delaylog.storage.log.levels import FIRST_LEVEL, IDENTITIES, KNOWN_LEVEL
from delaylog.storage.work import Work

ORACLE_EVERY_SECONDS: Final = 0.02
RELEASE_PACE_SECONDS: Final = 0.004
"""Shortest time between two releases, twice that of a single node: each occupies several nodes."""
SLOTS_EVERY_MS: Final = 1_000
"""So much of the tick may a power cut take from one node."""

log = logging.getLogger("delaylog.cluster")


def _place_of(tick: EpochTick, name: str, value: int) -> dict[str, object]:
    """For the log: where dispatch stood, to compare what one node gave and the next one took."""
    return {name: value, "tick": [tick.second, tick.local_index, tick.position]}


class ClusterMember:
    """One member. All methods belong to the loop's thread."""

    def __init__(
        self,
        config: ClusterConfig,
        files: MemberFiles,
        *,
        new_cluster: bool,
        on_fatal: Callable[[BaseException], None],
        random: Random,
        make_transport: Callable[..., Transport] = PeerTransport,
    ) -> None:
        """`make_transport` is called as `PeerTransport` is."""
        self.file = config
        """The cluster file: where this node listens."""
        self.members = KnownMembers(self, config)
        self._files = files
        self.on_fatal = on_fatal
        self._random = random
        self._loop = asyncio.get_running_loop()
        self.replication: ReplicationNode | None = None
        """None until it is known what this node is; see joining.py."""
        self._joining = Joining(
            config.node, [member.node for member in config.others], new_cluster=new_cluster
        )
        self.folders = Folders(
            meta=lambda: self._files.meta,
            hello=self._hello,
            history=lambda: self._files.history(self.members.nodes),
            version=lambda: self.members.version,
            replication=lambda: self.replication,
            on_stale=self._stale,
        )
        self._places = FollowerPlaces(files.physical.first_position)
        self._silent = False
        self._quiet = QuietLog(log)
        self.quarantined: str | None = None
        """Why this node takes no part any more, though it runs."""
        self._end_to_come = 0
        self._safe_sends = SafeSends(self._loop, self.members.name_of)
        self.counts = MemberCounts()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._poller: asyncio.TimerHandle | None = None
        self._candidacy = Candidacy(self.counts)
        self._told_commit = 0
        self._slots_ms = 0
        self.statuses = Statuses()
        """What the others say of themselves."""
        self._status_ms = 0
        self._handover = Handover()
        self._stopping = False
        self._reached = FIRST_LEVEL
        self.transport = make_transport(
            PeerPlace(
                config.node,
                config.cluster_id,
                config.key(KeyUse.PEERS),
                config.peers,
                config.me.peer,
                config.tls,
            ),
            PeerHost(
                self._hello,
                self.folders,
                self._on_message,
                self._on_connect,
                self._on_disconnect,
                self._levels,
            ),
        )

    def attach(
        self, node: Node, oracle: MemberOracle, succession: Succession, copies: Copies
    ) -> None:
        """Attach the node and its components; called before the node starts."""
        self._node = node
        self.oracle = oracle
        self.copies = copies
        self._succession = succession
        self.watch = MemberWatch(self, node)
        self._pace = Pace(node, serving=self._serving, committed=self.committed, rearm=self._arm)
        self._sight = LeaderSight(
            self.config.node,
            leads=lambda: succession.leading,
            chosen=lambda: oracle.leader(boot_ms()),
            knows=lambda node: node in self.members.nodes,
        )
        self.fitness = FitnessWatch(self, node, self._sight, boot_ms())
        self._sync = PacedSync(node.log_commits.kick)
        node.standing = self._standing = MemberStanding(
            self, node, succession, self._sight, self._pace, self._safe_sends
        )
        node.pace.shortest_s = RELEASE_PACE_SECONDS
        node.log_commits.position = self.committed

    @property
    def waits_for(self) -> str:
        """What keeps this node from joining."""
        return self._joining.waits_for()

    @property
    def config(self) -> ClusterConfig:
        """The cluster file with the members that the log knows."""
        return self.members.config

    @property
    def node(self) -> Node:
        """What it is attached to."""
        return self._node

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Listen, connect, take part in elections. Raises OSError and ClusterError."""
        if not self._files.fresh or self._joining.enter_blank(self._files.meta):
            self._begin()
        await self.transport.start()
        await self.oracle.start()
        self._succession.start()
        self._join_if_new()
        if self.replication is None:
            log.info("%s", self.waits_for)
        self._poll()

    async def stop(self) -> None:
        """Take no further part."""
        self._stopping = True
        for handle in (self._timer, self._poller):
            if handle is not None:
                handle.cancel()
        self._sync.cancel()
        self.fitness.stop()
        if self.replication is not None:
            self.replication.unsuggest_leader()
            self._pump()
        await self.copies.stop()
        await self.oracle.stop()
        await self.transport.stop()
        await self._succession.stop()

    def _join_if_new(self) -> None:
        """A folder that is not part of the cluster yet: see what the others say of it."""
        if self.replication is not None or self._silent:
            return
        mine = Heard(self._hello(), self.folders.identity(self.config.node))
        if self._joining.enter_known(
            mine, self._files, lambda: secrets.token_bytes(CLUSTER_ID_SIZE)
        ):
            self._begin()
            # The others wait for the id of the new cluster.
            for peer in self.transport.connected():
                self.transport.drop(peer, "this node is part of the cluster now")

    def _begin(self) -> None:
        self.replication = ReplicationNode(
            log=self._files.replica,
            meta=self._files.meta,
            ticks=self._files.ticks,
            random=self._random,
            commit=self._files.committed,
        )
        self.members.follow(self.replication)

    # ------------------------------------------------------------------ another folder

    @property
    def files(self) -> MemberFiles:
        """What it stands on; a copy may take its place."""
        return self._files

    def fall_silent(self, end: int) -> None:
        """Stop replication: the data folder is about to be replaced.

        `end` = where its log ends.
        """
        self._silent, self._end_to_come = True, end
        self.replication = None

    def take_files(self, files: MemberFiles) -> None:
        """Use these files from now on."""
        self._files = files

    def go_on(self) -> None:
        """Take part again, and say to all what the log holds now."""
        self._silent = False
        self._begin()
        for peer in self.transport.connected():
            self.transport.drop(peer, "this node stands on a copy now")

    # ------------------------------------------------------------------ inputs

    def _now(self) -> Now:
        return Now(boot_ms(), self._node.clock.now_ms())

    def _hello(self) -> Hello:
        meta, replica = self._files.meta.meta, self._files.replica
        voter = (self.replication is not None or self._silent) and meta.voter
        promised = max(meta.promised_epoch, replica.epochs.last_epoch)
        end = self._end_to_come if self._silent else replica.end
        return Hello(self.config.cluster_id, self.config.node, voter, promised, end)

    def note_level(self) -> None:
        """The log's level was raised."""
        self._levels()

    def _levels(self) -> Levels:
        """The feature levels that peers are held to: none may lack what its frames may hold."""
        engine = self._node.engine.state.level
        self._reached = max(self._reached, self._files.replica.level, engine)
        return Levels(KNOWN_LEVEL, self._reached)

    def _on_connect(self, peer: int) -> None:
        self.fitness.heard(peer, boot_ms())
        hello = self.transport.hello_of(peer)
        if hello is not None:
            self._joining.hear(peer, Heard(hello, self.transport.folder_of(peer)))
            self._places.met(peer, hello.end)
            self.copies.giver.met(peer, hello.end)
        self._join_if_new()
        if self.replication is not None:
            replication = self.replication
            self.take_input(lambda: replication.reconnect(peer))

    def _stale(self, error: StaleFolderError) -> None:
        """This folder must not be served: the node ends, unless it does so already."""
        if not self._stopping:
            self._stopping = True
            self._loop.call_soon(self.on_fatal, error)

    def _on_disconnect(self, peer: int) -> None:
        self.statuses.lost(peer)
        self.watch.lost(peer)
        if not self._stopping:
            self.copies.lost(peer)

    def _on_message(self, peer: int, message: Message) -> None:
        if isinstance(message, (CopyOffer, CopyTaken, CopyPart, CopyEnd)):
            if not self._stopping:
                self.copies.receive(peer, message)
            return
        if isinstance(message, NodeStatus):
            wall_us = self._node.clock.wall_us
            status = self.statuses.hear(peer, message, wall_us)
            self.watch.hear(peer, status, wall_us)
            self.members.hear(status)
            self.fitness.heard(peer, boot_ms())
            return
        replication = self.replication
        if replication is not None:
            self.take_input(lambda: replication.receive(peer, message, self._now()))
            if isinstance(message, Append) and message.epoch == replication.promised:
                self._sight.follow(peer)
                self._settle()

    def take_input(self, take: Callable[[], object]) -> None:
        """Hand something over and do what comes of it. Raises PeerError."""
        if self._stopping:
            return
        try:
            try:
                take()
            finally:
                self._pump()
        except PeerError:
            raise
        except LostCommitError as error:
            self._quarantine(error)
        except DiskFullError as error:
            # Nothing was promised, nothing said: it is asked for again.
            self._quiet.tell("full disk", "the disk is full: %s", error)
            self.fitness.make_room()
        except Exception as error:
            # Logs that differ, a disk that fails: nothing more may be said by this node.
            self._stopping = True
            self.on_fatal(error)

    def _quarantine(self, error: LostCommitError) -> None:
        """Keep what the cluster has lost: take no further part, and serve reads only."""
        log.error("%s", error)
        self.quarantined = str(error)
        self._silent = True
        self.replication = None
        self.counts.lost_commits += 1
        self._loop.create_task(self._leave())

    async def _leave(self) -> None:
        await self.oracle.stop()
        await self.transport.stop()

    def _poll(self) -> None:
        """Ask the oracle again and again: a single word may be lost, or come too early."""
        self._poller = self._loop.call_later(ORACLE_EVERY_SECONDS, self._poll)
        self.fitness.look(boot_ms())
        self._tell_status()
        replication = self.replication
        if replication is not None:
            self.take_input(lambda: self._ask_oracle(replication))
            self.copies.look()

    def _tell_status(self) -> None:
        """Send this node's status to every peer of feature level 2."""
        now_ms = boot_ms()
        if now_ms < self._status_ms:
            return
        self._status_ms = now_ms + STATUS_EVERY_MS
        self.watch.look(now_ms)
        mine = {**self.watch.said(), **self.fitness.said(), **self.members.said()}
        for peer in self.transport.connected():
            if (self.transport.known_level(peer) or 0) >= IDENTITIES:
                said = {**mine, **self.statuses.echo(peer)}
                status = Status(wall_us=self._node.clock.wall_us, **said)
                self.transport.send(peer, encode_status(status))

    def _ask_oracle(self, replication: ReplicationNode) -> None:
        now = self._now()
        if self.oracle.failure is not None:
            self.on_fatal(self.oracle.failure)
            return
        chosen = self.oracle.suggests(now.boot_ms)
        self._candidacy.look(replication, now, chosen=chosen)
        self._candidacy.readmit(replication, now, self.members.all_have_met)
        self._settle()
        self.members.look(replication)
        self.oracle.look()
        if now.boot_ms >= self._slots_ms:
            # Not while the background is halted: it is asked for again then.
            if self._node.spawn("tick", self._sync_slots):
                self._slots_ms = now.boot_ms + SLOTS_EVERY_MS
        # Nothing looks up the epoch of a frame that was removed.
        self._files.replica.epochs.forget(self._files.physical.first_position)

    def _sync_slots(self) -> Work:
        yield self._files.slots.sync

    def _timer_fired(self) -> None:
        self._timer = None
        replication = self.replication
        if replication is not None:
            self.take_input(lambda: self._turn_round(replication))

    def _turn_round(self, replication: ReplicationNode) -> None:
        self._pace.note_busy()
        self._pace.publish()
        replication.timer(self._now())

    # ------------------------------------------------------------------ outputs

    def _pump(self) -> None:
        """Send the messages and apply the events that replication has queued."""
        replication = self.replication
        assert replication is not None
        events = replication.take_events()
        while events:
            for event in events:
                self._act(event)
            events = replication.take_events()
        for target, message in replication.take_messages():
            self.counts.refused_epochs += isinstance(message, Nack)
            self.transport.send(target, message)
        if self._files.physical.end_position > self._files.physical.durable_position:
            self._sync.soon()
        self._note_progress(replication)
        self._arm()

    def _note_progress(self, replication: ReplicationNode) -> None:
        """The commit may be further, the gate may be open."""
        leader = replication.leader
        if leader is not None and self.leading:
            committed = self.committed()
            if committed > self._told_commit:
                self._told_commit = committed
                self._node.log_committed()
            if replication.leadership.hands_over:
                self._pace.publish()
            self._safe_sends.progress(leader)
            self._pace.look()
            if self._handover.target is not None and replication.leadership.has_given:
                target = self._handover.give()
                log.info("handed over", extra=_place_of(leader.order.tick, "to", target))
                self.oracle.transfer(target, boot_ms())
        else:
            self._succession.look()

    def _arm(self) -> None:
        """Have the timer fire when replication has something to do."""
        at_ms = None if self.replication is None else self.replication.next_timer_ms()
        if at_ms is None or self._stopping:
            return
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        delay_ms = max(at_ms - boot_ms(), 0)
        self._timer = self._loop.call_later(delay_ms / 1000, self._timer_fired)

    def _act(self, event: Event) -> None:
        match event:
            case Serving():
                extra = _place_of(event.tick, "epoch", event.epoch)
                log.info("this node leads, epoch %#x", event.epoch, extra=extra)
                self.counts.leaderships += 1
                self._succession.serve(event)
            case SteppedDown():
                self.copies.giver.abort("this node leads no more")
                self._step_down(event)
            case Truncated():
                self.copies.giver.abort("the log was cut")
                log.warning(
                    "the log was cut at %d: no leader had what stood behind", event.position
                )
            case Resigned():
                self.counts.resigned += 1
                missing = ", ".join(self.watch.missing_voters()) or "none"
                log.warning(
                    "this node could not come to lead in time and stays out for a while; voters "
                    "that are not connected: %s",
                    missing,
                )
                self.oracle.resign(boot_ms(), event.until_ms)
            case TakeoverAsked():
                log.info("the leader hands over to this node")
            case HandoverFailed():
                log.warning("node %d did not take over", event.target)
                self.counts.handovers_failed += 1
                self._handover.end(done=False)
            case NeedsCopy():
                if event.node == self.config.node:
                    log.warning("this log lies too far behind to lead: another node has to")
                else:
                    log.warning("the log of node %d lies too far behind for this one", event.node)
            case Readmitted():
                if self.config.node in self.members.deciding:
                    log.warning("this node is a voter again")
                else:
                    log.info("this node holds the log; it votes once it is promoted")
                # Its folder binds the others from now on: they remember it with a new connection.
                for peer in self.transport.connected():
                    self.transport.drop(peer, "this node is a voter again")

    def _step_down(self, event: SteppedDown) -> None:
        log.info("this node leads no more, epoch %#x", event.epoch)
        why = NotLeadingError("this node leads no more; ask the leader, with the same sequence")
        self._handover.end(done=True)
        was_leading = self.leading
        self._succession.step_down(event.commit)
        if was_leading:
            self._node.end_leading(why)
        self._safe_sends.fail_all(why)
        self._pace.let_go()

    # ------------------------------------------------------------------ the log

    @property
    def position(self) -> int:
        """How far the log is applied."""
        return self._node.engine.state.position

    def gate_age_ms(self) -> int | None:
        """How long ago a tick went out that a majority took; None unless this node leads."""
        leader = None if self.replication is None else self.replication.leader
        return None if leader is None else leader.gate.age_ms(boot_ms())

    @property
    def lags(self) -> bool:
        """Whether it would have much to apply before it could lead."""
        return self._succession.lags

    @property
    def clock_is_off(self) -> bool:
        """Whether its clock is so far off that others should lead."""
        return self.watch.clocks.is_off

    @property
    def stands_back(self) -> bool:
        """Whether it lets fitter nodes be elected first, for a bounded time."""
        return self.fitness.stands_back(boot_ms())

    def committed(self) -> int:
        """Up to where the log is committed, and on this disk too."""
        if self.replication is None:
            return self._files.start
        commit = self.replication.commit
        return min(commit, self._files.physical.durable_position)

    def drop_log(self, position: int) -> int:
        """Remove log below `position` that no follower needs, or none that is near. Any thread."""
        replication, physical = self.replication, self._files.physical
        leader = None if replication is None else replication.leader
        if leader is not None and not self._node.engine.upkeep.short_of_space:
            if self.copies.giving:
                return 0
            places = self._places.of(leader)
            first, end = physical.first_position, physical.end_position
            position = min(position, log_needed(places, first=first, end=end))
        return physical.drop_below(position)

    # ------------------------------------------------------------------ who leads

    @property
    def leading(self) -> bool:
        """Whether the engine leads."""
        return self._succession.leading

    @property
    def leader(self) -> int | None:
        """Who leads, if anybody is known to."""
        return self._sight.leader

    def _settle(self) -> None:
        if self._sight.waited_for and self._standing.settled:
            self._sight.settle()

    def may_append(self) -> bool:
        """Whether replication takes changes; the engine asks at each."""
        replication = self.replication
        return replication is not None and replication.leadership.may_append()

    def _serving(self) -> ReplicationNode | None:
        return self.replication if self.leading else None

    # ------------------------------------------------------------------ handing over

    async def hand_over(self, target: int | None) -> int | None:
        """Hand the leadership to a node (None = the fittest); None if nobody took it."""
        replication = self.replication
        leader = None if replication is None else replication.leader
        if replication is None or leader is None or not self.leading:
            raise NotLeadingError("this node does not lead, so there is nothing to hand over")
        if target is None:
            target = self.fitness.target()
        if target is None:
            target = furthest(leader)
        if target is None or not replication.hand_over(target, self._now()):
            return None
        ended = self._handover.begin(target)
        # The final tick goes out with a round.
        self._pace.note_busy()
        self._pump()
        if not await ended:
            return None
        self.counts.handed_over += 1
        return target

    def let_go(self, out_ms: int) -> None:
        """Lead no more, without a successor, and stay out of elections so long."""
        replication = self.replication
        if replication is not None and self.leading:
            now_ms = boot_ms()
            self.oracle.resign(now_ms, now_ms + out_ms)
            self.take_input(replication.unsuggest_leader)
