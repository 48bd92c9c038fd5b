"""The sums of INCRBYFLOAT, in C's `long double`, formatted with up to 17 decimals.

Redis computes with `long double`, and numpy does too, so the digits equal those of Redis on the
same machine.
"""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np

from delaylog.broker.keyspace.errors import NOT_FLOAT, CommandError
from delaylog.broker.keyspace.values.number_texts import is_float, is_lost

_TEXT_BYTES_MAX: Final = 5 * 1024 - 1
_DECIMALS: Final = 17
_NO_SUM: Final = b"ERR increment would produce NaN or Infinity"


def add(first: bytes, second: bytes, refusal: bytes = NOT_FLOAT) -> bytes:
    """Add two numbers, given and returned as texts. Raises CommandError."""
    one, other = read(first, refusal), read(second, refusal)
    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
    if not np.isfinite(total):
        raise CommandError(_NO_SUM)
    text = np.format_float_positional(total, precision=_DECIMALS, unique=False, trim="-")
    return b"0" if text == "-0" else text.encode()


def read(text: bytes, refusal: bytes = NOT_FLOAT) -> np.longdouble:
    """Parse a number, which may be infinite. Raises CommandError."""
    if len(text) > _TEXT_BYTES_MAX or not is_float(text):
        raise CommandError(refusal)
    with warnings.catch_warnings():
        # Overflow and underflow are refused below.
        warnings.simplefilter("ignore", RuntimeWarning)
        value = np.longdouble(text.decode())
    if is_lost(value, text):
        raise CommandError(refusal)
    return value
