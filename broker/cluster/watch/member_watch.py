"""What a member observes for its operator: clocks, a missing majority, differing addresses.

It changes nothing itself; a clock that is far off makes the node unfit to lead (fitness/).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from delaylog import __version__
from delaylog.broker.cluster.copies.exchange import Copies
from delaylog.broker.cluster.member_oracle import RAFTOS, MemberOracle
from delaylog.broker.cluster.member_view import MemberView
from delaylog.broker.cluster.members.addresses import announced, announced_elsewhere
from delaylog.broker.cluster.members.known_members import KnownMembers
from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.cluster.watch.clock_watch import ClockWatch
from delaylog.broker.cluster.watch.datagram_watch import DatagramWatch
from delaylog.broker.cluster.watch.majority_watch import MajorityWatch
from delaylog.broker.host.node import Node
from delaylog.broker.rules.addresses import host_port

log = logging.getLogger("delaylog.cluster")


class WatchedMember(MemberView, Protocol):
    """What the watch needs of its member."""

    copies: Copies
    members: KnownMembers
    oracle: MemberOracle


class MemberWatch:
    """The watch of one member. All methods belong to the loop's thread."""

    def __init__(self, member: WatchedMember, node: Node) -> None:
        self._member = member
        self._node = node
        self.clocks = ClockWatch(member.members.describe)
        self._majority = MajorityWatch()
        self.certificates: Callable[[], dict[str, Any]] = dict
        """Fields of a status about the certificates of this process; `serve` sets it."""
        self._datagrams = DatagramWatch(
            member.members.describe, lambda: host_port(member.config.me.election)
        )
        self._elsewhere: dict[tuple[int, str], str] = {}
        """Differing addresses that were logged, by peer and key."""
        self._heard_ms: dict[int, int] = {}
        """When the newest status of each peer came, by `Machine.boot_ms`, connected or not."""

    # ------------------------------------------------------------------ inputs

    def hear(self, peer: int, status: Status, wall_us: int) -> None:
        """A peer's status came at `wall_us` by this node's clock."""
        self._heard_ms[peer] = self._member.machine.boot_ms()
        self.clocks.hear(peer, status, wall_us)
        self._compare(peer, status)

    def lost(self, peer: int) -> None:
        """The peer was disconnected."""
        self.clocks.lost(peer)

    def look(self, now_ms: int) -> None:
        """Update alarms; called twice a second."""
        member = self._member
        self.clocks.look()
        configuration = None if member.replication is None else member.replication.configuration
        removed = member.members.removed
        if configuration is not None and configuration.voters and not removed:
            self._majority.look(now_ms, configuration, self._here(), self.missing_voters())
        self._datagrams.look(now_ms, self._senders(), member.oracle.datagram_ages_ms)
        member.transport.dial_all(wanted=self._majority.lacking and not removed)

    def said(self) -> dict[str, Any]:
        """Fields of this node's status for its peers."""
        elections = self._member.oracle.elections
        return {
            **announced(self._member.file.me),
            "release": __version__,
            "elections": elections,
        }

    # ------------------------------------------------------------------ status

    def missing_voters(self) -> list[str]:
        """Names of other voters that are not connected to this node."""
        member, here = self._member, self._here()
        if member.replication is None:
            return []
        return [member.config.name_of(node) for node in member.members.deciding if node not in here]

    def datagram_ages_ms(self) -> dict[int, int | None]:
        """Time since the last election datagram of each peer that sends some; None = none came."""
        ages_ms = self._member.oracle.datagram_ages_ms
        return {peer: ages_ms.get(peer) for peer in self._senders()}

    def without_datagrams(self) -> list[str]:
        """Names of connected nodes whose election datagrams do not arrive."""
        return [self._member.config.name_of(peer) for peer in self._datagrams.silent]

    @property
    def majority(self) -> bool:
        """Whether a majority of the voters is connected, this node included; on a leader, whether
        it acknowledges the log.
        """
        replication = self._member.replication
        if replication is None or not replication.configuration.agree(self._here()):
            return False
        leader = replication.leader
        return leader is None or not leader.is_cut(self._member.machine.boot_ms())

    def facts(self) -> dict[str, Any]:
        """Fields of this node's status for operators."""
        member, copies = self._member, self._member.copies
        return {
            "majority": self.majority,
            "missing_voters": self.missing_voters(),
            "elections": member.oracle.elections,
            "copy_to": copies.giver.peer,
            "copy_from": copies.receiver.peer,
            "release": __version__,
            "feature_level": self._node.engine.state.level,
            "peer_tls": member.config.tls is not None,
            "connections_refused": {
                str(reason): count for reason, count in member.transport.counts.refused.items()
            },
            **self.clocks.facts(),
            **self.certificates(),
        }

    def facts_of(self, peer: int) -> dict[str, Any]:
        """Fields of a member's row."""
        member = self._member
        me = peer == member.config.node
        status = None if me else member.statuses.of(peer)
        heard_ms = self._heard_ms.get(peer)
        silent = self._datagrams.silent
        return {
            "silent_ms": None if heard_ms is None else member.machine.boot_ms() - heard_ms,
            **self.clocks.facts_of(None if me else peer),
            "announced_http": None if status is None else status.http or None,
            "announced_peer": None if status is None else status.peer or None,
            "release": __version__ if me else None if status is None else status.release or None,
            "election": host_port(member.config.member(peer).election),
            "datagrams_arrive": None if peer not in self._senders() else peer not in silent,
        }

    # ------------------------------------------------------------------ helpers

    def _here(self) -> set[int]:
        return {self._member.config.node, *self._member.transport.connected()}

    def _senders(self) -> list[int]:
        """Connected peers that elect by raftos, as this node does: their datagrams have to come."""
        statuses, ages_ms = self._member.statuses, self._member.oracle.datagram_ages_ms
        known = {peer: statuses.of(peer) for peer in ages_ms}
        return [peer for peer, one in known.items() if one and one.elections == RAFTOS]

    def _compare(self, peer: int, status: Status) -> None:
        members = {each.node: each for each in self._member.config.members}
        if peer not in members:
            return
        differing = announced_elsewhere(members[peer], status)
        for key, (there, here) in differing.items():
            if self._elsewhere.get((peer, key)) != there:
                self._elsewhere[peer, key] = there
                log.warning(
                    "%s has %s as its `%s` in its cluster file, but the cluster uses %s: correct "
                    "that file, or run `delaylog cluster move`",
                    self._member.config.describe(peer),
                    there,
                    key,
                    here,
                )
        for key in [k for p, k in self._elsewhere if p == peer and k not in differing]:
            del self._elsewhere[peer, key]
