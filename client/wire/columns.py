"""Columns of integers: how the bulk bodies carry them, and how this library holds them.

On the wire a column is one integer for all rows, or the little-endian values of the rows. Here it
is an `array` of the standard library, so a program that sends and receives does not need NumPy.
Programs that use NumPy may pass its arrays as columns, and read a column with
`numpy.asarray(column)`, which copies nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

from delaylog.client.wire.checks import check_list
from delaylog.contract.message_fields import ARRAY_CODES


class IntArray(Protocol):
    """An array of integers: an `array.array`, an array of NumPy, or a column of an answer."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def tobytes(self) -> bytes:
        """The values as bytes, in their layout in memory."""
        ...

    def tolist(self) -> Any:
        """The values as a list of int."""
        ...


Numbers: TypeAlias = int | Sequence[int] | IntArray
"""One value for all rows, or one for each row."""

_SIZES: Final = {kind: array(code).itemsize for kind, code in ARRAY_CODES.items()}


def column_of(name: str, values: Sequence[int] | IntArray, kind: str, n: int | None) -> array[int]:
    """The values as a column of the type `kind`, for example `<i8`.

    ValueError if there are not `n` values (None: any number), or if the type cannot hold one of
    them. TypeError for values that are not integers.
    """
    check_list(name, values)
    if hasattr(values, "__array__"):
        return _column_of_numpy(name, values.__array__(), kind, n)
    code = ARRAY_CODES[kind]
    if isinstance(values, array) and values.typecode == code:
        found = values
    else:
        try:
            found = array(code, values)
        except OverflowError:
            raise _outside(name, kind) from None
    if n is not None and len(found) != n:
        raise ValueError(f"{name} holds {len(found)} values for {n} rows")
    return found


def _column_of_numpy(name: str, values: Any, kind: str, n: int | None) -> array[int]:
    if values.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not {values.ndim}")
    if n is not None and len(values) != n:
        raise ValueError(f"{name} holds {values.size} values for {n} rows")
    if values.dtype.kind not in "iub" and len(values):
        raise TypeError(f"{name} must be whole numbers, not {values.dtype}")
    # Most columns have the type already. Names of types are compared, since NumPy would parse them.
    if values.dtype.str[1:] != kind[1:] or not values.dtype.isnative:
        found = values.astype(kind)
        if (found != values).any():
            raise _outside(name, kind)
        values = found
    return array(ARRAY_CODES[kind], values.tobytes())


def all_of(value: int, kind: str, n: int) -> array[int]:
    """A column of n equal values. OverflowError if the type cannot hold it."""
    return array(ARRAY_CODES[kind], [value]) * n


def column_from(raw: bytes, kind: str) -> array[int]:
    """The column that these bytes contain."""
    return array(ARRAY_CODES[kind], raw)


def size_of(kind: str) -> int:
    """Bytes of one value."""
    return _SIZES[kind]


def bounds_of(kind: str) -> tuple[int, int]:
    """The least and the greatest value of the type."""
    bits = 8 * _SIZES[kind]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if "i" in kind else (0, (1 << bits) - 1)


def one_for_all(column: array[int]) -> int | None:
    """The value that all rows share, or None if they differ or there are none."""
    if not column:
        return None
    raw = column.tobytes()
    return column[0] if raw == raw[: column.itemsize] * len(column) else None


def _outside(name: str, kind: str) -> ValueError:
    least, most = bounds_of(kind)
    return ValueError(f"{name} holds a value outside {least} to {most}")
