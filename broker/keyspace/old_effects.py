"""Effects of commands that 0.1.0 had and this release does not have.

Logs of 0.1.0 contain them, and its leaders send them during a rolling upgrade, so they are applied
as that release applied them. Other removed commands left effects that still are commands: GEOADD a
ZADD, SORT and GEOSEARCHSTORE a DEL and an RPUSH or ZADD, LMPOP an LPOP or RPOP.

An effect was accepted when it was logged, so nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isnan
from typing import Any, Final, NamedTuple, TypeAlias

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.database import Database
from delaylog.broker.keyspace.snapshots.kinds import KINDS
from delaylog.broker.keyspace.values.number_texts import to_score
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue, of_scores

Scores: TypeAlias = dict[bytes, float]
Aggregate: TypeAlias = Callable[[float, float], float]


def apply_old(database: Database, argv: Args) -> bool:
    """Apply an effect of a removed command; returns False if there was no such command."""
    apply = _EFFECTS.get(argv[0].lower())
    if apply is None:
        return False
    apply(database, argv)
    return True


# ---------------------------------------------------------------------- keys


def _copy(database: Database, argv: Args) -> None:
    """COPY source target [DB number] [REPLACE]."""
    source, target = argv[1:3]
    words = [word.lower() for word in argv[3:]]
    to = (
        database.keyspace.databases[int(words[words.index(b"db") + 1])]
        if b"db" in words
        else database
    )
    at_ms = database.expires.get(source)
    to.put(target, _copied(database.values[source]))
    if at_ms is not None:
        to.set_expiry(target, at_ms)
    to.changed(target)


def _copied(value: Any) -> Any:
    """A copy that shares no mutable object with `value`."""
    kind = KINDS[type(value)]
    (first, _), *more = kind.parts(value)
    made = kind.make(first)
    for part, _ in more:
        kind.extend(made, part)
    return made


def _move(database: Database, argv: Args) -> None:
    """MOVE key number."""
    key, to = argv[1], database.keyspace.databases[int(argv[2])]
    taken = database.take(key)
    assert taken is not None, "there was such a key"
    value, at_ms = taken
    to.put(key, value)
    if at_ms is not None:
        to.set_expiry(key, at_ms)
    database.changed(key)
    to.changed(key, 0)


def _swap(database: Database, argv: Args) -> None:
    """SWAPDB number number."""
    keyspace = database.keyspace
    first, second = (keyspace.databases[int(number)] for number in argv[1:])
    first.values, second.values = second.values, first.values
    first.expires, second.expires = second.expires, first.expires
    keyspace.dirty += 1
    for each in (first, second):
        for key in [*each.watchers, *each.waiters]:
            each.notify(key)


# ---------------------------------------------------------------------- sorted sets


def _combine(database: Database, argv: Args) -> None:
    """ZUNIONSTORE, ZINTERSTORE or ZDIFFSTORE: target count key ... [WEIGHTS weight ...]
    [AGGREGATE SUM|MIN|MAX]. In plain sets each member has score 1.
    """
    target, count = argv[1], int(argv[2])
    at = 3 + count
    sources = [_scores(database.values.get(key, ())) for key in argv[3:at]]
    weights, aggregate = [1.0] * count, _AGGREGATES[b"sum"]
    while at < len(argv):
        if argv[at].lower() == b"weights":
            weights = list(map(to_score, argv[at + 1 : at + 1 + count]))
            at += 1 + count
        else:
            aggregate = _AGGREGATES[argv[at + 1].lower()]
            at += 2
    # A sum of doubles depends on the order: the smallest source is the first.
    weighted = sorted(zip(sources, weights, strict=True), key=lambda pair: len(pair[0]))
    kind = argv[0].lower()
    if kind == b"zdiffstore":
        first, *others = sources
        found = {
            member: score
            for member, score in first.items()
            if not any(member in other for other in others)
        }
    elif kind == b"zunionstore":
        found = _union(weighted, aggregate)
    else:
        found = _inter(weighted, aggregate)
    if found:
        database.put(target, of_scores(found))
    else:
        database.remove(target)
    database.changed(target)


def _scores(value: Any) -> Scores:
    return value.scores if isinstance(value, SortedSetValue) else dict.fromkeys(value, 1.0)


def _union(weighted: Sequence[tuple[Scores, float]], aggregate: Aggregate) -> Scores:
    out: Scores = {}
    for scores, weight in weighted:
        for member, plain in scores.items():
            score = _product(plain, weight)
            old = out.get(member)
            out[member] = score if old is None else aggregate(old, score)
    return out


def _inter(weighted: Sequence[tuple[Scores, float]], aggregate: Aggregate) -> Scores:
    out: Scores = {}
    (smallest, first_weight), *others = weighted
    for member, plain in smallest.items():
        if all(member in scores for scores, _ in others):
            score = _product(plain, first_weight)
            for scores, weight in others:
                score = aggregate(score, scores[member] * weight)
            out[member] = score
    return out


def _product(score: float, weight: float) -> float:
    product = score * weight
    return 0.0 if isnan(product) else product


def _sum(old: float, new: float) -> float:
    both = old + new
    # Infinity minus infinity is 0, as in Redis.
    return 0.0 if isnan(both) else both


_AGGREGATES: Final[dict[bytes, Aggregate]] = {b"sum": _sum, b"min": min, b"max": max}


# ---------------------------------------------------------------------- strings


def _append(database: Database, argv: Args) -> None:
    """APPEND key text."""
    key = argv[1]
    if key in database.values:
        value = _writable(database, key)
        value += argv[2]
    else:
        database.put(key, argv[2])
    database.changed(key)


def _set_range(database: Database, argv: Args) -> None:
    """SETRANGE key offset text."""
    key, offset, part = argv[1], int(argv[2]), argv[3]
    value = _writable(database, key)
    _grow(value, offset)
    value[offset : offset + len(part)] = part
    database.changed(key)


def _set_many(database: Database, argv: Args) -> None:
    """MSETNX key text [key text ...]."""
    for key, text in zip(argv[1::2], argv[2::2], strict=True):
        database.put(key, text)
        database.changed(key)


def _writable(database: Database, key: bytes) -> bytearray:
    """The string of a key as a `bytearray` to change."""
    value = database.string(key)
    if isinstance(value, bytearray):
        return value
    made = database.values[key] = bytearray(value or b"")
    return made


def _grow(value: bytearray, size: int) -> None:
    """Extend with zero bytes to a size."""
    value += bytes(max(0, size - len(value)))


def _setbit(database: Database, argv: Args) -> None:
    """SETBIT key offset bit; bit 0 is the highest one of byte 0."""
    key, offset = argv[1], int(argv[2])
    value = _writable(database, key)
    index, mask = offset >> 3, 128 >> (offset & 7)
    _grow(value, index + 1)
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
    value = _writable(database, key)
    _grow(value, max((field.offset + field.width + 7) >> 3 for field in fields))
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
    b"copy": _copy,
    b"move": _move,
    b"swapdb": _swap,
    b"zunionstore": _combine,
    b"zinterstore": _combine,
    b"zdiffstore": _combine,
    b"append": _append,
    b"setrange": _set_range,
    b"msetnx": _set_many,
    b"setbit": _setbit,
    b"bitop": _bitop,
    b"bitfield": _bitfield,
}
