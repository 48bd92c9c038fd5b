"""Numbers as Redis reads and writes them."""

from __future__ import annotations

import re
from math import inf, isinf, isnan
from typing import TYPE_CHECKING, Final

from delaylog.broker.keyspace.errors import NOT_FLOAT, NOT_INTEGER, CommandError

if TYPE_CHECKING:
    import numpy as np

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)
_WHOLE: Final = re.compile(rb"-?[1-9][0-9]{0,18}|0").fullmatch
_FLOAT: Final = re.compile(
    rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?)", re.IGNORECASE
).fullmatch
_HEX_FLOAT: Final = re.compile(
    rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
).fullmatch

_SURELY_FITS: Final = 300
"""So short a number without an exponent is neither too large nor too small for a double."""


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


def is_float(text: bytes | bytearray) -> bool:
    """Whether it is written as `to_float` takes it."""
    return bool(_FLOAT(text) or _HEX_FLOAT(text))


def is_lost(value: float | np.longdouble, text: bytes | bytearray) -> bool:
    """Whether a number was too large, or too small, for what was made of its text."""
    lowered = text.lower()
    if value == 0:
        # Then none of its digits may be another one.
        return bool(lowered.partition(b"p" if b"x" in lowered else b"e")[0].strip(b"+-0x."))
    return abs(value) == inf and b"n" not in lowered


def to_float(text: bytes | bytearray, refusal: bytes = NOT_FLOAT) -> float:
    """A double, also `inf` and hexadecimal; never nan. Raises CommandError."""
    if _FLOAT(text):
        return float(text)
    if _HEX_FLOAT(text):
        return float.fromhex(text.decode())
    raise CommandError(refusal)


def score_text(value: float) -> bytes:
    """A double with 17 significant digits, as Redis 7.0 writes scores."""
    if -1e17 < value < 1e17:
        whole = int(value)
        if whole != value:
            return b"%.17g" % value
        if whole:
            return b"%d" % whole
        # What C's %.17g gives for -0 keeps its sign.
        return b"-0" if str(value)[0] == "-" else b"0"
    if isinf(value):
        return b"inf" if value > 0 else b"-inf"
    if isnan(value):
        return b"nan"
    return b"%.17g" % value


def to_score(text: bytes, refusal: bytes = NOT_FLOAT) -> float:
    """A double of an argument: `to_float` for many calls a second, and what does not fit a double
    is refused. Raises CommandError.
    """
    # Only digits, dots and dashes: float() is then as strict as Redis.
    if len(text) < _SURELY_FITS and not text.strip(b"0123456789.-"):
        try:
            return float(text)
        except ValueError:
            raise CommandError(refusal) from None
    try:
        value = to_float(text, refusal)
    except OverflowError:
        raise CommandError(refusal) from None
    if is_lost(value, text):
        raise CommandError(refusal)
    return value


def to_bound(text: bytes) -> float | None:
    """A double as the ends of a score range are read, by C's rules alone: blanks may come first,
    a zero byte ends it, nothing is 0, what is too large is infinite. None if it is no number.
    """
    if len(text) < _SURELY_FITS and text and not text.strip(b"0123456789.-"):
        try:
            return float(text)
        except ValueError:
            return None
    text = text.partition(b"\0")[0]
    if not text:
        return 0.0
    try:
        return to_float(text.lstrip(b" \t\n\v\f\r"))
    except OverflowError:
        return float("-inf" if text.lstrip().startswith(b"-") else "inf")
    except CommandError:
        return None
