"""Sums as INCRBYFLOAT makes them: 80-bit floats of x86, written with up to 17 decimals.

Redis adds C's `long double`. Here such a number is (mantissa, exponent), worth
mantissa * 2**exponent, with at most 64 bits of mantissa; reading, adding and writing round to the
nearest, ties to even, so the digits are those of Redis on x86-64 wherever this runs.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from delaylog.broker.keyspace.errors import NOT_FLOAT, CommandError

LongDouble: TypeAlias = tuple[int, int]

_MANTISSA_BITS: Final = 64
_EXPONENT_MIN: Final = -16445
"""Of the last bit of the smallest number."""
_TOP_BIT_MAX: Final = 16384
"""2**16384 and above is infinite."""
_TEXT_BYTES_MAX: Final = 5 * 1024 - 1
_DECIMALS: Final = 17
_NO_SUM: Final = b"ERR increment would produce NaN or Infinity"
_DECIMAL: Final = re.compile(
    rb"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?"
).fullmatch
_HEXADECIMAL: Final = re.compile(
    rb"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?([0-9a-fA-F]*)|\.([0-9a-fA-F]+))(?:[pP]([+-]?[0-9]+))?"
).fullmatch
_INFINITE: Final = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE).fullmatch
_PIECE: Final = 4_000
_POWER_MAX: Final = 30_000
"""No text has more digits than a few thousand, so powers beyond this overflow or vanish."""


def add(first: bytes | bytearray, second: bytes | bytearray, refusal: bytes = NOT_FLOAT) -> bytes:
    """The sum of two numbers as texts, as a text. Raises CommandError."""
    one, other = read(first, refusal), read(second, refusal)
    if one is None or other is None:
        raise CommandError(_NO_SUM)
    exponent = min(one[1], other[1])
    total = (one[0] << one[1] - exponent) + (other[0] << other[1] - exponent)
    rounded = _rounded(total, 1, exponent)
    if rounded is None:
        raise CommandError(_NO_SUM)
    return write(rounded)


def read(text: bytes | bytearray, refusal: bytes = NOT_FLOAT) -> LongDouble | None:
    """The number a text says, None if that is infinite. Raises CommandError."""
    if not text or len(text) > _TEXT_BYTES_MAX:
        raise CommandError(refusal)
    if found := _DECIMAL(text):
        sign, whole, decimals, only, power = found.groups()
        digits = _whole(whole + decimals if only is None else only)
        shift = _power(power) - len(decimals if only is None else only)
        if not digits:
            return 0, 0
        if abs(shift) > _POWER_MAX:
            raise CommandError(refusal)
        if shift >= 0:
            value = _rounded(digits * 10**shift, 1, 0)
        else:
            value = _rounded(digits, 10**-shift, 0)
    elif found := _HEXADECIMAL(text):
        sign, whole, decimals, only, power = found.groups()
        digits = int(whole + decimals if only is None else only, 16)
        shift = _power(power) - 4 * len(decimals if only is None else only)
        if not digits:
            return 0, 0
        if abs(shift) > 4 * _POWER_MAX:
            raise CommandError(refusal)
        value = _rounded(digits, 1, shift)
    elif _INFINITE(text):
        return None
    else:
        raise CommandError(refusal)
    # What is too large, or so small that nothing is left of it, is no number to strtold.
    if value is None or not value[0]:
        raise CommandError(refusal)
    return (-value[0], value[1]) if sign == b"-" else value


def write(value: LongDouble) -> bytes:
    """All digits before the point, up to 17 behind it, no zeros at the end."""
    mantissa, exponent = value
    scaled = abs(mantissa) * 10**_DECIMALS
    if exponent >= 0:
        scaled <<= exponent
    else:
        scaled = _halves_to_even(scaled, 1 << -exponent)
    whole, decimals = divmod(scaled, 10**_DECIMALS)
    if whole.bit_length() < 3 * _PIECE:
        text = b"%d" % whole
    else:
        high, low = divmod(whole, 10**_PIECE)
        text = b"%d%0*d" % (high, _PIECE, low) if high else b"%d" % low
    text += (b".%017d" % decimals).rstrip(b"0").removesuffix(b".")
    return b"-" + text if mantissa < 0 and scaled else text


def _whole(digits: bytes) -> int:
    """int(), which by itself takes some thousand digits only."""
    number = 0
    for at in range(0, len(digits), _PIECE):
        piece = digits[at : at + _PIECE]
        number = number * 10 ** len(piece) + int(piece)
    return number


def _power(text: bytes | None) -> int:
    if text is None:
        return 0
    power = _whole(text.lstrip(b"+-"))
    return -power if text[:1] == b"-" else power


def _rounded(above: int, below: int, exponent: int) -> LongDouble | None:
    """above / below * 2**exponent with the bits that fit; None if it is too large."""
    size, negative = abs(above), above < 0
    if size == 0:
        return 0, 0
    # So many bits are cut off (or had to be added) to leave those of a mantissa, or one less.
    cut = size.bit_length() - below.bit_length() - _MANTISSA_BITS
    cut = max(cut, _EXPONENT_MIN - exponent)
    mantissa = _divided(size, below, cut)
    if mantissa.bit_length() > _MANTISSA_BITS:
        cut += 1
        mantissa = _divided(size, below, cut)
    if mantissa.bit_length() + cut + exponent > _TOP_BIT_MAX:
        return None
    return (-mantissa if negative else mantissa), cut + exponent


def _divided(above: int, below: int, cut: int) -> int:
    return (
        _halves_to_even(above, below << cut) if cut >= 0 else _halves_to_even(above << -cut, below)
    )


def _halves_to_even(above: int, below: int) -> int:
    quotient, rest = divmod(above, below)
    twice = 2 * rest
    return quotient + (twice > below or (twice == below and quotient & 1))
