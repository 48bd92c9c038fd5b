"""What names a body: equal ids mean equal slots and bodies, and every id is one a broker takes."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delaylog.client.queues.rmq import (
    PriorityMessage,
    RangeMergeMessage,
    id_of,
    key_of,
    slot_in,
    slot_of,
)

bodies = st.text(st.characters(codec="utf-8"), max_size=300)
slots = st.integers(0, (1 << 14) - 1)


@given(bodies, slots)
@example("\x7f", 0)
@example("é" * 126, 12)
@example("é" * 127, 12)
def test_an_id_is_one_a_broker_takes(body: str, slot: int) -> None:
    made = id_of(body, slot)
    assert 1 <= len(made.encode()) <= 255
    assert not made.startswith("~")
    assert made.isprintable()
    assert slot_in(made) == slot


@given(bodies, slots, bodies, slots)
@example("=", 1, "", 1)
@example("x", 1, "1=x", 1)
@example("a" * 300, 3, sha256(b"a" * 300).hexdigest(), 3)
def test_two_bodies_or_slots_are_two_ids(one: str, slot: int, other: str, other_slot: int) -> None:
    same = (one, slot) == (other, other_slot)
    assert (id_of(one, slot) == id_of(other, other_slot)) == same


def test_the_ids_are_pinned() -> None:
    """They are stored: another form would let a body live twice."""
    assert id_of("order 5", 3) == "3=order 5"
    assert id_of("a\nb", 3) == f"3#{sha256(b'a' + bytes([10]) + b'b').hexdigest()}"


@pytest.mark.parametrize("wrong", ["", "=", "x=", "12", "12:x", "~3ce0"])
def test_another_id_has_no_slot(wrong: str) -> None:
    with pytest.raises(ValueError, match="no id of an RMQ message"):
        slot_in(wrong)


def test_the_basis_is_the_slot_and_the_key() -> None:
    message = PriorityMessage("b", 17, slot_basis="123456789")
    assert slot_of(message, 8) == 0xCBF43926 % 8
    assert key_of(message) == "123456789"
    assert key_of(PriorityMessage("b", 17)) is None
    assert key_of(PriorityMessage("b", 17, slot_basis="")) is None
    assert slot_of(PriorityMessage("b", 17, slot_basis=""), 8) == 0
    long = key_of(PriorityMessage("b", 17, slot_basis="k" * 256))
    assert long == sha256(b"k" * 256).hexdigest()


def test_a_time_range_is_above_0_and_a_priority_above_the_retries() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        RangeMergeMessage("b", 0)
    with pytest.raises(ValueError, match="more than 16"):
        PriorityMessage("b", 16)
