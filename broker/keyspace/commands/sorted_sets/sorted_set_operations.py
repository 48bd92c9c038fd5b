"""Sorted sets: unions, intersections and differences. In plain sets each member has score 1.

A sum of doubles depends on the order, so sources are added from the smallest, as Redis does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isnan
from typing import Final, TypeAlias

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.sorted_sets.sorted_set_ranges import entries_reply, store
from delaylog.broker.keyspace.errors import CommandError, syntax, wrong_type
from delaylog.broker.keyspace.options import Option, Options, at_least, numbered_keys, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.kinds import SetValue
from delaylog.broker.keyspace.values.number_texts import to_int, to_score
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue

Scores: TypeAlias = dict[bytes, float]
Aggregate: TypeAlias = Callable[[float, float], float]
UNION, INTER, DIFF = b"union", b"inter", b"diff"
_NOTHING: Final[Scores] = {}
_NO_WEIGHT: Final = b"ERR weight value is not a float"


def _sum(old: float, new: float) -> float:
    both = old + new
    # Infinity minus infinity is 0, as in Redis.
    return 0.0 if isnan(both) else both


_AGGREGATES: Final[dict[bytes, Aggregate]] = {b"sum": _sum, b"min": min, b"max": max}


def _aggregate(text: bytes) -> Aggregate:
    aggregate = _AGGREGATES.get(text.lower())
    if aggregate is None:
        raise syntax()
    return aggregate


_WEIGHS: Final[Options] = {b"aggregate": Option("aggregate", _aggregate)}
_SHOWN: Final[Options] = {b"withscores": Option("scores")}
_CARD: Final[Options] = {b"limit": Option("limit", at_least(0, b"ERR LIMIT can't be negative"))}


class _Query:
    """numkeys key... [WEIGHTS w...] and the options of the command."""

    __slots__ = ("options", "sources")

    def __init__(self, run: Run, argv: Args, at: int, options: Options):
        count = to_int(argv[at])
        if count < 1:
            name = argv[0].lower()
            raise CommandError(b"ERR at least 1 input key is needed for '%b' command" % name)
        end = at + 1 + count
        if end > len(argv):
            raise syntax()
        self.sources = [_source(run, key) for key in argv[at + 1 : end]]
        if b"aggregate" in options:
            weights = Option("weights", partial(to_score, refusal=_NO_WEIGHT), count)
            options = {**options, b"weights": weights}
        self.options = read_options(argv, end, options)

    def weighted(self) -> list[tuple[Scores, float]]:
        """Return the scores and the weight of each source, the smallest source first."""
        weights = self.options.value("weights", 1.0)
        if isinstance(weights, float):
            weights = [weights] * len(self.sources)
        pairs = sorted(zip(self.sources, weights, strict=True), key=lambda pair: len(pair[0]))
        return [(_scores(source), weight) for source, weight in pairs]


def _source(run: Run, key: bytes) -> Scores | SetValue:
    value = run.database.find(key)
    if value is None:
        return _NOTHING
    if isinstance(value, SortedSetValue):
        return value.scores
    if isinstance(value, SetValue):
        return value
    raise wrong_type()


def _scores(source: Scores | SetValue) -> Scores:
    return source if isinstance(source, dict) else dict.fromkeys(source, 1.0)


def _run(query: _Query, kind: bytes) -> Scores:
    if kind is DIFF:
        first, *others = query.sources
        return {
            member: score
            for member, score in _scores(first).items()
            if not any(member in other for other in others)
        }
    aggregate = query.options.value("aggregate", _sum)
    return (_union if kind is UNION else _inter)(query.weighted(), aggregate)


def _union(weighted: list[tuple[Scores, float]], aggregate: Aggregate) -> Scores:
    out: Scores = {}
    for scores, weight in weighted:
        for member, plain in scores.items():
            score = plain * weight
            if isnan(score):
                score = 0.0
            old = out.get(member)
            out[member] = score if old is None else aggregate(old, score)
    return out


def _inter(weighted: list[tuple[Scores, float]], aggregate: Aggregate) -> Scores:
    out: Scores = {}
    (smallest, first_weight), *others = weighted
    for member, plain in smallest.items():
        score = plain * first_weight
        if isnan(score):
            score = 0.0
        for scores, weight in others:
            other = scores.get(member)
            if other is None:
                break
            score = aggregate(score, other * weight)
        else:
            out[member] = score
    return out


def _stored_keys(argv: Args) -> list[bytes]:
    return [argv[1], *numbered_keys(2)(argv)]


def _answer(run: Run, argv: Args, kind: bytes) -> Reply:
    query = _Query(run, argv, 1, _SHOWN if kind is DIFF else {**_WEIGHS, **_SHOWN})
    found = _run(query, kind)
    entries = sorted(zip(found.values(), found, strict=True))
    return entries_reply(run, entries, scores="scores" in query.options)


def _store(run: Run, argv: Args, kind: bytes) -> Reply:
    query = _Query(run, argv, 2, {} if kind is DIFF else _WEIGHS)
    return store(run, argv[1], _run(query, kind))


@command("zunion", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zunion(run: Run, argv: Args) -> Reply:
    """Unite sorted sets."""
    return _answer(run, argv, UNION)


@command("zinter", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zinter(run: Run, argv: Args) -> Reply:
    """Intersect sorted sets."""
    return _answer(run, argv, INTER)


@command("zdiff", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zdiff(run: Run, argv: Args) -> Reply:
    """Subtract the other sorted sets from the first."""
    return _answer(run, argv, DIFF)


@command(
    "zunionstore",
    -4,
    "sorted-set",
    "write denyoom movablekeys",
    keys=_stored_keys,
    positions=(1, 1, 1),
)
def zunionstore(run: Run, argv: Args) -> Reply:
    """Store the union."""
    return _store(run, argv, UNION)


@command(
    "zinterstore",
    -4,
    "sorted-set",
    "write denyoom movablekeys",
    keys=_stored_keys,
    positions=(1, 1, 1),
)
def zinterstore(run: Run, argv: Args) -> Reply:
    """Store the intersection."""
    return _store(run, argv, INTER)


@command(
    "zdiffstore",
    -4,
    "sorted-set",
    "write denyoom movablekeys",
    keys=_stored_keys,
    positions=(1, 1, 1),
)
def zdiffstore(run: Run, argv: Args) -> Reply:
    """Store the difference."""
    return _store(run, argv, DIFF)


@command("zintercard", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zintercard(run: Run, argv: Args) -> Reply:
    """Return the size of the intersection, up to LIMIT."""
    query = _Query(run, argv, 1, _CARD)
    smallest, *others = sorted(query.sources, key=len)
    limit = query.options.value("limit", 0)
    count = 0
    for member in smallest:
        if all(member in other for other in others):
            count += 1
            if count == limit:
                break
    return count
