"""Strings that are numbers: INCR and related commands."""

from __future__ import annotations

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values import long_double
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, INT64_MIN, to_int


def _increase(run: Run, key: bytes, by: int) -> Reply:
    database = run.database
    value = database.string(key)
    total = by if value is None else to_int(value) + by
    if not INT64_MIN <= total <= INT64_MAX:
        raise CommandError(b"ERR increment or decrement would overflow")
    database.put(key, b"%d" % total, keep_ttl=True)
    database.changed(key)
    return total


@command("incr", 2, "string", "write denyoom fast", keys=(1, 1, 1))
def incr(run: Run, argv: Args) -> Reply:
    """Add 1 to a number."""
    return _increase(run, argv[1], 1)


@command("decr", 2, "string", "write denyoom fast", keys=(1, 1, 1))
def decr(run: Run, argv: Args) -> Reply:
    """Subtract 1 from a number."""
    return _increase(run, argv[1], -1)


@command("incrby", 3, "string", "write denyoom fast", keys=(1, 1, 1))
def incrby(run: Run, argv: Args) -> Reply:
    """Add an integer to a number."""
    return _increase(run, argv[1], to_int(argv[2]))


@command("decrby", 3, "string", "write denyoom fast", keys=(1, 1, 1))
def decrby(run: Run, argv: Args) -> Reply:
    """Subtract an integer from a number."""
    by = to_int(argv[2])
    if by == INT64_MIN:
        raise CommandError(b"ERR decrement would overflow")
    return _increase(run, argv[1], -by)


@command("incrbyfloat", 3, "string", "write denyoom fast", keys=(1, 1, 1))
def incrbyfloat(run: Run, argv: Args) -> Reply:
    """Add a floating-point number to a number."""
    database, key = run.database, argv[1]
    value = database.string(key)
    total = long_double.add(b"0" if value is None else value, argv[2])
    database.put(key, total, keep_ttl=True)
    database.changed(key)
    # Followers must not depend on how sums are rounded.
    run.rewrite(b"SET", key, total, b"KEEPTTL")
    return total
