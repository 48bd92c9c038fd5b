"""LCS: the longest common subsequence of two strings.

The table of lengths is filled row by row with numpy: a row is the running maximum of what the row
above gives, so the time is that of Redis within a small factor.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from delaylog.broker.keyspace.commands.strings import STRING_BYTES_MAX
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.number_texts import to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Map, Reply
from delaylog.broker.keyspace.run import Run

_NO_STRINGS: Final = b"ERR The specified keys must contain string values"
_BOTH: Final = b"ERR If you want both the length and indexes, please just use IDX."
_TOO_LARGE: Final = b"ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"


@command("lcs", -3, "readonly", keys=(1, 2, 1))
def lcs(run: Run, argv: Args) -> Reply:
    """What two strings have in common: [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]."""
    strings: list[bytes] = []
    for key in argv[1:3]:
        value = run.database.find(key)
        if value is None:
            strings.append(b"")
        elif isinstance(value, bytes | bytearray):
            strings.append(bytes(value))
        else:
            raise CommandError(_NO_STRINGS)
    wants_length = wants_matches = with_length = False
    shortest = 0
    at = 3
    while at < len(argv):
        option = argv[at].lower()
        if option == b"idx":
            wants_matches = True
        elif option == b"len":
            wants_length = True
        elif option == b"withmatchlen":
            with_length = True
        elif option == b"minmatchlen" and at + 1 < len(argv):
            at += 1
            shortest = to_int(argv[at])
        else:
            raise syntax()
        at += 1
    if wants_length and wants_matches:
        raise CommandError(_BOTH)
    first, second = strings
    if (len(first) + 1) * (len(second) + 1) * 4 > STRING_BYTES_MAX:
        raise CommandError(_TOO_LARGE)
    if wants_length:
        return _length(first, second)
    pairs = _common(first, second)
    if not wants_matches:
        return bytes(first[i] for i, _ in reversed(pairs))
    matches: list[Reply] = []
    for i, j, size in _ranges(pairs):
        if size >= shortest:
            matches.append([[i, i + size - 1], [j, j + size - 1], *([size] if with_length else [])])
    return Map([b"matches", matches, b"len", len(pairs)])


def _next_row(above: Any, wanted: int, among: Any) -> Any:
    """The lengths with one more byte of the first string; both rows begin with a zero."""
    row = above.copy()
    np.maximum(row[1:], above[:-1] + (among == wanted), out=row[1:])
    np.maximum.accumulate(row, out=row)
    return row


def _length(first: bytes, second: bytes) -> int:
    if len(first) > len(second):
        first, second = second, first
    among = np.frombuffer(second, np.uint8)
    row = np.zeros(len(second) + 1, np.uint32)
    for wanted in first:
        row = _next_row(row, wanted, among)
    return int(row[-1])


def _common(first: bytes, second: bytes) -> list[tuple[int, int]]:
    """The indexes of bytes in common, last first; of equal ways the one Redis takes."""
    turned = len(first) > len(second)
    rows, columns = (second, first) if turned else (first, second)
    among = np.frombuffer(columns, np.uint8)
    table = np.zeros((len(rows) + 1, len(columns) + 1), np.uint32)
    for number, wanted in enumerate(rows):
        table[number + 1] = _next_row(table[number], wanted, among)
    lengths = table.T if turned else table
    pairs: list[tuple[int, int]] = []
    i, j = len(first), len(second)
    while i and j:
        if first[i - 1] == second[j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif lengths[i - 1, j] > lengths[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return pairs


def _ranges(pairs: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Pairs that follow each other as (first index, second index, size), last first."""
    out: list[tuple[int, int, int]] = []
    for i, j in pairs:
        if out and out[-1][0] == i + 1 and out[-1][1] == j + 1:
            out[-1] = (i, j, out[-1][2] + 1)
        else:
            out.append((i, j, 1))
    return out
