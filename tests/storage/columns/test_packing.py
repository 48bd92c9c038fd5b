"""A state that is packed in parts is the same bytes, and no part is long."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from delaylog.storage.checkpoint import PART_ITEMS, PackedList, packed_parts, unpacked_members

MANY = 3 * PART_ITEMS + 7


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"a": 1, "b": None, "c": b"raw", "d": "text", "e": [], "f": {}},
        {"long": [[k, b"x" * k] for k in range(MANY)]},
        {"exact": list(range(PART_ITEMS)), "two": list(range(2 * PART_ITEMS))},
        {"keyed": {k: [k, "v"] for k in range(MANY)}, "inner": {"next": 1, "living": [{}] * MANY}},
        {"view": memoryview(b"lent")},
    ],
)
def test_the_bytes_are_those_of_one_piece(state: dict[str, Any]) -> None:
    assert b"".join(packed_parts(state)) == msgpack.packb(state)


def test_no_part_holds_much() -> None:
    """Each is packed in one go, while nobody else gets the interpreter."""
    state = {
        "producers": [[k, "name"] for k in range(MANY)],
        "hours": dict.fromkeys(range(MANY), 1),
    }
    parts = list(packed_parts(state))
    whole = msgpack.packb(state)
    assert max(map(len, parts)) < len(whole) / 4


def test_a_list_that_stays_packed() -> None:
    """Its items are those that were packed, as often as somebody looks, and pack as they were."""
    state = {"a": 1, "many": [{"number": k, "raw": b"x" * k} for k in range(MANY)], "none": []}
    raw = msgpack.packb(state)
    members = unpacked_members(raw, lists={"many", "none", "absent"})
    for _ in range(2):
        assert {name: _plain(value) for name, value in members.items()} == state
    assert members["many"].count == MANY
    assert b"".join(packed_parts(members)) == raw


def _plain(value: object) -> object:
    return list(value) if isinstance(value, PackedList) else value
