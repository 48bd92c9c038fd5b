"""Requests off the wire with the help of hiredis, several times faster, with the same results.

Pipelines of commands that are alike do without it: `alike` cuts them out in less time than it takes
to look at what hiredis made of them.

hiredis takes more for a request than Redis does, waits where Redis refuses, and does not say how
far it has read. So what it gives is held against the bytes: its arguments must be as many as the
bytes have heads of arguments, and written as requests take up the bytes to just where the next
request begins; what is long is written again and compared whole. All the rest (typed lines,
unfinished and unusual requests, errors) is read strictly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, islice
from typing import Final

import hiredis
import numpy as np

from delaylog.broker.resp.parsing.alike import PIPELINE_BYTES, cut_alike
from delaylog.broker.resp.parsing.limits import (
    SMALL_BULK_BYTES_MAX,
    SMALL_COUNT_MAX,
    RequestLimits,
)
from delaylog.broker.resp.parsing.strict import MANY_MIN, CommandParser
from delaylog.storage.columns import every

# Where commands are of many shapes, looking whether they are alike is not for each chunk.
_UNLIKE_CHUNKS: Final = 15

_STAR: Final = ord("*")

# One or two commands are read strictly in less time.
_CHUNK_BYTES_MIN: Final = 192

# hiredis makes room for as many elements as are announced, before they come. Each pattern begins
# with one certain byte.
_MANY: Final = tuple(
    (kind, re.compile(b"\\%b[0-9]{6,}\r" % kind)) for kind in (b"*", b"~", b">", b"|")
)

_LONG: Final = re.compile(rb"\*[0-9]{3,}\r").match

# What stands around what is usual: bytes of `*3\r\n`, and of `$5\r\n` with the line end behind.
_AROUND_COMMAND: Final = [len(b"*%d\r\n" % count) for count in range(SMALL_COUNT_MAX + 1)]
_AROUND_ARGUMENT: Final = [len(b"$%d\r\n\r\n" % size) for size in range(SMALL_BULK_BYTES_MAX + 1)]
_ONLY_BYTES: Final = {bytes}

_DOLLAR: Final = ord("$")
_AROUND_SIZES: Final = np.array(_AROUND_ARGUMENT)
_POWERS_OF_TEN: Final = 10 ** np.arange(1, 19)
_ARGUMENT_BYTES_MIN: Final = len(b"$0\r\n\r\n")
# No more is looked at for each of many: what lies behind may be other commands.
_ARGUMENT_BYTES: Final = 256


class HiredisParser(CommandParser):
    """A CommandParser that reads chunks of many usual commands at once."""

    __slots__ = ("_reader", "_reading", "_unlike", "_usual")

    def __init__(self, limits: RequestLimits | None = None, *, authenticated: bool = True) -> None:
        super().__init__(limits, authenticated=authenticated)
        self._reader: hiredis.Reader | None = None  # none before the first chunk worth it
        self._reading = False  # it holds the buffer from the position on
        self._unlike = 0  # chunks to go until it is tried again whether their commands are alike
        self._usual = True  # until something came that hiredis sees otherwise

    def _read(self, commands: list[list[bytes]], max: int) -> None:
        if self._missing:  # The one that began in an earlier chunk.
            self._read_strictly(commands, len(commands) + 1)
        while len(commands) < max and self._cut_alike(commands, max):
            if self._position == len(self._buffer):
                return
        while not self._reading and len(commands) < max and self._long_is_next():
            count = len(commands)
            self._read_strictly(commands, count + 1)
            if len(commands) == count:
                return
        tried = (
            self._usual
            and self.authenticated
            and self._missing == 0
            and len(commands) < max
            and (self._reading or self._worth_it())
        )
        if tried:
            self._read_chunk(commands, max)
        if self._reading:
            if len(commands) >= max:
                return
            self._forget_reader()
        if self._position < len(self._buffer) and len(commands) < max:
            count = len(commands)
            self._read_strictly(commands, max)
            if tried and len(commands) > count:
                self._usual = False  # There were commands where hiredis saw none.

    def _cut_alike(self, commands: list[list[bytes]], max: int) -> bool:
        """Read what is a pipeline of commands that are alike; False if there is none."""
        if (
            self._missing
            or self._reading
            or len(self._buffer) - self._position < _CHUNK_BYTES_MIN
            or not self.authenticated
            or self.limits.command_bytes_max < PIPELINE_BYTES
        ):
            return False
        if self._unlike:
            self._unlike -= 1
            return False
        found, self._position = cut_alike(self._buffer, self._position, max - len(commands))
        if not found:
            self._unlike = _UNLIKE_CHUNKS
            return False
        commands += found
        return True

    def _long_is_next(self) -> bool:
        """Whether a command of so many arguments begins here that they are cut out many at once,
        in less time than it takes to read them and to write them again.
        """
        head = _LONG(self._buffer, self._position)
        return head is not None and self.authenticated

    def _worth_it(self) -> bool:
        """Whether the buffer has several commands from here, none of them monstrous."""
        buffer = self._buffer
        position = self._position
        if len(buffer) - position < _CHUNK_BYTES_MIN or buffer[position] != _STAR:
            return False
        return not _is_monstrous(buffer, position, len(buffer))

    def _read_chunk(self, commands: list[list[bytes]], max: int) -> None:
        """Read as hiredis does as much of the buffer as it understands, and believe what is so."""
        buffer = self._buffer
        position = self._position
        if self._reader is None:
            self._reader = hiredis.Reader()
        if not self._reading:
            self._reader.feed(buffer, position, len(buffer) - position)
            self._reading = True
        wanted = max - len(commands)
        try:
            found = list(islice(iter(self._reader.gets, False), wanted))
            end = self._end_of(found, position)
        except Exception:  # of whatever kind: it is no command, or none that hiredis knows
            self._usual = False
            return
        if end is None:
            self._usual = False
            return
        self._position = end
        if self._position == len(buffer):
            self._reading = False
        elif len(found) < wanted:
            self._forget_reader()
        commands += found if all(found) else filter(None, found)

    def _end_of(self, commands: list[list[bytes]], position: int) -> int | None:
        """Where commands end that begin at `position`; None, or any exception, if the bytes there
        are other ones.
        """
        buffer = self._buffer
        arguments = list(chain.from_iterable(commands))
        sizes = list(map(len, arguments))
        try:
            around = sum(map(_AROUND_ARGUMENT.__getitem__, sizes))
            around += sum(map(_AROUND_COMMAND.__getitem__, map(len, commands)))
        except IndexError:  # Some are long, and are compared with less haste.
            written = _written_long(commands, self.limits)
            return position + len(written) if buffer.startswith(written, position) else None
        end = position + sum(sizes) + around
        if (
            set(map(type, arguments)) <= _ONLY_BYTES
            and buffer.count(b"\r\n$", position, end) >= len(arguments)
            and buffer.count(b"\r\n*", position, end) >= len(commands) - 1
            and (end == position or buffer[end - 2 : end] == b"\r\n")
            and (end == len(buffer) or buffer[end] == _STAR)
        ):
            return end
        return None

    def _cut_many(self, buffer: bytes, position: int, most: int) -> tuple[list[bytes], int]:
        """The next arguments of a command and where they end; none if there are few, or one is
        unusual, or has a line end inside that looks like the next one's head where not all came.
        """
        size = min(len(buffer) - position, most * _ARGUMENT_BYTES)
        end = position + size
        room = min(most, size // _ARGUMENT_BYTES_MIN)
        if room < MANY_MIN // 2 or _is_monstrous(buffer, position, end):
            return [], position
        try:
            values = _values(buffer, position, end, room)
            if values is None:
                # Those that another one begins behind are whole.
                whole = buffer.count(b"\r\n$", position, end)
                if not MANY_MIN // 2 <= whole < room:
                    return [], position
                values = _values(buffer, position, end, whole)
            if values is None:
                return [], position
            found_end = _end_of_many(values, buffer, position, self.limits.bulk_bytes_max)
        except Exception:  # of whatever kind: it is no argument, or none that hiredis knows
            return [], position
        return ([], position) if found_end is None else (values, found_end)

    def _forget_reader(self) -> None:
        """Let go of what it holds; what is unfinished goes on strictly."""
        self._reader = None
        self._reading = False


def _is_monstrous(buffer: bytes, position: int, end: int) -> bool:
    """Whether hiredis may make room for very much from here."""
    # To look for one certain byte takes a tenth of the time, and most often it is not there.
    return any(
        buffer.find(kind, position, end) >= 0 and pattern.search(buffer, position, end)
        for kind, pattern in _MANY
    )


def _values(buffer: bytes, position: int, end: int, count: int) -> list[bytes] | None:
    """What hiredis takes for so many arguments; None if it does not find as many."""
    reader = hiredis.Reader()
    reader.feed(b"*%d\r\n" % count)
    reader.feed(buffer, position, end - position)
    values = reader.gets()
    return None if values is False else values


def _end_of_many(values: list[bytes], buffer: bytes, position: int, bytes_max: int) -> int | None:
    """Where arguments end that hiredis read from `position`; None if one is not written as such.

    hiredis takes a size only if it is written in the one shortest way, so each argument ends where
    its length says, if it begins with the sign of one. What it reads of other kinds has no length,
    or begins with another sign.
    """
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    size_max = int(sizes.max())
    if size_max > bytes_max:
        return None
    if size_max <= SMALL_BULK_BYTES_MAX:
        ends = np.cumsum(_AROUND_SIZES[sizes] + sizes)
    else:
        ends = np.cumsum(np.searchsorted(_POWERS_OF_TEN, sizes, side="right") + 6 + sizes)
    end = position + int(ends[-1])
    starts = ends[:-1] + position
    heads = np.frombuffer(buffer, np.uint8, end)[starts]
    return end if buffer[position] == _DOLLAR and every(heads == _DOLLAR) else None


def _written_long(commands: list[list[bytes]], limits: RequestLimits) -> bytes:
    pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
    pieces = []
    for command in commands:
        if len(command) > limits.arguments_max or (
            command and max(map(len, command)) > limits.bulk_bytes_max
        ):
            raise ValueError("beyond the limits")
        pieces.append(pack(tuple(command)))
        if len(pieces[-1]) > limits.command_bytes_max:
            raise ValueError("beyond the limits")
    return b"".join(pieces)
