"""Parses requests of the Redis protocol: it is fed bytes as they arrive, and returns commands.

`feed` takes bytes in pieces of any size, `next_commands` returns commands. The time is linear in
the bytes, because the pieces of an unfinished value are joined once. The parser accepts what Redis
7.0.15 accepts and refuses other requests with the same error texts, with one difference: in Redis
the maximum length of a line depends on how the network splits the bytes, here it does not. The
default limits are those of Redis, too. The limit for a whole command is an addition, and off by
default.

Usual commands take a faster path with the same results, which splits the bytes at all line ends at
once. A usual command has small counts and sizes (`COUNTS`, `SIZES`) and no line end inside a value,
so its pieces are headers and values in turn. A command whose headers do not match its pieces is
unusual: the commands before it are returned, and `CommandParser` reads the rest line by line.
Measured per command: 0.35 us in a pipeline whose commands all have the same number of arguments,
0.8 us in any other, 1.7 us line by line.

An inline command is one line of words, separated by blanks, some of them in quotes. A vertical tab
or a form feed counts as a blank only before a word. A quote may open inside a word, and the word
must end with the closing quote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# --------------------------------------------------------------------------------------- limits

# Limit of a line: an inline command, or the header with a count or a size.
LINE_BYTES_MAX: Final = 64 << 10

# Limits before authentication, which are enough for AUTH and HELLO.
UNAUTHENTICATED_ARGUMENTS_MAX: Final = 10
UNAUTHENTICATED_BULK_BYTES_MAX: Final = 16384

# Counts and sizes up to these are looked up in the tables below, without comparing them to a limit.
SMALL_COUNT_MAX: Final = 64
SMALL_BULK_BYTES_MAX: Final = 1024

# The headers of nearly all commands; one look-up parses a header.
COUNTS: Final = {b"*%d" % count: count for count in range(1, SMALL_COUNT_MAX + 1)}
SIZES: Final = {b"$%d" % size: size for size in range(SMALL_BULK_BYTES_MAX + 1)}


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Shared by all connections."""

    # Bytes of one connection that were received and not returned as commands.
    query_bytes_max: int = 1 << 30
    # Bytes of one argument, `proto-max-bulk-len`.
    bulk_bytes_max: int = 512 << 20
    # Arguments of one command, as in Redis 7.0. In practice query_bytes_max is reached first.
    arguments_max: int = (1 << 31) - 1
    # Bytes of one command on the wire. Redis has no such limit.
    command_bytes_max: int = 1 << 62

    def __post_init__(self) -> None:
        assert self.arguments_max >= SMALL_COUNT_MAX
        assert self.bulk_bytes_max >= SMALL_BULK_BYTES_MAX


# ------------------------------------------------------------------------------ inline commands

# A line without these characters can be split by bytes.split.
_UNUSUAL: Final = re.compile(rb"[\"'\v\f]")

_BLANKS: Final = re.compile(rb"[ \t\n\v\f\r]*")
_PLAIN: Final = re.compile(rb"[^ \t\n\r\"']*")
# The possessive *+ never backtracks, so an escaped quote cannot close the word.
_DOUBLE: Final = re.compile(rb'"((?:\\.|[^"\\])*+)"', re.DOTALL)
_SINGLE: Final = re.compile(rb"'((?:\\'|[^'])*+)'")
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_line(line: bytes) -> list[bytes] | None:
    """Split a line into words; returns None if its quotes do not match."""
    if _UNUSUAL.search(line) is None:
        return line.split()
    words: list[bytes] = []
    at = _skip(_BLANKS, line, 0)
    while at < len(line):
        end = _skip(_PLAIN, line, at)
        word = line[at:end]
        if end < len(line) and line[end] in b"\"'":
            double = line[end] == ord('"')
            quoted = (_DOUBLE if double else _SINGLE).match(line, end)
            if quoted is None:
                return None
            word += _ESCAPE.sub(_meaning, quoted[1]) if double else quoted[1].replace(b"\\'", b"'")
            end = quoted.end()
        at = _skip(_BLANKS, line, end)
        if at == end < len(line):
            return None  # The closing quote is not at the end of its word.
        words.append(word)
    return words


def _skip(pattern: re.Pattern[bytes], line: bytes, at: int) -> int:
    match = pattern.match(line, at)
    assert match is not None, "the pattern also matches the empty string"
    return match.end()


def _meaning(escape: re.Match[bytes]) -> bytes:
    if escape[1] is not None:
        return bytes.fromhex(escape[1].decode())
    return _LETTERS.get(escape[2], escape[2])


# -------------------------------------------------------------------------------- the fast path

_HEAD_BYTES_MAX: Final = max(map(len, COUNTS)) + 1
PIPELINE_BYTES: Final = 64 << 10
"""The size of a chunk: one call copies and splits at most this many bytes."""


def cut_one(data: bytes) -> list[bytes] | None:
    """Return the command if the bytes are exactly one usual command, otherwise None."""
    pieces = data.split(b"\r\n")
    count = COUNTS.get(pieces[0])
    if count is None or len(pieces) != 2 * count + 2 or pieces[-1]:
        return None
    values = pieces[2::2]
    return values if list(map(SIZES.get, pieces[1:-1:2])) == list(map(len, values)) else None


def cut_usual(buffer: bytes, position: int, most: int) -> tuple[list[list[bytes]], int]:
    """Return up to `most` usual commands from `position` on, and the position of their end."""
    count = COUNTS.get(buffer[position : buffer.find(b"\r", position, position + _HEAD_BYTES_MAX)])
    if count is None:
        return [], position
    if position or len(buffer) > PIPELINE_BYTES:
        buffer = buffer[position : position + PIPELINE_BYTES]
    stride = 2 * count + 1
    pieces = buffer.split(b"\r\n", stride * most)
    found = _alike(pieces, count)
    end = len(found) * stride
    if not found:
        found, end = _one_by_one(pieces, most)
    behind = pieces[end:]
    read = len(buffer) - sum(map(len, behind)) - 2 * (len(behind) - 1)
    return found, position + read


def _alike(pieces: list[bytes], count: int) -> list[list[bytes]]:
    """Return all complete commands if each is usual and has `count` arguments; otherwise none."""
    stride = 2 * count + 1
    whole = (len(pieces) - 1) // stride
    end = whole * stride
    if (
        whole == 0
        or COUNTS.get(pieces[0]) != count
        or pieces[:end:stride].count(pieces[0]) != whole
    ):
        return []
    columns = []
    for at in range(1, stride, 2):
        heads, values = pieces[at:end:stride], pieces[at + 1 : end : stride]
        head = heads[0]
        if heads.count(head) == whole:
            if list(map(len, values)).count(SIZES.get(head, -1)) != whole:
                return []
        elif list(map(SIZES.get, heads)) != list(map(len, values)):
            return []
        columns.append(values)
    return list(map(list, zip(*columns, strict=True)))


def _one_by_one(pieces: list[bytes], most: int) -> tuple[list[list[bytes]], int]:
    """Return the complete commands before the first unusual one, and the number of their pieces."""
    found: list[list[bytes]] = []
    at, last = 0, len(pieces) - 1
    while len(found) < most:
        count = COUNTS.get(pieces[at])
        if count is None or (end := at + 2 * count + 1) > last:
            break
        values = pieces[at + 2 : end : 2]
        if list(map(SIZES.get, pieces[at + 1 : end : 2])) != list(map(len, values)):
            break
        found.append(values)
        at = end
    return found, at


# ----------------------------------------------------------------------------------- the parser

_STAR: Final = ord("*")
_NUMBER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_INT64_MAX: Final = (1 << 63) - 1

_NONE: Final[dict[bytes, int]] = {}
_WHOLE_SIZES: Final = [
    size + len(b"$%d\r\n\r\n" % size) for size in range(SMALL_BULK_BYTES_MAX + 1)
]

# A command with at least _MANY_MIN missing arguments is split in chunks of _MANY_BYTES.
_MANY_MIN: Final = SMALL_COUNT_MAX
_MANY_BYTES: Final = 64 << 10

# Data up to _ONE_BYTES_MAX is tried as a single command, data from _PIPELINE_BYTES_MIN on as a
# pipeline.
_ONE_BYTES_MAX: Final = 2 << 10
_PIPELINE_BYTES_MIN: Final = 192
# After a chunk that begins with an unusual command, this many chunks are read line by line.
_UNUSUAL_CHUNKS: Final = 15

# An unfinished value of at least this size is joined from the pieces; a shorter one is sliced from
# the buffer, to which the pieces are appended.
_PIECES_BYTES_MIN: Final = 32 << 10
# Smaller pieces are joined on arrival, so that the list of pieces stays short.
_PIECE_BYTES_MIN: Final = 4096

_BAD_COUNT: Final = b"Protocol error: invalid multibulk length"
_BAD_SIZE: Final = b"Protocol error: invalid bulk length"
_BAD_QUOTES: Final = b"Protocol error: unbalanced quotes in request"
_UNAUTHENTICATED_COUNT: Final = b"Protocol error: unauthenticated multibulk length"
_UNAUTHENTICATED_SIZE: Final = b"Protocol error: unauthenticated bulk length"
_LONG_LINE: Final = b"Protocol error: too big inline request"
_LONG_COUNT: Final = b"Protocol error: too big mbulk count string"
_LONG_SIZE: Final = b"Protocol error: too big bulk count string"
_LONG_COMMAND: Final = b"Protocol error: a command may have %d bytes at most"


class CommandParser:
    """Parses the requests of one connection.

    error          None until the bytes violate the protocol or a limit. Then it is the text of
                   Redis's error, like `Protocol error: invalid bulk length`. The caller sends it
                   with the prefix `-ERR `, after the replies to earlier commands, and closes the
                   connection. It is b"" if too many bytes are unread: then the caller sends no
                   error, as Redis does. The parser reads nothing more.
    authenticated  While it is False, commands are returned one at a time, because each command may
                   change the limits for the next.
    """

    def __init__(self, limits: RequestLimits | None = None, *, authenticated: bool = True) -> None:
        self.limits = limits or RequestLimits()
        self.authenticated = authenticated
        self.error: bytes | None = None
        self._buffer = b""
        self._position = 0
        self._fed: list[bytes] = []  # pieces that follow the buffer
        self._fed_bytes = 0
        self._awaited = 1  # parsing continues when this number of bytes has been fed
        self._unusual = 0  # number of chunks to read line by line before a pipeline is tried again
        # The unfinished command: the number of missing arguments (0 = there is no unfinished
        # command), its complete arguments, and their bytes on the wire.
        # Its unfinished argument: the size (-1 = unknown), and the value if only the line end after
        # it is missing.
        self._missing = 0
        self._arguments: list[bytes] = []
        self._arguments_bytes = 0
        self._size = -1
        self._value: bytes | None = None

    @property
    def unread_bytes(self) -> int:
        """Bytes that have arrived and were not returned as a command."""
        return len(self._buffer) - self._position + self._fed_bytes + self._arguments_bytes

    def feed(self, data: bytes) -> int:
        """Take received bytes; returns the number of bytes that were unread before them."""
        if self.error is not None or not data:
            return 0
        fed = self._fed
        if fed:
            if len(fed[-1]) + len(data) <= _PIECE_BYTES_MIN:
                fed[-1] += data
            else:
                fed.append(data)
        else:
            fed.append(data)
        # This data may be whole commands, so only the bytes before it count toward the limit.
        unread = self.unread_bytes
        if unread > self.limits.query_bytes_max:
            self._refuse(b"")
            return 0
        self._fed_bytes += len(data)
        return unread

    def next_commands(self, max: int) -> list[list[bytes]]:
        """Return up to `max` complete commands, before authentication up to one, in order.

        Fewer are returned only if no further command is complete.
        """
        if self._position == len(self._buffer) and len(self._fed) == 1 and self.authenticated:
            data = self._fed[0]
            # A client that waits for each reply usually sends exactly one short command.
            short = len(data) <= _ONE_BYTES_MAX <= self.limits.command_bytes_max
            if not self._missing and short and (one := cut_one(data)) is not None:
                self._fed = []
                self._fed_bytes = 0
                return [one]
        commands: list[list[bytes]] = []
        wanted = max if self.authenticated else min(max, 1)
        while len(commands) < wanted:
            if self._position < len(self._buffer):
                self._read(commands, wanted)
                if len(commands) >= wanted:
                    break
            if self._fed_bytes < self._awaited:
                break
            self._take_fed()
        return commands

    def _read(self, commands: list[list[bytes]], max: int) -> None:
        """Parse the buffer until there are `max` commands, or no further complete command."""
        if self._missing:  # A command that began in an earlier chunk.
            self._read_line_by_line(commands, len(commands) + 1)
        while len(commands) < max and self._cut_usual(commands, max):
            if self._position == len(self._buffer):
                return
        if self._position < len(self._buffer) and len(commands) < max:
            self._read_line_by_line(commands, max)

    def _cut_usual(self, commands: list[list[bytes]], max: int) -> bool:
        """Parse usual commands at the buffer's position as a pipeline; False if there are none."""
        if (
            self._missing
            or len(self._buffer) - self._position < _PIPELINE_BYTES_MIN
            or not self.authenticated
            or self.limits.command_bytes_max < PIPELINE_BYTES
        ):
            return False
        if self._unusual:
            self._unusual -= 1
            return False
        found, self._position = cut_usual(self._buffer, self._position, max - len(commands))
        if not found and self._position == 0:
            self._unusual = _UNUSUAL_CHUNKS
        commands += found
        return bool(found)

    def _take_fed(self) -> None:
        """Append the fed pieces to the unread rest of the buffer."""
        pieces = self._fed
        if self._position < len(self._buffer):
            pieces.insert(0, self._buffer[self._position :])
        if self._size >= _PIECES_BYTES_MIN and self._value is None:
            pieces = self._take_value(pieces)
        self._buffer = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._position = 0
        self._fed = []
        self._fed_bytes = 0
        self._awaited = 1

    def _take_value(self, pieces: list[bytes]) -> list[bytes]:
        """Join the unfinished value, which is complete now; returns the pieces after it."""
        lacking = self._size
        count = 0
        while lacking > len(pieces[count]):
            lacking -= len(pieces[count])
            count += 1
        last = pieces[count]
        self._value = b"".join((*pieces[:count], memoryview(last)[:lacking]))
        return [last[lacking:], *pieces[count + 1 :]]

    def _read_line_by_line(self, commands: list[list[bytes]], max: int) -> None:
        """Read commands one line at a time; an unfinished command is kept for the next call."""
        buffer = self._buffer
        find = buffer.find
        position = began = self._position
        end = len(buffer)
        missing = self._missing
        arguments = self._arguments
        counts = COUNTS if self.authenticated else _NONE
        sizes = SIZES if self.authenticated else _NONE
        most = self.limits.command_bytes_max
        while position < end and len(commands) < max:
            if missing == 0:
                if buffer[position] != _STAR:
                    line_end = find(b"\n", position, position + LINE_BYTES_MAX + 1)
                    if line_end < 0 or find(b"\0", position, line_end) >= 0:
                        self._line_unfinished(end - position, _LONG_LINE)
                        break
                    words = split_line(buffer[position:line_end].removesuffix(b"\r"))
                    if words is None:
                        self._refuse(_BAD_QUOTES)
                        return
                    position = line_end + 1
                    if words:
                        commands.append(words)
                    continue
                line_end = find(b"\r", position, position + LINE_BYTES_MAX + 1)
                if line_end < 0 or line_end + 2 > end:
                    self._line_unfinished(end - position, _LONG_COUNT)
                    break
                head = buffer[position:line_end]
                count = counts.get(head)
                if count is None:
                    if b"\0" in head:
                        self._line_unfinished(end - position, _LONG_COUNT)
                        break
                    count = self._count(head)
                    if self.error is not None:
                        return
                    if count <= 0:  # An empty command.
                        position = line_end + 2
                        continue
                began = position
                position = line_end + 2
                self._arguments_bytes = 0
                missing = count
                arguments = []
            while True:
                left = 0
                if self._size >= 0 and missing > _MANY_MIN:
                    # Read only the unfinished argument here; _cut_many then splits those after it.
                    left = missing - 1
                while missing >= _MANY_MIN and not left:
                    many, position = self._cut_many(buffer, position, missing)
                    if not many:
                        break
                    arguments += many
                    missing -= len(many)
                # Each pass reads one argument: its size, unless that is known, and its value.
                while missing > left:
                    size = self._size
                    if size < 0:
                        line_end = find(b"\r", position, position + LINE_BYTES_MAX + 1)
                        if line_end < 0 or line_end + 2 > end:
                            self._line_unfinished(end - position, _LONG_SIZE)
                            break
                        head = buffer[position:line_end]
                        known = sizes.get(head)
                        if known is not None:
                            size = known
                        elif b"\0" in head:
                            self._line_unfinished(end - position, _LONG_SIZE)
                            break
                        else:
                            size = self._bulk_size(head)
                            if self.error is not None:
                                return
                        position = line_end + 2
                    elif self._value is not None:  # Joined by _take_value; its line end follows.
                        arguments.append(self._value)
                        self._arguments_bytes += size
                        self._value = None
                        self._size = -1
                        position += 2
                        missing -= 1
                        continue
                    stop = position + size
                    if stop + 2 > end:
                        if self._arguments_bytes + stop - began > most:
                            self._too_long()
                            return
                        self._size = size
                        self._awaited = stop + 2 - end
                        break
                    arguments.append(buffer[position:stop])
                    self._size = -1
                    position = stop + 2
                    missing -= 1
                if missing > left or not left:
                    break
            if self._arguments_bytes + position - began > most:
                self._too_long()
                return
            if missing:
                break
            commands.append(arguments)
            arguments = []
            self._arguments_bytes = 0
            began = position
        if self.error is not None:
            return
        self._position = position
        self._missing = missing
        self._arguments = arguments
        if missing:
            self._arguments_bytes += position - began

    def _cut_many(self, buffer: bytes, position: int, most: int) -> tuple[list[bytes], int]:
        """Return the next arguments of a command and their end; none if they are few or unusual.

        The bytes are split at all line ends, as in `pipelines`. The result is correct if the size
        in each header is the length of the piece after it.
        """
        pieces = buffer[position : position + _MANY_BYTES].split(b"\r\n", 2 * most)
        # The piece after the last line end is unfinished, or belongs to the next command.
        count = (len(pieces) - 1) // 2
        if count < _MANY_MIN // 2:
            return [], position
        heads, values = pieces[: 2 * count : 2], pieces[1 : 2 * count : 2]
        sizes = list(map(len, values))
        if list(map(SIZES.get, heads)) != sizes:
            return [], position
        return values, position + sum(map(_WHOLE_SIZES.__getitem__, sizes))

    def _line_unfinished(self, line_bytes: int, error: bytes) -> None:
        """Wait for the end of a line, unless the line is too long already.

        In Redis, a line with a zero byte never ends, because it finds no line end after that byte.
        """
        if line_bytes > LINE_BYTES_MAX:
            self._refuse(error)

    def _count(self, head: bytes) -> int:
        count = _number(head[1:])
        if count is None or count > self.limits.arguments_max:
            self._refuse(_BAD_COUNT)
        elif count > UNAUTHENTICATED_ARGUMENTS_MAX and not self.authenticated:
            self._refuse(_UNAUTHENTICATED_COUNT)
        return count or 0

    def _bulk_size(self, head: bytes) -> int:
        if head[:1] != b"$":
            # For an empty line, the character that Redis reports is the line end, as a space.
            got = (head[:1] or b"\r").translate(bytes.maketrans(b"\r\n", b"  "))
            self._refuse(b"Protocol error: expected '$', got '%b'" % got)
            return 0
        size = _number(head[1:])
        if size is None or not 0 <= size <= self.limits.bulk_bytes_max:
            self._refuse(_BAD_SIZE)
        elif size > UNAUTHENTICATED_BULK_BYTES_MAX and not self.authenticated:
            self._refuse(_UNAUTHENTICATED_SIZE)
        return size or 0

    def _too_long(self) -> None:
        self._refuse(_LONG_COMMAND % self.limits.command_bytes_max)

    def _refuse(self, error: bytes) -> None:
        """Set the error, and discard all bytes."""
        self.error = error
        self._buffer = b""
        self._position = 0
        self._fed = []
        self._fed_bytes = self._arguments_bytes = 0
        self._arguments = []
        self._value = None


def _number(digits: bytes) -> int | None:
    """Parse a signed 64-bit integer without leading zeros; returns None for any other text."""
    if _NUMBER.fullmatch(digits) is None:
        return None
    number = int(digits)
    return number if -_INT64_MAX - 1 <= number <= _INT64_MAX else None
