"""Sorted sets: unions, intersections and differences, of plain sets too (each member scores 1).

Sums of doubles depend on their order, so sets are gone through from the smallest, as Redis does.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Final, TypeAlias

from delaylog.broker.keyspace.commands.sorted_set_ranges import entries_reply, store
from delaylog.broker.keyspace.errors import CommandError, syntax, wrong_type
from delaylog.broker.keyspace.number_texts import INT64_MAX, to_int, to_score
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values import SetValue

Scores: TypeAlias = dict[bytes, float]
Aggregate: TypeAlias = Callable[[float, float], float]
UNION, INTER, DIFF = b"union", b"inter", b"diff"
_NOTHING: Final[Scores] = {}
_NO_WEIGHT: Final = b"ERR weight value is not a float"
_NO_LIMIT: Final = b"ERR LIMIT can't be negative"


def _sum(old: float, new: float) -> float:
    both = old + new
    # Infinity less infinity counts as nothing.
    return 0.0 if isnan(both) else both


_AGGREGATES: Final[dict[bytes, Aggregate]] = {b"sum": _sum, b"min": min, b"max": max}


class _Query:
    """numkeys key... [WEIGHTS w...] [AGGREGATE SUM|MIN|MAX] [WITHSCORES], or [LIMIT n]."""

    __slots__ = ("aggregate", "limit", "scores", "sources", "weights")

    def __init__(self, run: Run, argv: Args, at: int, kind: bytes, *, stores: bool, counts: bool):
        count = to_int(argv[at])
        if count < 1:
            name = argv[0].lower()
            raise CommandError(b"ERR at least 1 input key is needed for '%b' command" % name)
        if count > len(argv) - at - 1:
            raise syntax()
        self.sources = [_source(run, key) for key in argv[at + 1 : at + 1 + count]]
        self.weights = [1.0] * count
        self.aggregate: Aggregate = _sum
        self.scores, self.limit = False, 0
        at += 1 + count
        weighs = kind is not DIFF and not counts
        while at < len(argv):
            option, left = argv[at].lower(), len(argv) - at
            if option == b"weights" and weighs and left > count:
                texts = argv[at + 1 : at + 1 + count]
                self.weights = [to_score(text, _NO_WEIGHT) for text in texts]
                at += count
            elif option == b"aggregate" and weighs and left >= 2:
                aggregate = _AGGREGATES.get(argv[at + 1].lower())
                if aggregate is None:
                    raise syntax()
                self.aggregate = aggregate
                at += 1
            elif option == b"withscores" and not stores and not counts:
                self.scores = True
            elif option == b"limit" and counts and left >= 2:
                self.limit = to_int(argv[at + 1], _NO_LIMIT)
                if not 0 <= self.limit <= INT64_MAX:
                    raise CommandError(_NO_LIMIT)
                at += 1
            else:
                raise syntax()
            at += 1


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
    pairs = sorted(zip(query.sources, query.weights, strict=True), key=lambda pair: len(pair[0]))
    weighted = [(_scores(source), weight) for source, weight in pairs]
    return (_union if kind is UNION else _inter)(weighted, query.aggregate)


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


def numbered_keys(at: int) -> Callable[[Args], list[bytes]]:
    """A function that finds the keys of an argv that says at `at` how many follow."""

    def find(argv: Args) -> list[bytes]:
        try:
            count = to_int(argv[at])
        except CommandError:
            return []
        return argv[at + 1 : at + 1 + count] if 0 < count < len(argv) - at else []

    return find


def _stored_keys(argv: Args) -> list[bytes]:
    return [argv[1], *numbered_keys(2)(argv)]


def _answer(run: Run, argv: Args, kind: bytes) -> Reply:
    query = _Query(run, argv, 1, kind, stores=False, counts=False)
    found = _run(query, kind)
    return entries_reply(run, sorted(zip(found.values(), found, strict=True)), scores=query.scores)


def _store(run: Run, argv: Args, kind: bytes) -> Reply:
    query = _Query(run, argv, 2, kind, stores=True, counts=False)
    return store(run, argv[1], _run(query, kind))


@command("zunion", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zunion(run: Run, argv: Args) -> Reply:
    """What is in any."""
    return _answer(run, argv, UNION)


@command("zinter", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zinter(run: Run, argv: Args) -> Reply:
    """What is in all."""
    return _answer(run, argv, INTER)


@command("zdiff", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zdiff(run: Run, argv: Args) -> Reply:
    """What is in the first alone."""
    return _answer(run, argv, DIFF)


@command(
    "zunionstore",
    -4,
    "sorted-set",
    "write denyoom movablekeys",
    keys=_stored_keys,
    places=(1, 1, 1),
)
def zunionstore(run: Run, argv: Args) -> Reply:
    """Store what is in any."""
    return _store(run, argv, UNION)


@command(
    "zinterstore",
    -4,
    "sorted-set",
    "write denyoom movablekeys",
    keys=_stored_keys,
    places=(1, 1, 1),
)
def zinterstore(run: Run, argv: Args) -> Reply:
    """Store what is in all."""
    return _store(run, argv, INTER)


@command(
    "zdiffstore", -4, "sorted-set", "write denyoom movablekeys", keys=_stored_keys, places=(1, 1, 1)
)
def zdiffstore(run: Run, argv: Args) -> Reply:
    """Store what is in the first alone."""
    return _store(run, argv, DIFF)


@command("zintercard", -3, "sorted-set", "readonly movablekeys", keys=numbered_keys(1))
def zintercard(run: Run, argv: Args) -> Reply:
    """How many are in all, counted up to LIMIT."""
    query = _Query(run, argv, 1, INTER, stores=False, counts=True)
    smallest, *others = sorted(query.sources, key=len)
    limit = query.limit
    count = 0
    for member in smallest:
        if all(member in other for other in others):
            count += 1
            if count == limit:
                break
    return count
