"""What the broker is told about a message of kombu, and what the worker gets back."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delaylog.client._sync.message import Message
from delaylog.client.job_systems.kombu_channel import (
    body_of,
    due_ms,
    fields_of,
    payload_of,
    task_id_of,
)


def payload(headers: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {"body": "[]", "headers": headers, "properties": {"delivery_info": {}, **properties}}


def delivered(sent: dict[str, Any], attempts: int = 1) -> dict[str, Any]:
    message = SimpleNamespace(text=body_of(sent), receipt="r1", attempts=attempts)
    return payload_of(cast(Message, message))


@pytest.mark.parametrize(
    ("eta", "due"),
    [
        ("1970-01-01T00:00:01+00:00", 1_000),
        ("1970-01-01T01:00:01.000001+01:00", 1_001),
        ("1969-01-01T00:00:00+00:00", 0),
        ("2026-01-01T00:00:00", None),
        ("tomorrow", None),
        (None, None),
    ],
)
def test_an_eta_with_a_time_zone_is_a_due_time_and_never_early(
    eta: str | None, due: int | None
) -> None:
    assert due_ms({"eta": eta}) == due


@pytest.mark.parametrize(
    ("eta", "seen"),
    [("1970-01-01T00:00:01+00:00", None), ("2026-01-01T00:00:00", "2026-01-01T00:00:00")],
)
def test_the_worker_waits_only_for_what_the_broker_did_not(eta: str, seen: str | None) -> None:
    assert delivered(payload({"eta": eta}))["headers"]["eta"] == seen


def test_a_task_is_found_by_its_id_and_name() -> None:
    message = payload({"task": "app.add", "id": "17"}, priority=20, expiration="1500")
    assert fields_of(message) == {"tags": ["app.add"], "priority": 9, "ttl": timedelta(seconds=1.5)}
    assert task_id_of(message) == "17"
    assert task_id_of(payload({"id": "no task"})) is None


def test_what_cannot_be_a_field_is_left_out() -> None:
    assert fields_of(payload({"task": "x" * 65, "id": "y" * 256}, priority=None)) == {"tags": []}
    assert fields_of(payload({"id": "no task"}, priority=-1)) == {}


def test_a_delivery_has_its_own_tag_and_says_whether_it_is_the_first() -> None:
    first = delivered(payload({}, delivery_tag="of the sender"))
    assert first["properties"]["delivery_tag"] == "r1"
    assert first["properties"]["delivery_info"]["redelivered"] is False
    again = delivered(payload({}), attempts=2)
    assert again["properties"]["delivery_info"]["redelivered"] is True
