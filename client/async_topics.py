"""Calls of AsyncClient about topics and groups as a whole, over all shards.

The one rule: what changes a topic is done on every shard, and what counts is summed over them. A
shard that does not have the topic counts as nothing, unless none has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delaylog.client.async_link import AsyncLink
from delaylog.client.calls import topics
from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places
from delaylog.client.errors import NotFound
from delaylog.client.merging import (
    merged_forecast,
    merged_group,
    merged_groups,
    merged_stats,
    merged_topic,
    merged_topics,
)
from delaylog.client.models import Forecast, GroupInfo, Stats, TopicInfo, TopicSettings


class AsyncTopicCalls:
    """The calls; the class that inherits them knows the shards."""

    _links: Sequence[AsyncLink]
    _places: Places

    async def topics(self) -> list[TopicInfo]:
        """The topics of the namespace, by name."""
        return merged_topics(await self._all(topics.topics(self._places)))

    async def get_topic(self, topic: str) -> TopicInfo:
        """A topic, its settings and its counts. NotFound."""
        return merged_topic(await self._those_that_have_it(topics.get_topic(self._places, topic)))

    async def put_topic(
        self, topic: str, settings: TopicSettings | Mapping[str, Any] | None = None
    ) -> TopicInfo:
        """Make a topic, or replace its settings. Conflict where `slots` differ."""
        given = settings.members() if isinstance(settings, TopicSettings) else dict(settings or {})
        return merged_topic(await self._all(topics.put_topic(self._places, topic, given)))

    async def drop_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic: an empty one (Conflict), or by force any. NotFound."""
        await self._those_that_have_it(topics.drop_topic(self._places, topic, force=force))

    async def stats(
        self, topic: str, *, group: str | None = None, delay_buckets: bool = False
    ) -> Stats:
        """Counts by state as a group sees them, rates, the oldest due time. NotFound.

        `delay_buckets` also counts waiting messages by how far off they are, which costs more.
        """
        call = topics.stats(self._places, topic, group=group, delay_buckets=delay_buckets)
        return merged_stats(await self._those_that_have_it(call))

    async def forecast(
        self,
        topic: str,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        group: str | None = None,
    ) -> Forecast:
        """Messages to come, per minute and per hour. NotFound."""
        call = topics.forecast(self._places, topic, minutes=minutes, hours=hours, group=group)
        return merged_forecast(await self._those_that_have_it(call))

    async def purge(self, topic: str, *, group: str | None = None, force: bool = False) -> int:
        """End what waits or is ready; `force`: what is leased too. How many that were."""
        call = topics.purge(self._places, topic, group=group, force=force)
        return sum(each["purged"] for each in await self._those_that_have_it(call))

    async def pause(self, topic: str) -> None:
        """Hand nothing out; sends and settles go on."""
        await self._those_that_have_it(topics.pause(self._places, topic))

    async def resume(self, topic: str) -> None:
        """Hand out again."""
        await self._those_that_have_it(topics.resume(self._places, topic))

    async def groups(self, topic: str) -> list[GroupInfo]:
        """The topic's groups, each with its counts."""
        return merged_groups(await self._those_that_have_it(topics.groups(self._places, topic)))

    async def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> GroupInfo:
        """Make a group, which sees what is sent from now on, or change how it ends."""
        call = topics.put_group(self._places, topic, group, ephemeral=ephemeral)
        return merged_group(await self._all(call))

    async def drop_group(self, topic: str, group: str) -> None:
        """Drop a group; what waited for it alone has ended."""
        await self._those_that_have_it(topics.drop_group(self._places, topic, group))

    async def _all(self, call: Call[dict[str, Any]]) -> list[dict[str, Any]]:
        return [await link.carry(call) for link in self._links]

    async def _those_that_have_it(self, call: Call[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers of the shards that know the topic or group; NotFound where none does."""
        found = []
        missing: NotFound | None = None
        for link in self._links:
            try:
                found.append(await link.carry(call))
            except NotFound as error:
                missing = error
        if missing is not None and not found:
            raise missing
        return found
