"""Combines the answers of several shards.

Counts are summed and lists are merged in order. A value that cannot be summed is taken from the
first shard, or left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heapreplace, merge
from typing import Any, NamedTuple

from delaylog.client.models import Forecast, ForecastSlot, GroupInfo, MessageInfo, Stats, TopicInfo

Shapes = Sequence[Mapping[str, Any]]


def merged(lists: Sequence[Iterator[MessageInfo]]) -> Iterator[MessageInfo]:
    """Merge lists in due order lazily."""
    return merge(*lists, key=_due_ms)


async def async_merged(lists: Sequence[AsyncIterator[MessageInfo]]) -> AsyncIterator[MessageInfo]:
    """Merge asynchronous lists in due order lazily."""
    heads: list[tuple[int, int, MessageInfo]] = []
    for number, each in enumerate(lists):
        async for head in each:
            heads.append((head.deliver_at_ms, number, head))
            break
    heapify(heads)
    while heads:
        _, number, head = heads[0]
        yield head
        async for following in lists[number]:
            heapreplace(heads, (following.deliver_at_ms, number, following))
            break
        else:
            heappop(heads)


def _due_ms(message: MessageInfo) -> int:
    return message.deliver_at_ms


def merged_topic(shapes: Shapes) -> TopicInfo:
    """One topic over all shards: summed counts, and the groups of any shard."""
    first, *others = map(TopicInfo.of, shapes)
    for other in others:
        groups = tuple(dict.fromkeys((*first.groups, *other.groups)))
        first = replace(
            first,
            groups=groups,
            counts=first.counts + other.counts,
            paused=first.paused or other.paused,
        )
    return first


class TopicPage(NamedTuple):
    """A page of the topics of all shards, sorted by name."""

    topics: list[TopicInfo]
    cursor: str | None
    """Where every shard continues; None after the last page."""


def merged_topics(answers: Shapes) -> TopicPage:
    """Merge pages up to the name that all shards have reached; some may reach further."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for answer in answers:
        for shape in answer["topics"]:
            by_name.setdefault(shape["topic"], []).append(shape)
    # A cursor is the last name of its page. Older brokers have none and return all topics.
    cursors = [answer["cursor"] for answer in answers if answer.get("cursor") is not None]
    cursor = min(cursors, default=None)
    names = sorted(name for name in by_name if cursor is None or name <= cursor)
    return TopicPage([merged_topic(by_name[name]) for name in names], cursor)


def merged_group(shapes: Shapes) -> GroupInfo:
    """One group over all shards."""
    first, *others = map(GroupInfo.of, shapes)
    for other in others:
        first = replace(
            first, counts=first.counts + other.counts, delivered=first.delivered + other.delivered
        )
    return first


def merged_groups(answers: Shapes) -> list[GroupInfo]:
    """The groups of a topic over all shards, in order of first appearance."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for answer in answers:
        for shape in answer["groups"]:
            by_name.setdefault(shape["group"], []).append(shape)
    return list(map(merged_group, by_name.values()))


def merged_stats(shapes: Shapes) -> Stats:
    """Stats of a topic over all shards."""
    first, *others = map(Stats.of, shapes)
    for other in others:
        due = [each for each in (first.oldest_due_ms, other.oldest_due_ms) if each is not None]
        rates = {name: first.rates[name] + other.rates.get(name, 0.0) for name in first.rates}
        first = replace(
            first,
            counts=first.counts + other.counts,
            oldest_due_ms=min(due, default=None),
            rates=rates,
            sent=first.sent + other.sent,
            delivered=first.delivered + other.delivered,
            now_ms=max(first.now_ms, other.now_ms),
            delay_buckets=None,
            consumers=_named(first.consumers, other.consumers),
        )
    return first


def _named(
    one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], ...]:
    """Consumers of two shards, those with the most messages first."""
    leased: Counter[str] = Counter()
    for each in (*one, *other):
        leased[each["name"]] += each["leased"]
    return tuple({"name": name, "leased": n} for name, n in leased.most_common())


def merged_forecast(shapes: Shapes) -> Forecast:
    """A forecast over all shards, per minute and hour, from the first shard's now."""
    first, *others = map(Forecast.of, shapes)
    for other in others:
        first = replace(
            first,
            minutes=_summed(first.minutes, other.minutes),
            hours=_summed(first.hours, other.hours),
            later=first.later + other.later,
            schedules=first.schedules + other.schedules,
            schedules_left=first.schedules_left or other.schedules_left,
            firings_until_ms=min(
                (each for each in (first.firings_until_ms, other.firings_until_ms) if each),
                default=None,
            ),
        )
    return first


def purged(answers: Shapes) -> int:
    """The number of messages that a purge ended."""
    return sum(each["purged"] for each in answers)


def no_result(_: Shapes) -> None:
    """For calls that return nothing."""


def _summed(one: Sequence[ForecastSlot], other: Sequence[ForecastSlot]) -> tuple[ForecastSlot, ...]:
    """Sum slots by start time: around a full minute brokers start with different slots."""
    counts: Counter[int] = Counter()
    firings: Counter[int] = Counter()
    for slot in (*one, *other):
        counts[slot.from_ms] += slot.count
        firings[slot.from_ms] += slot.firings
    return tuple(ForecastSlot(at, counts[at], firings[at]) for at in sorted(counts))
