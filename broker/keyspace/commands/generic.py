"""Commands for keys of any type (DEL, EXISTS, TYPE, SCAN, RENAME …) and whole databases."""

from __future__ import annotations

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.scanning import to_cursor, to_options
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError, syntax
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Reply, Status
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.globs import matcher
from delaylog.broker.keyspace.values.kinds import TYPE_NAMES

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
