"""SORT: lists, sets and sorted sets by number, by bytes, or by what other keys hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from sys import float_info
from typing import Final

from delaylog.broker.keyspace.errors import CommandError, syntax, wrong_type
from delaylog.broker.keyspace.number_texts import to_int, to_score
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values import HashValue, ListValue, SetValue

_NO_NUMBER: Final = b"ERR One or more scores can't be converted into double"
_ITEMS_LOGGED: Final = 65_536
"""Of what is stored so many are one effect: a record of the log has its limit."""
_BLANKS: Final = b" \t\n\v\f\r"


@dataclass(slots=True)
class _Wish:
    """The options."""

    descending: bool = False
    by_bytes: bool = False
    start: int = 0
    count: int = -1
    by: bytes | None = None
    in_place: bool = False
    """A BY without `*` was among them: nothing is sorted, whatever another BY says."""
    get: list[bytes] = field(default_factory=list)
    store: bytes | None = None


@command("sort", -2, "write denyoom movablekeys", keys=(1, 1, 1))
def sort(run: Run, argv: Args) -> Reply:
    """Elements in order: [BY pattern] [LIMIT start count] [GET pattern ...] [ASC|DESC] [ALPHA]
    [STORE key].
    """
    return _sort(run, argv, _wish(argv, read_only=False))


@command("sort_ro", -2, "readonly movablekeys", keys=(1, 1, 1))
def sort_ro(run: Run, argv: Args) -> Reply:
    """The same without STORE."""
    return _sort(run, argv, _wish(argv, read_only=True))


def _wish(argv: Args, *, read_only: bool) -> _Wish:
    wish = _Wish()
    at = 2
    while at < len(argv):
        option, left = argv[at].lower(), len(argv) - at - 1
        if option in (b"asc", b"desc"):
            wish.descending = option == b"desc"
        elif option == b"alpha":
            wish.by_bytes = True
        elif option == b"limit" and left >= 2:
            wish.start, wish.count = to_int(argv[at + 1]), to_int(argv[at + 2])
            at += 2
        elif option == b"store" and left >= 1 and not read_only:
            at += 1
            wish.store = argv[at]
        elif option == b"by" and left >= 1:
            at += 1
            wish.by = argv[at]
            wish.in_place |= b"*" not in wish.by
        elif option == b"get" and left >= 1:
            at += 1
            wish.get.append(argv[at])
        else:
            raise syntax()
        at += 1
    return wish


def _sort(run: Run, argv: Args, wish: _Wish) -> Reply:
    value = run.database.find(argv[1])
    if not isinstance(value, ListValue | SetValue | SortedSetValue | None):
        raise wrong_type()
    if isinstance(value, SortedSetValue):
        # Redis turns it into its large form here, and OBJECT ENCODING shows that.
        value.shown_large = True
    by = wish.by
    in_place = wish.in_place
    if in_place and isinstance(value, SetValue) and (wish.store is not None or run.in_script):
        # The order of a set is nobody's: what is kept must not depend on it.
        in_place, by, wish.by_bytes = False, None, True
    size = 0 if value is None else len(value)
    start = min(max(wish.start, 0), size)
    count = min(max(wish.count, -1), size)
    end = size if count < 0 else min(start + count, size)
    if in_place:
        items = _slice_in_place(value, start, end, backwards=wish.descending)
    else:
        items = _sorted(run, list(_elements(value)), wish, by)[start:end]
    if not wish.get:
        out: list[bytes | None] = list(items)
    else:
        out = [_looked_up(run, pattern, item) for item in items for pattern in wish.get]
    if wish.store is None:
        return out
    return _store(run, wish.store, [item or b"" for item in out])


def _elements(value: ListValue | SetValue | SortedSetValue | None) -> list[bytes]:
    if value is None:
        return []
    if isinstance(value, SortedSetValue):
        return list(value.scores)
    return list(value)


def _slice_in_place(
    value: ListValue | SetValue | SortedSetValue | None, start: int, end: int, *, backwards: bool
) -> list[bytes]:
    """What stands there already; only lists and sorted sets have a direction."""
    if value is None or start >= end:
        return []
    if isinstance(value, SortedSetValue):
        order, size = value.order, len(value)
        if backwards:
            entries = order.walk_back(size - end, size - start)
        else:
            entries = order.walk(start, end)
        return [member for _, member in entries]
    if isinstance(value, ListValue) and backwards:
        return list(islice(reversed(value), start, end))
    return list(islice(value, start, end))


def _sorted(run: Run, items: list[bytes], wish: _Wish, by: bytes | None) -> list[bytes]:
    weights: list[bytes | None] = list(items)
    if by is not None:
        weights = [_looked_up(run, by, item) for item in items]
    if wish.by_bytes:
        # Without a weight it comes first; what is not stored is compared as C compares words, up to
        # a zero byte.
        ends = b"\0" if wish.store is None else None
        keys = [(weight is not None, _word(weight or b"", ends)) for weight in weights]
        order = sorted(range(len(items)), key=keys.__getitem__, reverse=wish.descending)
    else:
        scores = [
            (0.0 if weight is None else _score(weight), item)
            for weight, item in zip(weights, items, strict=True)
        ]
        order = sorted(range(len(items)), key=scores.__getitem__, reverse=wish.descending)
    return [items[index] for index in order]


def _word(text: bytes, ends: bytes | None) -> bytes:
    return text if ends is None else text.partition(ends)[0]


def _score(text: bytes) -> float:
    """What strtod makes of a weight: blanks before it, and all behind a zero byte, do not count.

    Raises CommandError.
    """
    number = text.partition(b"\0")[0]
    if not number:
        return 0.0
    # Blanks alone are no number.
    score = to_score(number.lstrip(_BLANKS) or b"?", _NO_NUMBER)
    if score and abs(score) < float_info.min:
        # C says of it that it is out of range; a score may be that small all the same.
        raise CommandError(_NO_NUMBER)
    return score


def _looked_up(run: Run, pattern: bytes, item: bytes) -> bytes | None:
    """`#` is the item itself, `a*b` a string, `a*b->f` a field of a hash."""
    if pattern == b"#":
        return item
    before, star, after = pattern.partition(b"*")
    if not star:
        return None
    behind, arrow, name = after.partition(b"->")
    find = run.database.find
    if arrow and name:
        held = find(before + item + behind)
        return held.get(name) if isinstance(held, HashValue) else None
    value = find(before + item + after)
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _store(run: Run, key: bytes, items: list[bytes]) -> Reply:
    database = run.database
    if items:
        database.remove(key)
        database.put(key, ListValue(items))
        run.rewrite(b"DEL", key)
        for at in range(0, len(items), _ITEMS_LOGGED):
            run.also(b"RPUSH", key, *items[at : at + _ITEMS_LOGGED])
        database.changed(key, len(items))
    elif database.find(key) is not None:
        database.remove(key)
        run.rewrite(b"DEL", key)
        database.changed(key)
    return len(items)
