"""How commands read their arguments: options, timeouts of blocking commands, and cursors of scans.

Options follow a command's positional arguments and are parsed by a table that the command declares.
The table maps each word to an `Option`: its slot, the reader of its values, and their number. Words
with the same slot exclude each other. A word may be repeated unless it has `once`; its last value
counts. Values are read in order, since the first invalid one decides the error.

    read_options(argv, 3, {b"nx": Option("when"), b"ex": Option("expiry", to_int), ...})

SCAN, HSCAN, SSCAN and ZSCAN share their cursor, their options and the scan of one value. A small
value is returned whole, whatever COUNT says. As in Redis, the cursor is parsed before the key is
looked up, and the options only if the key exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from math import ceil
from typing import Any, Final, NamedTuple, TypeAlias

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import NOT_INTEGER, SYNTAX, CommandError, syntax
from delaylog.broker.keyspace.keyspace import HashValue, Kind, SetValue
from delaylog.broker.keyspace.registry import Run
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.values.globs import Match, matcher
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_float, to_int

# -------------------------------------------------------------------------------------- options


class Option(NamedTuple):
    """The declaration of a word: the slot it fills, and the values that follow it."""

    slot: str
    read: Callable[[bytes], Any] | None = None
    """Parses a value; None: no value follows."""
    values: int = 1
    """The number of values; several are read into a list."""
    once: bool = False
    """Whether a repetition is refused."""


Options: TypeAlias = Mapping[bytes, Option]
_NOT_KNOWN: Final = Option("")


class Found(dict[str, tuple[bytes, Any]]):
    """Maps a slot to the word that was given, in lower case, and its value."""

    end = 0
    """The index in argv behind the last option."""

    def word(self, slot: str) -> bytes:
        """The word that was given; empty if there was none."""
        return self[slot][0] if slot in self else b""

    def value(self, slot: str, default: Any = None) -> Any:
        """The value of the word; `default` if none was given."""
        return self[slot][1] if slot in self else default


def _syntax(word: bytes) -> CommandError:
    return syntax()


def read_options(
    argv: Args,
    first: int,
    options: Options,
    refused: Callable[[bytes], CommandError] = _syntax,
    *,
    end: bytes | None = None,
) -> Found:
    """The options from `argv[first]` up to the word `end`; `options` has lower-case words.

    `refused` makes the error of a word that is unknown or lacks a value. Raises CommandError.
    """
    found = Found()
    at, count = first, len(argv)
    while at < count and (word := argv[at].lower()) != end:
        option = options.get(word, _NOT_KNOWN)
        slot, read, values = option.slot, option.read, option.values
        if not slot or (slot in found and (option.once or found[slot][0] != word)):
            raise refused(argv[at])
        value = None
        if read is not None:
            if at + values >= count:
                raise refused(argv[at])
            given = argv[at + 1 : at + 1 + values]
            at += values
            value = read(given[0]) if values == 1 else list(map(read, given))
        found[slot] = (word, value)
        at += 1
    found.end = at
    return found


def at_least(
    least: int, refusal: bytes, most: int = INT64_MAX, *, malformed: bytes | None = None
) -> Callable[[bytes], int]:
    """A reader of integers from `least` to `most`. It refuses other integers with `refusal`, and
    what is no integer with `malformed`, by default the same text.
    """

    def read(text: bytes) -> int:
        number = to_int(text, malformed or refusal)
        if not least <= number <= most:
            raise CommandError(refusal)
        return number

    return read


take_positive: Final = at_least(0, b"ERR value is out of range, must be positive")
"""Parses the count of a pop. Raises CommandError."""


# ------------------------------------------------------------------------------------- timeouts

_NO_TIMEOUT: Final = b"ERR timeout is not a float or out of range"


def to_timeout_ms(run: Run, text: bytes) -> int:
    """Parse a timeout in seconds; 0 = none. Raises CommandError."""
    try:
        seconds = to_float(text, _NO_TIMEOUT)
    except OverflowError:
        raise CommandError(_NO_TIMEOUT) from None
    # As in Redis, a number beyond 64 bits becomes negative (C's cast of it is INT64_MIN).
    timeout_ms = -1 if abs(seconds) * 1000 >= 2.0**63 else ceil(seconds * 1000)
    if timeout_ms < 0:
        raise CommandError(b"ERR timeout is negative")
    if timeout_ms > INT64_MAX - run.now_ms:
        raise CommandError(b"ERR timeout is out of range")
    return timeout_ms


# ---------------------------------------------------------------------------------------- scans

# Texts that C's strtoul accepts in full. A minus sign makes the number wrap around; a zero byte
# ends the text.
_CURSOR: Final = re.compile(rb"(?:([+-]?)([0-9]+)|)(?:\0.*)?", re.DOTALL).fullmatch
_U64_MAX: Final = 2**64 - 1
SMALL_MAX: Final = 512
"""A hash or a set with more elements is returned in pages."""


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


SCAN_OPTIONS: Final[Options] = {
    b"count": Option("count", at_least(1, SYNTAX, malformed=NOT_INTEGER)),
    b"match": Option("match", _match),
}
"""The options after the cursor. Of a match None = all names match."""
COUNT_OF_SCANS: Final = 10


def names_in(value: HashValue | SetValue) -> tuple[HashValue | SetValue, bool]:
    """The names for `scan_value`."""
    return value, len(value) <= SMALL_MAX


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
    options = read_options(argv, 3, SCAN_OPTIONS)
    following = 0
    names, small = names_of(value)
    if not small:
        count = options.value("count", COUNT_OF_SCANS)
        following, names = run.shared.scans.read(names, run.keyspace.dirty, cursor, count)
    match: Match | None = options.value("match")
    out: list[bytes] = []
    for name in names:
        if match is None or match(name):
            out += shown(value, name)
    return [b"%d" % following, out]
