"""The calls of operators: status, hand-over and changes of members.

Any node answers with its status, with null for what only the leader can know. A hand-over is
requested of the leader and answered once the next leader serves.

A change of members is requested of the leader. Each call changes the configuration in the log
(replication/configuration.py) and is answered once the new one is in force and committed. A change
that cannot succeed is refused before anything is changed, and the error states what to do instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from delaylog.broker.cluster.config import (
    MEMBERS_MAX,
    ClusterConfig,
    Member,
    check_members,
    make_member,
)
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    EngineError,
    NotLeadingError,
)
from delaylog.broker.rules.addresses import host_port
from delaylog.replication.configuration import NODE_MAX, VOTERS_MAX, Configuration, Contact
from delaylog.replication.epochs import epoch_counter, epoch_node
from delaylog.replication.errors import ChangeRefusedError, ClusterError
from delaylog.replication.messages import Role
from delaylog.replication.node import ReplicationNode

# --------------------------------------------------------------------------- changes of members

DONE_SECONDS: Final = 10.0
"""How long a change may take until it is committed; the leader begins two new epochs for it."""
_CHANGE_LOOK_SECONDS: Final = 0.01
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,4}")


class NotChangedError(EngineError):
    """The change was not committed in time, and may still be: look at the members."""

    code = "not_ready"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A change as an operator requests it."""

    action: str
    """`add`, `promote`, `remove`, `replace` or `move`."""
    nodes: Sequence[str]
    """Indexes or names of the nodes to change; for `replace` the old one, then the new one."""
    contact: Mapping[str, Any]
    """For `add` and `move`: keys of a member in a cluster file."""
    force: bool = False
    """For `remove`: do it even if the voters that stay are no majority of the present ones."""


def not_leading(member: ClusterMember) -> ConflictError:
    """The refusal of a call that only the leader carries out; it states the leader's URL."""
    other, url = member.leader, None
    if other is not None and other != member.config.node:
        url = member.config.member(other).http_url
    where = "there is no leader at the moment" if url is None else f"the leader is {url}"
    return ConflictError(f"this node does not lead; {where}", leader=url)


def find_member(members: Sequence[Member], text: str, field: str) -> int:
    """The index of one of these members, by index or name; `field` names the text in an error."""
    for each in members:
        if text in (each.name, str(each.node)):
            return each.node
    there = ", ".join(f"{each.node} ({each.name})" for each in members)
    raise BadRequestError(f"there is no member {text[:64]!a}; there are {there}", field=field)


class MemberChanges:
    """The changes that are requested of one member. Errors are EngineErrors."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member

    async def change(self, wanted: Wanted) -> dict[str, Any]:
        """Make a change; returns the configuration that is in force then."""
        replication = self._leading()
        before = self._newest(replication)
        if not before.version:
            raise ConflictError(
                "the log does not know the members yet: that takes all nodes to be connected and "
                "to run this release"
            )
        try:
            after = self._after(before, wanted, replication)
            self._check(before, after)
            if wanted.action == "remove" and not wanted.force:
                self._check_rest(before, after)
            replication.leadership.change(after)
        except (ChangeRefusedError, ClusterError) as error:
            raise ConflictError(str(error)) from None
        await self._done(after)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        configuration = self._newest(self._replication())
        name = self._member.config.name_of
        return {
            "version": configuration.version,
            "voters": [name(node) for node in configuration.voters],
            "learners": [name(node) for node in configuration.learners],
            "advice": self._advice(configuration),
        }

    @staticmethod
    def _advice(configuration: Configuration) -> str | None:
        """What an operator should do next."""
        count = len(configuration.voters)
        if count % 2 == 0:
            return (
                f"{count} voters survive no more failures than {count - 1}: add one more, or "
                "remove one"
            )
        return None

    # ------------------------------------------------------------------ the new configuration

    def _after(
        self, before: Configuration, wanted: Wanted, replication: ReplicationNode
    ) -> Configuration:
        if wanted.action == "add":
            return self._add(before, wanted)
        there = [each for each in self._member.config.members if each.node in before.nodes]
        nodes = [find_member(there, text, "nodes") for text in wanted.nodes]
        if wanted.action == "move":
            return self._move(before, nodes, wanted.contact)
        if wanted.contact:
            raise BadRequestError(f"{wanted.action} takes no {next(iter(wanted.contact))}")
        if wanted.action == "promote":
            return self._with_voters(before, {*before.voters, *nodes}, nodes, replication)
        if wanted.action == "replace":
            if len(nodes) != 2:
                raise BadRequestError("replace takes two nodes: the old one, then the new one")
            old, new = nodes
            if old not in before.voters:
                raise ConflictError(f"{self._name(old)} is not a voter: only voters are replaced")
            return self._with_voters(before, {*before.voters, new} - {old}, [new], replication)
        return self._remove(before, nodes)

    def _add(self, before: Configuration, wanted: Wanted) -> Configuration:
        if len(wanted.nodes) != 1 or not _INDEX.fullmatch(wanted.nodes[0]):
            raise BadRequestError(f"add takes one node's index, a number from 0 to {NODE_MAX}")
        node = int(wanted.nodes[0])
        if node in before.nodes:
            raise ConflictError(f"{self._name(node)} is a member already")
        if len(before.nodes) >= MEMBERS_MAX:
            raise ConflictError(f"a cluster has {MEMBERS_MAX} members at most")
        contacts = self._contacts(before, node, dict(wanted.contact))
        return replace(before.with_learners((*before.learners, node)), contacts=contacts)

    def _move(
        self, before: Configuration, nodes: Sequence[int], contact: Mapping[str, Any]
    ) -> Configuration:
        if len(nodes) != 1 or not contact:
            raise BadRequestError(
                "move takes one node and its new addresses, such as peer and http"
            )
        (node,) = nodes
        known: dict[str, Any] = {**before.contacts[node]}
        old = make_member(node, known)
        if old.election == old.peer:
            # A cluster file without it means the port of `peer`, which may move.
            known.pop("election_port", None)
        contacts = self._contacts(before, node, {**known, **contact})
        return before.with_contacts(contacts, before.cluster)

    def _contacts(
        self, before: Configuration, node: int, contact: dict[str, Any]
    ) -> dict[int, Contact]:
        try:
            member = make_member(node, contact)
            others = [each for each in self._member.config.members if each.node != node]
            check_members([*others, member])
        except ClusterError as error:
            raise BadRequestError(str(error)) from None
        return {**before.contacts, node: member.contact}

    def _with_voters(
        self,
        before: Configuration,
        voters: set[int],
        promoted: Sequence[int],
        replication: ReplicationNode,
    ) -> Configuration:
        leader = replication.leader
        assert leader is not None, "it leads"
        # What does not pass by itself names a member of the call, and comes first.
        for node in promoted:
            if node in before.voters:
                raise ConflictError(f"{self._name(node)} is a voter already", field="nodes")
        if len(voters) > VOTERS_MAX:
            raise ConflictError(
                f"a cluster has {VOTERS_MAX} voters at most: remove or replace one", field="nodes"
            )
        for node in promoted:
            if not leader.may_vote(node):
                one = leader.progress.get(node)
                lag = "all of it" if one is None else f"{leader.commit - one.match} bytes"
                raise ConflictError(
                    f"{self._name(node)} has not caught up: it lacks {lag} of the log, or is not "
                    "connected; wait, and try again"
                )
        return before.with_voters(voters)

    def _remove(self, before: Configuration, nodes: Sequence[int]) -> Configuration:
        gone = {*nodes}
        if gone <= {*before.learners}:
            kept = [node for node in before.learners if node not in gone]
            after = before.with_learners(kept)
        elif gone <= {*before.voters}:
            after = before.with_voters({*before.voters} - gone)
        else:
            raise ConflictError("remove voters and learners in separate calls")
        return after

    # ------------------------------------------------------------------ refusals

    def _check(self, before: Configuration, after: Configuration) -> None:
        member = self._member
        me = member.config.node
        if me not in after.voters:
            raise ConflictError(
                f"{self._name(me)} leads: hand over first (`delaylog cluster handover`), then ask "
                "again"
            )
        here = {me, *member.transport.connected()}
        if after.voters != before.voters and not after.agree(here & {*after.deciding}):
            away = [self._name(node) for node in after.deciding if node not in here]
            raise ConflictError(
                f"too few of the voters before and after the change are connected; missing: "
                f"{', '.join(away)}"
            )

    def _check_rest(self, before: Configuration, after: Configuration) -> None:
        """Refuse to remove so many voters that those that stay are no majority of the present ones:
        more likely a slip than an intention.
        """
        now, rest = len(before.voters), len(after.voters)
        if rest == now or 2 * rest > now:
            return
        names = ", ".join(map(self._name, after.voters))
        survives = f"the loss of {(rest - 1) // 2}" if rest > 2 else "no failure"
        raise ConflictError(
            f"{rest} of {now} voters would stay ({names}), which is no majority of them: the "
            f"cluster then survives {survives}, and the data of the removed nodes does not count "
            "any more. Nothing was changed; with force it is done",
            field="force",
        )

    # ------------------------------------------------------------------ waiting for the commit

    async def _done(self, after: Configuration) -> None:
        """Wait until this configuration, or the one that settles it, is committed."""
        try:
            async with asyncio.timeout(DONE_SECONDS):
                while True:
                    if self._is_done(after.version):
                        break
                    await asyncio.sleep(_CHANGE_LOOK_SECONDS)
        except TimeoutError:
            raise NotChangedError(
                "the change was not committed in time, and may still be: look at the members"
            ) from None
        found = self._replication().configuration
        if (found.voters, found.learners, found.contacts) != (
            after.voters,
            after.learners,
            after.contacts,
        ):
            raise NotChangedError("another change was made instead: look at the members")

    def _is_done(self, version: int) -> bool:
        replication = self._member.replication
        if replication is None:
            return False
        configuration = replication.configuration
        committed = replication.commit > self._member.files.last_begin[1]
        known = configuration.version >= version and not configuration.changing
        return known and committed and self._member.leader is not None

    # ------------------------------------------------------------------ helpers

    def _newest(self, replication: ReplicationNode) -> Configuration:
        """The newest configuration; makes this node use its members from now on."""
        self._member.members.follow(replication)
        return replication.configuration

    def _replication(self) -> ReplicationNode:
        replication = self._member.replication
        assert replication is not None, "it has led"
        return replication

    def _leading(self) -> ReplicationNode:
        member, replication = self._member, self._member.replication
        if member.leading and replication is not None and replication.leader is not None:
            return replication
        raise not_leading(member)

    def _name(self, node: int) -> str:
        return self._member.config.name_of(node)


# ---------------------------------------------------------------------------------------- calls

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
        target = None if to is None else find_member(self._config.members, str(to), "to")
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
