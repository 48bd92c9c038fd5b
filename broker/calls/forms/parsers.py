"""Parses JSON and msgpack from strangers, for bodies of calls and frames of streams.

The number of values is limited, and counted before any object is built. A value takes one byte of a
body but up to ninety bytes of memory, so the size of a body does not limit the cost of parsing:
64 MiB of empty arrays would become 4 GiB. Malformed bodies pass the count, and the parser then
reports the error.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack
import numpy as np
import orjson

from delaylog.broker.calls.answers import Problem, no_memory

# ------------------------------------------------------------------------- the number of values

PLAIN_BYTES_MAX: Final = 1 << 20
"""Largest body of a call that carries no messages, ids or receipts."""
UNCOUNTED_BYTES_MAX: Final = 256 << 10
"""Bodies up to this size become at most 20 MiB of objects: counting costs more than it saves."""

_MARKS: Final = b",[{"
"""Outside of strings, one of these bytes precedes each item of an array and each key of an object.
"""
_SLICE: Final = 1 << 20


def check_json(raw: bytes, values_max: int) -> None:
    """Refuse a JSON body with too many values."""
    if sum(map(raw.count, _MARKS)) <= values_max:
        return
    # This count includes marks in strings, and a message's body may itself be JSON: count again
    # without strings.
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    seen = quotes = 0
    for start in range(0, len(raw), _SLICE):
        column = np.frombuffer(raw, np.uint8, min(_SLICE, len(raw) - start), start)
        inside = np.cumsum(column == ord('"'), dtype=np.int64) + quotes
        quotes = int(inside[-1])
        marked = (column == ord(",")) | (column == ord("[")) | (column == ord("{"))
        seen += int(np.count_nonzero(marked & (inside % 2 == 0)))
    if seen > values_max:
        raise _too_many(values_max)


def check_msgpack(raw: bytes, values_max: int) -> None:
    """Refuse a msgpack body with too many values; keys of maps count too."""
    size = len(raw)
    at, seen, left = 0, 0, 1
    steps, children, widths = _STEPS, _CHILDREN, _WIDTHS
    while left and at < size:
        seen += 1
        if seen > values_max:
            raise _too_many(values_max)
        first = raw[at]
        left += children[first] - 1
        at += steps[first]
        width = widths[first]
        if width:
            count = int.from_bytes(raw[at - width : at], "big")
            if first >= 0xDE:
                left += 2 * count
            elif first >= 0xDC:
                left += count
            else:
                # An extension has a type byte between its length and its content.
                at += count + (0xC7 <= first <= 0xC9)


def _too_many(values_max: int) -> Problem:
    return Problem(
        "too_large", f"the body holds more than {values_max} values; send several requests"
    )


def _tables() -> tuple[list[int], list[int], list[int]]:
    """Three tables, indexed by the first byte of a msgpack value.

    `steps`: size of the head (first byte and length field), plus the size of the content if the
    first byte states it. `children`: number of values inside, if the first byte states it.
    `widths`: size of the length field.
    """
    steps, children, widths = [1] * 256, [0] * 256, [0] * 256
    for count in range(16):
        children[0x80 | count] = 2 * count
        children[0x90 | count] = count
    for count in range(32):
        steps[0xA0 | count] = 1 + count
    lengths = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
    lengths |= {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
    for first, width in lengths.items():
        widths[first] = width
        steps[first] = 1 + width
    fixed = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
    fixed |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    fixed |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
    for first, size in fixed.items():
        steps[first] = 1 + size
    return steps, children, widths


_STEPS, _CHILDREN, _WIDTHS = _tables()


# -------------------------------------------------------------------------------------- parsers

_NO_MEMORY: Final = "Not enough memory"
"""How orjson's message begins when memory runs out: it raises JSONDecodeError, as for bad JSON."""


def read_json(raw: bytes, values_max: int | None) -> Any:
    """A JSON body of at most this many values (None: they are not counted). Raises a Problem."""
    if values_max is not None and len(raw) > UNCOUNTED_BYTES_MAX:
        check_json(raw, values_max)
    try:
        return orjson.loads(raw)
    except MemoryError:
        raise no_memory() from None
    except orjson.JSONDecodeError as error:
        if error.msg.startswith(_NO_MEMORY):
            raise no_memory() from None
        raise Problem("bad_request", f"the body is not JSON: {error}") from None


def read_msgpack(raw: bytes, values_max: int | None, length_max: int) -> Any:
    """The same of msgpack; no container has more than `length_max` items."""
    if values_max is not None and len(raw) > UNCOUNTED_BYTES_MAX:
        check_msgpack(raw, values_max)
    try:
        return msgpack.unpackb(
            raw,
            raw=False,
            strict_map_key=True,
            max_array_len=min(length_max, len(raw)),
            max_map_len=min(length_max, len(raw)),
        )
    except MemoryError:
        raise no_memory() from None
    except (ValueError, msgpack.UnpackException, TypeError, RecursionError) as error:
        raise Problem("bad_request", f"the body is not msgpack: {error}") from None
