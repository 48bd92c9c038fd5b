"""Calls of AsyncClient about what is more than one message: jobs, topics, groups, clock, cluster.

They only name a method, a path and members; `http_client` sends them, once each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from delaylog.client.leader_route import LeaderRoute


class TopicCalls(ABC):
    """The calls; the class that inherits them knows the broker."""

    _root: str
    _topics: str
    _route: LeaderRoute

    @abstractmethod
    def _of(self, topic: str, *rest: str) -> str:
        """The address of something under a topic."""

    @abstractmethod
    async def _json(
        self,
        method: str,
        url: str,
        shape: object | None = None,
        headers: Mapping[str, str] | None = None,
        extra_s: float = 0.0,
        *,
        repeatable: bool = False,
    ) -> dict[str, Any]:
        """One call in JSON."""

    # The cluster

    async def cluster(self) -> dict[str, Any]:
        """What the node that is asked knows of its cluster. ApiError 404 when it is in none."""
        status = await self._json("GET", f"{self._root}/cluster")
        self._route.learn(status)
        return status

    async def leading(self) -> dict[str, Any]:
        """The same from the leader, which knows more; from any node while there is none."""
        status = await self.cluster()
        leader = status["leader"]
        if leader is None or leader["node"] == status["node"]:
            return status
        self._route.follow(leader["http"])
        return await self.cluster()

    async def hand_over(self, to: int | str | None = None) -> dict[str, Any]:
        """Have another node lead (None: whoever is furthest); who does, and how long it paused."""
        await self.leading()
        shape = {} if to is None else {"to": to}
        return await self._json("POST", f"{self._root}/cluster/handover", shape)

    # Jobs: the same for all messages that match

    async def begin_job(
        self, topic: str, action: str, filter: Mapping[str, Any], **members: Any
    ) -> dict[str, Any]:
        """Cancel, reschedule or replay whatever matches `filter`; the job that does it.

        `members`: rate (messages a second), deliver_at_ms or delay_ms, force.
        """
        shape = {"filter": dict(filter), **members}
        return await self._json("POST", self._of(topic, f"messages:{action}"), shape)

    async def job(self, job: str) -> dict[str, Any]:
        """How far a job is. ApiError 404 when it is not known (any more)."""
        return await self._json("GET", f"{self._root}/jobs/{segment(job)}")

    async def jobs(self) -> dict[str, Any]:
        """All jobs, the newest first."""
        return await self._json("GET", f"{self._root}/jobs")

    async def stop_job(self, job: str) -> dict[str, Any]:
        """Stop a job; what it did stays done."""
        return await self._json("DELETE", f"{self._root}/jobs/{segment(job)}")

    async def put_topic(self, topic: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Make a topic, or change its settings."""
        return await self._json("PUT", self._of(topic), dict(settings))

    async def clock(self, *, accept: bool = False) -> dict[str, Any]:
        """The broker's clock; `accept` = wall time was set back and is right, go back to it."""
        body = {"accept": True} if accept else None
        return await self._json("POST" if accept else "GET", f"{self._root}/clock", body)

    async def topics(self) -> dict[str, Any]:
        """The topics of the namespace."""
        return await self._json("GET", self._topics)

    async def stats(self, topic: str, *, group: str | None = None) -> dict[str, Any]:
        """Counts per state as a group sees them, rates, the oldest due time."""
        return await self._json("GET", with_query(self._of(topic, "stats"), group=group))

    # Groups, and what is done to a topic as a whole

    async def groups(self, topic: str) -> dict[str, Any]:
        """The topic's groups, each with its counts."""
        return await self._json("GET", self._of(topic, "groups"))

    async def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> dict[str, Any]:
        """Make a group, which sees what is sent from now on, or change how it ends."""
        return await self._json("PUT", self._of(topic, "groups", group), {"ephemeral": ephemeral})

    async def drop_group(self, topic: str, group: str) -> dict[str, Any]:
        """Drop a group; what waited for it alone has ended."""
        return await self._json("DELETE", self._of(topic, "groups", group))

    async def purge(
        self, topic: str, *, group: str | None = None, force: bool = False
    ) -> dict[str, Any]:
        """End what waits or is ready, in one group or in all; `force`: what is leased too."""
        shape: dict[str, Any] = {"force": force} | ({} if group is None else {"group": group})
        return await self._json("POST", self._of(topic, "purge"), shape)

    async def pause(self, topic: str) -> dict[str, Any]:
        """Hand nothing out; sends and settles go on."""
        return await self._json("POST", self._of(topic, "pause"), {})

    async def resume(self, topic: str) -> dict[str, Any]:
        """Hand out again."""
        return await self._json("POST", self._of(topic, "resume"), {})


def segment(text: str) -> str:
    """One path segment, percent-encoded so that every legal id survives; dots would be folded."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe=":")


def with_query(url: str, **query: str | int | bool | None) -> str:
    """The address with those parameters that are given."""
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{url}?{urlencode(given)}" if given else url
