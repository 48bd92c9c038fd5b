"""Sorted sets: members, ranges of ranks, scores and members, and pops from the ends.

The plain `ZADD key score member` has a fast path, because it is the usual command of delay queues.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from math import isnan
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import (
    Option,
    read_options,
    scan_value,
    take_positive,
    to_timeout_ms,
)
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import NO_ARRAY, Double, Reply
from delaylog.broker.keyspace.values.number_texts import score_text, to_int, to_score
from delaylog.broker.keyspace.values.sorted_set import (
    Entry,
    Rank,
    ScoreOrder,
    ScoreRange,
    SortedSetValue,
    member_ranks,
    score_ranks,
    to_member_bound,
    to_score_range,
)

# -------------------------------------------------------------------------------------- members

_OPTIONS: Final = frozenset((b"nx", b"xx", b"gt", b"lt", b"ch", b"incr"))
_NX_AND_XX: Final = b"ERR XX and NX options at the same time are not compatible"
_GT_LT_NX: Final = b"ERR GT, LT, and/or NX options at the same time are not compatible"
_ONE_PAIR: Final = b"ERR INCR option supports a single increment-element pair"
_LISTPACK_WHOLE_MAX: Final = 2.0**62
_NAN: Final = b"ERR resulting score is not a number (NaN)"


@command("zadd", -4, "sorted-set", "write denyoom fast", keys=(1, 1, 1))
def zadd(run: Run, argv: Args) -> Reply:
    """Add members or change their scores: [NX|XX] [GT|LT] [CH] [INCR] (score member)..."""
    if len(argv) == 4 and argv[2].lower() not in _OPTIONS:
        score = to_score(argv[2])
        database = run.database
        key = argv[1]
        added = database.of_kind_or_new(SortedSetValue, key).put(argv[3], score)
        if added is None:
            return 0
        database.changed(key)
        return 1 if added else 0
    at, options = 2, set()
    while at < len(argv) and (option := argv[at].lower()) in _OPTIONS:
        options.add(option)
        at += 1
    return _add(run, argv, at, options)


@command("zincrby", 4, "sorted-set", "write denyoom fast", keys=(1, 1, 1))
def zincrby(run: Run, argv: Args) -> Reply:
    """Add to the score of a member."""
    if argv[2].lower() in _OPTIONS:
        # Redis parses the word as an option of ZADD, and then an argument is missing.
        raise syntax()
    return _add(run, argv, 2, {b"incr"})


def _add(run: Run, argv: Args, first: int, options: set[bytes]) -> Reply:
    """Run ZADD with options; the pairs begin at `argv[first]`."""
    pairs = len(argv) - first
    if pairs == 0 or pairs % 2:
        raise syntax()
    if b"nx" in options and b"xx" in options:
        raise CommandError(_NX_AND_XX)
    if len(options & {b"gt", b"lt", b"nx"}) > 1:
        raise CommandError(_GT_LT_NX)
    incr = b"incr" in options
    if incr and pairs > 2:
        raise CommandError(_ONE_PAIR)
    given = [to_score(text) for text in argv[first::2]]
    database, key = run.database, argv[1]
    only_there = b"xx" in options
    if only_there and database.of_kind(SortedSetValue, key) is None:
        return None if incr else 0
    value = database.of_kind_or_new(SortedSetValue, key)
    if incr:
        return _increase(run, value, argv, first, given[0], options)
    only_new, greater, less = b"nx" in options, b"gt" in options, b"lt" in options
    added = updated = 0
    scores = value.scores
    for score, member in zip(given, argv[first + 1 :: 2], strict=True):
        old = scores.get(member)
        if old is None:
            if not only_there:
                value.put(member, score)
                added += 1
        elif not (only_new or old == score or (greater and score < old) or (less and score > old)):
            value.put(member, score)
            updated += 1
    if added or updated:
        database.changed(key, added + updated)
    return added + updated if b"ch" in options else added


def _increase(
    run: Run, value: SortedSetValue, argv: Args, first: int, by: float, options: set[bytes]
) -> Reply:
    member, score = argv[first + 1], by
    old = value.scores.get(member)
    if old is None:
        if b"xx" in options:
            return None
    else:
        if b"nx" in options:
            return None
        score = old + by
        if isnan(score):
            raise CommandError(_NAN)
        if (b"gt" in options and score <= old) or (b"lt" in options and score >= old):
            return None
    if old != score:
        value.put(member, score)
        run.database.changed(argv[1])
    return Double(score)


@command("zrem", -3, "sorted-set", "write fast", keys=(1, 1, 1))
def zrem(run: Run, argv: Args) -> Reply:
    """Remove members."""
    database, key = run.database, argv[1]
    value = database.of_kind(SortedSetValue, key)
    if value is None:
        return 0
    taken = 0
    for member in argv[2:]:
        if value.take(member):
            taken += 1
    if taken:
        if not value.scores:
            database.remove(key)
        database.changed(key, taken)
    return taken


@command("zcard", 2, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zcard(run: Run, argv: Args) -> Reply:
    """Count the members."""
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else len(value.scores)


@command("zscore", 3, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zscore(run: Run, argv: Args) -> Reply:
    """Return the score of a member."""
    value = run.database.of_kind(SortedSetValue, argv[1])
    score = None if value is None else value.scores.get(argv[2])
    return None if score is None else Double(score)


@command("zrank", 3, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zrank(run: Run, argv: Args) -> Reply:
    """Return the rank of a member."""
    return _rank(run, argv, from_end=False)


@command("zrevrank", 3, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zrevrank(run: Run, argv: Args) -> Reply:
    """Return the rank of a member in descending order."""
    return _rank(run, argv, from_end=True)


def _rank(run: Run, argv: Args, *, from_end: bool) -> Reply:
    value = run.database.of_kind(SortedSetValue, argv[1])
    if value is None:
        return None
    score = value.scores.get(argv[2])
    if score is None:
        return None
    rank = value.order.find(score, argv[2])
    return len(value.scores) - 1 - rank if from_end else rank


@command("zscan", -3, "sorted-set", "readonly", keys=(1, 1, 1))
def zscan(run: Run, argv: Args) -> Reply:
    """Iterate over members and scores."""
    return scan_value(run, argv, SortedSetValue, _names, _pair)


def _names(value: SortedSetValue) -> tuple[Collection[bytes], bool]:
    if value.large:
        return value.scores, False
    return [member for _, member in value.order], True


def _pair(value: SortedSetValue, name: bytes) -> tuple[bytes, ...]:
    score = value.scores.get(name)
    return () if score is None else (name, _scanned_score(score, large=value.large))


def _scanned_score(score: float, *, large: bool) -> bytes:
    """Format a score. Redis stores whole scores in a listpack as integers, and returns them so."""
    if not large and abs(score) <= _LISTPACK_WHOLE_MAX and score == (whole := int(score)):
        return b"%d" % whole
    return score_text(score)


# ------------------------------------------------------------------------------ ranges and pops

_LIMIT_BY_RANK: Final = (
    b"ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
)
_SCORES_BY_MEMBER: Final = b"ERR syntax error, WITHSCORES not supported in combination with BYLEX"
_SMALL_LIMIT: Final = 16
"""Up to this LIMIT, the end of a range is not searched for."""
RANK, SCORE, MEMBER, ANY = b"rank", b"score", b"member", b""
"""What the bounds of a range are; ANY = the options of the command say it."""
_BY: Final = {b"bylex": MEMBER, b"byscore": SCORE}


class _Query:
    """The options of a range command, parsed from the words after the bounds."""

    __slots__ = ("by", "most", "offset", "reverse", "scores")

    def __init__(self, words: tuple[bytes, ...], by: bytes, reverse: bool | None):
        options = {b"limit": Option("limit", to_int, 2), b"withscores": Option("scores")}
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
        """Return the entries in the requested order. Raises CommandError."""
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
            if not reverse and 0 <= self.most <= _SMALL_LIMIT:
                return _first_entries(value.order, span, self.offset, self.most)
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
"""Most calls have the same options, so the parsed options are cached."""


def _first_entries(order: ScoreOrder, span: ScoreRange, offset: int, most: int) -> list[Entry]:
    """Return the first entries of a range without searching for its end."""
    low, high = span
    if low is None:
        return []
    found = order.following((low, b""), offset, most)
    if high is not None:
        while found and found[-1][0] >= high:
            found.pop()
    return found


def index_ranks(value: SortedSetValue, start: int, stop: int) -> tuple[Rank, Rank]:
    """Convert inclusive indexes, negative ones from the end, to ranks [start, stop)."""
    count = len(value.scores)
    start = max(0, start + count if start < 0 else start)
    stop = min(count - 1, stop + count if stop < 0 else stop)
    if start > stop:
        return 0, 0
    return start, stop + 1


def by_rank(value: SortedSetValue, start: int, stop: int, *, reverse: bool) -> list[Entry]:
    """Return the entries between inclusive indexes; with `reverse` index 0 is the last entry."""
    if not reverse:
        return value.order.walk(*index_ranks(value, start, stop))
    # Counted from the end, index n is ~n = -n - 1: index 0 is -1.
    return value.order.walk_back(*index_ranks(value, ~stop, ~start))


def entries_reply(run: Run, entries: list[Entry], *, scores: bool) -> Reply:
    """Return the members, or members and scores: as pairs in RESP3, flat in RESP2."""
    if not scores:
        return [member for _, member in entries]
    if run.session.resp == 3:
        return [[member, Double(score)] for score, member in entries]
    out: list[Reply] = []
    for score, member in entries:
        out += (member, score_text(score))
    return out


def _range(run: Run, argv: Args, by: bytes, *, reverse: bool | None) -> Reply:
    query = _query(tuple(argv[4:]), by, reverse)
    found = query.find(run, argv[1], argv[2], argv[3])
    return entries_reply(run, found, scores=query.scores)


@command("zrange", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrange(run: Run, argv: Args) -> Reply:
    """Return a range: first last [BYSCORE|BYLEX] [REV] [LIMIT offset count] [WITHSCORES]."""
    return _range(run, argv, ANY, reverse=None)


@command("zrevrange", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrevrange(run: Run, argv: Args) -> Reply:
    """Return a range of indexes, counted from the end."""
    return _range(run, argv, RANK, reverse=True)


@command("zrangebyscore", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrangebyscore(run: Run, argv: Args) -> Reply:
    """Return a range of scores, ascending: min max."""
    return _range(run, argv, SCORE, reverse=False)


@command("zrevrangebyscore", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrevrangebyscore(run: Run, argv: Args) -> Reply:
    """Return a range of scores, descending: max min."""
    return _range(run, argv, SCORE, reverse=True)


@command("zrangebylex", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrangebylex(run: Run, argv: Args) -> Reply:
    """Return a range of members, ascending: min max."""
    return _range(run, argv, MEMBER, reverse=False)


@command("zrevrangebylex", -4, "sorted-set", "readonly", keys=(1, 1, 1))
def zrevrangebylex(run: Run, argv: Args) -> Reply:
    """Return a range of members, descending: max min."""
    return _range(run, argv, MEMBER, reverse=True)


# ---------------------------------------------------------------------- counting


@command("zcount", 4, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zcount(run: Run, argv: Args) -> Reply:
    """Count the members in a range of scores."""
    span = to_score_range(argv[2], argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _count(*score_ranks(value.order, span))


@command("zlexcount", 4, "sorted-set", "readonly fast", keys=(1, 1, 1))
def zlexcount(run: Run, argv: Args) -> Reply:
    """Count the members in a range of members."""
    low, high = to_member_bound(argv[2]), to_member_bound(argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _count(*member_ranks(value.order, low, high))


def _count(start: Rank, stop: Rank) -> int:
    return max(0, stop - start)


# ---------------------------------------------------------------------- removing


@command("zremrangebyrank", 4, "sorted-set", "write", keys=(1, 1, 1))
def zremrangebyrank(run: Run, argv: Args) -> Reply:
    """Remove a range of indexes."""
    start, stop = to_int(argv[2]), to_int(argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _remove(run, argv[1], value, index_ranks(value, start, stop))


@command("zremrangebyscore", 4, "sorted-set", "write", keys=(1, 1, 1))
def zremrangebyscore(run: Run, argv: Args) -> Reply:
    """Remove the members in a range of scores."""
    span = to_score_range(argv[2], argv[3])
    value = run.database.of_kind(SortedSetValue, argv[1])
    return 0 if value is None else _remove(run, argv[1], value, score_ranks(value.order, span))


@command("zremrangebylex", 4, "sorted-set", "write", keys=(1, 1, 1))
def zremrangebylex(run: Run, argv: Args) -> Reply:
    """Remove the members in a range of members."""
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


# --------------------------------------------------------------------------- pops
#
# A blocking command is logged as a plain pop of the key that it popped from.


def _pop(run: Run, key: bytes, value: SortedSetValue, most: int, *, greatest: bool) -> list[Entry]:
    taken = value.pop(most, greatest=greatest)
    if taken:
        if not value.scores:
            run.database.remove(key)
        run.database.changed(key, len(taken))
    return taken


def _pop_one_key(run: Run, argv: Args, *, greatest: bool) -> Reply:
    if len(argv) > 3:
        raise syntax()
    counted = len(argv) == 3
    most = take_positive(argv[2]) if counted else 1
    value = run.database.of_kind(SortedSetValue, argv[1])
    if value is None:
        return []
    taken = _pop(run, argv[1], value, most, greatest=greatest)
    if counted:
        return entries_reply(run, taken, scores=True)
    score, member = taken[0]
    return [member, Double(score)]


@command("zpopmin", -2, "sorted-set", "write fast", keys=(1, 1, 1))
def zpopmin(run: Run, argv: Args) -> Reply:
    """Remove the members with the lowest scores: key [count]."""
    return _pop_one_key(run, argv, greatest=False)


@command("zpopmax", -2, "sorted-set", "write fast", keys=(1, 1, 1))
def zpopmax(run: Run, argv: Args) -> Reply:
    """Remove the members with the highest scores: key [count]."""
    return _pop_one_key(run, argv, greatest=True)


# ---------------------------------------------------------------------- several keys


def _pop_or_wait(run: Run, argv: Args, *, greatest: bool) -> Reply:
    timeout_ms = to_timeout_ms(run, argv[-1])
    keys = argv[1:-1]
    for key in keys if run.retried is None else [run.retried.ready]:
        value = run.database.of_kind(SortedSetValue, key)
        if value is not None:
            ((score, member),) = _pop(run, key, value, 1, greatest=greatest)
            run.rewrite(b"ZPOPMAX" if greatest else b"ZPOPMIN", key)
            return [key, member, Double(score)]
    return run.wait(argv, keys, timeout_ms, NO_ARRAY, SortedSetValue)


@command("bzpopmin", -3, "sorted-set", "write noscript blocking fast", keys=(1, -2, 1))
def bzpopmin(run: Run, argv: Args) -> Reply:
    """ZPOPMIN of the first non-empty sorted set; blocks while all are empty: key... seconds."""
    return _pop_or_wait(run, argv, greatest=False)


@command("bzpopmax", -3, "sorted-set", "write noscript blocking fast", keys=(1, -2, 1))
def bzpopmax(run: Run, argv: Args) -> Reply:
    """ZPOPMAX of the first non-empty sorted set; blocks while all are empty: key... seconds."""
    return _pop_or_wait(run, argv, greatest=True)
