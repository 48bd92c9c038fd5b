"""Numbers as Redis reads and writes them."""

from __future__ import annotations

import re
from math import isinf, isnan
from typing import Final

from delaylog.broker.keyspace.errors import NOT_FLOAT, NOT_INTEGER, CommandError

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
_WHOLE: Final = re.compile(rb"-?[1-9][0-9]{0,18}|0").fullmatch
_FLOAT: Final = re.compile(
    rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?)", re.IGNORECASE
).fullmatch
_HEX_FLOAT: Final = re.compile(
    rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
).fullmatch


def to_int(text: bytes | bytearray, refusal: bytes = NOT_INTEGER) -> int:
    """A whole number of 64 bits, written the one way there is (no `+`, blanks, leading zeros).

    Raises CommandError.
    """
    if _WHOLE(text):
        value = int(text)
        if INT64_MIN <= value <= INT64_MAX:
            return value
    raise CommandError(refusal)


def is_int(text: bytes | bytearray) -> bool:
    """Whether `to_int` takes it."""
    return bool(_WHOLE(text)) and INT64_MIN <= int(text) <= INT64_MAX


def to_float(text: bytes | bytearray, refusal: bytes = NOT_FLOAT) -> float:
    """A double, also `inf` and hexadecimal; never nan. Raises CommandError."""
    if _FLOAT(text):
        return float(text)
    if _HEX_FLOAT(text):
        return float.fromhex(text.decode())
    raise CommandError(refusal)


def score_text(value: float) -> bytes:
    """A double with 17 significant digits, as Redis 7.0 writes scores."""
    if value == (whole := int(value) if abs(value) < 1e17 else None) and (whole or value == 0):
        # What C's %.17g gives for -0 keeps its sign.
        return b"-0" if whole == 0 and str(value)[0] == "-" else b"%d" % whole
    if isinf(value):
        return b"inf" if value > 0 else b"-inf"
    if isnan(value):
        return b"nan"
    return b"%.17g" % value
