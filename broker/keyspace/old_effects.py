"""Effects of commands that 0.1.0 had and this release does not have.

Logs of 0.1.0 contain them, and its leaders send them during a rolling upgrade, so they are applied
as that release applied them. Other removed commands left effects that still are commands: GEOADD a
ZADD, SORT and GEOSEARCHSTORE a DEL and an RPUSH or ZADD.

An effect was accepted when it was logged, so nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.strings import grow, writable
from delaylog.broker.keyspace.database import Database


def apply_old(database: Database, argv: Args) -> bool:
    """Apply an effect of a removed command; returns False if there was no such command."""
    apply = _EFFECTS.get(argv[0].lower())
    if apply is None:
        return False
    apply(database, argv)
    return True


def _setbit(database: Database, argv: Args) -> None:
    """SETBIT key offset bit; bit 0 is the highest one of byte 0."""
    key, offset = argv[1], int(argv[2])
    value = writable(database, key, database.string(key))
    index, mask = offset >> 3, 128 >> (offset & 7)
    grow(value, index + 1)
    if argv[3] == b"1":
        value[index] |= mask
    else:
        value[index] &= ~mask
    database.changed(key)


def _bitop(database: Database, argv: Args) -> None:
    """BITOP AND|OR|XOR|NOT target key ...; shorter strings go on with zeros."""
    operation, target = argv[1].lower(), argv[2]
    sources = [database.string(key) or b"" for key in argv[3:]]
    size = max(map(len, sources))
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
    if size:
        database.put(target, bytearray(total.to_bytes(size, "little")))
    else:
        database.remove(target)
    database.changed(target)


class _Field(NamedTuple):
    """A write of BITFIELD into `width` bits from `offset` on."""

    adds: bool
    signed: bool
    width: int
    offset: int
    given: int
    overflow: bytes


def _bitfield(database: Database, argv: Args) -> None:
    """BITFIELD key (GET type offset | SET type offset number | INCRBY type offset number |
    OVERFLOW WRAP|SAT|FAIL) ...
    """
    key, fields = argv[1], list(_fields(argv))
    value = writable(database, key, database.string(key))
    grow(value, max((field.offset + field.width + 7) >> 3 for field in fields))
    for field in fields:
        last = field.offset + field.width
        first, end = field.offset >> 3, (last + 7) >> 3
        shift, mask = end * 8 - last, (1 << field.width) - 1
        window = int.from_bytes(value[first:end], "big")
        old = window >> shift & mask
        if field.signed and old >> field.width - 1:
            old -= 1 << field.width
        new = _fitted(field.given + old if field.adds else field.given, field)
        if new is not None:
            window = window & ~(mask << shift) | (new & mask) << shift
            value[first:end] = window.to_bytes(end - first, "big")
    database.changed(key)


def _fields(argv: Args) -> Iterator[_Field]:
    overflow, at = b"wrap", 2
    while at < len(argv):
        word = argv[at].lower()
        if word == b"overflow":
            overflow = argv[at + 1].lower()
            at += 2
        elif word == b"get":
            at += 3
        else:
            kind, offset, given = argv[at + 1 : at + 4]
            signed, width = kind[:1] == b"i", int(kind[1:])
            # `#3` is the fourth field of this width; Redis multiplies in 64 bits.
            first = int(offset[1:]) * width % 2**64 if offset[:1] == b"#" else int(offset)
            number = int(given)
            if word == b"set" and not signed:
                # An unsigned field sees the 64 bits of a negative number.
                number %= 2**64
            yield _Field(word == b"incrby", signed, width, first, number, overflow)
            at += 4


def _fitted(number: int, field: _Field) -> int | None:
    """Return a number as it fits into a field; None if it overflows and OVERFLOW is FAIL."""
    low = -(1 << field.width - 1) if field.signed else 0
    high = low + (1 << field.width) - 1
    if low <= number <= high:
        return number
    if field.overflow == b"fail":
        return None
    if field.overflow == b"sat":
        return high if number > high else low
    return (number - low) % (1 << field.width) + low


_EFFECTS: Final[dict[bytes, Callable[[Database, Args], None]]] = {
    b"setbit": _setbit,
    b"bitop": _bitop,
    b"bitfield": _bitfield,
}
