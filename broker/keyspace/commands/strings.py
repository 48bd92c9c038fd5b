"""Strings: SET, GET and related commands."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import Found, Option, Options, read_options
from delaylog.broker.keyspace.errors import CommandError, wrong_arity
from delaylog.broker.keyspace.registry import Run, command, many
from delaylog.broker.keyspace.replies import OK, Reply, encode_values
from delaylog.broker.keyspace.values.number_texts import (
    INT64_MAX,
    INT64_MIN,
    add_long_doubles,
    to_int,
)

_EXPIRY_OPTIONS: Final = {
    # option: (milliseconds in its unit, whether it is a Unix time)
    b"ex": (1_000, False),
    b"px": (1, False),
    b"exat": (1_000, True),
    b"pxat": (1, True),
}
_ENDS: Final[Options] = dict.fromkeys(_EXPIRY_OPTIONS, Option("expiry", bytes))
_SET_OPTIONS: Final[Options] = {
    b"nx": Option("when"),
    b"xx": Option("when"),
    b"get": Option("get"),
    b"keepttl": Option("expiry"),
    **_ENDS,
}
_SPANS: Final = {b"EX": 1_000, b"ex": 1_000, b"PX": 1, b"px": 1}


@command("get", 2, "string", "readonly fast", keys=(1, 1, 1))
def get(run: Run, argv: Args) -> Reply:
    """Return the string of a key."""
    return run.database.string(argv[1])


@command("set", -3, "string", "write denyoom", keys=(1, 1, 1))
def set_(run: Run, argv: Args) -> Reply:
    """Set a key to a string: [NX|XX] [GET] [EX|PX|EXAT|PXAT time|KEEPTTL]."""
    database = run.database
    if len(argv) == 3:
        key = argv[1]
        database.put(key, argv[2])
        database.changed(key)
        return OK
    if len(argv) == 5 and (scale := _SPANS.get(argv[3])):
        # Fast path for `SET key value EX|PX time`, the usual form in job queues.
        at_ms = expiry_ms(run, argv[4], scale=scale, absolute=False, name=b"set")
        _store(run, argv[1], argv[2], at_ms)
        return OK
    return _set_with_options(run, argv)


@many("get")
def _get_many(run: Run, argvs: list[Args]) -> bool:
    values = run.database.strings([argv[1] for argv in argvs])
    if values is None:
        return False
    return encode_values(run.session.out, values, run.session.resp)


@many("set")
def _set_many(run: Run, argvs: list[Args]) -> bool:
    database = run.database
    if len(argvs[0]) > 3 or not database.put_strings(
        [argv[1] for argv in argvs], [argv[2] for argv in argvs]
    ):
        return False
    run.keyspace.log_many(database.number, argvs)
    run.session.out.append(b"+OK\r\n" * len(argvs))
    return True


def _set_with_options(run: Run, argv: Args) -> Reply:
    found = read_options(argv, 3, _SET_OPTIONS)
    at_ms = _end_of(run, found, b"set")
    wants_old, when = "get" in found, found.word("when")
    old = get(run, argv) if wants_old else None
    if when and (run.database.find(argv[1]) is not None) == (when == b"nx"):
        return old
    keep_ttl = "expiry" in found and at_ms is None
    _store(run, argv[1], argv[2], at_ms, keep_ttl=keep_ttl)
    return old if wants_old else OK


def _store(
    run: Run, key: bytes, value: bytes, at_ms: int | None, *, keep_ttl: bool = False
) -> None:
    """Set a key to a string, with an effect that depends on no state and no clock."""
    database = run.database
    if keep_ttl:
        # Removes the key if it has expired: such an expiry must not be kept.
        database.find(key)
    database.put(key, value, keep_ttl=keep_ttl)
    if at_ms is not None:
        database.set_expiry(key, at_ms)
        run.rewrite(b"SET", key, value, b"PXAT", b"%d" % at_ms)
    elif keep_ttl:
        run.rewrite(b"SET", key, value, b"KEEPTTL")
    else:
        run.rewrite(b"SET", key, value)
    database.changed(key)


def _end_of(run: Run, found: Found, name: bytes) -> int | None:
    """Return the expiry that the options set, or None. Raises CommandError."""
    given = found.value("expiry")
    if given is None:
        return None
    scale, absolute = _EXPIRY_OPTIONS[found.word("expiry")]
    return expiry_ms(run, given, scale=scale, absolute=absolute, name=name)


def expiry_ms(run: Run, text: bytes, *, scale: int, absolute: bool, name: bytes) -> int:
    """Return the expiry, in Unix ms, for the number after an option. Raises CommandError."""
    given = to_int(text)
    now_ms = 0 if absolute else run.now_ms
    if given <= 0 or given > INT64_MAX // scale or given * scale > INT64_MAX - now_ms:
        raise CommandError(b"ERR invalid expire time in '%b' command" % name)
    return given * scale + now_ms


@command("setnx", 3, "string", "write denyoom fast", keys=(1, 1, 1))
def setnx(run: Run, argv: Args) -> Reply:
    """Set a key to a string unless it exists."""
    if run.database.find(argv[1]) is not None:
        return 0
    _store(run, argv[1], argv[2], None)
    return 1


@command("setex", 4, "string", "write denyoom", keys=(1, 1, 1))
def setex(run: Run, argv: Args) -> Reply:
    """Set a key to a string with a time to live in seconds."""
    at_ms = expiry_ms(run, argv[2], scale=1_000, absolute=False, name=b"setex")
    _store(run, argv[1], argv[3], at_ms)
    return OK


@command("psetex", 4, "string", "write denyoom", keys=(1, 1, 1))
def psetex(run: Run, argv: Args) -> Reply:
    """Set a key to a string with a time to live in milliseconds."""
    at_ms = expiry_ms(run, argv[2], scale=1, absolute=False, name=b"psetex")
    _store(run, argv[1], argv[3], at_ms)
    return OK


@command("getset", 3, "string", "write denyoom fast", keys=(1, 1, 1))
def getset(run: Run, argv: Args) -> Reply:
    """Set a key to a string; returns the old one."""
    old = get(run, argv)
    _store(run, argv[1], argv[2], None)
    return old


@command("getdel", 2, "string", "write fast", keys=(1, 1, 1))
def getdel(run: Run, argv: Args) -> Reply:
    """Return the string of a key and remove the key."""
    old = get(run, argv)
    if old is not None:
        run.database.remove(argv[1])
        run.database.changed(argv[1])
        run.rewrite(b"DEL", argv[1])
    return old


@command("mget", -2, "string", "readonly fast", keys=(1, -1, 1))
def mget(run: Run, argv: Args) -> Reply:
    """Return the strings of keys; null for other kinds and missing keys."""
    found = map(run.database.find, argv[1:])
    return [value if value.__class__ is bytes else None for value in found]


@command("mset", -3, "string", "write denyoom", keys=(1, -1, 2))
def mset(run: Run, argv: Args) -> Reply:
    """Set keys to strings."""
    if len(argv) % 2 == 0:
        raise wrong_arity(b"mset")
    database = run.database
    for at in range(1, len(argv), 2):
        database.put(argv[at], argv[at + 1])
        database.changed(argv[at])
    return OK


@command("strlen", 2, "string", "readonly fast", keys=(1, 1, 1))
def strlen(run: Run, argv: Args) -> Reply:
    """Return the length of a string in bytes."""
    value = run.database.string(argv[1])
    return 0 if value is None else len(value)


# --------------------------------------------------------------------------- numbers


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
    total = add_long_doubles(b"0" if value is None else value, argv[2])
    database.put(key, total, keep_ttl=True)
    database.changed(key)
    # Followers must not depend on how sums are rounded.
    run.rewrite(b"SET", key, total, b"KEEPTTL")
    return total
