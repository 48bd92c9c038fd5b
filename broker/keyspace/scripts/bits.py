"""The operations of the Lua library `bit`: numbers in, signed 32-bit integers out, no exceptions.

A fraction is rounded half to even, as LuaBitOp rounds it by adding 2^52 + 2^51.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_, xor
from typing import Final, TypeAlias

_WORD: Final = 0xFFFFFFFF
Number: TypeAlias = float | bytes
"""A number as Lua passes it: possibly a string such as "0x10"."""


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


def _unary(operation: Callable[[int], int]) -> Callable[..., int]:
    return lambda value, *_rest: _signed(operation(_word(value)))


def _variadic(operation: Callable[[int, int], int]) -> Callable[..., int]:
    return lambda *values: _signed(reduce(operation, map(_word, values)))


def _shift(operation: Callable[[int, int], int]) -> Callable[..., int]:
    return lambda value, by: _signed(operation(_word(value), _word(by) & 31))


OPERATIONS: Final[dict[bytes, Callable[..., int]]] = {
    b"tobit": _unary(lambda word: word),
    b"bnot": _unary(lambda word: ~word),
    b"bswap": _unary(lambda word: int.from_bytes(word.to_bytes(4, "little"), "big")),
    b"band": _variadic(and_),
    b"bor": _variadic(or_),
    b"bxor": _variadic(xor),
    b"lshift": _shift(lambda word, by: word << by),
    b"rshift": _shift(lambda word, by: word >> by),
    b"arshift": _shift(lambda word, by: _signed(word) >> by),
    b"rol": _shift(lambda word, by: word << by | word >> (32 - by)),
    b"ror": _shift(lambda word, by: word >> by | word << (32 - by)),
}
