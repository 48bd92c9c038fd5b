"""Sorted sets: popping members from the ends, also with blocking commands.

A blocking command is logged as a plain pop of the key that it popped from.
"""

from __future__ import annotations

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.sorted_sets.sorted_set_ranges import entries_reply
from delaylog.broker.keyspace.commands.timeouts import to_timeout_ms
from delaylog.broker.keyspace.errors import syntax
from delaylog.broker.keyspace.options import take_positive
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import NO_ARRAY, Double, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.score_order import Entry
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue


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
