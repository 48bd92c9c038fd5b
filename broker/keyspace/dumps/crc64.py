"""The checksum of dumps: CRC-64 of Jones, reflected, with initial value 0.

Large data is split into rows of equal length, and numpy computes the CRCs of all rows at once. Then
the rows are combined: tables give the effect of a row of zero bytes on the CRC of what precedes it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_POLYNOMIAL: Final = 0x95AC9329AC4BC9B5
_FEW_BYTES: Final = 16 * 1024
_ROW_BYTES: Final = 512


def _table() -> list[int]:
    out = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        out.append(crc)
    return out


_TABLE: Final = _table()
_TABLE_ARRAY: Final = np.array(_TABLE, np.uint64)


def crc64(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Return the CRC of `data`, appended to data whose CRC is `crc`."""
    rows = len(data) // _ROW_BYTES if len(data) > _FEW_BYTES else 0
    if rows:
        sums = _sums_of_rows(np.frombuffer(data, np.uint8, rows * _ROW_BYTES).reshape(rows, -1))
        carry = _over_zeros(_ROW_BYTES)
        for row in sums.tolist():
            carried = 0
            for index in range(8):
                carried ^= carry[index][crc >> 8 * index & 0xFF]
            crc = carried ^ row
    table = _TABLE
    for byte in memoryview(data)[rows * _ROW_BYTES :]:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc


def _sums_of_rows(rows: Any) -> Any:
    sums = np.zeros(len(rows), np.uint64)
    eight, low = np.uint64(8), np.uint64(0xFF)
    for column in np.ascontiguousarray(rows.T):
        sums = _TABLE_ARRAY[((sums ^ column) & low).astype(np.intp)] ^ sums >> eight
    return sums


def _over_zeros(count: int) -> list[list[int]]:
    """Return tables, one for each byte of a CRC, that append `count` zero bytes to it."""
    found = _CARRIES.get(count)
    if found is not None:
        return found
    bits = []
    for bit in range(64):
        crc = 1 << bit
        for _ in range(count):
            crc = _TABLE[crc & 0xFF] ^ crc >> 8
        bits.append(crc)
    tables = []
    for index in range(8):
        table = [0] * 256
        for byte in range(1, 256):
            lowest = byte & -byte
            table[byte] = table[byte ^ lowest] ^ bits[index * 8 + lowest.bit_length() - 1]
        tables.append(table)
    _CARRIES[count] = tables
    return tables


_CARRIES: Final[dict[int, list[list[int]]]] = {}
