"""The fast path of the parser: splits the bytes at all line ends at once.

A usual command has small counts and sizes (`limits.COUNTS`, `limits.SIZES`) and no line end inside
a value, so its pieces are headers and values in turn. A command whose headers do not match its
pieces is unusual: the commands before it are returned, and `CommandParser` reads the rest line by
line.

Measured per command: 0.35 us in a pipeline whose commands all have the same number of arguments,
0.8 us in any other, 1.7 us line by line.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.resp.parsing.limits import COUNTS, SIZES

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
