"""A message of a Dyno queue: its JSON, what is refused, what is equal, and how it prints."""

from __future__ import annotations

import pytest

from delaylog.client.queues import DynoMessage
from delaylog.client.queues.dyno_message import encode


def test_its_json_leaves_out_what_is_empty() -> None:
    assert encode(DynoMessage("m")) == '{"id":"m","timeout":0,"priority":0}'
    full = DynoMessage("é", '"x"', timeout_ms=5, priority=9, shard="a")
    wanted = '{"id":"é","payload":"\\"x\\"","timeout":5,"priority":9,"shard":"a"}'
    assert encode(full) == wanted


@pytest.mark.parametrize("priority", [-1, 100])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="priority"):
        DynoMessage("m", priority=priority)


def test_messages_are_equal_by_id() -> None:
    assert len({DynoMessage("m", "x"), DynoMessage("m", "y", timeout_ms=4)}) == 1


def test_it_prints_by_its_name_and_without_its_payload() -> None:
    message = DynoMessage("a", "secret", timeout_ms=5, priority=3, shard="b")
    assert repr(message) == (
        "DynoMessage(id='a', timeout_ms=5, priority=3, shard='b', 6 characters)"
    )
