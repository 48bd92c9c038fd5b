"""Changes of a cluster's members that an operator requests of the leader.

Each call changes the configuration in the log (replication/configuration.py) and is answered once
the new one is in force and committed. A change that cannot succeed is refused before anything is
changed, and the error states what to do instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from delaylog.broker.cluster.config import MEMBERS_MAX, check_members, make_member
from delaylog.broker.cluster.member import ClusterMember
from delaylog.broker.engine.errors import BadRequestError, ConflictError, EngineError
from delaylog.replication.configuration import NODE_MAX, VOTERS_MAX, Configuration, Contact
from delaylog.replication.errors import ChangeRefusedError, ClusterError
from delaylog.replication.node import ReplicationNode

DONE_SECONDS: Final = 10.0
"""How long a change may take until it is committed; the leader begins two new epochs for it."""
_LOOK_SECONDS: Final = 0.01
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
        nodes = [self._find(text, before) for text in wanted.nodes]
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
        contacts = self._contacts(before, node, {**before.contacts[node], **contact})
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
        for node in promoted:
            if node in before.voters:
                raise ConflictError(f"{self._name(node)} is a voter already")
            if not leader.may_vote(node):
                one = leader.progress.get(node)
                lag = "all of it" if one is None else f"{leader.commit - one.match} bytes"
                raise ConflictError(
                    f"{self._name(node)} has not caught up: it lacks {lag} of the log, or is not "
                    "connected; wait, and try again"
                )
        if len(voters) > VOTERS_MAX:
            raise ConflictError(f"a cluster has {VOTERS_MAX} voters at most")
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
                    await asyncio.sleep(_LOOK_SECONDS)
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

    def _find(self, text: str, configuration: Configuration) -> int:
        for each in self._member.config.members:
            if text in (each.name, str(each.node)) and each.node in configuration.nodes:
                return each.node
        there = ", ".join(f"{node} ({self._name(node)})" for node in configuration.nodes)
        raise BadRequestError(f"there is no member {text[:64]!a}; there are {there}", field="nodes")
