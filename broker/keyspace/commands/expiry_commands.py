"""Expiry of keys: EXPIRE, TTL, PERSIST and related commands.

The effect is an absolute time, or a DEL if that time has passed. Applying an effect reads no clock,
so a PEXPIREAT in the log sets any time.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.options import Option, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, INT64_MIN, to_int

_CONDITIONS: Final = {word.encode(): Option(word) for word in ("nx", "xx", "gt", "lt")}
_NX_AND: Final = b"ERR NX and XX, GT or LT options at the same time are not compatible"
_GT_AND_LT: Final = b"ERR GT and LT options at the same time are not compatible"
_NO_LINES: Final = bytes.maketrans(b"\r\n", b"  ")


def _unsupported(word: bytes) -> CommandError:
    shown = word.split(b"\0")[0].translate(_NO_LINES)
    return CommandError(b"ERR Unsupported option " + shown)


def _conditions(argv: Args) -> Set[str]:
    given = read_options(argv, 3, _CONDITIONS, _unsupported).keys()
    if "nx" in given and len(given) > 1:
        raise CommandError(_NX_AND)
    if {"gt", "lt"} <= given:
        raise CommandError(_GT_AND_LT)
    return given


def _expire(run: Run, argv: Args, *, base_ms: int, scale: int, name: bytes) -> Reply:
    given = _conditions(argv) if len(argv) > 3 else ()
    at_ms = to_int(argv[2])
    key, database = argv[1], run.database
    # The lower bound is rounded towards zero, as C divides.
    if scale != 1 and not -(-INT64_MIN // scale) <= at_ms <= INT64_MAX // scale:
        raise CommandError(b"ERR invalid expire time in '%b' command" % name)
    at_ms *= scale
    if at_ms > INT64_MAX - base_ms:
        raise CommandError(b"ERR invalid expire time in '%b' command" % name)
    at_ms += base_ms
    if database.find(key) is None:
        return 0
    if given:
        now = database.expires.get(key)
        if (
            ("nx" in given and now is not None)
            or ("xx" in given and now is None)
            or ("gt" in given and (now is None or at_ms <= now))
            or ("lt" in given and now is not None and at_ms >= now)
        ):
            return 0
    if at_ms <= run.now_ms and not run.keyspace.applying:
        database.remove(key)
        run.rewrite(b"DEL", key)
    else:
        database.set_expiry(key, at_ms)
        run.rewrite(b"PEXPIREAT", key, b"%d" % at_ms)
    database.changed(key)
    return 1


@command("expire", -3, "generic", "write fast", keys=(1, 1, 1))
def expire(run: Run, argv: Args) -> Reply:
    """Set the time to live of a key, in seconds: [NX|XX|GT|LT]."""
    return _expire(run, argv, base_ms=run.now_ms, scale=1_000, name=b"expire")


@command("pexpire", -3, "generic", "write fast", keys=(1, 1, 1))
def pexpire(run: Run, argv: Args) -> Reply:
    """Set the time to live of a key, in milliseconds."""
    return _expire(run, argv, base_ms=run.now_ms, scale=1, name=b"pexpire")


@command("expireat", -3, "generic", "write fast", keys=(1, 1, 1))
def expireat(run: Run, argv: Args) -> Reply:
    """Set the expiry of a key, as a Unix time in seconds."""
    return _expire(run, argv, base_ms=0, scale=1_000, name=b"expireat")


@command("pexpireat", -3, "generic", "write fast", keys=(1, 1, 1))
def pexpireat(run: Run, argv: Args) -> Reply:
    """Set the expiry of a key, as a Unix time in milliseconds."""
    return _expire(run, argv, base_ms=0, scale=1, name=b"pexpireat")


def _ends_ms(run: Run, key: bytes) -> int:
    """Return the expiry of a key; -1 = never, -2 = there is no such key."""
    if run.database.find(key) is None:
        return -2
    return run.database.expires.get(key, -1)


@command("ttl", 2, "generic", "readonly fast", keys=(1, 1, 1))
def ttl(run: Run, argv: Args) -> Reply:
    """Return the time to live of a key, in seconds."""
    at_ms = _ends_ms(run, argv[1])
    return at_ms if at_ms < 0 else (max(at_ms - run.now_ms, 0) + 500) // 1_000


@command("pttl", 2, "generic", "readonly fast", keys=(1, 1, 1))
def pttl(run: Run, argv: Args) -> Reply:
    """Return the time to live of a key, in milliseconds."""
    at_ms = _ends_ms(run, argv[1])
    return at_ms if at_ms < 0 else max(at_ms - run.now_ms, 0)


@command("persist", 2, "generic", "write fast", keys=(1, 1, 1))
def persist(run: Run, argv: Args) -> Reply:
    """Remove the expiry of a key."""
    database, key = run.database, argv[1]
    if database.find(key) is None or key not in database.expires:
        return 0
    database.set_expiry(key, None)
    database.changed(key)
    return 1
