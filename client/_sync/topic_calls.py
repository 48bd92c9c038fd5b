"""Calls of Client about topics and groups as a whole, over all shards.

The one rule: what changes a topic is done on every shard, and what counts is summed over them. A
shard that does not have the topic counts as nothing, unless none has it; one that fails fails the
call, by an error (ShardsFailed) that says what became of it at each. What may be refused for what a
topic has or is (put, drop) ends at the first refusal; everything else is asked of all shards.

Made from client/_async/topic_calls.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from delaylog.client._sync.link import Link
from delaylog.client.calls import topics
from delaylog.client.calls.call import Call
from delaylog.client.calls.places import Places
from delaylog.client.errors import ClientError, ShardsFailed
from delaylog.client.merging import (
    merged_forecast,
    merged_group,
    merged_groups,
    merged_stats,
    merged_topic,
    merged_topics,
)
from delaylog.client.models import Forecast, GroupInfo, Stats, TopicInfo, TopicSettings
from delaylog.client.over_shards import OverShards, Shape

T = TypeVar("T")


class TopicCalls:
    """The calls; the class that inherits them knows the shards."""

    _links: Sequence[Link]
    _places: Places

    def topics(self) -> list[TopicInfo]:
        """The topics of the namespace, by name."""
        found: list[TopicInfo] = []
        cursor = None
        while True:
            call = topics.topics(self._places, cursor=cursor)
            try:
                page = self._ask("the list of topics", call, merged_topics, may_lack=False)
            except ShardsFailed as error:
                # What this call returns for a shard is a list, and the answers are pages.
                error.answers = {shard: one.topics for shard, one in error.answers.items()}
                raise
            found += page.topics
            cursor = page.cursor
            if cursor is None:
                return found

    def get_topic(self, topic: str) -> TopicInfo:
        """A topic, its settings and its counts. NotFound."""
        call = topics.get_topic(self._places, topic)
        return self._ask(f"topic {topic!r}", call, merged_topic)

    def put_topic(
        self, topic: str, settings: TopicSettings | Mapping[str, Any] | None = None
    ) -> TopicInfo:
        """Make a topic, or replace its settings. Conflict where `slots` differ."""
        given = settings.members() if isinstance(settings, TopicSettings) else dict(settings or {})
        call = topics.put_topic(self._places, topic, given)
        return self._ask(f"put_topic of {topic!r}", call, merged_topic, go_on=False, may_lack=False)

    def drop_topic(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic: an empty one (Conflict), or by force any. NotFound."""
        call = topics.drop_topic(self._places, topic, force=force)
        self._ask(f"drop_topic of {topic!r}", call, _nothing, go_on=False)

    def stats(self, topic: str, *, group: str | None = None, delay_buckets: bool = False) -> Stats:
        """Counts by state as a group sees them, rates, the oldest due time. NotFound.

        `delay_buckets` also counts waiting messages by how far off they are, which costs more.
        """
        call = topics.stats(self._places, topic, group=group, delay_buckets=delay_buckets)
        return self._ask(f"stats of {topic!r}", call, merged_stats)

    def forecast(
        self,
        topic: str,
        *,
        minutes: int | None = None,
        hours: int | None = None,
        group: str | None = None,
    ) -> Forecast:
        """Messages to come, per minute and per hour. NotFound."""
        call = topics.forecast(self._places, topic, minutes=minutes, hours=hours, group=group)
        return self._ask(f"forecast of {topic!r}", call, merged_forecast)

    def purge(
        self, topic: str, *, group: str | None = None, force: bool = False, erase: bool = False
    ) -> int:
        """End what waits or is ready; `force`: what is leased too. How many that were.

        `erase`, with `force` and no group: every byte of the messages leaves the data folders;
        `erasing` of the topic says for how long that goes on. ShardsFailed says where it was done,
        and how many that were, and where not.
        """
        call = topics.purge(self._places, topic, group=group, force=force, erase=erase)
        return self._ask(f"purge of {topic!r}", call, _purged)

    def pause(self, topic: str) -> None:
        """Hand nothing out; sends and settles go on."""
        self._ask(f"pause of {topic!r}", topics.pause(self._places, topic), _nothing)

    def resume(self, topic: str) -> None:
        """Hand out again."""
        self._ask(f"resume of {topic!r}", topics.resume(self._places, topic), _nothing)

    def groups(self, topic: str) -> list[GroupInfo]:
        """The topic's groups, each with its counts."""
        call = topics.groups(self._places, topic)
        return self._ask(f"groups of {topic!r}", call, merged_groups)

    def put_group(self, topic: str, group: str, *, ephemeral: bool = False) -> GroupInfo:
        """Make a group, which sees what is sent from now on, or change how it ends."""
        call = topics.put_group(self._places, topic, group, ephemeral=ephemeral)
        what = f"put_group of {group!r} of {topic!r}"
        return self._ask(what, call, merged_group, go_on=False, may_lack=False)

    def drop_group(self, topic: str, group: str) -> None:
        """Drop a group; what waited for it alone has ended."""
        what = f"drop_group of {group!r} of {topic!r}"
        call = topics.drop_group(self._places, topic, group)
        self._ask(what, call, _nothing, go_on=False)

    def _ask(
        self,
        what: str,
        call: Call[dict[str, Any]],
        read: Callable[[Sequence[Shape]], T],
        *,
        go_on: bool = True,
        may_lack: bool = True,
    ) -> T:
        """The call at every shard; see OverShards."""
        said = OverShards(what, [link.name for link in self._links], go_on=go_on, may_lack=may_lack)
        for link in self._links:
            try:
                said.answered(link.name, link.carry(call))
            except ClientError as error:
                if not said.failed(link.name, error):
                    break
        return said.joined(read)


def _purged(answers: Sequence[Shape]) -> int:
    return sum(each["purged"] for each in answers)


def _nothing(_: Sequence[Shape]) -> None:
    """There is nothing to tell but that it is done."""
