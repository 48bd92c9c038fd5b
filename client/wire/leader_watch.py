"""Finds out whether a node that does not answer still leads: another member is asked.

A node that hangs (a stopped process, a machine that vanished, a firewall that drops packets) keeps
its connections open. A slow answer, or a long poll without messages, looks the same. So after
QUIET_S without a byte the client asks another member for the leader, by `GET /v1/cluster`, which
every valid token may call. If that member names another node, the exchange is given up, as if its
connection had broken off; in all other cases it goes on. All exchanges of a client share the
questions. The transport waits, asks and gives up; this module decides.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from delaylog.client.wire.exchanging import Ask, Outcome, answered_object, cluster_question
from delaylog.client.wire.leader_route import LeaderRoute, same_node

QUIET_S: Final = 1.0
ASK_S: Final = 0.5
"""How long a member may take to answer. One that hangs, too, must not hold up the next question."""


class LeftNode(Exception):
    """Another node leads than the one that gives no answer, and the route goes there now."""


class Silence:
    """One exchange, or stream: since when its node has been silent, and when to look again."""

    __slots__ = ("again_s", "look_at_s", "node", "since_s")

    def __init__(self, node: str, again_s: float, now_s: float) -> None:
        self.node = node
        self.again_s = again_s
        self.since_s = now_s
        self.look_at_s = now_s + QUIET_S

    def heard(self, now_s: float) -> None:
        """Note that bytes of an answer have arrived."""
        self.since_s = now_s
        self.look_at_s = now_s + QUIET_S


class LeaderWatch:
    """What members have said, for all exchanges of one client. Threads may share it."""

    def __init__(self, route: LeaderRoute, clock: Callable[[], float]) -> None:
        self._route = route
        self._clock = clock
        self._member: str | None = None
        """The member that answered last. It is asked again, so a dead one costs one question."""
        self._asked_s = float("-inf")
        """When the newest question was asked."""
        self._named_s = float("-inf")
        """When the question was asked whose answer named `_leader`."""
        self._leader = ""

    def look(self, silence: Silence) -> Generator[Ask, Outcome, bool]:
        """Whether another node leads than the silent one; sets when to look next.

        A member is asked, unless one has been asked within `again_s`.
        """
        now_s, again_s = self._clock(), silence.again_s
        if now_s >= self._asked_s + again_s:
            self._asked_s = now_s
            leader = yield from self._ask(silence.node)
            if leader is None:
                # Another member, or this one a little later, knows more.
                self._asked_s = now_s - again_s / 2
            else:
                self._leader, self._named_s = leader, now_s
        silence.look_at_s = max(self._asked_s + again_s, self._clock() + again_s / 2)
        # What was said before the node fell silent, or before a question under way, may be wrong.
        if not silence.since_s <= self._named_s == self._asked_s:
            return False
        return not same_node(self._leader, silence.node) and self._route.follow(self._leader)

    def _ask(self, silent: str) -> Generator[Ask, Outcome, str | None]:
        """Ask one member who leads; returns the address of the leader, or None."""
        others = [url for url in self._route.nodes if not same_node(url, silent)]
        if not others:
            return None
        member = self._member if self._member in others else others[0]
        status = answered_object((yield cluster_question(self._route, member, ASK_S, aside=True)))
        leader = _http(status.get("leader"))
        if leader is None:
            self._member = others[(others.index(member) + 1) % len(others)]
            return None
        self._member = member
        self._route.learn(status)
        listed = status.get("members")
        addresses = map(_http, listed if isinstance(listed, list) else ())
        if not any(each and same_node(each, silent) for each in addresses):
            # The client has another address of this node than the cluster file, or one that leads
            # to any node. So the node itself is asked whether it leads.
            own = answered_object((yield cluster_question(self._route, silent, ASK_S, aside=True)))
            if own.get("role") == "leader":
                return silent
        return leader


def _http(node: Any) -> str | None:
    """The address of a node in a cluster status, or None."""
    found = node.get("http") if isinstance(node, dict) else None
    return found if isinstance(found, str) else None
