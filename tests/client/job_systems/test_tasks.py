"""Tasks as messages: ids, tags, repeated sends, delays, and refused retries."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from delaylog import Client, TooLate
from delaylog.client import NotFound, QuotaExceeded
from delaylog.client.job_systems.tasks import (
    cancel_task,
    id_of,
    id_tag,
    refusal_of,
    send_refused_copy,
    send_task,
    tags_of,
    task_tag_of,
    whole_ms,
)
from delaylog.client.models import TopicSettings
from tests.broker.conftest import Broker

TOPIC = "celery"


@pytest.mark.parametrize("task_id", ["17", "ä" * 127])
def test_a_task_id_is_a_message_id(task_id: str) -> None:
    assert id_of(task_id) == task_id


@pytest.mark.parametrize("task_id", ["", "~1", "a\nb", "x" * 256, "ä" * 128, None, 17])
def test_a_task_id_that_cannot_be_one_is_left_out(task_id: object) -> None:
    assert id_of(task_id) is None


def test_the_name_of_a_task_is_a_tag_if_it_can_be_one() -> None:
    assert tags_of("app.add") == ["app.add"]
    assert [tags_of(name) for name in ("", "a\nb", "x" * 65, None)] == [[]] * 4


@pytest.mark.parametrize("task_id", ["17", "x" * 65, "~1", "a\nb", "x" * 300, ""])
def test_each_send_of_a_task_id_is_delivered_and_cancelled_by_it(
    client: Client, task_id: str
) -> None:
    for number in range(3):
        send_task(client, TOPIC, f"run {number}", {"tags": ["app.add"]}, task_id)
    found = client.receive(TOPIC, max=10)
    assert sorted(message.text for message in found) == ["run 0", "run 1", "run 2"]
    assert {task_tag_of(message) for message in found} == {id_tag(task_id)}
    with pytest.raises((TooLate, NotFound)):
        cancel_task(client, TOPIC, task_id)
    send_task(client, TOPIC, "a retry of a task under lease", {}, task_id)
    send_task(client, TOPIC, "another", {"delay": timedelta(milliseconds=3_600_000)}, task_id)
    assert cancel_task(client, TOPIC, task_id).result == "done"
    assert client.receive(TOPIC) == []
    assert client.stats(TOPIC).counts.waiting == 0


def test_a_task_that_nobody_sent_is_not_found(client: Client) -> None:
    send_task(client, TOPIC, "another task", {}, "18")
    with pytest.raises(NotFound, match="no task '17'"):
        cancel_task(client, TOPIC, "17")


@pytest.mark.parametrize(
    ("delay", "expected"), [(1_234.5, 1_235), (1e3, 1_000), (0.1, 1), (-5, 0), (-0.5, 0), (7, 7)]
)
def test_a_delay_is_rounded_up_to_a_millisecond(delay: float, expected: int) -> None:
    assert whole_ms(delay) == expected


@pytest.mark.parametrize("delay", ["5", None, Decimal(5), True, float("nan"), float("inf")])
def test_a_delay_that_is_no_number_is_refused_with_its_value(delay: object) -> None:
    with pytest.raises((TypeError, ValueError), match="number of milliseconds, not"):
        whole_ms(delay)  # type: ignore[arg-type]


def test_a_refused_copy_is_rejected_until_somebody_replays_it(client: Client) -> None:
    send_refused_copy(client, TOPIC, "task", {}, ValueError("too large"))
    (message,) = client.receive(TOPIC)
    reason = refusal_of(client, message)
    assert reason == "its retry was refused: too large"
    client.reject(message, reason=reason)
    (dead,) = client.dead(TOPIC)
    assert dead.reason == reason
    client.replay(TOPIC, [dead.id])
    (message,) = client.receive(TOPIC, wait=timedelta(seconds=5))
    assert refusal_of(client, message) is None


@pytest.mark.parametrize("refused", [ValueError("too large"), None], ids=["size", "quota"])
def test_a_refused_copy_waits_for_room(
    broker: Broker, namespace: str, refused: Exception | None
) -> None:
    """A quota that refuses the retry of an acked task refuses its copy too."""
    client = Client(broker.url, namespace=namespace, timeout=timedelta(seconds=1))
    client.put_topic(TOPIC, TopicSettings(quota={"pending": 1}))
    blocker = client.send(TOPIC, "fills the queue", delay=timedelta(hours=1))
    if refused is None:
        with pytest.raises(QuotaExceeded) as caught:
            client.send(TOPIC, "retry")
        refused = caught.value
    send_refused_copy(client, TOPIC, "task", {}, refused)
    client.cancel(TOPIC, blocker.id)
    (message,) = client.receive(TOPIC, wait=timedelta(seconds=30))
    assert message.text == "task"
    assert refusal_of(client, message) == f"its retry was refused: {refused}"
    client.close()
