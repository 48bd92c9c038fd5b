"""What SCAN, HSCAN, SSCAN and ZSCAN share: their cursor and options, and the scan of one value.

A small value is returned whole, whatever COUNT says. As in Redis, the cursor is parsed before the
key is looked up, and the options only if the key exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.database import Kind
from delaylog.broker.keyspace.errors import NOT_INTEGER, SYNTAX, CommandError
from delaylog.broker.keyspace.options import Option, Options, at_least, read_options
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.globs import Match, matcher

# Texts that C's strtoul accepts in full. A minus sign makes the number wrap around; a zero byte
# ends the text.
_CURSOR: Final = re.compile(rb"(?:([+-]?)([0-9]+)|)(?:\0.*)?", re.DOTALL).fullmatch
_U64_MAX: Final = 2**64 - 1
SMALL_MAX: Final = 512
"""A hash or a set with more elements is returned in pages."""


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The options after the cursor."""

    count: int
    match: Match | None
    """None = all names match."""
    type_name: bytes | None
    """In lower case."""


def to_cursor(text: bytes) -> int:
    """Parse the cursor of a client. Raises CommandError."""
    found = _CURSOR(text)
    if found is None:
        raise CommandError(b"ERR invalid cursor")
    digits = (found[2] or b"").lstrip(b"0") or b"0"
    if len(digits) > 20 or (value := int(digits)) > _U64_MAX:
        raise CommandError(b"ERR invalid cursor")
    return -value & _U64_MAX if found[1] == b"-" else value


def _match(text: bytes) -> Match | None:
    return None if text == b"*" else matcher(text)


_OPTIONS: Final[Options] = {
    b"count": Option("count", at_least(1, SYNTAX, malformed=NOT_INTEGER)),
    b"match": Option("match", _match),
}
_OF_KEYS: Final[Options] = {**_OPTIONS, b"type": Option("type", bytes.lower)}


def to_options(argv: Args, first: int, *, with_type: bool = False) -> ScanOptions:
    """Parse MATCH, COUNT and, for keys, TYPE from `argv[first:]`. Raises CommandError."""
    found = read_options(argv, first, _OF_KEYS if with_type else _OPTIONS)
    return ScanOptions(found.value("count", 10), found.value("match"), found.value("type"))


def scan_value(
    run: Run,
    argv: Args,
    kind: type[Kind],
    names_of: Callable[[Kind], tuple[Collection[bytes], bool]],
    shown: Callable[[Kind, bytes], tuple[bytes, ...]],
) -> Reply:
    """Run HSCAN, SSCAN or ZSCAN.

    `names_of` returns a value's names and whether it is small, `shown` the words of the reply for a
    name, none if it was removed meanwhile.
    """
    cursor = to_cursor(argv[2])
    value = run.database.of_kind(kind, argv[1])
    if value is None:
        return [b"0", []]
    options = to_options(argv, 3)
    following = 0
    names, small = names_of(value)
    if not small:
        following, names = run.shared.scans.read(names, run.keyspace.dirty, cursor, options.count)
    match = options.match
    out: list[bytes] = []
    for name in names:
        if match is None or match(name):
            out += shown(value, name)
    return [b"%d" % following, out]
