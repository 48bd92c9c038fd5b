"""Hashes: HSET and related commands."""

from __future__ import annotations

from math import isinf
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import names_in, scan_value
from delaylog.broker.keyspace.errors import CommandError, wrong_arity
from delaylog.broker.keyspace.keyspace import HashValue
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import OK, Map, Reply
from delaylog.broker.keyspace.values.number_texts import (
    INT64_MAX,
    INT64_MIN,
    add_long_doubles,
    read_long_double,
    to_int,
)

_WRITE: Final = "write denyoom fast"


def _put(run: Run, argv: Args) -> int:
    """Set pairs; returns the number of new fields."""
    key = argv[1]
    database = run.database
    value = database.of_kind_or_new(HashValue, key)
    before = len(value)
    if len(argv) == 4:
        value[argv[2]] = argv[3]
        pairs = 1
    else:
        value.update(zip(argv[2::2], argv[3::2], strict=True))
        pairs = len(argv) // 2 - 1
    database.changed(key, pairs)
    return len(value) - before


@command("hset", -4, "hash", _WRITE, keys=(1, 1, 1))
def hset(run: Run, argv: Args) -> Reply:
    """Set fields; returns the number of new ones."""
    if len(argv) % 2:
        raise wrong_arity(b"hset")
    return _put(run, argv)


@command("hmset", -4, "hash", _WRITE, keys=(1, 1, 1))
def hmset(run: Run, argv: Args) -> Reply:
    """Set fields."""
    if len(argv) % 2:
        raise wrong_arity(b"hmset")
    _put(run, argv)
    return OK


@command("hsetnx", 4, "hash", _WRITE, keys=(1, 1, 1))
def hsetnx(run: Run, argv: Args) -> Reply:
    """Set a field unless it exists."""
    value = run.database.of_kind(HashValue, argv[1])
    if value is not None and argv[2] in value:
        return 0
    return _put(run, argv)


@command("hget", 3, "hash", "readonly fast", keys=(1, 1, 1))
def hget(run: Run, argv: Args) -> Reply:
    """Return the value of a field."""
    value = run.database.of_kind(HashValue, argv[1])
    return None if value is None else value.get(argv[2])


@command("hmget", -3, "hash", "readonly fast", keys=(1, 1, 1))
def hmget(run: Run, argv: Args) -> Reply:
    """Return the values of fields."""
    value = run.database.of_kind(HashValue, argv[1])
    if value is None:
        return [None] * (len(argv) - 2)
    return [value.get(field) for field in argv[2:]]


@command("hdel", -3, "hash", "write fast", keys=(1, 1, 1))
def hdel(run: Run, argv: Args) -> Reply:
    """Remove fields; returns the number of those that existed."""
    key = argv[1]
    value = run.database.of_kind(HashValue, key)
    if value is None:
        return 0
    gone = 0
    for field in argv[2:]:
        if value.pop(field, None) is not None:
            gone += 1
    if gone:
        run.database.remove_if_empty(key)
        run.database.changed(key, gone)
    return gone


@command("hlen", 2, "hash", "readonly fast", keys=(1, 1, 1))
def hlen(run: Run, argv: Args) -> Reply:
    """Count the fields."""
    value = run.database.of_kind(HashValue, argv[1])
    return 0 if value is None else len(value)


@command("hexists", 3, "hash", "readonly fast", keys=(1, 1, 1))
def hexists(run: Run, argv: Args) -> Reply:
    """Return whether a field exists."""
    value = run.database.of_kind(HashValue, argv[1])
    return int(value is not None and argv[2] in value)


@command("hkeys", 2, "hash", "readonly", keys=(1, 1, 1))
def hkeys(run: Run, argv: Args) -> Reply:
    """List the fields."""
    value = run.database.of_kind(HashValue, argv[1])
    return [] if value is None else list(value)


@command("hvals", 2, "hash", "readonly", keys=(1, 1, 1))
def hvals(run: Run, argv: Args) -> Reply:
    """List the values."""
    value = run.database.of_kind(HashValue, argv[1])
    return [] if value is None else list(value.values())


def _flat(value: HashValue) -> list[bytes]:
    out: list[bytes] = []
    for pair in value.items():
        out += pair
    return out


@command("hgetall", 2, "hash", "readonly", keys=(1, 1, 1))
def hgetall(run: Run, argv: Args) -> Reply:
    """List the fields and their values."""
    value = run.database.of_kind(HashValue, argv[1])
    return Map([] if value is None else _flat(value))


@command("hincrby", 4, "hash", _WRITE, keys=(1, 1, 1))
def hincrby(run: Run, argv: Args) -> Reply:
    """Add an integer to the value of a field."""
    by = to_int(argv[3])
    value = run.database.of_kind(HashValue, argv[1])
    old = None if value is None else value.get(argv[2])
    total = by if old is None else to_int(old, b"ERR hash value is not an integer") + by
    if not INT64_MIN <= total <= INT64_MAX:
        raise CommandError(b"ERR increment or decrement would overflow")
    _put(run, [argv[0], argv[1], argv[2], b"%d" % total])
    return total


@command("hincrbyfloat", 4, "hash", _WRITE, keys=(1, 1, 1))
def hincrbyfloat(run: Run, argv: Args) -> Reply:
    """Add a floating-point number to the value of a field."""
    key, field = argv[1], argv[2]
    if isinf(read_long_double(argv[3])):
        raise CommandError(b"ERR value is NaN or Infinity")
    value = run.database.of_kind(HashValue, key)
    old = b"0" if value is None else value.get(field, b"0")
    total = add_long_doubles(old, argv[3], b"ERR hash value is not a float")
    _put(run, [argv[0], key, field, total])
    # Followers must not depend on how sums are rounded.
    run.rewrite(b"HSET", key, field, total)
    return total


@command("hscan", -3, "hash", "readonly", keys=(1, 1, 1))
def hscan(run: Run, argv: Args) -> Reply:
    """Iterate over the fields and their values."""
    return scan_value(run, argv, HashValue, names_in, _pair)


def _pair(value: HashValue, name: bytes) -> tuple[bytes, ...]:
    held = value.get(name)
    return () if held is None else (name, held)
