"""The calls of operators: status, hand-over and changes of members.

Any node answers with its status, with null for what only the leader can know. A hand-over is
requested of the leader and answered once the next leader serves.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from delaylog.broker.cluster.config import ClusterConfig, Member
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.cluster.members.member_changes import MemberChanges, Wanted, not_leading
from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    EngineError,
    NotLeadingError,
)
from delaylog.broker.rules.addresses import host_port
from delaylog.replication.epochs import epoch_counter, epoch_node
from delaylog.replication.events import Role

ROLES: Final = (
    "leader",
    "candidate",
    "follower",
    "learner",
    "joining",
    "removed",
    "quarantined",
)
SUCCESSOR_SECONDS: Final = 2.0
"""How long the next leader may take to serve, after the deadline of the hand-over."""
LEADERS_SHOWN: Final = 20
"""Leaderships that the status has."""
_LOOK_SECONDS: Final = 0.002


class NotTakenOverError(EngineError):
    """No node took over: this one leads on, or another one was elected. Look at the status."""

    code = "not_ready"


class OperatorCalls:
    """The calls of one member."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member

    @property
    def _config(self) -> ClusterConfig:
        return self._member.config

    # ------------------------------------------------------------------ status

    @property
    def role(self) -> str:
        """The role of this node: one of `ROLES`."""
        replication = self._member.replication
        if self._member.leading:
            return "leader"
        if self._member.quarantined is not None:
            return "quarantined"
        if replication is None:
            return "joining"
        if self._member.members.removed:
            return "removed"
        if not replication.votes or self._config.node in replication.configuration.learners:
            return "learner"
        return "follower" if replication.role is Role.FOLLOWER else "candidate"

    def not_ready(self) -> str | None:
        """Why this node cannot answer calls at the moment; None if it can."""
        member, replication = self._member, self._member.replication
        if member.quarantined is not None:
            return member.quarantined
        if member.members.removed:
            return "this node was removed from the cluster"
        if replication is None:
            return member.waits_for
        if not replication.votes and not member.files.log_end:
            return "this node is a learner and has no data yet"
        if member.leader is not None and member.leader_works:
            return None
        missing = member.watch.missing_voters()
        names = f"; voters that are not connected: {', '.join(missing)}" if missing else ""
        if member.leading and member.watch.majority:
            stalled_s = member.fitness.stalled_ms(member.machine.boot_ms()) / 1000
            return (
                f"this node leads, but has committed nothing for {stalled_s:.1f} s while changes "
                "wait: look at the disks of the voters and at the network to them, also at its MTU"
            )
        if member.leading:
            return f"this node leads, but no majority of the voters acknowledges its rounds{names}"
        if member.leader is not None:
            name = self._config.name_of(member.leader)
            return f"this node hears no leader: {name} is elected, and sends nothing{names}"
        silent = member.watch.without_datagrams()
        if silent:
            at = host_port(self._config.me.election)
            names += f"; no election datagrams come to UDP {at} from {', '.join(silent)}"
        return f"this node knows no leader{names}"

    def status(self) -> dict[str, Any]:
        """The status of the cluster as this node knows it."""
        member, replication = self._member, self._member.replication
        leader = None if member.leader is None else self._config.member(member.leader)
        return {
            "cluster": self._config.name,
            "cluster_id": member.files.meta.meta.cluster.hex() or None,
            "version": 0 if replication is None else replication.configuration.version,
            **_named(self._config.me),
            "role": self.role,
            "epoch": None if replication is None else _epoch(replication.promised),
            "leader": None if leader is None else _named(leader),
            "leaders": self._leaders(),
            "log_end": member.files.log_end,
            "durable": member.files.durable_end,
            "commit": 0 if replication is None else replication.commit,
            "applied": member.position,
            "gate_age_ms": member.gate_age_ms(),
            **member.watch.facts(),
            "error": member.quarantined,
            "not_ready": self.not_ready(),
            "members": [self._member_status(each) for each in self._config.members],
        }

    def _leaders(self) -> list[dict[str, Any]]:
        """The newest leaderships in this node's log, newest first."""
        names = {each.node: each.name for each in self._config.members}
        return [
            {**_epoch(epoch), "name": names.get(epoch_node(epoch)), "began_ms": began_ms or None}
            for epoch, began_ms in self._member.files.replica.epochs.newest(LEADERS_SHOWN)
        ]

    def _member_status(self, each: Member) -> dict[str, Any]:
        """The row of a member. The leader knows the progress of the others; other nodes do not."""
        member, replication = self._member, self._member.replication
        me = each.node == self._config.node
        known = None if replication is None else replication.configuration
        removed = known is not None and known.version > 0 and each.node not in known.nodes
        voter: bool | None = None
        match: int | None = None
        if me:
            voter = replication is not None and replication.votes
            match = member.files.durable_end
        elif replication is not None and replication.leader is not None:
            one = replication.leader.progress.get(each.node)
            if one is not None and one.known:
                voter, match = one.counts, one.match
        return {
            **_named(each),
            "peer": host_port(each.peer),
            **member.watch.facts_of(each.node),
            "connected": me or each.node in member.transport.connected(),
            "voter": voter,
            "removed": removed,
            "match": match,
            "lag_bytes": None if match is None else max(member.files.log_end - match, 0),
            **member.fitness.shown(each.node),
        }

    # ------------------------------------------------------------------ handing over

    async def hand_over(self, to: int | str | None) -> dict[str, Any]:
        """Hand over to another node. Raises EngineErrors."""
        member = self._member
        target = None if to is None else self._find(to)
        self._check(target)
        replication = member.replication
        assert replication is not None, "it leads"
        before = replication.promised
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            taken = await member.hand_over(target)
        except NotLeadingError as error:
            raise ConflictError(error.detail) from None
        epoch = None if taken is None else await self._successor(before)
        if epoch is None:
            raise NotTakenOverError(
                "no node took over in time; look at the status to see who leads, and try again"
            )
        return {
            **_named(self._config.member(epoch_node(epoch))),
            "epoch": _epoch(epoch),
            "pause_ms": round((loop.time() - began) * 1000),
        }

    # ------------------------------------------------------------------ members

    async def change_members(
        self, action: str, nodes: list[str], contact: dict[str, Any]
    ) -> dict[str, Any]:
        """Change the members of the cluster. Raises EngineErrors."""
        addresses = dict(contact)
        force = bool(addresses.pop("force", False))
        return await MemberChanges(self._member).change(Wanted(action, nodes, addresses, force))

    def _find(self, to: int | str) -> int:
        """The index of a member, by index or name."""
        for each in self._config.members:
            if to in (each.node, each.name, str(each.node)):
                return each.node
        there = ", ".join(f"{each.node} ({each.name})" for each in self._config.members)
        raise BadRequestError(f"there is no member {str(to)[:64]!a}; there are {there}", field="to")

    def _check(self, target: int | None) -> None:
        """Refuse a hand-over that cannot succeed, before sends are paused."""
        member = self._member
        replication = member.replication
        leader = None if replication is None else replication.leader
        if not member.leading or replication is None or leader is None:
            raise not_leading(member)
        if replication.leadership.hands_over:
            raise ConflictError("a hand-over is under way")
        if not self._config.others:
            raise ConflictError("there is no node to hand over to: the cluster has one node")
        if target == self._config.node:
            raise ConflictError(f"{self._config.member(target).name} leads already")
        why = member.fitness.refusal(target)
        if why is not None:
            raise ConflictError(why)

    async def _successor(self, before: int) -> int | None:
        """The epoch in which another node serves after the epoch `before`; None if none does."""
        member = self._member
        replication = member.replication
        assert replication is not None, "it has led"
        try:
            async with asyncio.timeout(SUCCESSOR_SECONDS):
                while True:
                    epoch, start = member.files.last_begin
                    if epoch > before and replication.commit > start:
                        return None if epoch_node(epoch) == self._config.node else epoch
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            return None


def _named(member: Member) -> dict[str, Any]:
    return {"node": member.node, "name": member.name, "http": member.http_url}


def _epoch(epoch: int) -> dict[str, int]:
    return {"counter": epoch_counter(epoch), "node": epoch_node(epoch)}
