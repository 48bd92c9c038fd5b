"""Parses JSON and msgpack from strangers, for bodies of calls and frames of streams."""

from __future__ import annotations

from typing import Any, Final

import msgpack
import orjson

from delaylog.broker.calls.forms.structure import UNCOUNTED_BYTES_MAX, check_json, check_msgpack
from delaylog.broker.calls.problems import Problem, no_memory

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
