"""Combines the answers and errors of several shards.

An error of one shard does not hide the answers of the others: ShardsFailed holds the outcome at
each shard, and the result of one id is never lost because a shard failed on another. If no shard
answered and all failed with one class of error, that error is raised. Counts are summed and lists
are merged in order. A value that cannot be summed is taken from the first shard, or left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heapreplace, merge
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from delaylog.client.calls.call import UNREADABLE
from delaylog.client.errors import AnswerLost, ClientError, EachFailed, NotFound, ShardsFailed
from delaylog.client.models import Forecast, ForecastSlot, GroupInfo, MessageInfo, Stats, TopicInfo

# ----------------------------------------------------------------------- one call on all shards

T = TypeVar("T")
Shape: TypeAlias = dict[str, Any]


class OverShards:
    """The answers to one call, shard by shard.

    `go_on`: whether the next shard is asked after one has failed. False fits calls whose refusal
    by one shard means that they are wrong for all. `may_lack`: whether a shard without the topic
    or group is skipped, unless no shard has it.
    """

    def __init__(
        self, what: str, names: Sequence[str], *, go_on: bool = True, may_lack: bool = True
    ) -> None:
        self._what = what
        self._names = names
        self._go_on = go_on
        self._may_lack = may_lack
        self._answers: dict[str, Shape] = {}
        self._lacking: dict[str, ClientError] = {}
        self._errors: dict[str, ClientError] = {}

    def answered(self, name: str, shape: Shape) -> None:
        """Add the answer of a shard."""
        self._answers[name] = shape

    def failed(self, name: str, error: ClientError) -> bool:
        """Add the error of a shard; returns whether to go on with the next one."""
        if self._may_lack and isinstance(error, NotFound):
            self._lacking[name] = error
            return True
        self._errors[name] = error
        return self._go_on

    def joined(self, read: Callable[[Sequence[Shape]], T]) -> T:
        """The answers combined by `read`. Raises ShardsFailed, or the error if all are alike."""
        found = list(self._answers.values())
        wrong = self._errors or (self._lacking if not found else {})
        if not wrong:
            try:
                return read(found)
            except UNREADABLE as error:
                raise AnswerLost(f"the answer cannot be read: {error}") from error
        failed = self._errors | self._lacking
        if not found and len({type(error) for error in failed.values()}) == 1:
            raise next(iter(failed.values()))
        answers = {name: read([shape]) for name, shape in self._answers.items()}
        heard = answers.keys() | failed.keys()
        raise ShardsFailed(
            self._what, failed, answers, [name for name in self._names if name not in heard]
        )


def list_failed(kind: str, topic: str, name: str, error: ClientError) -> ShardsFailed:
    """The error that ends a merged list: the next message of the failed shard is unknown."""
    what = f"the list of {kind} of {topic!r} (shard= lists one shard alone)"
    return ShardsFailed(what, {name: error}, {})


# --------------------------------- one call about ids: each is asked for until a shard knows it

R = TypeVar("R")


class ByIds(Generic[R]):
    """The results of the ids of one call so far.

    `unknown` is the result for an id that a shard does not have; the next shard is asked for it.
    """

    def __init__(self, count: int, unknown: R, failed: Callable[[Sequence[Any]], EachFailed]):
        """`failed` builds the exception for results that contain errors."""
        self._unknown = unknown
        self._make = failed
        self._results = [unknown] * count
        self._answers = 0
        self._lacking: list[NotFound] = []
        self._errors: dict[int, ClientError] = {}
        """By place: the error of the first shard that may have the id."""

    def left(self, asked: Iterable[int]) -> list[int]:
        """The places among `asked` that have no result yet."""
        return [place for place in asked if self._results[place] == self._unknown]

    def answered(self, places: Iterable[int], results: Iterable[R]) -> None:
        """Add the results of a shard for the ids at these places."""
        self._answers += 1
        for place, result in zip(places, results, strict=True):
            self._results[place] = result

    def failed(self, places: Iterable[int], error: ClientError) -> None:
        """Add the error of a shard. NotFound counts as unknown, unless no shard has the topic."""
        if isinstance(error, NotFound):
            self._lacking.append(error)
            return
        for place in places:
            self._errors.setdefault(place, error)

    def results(self) -> list[R]:
        """The results in the order of the ids. Raises if some are missing because of errors."""
        wrong = {place: self._errors[place] for place in self.left(self._errors)}
        if not self._answers and (self._errors or self._lacking):
            met = [*self._errors.values(), *self._lacking]
            if len({type(error) for error in met}) == 1:
                raise met[0]
        if wrong:
            known = enumerate(self._results)
            raise self._make([wrong.get(place, result) for place, result in known])
        return self._results


# ----------------------------------------------------------------------- values over all shards

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
