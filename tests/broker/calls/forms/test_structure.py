"""The values and keys of a body are counted before objects are made of them."""

from __future__ import annotations

from typing import Any

import msgpack
import orjson
import pytest

from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.forms.parsers import UNCOUNTED_BYTES_MAX, check_json, check_msgpack

VALUES = [
    [],
    {},
    None,
    1.5,
    "x" * 40,
    b"x" * 300,
    [[1, -1, 200, -200, 70_000, -70_000, 2**40, -(2**40)], {"a": [b"x", "y" * 300, True]}],
    {"k": ["x"] * 20, "l": {str(n): n for n in range(20)}},
    msgpack.ExtType(5, b"x"),
    msgpack.ExtType(5, b"x" * 300),
    msgpack.ExtType(5, b"x" * 3),
    b"x" * 70_000,
    ["x"] * 70_000,
]


def _count(value: Any) -> int:
    """A value, the values in it, and their keys."""
    if isinstance(value, dict):
        return 1 + sum(1 + _count(each) for each in value.values())
    return 1 + sum(map(_count, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{value!r:.30}")
def test_msgpack_is_counted_exactly(value: Any) -> None:
    """With its padding the body has this many values and keys: one more is refused."""
    body = ["p" * UNCOUNTED_BYTES_MAX, value, value]
    count = _count(body)
    check_msgpack(msgpack.packb(body), count)
    with pytest.raises(Problem):
        check_msgpack(msgpack.packb(body), count - 1)


def test_json_texts_do_not_count_as_what_they_contain() -> None:
    """Commas and brackets inside strings are bytes of one value."""
    tricky = ['[,{"\\', "\\\\", '\\"', "{" * UNCOUNTED_BYTES_MAX, "", "é,\n"]
    check_json(orjson.dumps([tricky]), 7)
    check_json(orjson.dumps({"k": tricky}), 7)
    with pytest.raises(Problem):
        check_json(orjson.dumps({"k": tricky}), 6)


@pytest.mark.parametrize("cut", range(9))
def test_json_is_counted_across_slices(cut: int) -> None:
    """Quotes and escapes that stand on the edge of what is looked at together."""
    raw = b"[" + b" " * ((1 << 20) - 5 + cut) + rb'"\\\",[","\\",{"k":1}]'
    check_json(raw, 4)
    with pytest.raises(Problem):
        check_json(raw, 3)
