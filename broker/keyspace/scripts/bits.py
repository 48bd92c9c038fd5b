"""The words of the library `bit`: numbers in, signed numbers of 32 bits out, never an exception.

A number that is no whole one is rounded half to even, as the addition of 2^52 + 2^51 does it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_, xor
from typing import Final, TypeAlias

_WORD: Final = 0xFFFFFFFF
Number: TypeAlias = float | bytes
"""As Lua hands it over: a numeral may be a string."""


def _word(value: Number) -> int:
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
    word &= _WORD
    return word - 0x100000000 if word & 0x80000000 else word


def _of_one(operation: Callable[[int], int]) -> Callable[..., int]:
    return lambda value, *_rest: _signed(operation(_word(value)))


def _of_all(operation: Callable[[int, int], int]) -> Callable[..., int]:
    return lambda *values: _signed(reduce(operation, map(_word, values)))


def _moved(operation: Callable[[int, int], int]) -> Callable[..., int]:
    return lambda value, by: _signed(operation(_word(value), _word(by) & 31))


OPERATIONS: Final[dict[bytes, Callable[..., int]]] = {
    b"tobit": _of_one(lambda word: word),
    b"bnot": _of_one(lambda word: ~word),
    b"bswap": _of_one(lambda word: int.from_bytes(word.to_bytes(4, "little"), "big")),
    b"band": _of_all(and_),
    b"bor": _of_all(or_),
    b"bxor": _of_all(xor),
    b"lshift": _moved(lambda word, by: word << by),
    b"rshift": _moved(lambda word, by: word >> by),
    b"arshift": _moved(lambda word, by: _signed(word) >> by),
    b"rol": _moved(lambda word, by: word << by | word >> (32 - by)),
    b"ror": _moved(lambda word, by: word >> by | word << (32 - by)),
}
