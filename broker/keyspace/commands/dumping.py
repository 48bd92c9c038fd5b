"""RESTORE: creates a key from a DUMP of Redis up to 7.0, so that data can be moved to delaylog."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.dumps.forms import BadDump
from delaylog.broker.keyspace.dumps.reading import is_whole, load
from delaylog.broker.keyspace.errors import NOT_INTEGER, CommandError
from delaylog.broker.keyspace.options import Option, Options, at_least, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, INT64_MIN, to_int

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
