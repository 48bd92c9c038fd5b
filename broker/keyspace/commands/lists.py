"""Lists: LPUSH and related commands, moves between lists, and waits for elements."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import (
    Option,
    Options,
    at_least,
    read_options,
    take_positive,
    to_timeout_ms,
)
from delaylog.broker.keyspace.errors import (
    NO_SUCH_KEY,
    OUT_OF_RANGE,
    CommandError,
    syntax,
    wrong_arity,
)
from delaylog.broker.keyspace.keyspace import ListValue
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import NO_ARRAY, OK, Reply
from delaylog.broker.keyspace.values.number_texts import INT64_MIN, to_int

_PUSH: Final = "write denyoom fast"


def _push(run: Run, argv: Args, *, left: bool) -> int:
    key = argv[1]
    database = run.database
    value = database.of_kind_or_new(ListValue, key)
    if left:
        value.extendleft(argv[2:])
    else:
        value.extend(argv[2:])
    database.changed(key, len(argv) - 2)
    return len(value)


@command("lpush", -3, "list", _PUSH, keys=(1, 1, 1))
def lpush(run: Run, argv: Args) -> Reply:
    """Prepend elements; returns the length."""
    return _push(run, argv, left=True)


@command("rpush", -3, "list", _PUSH, keys=(1, 1, 1))
def rpush(run: Run, argv: Args) -> Reply:
    """Append elements; returns the length."""
    return _push(run, argv, left=False)


def take_from(run: Run, key: bytes, value: ListValue, count: int, *, left: bool) -> list[bytes]:
    """Remove and return up to `count` elements of one end, outermost first."""
    count = min(count, len(value))
    if count == len(value):
        taken = list(value)
        if not left:
            taken.reverse()
        value.clear()
    else:
        take = value.popleft if left else value.pop
        taken = [take() for _ in range(count)]
    if count:
        run.database.remove_if_empty(key)
        run.database.changed(key, count)
    return taken


def _pop(run: Run, argv: Args, name: bytes, *, left: bool) -> Reply:
    if len(argv) > 3:
        raise wrong_arity(name)
    count = take_positive(argv[2]) if len(argv) == 3 else None
    key = argv[1]
    value = run.database.of_kind(ListValue, key)
    if value is None:
        return None if count is None else NO_ARRAY
    if count is None:
        taken = value.popleft() if left else value.pop()
        if not value:
            run.database.remove(key)
        run.database.changed(key)
        return taken
    return take_from(run, key, value, count, left=left)


@command("lpop", -2, "list", "write fast", keys=(1, 1, 1))
def lpop(run: Run, argv: Args) -> Reply:
    """Remove the first element, or the first `count`."""
    return _pop(run, argv, b"lpop", left=True)


@command("rpop", -2, "list", "write fast", keys=(1, 1, 1))
def rpop(run: Run, argv: Args) -> Reply:
    """Remove the last element, or the last `count`."""
    return _pop(run, argv, b"rpop", left=False)


@command("llen", 2, "list", "readonly fast", keys=(1, 1, 1))
def llen(run: Run, argv: Args) -> Reply:
    """Return the length."""
    value = run.database.of_kind(ListValue, argv[1])
    return 0 if value is None else len(value)


@command("lindex", 3, "list", "readonly", keys=(1, 1, 1))
def lindex(run: Run, argv: Args) -> Reply:
    """Return the element at an index; -1 = the last one."""
    value = run.database.of_kind(ListValue, argv[1])
    if value is None:
        return None
    at = to_int(argv[2])
    return value[at] if -len(value) <= at < len(value) else None


@command("lset", 4, "list", "write denyoom", keys=(1, 1, 1))
def lset(run: Run, argv: Args) -> Reply:
    """Replace the element at an index."""
    value = run.database.of_kind(ListValue, argv[1])
    if value is None:
        raise CommandError(NO_SUCH_KEY)
    at = to_int(argv[2])
    if not -len(value) <= at < len(value):
        raise CommandError(OUT_OF_RANGE)
    value[at] = argv[3]
    run.database.changed(argv[1])
    return OK


def _bounds(size: int, start: int, stop: int) -> tuple[int, int]:
    """Convert inclusive ends, which may be negative, to [start, end)."""
    if start < 0:
        start = max(start + size, 0)
    if stop < 0:
        stop += size
    return start, min(stop + 1, size)


@command("lrange", 4, "list", "readonly", keys=(1, 1, 1))
def lrange(run: Run, argv: Args) -> Reply:
    """Return the elements from one index to another."""
    start, stop = to_int(argv[2]), to_int(argv[3])
    value = run.database.of_kind(ListValue, argv[1])
    if value is None:
        return []
    size = len(value)
    start, end = _bounds(size, start, stop)
    if start >= end:
        return []
    if start > size - end:
        # The range is nearer to the end: iterating from there passes fewer elements of the deque.
        out = list(islice(reversed(value), size - end, size - start))
        out.reverse()
        return out
    return list(islice(value, start, end))


@command("ltrim", 4, "list", "write", keys=(1, 1, 1))
def ltrim(run: Run, argv: Args) -> Reply:
    """Keep the elements from one index to another."""
    start, stop = to_int(argv[2]), to_int(argv[3])
    key = argv[1]
    value = run.database.of_kind(ListValue, key)
    if value is None:
        return OK
    size = len(value)
    start, end = _bounds(size, start, stop)
    if start >= end:
        run.database.remove(key)
        run.database.changed(key, size)
        return OK
    for _ in range(start):
        value.popleft()
    for _ in range(size - end):
        value.pop()
    if len(value) != size:
        run.database.changed(key, size - len(value))
    return OK


@command("lrem", 4, "list", "write", keys=(1, 1, 1))
def lrem(run: Run, argv: Args) -> Reply:
    """Remove equal elements: the first n, the last -n, or all (0)."""
    count, wanted = to_int(argv[2]), argv[3]
    key = argv[1]
    value = run.database.of_kind(ListValue, key)
    if value is None:
        return 0
    there = value.count(wanted)
    gone = there if count == 0 else min(abs(count), there)
    if gone == 0:
        return 0
    if gone == 1 and count >= 0:
        value.remove(wanted)
    else:
        kept: list[bytes] = []
        left = gone
        items: Iterable[bytes] = value if count >= 0 else reversed(value)
        for item in items:
            if left and item == wanted:
                left -= 1
            else:
                kept.append(item)
        if count < 0:
            kept.reverse()
        value.clear()
        value.extend(kept)
    run.database.remove_if_empty(key)
    run.database.changed(key, gone)
    return gone


def _rank(text: bytes) -> int:
    rank = to_int(text)
    if rank == 0:
        raise CommandError(
            b"ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... "
            b"or use negative to start from the end of the list"
        )
    return rank


_LPOS_OPTIONS: Final[Options] = {
    b"rank": Option("rank", _rank),
    b"count": Option("count", at_least(0, b"ERR COUNT can't be negative")),
    b"maxlen": Option("most", at_least(0, b"ERR MAXLEN can't be negative")),
}


@command("lpos", -3, "list", "readonly", keys=(1, 1, 1))
def lpos(run: Run, argv: Args) -> Reply:
    """Return the index of an element: [RANK rank] [COUNT count] [MAXLEN length]."""
    options = read_options(argv, 3, _LPOS_OPTIONS)
    rank, most = options.value("rank", 1), options.value("most", 0)
    count = options.value("count")
    value = run.database.of_kind(ListValue, argv[1])
    if value is None:
        return None if count is None else []
    items: Iterable[bytes] = value if rank > 0 else reversed(value)
    if most:
        items = islice(items, most)
    # INT64_MIN cannot be negated in 64 bits: Redis then skips no match.
    wanted, skip = argv[2], abs(rank) - 1 if rank != INT64_MIN else 0
    found: list[int] = []
    limit = 1 if count is None else count or len(value)
    for index, item in enumerate(items):
        if item != wanted:
            continue
        if skip:
            skip -= 1
            continue
        found.append(index if rank > 0 else len(value) - 1 - index)
        if len(found) == limit:
            break
    if count is None:
        return found[0] if found else None
    return found


_BLOCKING: Final = "write noscript blocking"
_SIDES: Final = (b"left", b"right")


def _side(text: bytes) -> bool:
    """Whether a side is LEFT. Raises CommandError."""
    side = text.lower()
    if side not in _SIDES:
        raise syntax()
    return side == b"left"


# --------------------------------------------------------------------------- between two lists


def _move(run: Run, source: bytes, target: bytes, *, left: bool, to_left: bool) -> bytes | None:
    database = run.database
    value = database.of_kind(ListValue, source)
    if value is None:
        return None
    other = database.of_kind(ListValue, target)
    item = value.popleft() if left else value.pop()
    if other is None:
        other = database.of_kind_or_new(ListValue, target)
    if to_left:
        other.appendleft(item)
    else:
        other.append(item)
    database.remove_if_empty(source)
    database.changed(target)
    database.changed(source)
    return item


@command("rpoplpush", 3, "list", "write denyoom", keys=(1, 2, 1))
def rpoplpush(run: Run, argv: Args) -> Reply:
    """Move the last element of a list to the front of another."""
    return _move(run, argv[1], argv[2], left=False, to_left=True)


@command("lmove", 5, "list", "write denyoom", keys=(1, 2, 1))
def lmove(run: Run, argv: Args) -> Reply:
    """Move an element from an end of a list to an end of another."""
    left, to_left = _side(argv[3]), _side(argv[4])
    return _move(run, argv[1], argv[2], left=left, to_left=to_left)


def _move_or_wait(run: Run, argv: Args, timeout_ms: int, *, left: bool, to_left: bool) -> Reply:
    item = _move(run, argv[1], argv[2], left=left, to_left=to_left)
    if item is None:
        timeout_reply = NO_ARRAY if run.may_wait else None
        return run.wait(argv, [argv[1]], timeout_ms, timeout_reply, ListValue)
    sides = (b"LEFT" if left else b"RIGHT", b"LEFT" if to_left else b"RIGHT")
    run.rewrite(b"LMOVE", argv[1], argv[2], *sides)
    return item


@command("brpoplpush", 4, "list", _BLOCKING + " denyoom", keys=(1, 2, 1))
def brpoplpush(run: Run, argv: Args) -> Reply:
    """RPOPLPUSH that blocks while the source is empty."""
    return _move_or_wait(run, argv, to_timeout_ms(run, argv[3]), left=False, to_left=True)


@command("blmove", 6, "list", _BLOCKING + " denyoom", keys=(1, 2, 1))
def blmove(run: Run, argv: Args) -> Reply:
    """LMOVE that blocks while the source is empty."""
    left, to_left = _side(argv[3]), _side(argv[4])
    return _move_or_wait(run, argv, to_timeout_ms(run, argv[5]), left=left, to_left=to_left)


# --------------------------------------------------------------------------- the first of several


def _pop_or_wait(run: Run, argv: Args, *, left: bool) -> Reply:
    timeout_ms = to_timeout_ms(run, argv[-1])
    keys = argv[1:-1]
    for key in keys if run.retried is None else [run.retried.ready]:
        value = run.database.of_kind(ListValue, key)
        if value:
            item = take_from(run, key, value, 1, left=left)[0]
            run.rewrite(b"LPOP" if left else b"RPOP", key)
            return [key, item]
    return run.wait(argv, keys, timeout_ms, NO_ARRAY, ListValue)


@command("blpop", -3, "list", _BLOCKING, keys=(1, -2, 1))
def blpop(run: Run, argv: Args) -> Reply:
    """Remove the first element of the first non-empty list; blocks while all are empty."""
    return _pop_or_wait(run, argv, left=True)


@command("brpop", -3, "list", _BLOCKING, keys=(1, -2, 1))
def brpop(run: Run, argv: Args) -> Reply:
    """Remove the last element of the first non-empty list; blocks while all are empty."""
    return _pop_or_wait(run, argv, left=False)
