"""Strings as rows of bits: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP.

Bit 0 is the highest one of byte 0.
"""

from __future__ import annotations

import re
from typing import Final

from delaylog.broker.keyspace.commands.strings import STRING_BYTES_MAX, grow, writable
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.number_texts import to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.run import Run

_NO_OFFSET: Final = b"ERR bit offset is not an integer or out of range"
_NO_BIT: Final = b"ERR bit is not an integer or out of range"
_SLICE_BYTES: Final = 1 << 20
_SOME_ONE: Final = re.compile(rb"[^\x00]").search
_SOME_ZERO: Final = re.compile(rb"[^\xff]").search


def bit_offset(text: bytes, *, width: int = 0, run: Run) -> int:
    """The number of a bit; `#3` is that of the fourth field if fields have a `width`.

    Raises CommandError.
    """
    if width and text[:1] == b"#":
        # C multiplies in 64 bits.
        offset = (to_int(text[1:], _NO_OFFSET) * width + 2**63) % 2**64 - 2**63
    else:
        offset = to_int(text, _NO_OFFSET)
    if offset < 0 or (offset >> 3 >= STRING_BYTES_MAX and not run.keyspace.applying):
        raise CommandError(_NO_OFFSET)
    return offset


@command("setbit", 4, "write denyoom", keys=(1, 1, 1))
def setbit(run: Run, argv: Args) -> Reply:
    """Set a bit, answer what it was."""
    database, key = run.database, argv[1]
    offset = bit_offset(argv[2], run=run)
    bit = to_int(argv[3], _NO_BIT)
    if bit not in (0, 1):
        raise CommandError(_NO_BIT)
    held = database.string(key)
    run.need((offset >> 3) + 1 - len(held or b""))
    value = writable(database, key, held)
    index, mask = offset >> 3, 128 >> (offset & 7)
    grown = grow(value, index + 1)
    old = 1 if value[index] & mask else 0
    if old != bit:
        value[index] ^= mask
    if grown or old != bit:
        database.changed(key)
    return old


@command("getbit", 3, "readonly fast", keys=(1, 1, 1))
def getbit(run: Run, argv: Args) -> Reply:
    """A bit; beyond the end they are 0."""
    offset = bit_offset(argv[2], run=run)
    value = run.database.string(argv[1])
    index = offset >> 3
    if value is None or index >= len(value):
        return 0
    return value[index] >> (7 - (offset & 7)) & 1


def _unit(text: bytes) -> int:
    """How many bits an index of BITCOUNT or BITPOS counts. Raises CommandError."""
    unit = {b"bit": 1, b"byte": 8}.get(text.lower())
    if unit is None:
        raise syntax()
    return unit


def _bits_between(size: int, start: int, end: int) -> tuple[int, int]:
    """`start` and `end` within `size`, both counting; negative ones count from the end."""
    if start < 0:
        start = max(start + size, 0)
    if end < 0:
        end = max(end + size, 0)
    return start, min(end, size - 1)


@command("bitcount", -2, "readonly", keys=(1, 1, 1))
def bitcount(run: Run, argv: Args) -> Reply:
    """How many bits are 1: [start end [BYTE|BIT]]."""
    value = run.database.string(argv[1])
    if value is None:
        return 0
    if len(argv) == 2:
        return _ones(value, 0, len(value) * 8)
    if len(argv) not in (4, 5):
        raise syntax()
    start, end = to_int(argv[2]), to_int(argv[3])
    if start < 0 and end < 0 and start > end:
        return 0
    unit = _unit(argv[4]) if len(argv) == 5 else 8
    start, end = _bits_between(len(value) * 8 // unit, start, end)
    if start > end:
        return 0
    return _ones(value, start * unit, (end + 1) * unit)


def _ones(value: bytes | bytearray, start: int, end: int) -> int:
    """Bits that are 1, from bit `start` to before bit `end`."""
    first, last = start >> 3, (end + 7) >> 3
    total = 0
    for at in range(first, last, _SLICE_BYTES):
        total += int.from_bytes(value[at : min(at + _SLICE_BYTES, last)], "big").bit_count()
    if start & 7:
        total -= (value[first] >> (8 - (start & 7))).bit_count()
    if end & 7:
        total -= (value[last - 1] & 0xFF >> (end & 7)).bit_count()
    return total


@command("bitpos", -3, "readonly", keys=(1, 1, 1))
def bitpos(run: Run, argv: Args) -> Reply:
    """The first bit that is 0, or 1: bit [start [end [BYTE|BIT]]]."""
    bit = to_int(argv[2])
    if bit not in (0, 1):
        raise CommandError(b"ERR The bit argument must be 1 or 0.")
    value = run.database.string(argv[1])
    if value is None:
        return -1 if bit else 0
    if len(argv) > 6:
        raise syntax()
    unit = 8
    start = to_int(argv[3]) if len(argv) > 3 else 0
    if len(argv) == 6:
        unit = _unit(argv[5])
    size = len(value) * 8 // unit
    end = to_int(argv[4]) if len(argv) > 4 else size - 1
    start, end = _bits_between(size, start, end)
    if start > end:
        return -1
    found = _first(value, bit, start * unit, (end + 1) * unit)
    if found < 0 and bit == 0 and len(argv) <= 4:
        # Without an end the string goes on with zeros.
        return len(value) * 8
    return found


def _first(value: bytes | bytearray, bit: int, start: int, end: int) -> int:
    """The first bit like `bit` from bit `start` to before bit `end`, or -1."""
    search = _SOME_ONE if bit else _SOME_ZERO
    at, last = start >> 3, (end + 7) >> 3
    skipped = start & 7
    while found := search(value, at, last):
        at = found.start()
        byte = value[at] if bit else value[at] ^ 0xFF
        if at == start >> 3:
            byte &= 0xFF >> skipped
        if byte:
            position = at * 8 + 8 - byte.bit_length()
            return position if position < end else -1
        at += 1
    return -1


@command("bitop", -4, "write denyoom", keys=(2, -1, 1))
def bitop(run: Run, argv: Args) -> Reply:
    """Combine strings by AND, OR, XOR, NOT into a key."""
    database, target = run.database, argv[2]
    operation = argv[1].lower()
    if operation not in (b"and", b"or", b"xor", b"not"):
        raise syntax()
    if operation == b"not" and len(argv) != 4:
        raise CommandError(b"ERR BITOP NOT must be called with a single source key.")
    sources = [database.string(key) or b"" for key in argv[3:]]
    size = max(map(len, sources))
    if size:
        # The numbers they are combined as, and what comes of it.
        run.need(4 * size)
        # Shorter strings go on with zeros, as numbers do whose lowest byte comes first.
        total = int.from_bytes(sources[0], "little")
        if operation == b"not":
            total ^= (1 << size * 8) - 1
        for source in sources[1:]:
            number = int.from_bytes(source, "little")
            if operation == b"and":
                total &= number
            elif operation == b"or":
                total |= number
            else:
                total ^= number
        database.put(target, bytearray(total.to_bytes(size, "little")))
        database.changed(target)
    elif database.find(target) is not None:
        database.remove(target)
        database.changed(target)
    return size
