"""One column of an Arrow body: its values in the bulk format, and which of them are null."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.calls.problems import Problem
from delaylog.contract.members import Int, Number
from delaylog.storage.columns.questions import Mask, alike
from delaylog.storage.layout import Int64Array

_SIZE_MAX: Final = 2**16 - 1
"""The largest text other than a body: its size is a u16."""
Texts = tuple[Int64Array, bytes | memoryview]
"""Sizes, and all values concatenated."""


class ArrowColumn:
    """One column, over all batches of a stream."""

    __slots__ = ("chunks", "library", "name")

    def __init__(self, library: Any, name: str, batches: list[Any]) -> None:
        self.library = library
        self.name = name
        self.chunks = [batch.column(name) for batch in batches]

    def refuse_nulls(self) -> None:
        """Raise a Problem that names the first row without a value, if any."""
        row = 0
        for chunk in self.chunks:
            if chunk.null_count:
                row += int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False)))
                raise self.wrong("is null", row)
            row += len(chunk)

    def wrong(self, what: str, row: int | None = None) -> Problem:
        """A refusal that names the column."""
        where = "" if row is None else f" in row {row}"
        return Problem("bad_request", f"{self.name} {what}{where}", field=self.name, item=row)

    def check(self, member: Int | Number, values: npt.NDArray[Any], present: Mask) -> None:
        """Raise a Problem that names the first value outside the member's bounds, if any."""
        low, high = member.low, member.high
        inside = (values >= low) & (values <= high)
        wrong = np.flatnonzero(present & ~inside)
        if len(wrong):
            row = int(wrong[0])
            name = "" if member.name == self.name else f"{member.name} "
            raise self.wrong(f"{name}must lie from {low} to {high}, not {values[row]},", row)

    def filled(self, value: Any) -> list[Any]:
        """The chunks with a value in place of nulls."""
        return [chunk.fill_null(value) if chunk.null_count else chunk for chunk in self.chunks]

    def int64(self, chunk: Any) -> Int64Array:
        """A chunk of integers, times included, without nulls."""
        kind = chunk.type
        if not self.library.types.is_timestamp(kind) and kind != self.library.int64():
            chunk = chunk.cast(self.library.int64())
        return values_of(chunk, "<i8", len(chunk))


def values_of(chunk: Any, dtype: str, count: int) -> np.ndarray:
    """Numbers or offsets of a chunk; its buffer may be longer, and end with part of a number."""
    buffer = chunk.buffers()[1]
    return np.frombuffer(buffer, dtype, chunk.offset + count)[chunk.offset :]


def texts_of(library: Any, chunks: list[Any]) -> Texts:
    """Sizes and bytes of string or binary chunks without nulls."""
    sizes, blocks = [], []
    for chunk in chunks:
        if len(chunk) == 0:
            continue
        types, kind = library.types, chunk.type
        wide = types.is_large_binary(kind) or types.is_large_string(kind)
        data = chunk.buffers()[2]
        ends = values_of(chunk, "<i8" if wide else "<i4", len(chunk) + 1)
        sizes.append((ends[1:] - ends[:-1]).astype(np.int64))
        view = memoryview(b"" if data is None else data)
        blocks.append(view[int(ends[0]) : int(ends[-1])])
    if len(sizes) == 1:
        return sizes[0], blocks[0]
    return (np.concatenate(sizes) if sizes else np.zeros(0, np.int64)), b"".join(blocks)


def put_texts(fields: dict[str, Any], name: str, block_name: str, texts: Texts) -> None:
    """A text column of the bulk form; nothing when all are empty."""
    sizes, block = texts
    if name != "body":
        if len(block) == 0:
            return
        if int(sizes.max()) > _SIZE_MAX:
            row = int(np.argmax(sizes))
            raise Problem("bad_request", f"{name} is too long in row {row}", field=name, item=row)
    fields[f"{name}_size"] = int(sizes[0]) if alike(sizes) else sizes
    fields[block_name] = block


def present_in(chunks: list[Any]) -> Mask:
    """Which rows are not null."""
    return np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in chunks])


def put_numbers(fields: dict[str, Any], name: str, values: Int64Array) -> None:
    fields[name] = int(values[0]) if alike(values) else values


def row_of(counts: Int64Array, value: int) -> int:
    """The row of a list's value, by the index of the value among all values."""
    return int(np.searchsorted(np.cumsum(counts), value, side="right"))


def first_null(chunks: list[Any]) -> int | None:
    at = 0
    for chunk in chunks:
        if chunk.null_count:
            return at + int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False)))
        at += len(chunk)
    return None
