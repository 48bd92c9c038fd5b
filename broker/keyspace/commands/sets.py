"""Sets: SADD and related commands."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import names_in, scan_value, take_positive
from delaylog.broker.keyspace.errors import syntax
from delaylog.broker.keyspace.keyspace import SetValue
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import Members, Reply


@command("sadd", -3, "set", "write denyoom fast", keys=(1, 1, 1))
def sadd(run: Run, argv: Args) -> Reply:
    """Add members; returns the number of new ones."""
    key = argv[1]
    value = run.database.of_kind_or_new(SetValue, key)
    before = len(value)
    value.update(argv[2:])
    added = len(value) - before
    if added:
        run.database.changed(key, added)
    return added


@command("srem", -3, "set", "write fast", keys=(1, 1, 1))
def srem(run: Run, argv: Args) -> Reply:
    """Remove members; returns the number of those that existed."""
    key = argv[1]
    value = run.database.of_kind(SetValue, key)
    if value is None:
        return 0
    before = len(value)
    value.difference_update(argv[2:])
    gone = before - len(value)
    if gone:
        run.database.remove_if_empty(key)
        run.database.changed(key, gone)
    return gone


@command("scard", 2, "set", "readonly fast", keys=(1, 1, 1))
def scard(run: Run, argv: Args) -> Reply:
    """Count the members."""
    value = run.database.of_kind(SetValue, argv[1])
    return 0 if value is None else len(value)


@command("sismember", 3, "set", "readonly fast", keys=(1, 1, 1))
def sismember(run: Run, argv: Args) -> Reply:
    """Return whether a member exists."""
    value = run.database.of_kind(SetValue, argv[1])
    return int(value is not None and argv[2] in value)


@command("smembers", 2, "set", "readonly", keys=(1, 1, 1))
def smembers(run: Run, argv: Args) -> Reply:
    """List the members."""
    value = run.database.of_kind(SetValue, argv[1])
    return Members([] if value is None else list(value))


@command("spop", -2, "set", "write fast", keys=(1, 1, 1))
def spop(run: Run, argv: Args) -> Reply:
    """Remove and return a random member, or up to `count`."""
    if len(argv) > 3:
        raise syntax()
    count = take_positive(argv[2]) if len(argv) == 3 else None
    key = argv[1]
    value = run.database.of_kind(SetValue, key)
    if value is None:
        return None if count is None else Members([])
    if count is None:
        member = _any(run, value)
        taken = [member]
    elif count >= len(value):
        taken = list(value)
    else:
        taken = run.keyspace.random.sample(list(value), count)
    if not taken:
        return Members([])
    value.difference_update(taken)
    if value:
        run.rewrite(b"SREM", key, *taken)
    else:
        run.rewrite(b"DEL", key)
    run.database.remove_if_empty(key)
    run.database.changed(key, len(taken))
    return taken[0] if count is None else Members(taken)


_FEW: Final = 64


def _any(run: Run, value: SetValue) -> bytes:
    """Return a random member."""
    random = run.keyspace.random
    if len(value) <= _FEW:
        return random.choice(list(value))
    picked = run.shared.scans.pick(value, run.keyspace.dirty, random)
    assert picked is not None
    return picked


@command("sscan", -3, "set", "readonly", keys=(1, 1, 1))
def sscan(run: Run, argv: Args) -> Reply:
    """Iterate over the members."""
    return scan_value(run, argv, SetValue, names_in, _member)


def _member(value: SetValue, name: bytes) -> tuple[bytes, ...]:
    return (name,) if name in value else ()
