"""Strings: SET and its kin."""

from __future__ import annotations

from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.numbers import INT64_MAX, to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import OK, Reply
from delaylog.broker.keyspace.run import Run


@command("get", 2, "readonly fast", keys=(1, 1, 1))
def get(run: Run, argv: Args) -> Reply:
    """The string of a key."""
    return run.database.string(argv[1])


@command("set", -3, "write denyoom", keys=(1, 1, 1))
def set_(run: Run, argv: Args) -> Reply:
    """Give a key a string."""
    database = run.database
    if len(argv) == 3:
        key = argv[1]
        database.put(key, argv[2])
        database.changed(key)
        return OK
    raise syntax()


def expiry_ms(run: Run, text: bytes, *, scale: int, absolute: bool, name: bytes) -> int:
    """When a key ends by an option's number. Raises CommandError."""
    given = to_int(text)
    refusal = CommandError(b"ERR invalid expire time in '%b' command" % name)
    if given <= 0 or given > INT64_MAX // scale:
        raise refusal
    at_ms = given * scale
    if not absolute:
        if at_ms > INT64_MAX - run.now_ms:
            raise refusal
        at_ms += run.now_ms
    return at_ms
