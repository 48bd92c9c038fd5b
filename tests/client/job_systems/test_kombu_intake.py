"""An intake and the broker's refusals. No broker is needed."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delaylog.client import ClientError, Forbidden
from delaylog.client._sync.surface import QueueClient
from delaylog.client.errors import api_error
from delaylog.client.job_systems.kombu_intake import Inbox, Intake
from delaylog.client.job_systems.leases import LeaseKeeper

MESSAGE = SimpleNamespace(receipt="r1", id="1", topic="queue")
WAIT_S = 60


class FakeClient:
    """Gives one answer after another to receives; then nothing arrives."""

    def __init__(self, *answers: ClientError | list[Any]) -> None:
        self._answers = deque(answers)
        self.returned: list[str] = []

    def receive(self, topic: str, **asked: Any) -> list[Any]:
        answer = self._answers.popleft() if self._answers else []
        if isinstance(answer, ClientError):
            raise answer
        return answer

    def release(self, messages: list[Any]) -> list[Any]:
        self.returned += [message.receipt for message in messages]
        return []


def started(client: FakeClient, prefetch: int = 1) -> tuple[Intake, Inbox]:
    sdk, inbox = cast(QueueClient, client), Inbox()
    intake = Intake(sdk, LeaseKeeper(sdk), inbox)
    intake.limit(prefetch)
    intake.consume("queue")
    return intake, inbox


def refused(code: str) -> ClientError:
    return api_error(429, {"code": code, "detail": "no"})


def test_a_quota_is_waited_for() -> None:
    intake, inbox = started(FakeClient(refused("quota"), [MESSAGE]))
    assert inbox.get(WAIT_S).receipt == "r1"
    intake.close()


def test_another_refusal_is_reported_once_until_it_is_taken() -> None:
    client = FakeClient(refused("forbidden"), refused("forbidden"), [MESSAGE])
    intake, inbox = started(client)
    first = inbox.get(WAIT_S)
    assert isinstance(first.error, Forbidden)
    assert inbox.get(WAIT_S).receipt == "r1"
    assert intake.take_error(first.error) is first.error
    intake.close()


def test_what_arrives_without_room_is_returned() -> None:
    """Two queues share the room; so does a poll that was under way when it was used up."""
    client = FakeClient([MESSAGE, SimpleNamespace(receipt="r2", id="2", topic="queue")])
    intake, inbox = started(client)
    assert inbox.get(WAIT_S).receipt == "r1"
    intake.close()
    intake.join(WAIT_S)
    assert sorted(client.returned) == ["r1", "r2"]


def test_a_message_that_was_returned_is_not_delivered() -> None:
    client = FakeClient([MESSAGE])
    intake, inbox = started(client)
    arrival = inbox.get(WAIT_S)
    intake.cancel("queue")
    assert intake.deliver(arrival.receipt) is None
    assert client.returned == ["r1"]
    intake.close()


def test_a_queue_whose_thread_cannot_be_started_can_be_consumed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = threading.Thread.start

    def start(_: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", real)
        raise RuntimeError("can't start new thread")

    sdk, inbox = cast(QueueClient, FakeClient([MESSAGE])), Inbox()
    intake = Intake(sdk, LeaseKeeper(sdk), inbox)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        intake.consume("queue")
    intake.consume("queue")
    assert inbox.get(WAIT_S).receipt == "r1"
    intake.close()
