"""The words of the library `bit`: numbers in, signed numbers of 32 bits out, never an exception.

A number that is no whole one is rounded half to even, as the addition of 2^52 + 2^51 does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_WORD: Final = 0xFFFFFFFF


def _word(value: float | bytes) -> int:
    if type(value) is int:
        return value & _WORD
    try:
        if isinstance(value, bytes):
            text = value.strip()
            value = int(text, 16) if text[:2].lower() == b"0x" else float(text)
        return round(value) & _WORD
    except (OverflowError, ValueError):
        return 0


def _signed(word: int) -> int:
    return word - 0x100000000 if word & 0x80000000 else word


def _tobit(value: float | bytes, *_rest: object) -> int:
    return _signed(_word(value))


def _bnot(value: float | bytes, *_rest: object) -> int:
    return _signed(~_word(value) & _WORD)


def _band(first: float | bytes, *rest: float | bytes) -> int:
    word = _word(first)
    for value in rest:
        word &= _word(value)
    return _signed(word)


def _bor(first: float | bytes, *rest: float | bytes) -> int:
    word = _word(first)
    for value in rest:
        word |= _word(value)
    return _signed(word)


def _bxor(first: float | bytes, *rest: float | bytes) -> int:
    word = _word(first)
    for value in rest:
        word ^= _word(value)
    return _signed(word)


def _lshift(value: float | bytes, by: float | bytes) -> int:
    return _signed(_word(value) << (_word(by) & 31) & _WORD)


def _rshift(value: float | bytes, by: float | bytes) -> int:
    return _signed(_word(value) >> (_word(by) & 31))


def _arshift(value: float | bytes, by: float | bytes) -> int:
    return _signed(_word(value)) >> (_word(by) & 31)


def _rol(value: float | bytes, by: float | bytes) -> int:
    word, count = _word(value), _word(by) & 31
    return _signed((word << count | word >> (32 - count)) & _WORD)


def _ror(value: float | bytes, by: float | bytes) -> int:
    word, count = _word(value), _word(by) & 31
    return _signed((word >> count | word << (32 - count)) & _WORD)


def _bswap(value: float | bytes, *_rest: object) -> int:
    return _signed(int.from_bytes(_word(value).to_bytes(4, "little"), "big"))


OPERATIONS: Final[dict[bytes, Callable[..., int]]] = {
    b"tobit": _tobit,
    b"bnot": _bnot,
    b"band": _band,
    b"bor": _bor,
    b"bxor": _bxor,
    b"lshift": _lshift,
    b"rshift": _rshift,
    b"arshift": _arshift,
    b"rol": _rol,
    b"ror": _ror,
    b"bswap": _bswap,
}
