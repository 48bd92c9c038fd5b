"""Sorted sets: adding, removing and looking up members.

The plain `ZADD key score member` has a fast path, because it is the usual command of delay queues.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isnan
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.scanning import scan_value
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Double, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import score_text, to_score
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue

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
