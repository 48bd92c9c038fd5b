"""Commands for keys of any type (DEL, EXISTS, TYPE, SCAN, RENAME, COPY …) and whole databases."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.scanning import to_cursor, to_options
from delaylog.broker.keyspace.database import Database
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError, syntax
from delaylog.broker.keyspace.options import Option, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Reply, Status
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.copies import copied
from delaylog.broker.keyspace.values.globs import matcher
from delaylog.broker.keyspace.values.kinds import TYPE_NAMES, Value
from delaylog.broker.keyspace.values.number_texts import to_int

_NO_DATABASE: Final = b"ERR DB index is out of range"
_SAME: Final = b"ERR source and destination objects are the same"
_NO_C_INT: Final = b"ERR value is out of range, value must between -2147483648 and 2147483647"
_FEW_KEYS: Final = 1_024
_ELEMENT_BYTES: Final = 64
"""Approximate memory of an element in a copy that shares its bytes."""


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


@command("touch", -2, "generic", "readonly fast", keys=(1, -1, 1))
def touch(run: Run, argv: Args) -> Reply:
    """Count the keys that exist. Access times are not recorded."""
    return exists(run, argv)


@command("type", 2, "generic", "readonly fast", keys=(1, 1, 1))
def type_(run: Run, argv: Args) -> Reply:
    """Return the type of the value of a key."""
    value = run.database.find(argv[1])
    return Status(b"none" if value is None else TYPE_NAMES[value.__class__])


@command("keys", 2, "generic", "readonly @dangerous")
def keys(run: Run, argv: Args) -> Reply:
    """List the keys that match a pattern."""
    database = run.database
    # A single star matches all keys, also the empty one, unlike other patterns.
    match = matcher(argv[1]) if argv[1] != b"*" else lambda name: True
    expires, now_ms = database.expires, run.now_ms
    if not expires:
        return [key for key in database.values if match(key)]
    return [key for key in database.values if match(key) and expires.get(key, now_ms + 1) > now_ms]


@command("scan", -2, "generic", "readonly")
def scan(run: Run, argv: Args) -> Reply:
    """Iterate over the keys: cursor [MATCH pattern] [COUNT count] [TYPE type]."""
    cursor = to_cursor(argv[1])
    options = to_options(argv, 2, with_type=True)
    database = run.database
    following, names = run.shared.scans.read(
        database.values, run.keyspace.dirty, cursor, options.count
    )
    match, type_name = options.match, options.type_name
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


@command("randomkey", 1, "generic", "readonly")
def randomkey(run: Run, argv: Args) -> Reply:
    """Return a random key."""
    database, keyspace = run.database, run.keyspace
    while database.values:
        if len(database.values) <= _FEW_KEYS:
            key: bytes | None = keyspace.random.choice(list(database.values))
        else:
            key = run.shared.scans.pick(database.values, keyspace.dirty, keyspace.random)
        # A follower keeps expired keys until the leader removes them. It may have no others.
        if key is None or database.find(key) is not None or not keyspace.may_expire:
            return key
    return None


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
    _overwrite(database, target, *taken)
    database.changed(source)
    database.changed(target, 0)
    return True


def _overwrite(database: Database, key: bytes, value: Value, at_ms: int | None) -> None:
    """Put a value and its expiry in place of the key's old value."""
    database.remove(key)
    database.put(key, value)
    if at_ms is not None:
        database.set_expiry(key, at_ms)


@command("move", 3, "generic", "write fast", keys=(1, 1, 1))
def move(run: Run, argv: Args) -> Reply:
    """Move a key to another database."""
    key, source = argv[1], run.database
    target = _database(run, argv[2])
    if target is source:
        raise CommandError(_SAME)
    if source.find(key) is None or target.find(key) is not None:
        return 0
    taken = source.take(key)
    assert taken is not None
    _overwrite(target, key, *taken)
    source.changed(key)
    target.changed(key, 0)
    return 1


@command("copy", -3, "generic", "write denyoom", keys=(1, 2, 1))
def copy(run: Run, argv: Args) -> Reply:
    """Copy the value of a key to another key: [DB number] [REPLACE]."""
    database, source_key, target_key = run.database, argv[1], argv[2]
    to_database = Option("db", lambda text: _database(run, text))
    found = read_options(argv, 3, {b"replace": Option("replace"), b"db": to_database})
    target = found.value("db", database)
    if target is database and source_key == target_key:
        raise CommandError(_SAME)
    value = database.find(source_key)
    if value is None or (target.find(target_key) is not None and "replace" not in found):
        return 0
    if not isinstance(value, bytes):
        size = 1 if isinstance(value, bytearray) else _ELEMENT_BYTES
        run.need(size * len(value))
    _overwrite(target, target_key, copied(value), database.expires.get(source_key))
    target.changed(target_key)
    return 1


def _c_int(text: bytes, refusal: bytes | None = None) -> int:
    """Parse a 32-bit integer. Raises CommandError."""
    number = to_int(text) if refusal is None else to_int(text, refusal)
    if not -(2**31) <= number < 2**31:
        raise CommandError(refusal or _NO_C_INT)
    return number


def _database(run: Run, text: bytes, refusal: bytes | None = None) -> Database:
    number = _c_int(text, refusal)
    if not 0 <= number < len(run.keyspace.databases):
        raise CommandError(_NO_DATABASE)
    return run.keyspace.databases[number]


# ---------------------------------------------------------------------- whole databases


@command("dbsize", 1, "generic", "readonly fast")
def dbsize(run: Run, argv: Args) -> Reply:
    """Count the keys of the database."""
    return len(run.database.values)


@command("swapdb", 3, "generic", "write fast @dangerous")
def swapdb(run: Run, argv: Args) -> Reply:
    """Exchange the contents of two databases; clients keep their database number."""
    keyspace = run.keyspace
    numbers = [
        _c_int(argv[1], b"ERR invalid first DB index"),
        _c_int(argv[2], b"ERR invalid second DB index"),
    ]
    if not all(0 <= number < len(keyspace.databases) for number in numbers):
        raise CommandError(_NO_DATABASE)
    first, second = (keyspace.databases[number] for number in numbers)
    keyspace.dirty += 1
    if first is second:
        return OK
    first.values, second.values = second.values, first.values
    first.expires, second.expires = second.expires, first.expires
    keyspace.line_up_expiry()
    for database in (first, second):
        for key in [*database.watchers, *database.waiters]:
            if key in first.values or key in second.values:
                database.notify(key)
    return OK


def _check_flush(argv: Args) -> None:
    if len(argv) > 2 or (len(argv) == 2 and argv[1].lower() not in (b"sync", b"async")):
        raise syntax()


@command("flushdb", -1, "generic", "write @dangerous")
def flushdb(run: Run, argv: Args) -> Reply:
    """Remove all keys of a database: [ASYNC|SYNC]."""
    _check_flush(argv)
    run.keyspace.dirty += run.database.clear()
    return OK


@command("flushall", -1, "generic", "write @dangerous")
def flushall(run: Run, argv: Args) -> Reply:
    """Remove all keys: [ASYNC|SYNC]."""
    _check_flush(argv)
    run.keyspace.dirty += sum(database.clear() for database in run.keyspace.databases)
    return OK


@command("wait", 3, "generic", "noscript @connection")
def wait(run: Run, argv: Args) -> Reply:
    """Wait for Redis replicas, of which there are none: count ms."""
    wanted = to_int(argv[1])
    timeout_ms = to_int(argv[2], b"ERR timeout is not an integer or out of range")
    if timeout_ms < 0:
        raise CommandError(b"ERR timeout is negative")
    if wanted <= 0:
        return 0
    return run.wait(argv, [], timeout_ms, 0)
