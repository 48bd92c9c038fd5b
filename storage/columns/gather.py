"""Vectorised gathering of byte ranges, from memory or from a file.

The ways, fastest first: one slice when the ranges are contiguous; one strided copy when all sizes
and all steps are equal; one fancy index when sizes are equal and steps are multiples of the size;
else a join of slices. All return copied bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from delaylog.storage.columns.questions import every
from delaylog.storage.layout import Int64Array
from delaylog.storage.messages.batch import Block


def gather(block: Block, starts: Int64Array, sizes: Int64Array) -> bytes:
    """The ranges [start, start + size) of `block`, one after another."""
    n = len(starts)
    if n == 0:
        return b""
    first, size = int(starts[0]), int(sizes[0])
    if n == 1:
        return bytes(block[first : first + size])
    if every(starts[1:] == starts[:-1] + sizes[:-1]):
        return bytes(block[first : int(starts[-1]) + int(sizes[-1])])
    if size > 0 and every(sizes == size):
        step = int(starts[1]) - first
        if step > 0 and every(starts[1:] - starts[:-1] == step):
            # The same part of records of one size, as for bodies behind ids of one size.
            last = first + (n - 1) * step + size
            window = np.frombuffer(block, np.uint8, last - first, first)
            return as_strided(window, (n, size), (step, 1), writeable=False).tobytes()
        if every((starts - first) % size == 0):
            phase = first % size
            whole = (len(block) - phase) // size
            table = np.frombuffer(block, np.uint8, whole * size, phase).reshape(whole, size)
            return table[(starts - phase) // size].tobytes()
    view = memoryview(block)
    ends = (starts + sizes).tolist()
    return b"".join([view[a:b] for a, b in zip(starts.tolist(), ends, strict=True)])


def join_ranges(
    views: Sequence[memoryview | bytes], starts: Int64Array, sizes: Int64Array
) -> bytes:
    """Range k of `views[k]` for every k, one after another: one pass over ranges of many sizes."""
    ends = (starts + sizes).tolist()
    return b"".join([v[a:b] for v, a, b in zip(views, starts.tolist(), ends, strict=True)])


def read_spans(
    pread: Callable[[int, int], bytes], starts: Int64Array, sizes: Int64Array, *, gap: int
) -> bytes:
    """Ranges of a file, one after another, with few reads: neighbours within `gap` share one."""
    if len(starts) == 0:
        return b""
    ends = starts + sizes
    low, high = int(starts.min()), int(ends.max())
    total = int(sizes.sum())
    if high - low <= 2 * total + gap:
        return gather(pread(high - low, low), starts - low, sizes)
    order = np.argsort(starts, kind="stable")
    sorted_starts, sorted_ends = starts[order], ends[order]
    reach = np.maximum.accumulate(sorted_ends)
    cuts = np.flatnonzero(sorted_starts[1:] > reach[:-1] + gap) + 1
    firsts = [0, *cuts.tolist()]
    lasts = [*(cuts - 1).tolist(), len(order) - 1]
    parts = []
    shift = np.empty(len(order), np.int64)
    at = 0
    for a, b in zip(firsts, lasts, strict=True):
        start, end = int(sorted_starts[a]), int(reach[b])
        parts.append(pread(end - start, start))
        shift[a : b + 1] = at - start
        at += end - start
    moved = np.empty(len(order), np.int64)
    moved[order] = sorted_starts + shift
    return gather(b"".join(parts), moved, sizes)


def scatter_back(parts: Sequence[bytes], places: Sequence[Int64Array], sizes: Int64Array) -> bytes:
    """Ranges that were gathered in groups, in their original order again.

    `places[k]` lists the ranges that `parts[k]` contains, one after another.
    """
    if len(parts) == 1:
        return parts[0]
    starts = np.empty(len(sizes), np.int64)
    base = 0
    for part, place in zip(parts, places, strict=True):
        ends = np.cumsum(sizes[place])
        starts[place] = base + ends - sizes[place]
        base += len(part)
    return gather(b"".join(parts), starts, sizes)
