"""One Lua state: its limits, the values that pass in and out, and the functions that Lua may call.

Three rules keep it safe. Scripts never hold a Python object, only Lua closures that call one. No
Python exception passes through Lua. No value is passed to Lua without memory for it, because a push
that fails outside a protected call aborts the process. A state that ran out of memory is discarded.

Values are converted as Redis 7.0 does:

    reply -> Lua       integer number, bulk string, null false, status {ok=}, error {err=},
                       array table, map and set flat tables, score string
    Lua -> reply       number truncated to an integer, string, true 1, false and nil null, {ok=}
                       status, {err=} error, any other table an array up to its first nil

Lua returns a nested result as a stream of pairs (kind, value), written by lua/results.lua.

A script's writes are applied to memory at once and logged when the script ends. A script is stopped
after `seconds`, or after `seconds_after_write` if it has written. In the broker, the writes of a
stopped script are not logged, and the keyspace is restored from the log: a stopped script has
changed nothing. Without a log (in tests) its writes stay, as they do after any other script error.

Tail calls of library functions become ordinary calls, so that errors can name their line.
`return redis.call(...)` is a tail call. In Redis the callee is a C function and the script's frame
stays on the stack. Here the callee is a Lua closure, which would replace the script's frame and
lose the line number. So OP_TAILCALL is replaced by OP_CALL in compiled scripts. The result is the
same, because the instruction after OP_TAILCALL is always an OP_RETURN of all results. In the main
chunk all tail calls are replaced; in other functions only calls of globals and of table fields,
which are the libraries. Tail recursion goes through locals and must not grow the stack. The
bytecode is trusted: Lua itself has just compiled it from source text.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

from delaylog.broker.keyspace.errors import CommandError, c_text
from delaylog.broker.keyspace.replies import (
    NO_ARRAY,
    OK,
    Double,
    ErrorReply,
    Map,
    Members,
    Push,
    Reply,
    Status,
    Verbatim,
)

# ------------------------------------------------------------------------------------- bytecode

_CODE = struct.Struct("<I")
_SIZE = struct.Struct("<Q")
_HEADER = b"\x1bLua\x51\x00\x01\x04\x08\x04\x08\x00"

_READ_TABLE = frozenset({5, 6, 11})  # GETGLOBAL, GETTABLE, SELF
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
    written: dict[int, int] = {}
    """Register -> the instruction that wrote it last."""
    for index, word in enumerate(words):
        operation, register = word & 0x3F, word >> 6 & 0xFF
        # A function that was read from a table is a library's; the globals are one.
        if operation == _TAILCALL and (every or written.get(register) in _READ_TABLE):
            _CODE.pack_into(code, at + 4 * index, word & ~0x3F | _CALL)
        if operation not in _WRITE_NO_A:
            written[register] = operation


# --------------------------------------------------------------------------------------- limits

# Memory on top of a script's limit, so that a script just below the limit can still take a reply.
ROOM_BYTES = 32 << 20
# A reply or an argument list up to this size is passed to Lua without checking the memory left.
SMALL_BYTES = 1 << 20
# Most steps of one native pattern match, which nothing can interrupt: about 0.2 s.
NATIVE_STEPS = 20_000_000
# A result nested deeper than this is replaced by an error, because the broker encodes replies
# recursively, and most clients decode them recursively.
REPLY_DEPTH = 200


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """Time and memory of one script, and the size of the cache."""

    seconds: float = 5.0
    seconds_after_write: float = 5.0
    memory_bytes: int = 64 << 20
    # A full cache drops its oldest script; clients load it again when they get NOSCRIPT.
    scripts_max: int = 10_000
    # Several times the code that a Lua state has memory for, and the largest script (8 MB).
    scripts_bytes_max: int = 32 << 20


LIMITS: Final = ScriptLimits()
"""Those of every broker: other clients wait while a script runs."""


# --------------------------------------------------------------------------------------- values

_INTEGER_MIN: Final = -(1 << 63)
_EXACT: Final = 1 << 53
# Most arguments of one call into Lua.
_PART: Final = 4000
_TOO_LARGE: Final = b"ERR not enough memory for the reply"


def number_text(number: float) -> bytes:
    """Format a number as a command's argument, like C's %.17g."""
    if type(number) is int:
        if -100000000000000000 < number < 100000000000000000:
            return b"%d" % number
        number = float(number)
    if number != number:
        return b"-nan" if math.copysign(1.0, number) < 0 else b"nan"
    return b"%.17g" % number


def integer(number: float) -> int:
    """Convert a number to an integer like C's cast to long long."""
    if type(number) is int and _INTEGER_MIN <= number < -_INTEGER_MIN:
        return number
    if not math.isfinite(number) or not _INTEGER_MIN <= number < -_INTEGER_MIN:
        return _INTEGER_MIN
    return int(number)


def line(text: bytes) -> bytes:
    """Replace line breaks, so that the text fits on one line of the protocol."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


# To Lua.


def to_lua(host: Any, reply: Reply, room: Callable[[], int]) -> Any:
    """Convert a reply for `api.call` in lua/redis.lua; `room` returns the memory left in bytes.

    A pair (None, problem) is an error.
    """
    if type(reply) is int:
        return _number(reply)
    size = _size(reply)
    if size > SMALL_BYTES and size > room():
        return (None, _TOO_LARGE)
    if type(reply) is ErrorReply:
        return (None, reply.text)
    return _value(host, reply)


def _size(reply: Any) -> int:
    """Estimate the bytes that a reply takes in Lua."""
    if isinstance(reply, bytes):
        return 64 + len(reply)
    if isinstance(reply, (list, tuple)):
        return 64 + sum(map(_size, reply))
    if type(reply) is Map:
        return 64 + sum(map(_size, reply.flat))
    if type(reply) is Members or type(reply) is Push:
        return 64 + sum(map(_size, reply.items))
    if type(reply) is ErrorReply:
        return 256 + len(reply.text)
    if type(reply) is Verbatim:
        return 256 + len(reply.text)
    return 64


def _number(number: int) -> float:
    return number if -_EXACT <= number <= _EXACT else float(number)


def _value(host: Any, reply: Any) -> Any:
    kind = type(reply)
    if kind is bytes:
        return reply
    if kind is int:
        return _number(reply)
    if reply is None or reply is NO_ARRAY:
        return False
    if kind is list or kind is tuple:
        return _array(host, reply)
    if kind is Status:
        return host[b"field"](b"ok", bytes(reply))
    if kind is ErrorReply:
        return host[b"failure"](reply.text)
    if kind is Double:
        return number_text(float(reply))
    if kind is Map:
        return _array(host, reply.flat)
    if kind is Members or kind is Push:
        return _array(host, reply.items)
    if kind is Verbatim:
        return reply.text
    if isinstance(reply, bytes):
        return bytes(reply)
    if isinstance(reply, Sequence):
        return _array(host, reply)
    return False


def _array(host: Any, items: Sequence[Any]) -> Any:
    values = [item if type(item) is bytes else _value(host, item) for item in items]
    if len(values) <= _PART:
        return host[b"array"](*values)
    table = host[b"array"]()
    for start in range(0, len(values), _PART):
        host[b"extend"](table, start, *values[start : start + _PART])
    return table


# From Lua.


def from_lua(kind: int, values: Sequence[Any]) -> Reply:
    """Build a script's reply. `values` is one value (kind 0), a flat array (1) or a stream (2)."""
    if kind == 0:
        return _plain(values[0] if values else None)
    if kind == 1:
        return [value if type(value) is bytes else integer(value) for value in values]
    return _read(iter(values))


def _plain(value: Any) -> Reply:
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return 1 if value else None
    if kind is int or kind is float:
        return integer(value)
    return None


def _read(stream: Iterator[Any]) -> Reply:
    kind, value = next(stream), next(stream)
    if kind == 0:
        return _plain(value)
    if kind == 1:
        return [_read(stream) for _ in range(value)]
    if kind == 2:
        return Status(line(c_text(value)))
    assert kind == 3, kind
    return ErrorReply(line(c_text(value).rstrip(b"\r\n")))


# ------------------------------------------------------------------------------------ the state

_MODULES: Final = (
    "sandbox",
    "random",
    "patterns",
    "cjson",
    "cmsgpack",
    "results",
    "redis",
)
_ARGUMENTS: Final = b"ERR Lua redis lib command arguments must be strings or integers"
_NO_COMMAND: Final = b"ERR Please specify at least one argument for this redis lib call"
_NO_MEMORY: Final = b"ERR not enough memory for the script"
# Most values on Lua's stack in one call.
# A Lua number is a double: integers up to here are exact.

Starter: TypeAlias = "Callable[[Any, int, list[bytes]], Reply]"
"""Runs a compiled body. Arguments: the body, the number of keys, keys and arguments in one list."""


class ScriptFailure(Exception):
    """A script failed: the text, and where in its code (source name and line)."""

    def __init__(self, text: bytes, source: bytes | None = None, line: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.source = source
        self.line = line


@dataclass(slots=True)
class Owner:
    """The callables that a runtime uses on behalf of its owner."""

    call: Callable[[list[bytes]], Reply | ErrorReply]
    late: Callable[[], bool]
    register: Callable[[bytes, Any, bytes | None, list[bytes]], bytes | None] | None = None


def _refuse(_object: object, _name: object, _setting: bool) -> object:
    raise AttributeError("scripts hold no objects")


def has_lua() -> bool:
    """Whether the package lupa is installed. It is not imported before the first script."""
    return find_spec("lupa") is not None


def new_lua(memory_bytes: int) -> Any:
    """Create a bare Lua 5.1 state. Raises CommandError if the package lupa is not installed."""
    try:
        from lupa import lua51
    except ImportError:
        raise CommandError(
            b"ERR scripts need Lua: install delaylog[redis] (the package lupa) on the server"
        ) from None
    return lua51.LuaRuntime(
        encoding=None,
        unpack_returned_tuples=True,
        register_eval=False,
        register_builtins=False,
        attribute_filter=_refuse,
        max_memory=memory_bytes,
    )


class Runtime:
    """A sandboxed Lua state."""

    def __init__(self, owner: Owner, limits: ScriptLimits) -> None:
        self.owner = owner
        self.spoiled = False
        self._soft = limits.memory_bytes
        self._half = limits.memory_bytes // 2
        self._hard = limits.memory_bytes + ROOM_BYTES
        self._lua = lua = new_lua(self._hard)
        self._used: Callable[[], int] = lua.get_memory_used
        host = lua.table()
        self._fill(host, limits)
        load = lua.eval(
            b"function(code, host)"
            b" return string.dump(loadstring(code, '=scripts')),"
            b" function(code) return loadstring(code)(host) end end"
        )
        folder = resources.files(__package__) / "lua"
        for name in _MODULES:
            dump, start = load((folder / f"{name}.lua").read_bytes(), host)
            start(keep_frames(dump, everywhere=True))
        self.run: Starter = partial(self._start, host[b"run"])
        """Run a script with KEYS and ARGV. Raises ScriptFailure."""
        self.call_function: Starter = partial(self._start, host[b"call_function"])
        """Run a registered function. Raises ScriptFailure."""
        self._load_library = host[b"load_library"]
        self._restore = host[b"restore_environment"]
        self._compile = host[b"compile"]
        self._revive = host[b"revive"]
        self._slice = host[b"slice"]
        self._forget = host[b"forget"]
        self.rearm: Callable[[], None] = host[b"rearm"]
        """Reset the hook after a script was stopped, so that the next script can run."""
        self._begin, self._add = host[b"begin"], host[b"add"]

    # Compiling and running.

    def compile(self, source: bytes, name: bytes, *, library: bool = False) -> Any:
        """Compile `source` to a function. Raises ScriptFailure with Lua's own error text."""
        # The compiled form takes about ten times the size of the text.
        self._need(12 * len(source))
        try:
            dump, problem = self._results(self._compile(source, name), 2)
            if dump is None:
                raise ScriptFailure(problem)
            return self._revive(keep_frames(dump), library)
        except ScriptFailure:
            raise
        except Exception as problem:
            raise self._broken(problem) from None

    def load_library(self, body: Any) -> None:
        """Run the code of a library, which registers the library's functions."""
        try:
            ok, text = self._results(self._load_library(body), 2)
        except Exception as problem:
            raise self._broken(problem) from None
        finally:
            if not self.spoiled:
                self._restore()
                self.rearm()
        if not ok:
            raise ScriptFailure(text)

    def is_worn(self) -> bool:
        """Whether to replace this state: Lua 5.1 does not collect garbage when memory runs out."""
        return self.spoiled or self._used() > self._half

    def collect(self) -> None:
        """Collect garbage."""
        self._lua.gccollect()

    def _start(self, run: Any, body: Any, count: int, words: list[bytes]) -> Reply:
        """Run `body`. The first `count` words are keys, the others arguments."""
        size = len(b"".join(words))
        if size > SMALL_BYTES:
            self._need(size)
        try:
            if len(words) <= _PART:
                result = run(body, count, *words)
            else:
                self._need(size + 64 * len(words))
                self._begin()
                for start in range(0, len(words), _PART):
                    self._add(*words[start : start + _PART])
                result = run(body, -count - 1)
            kind = type(result)
            if kind is bytes or (kind is int and -_EXACT <= result <= _EXACT):
                return result  # type: ignore[no-any-return]
            if kind is not tuple:
                return integer(result)
            kind = result[0]
            if kind == 8:
                self.spoiled = True
                raise ScriptFailure(b"ERR " + result[1])
            if kind == 9:
                text, source, line = self._results(result[1:], 3)
                if b"not enough memory" in text:
                    self.spoiled = True
                raise ScriptFailure(text, source, line)
            if kind == 2:
                try:
                    return from_lua(2, self._stream(result[1]))
                finally:
                    self._forget()
            return from_lua(kind, result[1:])
        except ScriptFailure:
            raise
        except Exception as problem:
            raise self._broken(problem) from None

    def _stream(self, length: int) -> list[Any]:
        items: list[Any] = []
        for start in range(1, length + 1, _PART):
            part = self._slice(start, min(start + _PART - 1, length))
            if type(part) is tuple:
                items.extend(part)
            else:
                items.append(part)
        return items

    @staticmethod
    def _results(result: Any, count: int) -> tuple[Any, ...]:
        values = result if type(result) is tuple else (result,)
        return (*values, *(None,) * (count - len(values)))

    def _need(self, size: int) -> None:
        if self._used() + size > self._hard - SMALL_BYTES:
            self.collect()
            if self._used() + size > self._hard - SMALL_BYTES:
                raise ScriptFailure(_NO_MEMORY)

    def _broken(self, problem: Exception) -> ScriptFailure:
        """Convert an error that bypassed the error handler in Lua; the state is discarded."""
        self.spoiled = True
        text = problem.args[0] if problem.args else type(problem).__name__
        if not isinstance(text, bytes):
            text = str(text).encode("utf-8", "replace")
        return ScriptFailure(b"ERR " + (text.split(b"\n")[0] or b"not enough memory"))

    # Functions that Lua calls. They must not raise, nor return a value that Lua has no memory for.

    def _fill(self, host: Any, limits: ScriptLimits) -> None:
        owner, used, soft, hard = self.owner, self._used, self._soft, self._hard
        lua, call = self._lua, self.owner.call
        # The status OK needs no new Lua value. api.call in lua/redis.lua reads this pair.
        okay = (None, 1)

        held: list[Any] = []

        def hold(first: bool, *part: Any) -> None:
            if first:
                held.clear()
            held.extend(part)

        def held_command() -> Any:
            argv = tuple(held)
            held.clear()
            return command(*argv)

        def words_of(argv: tuple[Any, ...]) -> list[bytes] | bytes:
            words = list(argv)
            for index, item in enumerate(words):
                kind = type(item)
                if kind is int or kind is float:
                    words[index] = number_text(item)
                elif kind is not bytes:
                    return _ARGUMENTS
            return words or _NO_COMMAND

        def command(*argv: Any) -> Any:
            if used() > soft:
                return None
            try:
                for item in argv:
                    if type(item) is not bytes:
                        words = words_of(argv)
                        break
                else:
                    words = list(argv) or _NO_COMMAND
                if type(words) is bytes:
                    return (None, words)
                reply = call(words)  # type: ignore[arg-type]
                kind = type(reply)
                if kind is bytes:
                    if len(reply) < SMALL_BYTES:  # type: ignore[arg-type]
                        return reply
                elif kind is int:
                    if -_EXACT <= reply <= _EXACT:  # type: ignore[operator]
                        return reply
                elif reply is None:
                    return False
                elif reply is OK:
                    return okay
                return to_lua(host, reply, lambda: hard - used() - SMALL_BYTES)
            except Exception as problem:
                if used() > soft:
                    return None
                return (None, b"ERR " + str(problem).encode("utf-8", "replace")[:1000])

        def late() -> bool:
            try:
                return owner.late()
            except Exception:
                return True

        def sha1(text: bytes) -> bytes | None:
            if used() > soft:
                return None
            return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()

        def register(name: bytes, body: Any, described: Any = None, flags: Any = None) -> Any:
            if owner.register is None or used() > soft:
                return b"ERR redis.register_function can only be called on FUNCTION LOAD command"
            try:
                return owner.register(name, body, described, flags.split(b"\0") if flags else [])
            except Exception as problem:
                return b"ERR " + str(problem).encode("utf-8", "replace")[:1000]

        # Wrapped in a C function: calling a Python object would go through its metatable.
        host[b"command"] = lua.eval(b"python.as_function")(command)
        host[b"hold"] = hold
        host[b"held_command"] = held_command
        host[b"late"] = late
        host[b"sha1"] = sha1
        host[b"register"] = register
        host[b"memory_bytes"] = limits.memory_bytes
        host[b"native_steps"] = NATIVE_STEPS
        host[b"reply_depth"] = REPLY_DEPTH
        for name, function in _numbers(used, soft).items():
            host[name] = function


def _numbers(used: Callable[[], int], soft: int) -> dict[bytes, Callable[..., Any]]:
    """Return the functions of cmsgpack that convert numbers to bytes and back."""

    def pack(layout: bytes, value: float) -> bytes | None:
        if used() > soft:
            return None
        try:
            return struct.pack(layout, value if layout[-1:] in b"fd" else int(value))
        except OverflowError:
            return struct.pack(layout, math.copysign(math.inf, value))

    def unpack(layout: bytes, text: bytes) -> float:
        return float(struct.unpack(layout, text)[0])

    return {b"pack": pack, b"unpack": unpack}
