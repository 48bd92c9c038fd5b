"""Commands for keys of any type (DEL, EXISTS, SCAN, EXPIRE, RESTORE …) and whole databases."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import (
    COUNT_OF_SCANS,
    SCAN_OPTIONS,
    Option,
    Options,
    at_least,
    read_options,
    to_cursor,
)
from delaylog.broker.keyspace.dumps import BadDump, is_whole, load
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, NOT_INTEGER, CommandError, c_text, syntax
from delaylog.broker.keyspace.keyspace import TYPE_NAMES
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import OK, Reply, Status
from delaylog.broker.keyspace.values.globs import matcher
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, INT64_MIN, to_int

# ---------------------------------------------------------------------- keys


@command("del", -2, "generic", "write", keys=(1, -1, 1))
def del_(run: Run, argv: Args) -> Reply:
    """Remove keys; returns the number of those that existed."""
    database = run.database
    removed = 0
    for key in argv[1:]:
        if database.find(key) is not None:
            database.remove(key)
            database.changed(key)
            removed += 1
    return removed


@command("unlink", -2, "generic", "write fast", keys=(1, -1, 1))
def unlink(run: Run, argv: Args) -> Reply:
    """DEL under another name: large values are always freed later."""
    return del_(run, argv)


@command("exists", -2, "generic", "readonly fast", keys=(1, -1, 1))
def exists(run: Run, argv: Args) -> Reply:
    """Count the keys that exist; a key that is named twice counts twice."""
    find = run.database.find
    return sum(find(key) is not None for key in argv[1:])


@command("type", 2, "generic", "readonly fast", keys=(1, 1, 1))
def type_(run: Run, argv: Args) -> Reply:
    """Return the type of the value of a key."""
    value = run.database.find(argv[1])
    return Status(b"none" if value is None else TYPE_NAMES[value.__class__])


@command("keys", 2, "generic", "readonly")
def keys(run: Run, argv: Args) -> Reply:
    """List the keys that match a pattern."""
    database = run.database
    # A single star matches all keys, also the empty one, unlike other patterns.
    match = matcher(argv[1]) if argv[1] != b"*" else lambda name: True
    expires, now_ms = database.expires, run.now_ms
    if not expires:
        return [key for key in database.values if match(key)]
    return [key for key in database.values if match(key) and expires.get(key, now_ms + 1) > now_ms]


_SCAN_OPTIONS: Final[Options] = {**SCAN_OPTIONS, b"type": Option("type", bytes.lower)}


@command("scan", -2, "generic", "readonly")
def scan(run: Run, argv: Args) -> Reply:
    """Iterate over the keys: cursor [MATCH pattern] [COUNT count] [TYPE type]."""
    cursor = to_cursor(argv[1])
    options = read_options(argv, 2, _SCAN_OPTIONS)
    database = run.database
    count = options.value("count", COUNT_OF_SCANS)
    following, names = run.shared.scans.read(database.values, run.keyspace.dirty, cursor, count)
    match, type_name = options.value("match"), options.value("type")
    out: list[bytes] = []
    for key in names:
        if match is not None and not match(key):
            continue
        value = database.find(key)
        if value is None:
            continue
        if type_name is None or TYPE_NAMES[value.__class__] == type_name:
            out.append(key)
    return [b"%d" % following, out]


# ---------------------------------------------------------------------- moving keys


@command("rename", 3, "generic", "write", keys=(1, 2, 1))
def rename(run: Run, argv: Args) -> Reply:
    """Rename a key, replacing the target."""
    _rename(run, argv, if_absent=False)
    return OK


@command("renamenx", 3, "generic", "write fast", keys=(1, 2, 1))
def renamenx(run: Run, argv: Args) -> Reply:
    """Rename a key unless the target exists."""
    return 1 if _rename(run, argv, if_absent=True) else 0


def _rename(run: Run, argv: Args, *, if_absent: bool) -> bool:
    database, (_, source, target) = run.database, argv
    if database.find(source) is None:
        raise CommandError(NO_SUCH_KEY)
    if source == target or (database.find(target) is not None and if_absent):
        return False
    taken = database.take(source)
    assert taken is not None
    value, at_ms = taken
    database.remove(target)
    database.put(target, value)
    if at_ms is not None:
        database.set_expiry(target, at_ms)
    database.changed(source)
    database.changed(target, 0)
    return True


# ---------------------------------------------------------------------- whole databases


@command("dbsize", 1, "generic", "readonly fast")
def dbsize(run: Run, argv: Args) -> Reply:
    """Count the keys of the database."""
    return len(run.database.values)


def _check_flush(argv: Args) -> None:
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() not in (b"sync", b"async")):
        raise syntax()


@command("flushdb", -1, "generic", "write audited")
def flushdb(run: Run, argv: Args) -> Reply:
    """Remove all keys of a database: [ASYNC|SYNC]."""
    _check_flush(argv)
    run.keyspace.dirty += run.database.clear()
    return OK


@command("flushall", -1, "generic", "write audited")
def flushall(run: Run, argv: Args) -> Reply:
    """Remove all keys: [ASYNC|SYNC]."""
    _check_flush(argv)
    run.keyspace.dirty += sum(database.clear() for database in run.keyspace.databases)
    return OK


# --------------------------------------------------------------------------- expiry
#
# The effect is an absolute time, or a DEL if that time has passed. Applying an effect reads no
# clock, so a PEXPIREAT in the log sets any time.

_CONDITIONS: Final = {word.encode(): Option(word) for word in ("nx", "xx", "gt", "lt")}
_NX_AND: Final = b"ERR NX and XX, GT or LT options at the same time are not compatible"
_GT_AND_LT: Final = b"ERR GT and LT options at the same time are not compatible"
_NO_LINES: Final = bytes.maketrans(b"\r\n", b"  ")


def _unsupported(word: bytes) -> CommandError:
    shown = c_text(word).translate(_NO_LINES)
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


# --------------------------------------------------------------------------- dumps
#
# RESTORE creates a key from a DUMP of Redis up to 7.0, so that data can be moved to delaylog.

_UNPACKED: Final = 4
"""Approximate ratio of a value's memory to the size of its dump."""


_IDLE: Final = b"ERR Invalid IDLETIME value, must be >= 0"
_FREQUENCY: Final = b"ERR Invalid FREQ value, must be >= 0 and <= 255"
_OPTIONS: Final[Options] = {
    b"replace": Option("replace"),
    b"absttl": Option("absttl"),
    # Checked, then ignored.
    b"idletime": Option("used", at_least(0, _IDLE, malformed=NOT_INTEGER)),
    b"freq": Option("used", at_least(0, _FREQUENCY, 255, malformed=NOT_INTEGER)),
}


@command("restore", -4, "generic", "write denyoom audited", keys=(1, 1, 1))
def restore(run: Run, argv: Args) -> Reply:
    """Create a key from a dump: ttl dump [REPLACE] [ABSTTL] [IDLETIME s] [FREQ count]."""
    found = read_options(argv, 4, _OPTIONS)
    database, key, payload = run.database, argv[1], argv[3]
    exists = database.find(key) is not None
    if exists and "replace" not in found:
        raise CommandError(b"BUSYKEY Target key name already exists.")
    ttl_ms = to_int(argv[2])
    if ttl_ms < 0:
        raise CommandError(b"ERR Invalid TTL value, must be >= 0")
    if not is_whole(payload):
        raise CommandError(b"ERR DUMP payload version or checksum are wrong")
    run.need(_UNPACKED * len(payload))
    try:
        value = load(payload)
    except BadDump:
        raise CommandError(b"ERR Bad data format") from None
    if exists:
        database.remove(key)
    at_ms = ttl_ms
    if ttl_ms and "absttl" not in found:
        # Redis adds in 64 bits: a sum that wraps around is negative, so the key has expired.
        at_ms = (ttl_ms + run.now_ms - INT64_MIN) % 2**64 + INT64_MIN
    if at_ms and at_ms <= run.now_ms and not run.keyspace.applying:
        if exists:
            run.rewrite(b"DEL", key)
            database.changed(key)
        return OK
    database.put(key, value)
    run.rewrite(b"RESTORE", key, b"%d" % at_ms, payload, b"REPLACE", b"ABSTTL")
    if at_ms:
        database.set_expiry(key, min(at_ms, INT64_MAX))
    database.changed(key)
    return OK
