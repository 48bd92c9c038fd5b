"""Sums as INCRBYFLOAT makes them: numbers of C's `long double`, written with up to 17 decimals.

Redis adds such numbers, and numpy has them too, so the digits are those of a Redis on this machine.
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


def add(first: bytes | bytearray, second: bytes | bytearray, refusal: bytes = NOT_FLOAT) -> bytes:
    """The sum of two numbers as texts, as a text. Raises CommandError."""
    one, other = read(first, refusal), read(second, refusal)
    with np.errstate(over="ignore", invalid="ignore"):
        total = one + other
    if not np.isfinite(total):
        raise CommandError(_NO_SUM)
    text = np.format_float_positional(total, precision=_DECIMALS, unique=False, trim="-")
    return b"0" if text == "-0" else text.encode()


def read(text: bytes | bytearray, refusal: bytes = NOT_FLOAT) -> np.longdouble:
    """The number a text says, which may be infinite. Raises CommandError."""
    if len(text) > _TEXT_BYTES_MAX or not is_float(text):
        raise CommandError(refusal)
    with warnings.catch_warnings():
        # What is too large, or so small that nothing is left of it, is refused below.
        warnings.simplefilter("ignore", RuntimeWarning)
        value = np.longdouble(text.decode())
    if is_lost(value, text):
        raise CommandError(refusal)
    return value
