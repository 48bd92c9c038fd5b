"""Turns tail calls of library functions into ordinary calls, so that errors can name their line.

`return redis.call(...)` is a tail call. In Redis the callee is a C function and the script's frame
stays on the stack. Here the callee is a Lua closure, which would replace the script's frame and
lose the line number. So OP_TAILCALL is replaced by OP_CALL in compiled scripts. The result is the
same, because the instruction after OP_TAILCALL is always an OP_RETURN of all results.
In the main chunk all tail calls are replaced; in other functions only calls of globals and of table
fields, which are the libraries. Tail recursion goes through locals and must not grow the stack.

The bytecode is trusted: Lua itself has just compiled it from source text.
"""

from __future__ import annotations

import struct

_CODE = struct.Struct("<I")
_SIZE = struct.Struct("<Q")
_HEADER = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"

_GETGLOBAL, _GETTABLE, _SELF = 5, 6, 11
_CALL, _TAILCALL = 28, 29
# Instructions whose field A is not a register that they write.
_WRITE_NO_A = frozenset({22, 23, 24, 25, 26})  # JMP, EQ, LT, LE, TEST


def keep_frames(dump: bytes, *, everywhere: bool = False) -> bytes:
    """Return `dump` without tail calls of libraries; with `everywhere`, without any tail call."""
    if not dump.startswith(_HEADER):
        return dump
    code = bytearray(dump)
    _function(code, len(_HEADER), everywhere=everywhere, main=True)
    return bytes(code)


def _function(code: bytearray, at: int, *, everywhere: bool, main: bool) -> int:
    at = _string(code, at) + 4 + 4 + 4
    count = _CODE.unpack_from(code, at)[0]
    at += 4
    _instructions(code, at, count, every=everywhere or main)
    at += 4 * count
    count = _CODE.unpack_from(code, at)[0]
    at += 4
    for _ in range(count):
        kind = code[at]
        at += 1
        if kind == 1:
            at += 1
        elif kind == 3:
            at += 8
        elif kind == 4:
            at = _string(code, at)
    count = _CODE.unpack_from(code, at)[0]
    at += 4
    for _ in range(count):
        at = _function(code, at, everywhere=everywhere, main=False)
    at += 4 + 4 * _CODE.unpack_from(code, at)[0]
    count = _CODE.unpack_from(code, at)[0]
    at += 4
    for _ in range(count):
        at = _string(code, at) + 8
    count = _CODE.unpack_from(code, at)[0]
    at += 4
    for _ in range(count):
        at = _string(code, at)
    return at


def _string(code: bytearray, at: int) -> int:
    return at + 8 + int(_SIZE.unpack_from(code, at)[0])


def _instructions(code: bytearray, at: int, count: int, *, every: bool) -> None:
    words = struct.unpack_from(f"<{count}I", code, at)
    for index, word in enumerate(words):
        if word & 0x3F == _TAILCALL and (every or _is_library(words, index)):
            _CODE.pack_into(code, at + 4 * index, word & ~0x3F | _CALL)


def _is_library(words: tuple[int, ...], index: int) -> bool:
    """Whether the called function was read from a table; the globals are one."""
    target = words[index] >> 6 & 0xFF
    for word in reversed(words[:index]):
        if word >> 6 & 0xFF == target and word & 0x3F not in _WRITE_NO_A:
            return word & 0x3F in {_GETGLOBAL, _GETTABLE, _SELF}
    return False
