"""The members that open a stream, as a query gives them."""

from __future__ import annotations

import pytest

from delaylog.broker.engine.limits import Limits
from delaylog.contract.calls import shapes
from delaylog.contract.calls.streams import OPEN
from delaylog.contract.members import MemberError
from delaylog.contract.message_fields import TAGS_MAX

LIMITS = Limits()
BY_NAME = {member.name: member for member in OPEN}


def test_defaults() -> None:
    values = {name: member.take({}, LIMITS) for name, member in BY_NAME.items()}
    assert values == {
        "form": None,
        "messages": 100,
        "bytes": 1 << 20,
        "lease_ms": 0,
        "tags": None,
        "tags_mode": None,
        "begin": True,
        "consumer": None,
    }


def test_tags_are_separated_by_commas() -> None:
    assert BY_NAME["tags"].take({"tags": "a,b"}, LIMITS) == ["a", "b"]
    assert BY_NAME["tags"].take({"tags": "a"}, LIMITS) == ["a"]
    with pytest.raises(MemberError, match=f"must be at most {TAGS_MAX} texts"):
        BY_NAME["tags"].take({"tags": "," * TAGS_MAX}, LIMITS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("messages", "-1"),
        ("messages", "1000001"),
        ("bytes", "1e3"),
        ("lease_ms", str(shapes.LEASE_MS_MAX + 1)),
        ("form", "xml"),
        ("begin", "no"),
    ],
)
def test_illegal_values(name: str, text: str) -> None:
    with pytest.raises(MemberError, match=name):
        BY_NAME[name].take({name: text}, LIMITS)
