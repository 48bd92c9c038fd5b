"""Keeps the caller's frame where Lua 5.1 would drop it.

`return redis.call(...)` is a tail call. In Redis the callee is a C function and the script's frame
stays, so that errors can name its line; here the callee is a Lua closure and the frame would be
gone. So the tail calls of freshly compiled scripts become ordinary calls: the instruction after
OP_TAILCALL is always an OP_RETURN of all results, which makes OP_CALL mean the same.
Only calls of globals and of fields are changed, and everything in the main chunk: those are the
libraries, while tail recursion goes through locals, and must not use up the stack.

Nothing that comes from outside is read here: the dump is made by Lua from source text.
"""

from __future__ import annotations

import struct

_CODE = struct.Struct("<I")
_SIZE = struct.Struct("<Q")
_HEADER = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"

_GETGLOBAL, _GETTABLE, _SELF = 5, 6, 11
_CALL, _TAILCALL = 28, 29
# Their field A is no register that they write.
_WRITE_NO_A = frozenset({22, 23, 24, 25, 26})  # JMP, EQ, LT, LE, TEST


def keep_frames(dump: bytes, *, everywhere: bool = False) -> bytes:
    """The same function without tail calls of libraries; `everywhere`: without any."""
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
    """Whether what is called was read from a table, the globals included."""
    target = words[index] >> 6 & 0xFF
    for word in reversed(words[:index]):
        if word >> 6 & 0xFF == target and word & 0x3F not in _WRITE_NO_A:
            return word & 0x3F in {_GETGLOBAL, _GETTABLE, _SELF}
    return False
