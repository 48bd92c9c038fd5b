"""Lists: moving elements between them, and waiting for elements."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.lists import take_from
from delaylog.broker.keyspace.commands.timeouts import to_timeout_ms
from delaylog.broker.keyspace.errors import syntax
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import NO_ARRAY, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.kinds import ListValue

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


def _move_or_wait(
    run: Run, argv: Args, timeout_ms: int, *, left: bool, to_left: bool, timeout_reply: Reply
) -> Reply:
    item = _move(run, argv[1], argv[2], left=left, to_left=to_left)
    if item is None:
        return run.wait(argv, [argv[1]], timeout_ms, timeout_reply, ListValue)
    sides = (b"LEFT" if left else b"RIGHT", b"LEFT" if to_left else b"RIGHT")
    run.rewrite(b"LMOVE", argv[1], argv[2], *sides)
    return item


@command("brpoplpush", 4, "list", _BLOCKING + " denyoom", keys=(1, 2, 1))
def brpoplpush(run: Run, argv: Args) -> Reply:
    """RPOPLPUSH that blocks while the source is empty."""
    timeout_ms = to_timeout_ms(run, argv[3])
    reply = None if not run.may_wait else NO_ARRAY
    return _move_or_wait(run, argv, timeout_ms, left=False, to_left=True, timeout_reply=reply)


@command("blmove", 6, "list", _BLOCKING + " denyoom", keys=(1, 2, 1))
def blmove(run: Run, argv: Args) -> Reply:
    """LMOVE that blocks while the source is empty."""
    left, to_left = _side(argv[3]), _side(argv[4])
    timeout_ms = to_timeout_ms(run, argv[5])
    reply = None if not run.may_wait else NO_ARRAY
    return _move_or_wait(run, argv, timeout_ms, left=left, to_left=to_left, timeout_reply=reply)


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
