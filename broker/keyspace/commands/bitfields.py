"""BITFIELD: whole numbers of any width, anywhere in a string."""

from __future__ import annotations

from typing import Final, NamedTuple

from delaylog.broker.keyspace.commands.bits import bit_offset
from delaylog.broker.keyspace.commands.strings import grow, writable
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.number_texts import to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.run import Run

_NO_TYPE: Final = (
    b"ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but "
    b"i64 is."
)
_WORDS: Final = {b"get": 3, b"set": 4, b"incrby": 4}


class _Operation(NamedTuple):
    """One of a BITFIELD."""

    word: bytes
    signed: bool
    width: int
    offset: int
    given: int
    overflow: bytes


@command("bitfield", -2, "write denyoom", keys=(1, 1, 1))
def bitfield(run: Run, argv: Args) -> Reply:
    """Read and change numbers: GET type offset, SET|INCRBY type offset number, OVERFLOW how."""
    return _bitfield(run, argv, read_only=False)


@command("bitfield_ro", -2, "readonly fast", keys=(1, 1, 1))
def bitfield_ro(run: Run, argv: Args) -> Reply:
    """Read numbers: GET type offset."""
    return _bitfield(run, argv, read_only=True)


def _bitfield(run: Run, argv: Args, *, read_only: bool) -> Reply:
    operations = _operations(run, argv)
    database, key = run.database, argv[1]
    writes = [operation for operation in operations if operation.word != b"get"]
    if not writes:
        seen = database.string(key) or b""
        return [_number(seen, operation) for operation in operations]
    if read_only:
        raise CommandError(b"ERR BITFIELD_RO only supports the GET subcommand")
    last = max(operation.offset + operation.width - 1 for operation in writes)
    held = database.string(key)
    run.need((last >> 3) + 1 - len(held or b""))
    value = writable(database, key, held)
    grown = grow(value, (last >> 3) + 1)
    out: list[Reply] = []
    changes = 0
    for operation in operations:
        old = _number(value, operation)
        if operation.word == b"get":
            out.append(old)
            continue
        raw = operation.given
        if operation.word == b"incrby":
            raw += old
        elif not operation.signed:
            # SET of a negative number to an unsigned field sees its 64 bits.
            raw %= 2**64
        new = _fitted(raw, operation)
        if new is None:
            out.append(None)
            continue
        out.append(old if operation.word == b"set" else new)
        _write(value, operation, new)
        if grown or old != new:
            changes += 1
    if changes:
        database.changed(key, changes)
    elif grown:
        # All writes overflowed: nothing counts as changed, but the string has grown.
        run.keyspace.log(database.number, argv)
    return out


def _operations(run: Run, argv: Args) -> list[_Operation]:
    out: list[_Operation] = []
    overflow = b"wrap"
    at, end = 2, len(argv)
    while at < end:
        word = argv[at].lower()
        if word == b"overflow" and at + 1 < end:
            overflow = argv[at + 1].lower()
            if overflow not in (b"wrap", b"sat", b"fail"):
                raise CommandError(b"ERR Invalid OVERFLOW type specified")
            at += 2
            continue
        size = _WORDS.get(word)
        if size is None or at + size > end:
            raise syntax()
        kind = argv[at + 1]
        width = to_int(kind[1:], _NO_TYPE)
        signed = kind[:1] == b"i"
        if kind[:1] not in (b"i", b"u") or not 1 <= width <= (64 if signed else 63):
            raise CommandError(_NO_TYPE)
        offset = bit_offset(argv[at + 2], width=width, run=run)
        given = to_int(argv[at + 3]) if size == 4 else 0
        out.append(_Operation(word, signed, width, offset, given, overflow))
        at += size
    return out


def _place(operation: _Operation) -> tuple[int, int, int]:
    """First byte, the byte behind the last, and how many bits follow in it."""
    last = operation.offset + operation.width
    end = (last + 7) >> 3
    return operation.offset >> 3, end, end * 8 - last


def _number(value: bytes | bytearray, operation: _Operation) -> int:
    first, end, shift = _place(operation)
    chunk = bytes(value[first:end]).ljust(end - first, b"\0")
    number = int.from_bytes(chunk, "big") >> shift & (1 << operation.width) - 1
    if operation.signed and number >> operation.width - 1:
        number -= 1 << operation.width
    return number


def _write(value: bytearray, operation: _Operation, number: int) -> None:
    first, end, shift = _place(operation)
    mask = (1 << operation.width) - 1
    held = int.from_bytes(value[first:end], "big")
    held = held & ~(mask << shift) | (number & mask) << shift
    value[first:end] = held.to_bytes(end - first, "big")


def _fitted(number: int, operation: _Operation) -> int | None:
    """A number as it fits into a field; None if it does not and must not be made to."""
    width = operation.width
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if operation.signed else (0, 2**width - 1)
    if low <= number <= high:
        return number
    if operation.overflow == b"fail":
        return None
    if operation.overflow == b"sat":
        return high if number > high else low
    return (number - low) % (1 << width) + low
