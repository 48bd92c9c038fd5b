"""Sorted sets: popping members from the ends, also with blocking commands, and random members.

A blocking command is logged as a plain pop of the key that it popped from.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.picking import pick, take_count, take_positive
from delaylog.broker.keyspace.commands.sorted_sets.sorted_set_ranges import entries_reply
from delaylog.broker.keyspace.commands.timeouts import to_timeout_ms
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.options import FirstOf, numbered_keys, read_first_of
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import NO_ARRAY, Double, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import INT64_MAX
from delaylog.broker.keyspace.values.score_order import Entry
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue

_SIDES: Final = (b"min", b"max")
_OUT_OF_RANGE: Final = b"ERR value is out of range"


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


def _pop_first_of(
    run: Run, keys: list[bytes], most: int, *, greatest: bool
) -> tuple[bytes, list[Entry]] | None:
    """Pop from the first non-empty sorted set. Raises CommandError."""
    if run.retried is not None:
        keys = [run.retried.ready]
    for key in keys:
        value = run.database.of_kind(SortedSetValue, key)
        if value is not None:
            taken = _pop(run, key, value, most, greatest=greatest)
            word = b"ZPOPMAX" if greatest else b"ZPOPMIN"
            if most == 1:
                run.rewrite(word, key)
            else:
                run.rewrite(word, key, b"%d" % len(taken))
            return key, taken
    return None


def _pop_or_wait(run: Run, argv: Args, *, greatest: bool) -> Reply:
    timeout_ms = to_timeout_ms(run, argv[-1])
    found = _pop_first_of(run, argv[1:-1], 1, greatest=greatest)
    if found is None:
        return run.wait(argv, argv[1:-1], timeout_ms, NO_ARRAY, SortedSetValue)
    key, ((score, member),) = found
    return [key, member, Double(score)]


@command("bzpopmin", -3, "sorted-set", "write noscript blocking fast", keys=(1, -2, 1))
def bzpopmin(run: Run, argv: Args) -> Reply:
    """ZPOPMIN of the first non-empty sorted set; blocks while all are empty: key... seconds."""
    return _pop_or_wait(run, argv, greatest=False)


@command("bzpopmax", -3, "sorted-set", "write noscript blocking fast", keys=(1, -2, 1))
def bzpopmax(run: Run, argv: Args) -> Reply:
    """ZPOPMAX of the first non-empty sorted set; blocks while all are empty: key... seconds."""
    return _pop_or_wait(run, argv, greatest=True)


def _take_first(run: Run, first: FirstOf) -> Reply:
    """Pop from the first non-empty key; returns the key and the pairs, or NO_ARRAY."""
    found = _pop_first_of(run, first.keys, first.most, greatest=first.second)
    if found is None:
        return NO_ARRAY
    return [found[0], [[member, Double(score)] for score, member in found[1]]]


@command("zmpop", -4, "sorted-set", "write movablekeys", keys=numbered_keys(1))
def zmpop(run: Run, argv: Args) -> Reply:
    """Pop from one end of the first non-empty sorted set."""
    return _take_first(run, read_first_of(argv, 1, _SIDES))


@command("bzmpop", -5, "sorted-set", "write blocking movablekeys", keys=numbered_keys(2))
def bzmpop(run: Run, argv: Args) -> Reply:
    """ZMPOP that blocks while all are empty: seconds numkeys key... MIN|MAX [COUNT n]."""
    first = read_first_of(argv, 2, _SIDES)
    timeout_ms = to_timeout_ms(run, argv[1])
    reply = _take_first(run, first)
    if reply is NO_ARRAY:
        return run.wait(argv, first.keys, timeout_ms, NO_ARRAY, SortedSetValue)
    return reply


# ---------------------------------------------------------------------- random members


@command("zrandmember", -2, "sorted-set", "readonly", keys=(1, 1, 1))
def zrandmember(run: Run, argv: Args) -> Reply:
    """Return random members: key [count [WITHSCORES]]; a negative count allows repetitions."""
    random = run.keyspace.random
    if len(argv) == 2:
        value = run.database.of_kind(SortedSetValue, argv[1])
        return None if value is None else _entry(value, random.randrange(len(value.scores)))[1]
    count = take_count(argv[2])
    if len(argv) > 4 or (len(argv) == 4 and argv[3].lower() != b"withscores"):
        raise syntax()
    scores = len(argv) == 4
    if scores and abs(count) > INT64_MAX // 2:
        raise CommandError(_OUT_OF_RANGE)
    value = run.database.of_kind(SortedSetValue, argv[1])
    if value is None or count == 0:
        return []
    size = len(value.scores)
    if count >= size:
        drawn = list(value.order)[::-1]
    else:
        drawn = [_entry(value, rank) for rank in pick(random, range(size), count)]
    return entries_reply(run, drawn, scores=scores)


def _entry(value: SortedSetValue, rank: int) -> Entry:
    return value.order.walk(rank, rank + 1)[0]
