"""Parses and formats numbers as Redis does, and adds those of INCRBYFLOAT.

Redis computes these sums in C's `long double` and formats them with up to 17 decimals. numpy
computes with `long double` too, so the digits equal those of Redis on the same machine.
"""

from __future__ import annotations

import re
import warnings
from math import inf, isinf, isnan
from typing import Final

import numpy as np

from delaylog.broker.keyspace.errors import NOT_FLOAT, NOT_INTEGER, CommandError, c_text

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
"""A number below this length, without an exponent, neither overflows nor underflows a double."""


def to_int(text: bytes, refusal: bytes = NOT_INTEGER) -> int:
    """Parse a 64-bit integer in its canonical form (no `+`, blanks, leading zeros).

    Raises CommandError.
    """
    if _WHOLE(text):
        value = int(text)
        if INT64_MIN <= value <= INT64_MAX:
            return value
    raise CommandError(refusal)


def is_lost(value: float | np.longdouble, text: bytes) -> bool:
    """Whether parsing `text` to `value` overflowed or underflowed."""
    lowered = text.lower()
    if value == 0:
        # An underflow if the text has a digit other than 0 before its exponent.
        return bool(lowered.partition(b"p" if b"x" in lowered else b"e")[0].strip(b"+-0x."))
    return abs(value) == inf and b"n" not in lowered


def to_float(text: bytes, refusal: bytes = NOT_FLOAT) -> float:
    """Parse a double, also `inf` and hexadecimal, but not nan. Raises CommandError."""
    if _FLOAT(text):
        return float(text)
    if _HEX_FLOAT(text):
        return float.fromhex(text.decode())
    raise CommandError(refusal)


def score_text(value: float) -> bytes:
    """Format a double with 17 significant digits, as Redis 7.0 formats scores."""
    if -1e17 < value < 1e17:
        whole = int(value)
        if whole != value:
            return b"%.17g" % value
        if whole:
            return b"%d" % whole
        # C's %.17g keeps the sign of -0.
        return b"-0" if str(value)[0] == "-" else b"0"
    if isinf(value):
        return b"inf" if value > 0 else b"-inf"
    if isnan(value):
        return b"nan"
    return b"%.17g" % value


def to_score(text: bytes, refusal: bytes = NOT_FLOAT) -> float:
    """Parse a double like `to_float`, but faster, and refuse overflow and underflow.

    Raises CommandError.
    """
    # For digits, dots and dashes only, float() is as strict as Redis.
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
    """Parse a bound of a score range by the rules of C's strtod; None if it is not a number.

    Leading blanks are skipped, a zero byte ends the text, an empty text is 0, and a number that is
    too large is infinite.
    """
    if len(text) < _SURELY_FITS and text and not text.strip(b"0123456789.-"):
        try:
            return float(text)
        except ValueError:
            return None
    text = c_text(text)
    if not text:
        return 0.0
    try:
        return to_float(text.lstrip(b" \t\n\v\f\r"))
    except OverflowError:
        return float("-inf" if text.lstrip().startswith(b"-") else "inf")
    except CommandError:
        return None


# ----------------------------------------------------------------------------------------- sums

_TEXT_BYTES_MAX: Final = 5 * 1024 - 1
_DECIMALS: Final = 17
_NO_SUM: Final = b"ERR increment would produce NaN or Infinity"


def add_long_doubles(first: bytes, second: bytes, refusal: bytes = NOT_FLOAT) -> bytes:
    """Add two numbers, given and returned as texts. Raises CommandError."""
    one, other = read_long_double(first, refusal), read_long_double(second, refusal)
    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
    if not np.isfinite(total):
        raise CommandError(_NO_SUM)
    text = np.format_float_positional(total, precision=_DECIMALS, unique=False, trim="-")
    return b"0" if text == "-0" else text.encode()


def read_long_double(text: bytes, refusal: bytes = NOT_FLOAT) -> np.longdouble:
    """Parse a number, which may be infinite. Raises CommandError."""
    if len(text) > _TEXT_BYTES_MAX or not (_FLOAT(text) or _HEX_FLOAT(text)):
        raise CommandError(refusal)
    with warnings.catch_warnings():
        # Overflow and underflow are refused below.
        warnings.simplefilter("ignore", RuntimeWarning)
        value = np.longdouble(text.decode())
    if is_lost(value, text):
        raise CommandError(refusal)
    return value
