"""Ids of stream entries: `ms-sequence`, stored as one integer, so that they compare directly.

The next id is the next integer. Texts are parsed as leniently as by C's strtoull.
"""

from __future__ import annotations

import re
from typing import Final

from delaylog.broker.keyspace.errors import CommandError

SEQUENCE_BITS: Final = 64
SEQUENCE_MAX: Final = 2**64 - 1
ID_MAX: Final = 2**128 - 1
INVALID: Final = b"ERR Invalid stream ID specified as stream command argument"
_BAD_START: Final = b"ERR invalid start ID for the interval"
_BAD_END: Final = b"ERR invalid end ID for the interval"
_TEXT_BYTES_MAX: Final = 127
_PLAIN: Final = re.compile(rb"([0-9]{1,19})(?:-([0-9]{1,19}))?").fullmatch
_LOOSE: Final = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)").fullmatch
_NEGATIVE: Final = re.compile(rb"-[1-9][0-9]*").fullmatch


def id_text(number: int) -> bytes:
    """Format an id for clients."""
    return b"%d-%d" % (number >> SEQUENCE_BITS, number & SEQUENCE_MAX)


def _unsigned(text: bytes) -> int:
    """Parse an unsigned 64-bit number. Raises CommandError."""
    match = _LOOSE(text)
    if match is None:
        raise CommandError(INVALID)
    value = int(match[2])
    if value > SEQUENCE_MAX:
        raise CommandError(INVALID)
    if match[1] == b"-":
        # A well-formed negative number is refused. In other texts with a minus sign, strtoull makes
        # the number wrap around.
        if _NEGATIVE(text) and value <= 2**63:
            raise CommandError(INVALID)
        value = -value % 2**64
    return value


def parse_id(text: bytes, missing: int = 0, *, strict: bool = True) -> int:
    """Parse an id; `missing` is the sequence if there is none. Raises CommandError.

    Unless `strict`, `-` is the smallest and `+` the largest id.
    """
    match = _PLAIN(text)
    if match is not None:
        ms, sequence = match.groups()
        return int(ms) << SEQUENCE_BITS | (missing if sequence is None else int(sequence))
    if len(text) > _TEXT_BYTES_MAX:
        raise CommandError(INVALID)
    text = text.partition(b"\0")[0]
    if text in (b"-", b"+"):
        if strict:
            raise CommandError(INVALID)
        return 0 if text == b"-" else ID_MAX
    ms, dash, sequence = text.partition(b"-")
    high = _unsigned(ms)
    return high << SEQUENCE_BITS | (_unsigned(sequence) if dash else missing)


def parse_new_id(text: bytes) -> tuple[int, bool]:
    """Parse the id of a new entry; returns it, and whether its sequence is given (not `5-*`).

    Raises CommandError.
    """
    if len(text) <= _TEXT_BYTES_MAX and text.partition(b"\0")[0][-2:] == b"-*":
        ms = text.partition(b"\0")[0][:-2]
        if b"-" not in ms:
            return _unsigned(ms) << SEQUENCE_BITS, False
    return parse_id(text), True


def parse_start(text: bytes) -> int:
    """Parse the first id of an interval; `(` excludes it. Raises CommandError."""
    if len(text) > 1 and text[:1] == b"(":
        number = parse_id(text[1:])
        if number == ID_MAX:
            raise CommandError(_BAD_START)
        return number + 1
    return parse_id(text, strict=False)


def parse_end(text: bytes) -> int:
    """Parse the last id of an interval; `(` excludes it. Raises CommandError."""
    if len(text) > 1 and text[:1] == b"(":
        number = parse_id(text[1:], SEQUENCE_MAX)
        if number == 0:
            raise CommandError(_BAD_END)
        return number - 1
    return parse_id(text, SEQUENCE_MAX, strict=False)
