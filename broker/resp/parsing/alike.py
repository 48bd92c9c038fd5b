"""Pipelines of commands with as many arguments each, cut out of the bytes at all line ends at once.

Heads and values take turns then, as long as no value has a line end inside. If one has, or anything
else is unusual, some head does not say how many or how long what follows is: nothing is cut, and
the bytes are for those who read one command after the other.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.resp.parsing.limits import COUNTS, SIZES

_HEAD_BYTES_MAX: Final = max(map(len, COUNTS)) + 1
PIPELINE_BYTES: Final = 64 << 10
"""So much is looked at at once: what is behind it is copied no more often for that."""


def cut_alike(buffer: bytes, position: int, most: int) -> tuple[list[list[bytes]], int]:
    """Up to `most` commands that begin at `position`, and where they end; none if they are not
    alike, or not usual.
    """
    nothing: list[list[bytes]] = []
    count = COUNTS.get(buffer[position : buffer.find(b"\r", position, position + _HEAD_BYTES_MAX)])
    if count is None:
        return nothing, position
    if position or len(buffer) > PIPELINE_BYTES:
        buffer = buffer[position : position + PIPELINE_BYTES]
    stride = 2 * count + 1
    pieces = buffer.split(b"\r\n", stride * most)
    whole = (len(pieces) - 1) // stride
    behind = pieces[whole * stride :]
    del pieces[whole * stride :]
    if whole == 0 or pieces[::stride].count(pieces[0]) != whole:
        return nothing, position
    columns = []
    for at in range(1, stride, 2):
        heads, values = pieces[at::stride], pieces[at + 1 :: stride]
        head = heads[0]
        if heads.count(head) == whole:
            if list(map(len, values)).count(SIZES.get(head, -1)) != whole:
                return nothing, position
        elif list(map(SIZES.get, heads)) != list(map(len, values)):
            return nothing, position
        columns.append(values)
    read = len(buffer) - sum(map(len, behind)) - 2 * (len(behind) - 1)
    return list(map(list, zip(*columns, strict=True))), position + read
