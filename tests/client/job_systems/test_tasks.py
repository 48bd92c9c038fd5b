"""Tasks as messages: ids, tags, repeated sends, delays, refused retries, and topics of queues."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from delaylog import Client, TooLate
from delaylog.client import AnswerLost, NotFound, NotReached, QuotaExceeded
from delaylog.client.errors import api_error
from delaylog.client.job_systems.tasks import (
    NAME_CHARS_MAX,
    cancel_task,
    declare_topic,
    id_of,
    id_tag,
    refusal_of,
    send_refused_copy,
    send_task,
    tags_of,
    task_tag_of,
    topic_of,
    whole_ms,
)
from delaylog.client.models import TopicSettings
from tests.broker.conftest import Broker

TOPIC = "celery"


def test_a_task_id_is_a_message_id_if_it_can_be_one() -> None:
    assert [id_of(task_id) for task_id in ("17", "ä" * 127)] == ["17", "ä" * 127]
    for other in ("", "~1", "a\nb", "x" * 256, "ä" * 128, None, 17):
        assert id_of(other) is None, other


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


@pytest.mark.parametrize("queue", ["celery", "a.B-c_9", "x" * NAME_CHARS_MAX])
def test_a_legal_name_is_the_topic(queue: str) -> None:
    assert topic_of(queue) == queue


def test_other_names_become_legal_and_stay_apart() -> None:
    queues = ["a@b", "a/b", "", "ä", "x" * (NAME_CHARS_MAX + 1), "x" * (NAME_CHARS_MAX + 2)]
    topics = [topic_of(queue) for queue in queues]
    assert len(set(topics)) == len(queues)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,200}", topic) for topic in topics)
    assert topics[0].startswith("a-b.")


class Away:
    """A client whose broker is away for some calls, and then has no such topic."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.put: list[str] = []

    def get_topic(self, topic: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        raise api_error(404, {"code": "unknown", "detail": topic})

    def put_topic(self, topic: str, settings: object) -> None:
        assert settings is not None
        if self.failures:
            raise self.failures.pop(0)
        self.put.append(topic)


def test_a_topic_is_made_once_the_broker_is_back() -> None:
    """So the first task that a process sends is as patient as later ones."""
    away = Away(NotReached("refused"), AnswerLost("cut off"), NotReached("refused"))
    declare_topic(cast(Any, away), "celery", for_s=30)
    assert away.put == ["celery"]
    late = Away(NotFound(404, {"code": "unknown"}, None), AnswerLost("the answer to the put"))
    declare_topic(cast(Any, late), "celery", for_s=30)
    assert late.put == ["celery"]


def test_it_is_not_repeated_longer_than_that() -> None:
    with pytest.raises(NotReached):
        declare_topic(cast(Any, Away(NotReached("refused"))), "celery")
