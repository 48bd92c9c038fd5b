"""What a member observes for its operator: a missing majority, datagrams, lag, addresses, clocks.

It changes nothing itself; a clock that is far off makes the node unfit to lead (`fitness`).

A majority of the voters that is not connected is logged once, with their names, and when that ends.
Without a majority nothing is acknowledged, so the operator has to know which nodes to bring back. A
leader without one gives up the leadership, unless it learns that no other node can lead. A short
time without connections, as at every start, is not logged.

Election datagrams of a connected node that do not arrive are logged, and when they do again. Only
raftos sends datagrams. Without them it cannot elect, and nodes elect over the connections between
them; a firewall that drops UDP is still an operator's mistake. This looks at what arrives here, so
a path that is open in one direction only is logged by one of the two nodes.

Lag of followers is sampled by the leader's poll, which notes how far its log was. What a follower
lacks begins at the first note beyond its durable end, whose age is the lag: too small by one
interval of the poll at most, which is 20 ms. A follower that is away has a lag that grows, so
samples tell of it while it is away.

Addresses may differ between the cluster's configuration, the options of `serve` and the cluster
files of the nodes. These are only warnings, since a host may be mapped, and a new file may not be
on all nodes yet. Clients and nodes are always given the addresses of the cluster's configuration.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from delaylog import __version__
from delaylog.broker.cluster.config import Member
from delaylog.broker.cluster.member_oracle import RAFTOS
from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.cluster.watch.clock_watch import ClockWatch
from delaylog.broker.engine.watch.histogram import Histogram
from delaylog.broker.host.node import Node
from delaylog.broker.host.tls.certificates import Hosts
from delaylog.broker.rules.addresses import host_port
from delaylog.replication.configuration import Configuration

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

# ------------------------------------------------------------------------------------ addresses


def peer_text(member: Member) -> str:
    """The peer address of a member, as a cluster file writes it."""
    return host_port(member.peer)


def announced(me: Member) -> dict[str, Any]:
    """The fields of a status with this node's addresses, from its own cluster file."""
    return {"http": me.http_url, "peer": peer_text(me)}


def announced_elsewhere(member: Member, status: Status) -> dict[str, tuple[str, str]]:
    """By key, the address in a node's own file and the one in the configuration, if they differ."""
    pairs = {
        "http": (status.http, member.http_url),
        "peer": (status.peer, peer_text(member)),
    }
    return {key: (said, here) for key, (said, here) in pairs.items() if said and said != here}


def told_to_clients(me: Member) -> tuple[str, ...]:
    """The hosts of this node that clients are sent to by TLS, which its certificate must name."""
    url = urlsplit(me.http_url)
    if url.scheme != "https" or url.hostname is None:
        return ()
    return (url.hostname,) if me.resp is None else (url.hostname, me.resp[0])


def names_of_node(me: Member) -> Hosts:
    """The name and the hosts of this node, one of which the certificate of `[tls]` may have."""
    http = urlsplit(me.http_url).hostname or ""
    return Hosts(others=(me.name, me.peer[0], http))


def unlike_options(
    me: Member, http_port: int, resp_port: int | None, *, has_tls: bool
) -> Iterator[str]:
    """Warnings about ports that this node listens on and that differ from the configuration.

    Hosts may differ: 0.0.0.0, or a name behind a mapping. `has_tls`: its listeners use TLS.
    """
    named = urlsplit(me.http_url).port
    if has_tls and not me.http_url.startswith("https:"):
        yield (
            f"the cluster sends clients of this node to {me.http_url}, and this node uses TLS: "
            "write its `http` as https://HOST:PORT"
        )
    if not has_tls and me.http_url.startswith("https:"):
        yield (
            f"the cluster sends clients of this node to {me.http_url}, and this node does not use "
            "TLS: unless a proxy does, give --tls-cert"
        )
    if named != http_port:
        yield (
            f"--http listens on port {http_port}, and the cluster sends clients of this node "
            f"to {me.http_url}: unless that port is mapped here, correct one of the two"
        )
    if me.resp is None:
        if resp_port is not None:
            yield (
                f"--resp listens on port {resp_port}, and the cluster has no `resp` for this "
                "node: while it leads, other nodes cannot send Redis clients here"
            )
    elif resp_port is None:
        yield (
            "the cluster sends Redis clients of this node to {}:{}, and it was started "
            "without --resp"
        ).format(*me.resp)
    elif me.resp[1] != resp_port:
        yield (
            "--resp listens on port {}, and the cluster sends Redis clients of this node to "
            "{}:{}: unless that port is mapped here, correct one of the two"
        ).format(resp_port, *me.resp)


# ------------------------------------------------------------------------------------ datagrams

SILENT_MS: Final = 5_000
"""A node sends a datagram every second, and a leader one every 50 ms."""

log = logging.getLogger("delaylog.cluster")


class DatagramWatch:
    """The watch of one node."""

    def __init__(self, describe: Callable[[int], str], port: Callable[[], str]) -> None:
        """`describe` = a node for log lines; `port` = this node's UDP address."""
        self._describe = describe
        self._port = port
        self._since_ms: dict[int, int] = {}
        """Connected peers -> since when each of them was connected without a break."""
        self._told: set[int] = set()

    @property
    def silent(self) -> list[int]:
        """The connected peers whose datagrams do not arrive."""
        return sorted(self._told)

    def look(self, now_ms: int, senders: Iterable[int], ages_ms: Mapping[int, int | None]) -> None:
        """Check; called twice a second. `senders` = connected peers that use raftos; `ages_ms` =
        time since the last datagram of each peer, None = none came.
        """
        self._since_ms = {peer: self._since_ms.get(peer, now_ms) for peer in senders}
        for peer in [*self._told]:
            if peer not in self._since_ms:
                self._told.discard(peer)
        for peer, since_ms in self._since_ms.items():
            age_ms = ages_ms.get(peer)
            silent_ms = now_ms - since_ms
            if age_ms is not None:
                silent_ms = min(silent_ms, age_ms)
            if silent_ms >= SILENT_MS and peer not in self._told:
                self._told.add(peer)
                log.warning(
                    "no election datagrams come from %s to UDP %s, though it is connected: open "
                    "UDP between the nodes; until then they elect over their TCP connections",
                    self._describe(peer),
                    self._port(),
                )
            elif silent_ms < SILENT_MS and peer in self._told:
                self._told.discard(peer)
                log.info("election datagrams come from %s again", self._describe(peer))


# ------------------------------------------------------------------------------------- majority

GRACE_MS: Final = 2_000


class MajorityWatch:
    """The watch of one node."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._told: list[str] | None = None

    @property
    def lacking(self) -> bool:
        """Whether a missing majority was logged and has not ended."""
        return self._told is not None

    def look(
        self, now_ms: int, configuration: Configuration, here: Collection[int], missing: list[str]
    ) -> None:
        """Check; called twice a second. `here` = this node and the connected ones; `missing` =
        names of the voters that are not connected.
        """
        if configuration.agree(here):
            if self._told is not None:
                log.info("a majority of the voters is connected again")
            self._since_ms = self._told = None
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if now_ms - self._since_ms >= GRACE_MS and self._told != missing:
            self._told = missing
            log.error(
                "no majority of the voters: nothing is acknowledged or handed out until enough of "
                "them are connected; missing: %s",
                ", ".join(missing),
            )


# ------------------------------------------------------------------------------------ all of it


class MemberWatch:
    """The watch of one member. All methods belong to the loop's thread."""

    def __init__(self, member: ClusterMember, node: Node) -> None:
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


# ----------------------------------------------------------------------------- lag of followers

BOUNDS: Final = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds: from one poll to a follower that needs a copy of the folder."""
NOTES_MAX: Final = 4_096
"""While a follower is away, older notes are thinned out, which makes them less exact."""


class FollowerLag:
    """The lag of the followers of one leader."""

    def __init__(self) -> None:
        self.histograms: dict[tuple[str, ...], Histogram] = {}
        """Seconds, by (index of the node,)."""
        self._ends: list[int] = []
        """Ends of the log, ascending, and when it was first seen to have them."""
        self._times_ms: list[int] = []

    def look(self, now_ms: int, end: int, matches: Mapping[int, int]) -> None:
        """Sample the lag now; `matches` = how far the log is durable on each follower. On a node
        that does not lead it is empty.
        """
        ends, times_ms = self._ends, self._times_ms
        done = bisect_right(ends, min(matches.values(), default=end))
        del ends[:done], times_ms[:done]
        if not ends or end > ends[-1]:
            if len(ends) >= NOTES_MAX:
                # In the older half, so that fresh lags stay exact; the oldest note stays.
                older = slice(1, NOTES_MAX // 2, 2)
                del ends[older], times_ms[older]
            ends.append(end)
            times_ms.append(now_ms)
        for node, match in matches.items():
            place = (str(node),)
            if place not in self.histograms:
                self.histograms[place] = Histogram(BOUNDS)
            missing = bisect_right(ends, match)
            lag_ms = now_ms - times_ms[missing] if missing < len(ends) else 0
            self.histograms[place].note(lag_ms / 1000)
