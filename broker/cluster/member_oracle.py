"""The oracle of a member, and the candidacies that its suggestions become.

It is the peer oracle, and raftos beside it where that can be used; `elections.py` makes both. With
raftos, the peer oracle elects by itself only when a leader's process has ended, or when raftos
should have elected a leader by then and has not. A node that raftos has chosen asks the voters
whether they hear a leader, and raftos' own leadership moves to the node that leads.

`Candidacy` turns a suggestion into a candidacy, and lets learners vote again. The oracle is polled,
so every method is idempotent. A leader that a majority still follows does not step down when the
oracle suggests another node: that node will become a candidate itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from delaylog.broker.cluster.member_counts import MemberCounts
from delaylog.broker.rules.addresses import Address
from delaylog.replication.errors import ClusterError
from delaylog.replication.messages import OracleMessage
from delaylog.replication.node import ReplicationNode
from delaylog.replication.oracle import LeaderOracle, PeerOracle
from delaylog.replication.replica import Now

# ----------------------------------------------------------------------------------- the oracle

DATAGRAM_MS_MAX: Final = 5_000
"""A node sends each other one a datagram a second. Without any for this time, the path is taken to
be blocked."""
TRANSFER_EVERY_MS: Final = 1_000
RAFTOS: Final = "raftos"
"""What `elections` says of a node that uses raftos; of others it says "peers"."""

log = logging.getLogger("delaylog.cluster")


class Election(LeaderOracle, Protocol):
    """An oracle with a network of its own, which elects among members that may change."""

    async def start(self) -> None:
        """Take part. Raises ClusterError."""

    async def stop(self) -> None:
        """Take no further part."""

    def change_members(self, members: Mapping[int, Address]) -> bool:
        """Elect among these nodes from now on; False if that needs another `Election`."""

    @property
    def failure(self) -> Exception | None:
        """The error that has ended its part, if any."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Numbers of refused datagrams, by reason."""

    def ages_ms(self) -> Mapping[int, int | None]:
        """Time since the last datagram of each other node; None = none came."""


class MemberOracle:
    """Elects among the present voters; a lone node elects itself."""

    def __init__(
        self,
        peers: PeerOracle,
        make: Callable[[], Election | None],
        members: Callable[[], dict[int, Address]],
    ) -> None:
        """`make` returns None if only the peer oracle can elect; `members` = the UDP addresses of
        the nodes that elect, including this one.
        """
        self.peers = peers
        self._make = make
        self._members = members
        self._raftos: Election | None = None
        self._among: dict[int, Address] = {}
        self._started = False
        self._changing: asyncio.Task[None] | None = None
        self._transfer_ms = 0
        self._failure: Exception | None = None

    async def start(self) -> None:
        """Begin to take part in elections."""
        self._started = True
        self._among = self._members()
        await self._begin()

    async def stop(self) -> None:
        """Take no further part."""
        self._started = False
        if self._changing is not None:
            await asyncio.wait([self._changing])
        if self._raftos is not None:
            await self._raftos.stop()

    def look(self, now_ms: int) -> None:
        """Do what is due, and follow a change of members; called by the poll."""
        self.peers.guards = self._works()
        self.peers.nominate(now_ms, chosen=self._raftos_chose(now_ms))
        self.peers.look(now_ms)
        if not self._started or self._changing is not None:
            return
        members = self._members()
        if members != self._among:
            self._among = members
            if not self._follows(members):
                self._changing = asyncio.get_running_loop().create_task(self._exchange())
        elif self._raftos is not None and now_ms >= self._transfer_ms:
            leader = self.peers.hears(now_ms)
            if leader in self._among and self._raftos.suggests(now_ms):
                self._transfer_ms = now_ms + TRANSFER_EVERY_MS
                self._raftos.transfer(leader, now_ms)

    def _follows(self, members: Mapping[int, Address]) -> bool:
        """Whether raftos, as it runs, elects among these nodes from now on."""
        try:
            return self._raftos is not None and self._raftos.change_members(members)
        except ClusterError:
            # Such as a name in place of an address.
            return False

    async def _begin(self) -> None:
        try:
            raftos = self._make()
            if raftos is None:
                return
            await raftos.start()
        except ClusterError as error:
            log.warning("%s; nodes elect over the connections between them", error)
            return
        self._raftos = raftos

    async def _exchange(self) -> None:
        try:
            raftos, self._raftos = self._raftos, None
            if raftos is not None:
                await raftos.stop()
            if self._started:
                await self._begin()
        except Exception as error:
            # The next poll ends the node for it.
            self._failure = error
        finally:
            self._changing = None

    # ------------------------------------------------------------------ what is known of raftos

    def _raftos_chose(self, now_ms: int) -> bool:
        return self._raftos is not None and self._raftos.suggests(now_ms)

    def _works(self) -> bool:
        """Whether raftos hears a majority of the nodes that elect, this one included."""
        ages_ms = self.datagram_ages_ms
        heard = sum(age_ms is not None and age_ms < DATAGRAM_MS_MAX for age_ms in ages_ms.values())
        return bool(ages_ms) and heard + 1 > (len(ages_ms) + 1) // 2

    @property
    def elections(self) -> str:
        """What this node elects by, for other nodes and for operators."""
        return "peers" if self._raftos is None else RAFTOS

    @property
    def datagram_ages_ms(self) -> Mapping[int, int | None]:
        """Time since the last datagram of each other node that elects; empty without raftos."""
        return {} if self._raftos is None else self._raftos.ages_ms()

    @property
    def failure(self) -> Exception | None:
        """The error that has ended its part, if any."""
        return self._failure or (None if self._raftos is None else self._raftos.failure)

    @property
    def refused(self) -> Mapping[str, int]:
        """Numbers of refused datagrams, by reason."""
        return {} if self._raftos is None else self._raftos.refused

    # ------------------------------------------------------------------ the connections

    def hear(self, leader: int, now_ms: int) -> None:
        """A round of the promised epoch came from `leader`."""
        self.peers.hear(leader, now_ms)

    def hear_deposed(self, leader: int, now_ms: int) -> None:
        """A round of an older epoch came."""
        self.peers.hear_deposed(leader, now_ms)

    def ended(self, peer: int, now_ms: int) -> None:
        """The peer has closed its connection."""
        self.peers.ended(peer, now_ms)

    def receive(self, peer: int, message: OracleMessage, now_ms: int) -> None:
        """A message of another node's oracle came."""
        self.peers.receive(peer, message, now_ms)

    def stretch(self, now_ms: int) -> float:
        """By how much a busy machine stretches the times of elections."""
        return self.peers.delays.factor(now_ms)

    def silence_ms(self, now_ms: int) -> float:
        """For how long a leader counts as heard, or as followed, without another message."""
        return self.peers.silence_ms(now_ms)

    # ------------------------------------------------------------------ LeaderOracle

    def suggests(self, now_ms: int) -> bool:
        """Whether this node should lead."""
        return self.peers.suggests(now_ms)

    def leader(self, now_ms: int) -> int | None:
        """The node that was elected, if known."""
        known = self.peers.leader(now_ms)
        if known is None and self._raftos is not None:
            known = self._raftos.leader(now_ms)
        return known

    def resign(self, now_ms: int, until_ms: int) -> None:
        """Give up an election and stay out until then."""
        self.peers.resign(now_ms, until_ms)
        if self._raftos is not None:
            self._raftos.resign(now_ms, until_ms)

    def transfer(self, target: int, now_ms: int) -> None:
        """Have the target elected."""
        self.peers.transfer(target, now_ms)
        if self._raftos is not None and target in self._among:
            self._raftos.transfer(target, now_ms)


# -------------------------------------------------------------------------------- the candidacy

READMIT_EVERY_MS: Final = 500


class Candidacy:
    """The candidacy of one member."""

    def __init__(self, counts: MemberCounts) -> None:
        self._counts = counts
        self._suggested = False
        self._readmit_ms = 0

    def look(
        self, replication: ReplicationNode, now: Now, *, chosen: bool, silence_ms: float
    ) -> None:
        """Tell replication whether the oracle has chosen this node.

        `silence_ms` = how long a leader counts as followed after a majority's last answers.
        """
        # The node that was chosen instead becomes a candidate; until then this leader goes on.
        suggested = chosen or (self._suggested and _is_followed(replication, now, silence_ms))
        if suggested:
            self._counts.chosen += not self._suggested
            replication.suggest_leader(now)
        elif self._suggested:
            replication.unsuggest_leader()
        if suggested != self._suggested:
            log.info("this node is %s to lead", "chosen" if suggested else "not chosen any more")
        self._suggested = suggested

    def readmit(
        self, replication: ReplicationNode, now: Now, all_have_met: Callable[[int], bool]
    ) -> None:
        """Let learners vote again as soon as that is safe.

        `all_have_met` = whether all other voters remember the present folder of a node.
        """
        leader = replication.leader
        if leader is None or now.boot_ms < self._readmit_ms:
            return
        self._readmit_ms = now.boot_ms + READMIT_EVERY_MS
        for peer, one in leader.progress.items():
            learns = not one.counts and not one.voter
            if learns and all_have_met(peer) and replication.readmit(peer):
                log.warning("node %d has the log and may vote again", peer)


def _is_followed(replication: ReplicationNode, now: Now, silence_ms: float) -> bool:
    """Whether this node leads, and a majority has answered recently."""
    leader = replication.leader
    age_ms = None if leader is None else leader.gate.age_ms(now.boot_ms)
    return age_ms is not None and age_ms < silence_ms
