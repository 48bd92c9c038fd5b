"""Strings: SET, GET and related commands; parts of strings.

A string is `bytes`. Its first change in place makes it a `bytearray`, which only the database may
reference: replies are copies. OBJECT ENCODING returns `raw` for it, as Redis does.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.database import Database
from delaylog.broker.keyspace.encoding import encode_values
from delaylog.broker.keyspace.errors import CommandError, wrong_arity
from delaylog.broker.keyspace.options import Found, Option, Options, read_options
from delaylog.broker.keyspace.registry import command, many
from delaylog.broker.keyspace.replies import OK, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_int

STRING_BYTES_MAX: Final = 512 * 1024 * 1024
"""The default of `proto-max-bulk-len`."""
_TOO_LONG: Final = b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"
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
_GETEX_OPTIONS: Final[Options] = {b"persist": Option("expiry"), **_ENDS}
_SPANS: Final = {b"EX": 1_000, b"ex": 1_000, b"PX": 1, b"px": 1}


@command("get", 2, "string", "readonly fast", keys=(1, 1, 1))
def get(run: Run, argv: Args) -> Reply:
    """Return the string of a key."""
    value = run.database.string(argv[1])
    return bytes(value) if value.__class__ is bytearray else value


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


@command("getex", -2, "string", "write fast", keys=(1, 1, 1))
def getex(run: Run, argv: Args) -> Reply:
    """Return the string of a key and set its expiry: [EX|PX|EXAT|PXAT time|PERSIST]."""
    found = read_options(argv, 2, _GETEX_OPTIONS)
    key, database = argv[1], run.database
    value = get(run, argv)
    if value is None:
        return None
    at_ms = _end_of(run, found, b"getex")
    if at_ms is not None:
        # Only EXAT and PXAT can set an expiry in the past.
        if at_ms <= run.now_ms:
            database.remove(key)
            run.rewrite(b"DEL", key)
        else:
            database.set_expiry(key, at_ms)
            run.rewrite(b"PEXPIREAT", key, b"%d" % at_ms)
        database.changed(key)
    elif "expiry" in found and key in database.expires:
        database.set_expiry(key, None)
        run.rewrite(b"PERSIST", key)
        database.changed(key)
    return value


@command("mget", -2, "string", "readonly fast", keys=(1, -1, 1))
def mget(run: Run, argv: Args) -> Reply:
    """Return the strings of keys; null for other kinds and missing keys."""
    find = run.database.find
    out: list[bytes | None] = []
    copies: dict[bytes, bytes] = {}
    for key in argv[1:]:
        value = find(key)
        if value.__class__ is bytes:
            out.append(value)
        elif value.__class__ is bytearray:
            # A key that is named several times is copied once.
            copy = copies.get(key)
            if copy is None:
                copy = copies[key] = bytes(value)
            out.append(copy)
        else:
            out.append(None)
    return out


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


@command("msetnx", -3, "string", "write denyoom", keys=(1, -1, 2))
def msetnx(run: Run, argv: Args) -> Reply:
    """Set keys to strings unless one of them exists."""
    if len(argv) % 2 == 0:
        raise wrong_arity(b"msetnx")
    if any(run.database.find(key) is not None for key in argv[1::2]):
        return 0
    mset(run, argv)
    return 1


# ---------------------------------------------------------------------- parts


@command("strlen", 2, "string", "readonly fast", keys=(1, 1, 1))
def strlen(run: Run, argv: Args) -> Reply:
    """Return the length of a string in bytes."""
    value = run.database.string(argv[1])
    return 0 if value is None else len(value)


@command("getrange", 4, "string", "readonly", keys=(1, 1, 1))
def getrange(run: Run, argv: Args) -> Reply:
    """Return the bytes from an index through another; negative ones count from the end."""
    start, end = to_int(argv[2]), to_int(argv[3])
    value = run.database.string(argv[1])
    if value is None:
        return b""
    return bytes(value[byte_range(len(value), start, end)])


@command("substr", 4, "string", "readonly", keys=(1, 1, 1))
def substr(run: Run, argv: Args) -> Reply:
    """GETRANGE by its old name."""
    return getrange(run, argv)


def byte_range(size: int, start: int, end: int) -> slice:
    """Convert `start` and `end` of GETRANGE for a string of `size` bytes."""
    if start < 0 and end < 0 and start > end:
        return slice(0, 0)
    if start < 0:
        start = max(start + size, 0)
    if end < 0:
        # An end before the first byte means the first byte: `GETRANGE k 0 -100` returns one byte.
        end = max(end + size, 0)
    return slice(start, min(end, size - 1) + 1)


@command("append", 3, "string", "write denyoom fast", keys=(1, 1, 1))
def append(run: Run, argv: Args) -> Reply:
    """Append to a string."""
    database, key, more = run.database, argv[1], argv[2]
    value = database.string(key)
    if value is None:
        database.put(key, more)
        database.changed(key)
        return len(more)
    check_length(len(value) + len(more))
    changed = writable(database, key, value)
    changed += more
    database.changed(key)
    return len(changed)


@command("setrange", 4, "string", "write denyoom", keys=(1, 1, 1))
def setrange(run: Run, argv: Args) -> Reply:
    """Overwrite a part of a string, which is extended with zero bytes."""
    database, key, part = run.database, argv[1], argv[3]
    offset = to_int(argv[2])
    if offset < 0:
        raise CommandError(b"ERR offset is out of range")
    value = database.string(key)
    if not part:
        return 0 if value is None else len(value)
    check_length(offset + len(part))
    run.need(offset + len(part) - len(value or b""))
    changed = writable(database, key, value)
    grow(changed, offset)
    changed[offset : offset + len(part)] = part
    database.changed(key)
    return len(changed)


def check_length(size: int) -> None:
    """Check the size limit of strings. Raises CommandError."""
    if size > STRING_BYTES_MAX:
        raise CommandError(_TOO_LONG)


def writable(database: Database, key: bytes, value: bytes | bytearray | None) -> bytearray:
    """Return the string of a key as a `bytearray` to change; `value` is the present value."""
    if isinstance(value, bytearray):
        return value
    made = database.values[key] = bytearray(value or b"")
    return made


def grow(value: bytearray, size: int) -> None:
    """Extend with zero bytes to a size."""
    value += bytes(max(0, size - len(value)))
