"""The calls of AsyncClient about whole topics and groups, over all shards.

A change of a topic is made on every shard, and counts are summed over the shards. A shard without
the topic is ignored, unless no shard has it. If a shard fails, the call raises ShardsFailed, which
has the outcome of each shard. Calls that a broker may refuse because of the topic's state (put,
update, drop) stop at the first refusal; all other calls go to every shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

from delaylog.client._async.carried import on_all_shards
from delaylog.client._async.link import AsyncLink
from delaylog.client._async.plain_client import AsyncPlainClient
from delaylog.client._async.transaction import AsyncTransaction
from delaylog.client.calls import topics as topic_calls
from delaylog.client.calls.call import Places
from delaylog.client.errors import ShardsFailed
from delaylog.client.keywords import TimeLimit
from delaylog.client.models import TopicInfo, TopicSettings
from delaylog.client.shards.answers import (
    merged_forecast,
    merged_group,
    merged_groups,
    merged_stats,
    merged_topic,
    merged_topics,
    no_result,
    purged,
)
from delaylog.client.shards.sharding import Topology
from delaylog.client.wire.times import duration_ms


class AsyncTopicCalls:
    """The calls, as a mixin; the inheriting class provides the shards."""

    _links: Sequence[AsyncLink]
    _places: Places
    _topology: Topology

    def broker(self, shard: str | None = None) -> AsyncPlainClient:
        """A plain client of one broker, which shares the connections of this client.

        ValueError if there are several shards and none is named.
        """
        link = self._links[self._topology.one(shard, "broker()")]
        return AsyncPlainClient.on(link.transport, self._places)

    def transaction(
        self,
        transaction: str | None = None,
        *,
        shard: str | None = None,
        ttl: timedelta | None = None,
    ) -> AsyncTransaction:
        """A transaction on one broker: its messages become visible together.

        `async with client.transaction() as together:` commits at the end of the block, or aborts if
        the block raises, or by itself after its `ttl`.
        """
        duration_ms("ttl", ttl)
        return AsyncTransaction(self.broker(shard), transaction, ttl)

    async def topics(self, **limits: Unpack[TimeLimit]) -> list[TopicInfo]:
        """Return the topics of the namespace, sorted by name; the time limit is that of a page."""
        found: list[TopicInfo] = []
        cursor = None
        while True:
            try:
                page = await self._topics_page(cursor=cursor, **limits)
            except ShardsFailed as error:
                # For one shard this call returns a list, but the collected answers are pages.
                error.answers = {shard: one.topics for shard, one in error.answers.items()}
                raise
            found += page.topics
            cursor = page.cursor
            if cursor is None:
                return found

    async def put_topic(
        self,
        topic: str,
        settings: TopicSettings | Mapping[str, Any] | None = None,
        **limits: Unpack[TimeLimit],
    ) -> TopicInfo:
        """Create a topic, or replace its settings. Conflict if `slots` differ."""
        given = settings.members() if isinstance(settings, TopicSettings) else dict(settings or {})
        return await self._put_topic(topic, given, **limits)

    _topics_page = on_all_shards(topic_calls.topics, merged_topics, may_lack=False)
    _put_topic = on_all_shards(topic_calls.put_topic, merged_topic, go_on=False, may_lack=False)
    update_topic = on_all_shards(topic_calls.update_topic, merged_topic, go_on=False)
    get_topic = on_all_shards(topic_calls.get_topic, merged_topic)
    drop_topic = on_all_shards(topic_calls.drop_topic, no_result, go_on=False)
    stats = on_all_shards(topic_calls.cheap_stats, merged_stats)
    forecast = on_all_shards(topic_calls.forecast, merged_forecast)
    purge = on_all_shards(topic_calls.purge, purged)
    pause = on_all_shards(topic_calls.pause, no_result)
    resume = on_all_shards(topic_calls.resume, no_result)
    groups = on_all_shards(topic_calls.groups, merged_groups)
    put_group = on_all_shards(topic_calls.put_group, merged_group, go_on=False, may_lack=False)
    drop_group = on_all_shards(topic_calls.drop_group, no_result, go_on=False)
