"""Sorted sets: ranges of positions, scores and members; counted, given, stored, removed."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.options import Option, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Double, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import score_text, to_int
from delaylog.broker.keyspace.values.score_order import Entry, Rank, ScoreOrder
from delaylog.broker.keyspace.values.score_ranges import (
    ScoreRange,
    member_ranks,
    score_ranks,
    to_member_bound,
    to_score_range,
)
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue, of_scores

_LIMIT_BY_RANK: Final = (
    b"ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
)
_SCORES_BY_MEMBER: Final = b"ERR syntax error, WITHSCORES not supported in combination with BYLEX"
_FEW: Final = 16
RANK, SCORE, MEMBER, ANY = b"rank", b"score", b"member", b""
"""What a range is one of; ANY: options say it."""
_BY: Final = {b"bylex": MEMBER, b"byscore": SCORE}


class _Query:
    """What follows the key of a range command."""

    __slots__ = ("by", "most", "offset", "reverse", "scores")

    def __init__(self, words: tuple[bytes, ...], by: bytes, reverse: bool | None, store: bool):
        options = {b"limit": Option("limit", to_int, 2)}
        if not store:
            options[b"withscores"] = Option("scores")
        if reverse is None:
            options[b"rev"] = Option("reverse", once=True)
        if by is ANY:
            options[b"bylex"] = options[b"byscore"] = Option("by", once=True)
        found = read_options(list(words), 0, options)
        self.offset, self.most = found.value("limit", (0, -1))
        self.scores = "scores" in found
        self.by = _BY.get(found.word("by"), by or RANK)
        self.reverse = bool(reverse) or "reverse" in found
        if self.most != -1 and self.by is RANK:
            raise CommandError(_LIMIT_BY_RANK)
        if self.scores and self.by is MEMBER:
            raise CommandError(_SCORES_BY_MEMBER)

    def find(self, run: Run, key: bytes, first: bytes, last: bytes) -> list[Entry]:
        """The entries, in the order asked for. Raises CommandError."""
        by, reverse = self.by, self.reverse
        if by is RANK:
            left, right = to_int(first), to_int(last)
            value = run.database.of_kind(SortedSetValue, key)
            return [] if value is None else by_rank(value, left, right, reverse=reverse)
        if reverse:
            first, last = last, first
        if by is SCORE:
            span = to_score_range(first, last)
            value = run.database.of_kind(SortedSetValue, key)
            if value is None or self.offset < 0:
                return []
            if not reverse and 0 <= self.most <= _FEW:
                return _few(value.order, span, self.offset, self.most)
            start, stop = score_ranks(value.order, span)
        else:
            low, high = to_member_bound(first), to_member_bound(last)
            value = run.database.of_kind(SortedSetValue, key)
            if value is None or self.offset < 0:
                return []
            start, stop = member_ranks(value.order, low, high, reverse=reverse)
        most = len(value.scores) if self.most < 0 else self.most
        walk = value.order.walk_back if reverse else value.order.walk
        return walk(start, stop, self.offset, most)


_query = lru_cache(maxsize=1_024)(_Query)
"""What stands behind a range is the same in most calls, and is read once."""


def _few(order: ScoreOrder, span: ScoreRange, offset: int, most: int) -> list[Entry]:
    """The first entries of a range: where it ends need not be searched for."""
    low, high = span
    if low is None:
        return []
    found = order.following((low, b""), offset, most)
    if high is not None:
        while found and found[-1][0] >= high:
            found.pop()
    return found


def index_ranks(value: SortedSetValue, start: int, stop: int) -> tuple[Rank, Rank]:
    """From where to where these positions go, both included; negative ones count from the end."""
    count = len(value.scores)
    start = max(0, start + count if start < 0 else start)
    stop = min(count - 1, stop + count if stop < 0 else stop)
    if start > stop:
        return 0, 0
    return start, stop + 1


def by_rank(value: SortedSetValue, start: int, stop: int, *, reverse: bool) -> list[Entry]:
    """The entries of these positions, in order or from the end."""
    if not reverse:
        return value.order.walk(*index_ranks(value, start, stop))
    # From the end, position n is -n - 1: 0 becomes -1.
    return value.order.walk_back(*index_ranks(value, ~stop, ~start))


def entries_reply(run: Run, entries: list[Entry], *, scores: bool) -> Reply:
    """Members, or with their scores: pairs in RESP3, flat in RESP2."""
    if not scores:
        return [member for _, member in entries]
    if run.session.resp == 3:
        return [[member, Double(score)] for score, member in entries]
    out: list[Reply] = []
    for score, member in entries:
        out += (member, score_text(score))
    return out


def _range(run: Run, argv: Args, by: bytes, *, reverse: bool | None) -> Reply:
    query = _query(tuple(argv[4:]), by, reverse, False)
    found = query.find(run, argv[1], argv[2], argv[3])
    return entries_reply(run, found, scores=query.scores)


@command("zrange", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrange(run: Run, argv: Args) -> Reply:
    """A range: first last [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]."""
    return _range(run, argv, ANY, reverse=None)


@command("zrevrange", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrevrange(run: Run, argv: Args) -> Reply:
    """Positions from the end."""
    return _range(run, argv, RANK, reverse=True)


@command("zrangebyscore", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrangebyscore(run: Run, argv: Args) -> Reply:
    """Scores upwards."""
    return _range(run, argv, SCORE, reverse=False)


@command("zrevrangebyscore", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrevrangebyscore(run: Run, argv: Args) -> Reply:
    """Scores downwards: max min."""
    return _range(run, argv, SCORE, reverse=True)


@command("zrangebylex", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrangebylex(run: Run, argv: Args) -> Reply:
    """Members upwards."""
    return _range(run, argv, MEMBER, reverse=False)


@command("zrevrangebylex", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrevrangebylex(run: Run, argv: Args) -> Reply:
    """Members downwards: max min."""
    return _range(run, argv, MEMBER, reverse=True)


@command("zrangestore", -5, "sorted-set", "write denyoom", keys=(1, 2, 1))
def zrangestore(run: Run, argv: Args) -> Reply:
    """Put a range of one set into another key."""
    query = _query(tuple(argv[5:]), ANY, None, True)
    found = query.find(run, argv[2], argv[3], argv[4])
    return store(run, argv[1], {member: score for score, member in found})


def store(run: Run, target: bytes, scores: dict[bytes, float]) -> int:
    """Give a key these members, whatever it held; none: remove it. Returns how many."""
    database = run.database
    if scores:
        database.find(target)
        database.put(target, of_scores(scores))
        database.changed(target)
    elif database.find(target) is not None:
        database.remove(target)
        database.changed(target)
    return len(scores)


# ---------------------------------------------------------------------- counting


@command("zcount", 4, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zcount(run: Run, argv: Args) -> Reply:
    """How many have scores from here to there."""
    span = to_score_range(argv[2], argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _count(*score_ranks(value.order, span))


@command("zlexcount", 4, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zlexcount(run: Run, argv: Args) -> Reply:
    """How many members are from here to there."""
    low, high = to_member_bound(argv[2]), to_member_bound(argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _count(*member_ranks(value.order, low, high))


def _count(start: Rank, stop: Rank) -> int:
    return max(0, stop - start)


# ---------------------------------------------------------------------- removing


@command("zremrangebyrank", 4, "sorted-set", "write", keys=(1, 1, 1))
def zremrangebyrank(run: Run, argv: Args) -> Reply:
    """Remove positions."""
    start, stop = to_int(argv[2]), to_int(argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _remove(run, argv[1], value, index_ranks(value, start, stop))


@command("zremrangebyscore", 4, "sorted-set", "write", keys=(1, 1, 1))
def zremrangebyscore(run: Run, argv: Args) -> Reply:
    """Remove scores."""
    span = to_score_range(argv[2], argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _remove(run, argv[1], value, score_ranks(value.order, span))


@command("zremrangebylex", 4, "sorted-set", "write", keys=(1, 1, 1))
def zremrangebylex(run: Run, argv: Args) -> Reply:
    """Remove members."""
    low, high = to_member_bound(argv[2]), to_member_bound(argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    if value is None:
        return 0
    return _remove(run, argv[1], value, member_ranks(value.order, low, high))


def _remove(run: Run, key: bytes, value: SortedSetValue, span: tuple[Rank, Rank]) -> int:
    taken = value.take_between(*span)
    if taken:
        if not value.scores:
            run.database.remove(key)
        run.database.changed(key, taken)
    return taken
