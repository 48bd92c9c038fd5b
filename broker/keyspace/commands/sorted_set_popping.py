"""Sorted sets: taking members off the ends, at once or when there are some, and drawing them.

What a blocking command took is logged as a plain pop of the key that had something.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.commands.picking import repeats
from delaylog.broker.keyspace.commands.sorted_set_operations import numbered_keys
from delaylog.broker.keyspace.commands.sorted_set_ranges import entries_reply
from delaylog.broker.keyspace.commands.timeouts import to_timeout_ms
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.number_texts import INT64_MAX, to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import NO_ARRAY, Double, Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.score_order import Entry
from delaylog.broker.keyspace.sorted_set import SortedSetValue

_NOT_POSITIVE: Final = b"ERR value is out of range, must be positive"
_OUT_OF_RANGE: Final = b"ERR value is out of range"
_OUTSIDE: Final = _OUT_OF_RANGE + b", value must between %d and %d"
_NUMKEYS: Final = b"ERR numkeys should be greater than 0"
_COUNT: Final = b"ERR count should be greater than 0"


def _pop(run: Run, key: bytes, value: SortedSetValue, most: int, *, greatest: bool) -> list[Entry]:
    taken = value.pop(most, greatest=greatest)
    if taken:
        if not value.scores:
            run.database.remove(key)
        run.database.changed(key, len(taken))
    return taken


def _plain(run: Run, argv: Args, *, greatest: bool) -> Reply:
    if len(argv) > 3:
        raise syntax()
    counted = len(argv) == 3
    most = at_least(argv[2], 0, _NOT_POSITIVE) if counted else 1
    value = run.database.of_kind(SortedSetValue, argv[1])
    if value is None:
        return []
    taken = _pop(run, argv[1], value, most, greatest=greatest)
    if counted:
        return entries_reply(run, taken, scores=True)
    score, member = taken[0]
    return [member, Double(score)]


def at_least(text: bytes, least: int, refusal: bytes) -> int:
    """A whole number, not below `least`. Raises CommandError."""
    value = to_int(text, refusal)
    if value < least:
        raise CommandError(refusal)
    return value


@command("zpopmin", -2, "sorted-set", "write fast", keys=(1, 1, 1))
def zpopmin(run: Run, argv: Args) -> Reply:
    """Take the lowest: key [count]."""
    return _plain(run, argv, greatest=False)


@command("zpopmax", -2, "sorted-set", "write fast", keys=(1, 1, 1))
def zpopmax(run: Run, argv: Args) -> Reply:
    """Take the highest: key [count]."""
    return _plain(run, argv, greatest=True)


# ---------------------------------------------------------------------- of several keys


def _of_keys(
    run: Run, keys: list[bytes], most: int, *, greatest: bool
) -> tuple[bytes, list[Entry]] | None:
    """Take from the first key that has something. Raises CommandError."""
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


def _first(run: Run, argv: Args, *, greatest: bool) -> Reply:
    timeout_ms = to_timeout_ms(run, argv[-1])
    found = _of_keys(run, argv[1:-1], 1, greatest=greatest)
    if found is None:
        return run.wait(argv, argv[1:-1], timeout_ms, NO_ARRAY, SortedSetValue)
    key, ((score, member),) = found
    return [key, member, Double(score)]


@command("bzpopmin", -3, "sorted-set", "write noscript blocking fast", keys=(1, -2, 1))
def bzpopmin(run: Run, argv: Args) -> Reply:
    """Take the lowest of the first key that has something, or wait: key... seconds."""
    return _first(run, argv, greatest=False)


@command("bzpopmax", -3, "sorted-set", "write noscript blocking fast", keys=(1, -2, 1))
def bzpopmax(run: Run, argv: Args) -> Reply:
    """Take the highest of the first key that has something, or wait: key... seconds."""
    return _first(run, argv, greatest=True)


class _Many:
    """numkeys key... MIN|MAX [COUNT n]."""

    __slots__ = ("greatest", "keys", "most")

    def __init__(self, argv: Args, at: int):
        count = at_least(argv[at], 1, _NUMKEYS)
        self.keys = argv[at + 1 : at + 1 + count]
        at += 1 + count
        if at >= len(argv):
            raise syntax()
        side = argv[at].lower()
        if side not in (b"min", b"max"):
            raise syntax()
        self.greatest = side == b"max"
        self.most = 1
        rest = argv[at + 1 :]
        if rest:
            if rest[0].lower() != b"count" or len(rest) < 2:
                raise syntax()
            self.most = at_least(rest[1], 1, _COUNT)
            if len(rest) > 2:
                raise syntax()

    def take(self, run: Run) -> Reply:
        """Key and pairs, or None."""
        found = _of_keys(run, self.keys, self.most, greatest=self.greatest)
        if found is None:
            return None
        return [found[0], [[member, Double(score)] for score, member in found[1]]]


@command("zmpop", -4, "sorted-set", "write movablekeys", keys=numbered_keys(1))
def zmpop(run: Run, argv: Args) -> Reply:
    """Take from an end of the first key that has something."""
    reply = _Many(argv, 1).take(run)
    return NO_ARRAY if reply is None else reply


@command("bzmpop", -5, "sorted-set", "write blocking movablekeys", keys=numbered_keys(2))
def bzmpop(run: Run, argv: Args) -> Reply:
    """The same, or wait: seconds numkeys key... MIN|MAX [COUNT n]."""
    many = _Many(argv, 2)
    timeout_ms = to_timeout_ms(run, argv[1])
    reply = many.take(run)
    if reply is None:
        return run.wait(argv, many.keys, timeout_ms, NO_ARRAY, SortedSetValue)
    return reply


# ---------------------------------------------------------------------- drawing


@command("zrandmember", -2, "sorted-set", "readonly", keys=(1, 1, 1))
def zrandmember(run: Run, argv: Args) -> Reply:
    """Members by chance: key [count [WITHSCORES]]; a negative count may give one twice."""
    random = run.keyspace.random
    if len(argv) == 2:
        value = run.database.of_kind(SortedSetValue, argv[1])
        return None if value is None else _entry(value, random.randrange(len(value.scores)))[1]
    count = to_int(argv[2])
    if count < -INT64_MAX:
        raise CommandError(_OUTSIDE % (-INT64_MAX, INT64_MAX))
    if len(argv) > 4 or (len(argv) == 4 and argv[3].lower() != b"withscores"):
        raise syntax()
    scores = len(argv) == 4
    if scores and abs(count) > INT64_MAX // 2:
        raise CommandError(_OUT_OF_RANGE)
    value = run.database.of_kind(SortedSetValue, argv[1])
    if value is None or count == 0:
        return []
    size = len(value.scores)
    drawn: list[Entry]
    if count < 0:
        drawn = [_entry(value, random.randrange(size)) for _ in range(repeats(count))]
    elif count >= size:
        drawn = list(value.order)[::-1]
    else:
        drawn = [_entry(value, rank) for rank in random.sample(range(size), count)]
    return entries_reply(run, drawn, scores=scores)


def _entry(value: SortedSetValue, rank: int) -> Entry:
    return value.order.walk(rank, rank + 1)[0]
